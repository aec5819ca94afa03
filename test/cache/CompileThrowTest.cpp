//===- CompileThrowTest.cpp - Tests of compiles that do not return --------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiled with exceptions, as users may be.
//
//===----------------------------------------------------------------------===//

#include "context_pool/ObjectCache.h"

#include "test/cache/CacheTestSupport.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <functional>
#include <memory>
#include <pthread.h>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::test;

namespace {

struct End {
  const char *name;
  std::function<void()> end; ///< Does not return.
  absl::StatusCode code;
  const char *message;
  bool endsThread;
};

std::vector<End> allEnds() {
  return {
      {"exception", [] { throw std::runtime_error("out of luck"); },
       absl::StatusCode::kInternal, "out of luck", false},
      {"int", [] { throw 7; }, absl::StatusCode::kInternal, "no std::exception",
       false},
      {"pthread_exit", [] { pthread_exit(nullptr); },
       absl::StatusCode::kAborted, "thread that was making it ended", true},
      {"pthread_cancel",
       [] {
         pthread_cancel(pthread_self());
         while (true)
           pthread_testcancel();
       },
       absl::StatusCode::kAborted, "thread that was making it ended", true},
  };
}

/// Runs `body` on a thread that may end in it.
void onThread(const std::function<void()> &body) {
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, nullptr,
                [](void *argument) -> void * {
                  (*static_cast<const std::function<void()> *>(argument))();
                  return nullptr;
                },
                const_cast<std::function<void()> *>(&body)),
            0);
  pthread_join(thread, nullptr);
}

using GetOrCompile = std::function<absl::StatusOr<Artifact>(
    CompileCache &, llvm::function_ref<absl::StatusOr<Artifact>()>)>;

TEST(CompileThrowTest, EverybodyWhoWaitedIsToldAndTheNextCompilesAgain) {
  GetOrCompile withExceptions = [](CompileCache &cache, auto compile) {
    return cache.getOrCompile(keyOf(1), compile);
  };
  GetOrCompile throughPlainCode = [](CompileCache &cache, auto compile) {
    return getOrCompileThroughPlainCode(cache, keyOf(1), compile);
  };
  for (const GetOrCompile &getOrCompile : {withExceptions, throughPlainCode})
    for (const End &end : allEnds()) {
      SCOPED_TRACE(end.name);
      auto cache = makeCache();
      PhaseGate gate;
      bool returned = false;
      absl::StatusOr<Artifact> leaders = absl::UnknownError("not yet");
      std::vector<absl::StatusOr<Artifact>> waiters(
          8, absl::UnknownError("not yet"));
      std::vector<std::thread> threads;
      for (absl::StatusOr<Artifact> &waiter : waiters)
        threads.emplace_back([&] {
          gate.await(1);
          waiter = cache->getOrCompile(keyOf(1), mustNotCompile);
        });
      onThread([&] {
        leaders = getOrCompile(*cache, [&]() -> absl::StatusOr<Artifact> {
          gate.open(1);
          EXPECT_TRUE(
              eventually([&] { return cache->getStats().joined == 8; }));
          end.end();
          return artifactOf("never");
        });
        returned = true;
      });
      for (std::thread &thread : threads)
        thread.join();

      EXPECT_EQ(returned, !end.endsThread);
      if (returned) {
        EXPECT_THAT(leaders, StatusIs(end.code, end.message));
      }
      for (const absl::StatusOr<Artifact> &waiter : waiters)
        EXPECT_THAT(waiter, StatusIs(end.code, end.message));
      EXPECT_EQ(cache->getStats().failures, 1u);
      EXPECT_THAT(cache->getOrCompile(keyOf(1), compileTo("one")), IsOk());
      expectStatsAddUp(*cache);
    }
}

TEST(CompileThrowTest, AThreadThatEndsInNestedCompilesEndsAllOfThem) {
  auto cache = makeCache();
  onThread([&] {
    (void)cache->getOrCompile(keyOf(1), [&]() -> absl::StatusOr<Artifact> {
      return cache->getOrCompile(keyOf(2), []() -> absl::StatusOr<Artifact> {
        pthread_exit(nullptr);
      });
    });
  });
  EXPECT_EQ(cache->getStats().failures, 2u);
  for (uint64_t key : {1, 2})
    EXPECT_THAT(cache->getOrCompile(keyOf(key), compileTo("again"),
                                    absl::ZeroDuration()),
                IsOk());
}

TEST(CompileThrowTest, AClaimIsReleasedHoweverTheCompileEnds) {
  for (const End &end : allEnds()) {
    SCOPED_TRACE(end.name);
    auto state = std::make_shared<FakeTierState>();
    state->hasClaims = true;
    auto cache = makeCacheOn(state);
    onThread([&] {
      (void)cache->getOrCompile(keyOf(1), [&]() -> absl::StatusOr<Artifact> {
        EXPECT_EQ(state->read(&FakeTierState::claimsHeld), 1u);
        end.end();
        return artifactOf("never");
      });
    });
    EXPECT_EQ(state->read(&FakeTierState::claimsHeld), 0u);
    EXPECT_EQ(state->read(&FakeTierState::puts), 0u);
  }
}

TEST(CompileThrowTest, AVerifyingCompileThatThrowsIsADifference) {
  std::vector<HitMismatch> mismatches;
  CompileCacheOptions options;
  options.verifyHits = true;
  options.verifyInterval = 1;
  options.onMismatch = [&](const HitMismatch &mismatch) {
    mismatches.push_back(mismatch);
  };
  auto cache = makeCache(options);
  ASSERT_THAT(cache->insert(keyOf(1), artifactOf("one")), IsOk());
  EXPECT_THAT(cache->getOrCompile(keyOf(1),
                                  []() -> absl::StatusOr<Artifact> {
                                    throw std::runtime_error("out of luck");
                                  }),
              IsOk());
  ASSERT_EQ(mismatches.size(), 1u);
  EXPECT_THAT(mismatches[0].compiled,
              StatusIs(absl::StatusCode::kInternal, "out of luck"));
}

TEST(CompileThrowTest, ACreationOfAnObjectMayThrowAsWell) {
  ObjectCache<int> cache(1000);
  auto create = []() -> absl::StatusOr<std::shared_ptr<int>> {
    throw std::runtime_error("out of luck");
  };
  auto sizeOf = [](const int &) { return uint64_t(4); };
  EXPECT_THAT(cache.getOrCreate(keyOf(1), create, sizeOf),
              StatusIs(absl::StatusCode::kInternal, "out of luck"));
  EXPECT_THAT(
      cache.getOrCreate(
          keyOf(1), [] { return std::make_shared<int>(7); },
          [](const int &) -> uint64_t { throw std::runtime_error("no size"); }),
      StatusIs(absl::StatusCode::kInternal, "no size"));
  onThread([&] {
    (void)cache.getOrCreate(
        keyOf(1),
        []() -> absl::StatusOr<std::shared_ptr<int>> { pthread_exit(nullptr); },
        sizeOf);
  });
  EXPECT_EQ(cache.getStats().failures, 3u);
  EXPECT_THAT(cache.getOrCreate(
                  keyOf(1), [] { return std::make_shared<int>(7); }, sizeOf),
              IsOk());
}

} // namespace

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
#include "context_pool/support/Mutex.h"

#include "test/cache/CacheTestSupport.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <atomic>
#include <cerrno>
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

//===----------------------------------------------------------------------===//
// Waiters that are cancelled
//===----------------------------------------------------------------------===//

/// A thread that is cancelled as it runs `body`, when `ready` says so.
void cancelOnThread(std::function<void()> body,
                    const std::function<bool()> &ready) {
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, nullptr,
                [](void *argument) -> void * {
                  (*static_cast<std::function<void()> *>(argument))();
                  return nullptr;
                },
                &body),
            0);
  EXPECT_TRUE(eventually(ready));
  pthread_cancel(thread);
  void *result = nullptr;
  pthread_join(thread, &result);
  EXPECT_EQ(result, PTHREAD_CANCELED);
}

TEST(CondVarTest, AThreadThatIsCancelledAsItWaitsHasTheLockAsItUnwinds) {
  static_assert(sizeof(Mutex) == sizeof(pthread_mutex_t));
  for (bool isTimed : {false, true}) {
    Mutex mutex;
    CondVar condition;
    std::atomic<bool> waits{false};
    int answer = -1;
    struct Unwinding {
      Mutex &mutex;
      int &answer;
      ~Unwinding() {
        answer =
            pthread_mutex_trylock(reinterpret_cast<pthread_mutex_t *>(&mutex));
      }
    };
    cancelOnThread(
        [&] {
          MutexLock lock(mutex);
          Unwinding unwinding{mutex, answer};
          waits = true;
          while (true)
            if (isTimed)
              condition.waitUntil(mutex, CondVar::Clock::now() + deadline);
            else
              condition.wait(mutex);
        },
        [&] { return waits.load(); });
    EXPECT_EQ(answer, EBUSY);
    MutexLock lock(mutex);
  }
}

TEST(CompileThrowTest, AWaiterThatIsCancelledWaitsForNothingAnymore) {
  auto cache = makeCache();
  PhaseGate gate;
  absl::StatusOr<Artifact> nested = absl::UnknownError("not yet");
  absl::StatusOr<Artifact> first = absl::UnknownError("not yet");
  std::thread leader([&] {
    first = cache->getOrCompile(keyOf(1), [&]() -> absl::StatusOr<Artifact> {
      gate.open(1);
      gate.await(2);
      nested = cache->getOrCompile(keyOf(2), mustNotCompile);
      return artifactOf("one");
    });
  });
  gate.await(1);
  cancelOnThread([&] { (void)cache->getOrCompile(keyOf(1), mustNotCompile); },
                 [&] { return cache->getStats().joined == 1; });

  // Has the stack of the one before, as a rule, and so its name.
  onThread([&] {
    (void)cache->getOrCompile(keyOf(2), [&]() -> absl::StatusOr<Artifact> {
      gate.open(2);
      EXPECT_TRUE(eventually([&] {
        CompileCacheStats stats = cache->getStats();
        return stats.joined == 2 || stats.refused != 0;
      }));
      return artifactOf("two");
    });
  });
  leader.join();
  EXPECT_THAT(first, IsOk());
  EXPECT_THAT(nested, IsOk());
}

TEST(CompileThrowTest, ACreationOfAnObjectMayThrowAsWell) {
  ObjectCache<int> cache(1000);
  auto create = []() -> absl::StatusOr<std::shared_ptr<int>> {
    throw std::runtime_error("out of luck");
  };
  auto sizeOf = [](const int &) { return uint64_t(4); };
  EXPECT_THAT(cache.getOrCreate(keyOf(1), create, sizeOf),
              StatusIs(absl::StatusCode::kInternal,
                       "the creation threw an exception: out of luck"));
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

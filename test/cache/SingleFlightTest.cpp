//===- SingleFlightTest.cpp - Tests of one compile for many callers -------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/CompileCache.h"

#include "test/cache/CacheTestSupport.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::test;

namespace {

/// A thread that compiles a key until it is let go.
class SlowCompile {
public:
  SlowCompile(CompileCache &cache, uint64_t key,
              absl::StatusOr<Artifact> result)
      : thread([&cache, key, result, this] {
          outcome = cache.getOrCompile(keyOf(key), [&] {
            gate.open(1);
            gate.await(2);
            return result;
          });
        }) {
    gate.await(1);
  }
  ~SlowCompile() { (void)finish(); }

  absl::StatusOr<Artifact> finish() {
    gate.open(2);
    if (thread.joinable())
      thread.join();
    return outcome;
  }

private:
  absl::StatusOr<Artifact> outcome = absl::UnknownError("not yet");
  PhaseGate gate;
  std::thread thread;
};

/// Threads that ask for a key while it is compiled.
class Waiters {
public:
  Waiters(CompileCache &cache, uint64_t key, size_t count)
      : outcomes(count, absl::UnknownError("not yet")) {
    uint64_t before = cache.getStats().joined;
    for (absl::StatusOr<Artifact> &outcome : outcomes)
      threads.emplace_back([&cache, &outcome, key] {
        outcome = cache.getOrCompile(keyOf(key), mustNotCompile);
      });
    EXPECT_TRUE(
        eventually([&] { return cache.getStats().joined == before + count; }));
  }
  ~Waiters() { join(); }

  std::vector<absl::StatusOr<Artifact>> join() {
    for (std::thread &thread : threads)
      thread.join();
    threads.clear();
    return outcomes;
  }

private:
  std::vector<absl::StatusOr<Artifact>> outcomes;
  std::vector<std::thread> threads;
};

bool isKept(CompileCache &cache, uint64_t key) {
  auto artifact = cache.lookup(keyOf(key));
  EXPECT_THAT(artifact, IsOk());
  return artifact->has_value();
}

TEST(SingleFlightTest, CallersOfOneKeyGetTheArtifactOfOneCompile) {
  for (auto mode :
       {CompileCacheOptions::Mode::ReadWrite,
        CompileCacheOptions::Mode::ReadOnly,
        CompileCacheOptions::Mode::Recompute, CompileCacheOptions::Mode::Off}) {
    CompileCacheOptions options;
    options.mode = mode;
    auto cache = makeCache(options);
    SlowCompile compile(*cache, 1, artifactOf("one"));
    Waiters waiters(*cache, 1, 64);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(made, compile.finish());
    for (const absl::StatusOr<Artifact> &outcome : waiters.join()) {
      ASSERT_THAT(outcome, IsOk());
      EXPECT_EQ(outcome->getBytes().data(), made.getBytes().data());
    }
    EXPECT_EQ(cache->getStats().compiles, 1u);
    EXPECT_EQ(cache->getStats().joined, 64u);
    expectStatsAddUp(*cache);
  }
}

TEST(SingleFlightTest, AnErrorGoesToEverybodyWhoWaitedAndTheNextCompilesAgain) {
  auto cache = makeCache();
  SlowCompile compile(*cache, 1, absl::DataLossError("broken module"));
  Waiters waiters(*cache, 1, 8);
  EXPECT_THAT(compile.finish(),
              StatusIs(absl::StatusCode::kDataLoss, "broken module"));
  for (const absl::StatusOr<Artifact> &outcome : waiters.join())
    EXPECT_THAT(outcome,
                StatusIs(absl::StatusCode::kDataLoss, "broken module"));
  EXPECT_EQ(cache->getStats().failures, 1u);
  EXPECT_THAT(cache->getOrCompile(keyOf(1), compileTo("one")), IsOk());
  expectStatsAddUp(*cache);
}

TEST(SingleFlightTest, AnArtifactThatIsNotKeptStillGoesToEverybodyWhoWaited) {
  CompileCacheOptions options;
  options.memoryBytes = 0;
  auto cache = makeCache(options);
  SlowCompile compile(*cache, 1, artifactOf("one"));
  Waiters waiters(*cache, 1, 8);
  EXPECT_THAT(compile.finish(), IsOk());
  for (const absl::StatusOr<Artifact> &outcome : waiters.join())
    EXPECT_THAT(outcome, IsOk());
  EXPECT_FALSE(isKept(*cache, 1));
}

TEST(SingleFlightTest, DifferentKeysNeverWaitForEachOther) {
  auto cache = makeCache();
  SlowCompile compile(*cache, 0, artifactOf("slow"));
  // More than there are shards.
  for (uint64_t key = 1; key != 1000; ++key) {
    EXPECT_THAT(cache->getOrCompile(keyOf(key), compileTo("quick")), IsOk());
    EXPECT_TRUE(isKept(*cache, key));
  }
  EXPECT_FALSE(isKept(*cache, 0)) << "a lookup does not wait either";
  EXPECT_THAT(compile.finish(), IsOk());
}

//===----------------------------------------------------------------------===//
// Deadlines
//===----------------------------------------------------------------------===//

TEST(SingleFlightTest, AWaiterGivesUpAloneAtItsDeadline) {
  auto cache = makeCache();
  SlowCompile compile(*cache, 1, artifactOf("one"));
  Waiters patient(*cache, 1, 4);
  for (absl::Duration timeout : {-absl::InfiniteDuration(), -absl::Seconds(1),
                                 absl::ZeroDuration(), absl::Milliseconds(1)})
    EXPECT_THAT(
        cache->getOrCompile(keyOf(1), mustNotCompile, timeout),
        StatusIs(absl::StatusCode::kDeadlineExceeded, keyOf(1).digest.toHex()));
  EXPECT_EQ(cache->getStats().abandoned, 4u);

  EXPECT_THAT(compile.finish(), IsOk());
  for (const absl::StatusOr<Artifact> &outcome : patient.join())
    EXPECT_THAT(outcome, IsOk());
  EXPECT_TRUE(isKept(*cache, 1));
  EXPECT_EQ(cache->getStats().compiles, 1u);
  expectStatsAddUp(*cache);
}

TEST(SingleFlightTest, ATimeoutIsNotForTheThreadThatCompiles) {
  auto cache = makeCache();
  EXPECT_THAT(
      cache->getOrCompile(keyOf(1), compileTo("one"), absl::ZeroDuration()),
      IsOk());
  EXPECT_THAT(
      cache->getOrCompile(keyOf(1), mustNotCompile, absl::ZeroDuration()),
      IsOk());
}

TEST(SingleFlightTest, ATimeoutThatDoesNotFitTheClockIsEndless) {
  auto cache = makeCache();
  SlowCompile compile(*cache, 1, artifactOf("one"));
  std::thread waiter([&] {
    EXPECT_THAT(cache->getOrCompile(keyOf(1), mustNotCompile,
                                    absl::Hours(24.0 * 365 * 1e7)),
                IsOk());
  });
  EXPECT_TRUE(eventually([&] { return cache->getStats().joined == 1; }));
  EXPECT_THAT(compile.finish(), IsOk());
  waiter.join();
}

//===----------------------------------------------------------------------===//
// Compiles within compiles
//===----------------------------------------------------------------------===//

TEST(SingleFlightTest, ACompileThatAsksForItsOwnKeyIsRefusedAndGoesOn) {
  auto cache = makeCache();
  absl::StatusOr<Artifact> inner = absl::UnknownError("not yet");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(outer, cache->getOrCompile(keyOf(1), [&] {
    inner = cache->getOrCompile(keyOf(1), mustNotCompile);
    return artifactOf("one");
  }));
  EXPECT_THAT(inner, StatusIs(absl::StatusCode::kFailedPrecondition,
                              keyOf(1).digest.toHex()));
  EXPECT_EQ(outer.getBytes(), "one");
  EXPECT_TRUE(isKept(*cache, 1));
  EXPECT_EQ(cache->getStats().refused, 1u);
  expectStatsAddUp(*cache);
}

TEST(SingleFlightTest, ACompileMayAskForOtherKeysAndTheseForMore) {
  auto cache = makeCache();
  std::function<absl::StatusOr<Artifact>(uint64_t)> compile =
      [&](uint64_t depth) -> absl::StatusOr<Artifact> {
    if (depth == 0)
      return artifactOf(".");
    auto inner = cache->getOrCompile(keyOf(depth - 1),
                                     [&] { return compile(depth - 1); });
    if (!inner.ok())
      return inner.status();
    return artifactOf(inner->getBytes().str() + ".");
  };
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      artifact, cache->getOrCompile(keyOf(20), [&] { return compile(20); }));
  EXPECT_EQ(artifact.getBytes(), std::string(21, '.'));
  for (uint64_t key = 0; key <= 20; ++key)
    EXPECT_TRUE(isKept(*cache, key));
}

TEST(SingleFlightTest, TheInnermostOfNestedCompilesIsRefusedTheOutermostKey) {
  auto cache = makeCache();
  absl::StatusOr<Artifact> innermost = absl::UnknownError("not yet");
  EXPECT_THAT(cache->getOrCompile(keyOf(1),
                                  [&]() -> absl::StatusOr<Artifact> {
                                    return cache->getOrCompile(keyOf(2), [&] {
                                      innermost = cache->getOrCompile(
                                          keyOf(1), mustNotCompile);
                                      return artifactOf("two");
                                    });
                                  }),
              IsOk());
  EXPECT_THAT(innermost, StatusIs(absl::StatusCode::kFailedPrecondition, ""));
}

/// Threads in a circle: each compiles its key, and once all do, asks for the
/// next one's. `caches[i]` has key i.
void expectCircleIsBroken(const std::vector<CompileCache *> &caches) {
  size_t count = caches.size();
  PhaseGate allCompile;
  std::atomic<size_t> compiling{0};
  std::vector<absl::StatusOr<Artifact>> asked(count, absl::UnknownError("")),
      made(count, absl::UnknownError(""));
  std::vector<std::thread> threads;
  for (size_t i = 0; i != count; ++i)
    threads.emplace_back([&, i] {
      made[i] = caches[i]->getOrCompile(keyOf(i), [&] {
        if (++compiling == count)
          allCompile.open(1);
        allCompile.await(1);
        size_t next = (i + 1) % count;
        asked[i] = caches[next]->getOrCompile(keyOf(next), mustNotCompile);
        return artifactOf(std::to_string(i));
      });
    });
  for (std::thread &thread : threads)
    thread.join();

  size_t refused = 0;
  for (size_t i = 0; i != count; ++i) {
    EXPECT_THAT(made[i], IsOk());
    if (asked[i].ok()) {
      EXPECT_EQ(asked[i]->getBytes(), std::to_string((i + 1) % count));
      continue;
    }
    ++refused;
    EXPECT_THAT(asked[i], StatusIs(absl::StatusCode::kFailedPrecondition,
                                   keyOf((i + 1) % count).digest.toHex()));
  }
  EXPECT_EQ(refused, 1u);
  for (CompileCache *cache : caches)
    expectStatsAddUp(*cache);
}

TEST(SingleFlightTest, TheCallThatWouldCloseACircleOfThreadsIsRefused) {
  for (size_t threads : {2, 3, 8}) {
    auto cache = makeCache();
    expectCircleIsBroken(std::vector<CompileCache *>(threads, cache.get()));
  }
}

TEST(SingleFlightTest, ACircleOverSeveralCachesIsRefusedAsWell) {
  auto first = makeCache(), second = makeCache();
  expectCircleIsBroken({first.get(), second.get()});
  expectCircleIsBroken({second.get(), first.get(), first.get(), second.get()});
}

TEST(SingleFlightTest, ACircleThroughAThreadThatACompileJoinsEndsAtTheTimeout) {
  auto cache = makeCache();
  absl::StatusOr<Artifact> asked = absl::UnknownError("not yet");
  EXPECT_THAT(cache->getOrCompile(keyOf(1),
                                  [&] {
                                    std::thread helper([&] {
                                      asked = cache->getOrCompile(
                                          keyOf(1), mustNotCompile,
                                          absl::Milliseconds(10));
                                    });
                                    helper.join();
                                    return artifactOf("one");
                                  }),
              IsOk());
  EXPECT_THAT(asked, StatusIs(absl::StatusCode::kDeadlineExceeded, ""));
}

TEST(SingleFlightTest, AThreadThatWaitedMayCompileAndBeWaitedFor) {
  // What was waited for once is not waited for any more.
  auto cache = makeCache();
  for (uint64_t round = 0; round != 200; ++round) {
    PhaseGate gate;
    uint64_t a = 2 * round, b = a + 1;
    std::thread first([&] {
      EXPECT_THAT(cache->getOrCompile(keyOf(a),
                                      [&] {
                                        gate.open(1);
                                        gate.await(2);
                                        return artifactOf("a");
                                      }),
                  IsOk());
      // The other may not have woken up yet.
      EXPECT_THAT(cache->getOrCompile(keyOf(b), compileTo("b")), IsOk());
    });
    gate.await(1);
    std::thread second([&] {
      EXPECT_THAT(cache->getOrCompile(keyOf(b),
                                      [&]() -> absl::StatusOr<Artifact> {
                                        gate.open(2);
                                        return cache->getOrCompile(
                                            keyOf(a), compileTo("a"));
                                      }),
                  IsOk());
    });
    first.join();
    second.join();
  }
  EXPECT_EQ(cache->getStats().refused, 0u);
}

//===----------------------------------------------------------------------===//
// Clear and insert during a compile
//===----------------------------------------------------------------------===//

TEST(SingleFlightTest, ACompileThatIsClearedGoesToThoseWhoWaitAndIsNotKept) {
  auto cache = makeCache();
  SlowCompile compile(*cache, 1, artifactOf("old"));
  Waiters waiters(*cache, 1, 4);
  cache->clear();

  EXPECT_THAT(compile.finish(), IsOk());
  for (const absl::StatusOr<Artifact> &outcome : waiters.join()) {
    ASSERT_THAT(outcome, IsOk());
    EXPECT_EQ(outcome->getBytes(), "old");
  }
  EXPECT_FALSE(isKept(*cache, 1));
  expectStatsAddUp(*cache);
}

TEST(SingleFlightTest, WhoAsksAfterAClearCompilesAnew) {
  auto cache = makeCache();
  SlowCompile old(*cache, 1, artifactOf("old"));
  cache->clear();
  {
    SlowCompile anew(*cache, 1, artifactOf("new"));
    Waiters waiters(*cache, 1, 4);
    // Neither ends the other's.
    EXPECT_EQ(old.finish()->getBytes(), "old");
    EXPECT_FALSE(isKept(*cache, 1));
    EXPECT_EQ(anew.finish()->getBytes(), "new");
    for (const absl::StatusOr<Artifact> &outcome : waiters.join())
      EXPECT_EQ(outcome->getBytes(), "new");
  }
  EXPECT_EQ((*cache->lookup(keyOf(1)))->getBytes(), "new");
}

TEST(SingleFlightTest, WhatIsInsertedDuringACompileGoesToEverybody) {
  auto cache = makeCache();
  SlowCompile compile(*cache, 1, artifactOf("compiled"));
  Waiters waiters(*cache, 1, 4);
  ASSERT_THAT(cache->insert(keyOf(1), artifactOf("inserted")), IsOk());
  EXPECT_EQ(cache->getOrCompile(keyOf(1), mustNotCompile)->getBytes(),
            "inserted");
  EXPECT_EQ(compile.finish()->getBytes(), "inserted");
  for (const absl::StatusOr<Artifact> &outcome : waiters.join())
    EXPECT_EQ(outcome->getBytes(), "inserted");
  EXPECT_EQ((*cache->lookup(keyOf(1)))->getBytes(), "inserted");
}

TEST(SingleFlightTest, CountsCanBeReadWhileOthersCompile) {
  auto cache = makeCache();
  SlowCompile compile(*cache, 1, artifactOf("one"));
  EXPECT_EQ(cache->getStats().requests, 1u);
  EXPECT_EQ(cache->getStats().compiles, 1u);
}

} // namespace

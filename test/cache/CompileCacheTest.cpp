//===- CompileCacheTest.cpp - Tests of what the cache keeps ---------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/CompileCache.h"

#include "test/cache/CacheTestSupport.h"
#include "test/support/ForkedChild.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::test;

namespace {

using Mode = CompileCacheOptions::Mode;

/// Options for a cache with room for that many artifacts of 1,000 bytes.
CompileCacheOptions roomFor(uint64_t artifacts) {
  CompileCacheOptions options;
  options.memoryBytes =
      artifacts * footprintOf(artifactOf(std::string(1000, 'x')));
  return options;
}

/// What the cache gives for that key, compiling 1,000 bytes where it has to.
std::string getKilobyte(CompileCache &cache, uint64_t key, char filling) {
  auto artifact =
      cache.getOrCompile(keyOf(key), compileTo(std::string(1000, filling)));
  EXPECT_THAT(artifact, IsOk());
  return artifact->getBytes().str();
}

bool isKept(CompileCache &cache, uint64_t key) {
  auto artifact = cache.lookup(keyOf(key));
  EXPECT_THAT(artifact, IsOk());
  return artifact->has_value();
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

TEST(CompileCacheTest, CreateNamesTheOptionThatIsOutOfItsRange) {
  CompileCacheOptions interval;
  interval.verifyHits = true;
  interval.verifyInterval = 0;
  EXPECT_THAT(CompileCache::create(interval),
              StatusIs(absl::StatusCode::kInvalidArgument, "verifyInterval"));
  CompileCacheOptions mode;
  mode.mode = static_cast<Mode>(17);
  EXPECT_THAT(CompileCache::create(mode),
              StatusIs(absl::StatusCode::kInvalidArgument, "mode is 17"));
}

TEST(CompileCacheTest, DefaultOptionsMakeACacheInMemory) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(cache, CompileCache::create());
  EXPECT_EQ(getKilobyte(*cache, 1, 'a'), std::string(1000, 'a'));
  EXPECT_EQ(getKilobyte(*cache, 1, 'b'), std::string(1000, 'a'));
}

//===----------------------------------------------------------------------===//
// Hits and misses
//===----------------------------------------------------------------------===//

TEST(CompileCacheTest, WhatACompileGaveIsKeptAndSharesItsBytes) {
  auto cache = makeCache();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(made,
                               cache->getOrCompile(keyOf(1), compileTo("one")));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(hit,
                               cache->getOrCompile(keyOf(1), mustNotCompile));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(found, cache->lookup(keyOf(1)));
  EXPECT_EQ(hit.getBytes(), "one");
  EXPECT_EQ(hit.getBytes().data(), made.getBytes().data());
  EXPECT_EQ(found->getBytes().data(), made.getBytes().data());
  EXPECT_EQ(hit.getKind(), "test");
}

TEST(CompileCacheTest, EveryBitOfAKeyCounts) {
  auto cache = makeCache();
  CacheKey base = keyOf(1);
  ASSERT_THAT(cache->insert(base, artifactOf("base")), IsOk());
  for (size_t bit = 0; bit != 256; ++bit) {
    CacheKey other = base;
    other.digest.bytes[bit / 8] ^= uint8_t(1u << bit % 8);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(found, cache->lookup(other));
    EXPECT_FALSE(found) << bit;
  }
}

TEST(CompileCacheTest, AnErrorIsNotKept) {
  auto cache = makeCache();
  EXPECT_THAT(cache->getOrCompile(keyOf(1),
                                  []() -> absl::StatusOr<Artifact> {
                                    return absl::UnavailableError(
                                        "no compiler");
                                  }),
              StatusIs(absl::StatusCode::kUnavailable, "no compiler"));
  EXPECT_FALSE(isKept(*cache, 1));
  EXPECT_THAT(cache->getOrCompile(keyOf(1), compileTo("one")), IsOk());
  EXPECT_EQ(cache->getStats().failures, 1u);
  expectStatsAddUp(*cache);
}

TEST(CompileCacheTest, AnArtifactWithoutAKindIsRefused) {
  auto cache = makeCache();
  EXPECT_THAT(cache->insert(keyOf(1), Artifact::copyOf("", "bytes")),
              StatusIs(absl::StatusCode::kInvalidArgument, "no kind"));
  EXPECT_THAT(
      cache->getOrCompile(keyOf(1),
                          [] { return Artifact::copyOf("", "bytes"); }),
      StatusIs(absl::StatusCode::kInvalidArgument, keyOf(1).digest.toHex()));
  EXPECT_FALSE(isKept(*cache, 1));
}

TEST(CompileCacheTest, WhatIsInsertedFirstStays) {
  auto cache = makeCache();
  ASSERT_THAT(cache->insert(keyOf(1), artifactOf("first")), IsOk());
  ASSERT_THAT(cache->insert(keyOf(1), artifactOf("second")), IsOk());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(found,
                               cache->getOrCompile(keyOf(1), mustNotCompile));
  EXPECT_EQ(found.getBytes(), "first");
}

TEST(CompileCacheTest, ClearForgetsEverything) {
  auto cache = makeCache();
  for (uint64_t key = 0; key != 100; ++key)
    getKilobyte(*cache, key, 'a');
  cache->clear();
  for (uint64_t key = 0; key != 100; ++key)
    EXPECT_FALSE(isKept(*cache, key));
  EXPECT_EQ(cache->getStats().memory.entries, 0u);
  EXPECT_EQ(cache->getStats().memory.bytes, 0u);
  EXPECT_EQ(cache->getStats().memory.evictions, 0u);
}

TEST(CompileCacheTest, FlushWithoutTiersHasNothingToWaitFor) {
  auto cache = makeCache();
  getKilobyte(*cache, 1, 'a');
  EXPECT_THAT(cache->flush(), IsOk());
}

//===----------------------------------------------------------------------===//
// The bound
//===----------------------------------------------------------------------===//

TEST(CompileCacheTest, WhatWasUsedLongestAgoGoesFirst) {
  auto cache = makeCache(roomFor(3));
  for (uint64_t key : {1, 2, 3})
    getKilobyte(*cache, key, 'a');
  getKilobyte(*cache, 1, 'b');    // A request and
  EXPECT_TRUE(isKept(*cache, 2)); // a lookup are uses.
  getKilobyte(*cache, 4, 'a');
  EXPECT_FALSE(isKept(*cache, 3));
  getKilobyte(*cache, 5, 'a');
  EXPECT_FALSE(isKept(*cache, 1));
  EXPECT_TRUE(isKept(*cache, 2));
  EXPECT_EQ(cache->getStats().memory.evictions, 2u);
}

TEST(CompileCacheTest, TheOrderOfUseGoesOverAllShards) {
  constexpr uint64_t room = 200;
  auto cache = makeCache(roomFor(room));
  for (uint64_t key = 0; key != 1000; ++key) {
    getKilobyte(*cache, key, 'a');
    if (key < room)
      continue;
    EXPECT_EQ(cache->getStats().memory.entries, room);
  }
  // Newest first, so that no lookup changes what is looked up later.
  for (uint64_t key = 1000; key-- != 0;)
    EXPECT_EQ(isKept(*cache, key), key >= 1000 - room) << key;
}

TEST(CompileCacheTest, MemoryBytesIsAHardBound) {
  CompileCacheOptions options;
  options.memoryBytes = 100000;
  auto cache = makeCache(options);
  for (uint64_t key = 0; key != 500; ++key) {
    ASSERT_THAT(cache->insert(keyOf(key),
                              artifactOf(std::string(key * 37 % 9000, 'x'))),
                IsOk());
    EXPECT_LE(cache->getStats().memory.bytes, options.memoryBytes);
    EXPECT_TRUE(isKept(*cache, key));
  }
}

TEST(CompileCacheTest, AnEntryCounts256BytesMoreThanItsArtifactAndKind) {
  CompileCacheOptions options;
  options.memoryBytes = 10 + 4 + 256;
  auto cache = makeCache(options);
  ASSERT_THAT(cache->insert(keyOf(1), artifactOf(std::string(11, 'x'))),
              IsOk());
  EXPECT_FALSE(isKept(*cache, 1));
  ASSERT_THAT(cache->insert(keyOf(1), artifactOf(std::string(10, 'x'))),
              IsOk());
  EXPECT_TRUE(isKept(*cache, 1));
  EXPECT_EQ(cache->getStats().memory.bytes, options.memoryBytes);
}

TEST(CompileCacheTest, AnArtifactLargerThanTheBoundIsHandedOutAndNotKept) {
  auto cache = makeCache(roomFor(2));
  getKilobyte(*cache, 1, 'a');
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      large,
      cache->getOrCompile(keyOf(2), compileTo(std::string(100000, 'x'))));
  EXPECT_EQ(large.getBytes().size(), 100000u);
  EXPECT_FALSE(isKept(*cache, 2));
  EXPECT_TRUE(isKept(*cache, 1)) << "made room for what cannot be kept";
}

TEST(CompileCacheTest, ZeroMemoryBytesKeepNothing) {
  CompileCacheOptions options;
  options.memoryBytes = 0;
  auto cache = makeCache(options);
  EXPECT_EQ(getKilobyte(*cache, 1, 'a'), std::string(1000, 'a'));
  EXPECT_EQ(getKilobyte(*cache, 1, 'b'), std::string(1000, 'b'));
  EXPECT_EQ(cache->getStats().memory.entries, 0u);
}

TEST(CompileCacheTest, ArtifactsStayValidAfterEvictionAndAfterTheCache) {
  auto cache = makeCache(roomFor(1));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      evicted,
      cache->getOrCompile(keyOf(1), compileTo(std::string(1000, 'a'))));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      kept, cache->getOrCompile(keyOf(2), compileTo(std::string(1000, 'b'))));
  EXPECT_FALSE(isKept(*cache, 1));
  cache.reset();
  EXPECT_EQ(evicted.getBytes(), std::string(1000, 'a'));
  EXPECT_EQ(kept.getBytes(), std::string(1000, 'b'));
}

TEST(CompileCacheTest, WhatIsEvictedIsFreed) {
  auto cache = makeCache(roomFor(1));
  auto owner = std::make_shared<int>();
  alignas(64) static const char bytes[64] = {};
  ASSERT_THAT(
      cache->insert(keyOf(1),
                    Artifact::adopt("test", llvm::StringRef(bytes, 64), owner)),
      IsOk());
  EXPECT_EQ(owner.use_count(), 2);
  getKilobyte(*cache, 2, 'a');
  EXPECT_EQ(owner.use_count(), 1);
}

/// Runs something when it is destroyed.
std::shared_ptr<const void> whenDestroyed(std::function<void()> action) {
  return std::shared_ptr<const void>(&action,
                                     [action](const void *) { action(); });
}

TEST(CompileCacheTest, NoLockIsHeldWhileWhatIsDroppedIsDestroyed) {
  auto cache = makeCache(roomFor(1));
  alignas(64) static const char bytes[64] = {};
  int destroyed = 0;
  auto insert = [&](uint64_t key) {
    ASSERT_THAT(cache->insert(
                    keyOf(key),
                    Artifact::adopt(
                        "test", llvm::StringRef(bytes, 64), whenDestroyed([&] {
                          ++destroyed;
                          (void)cache->lookup(keyOf(99));
                          (void)cache->getStats();
                          (void)cache->insert(keyOf(98), artifactOf("other"));
                        }))),
                IsOk());
  };
  insert(1);
  getKilobyte(*cache, 2, 'a'); // Evicts it.
  EXPECT_EQ(destroyed, 1);
  cache->clear();
  insert(3);
  cache->clear();
  EXPECT_EQ(destroyed, 2);
}

TEST(CompileCacheTest, NoLockIsHeldWhileWhatGivesWayToAnInsertIsDestroyed) {
  for (auto mode : {CompileCacheOptions::Mode::ReadWrite,
                    CompileCacheOptions::Mode::Recompute}) {
    CompileCacheOptions options;
    options.mode = mode;
    auto cache = makeCache(options);
    alignas(64) static const char bytes[64] = {};
    int destroyed = 0;
    auto make = [&] {
      return Artifact::adopt("test", llvm::StringRef(bytes, 64),
                             whenDestroyed([&] {
                               ++destroyed;
                               (void)cache->lookup(keyOf(1));
                               (void)cache->getStats();
                             }));
    };
    // Of one of the two there is no use.
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        made, cache->getOrCompile(keyOf(1), [&]() -> absl::StatusOr<Artifact> {
          EXPECT_THAT(cache->insert(keyOf(1), make()), IsOk());
          return make();
        }));
    EXPECT_EQ(destroyed, 1);
    EXPECT_THAT(cache->insert(keyOf(1), make()), IsOk());
    cache->clear();
    made = Artifact();
    EXPECT_EQ(destroyed, 3);
  }
}

//===----------------------------------------------------------------------===//
// Cost and counts
//===----------------------------------------------------------------------===//

TEST(CompileCacheTest, TheTimeOfACompileIsItsCostUnlessTheArtifactSaysAnother) {
  auto cache = makeCache();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(measured, cache->getOrCompile(keyOf(1), [] {
    auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin <
           std::chrono::milliseconds(2)) {
    }
    return artifactOf("one");
  }));
  EXPECT_GE(measured.getCompileCost(), absl::Milliseconds(2));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(stated, cache->getOrCompile(keyOf(2), [] {
    return artifactOf("two").withCompileCost(absl::Hours(1));
  }));
  EXPECT_EQ(stated.getCompileCost(), absl::Hours(1));
}

TEST(CompileCacheTest, TimeSavedIsWhatTheCompilesOfAllHitsHadCost) {
  auto cache = makeCache();
  ASSERT_THAT(cache->insert(keyOf(1),
                            artifactOf("1").withCompileCost(absl::Seconds(1))),
              IsOk());
  ASSERT_THAT(cache->insert(keyOf(2),
                            artifactOf("2").withCompileCost(absl::Seconds(10))),
              IsOk());
  EXPECT_EQ(cache->getStats().timeSaved, absl::ZeroDuration());
  for (int i = 0; i != 3; ++i)
    ASSERT_THAT(cache->getOrCompile(keyOf(1), mustNotCompile), IsOk());
  ASSERT_THAT(cache->lookup(keyOf(2)), IsOk());
  EXPECT_EQ(cache->getStats().timeSaved, absl::Seconds(13));
}

TEST(CompileCacheTest, TimeSavedStaysAtTheMostThatFits) {
  auto cache = makeCache();
  ASSERT_THAT(cache->insert(keyOf(1), artifactOf("1").withCompileCost(
                                          absl::InfiniteDuration())),
              IsOk());
  absl::Duration most = absl::Nanoseconds(std::numeric_limits<int64_t>::max());
  for (int i = 0; i != 2; ++i) {
    ASSERT_THAT(cache->lookup(keyOf(1)), IsOk());
    EXPECT_EQ(cache->getStats().timeSaved, most);
    ASSERT_THAT(cache->getOrCompile(keyOf(1), mustNotCompile), IsOk());
    EXPECT_EQ(cache->getStats().timeSaved, most);
  }
}

TEST(CompileCacheTest, CountsTellWhatBecameOfEveryCall) {
  auto cache = makeCache();
  getKilobyte(*cache, 1, 'a');
  getKilobyte(*cache, 1, 'a');
  getKilobyte(*cache, 2, 'a');
  isKept(*cache, 1);
  isKept(*cache, 9);
  isKept(*cache, 8);
  CompileCacheStats stats = cache->getStats();
  EXPECT_EQ(stats.requests, 3u);
  EXPECT_EQ(stats.memory.hits, 1u);
  EXPECT_EQ(stats.compiles, 2u);
  EXPECT_EQ(stats.lookups, 3u);
  EXPECT_EQ(stats.lookupHits, 1u);
  EXPECT_EQ(stats.lookupMisses, 2u);
  EXPECT_EQ(stats.memory.entries, 2u);
  EXPECT_EQ(stats.memory.writes, 2u);
  EXPECT_EQ(stats.memory.bytes,
            2 * footprintOf(artifactOf(std::string(1000, 'a'))));
  EXPECT_EQ(stats.memory.lastError, "");
  expectStatsAddUp(*cache);
}

//===----------------------------------------------------------------------===//
// Modes
//===----------------------------------------------------------------------===//

TEST(CompileCacheTest, RecomputeUsesNothingAndReplacesIt) {
  CompileCacheOptions options;
  options.mode = Mode::Recompute;
  auto cache = makeCache(options);
  EXPECT_EQ(getKilobyte(*cache, 1, 'a'), std::string(1000, 'a'));
  EXPECT_EQ(getKilobyte(*cache, 1, 'b'), std::string(1000, 'b'));
  EXPECT_FALSE(isKept(*cache, 1));
  EXPECT_EQ(cache->getStats().compiles, 2u);
  EXPECT_EQ(cache->getStats().memory.entries, 1u);
}

TEST(CompileCacheTest, OffKeepsAndUsesNothing) {
  CompileCacheOptions options;
  options.mode = Mode::Off;
  auto cache = makeCache(options);
  ASSERT_THAT(cache->insert(keyOf(1), artifactOf("inserted")), IsOk());
  EXPECT_FALSE(isKept(*cache, 1));
  EXPECT_EQ(getKilobyte(*cache, 1, 'a'), std::string(1000, 'a'));
  EXPECT_EQ(getKilobyte(*cache, 1, 'b'), std::string(1000, 'b'));
  EXPECT_EQ(cache->getStats().memory.entries, 0u);
}

TEST(CompileCacheTest, ReadOnlyKeepsInMemory) {
  CompileCacheOptions options;
  options.mode = Mode::ReadOnly;
  auto cache = makeCache(options);
  getKilobyte(*cache, 1, 'a');
  EXPECT_EQ(getKilobyte(*cache, 1, 'b'), std::string(1000, 'a'));
  cache->clear();
  EXPECT_FALSE(isKept(*cache, 1));
}

//===----------------------------------------------------------------------===//
// Verified hits
//===----------------------------------------------------------------------===//

struct Verified {
  explicit Verified(uint64_t interval) {
    CompileCacheOptions options;
    options.verifyHits = true;
    options.verifyInterval = interval;
    options.onMismatch = [this](const HitMismatch &mismatch) {
      mismatches.push_back(mismatch);
      reporters.push_back(std::this_thread::get_id());
    };
    cache = makeCache(options);
  }
  std::vector<HitMismatch> mismatches;
  std::vector<std::thread::id> reporters;
  std::unique_ptr<CompileCache> cache;
};

TEST(VerifyHitsTest, EveryNthHitCompilesAgain) {
  Verified verified(3);
  size_t compiles = 0;
  for (int i = 0; i != 1 + 9; ++i)
    ASSERT_THAT(verified.cache->getOrCompile(keyOf(1),
                                             [&] {
                                               ++compiles;
                                               return artifactOf("same");
                                             }),
                IsOk());
  EXPECT_EQ(compiles, 1u + 3u);
  EXPECT_EQ(verified.cache->getStats().verified, 3u);
  EXPECT_EQ(verified.cache->getStats().mismatches, 0u);
  EXPECT_EQ(verified.cache->getStats().compiles, 1u);
  EXPECT_TRUE(verified.mismatches.empty());
  expectStatsAddUp(*verified.cache);
}

TEST(VerifyHitsTest, ADifferenceIsCountedAndReportedAndTheCallerGetsTheCached) {
  Verified verified(1);
  ASSERT_THAT(verified.cache->insert(keyOf(1), artifactOf("cached")), IsOk());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      artifact, verified.cache->getOrCompile(keyOf(1), compileTo("compiled")));

  EXPECT_EQ(artifact.getBytes(), "cached");
  EXPECT_EQ(verified.cache->getStats().mismatches, 1u);
  ASSERT_EQ(verified.mismatches.size(), 1u);
  EXPECT_EQ(verified.mismatches[0].key, keyOf(1));
  EXPECT_EQ(verified.mismatches[0].cached, artifactOf("cached").getDigest());
  EXPECT_EQ(*verified.mismatches[0].compiled,
            artifactOf("compiled").getDigest());
  EXPECT_EQ(verified.reporters[0], std::this_thread::get_id());
}

TEST(VerifyHitsTest, ArtifactsAreComparedByTheirMeaning) {
  Verified verified(1);
  auto compile = [&](const char *bytes) {
    return [bytes]() -> absl::StatusOr<Artifact> {
      return artifactOf(bytes).withMeaning(keyOf(7).digest);
    };
  };
  for (const char *bytes : {"@private_1", "@private_2", "@private_3"})
    ASSERT_THAT(verified.cache->getOrCompile(keyOf(1), compile(bytes)), IsOk());
  EXPECT_EQ(verified.cache->getStats().verified, 2u);
  EXPECT_TRUE(verified.mismatches.empty());
}

TEST(VerifyHitsTest, EqualBytesAreNoDifference) {
  // Whoever says what they mean.
  for (bool cachedSays : {false, true})
    for (bool compiledSays : {false, true}) {
      Verified verified(1);
      Artifact same = artifactOf("same");
      ASSERT_THAT(
          verified.cache->insert(
              keyOf(1), cachedSays ? same.withMeaning(keyOf(7).digest) : same),
          IsOk());
      ASSERT_THAT(verified.cache->getOrCompile(
                      keyOf(1),
                      [&] {
                        return compiledSays ? same.withMeaning(keyOf(8).digest)
                                            : same;
                      }),
                  IsOk());
      CompileCacheStats stats = verified.cache->getStats();
      EXPECT_EQ(stats.verified, 1u);
      EXPECT_EQ(stats.mismatches, 0u);
      EXPECT_EQ(stats.incomparable, 0u);
    }
}

TEST(VerifyHitsTest, OtherBytesOfWhichOneSaysMoreAreIncomparable) {
  for (bool cachedSays : {false, true}) {
    Verified verified(1);
    auto artifact = [&](const char *bytes, bool says) {
      Artifact made = artifactOf(bytes);
      return says ? made.withMeaning(keyOf(7).digest) : made;
    };
    ASSERT_THAT(
        verified.cache->insert(keyOf(1), artifact("@private_1", cachedSays)),
        IsOk());
    ASSERT_THAT(
        verified.cache->getOrCompile(
            keyOf(1), [&] { return artifact("@private_2", !cachedSays); }),
        IsOk());
    CompileCacheStats stats = verified.cache->getStats();
    EXPECT_EQ(stats.verified, 1u);
    EXPECT_EQ(stats.incomparable, 1u);
    EXPECT_EQ(stats.mismatches, 0u);
    EXPECT_TRUE(verified.mismatches.empty());
  }
}

TEST(VerifyHitsTest, ACompileThatHadNoTimeOrRoomIsIncomparable) {
  for (absl::Status status :
       {absl::DeadlineExceededError("late"),
        absl::ResourceExhaustedError("full"),
        absl::CancelledError("called off"), absl::AbortedError("abandoned"),
        absl::UnavailableError("gone")}) {
    Verified verified(1);
    ASSERT_THAT(verified.cache->insert(keyOf(1), artifactOf("cached")), IsOk());
    ASSERT_THAT(
        verified.cache->getOrCompile(
            keyOf(1), [&]() -> absl::StatusOr<Artifact> { return status; }),
        IsOk());
    EXPECT_EQ(verified.cache->getStats().incomparable, 1u) << status;
    EXPECT_EQ(verified.cache->getStats().mismatches, 0u) << status;
  }
}

TEST(VerifyHitsTest, AnErrorOfTheCompileIsADifference) {
  Verified verified(1);
  ASSERT_THAT(verified.cache->insert(keyOf(1), artifactOf("cached")), IsOk());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      artifact,
      verified.cache->getOrCompile(keyOf(1), []() -> absl::StatusOr<Artifact> {
        return absl::InternalError("crashed");
      }));
  EXPECT_EQ(artifact.getBytes(), "cached");
  ASSERT_EQ(verified.mismatches.size(), 1u);
  EXPECT_THAT(verified.mismatches[0].compiled,
              StatusIs(absl::StatusCode::kInternal, "crashed"));
}

TEST(VerifyHitsTest, HitsWithinAVerifyingCompileAreNotVerified) {
  Verified verified(1);
  size_t compiles = 0;
  std::function<absl::StatusOr<Artifact>()> compile =
      [&]() -> absl::StatusOr<Artifact> {
    ++compiles;
    // The first compile is refused what it makes; the others hit.
    (void)verified.cache->getOrCompile(keyOf(1), compile);
    return artifactOf("one");
  };
  ASSERT_THAT(verified.cache->getOrCompile(keyOf(1), compile), IsOk());
  ASSERT_THAT(verified.cache->getOrCompile(keyOf(1), compile), IsOk());
  EXPECT_EQ(compiles, 2u);
  EXPECT_EQ(verified.cache->getStats().verified, 1u);
}

TEST(VerifyHitsTest, LookupsAreNotVerified) {
  Verified verified(1);
  ASSERT_THAT(verified.cache->insert(keyOf(1), artifactOf("cached")), IsOk());
  EXPECT_TRUE(isKept(*verified.cache, 1));
  EXPECT_EQ(verified.cache->getStats().verified, 0u);
}

//===----------------------------------------------------------------------===//
// Fork
//===----------------------------------------------------------------------===//

TEST(CompileCacheTest, AForkedChildIsRefusedAnInheritedCacheAndMakesItsOwn) {
  auto state = std::make_shared<FakeTierState>();
  auto cache = makeCacheOn(state);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      artifact, cache->getOrCompile(keyOf(1), compileTo("of the parent")));
  EXPECT_EQ(
      runInChild([&] {
        bool isRefused =
            absl::IsFailedPrecondition(
                cache->getOrCompile(keyOf(1), mustNotCompile).status()) &&
            absl::IsFailedPrecondition(cache->lookup(keyOf(1)).status()) &&
            absl::IsFailedPrecondition(cache->insert(keyOf(1), artifact)) &&
            absl::IsFailedPrecondition(cache->flush()) &&
            cache->getStats().requests == 0;
        cache->clear();
        cache.reset();
        auto own = makeCache();
        return isRefused && artifact.getBytes() == "of the parent" &&
               getKilobyte(*own, 1, 'a') == std::string(1000, 'a') &&
               isKept(*own, 1);
      }),
      "exit 0");
  EXPECT_THAT(cache->getOrCompile(keyOf(1), mustNotCompile), IsOk());
}

TEST(CompileCacheTest, AForkWhileOthersCompileAndWaitLeavesAChildThatWorks) {
  auto cache = makeCache();
  PhaseGate gate;
  std::thread leader([&] {
    EXPECT_THAT(cache->getOrCompile(keyOf(1),
                                    [&] {
                                      gate.open(1);
                                      gate.await(2);
                                      return artifactOf("one");
                                    }),
                IsOk());
  });
  gate.await(1);
  std::thread waiter([&] {
    EXPECT_THAT(cache->getOrCompile(keyOf(1), mustNotCompile), IsOk());
  });
  EXPECT_TRUE(eventually([&] { return cache->getStats().joined == 1; }));

  EXPECT_EQ(runInChild([&] {
              cache.reset();
              auto own = makeCache();
              getKilobyte(*own, 1, 'a');
              // Takes the lock of who waits for whom, which the parent's threads
              // may have held.
              bool isRefused = absl::IsFailedPrecondition(
                  own->getOrCompile(keyOf(2),
                                    [&]() -> absl::StatusOr<Artifact> {
                                      return own->getOrCompile(keyOf(2),
                                                               mustNotCompile);
                                    })
                      .status());
              return isRefused && isKept(*own, 1);
            }),
            "exit 0");
  gate.open(2);
  leader.join();
  waiter.join();
}

TEST(CompileCacheTest, ACompileThatForksEndsInTheChildAsWell) {
  EXPECT_EQ(runInChild([] {
              auto cache = makeCache();
              pid_t child = -1;
              auto artifact = cache->getOrCompile(keyOf(1), [&] {
                child = fork();
                return artifactOf("one");
              });
              bool isRight = artifact.ok() && artifact->getBytes() == "one";
              if (child == 0)
                _exit(isRight ? 0 : 1);
              int status = -1;
              return isRight && waitpid(child, &status, 0) == child &&
                     status == 0;
            }),
            "exit 0");
}

} // namespace

//===- TierTest.cpp - Tests of a cache with tiers behind its memory ------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/CompileCache.h"

#include "context_pool/cache/TierFront.h"
#include "test/cache/CacheTestSupport.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <thread>

using namespace ctxpool;
using namespace ctxpool::test;
using detail::TierFront;

namespace {

using Mode = CompileCacheOptions::Mode;

struct TierTest : testing::Test {
  std::shared_ptr<FakeTierState> disk = std::make_shared<FakeTierState>();
  std::shared_ptr<FakeTierState> remote = std::make_shared<FakeTierState>();

  std::unique_ptr<CompileCache> make(CompileCacheOptions options = {}) {
    return makeCacheOn(disk, remote, std::move(options));
  }
};

CompileCacheOptions inMode(Mode mode) {
  CompileCacheOptions options;
  options.mode = mode;
  return options;
}

CompileCacheOptions withoutMemory() {
  CompileCacheOptions options;
  options.memoryBytes = 0;
  return options;
}

std::string
get(CompileCache &cache, uint64_t key,
    llvm::function_ref<absl::StatusOr<Artifact>()> compile = mustNotCompile) {
  auto artifact = cache.getOrCompile(keyOf(key), compile);
  EXPECT_THAT(artifact, IsOk());
  return artifact.ok() ? artifact->getBytes().str() : "";
}

TEST_F(TierTest, ACompileFillsAllTiersAndMemory) {
  auto cache = make();
  get(*cache, 1, compileTo("one"));
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_TRUE(disk->has(keyOf(1)));
  EXPECT_TRUE(remote->has(keyOf(1)));
  get(*cache, 1);
  EXPECT_EQ(disk->read(&FakeTierState::gets), 1u) << "memory was not asked";
  EXPECT_EQ(cache->getStats().disk.writes, 1u);
  EXPECT_EQ(cache->getStats().remote.writes, 1u);
  expectStatsAddUp(*cache);
}

TEST_F(TierTest, AnInsertFillsAllTiersAndMemory) {
  auto cache = make();
  ASSERT_THAT(cache->insert(keyOf(1), artifactOf("one")), IsOk());
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_TRUE(disk->has(keyOf(1)));
  EXPECT_TRUE(remote->has(keyOf(1)));
  EXPECT_EQ(disk->read(&FakeTierState::replaces), 0u);
  get(*cache, 1);
}

TEST_F(TierTest, AHitOnDiskFillsMemoryAndDoesNotAskTheRemote) {
  disk->add(keyOf(1), artifactOf("one"));
  auto cache = make();
  EXPECT_EQ(get(*cache, 1), "one");
  EXPECT_EQ(get(*cache, 1), "one");
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_EQ(disk->read(&FakeTierState::gets), 1u);
  EXPECT_EQ(remote->read(&FakeTierState::gets), 0u);
  EXPECT_EQ(remote->read(&FakeTierState::puts), 0u);
  EXPECT_EQ(cache->getStats().disk.hits, 1u);
  EXPECT_EQ(cache->getStats().memory.hits, 1u);
  EXPECT_EQ(cache->getStats().compiles, 0u);
  expectStatsAddUp(*cache);
}

TEST_F(TierTest, ARemoteHitFillsDiskAndMemory) {
  remote->add(keyOf(1), artifactOf("one"));
  auto cache = make();
  EXPECT_EQ(get(*cache, 1), "one");
  EXPECT_EQ(get(*cache, 1), "one");
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_TRUE(disk->has(keyOf(1)));
  EXPECT_EQ(remote->read(&FakeTierState::puts), 0u);
  EXPECT_EQ(cache->getStats().remote.hits, 1u);
  expectStatsAddUp(*cache);
}

TEST_F(TierTest, EitherTierMayBeAbsent) {
  remote->add(keyOf(1), artifactOf("one"));
  auto cache = makeCacheOn(nullptr, remote);
  EXPECT_EQ(get(*cache, 1), "one");
  EXPECT_EQ(cache->getStats().remote.hits, 1u);
  EXPECT_EQ(cache->getStats().disk.hits, 0u);
}

TEST_F(TierTest, ALookupAsksTheTiersAndFillsWhatIsBeforeThem) {
  remote->add(keyOf(1), artifactOf("one").withCompileCost(absl::Seconds(2)));
  auto cache = make();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(found, cache->lookup(keyOf(1)));
  EXPECT_EQ(found->getBytes(), "one");
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_TRUE(disk->has(keyOf(1)));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(again, cache->lookup(keyOf(1)));
  EXPECT_EQ(remote->read(&FakeTierState::gets), 1u);
  EXPECT_EQ(cache->getStats().lookupHits, 2u);
  EXPECT_EQ(cache->getStats().remote.hits, 0u) << "those are getOrCompile's";
  EXPECT_EQ(cache->getStats().timeSaved, absl::Seconds(4));
  expectStatsAddUp(*cache);
}

TEST_F(TierTest, ArtifactsComeBackAsTheyWere) {
  Artifact artifact = Artifact::copyOf("object", "bytes")
                          .withMeaning(keyOf(5).digest)
                          .withCompileCost(absl::Seconds(3));
  disk->add(keyOf(1), artifact);
  auto cache = make();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(hit,
                               cache->getOrCompile(keyOf(1), mustNotCompile));
  EXPECT_EQ(hit.getKind(), "object");
  EXPECT_EQ(hit.getMeaning(), keyOf(5).digest);
  EXPECT_EQ(hit.getCompileCost(), absl::Seconds(3));
  EXPECT_EQ(cache->getStats().timeSaved, absl::Seconds(3));
}

TEST_F(TierTest, TimeSavedStaysAtTheMostThatFits) {
  auto cache = make(withoutMemory());
  disk->add(keyOf(1),
            artifactOf("one").withCompileCost(absl::InfiniteDuration()));
  for (int i = 0; i != 2; ++i) {
    ASSERT_THAT(cache->getOrCompile(keyOf(1), mustNotCompile), IsOk());
    EXPECT_EQ(cache->getStats().timeSaved,
              absl::Nanoseconds(std::numeric_limits<int64_t>::max()));
  }
}

TEST_F(TierTest, StatsCarryWhatOnlyTheTierKnows) {
  auto cache = make();
  get(*cache, 1, compileTo("one"));
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_EQ(cache->getStats().disk.entries, 1u);
  EXPECT_EQ(cache->getStats().disk.rejected, 7u);
}

TEST_F(TierTest, HitsOfTiersAreVerifiedToo) {
  disk->add(keyOf(1), artifactOf("cached"));
  CompileCacheOptions options;
  options.verifyHits = true;
  options.verifyInterval = 1;
  auto cache = make(options);
  EXPECT_EQ(get(*cache, 1, compileTo("compiled")), "cached");
  EXPECT_EQ(cache->getStats().mismatches, 1u);
  expectStatsAddUp(*cache);
}

//===----------------------------------------------------------------------===//
// Faults
//===----------------------------------------------------------------------===//

TEST_F(TierTest, ATierThatFailsToGetIsAMissAndCounted) {
  disk->getFault = absl::DataLossError("disk on fire");
  remote->add(keyOf(1), artifactOf("one"));
  auto cache = make();
  EXPECT_EQ(get(*cache, 1), "one");
  EXPECT_EQ(get(*cache, 2, compileTo("two")), "two");
  EXPECT_THAT(cache->lookup(keyOf(3)), IsOk());
  CompileCacheStats stats = cache->getStats();
  EXPECT_EQ(stats.disk.errors, 3u);
  EXPECT_THAT(stats.disk.lastError, testing::HasSubstr("disk on fire"));
  EXPECT_EQ(stats.remote.errors, 0u);
  EXPECT_EQ(stats.remote.lastError, "");
  expectStatsAddUp(*cache);
}

TEST_F(TierTest, ATierThatFailsToPutLosesTheWriteAndFlushSaysSoOnce) {
  disk->putFault = absl::ResourceExhaustedError("disk full");
  auto cache = make();
  EXPECT_EQ(get(*cache, 1, compileTo("one")), "one");
  EXPECT_THAT(cache->flush(),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  EXPECT_THAT(cache->flush(), IsOk());
  EXPECT_EQ(cache->getStats().disk.errors, 1u);
  EXPECT_EQ(cache->getStats().disk.writes, 0u);
  EXPECT_THAT(cache->getStats().disk.lastError,
              testing::HasSubstr("disk full"));
  EXPECT_TRUE(remote->has(keyOf(1))) << "the other tier is written to";
}

TEST_F(TierTest, ATierThatFailsToClearIsCounted) {
  disk->clearFault = absl::PermissionDeniedError("not yours");
  auto cache = make();
  cache->clear();
  EXPECT_EQ(cache->getStats().disk.errors, 1u);
  EXPECT_EQ(remote->read(&FakeTierState::clears), 1u);
}

TEST_F(TierTest, ATierThatRecoversIsUsedAgain) {
  disk->getFault = disk->putFault = absl::UnavailableError("gone");
  auto cache = make(withoutMemory());
  get(*cache, 1, compileTo("one"));
  (void)cache->flush();
  {
    std::lock_guard<std::mutex> lock(disk->mutex);
    disk->getFault = disk->putFault = absl::OkStatus();
  }
  get(*cache, 2, compileTo("two"));
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_EQ(get(*cache, 2), "two");
  EXPECT_EQ(cache->getStats().disk.hits, 1u);
}

//===----------------------------------------------------------------------===//
// Modes
//===----------------------------------------------------------------------===//

TEST_F(TierTest, ReadOnlyReadsAndNeitherWritesNorClearsNorClaims) {
  disk->hasClaims = true;
  remote->add(keyOf(1), artifactOf("one"));
  auto cache = make(inMode(Mode::ReadOnly));
  EXPECT_EQ(get(*cache, 1), "one");
  EXPECT_EQ(get(*cache, 2, compileTo("two")), "two");
  ASSERT_THAT(cache->insert(keyOf(3), artifactOf("three")), IsOk());
  cache->clear();
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_EQ(disk->read(&FakeTierState::puts), 0u);
  EXPECT_EQ(remote->read(&FakeTierState::puts), 0u);
  EXPECT_EQ(disk->read(&FakeTierState::clears), 0u);
  EXPECT_EQ(disk->read(&FakeTierState::claims), 0u);
  EXPECT_TRUE(remote->has(keyOf(1)));
}

TEST_F(TierTest, RecomputeReadsNothingAndReplaces) {
  disk->add(keyOf(1), artifactOf("old"));
  disk->hasClaims = true;
  auto cache = make(inMode(Mode::Recompute));
  EXPECT_EQ(get(*cache, 1, compileTo("new")), "new");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(found, cache->lookup(keyOf(1)));
  EXPECT_FALSE(found);
  ASSERT_THAT(cache->insert(keyOf(1), artifactOf("newer")), IsOk());
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_EQ(disk->read(&FakeTierState::gets), 0u);
  EXPECT_EQ(disk->read(&FakeTierState::claims), 0u);
  EXPECT_EQ(disk->read(&FakeTierState::replaces), 2u);
  EXPECT_EQ(get(*make(), 1), "newer");
}

TEST_F(TierTest, OffTouchesNoTier) {
  disk->add(keyOf(1), artifactOf("old"));
  disk->hasClaims = true;
  auto cache = make(inMode(Mode::Off));
  EXPECT_EQ(get(*cache, 1, compileTo("new")), "new");
  ASSERT_THAT(cache->insert(keyOf(2), artifactOf("two")), IsOk());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(found, cache->lookup(keyOf(1)));
  EXPECT_FALSE(found);
  cache->clear();
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_EQ(disk->read(&FakeTierState::gets), 0u);
  EXPECT_EQ(disk->read(&FakeTierState::puts), 0u);
  EXPECT_EQ(disk->read(&FakeTierState::clears), 0u);
  EXPECT_EQ(disk->read(&FakeTierState::claims), 0u);
}

//===----------------------------------------------------------------------===//
// Claims
//===----------------------------------------------------------------------===//

TEST_F(TierTest, AClaimIsHeldUntilTheWriteIsDone) {
  PhaseGate gate;
  disk->hasClaims = true;
  disk->onPut = [&] {
    gate.open(1);
    gate.await(2);
  };
  auto cache = make();
  get(*cache, 1, [&]() -> absl::StatusOr<Artifact> {
    EXPECT_EQ(disk->read(&FakeTierState::claimsHeld), 1u);
    return artifactOf("one");
  });
  gate.await(1);
  EXPECT_EQ(disk->read(&FakeTierState::claimsHeld), 1u);
  gate.open(2);
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_EQ(disk->read(&FakeTierState::claimsHeld), 0u);
}

TEST_F(TierTest, WhatAnotherProcessPublishedBeforeTheClaimIsAHit) {
  for (bool isGiven : {true, false}) {
    auto state = std::make_shared<FakeTierState>();
    state->hasClaims = true;
    state->onClaim = [state = state.get(), isGiven] {
      state->add(keyOf(1), artifactOf("of another process"));
      return isGiven;
    };
    auto cache = makeCacheOn(state);
    EXPECT_EQ(get(*cache, 1), "of another process");
    EXPECT_EQ(cache->getStats().disk.hits, 1u);
    EXPECT_EQ(state->read(&FakeTierState::claimsHeld), 0u);
    expectStatsAddUp(*cache);
  }
}

TEST_F(TierTest, WhoWaitedForAClaimInVainCompiles) {
  disk->hasClaims = true;
  disk->onClaim = [] { return false; };
  auto cache = make();
  EXPECT_EQ(get(*cache, 1, compileTo("one")), "one");
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_TRUE(disk->has(keyOf(1)));
  EXPECT_EQ(cache->getStats().disk.errors, 0u);
}

TEST_F(TierTest, AFaultOfAClaimIsCountedAndTheCallerCompiles) {
  disk->hasClaims = true;
  disk->claimFault = absl::UnavailableError("no locks here");
  auto cache = make();
  EXPECT_EQ(get(*cache, 1, compileTo("one")), "one");
  EXPECT_EQ(cache->getStats().disk.errors, 1u);
  EXPECT_EQ(disk->read(&FakeTierState::gets), 1u);
}

TEST_F(TierTest, ATierWithoutClaimsIsNotLookedAtTwice) {
  auto cache = make();
  EXPECT_EQ(get(*cache, 1, compileTo("one")), "one");
  EXPECT_EQ(disk->read(&FakeTierState::gets), 1u);
  EXPECT_EQ(cache->getStats().disk.errors, 0u);
}

TEST_F(TierTest, AClaimIsReleasedWhereTheCompileFails) {
  disk->hasClaims = true;
  auto cache = make();
  EXPECT_THAT(cache->getOrCompile(keyOf(1),
                                  []() -> absl::StatusOr<Artifact> {
                                    return absl::InternalError("no");
                                  }),
              StatusIs(absl::StatusCode::kInternal, "no"));
  EXPECT_EQ(disk->read(&FakeTierState::claimsHeld), 0u);
}

TEST_F(TierTest, TheTimeoutOfACallBoundsTheWaitForAClaim) {
  disk->hasClaims = true;
  auto cache = make();
  get(*cache, 1, compileTo("one"));
  EXPECT_EQ(disk->read(&FakeTierState::claimLimit), absl::InfiniteDuration());
  EXPECT_THAT(cache->getOrCompile(keyOf(2), compileTo("two"), absl::Seconds(3)),
              IsOk());
  EXPECT_LE(disk->read(&FakeTierState::claimLimit), absl::Seconds(3));
  EXPECT_THAT(
      cache->getOrCompile(keyOf(3), compileTo("three"), absl::ZeroDuration()),
      IsOk());
  EXPECT_LE(disk->read(&FakeTierState::claimLimit), absl::ZeroDuration());
}

//===----------------------------------------------------------------------===//
// Writes
//===----------------------------------------------------------------------===//

TEST_F(TierTest, WhatIsFoundAndOldIsPutAgainOffTheThreadThatAsks) {
  disk->isOld = true;
  disk->add(keyOf(1), artifactOf("one"));
  disk->add(keyOf(2), artifactOf("two"));
  auto cache = make();
  get(*cache, 1);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(found, cache->lookup(keyOf(2)));
  EXPECT_TRUE(found);
  ASSERT_THAT(cache->flush(), IsOk());
  {
    std::lock_guard<std::mutex> lock(disk->mutex);
    EXPECT_EQ(disk->puts, 2u);
    EXPECT_EQ(disk->replaces, 0u);
    EXPECT_THAT(disk->writers,
                testing::Each(testing::Ne(std::this_thread::get_id())));
  }
  auto reader = make(inMode(Mode::ReadOnly));
  get(*reader, 1);
  ASSERT_THAT(reader->flush(), IsOk());
  EXPECT_EQ(disk->read(&FakeTierState::puts), 2u);
}

TEST_F(TierTest, FlushDoesNotWaitForWhatIsPutMeanwhile) {
  auto cache = makeCacheOn(disk);
  std::atomic<bool> flushed{false};
  // There is always one more.
  disk->onPut = [&, next = uint64_t(1)]() mutable {
    if (!flushed)
      EXPECT_THAT(cache->insert(keyOf(next++), artifactOf("more")), IsOk());
  };
  ASSERT_THAT(cache->insert(keyOf(0), artifactOf("bytes")), IsOk());
  EXPECT_THAT(cache->flush(), IsOk());
  EXPECT_TRUE(disk->has(keyOf(0)));
  flushed = true;
  EXPECT_THAT(cache->flush(), IsOk());
}

TEST_F(TierTest, WritesHappenOffTheThreadThatCompiles) {
  PhaseGate gate;
  disk->onPut = [&] { gate.await(1); };
  auto cache = make();
  for (uint64_t key = 0; key != 10; ++key)
    get(*cache, key, compileTo("bytes"));
  EXPECT_EQ(disk->read(&FakeTierState::puts), 0u);
  EXPECT_TRUE(eventually([&] {
    return remote->read(&FakeTierState::puts) == 10;
  })) << "a slow tier holds up another";
  gate.open(1);
  ASSERT_THAT(cache->flush(), IsOk());
  std::lock_guard<std::mutex> lock(disk->mutex);
  EXPECT_EQ(disk->puts, 10u);
  EXPECT_THAT(disk->writers,
              testing::Each(testing::Ne(std::this_thread::get_id())));
}

TEST_F(TierTest, WritesThatWaitGoTogetherWhereTheTierTakesSeveral) {
  PhaseGate gate;
  remote->maxWrites = 3;
  remote->onPut = [&] { gate.await(1); };
  auto cache = makeCacheOn(nullptr, remote);
  auto isWriting = [&] {
    std::lock_guard<std::mutex> lock(remote->mutex);
    return !remote->batches.empty();
  };
  get(*cache, 0, compileTo("bytes"));
  ASSERT_TRUE(eventually(isWriting));
  for (uint64_t key = 1; key != 6; ++key)
    get(*cache, key, compileTo("bytes"));
  // With what is as large as that, nothing else goes.
  std::string large(TierFront::maxBytesAtOnce, 'x');
  for (uint64_t key = 6; key != 8; ++key)
    get(*cache, key, compileTo(large));
  gate.open(1);

  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_EQ(remote->puts, 8u);
  EXPECT_THAT(remote->batches, testing::ElementsAre(1, 3, 2, 1, 1));
  EXPECT_EQ(cache->getStats().remote.writes, 8u);
}

TEST_F(TierTest, OfWritesThatGoTogetherEachSucceedsOrFailsByItself) {
  PhaseGate gate;
  remote->maxWrites = 64;
  std::atomic<int> puts{0};
  remote->onPut = [&] {
    gate.await(1);
    std::lock_guard<std::mutex> lock(remote->mutex);
    remote->putFault =
        puts++ % 2 ? absl::UnavailableError("odd") : absl::OkStatus();
  };
  auto cache = makeCacheOn(nullptr, remote);
  for (uint64_t key = 0; key != 10; ++key)
    get(*cache, key, compileTo("bytes"));
  gate.open(1);

  EXPECT_THAT(cache->flush(), StatusIs(absl::StatusCode::kUnavailable, "odd"));
  EXPECT_EQ(cache->getStats().remote.writes, 5u);
  EXPECT_EQ(cache->getStats().remote.errors, 5u);
}

TEST_F(TierTest, DestructionFinishesTheWrites) {
  PhaseGate gate;
  disk->onPut = [&] { gate.await(1); };
  auto cache = make();
  for (uint64_t key = 0; key != 10; ++key)
    get(*cache, key, compileTo("bytes"));
  std::thread destroyer([&] { cache.reset(); });
  gate.open(1);
  destroyer.join();
  EXPECT_EQ(disk->read(&FakeTierState::puts), 10u);
}

TEST_F(TierTest, WritesBeyondTheBoundAreDroppedCountedAndSaidByFlush) {
  PhaseGate gate;
  disk->hasClaims = true;
  disk->onPut = [&] {
    gate.open(1);
    gate.await(2);
  };
  auto cache = make(withoutMemory());
  get(*cache, 0, compileTo("bytes"));
  gate.await(1); // It is being written, and waits no more.
  for (uint64_t key = 1; key != 1 + TierFront::maxQueuedWrites; ++key)
    get(*cache, key, compileTo("bytes"));
  EXPECT_EQ(cache->getStats().disk.dropped, 0u);
  get(*cache, 5000, compileTo("dropped"));
  EXPECT_EQ(cache->getStats().disk.dropped, 1u);
  EXPECT_EQ(disk->read(&FakeTierState::claimsHeld),
            1 + TierFront::maxQueuedWrites);

  gate.open(2);
  EXPECT_THAT(cache->flush(), StatusIs(absl::StatusCode::kResourceExhausted,
                                       keyOf(5000).digest.toHex()));
  EXPECT_FALSE(disk->has(keyOf(5000)));
  EXPECT_EQ(disk->read(&FakeTierState::puts), 1 + TierFront::maxQueuedWrites);
  EXPECT_EQ(disk->read(&FakeTierState::claimsHeld), 0u);
}

TEST_F(TierTest, TheBytesThatWaitAreBoundedToo) {
  PhaseGate gate;
  disk->onPut = [&] {
    gate.open(1);
    gate.await(2);
  };
  auto cache = makeCacheOn(disk, nullptr, withoutMemory());
  get(*cache, 0, compileTo("bytes"));
  gate.await(1);
  // Nobody reads or writes these bytes: they take no memory.
  size_t halfBytes = TierFront::maxQueuedBytes / 2;
  std::shared_ptr<void> owner(std::aligned_alloc(64, halfBytes), std::free);
  Artifact half = Artifact::adopt(
      "test", llvm::StringRef(static_cast<char *>(owner.get()), halfBytes),
      owner);
  for (uint64_t key : {1, 2, 3})
    ASSERT_THAT(cache->insert(keyOf(key), half), IsOk());
  EXPECT_EQ(cache->getStats().disk.dropped, 1u);
  gate.open(2);
  EXPECT_FALSE(cache->flush().ok());
  EXPECT_TRUE(disk->has(keyOf(2)));
  EXPECT_FALSE(disk->has(keyOf(3)));
}

TEST_F(TierTest, AnArtifactThatIsTooLargeIsDroppedCountedAndSaidByFlush) {
  remote->maxBytes = 5;
  auto cache = make();
  get(*cache, 1, compileTo("12345"));
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_EQ(get(*cache, 2, compileTo("123456")), "123456");
  EXPECT_THAT(cache->flush(), StatusIs(absl::StatusCode::kResourceExhausted,
                                       keyOf(2).digest.toHex()));
  EXPECT_THAT(cache->flush(), IsOk()) << "said once";
  EXPECT_TRUE(disk->has(keyOf(2)));
  EXPECT_FALSE(remote->has(keyOf(2)));
  EXPECT_EQ(cache->getStats().remote.dropped, 1u);
  EXPECT_THAT(cache->getStats().remote.lastError,
              testing::HasSubstr("at most 5 are kept"));
  EXPECT_EQ(cache->getStats().remote.writes, 1u);
  EXPECT_EQ(cache->getStats().remote.errors, 0u);
  EXPECT_EQ(cache->getStats().disk.dropped, 0u);
}

//===----------------------------------------------------------------------===//
// Clear
//===----------------------------------------------------------------------===//

TEST_F(TierTest, ClearForgetsWhatTheTiersHold) {
  auto cache = make();
  get(*cache, 1, compileTo("one"));
  ASSERT_THAT(cache->flush(), IsOk());
  cache->clear();
  EXPECT_FALSE(disk->has(keyOf(1)));
  EXPECT_FALSE(remote->has(keyOf(1)));
  EXPECT_EQ(get(*cache, 1, compileTo("anew")), "anew");
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_TRUE(disk->has(keyOf(1)));
}

TEST_F(TierTest, ClearDropsTheWritesThatWaitAndWaitsForTheOneUnderWay) {
  PhaseGate gate;
  disk->hasClaims = true;
  disk->onPut = [&] {
    gate.open(1);
    gate.await(2);
  };
  disk->onClear = [&] {
    EXPECT_EQ(disk->read(&FakeTierState::puts), 1u);
    gate.open(3);
  };
  auto cache = make();
  for (uint64_t key = 0; key != 5; ++key)
    get(*cache, key, compileTo("bytes"));
  gate.await(1);
  std::thread clearer([&] { cache->clear(); });
  EXPECT_TRUE(
      eventually([&] { return disk->read(&FakeTierState::claimsHeld) == 1; }));
  gate.open(2);
  clearer.join();
  gate.await(3);
  ASSERT_THAT(cache->flush(), IsOk());
  for (uint64_t key = 0; key != 5; ++key)
    EXPECT_FALSE(disk->has(keyOf(key)));
  EXPECT_EQ(disk->read(&FakeTierState::puts), 1u);
}

TEST_F(TierTest, ACompileThatIsClearedIsWrittenNowhere) {
  auto cache = make();
  get(*cache, 1, [&]() -> absl::StatusOr<Artifact> {
    cache->clear();
    return artifactOf("old");
  });
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_FALSE(disk->has(keyOf(1)));
  EXPECT_FALSE(remote->has(keyOf(1)));
  EXPECT_EQ(get(*cache, 1, compileTo("new")), "new");
}

/// A call that a tier is in the middle of answering while `clear` runs from
/// begin to end: what it found must not come back.
void expectClearedBehind(const std::function<void(CompileCache &)> &call) {
  auto state = std::make_shared<FakeTierState>();
  auto second = std::make_shared<FakeTierState>();
  second->add(keyOf(1), artifactOf("old"));
  auto cache = makeCacheOn(state, second);
  std::atomic<bool> isFirst{true};
  PhaseGate gate;
  // The first tier has been passed; the second has the artifact in its hands.
  second->onGet = [&] {
    if (!isFirst.exchange(false))
      return;
    gate.open(1);
    gate.await(2);
    second->add(keyOf(1), artifactOf("old"));
  };
  std::thread caller([&] { call(*cache); });
  gate.await(1);
  cache->clear();
  gate.open(2);
  caller.join();
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_FALSE(state->has(keyOf(1))) << "came back on disk";
  cache->clear();
  EXPECT_EQ(cache->getStats().memory.writes, 0u) << "came back in memory";
}

TEST_F(TierTest, WhatATierGaveBeforeAClearDoesNotComeBackAfterIt) {
  expectClearedBehind([](CompileCache &cache) { get(cache, 1); });
  expectClearedBehind(
      [](CompileCache &cache) { EXPECT_THAT(cache.lookup(keyOf(1)), IsOk()); });
}

TEST_F(TierTest, ClearsMayOverlap) {
  auto cache = make();
  std::vector<std::thread> threads;
  for (int i = 0; i != 4; ++i)
    threads.emplace_back([&, i] {
      for (uint64_t key = 0; key != 50; ++key) {
        get(*cache, key, compileTo("bytes"));
        if (key % 4 == unsigned(i))
          cache->clear();
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  get(*cache, 99, compileTo("bytes"));
  ASSERT_THAT(cache->flush(), IsOk());
  EXPECT_TRUE(disk->has(keyOf(99))) << "writes were not taken up again";
  expectStatsAddUp(*cache);
}

TEST_F(TierTest, CallersOfOneKeyShareWhatATierGives) {
  PhaseGate gate;
  disk->add(keyOf(1), artifactOf("one"));
  disk->onGet = [&] {
    gate.open(1);
    gate.await(2);
  };
  auto cache = make();
  std::vector<std::thread> threads;
  threads.emplace_back([&] { EXPECT_EQ(get(*cache, 1), "one"); });
  gate.await(1);
  for (int i = 0; i != 8; ++i)
    threads.emplace_back([&] { EXPECT_EQ(get(*cache, 1), "one"); });
  EXPECT_TRUE(eventually([&] { return cache->getStats().joined == 8; }));
  gate.open(2);
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(disk->read(&FakeTierState::gets), 1u);
  EXPECT_EQ(cache->getStats().disk.hits, 1u);
  expectStatsAddUp(*cache);
}

} // namespace

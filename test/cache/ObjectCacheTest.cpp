//===- ObjectCacheTest.cpp - Tests of a cache of live objects ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ObjectCache.h"

#include "test/cache/CacheTestSupport.h"
#include "test/support/ForkedChild.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"

#include "gtest/gtest.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::test;

namespace {

/// An object that says how many of it there are.
struct Counted {
  explicit Counted(int value) : value(value) { ++alive; }
  ~Counted() { --alive; }
  Counted(const Counted &) = delete;
  Counted &operator=(const Counted &) = delete;
  const int value;
  static inline std::atomic<int> alive{0};
};

uint64_t hundredBytes(const Counted &) { return 100; }

auto createCounted(int value) {
  return [value]() -> absl::StatusOr<std::shared_ptr<Counted>> {
    return std::make_shared<Counted>(value);
  };
}

absl::StatusOr<std::shared_ptr<Counted>> mustNotCreate() {
  ADD_FAILURE() << "created";
  return absl::InternalError("created");
}

void expectAddUp(const ObjectCacheStats &stats) {
  EXPECT_EQ(stats.requests,
            stats.hits + stats.joined + stats.creations + stats.refused);
  EXPECT_EQ(stats.lookups, stats.lookupHits + stats.lookupMisses);
}

TEST(ObjectCacheTest, AnObjectIsMadeOnceAndShared) {
  ObjectCache<Counted> cache(1000);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      made, cache.getOrCreate(keyOf(1), createCounted(7), hundredBytes));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      hit, cache.getOrCreate(keyOf(1), mustNotCreate, hundredBytes));
  EXPECT_EQ(hit, made);
  EXPECT_EQ(cache.lookup(keyOf(1)), made);
  EXPECT_EQ(cache.lookup(keyOf(2)), nullptr);
  ObjectCacheStats stats = cache.getStats();
  EXPECT_EQ(stats.requests, 2u);
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.creations, 1u);
  EXPECT_EQ(stats.lookups, 2u);
  EXPECT_EQ(stats.lookupHits, 1u);
  EXPECT_EQ(stats.entries, 1u);
  EXPECT_EQ(stats.bytes, 100u + 256u);
  expectAddUp(stats);
}

TEST(ObjectCacheTest, ObjectsMayBeConst) {
  ObjectCache<const int> cache(1000);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      made, cache.getOrCreate(
                keyOf(1), [] { return std::make_shared<const int>(7); },
                [](const int &) { return uint64_t(4); }));
  EXPECT_EQ(*made, 7);
  EXPECT_EQ(cache.lookup(keyOf(1)), made);
}

TEST(ObjectCacheTest, TheLastUserFreesAnObjectThatWasEvicted) {
  ObjectCache<Counted> cache(356); // Room for one.
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      first, cache.getOrCreate(keyOf(1), createCounted(1), hundredBytes));
  ASSERT_THAT(cache.getOrCreate(keyOf(2), createCounted(2), hundredBytes),
              IsOk());
  EXPECT_EQ(cache.getStats().evictions, 1u);
  EXPECT_EQ(cache.lookup(keyOf(1)), nullptr);
  EXPECT_EQ(Counted::alive, 2);
  EXPECT_EQ(first->value, 1);
  firstOrStatus = nullptr;
  first.reset();
  EXPECT_EQ(Counted::alive, 1);
  // Nobody uses the second one.
  ASSERT_THAT(cache.getOrCreate(keyOf(3), createCounted(3), hundredBytes),
              IsOk());
  EXPECT_EQ(Counted::alive, 1);
}

TEST(ObjectCacheTest, TheLastUserFreesAnObjectOfACacheThatIsGone) {
  auto cache = std::make_unique<ObjectCache<Counted>>(1000);
  std::shared_ptr<Counted> used =
      *cache->getOrCreate(keyOf(1), createCounted(1), hundredBytes);
  ASSERT_THAT(cache->getOrCreate(keyOf(2), createCounted(2), hundredBytes),
              IsOk());
  cache.reset();
  EXPECT_EQ(Counted::alive, 1);
  EXPECT_EQ(used->value, 1);
  used.reset();
  EXPECT_EQ(Counted::alive, 0);
}

TEST(ObjectCacheTest, UsersOnSeveralThreadsCountOwnersApartAndTheLastFreesIt) {
  auto cache = std::make_unique<ObjectCache<Counted>>(1000);
  ASSERT_THAT(cache->getOrCreate(keyOf(1), createCounted(1), hundredBytes),
              IsOk());
  PhaseGate gate;
  std::thread first([&] {
    std::shared_ptr<Counted> used = cache->lookup(keyOf(1));
    const long owners = used.use_count();
    gate.open(1);
    gate.await(2);
    // What the second one did wrote to nothing of this one.
    EXPECT_EQ(used.use_count(), owners);
    used.reset();
    gate.open(3);
  });
  std::thread second([&] {
    gate.await(1);
    std::shared_ptr<Counted> used = cache->lookup(keyOf(1));
    gate.open(2);
    gate.await(3);
    cache.reset();
    EXPECT_EQ(Counted::alive, 1);
    EXPECT_EQ(used->value, 1);
  });
  first.join();
  second.join();
  EXPECT_EQ(Counted::alive, 0);
}

TEST(ObjectCacheTest, AnObjectLargerThanTheBoundIsHandedOutAndNotKept) {
  ObjectCache<Counted> cache(1000);
  auto tooLarge = [](const Counted &) -> uint64_t { return ~uint64_t(0); };
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      object, cache.getOrCreate(keyOf(1), createCounted(1), tooLarge));
  EXPECT_EQ(object->value, 1);
  EXPECT_EQ(cache.lookup(keyOf(1)), nullptr);
  EXPECT_EQ(cache.getStats().bytes, 0u);
}

TEST(ObjectCacheTest, AnErrorIsNotKeptAndNullIsOne) {
  ObjectCache<Counted> cache(1000);
  EXPECT_THAT(cache.getOrCreate(
                  keyOf(1),
                  []() -> absl::StatusOr<std::shared_ptr<Counted>> {
                    return absl::NotFoundError("no symbol");
                  },
                  hundredBytes),
              StatusIs(absl::StatusCode::kNotFound, "no symbol"));
  EXPECT_THAT(
      cache.getOrCreate(
          keyOf(1),
          []() -> absl::StatusOr<std::shared_ptr<Counted>> { return nullptr; },
          hundredBytes),
      StatusIs(absl::StatusCode::kInvalidArgument, "null"));
  EXPECT_EQ(cache.getStats().failures, 2u);
  EXPECT_THAT(cache.getOrCreate(keyOf(1), createCounted(1), hundredBytes),
              IsOk());
  expectAddUp(cache.getStats());
}

TEST(ObjectCacheTest, CallersOfOneKeyShareACreationAndOneMayGiveUp) {
  ObjectCache<Counted> cache(1000);
  PhaseGate gate;
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    EXPECT_THAT(cache.getOrCreate(
                    keyOf(1),
                    [&]() -> absl::StatusOr<std::shared_ptr<Counted>> {
                      gate.open(1);
                      gate.await(2);
                      return std::make_shared<Counted>(1);
                    },
                    hundredBytes),
                IsOk());
  });
  gate.await(1);
  for (int i = 0; i != 4; ++i)
    threads.emplace_back([&] {
      EXPECT_THAT(cache.getOrCreate(keyOf(1), mustNotCreate, hundredBytes),
                  IsOk());
    });
  EXPECT_TRUE(eventually([&] { return cache.getStats().joined == 4; }));
  EXPECT_THAT(cache.getOrCreate(keyOf(1), mustNotCreate, hundredBytes,
                                absl::Milliseconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ""));
  gate.open(2);
  for (std::thread &thread : threads)
    thread.join();
  ObjectCacheStats stats = cache.getStats();
  EXPECT_EQ(stats.creations, 1u);
  EXPECT_EQ(stats.abandoned, 1u);
  expectAddUp(stats);
}

TEST(ObjectCacheTest, ACreationMayUseACompileCacheAndIsRefusedItself) {
  ObjectCache<Counted> objects(1000);
  auto artifacts = makeCache();
  absl::StatusOr<std::shared_ptr<Counted>> itself = absl::UnknownError("");
  auto create = [&]() -> absl::StatusOr<std::shared_ptr<Counted>> {
    auto artifact = artifacts->getOrCompile(keyOf(1), [&] {
      // The circle goes through both caches.
      itself = objects.getOrCreate(keyOf(1), mustNotCreate, hundredBytes);
      return artifactOf("one");
    });
    return std::make_shared<Counted>(int(artifact->getBytes().size()));
  };
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      object, objects.getOrCreate(keyOf(1), create, hundredBytes));
  EXPECT_EQ(object->value, 3);
  EXPECT_THAT(itself, StatusIs(absl::StatusCode::kFailedPrecondition, ""));
  EXPECT_EQ(objects.getStats().refused, 1u);
}

TEST(ObjectCacheTest, ClearForgetsAndWhatIsBeingCreatedIsNotKept) {
  ObjectCache<Counted> cache(1000);
  ASSERT_THAT(cache.getOrCreate(keyOf(1), createCounted(1), hundredBytes),
              IsOk());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      cleared, cache.getOrCreate(
                   keyOf(2),
                   [&]() -> absl::StatusOr<std::shared_ptr<Counted>> {
                     cache.clear();
                     return std::make_shared<Counted>(2);
                   },
                   hundredBytes));
  EXPECT_EQ(cleared->value, 2);
  EXPECT_EQ(cache.lookup(keyOf(1)), nullptr);
  EXPECT_EQ(cache.lookup(keyOf(2)), nullptr);
  EXPECT_EQ(Counted::alive, 1);
}

TEST(ObjectCacheTest, AForkedChildHasNothingInAnInheritedCache) {
  ObjectCache<Counted> *cache = new ObjectCache<Counted>(1000);
  std::shared_ptr<Counted> used =
      *cache->getOrCreate(keyOf(1), createCounted(1), hundredBytes);
  EXPECT_EQ(runInChild([&] {
              bool isRefused =
                  absl::IsFailedPrecondition(
                      cache->getOrCreate(keyOf(1), mustNotCreate, hundredBytes)
                          .status()) &&
                  !cache->lookup(keyOf(1)) && cache->getStats().requests == 0;
              cache->clear();
              delete cache;
              return isRefused && used->value == 1;
            }),
            "exit 0");
  delete cache;
}

} // namespace

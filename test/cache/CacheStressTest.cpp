//===- CacheStressTest.cpp - Many threads, few keys ----------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/CompileCache.h"

#include "test/cache/CacheTestSupport.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"
#include "test/support/TestFiles.h"

#include "gtest/gtest.h"

#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::test;

namespace {

constexpr uint64_t threadCount = 64, keyCount = 200;

/// What an operation does besides asking for keys.
struct Disturbances {
  bool clears = false;
  bool tiers = false;
};

/// Operations of 64 threads on 200 keys: requests, some within others,
/// with compiles that fail at random; lookups and inserts; in a cache that has
/// room for a quarter of the keys.
void stress(const Disturbances &disturbances) {
  uint64_t seed = numberFromEnvironment("CONTEXT_POOL_TEST_SEED", 1);
  SCOPED_TRACE("CONTEXT_POOL_TEST_SEED=" + std::to_string(seed));
  // The sanitizers get a million once, and then fewer.
  bool fewer = isSanitized && (disturbances.clears || disturbances.tiers);
  uint64_t operations = numberFromEnvironment("CONTEXT_POOL_TEST_OPERATIONS",
                                              fewer ? 200'000 : 1'000'000) /
                        threadCount;

  CompileCacheOptions options;
  options.memoryBytes = keyCount / 4 * (600 + 256);
  auto disk = std::make_shared<FakeTierState>();
  auto cache =
      makeCacheOn(disturbances.tiers ? disk : nullptr, nullptr, options);

  std::vector<CacheKey> keys;
  for (uint64_t key = 0; key != keyCount; ++key)
    keys.push_back(keyOf(key));
  std::array<std::atomic<int>, keyCount> compiling{};
  std::atomic<uint64_t> wrong{0}, overlaps{0}, failures{0}, compiles{0},
      requests{0}, unexpected{0}, overfull{0};

  /// Says which key it is of.
  auto artifactFor = [](uint64_t key, uint64_t size) {
    std::string bytes = std::to_string(key) + ":";
    bytes.resize(bytes.size() + size, 'x');
    return artifactOf(bytes);
  };
  auto check = [&](uint64_t key, const Artifact &artifact) {
    if (!artifact.getBytes().starts_with(std::to_string(key) + ":"))
      ++wrong;
  };

  auto body = [&](uint64_t thread) {
    std::mt19937_64 random(seed * 1000 + thread);
    auto below = [&](uint64_t bound) { return random() % bound; };
    std::function<void(uint64_t)> request = [&](uint64_t key) {
      ++requests;
      auto artifact = cache->getOrCompile(
          keys[key],
          [&]() -> absl::StatusOr<Artifact> {
            ++compiles;
            if (++compiling[key] != 1)
              ++overlaps;
            // Of any key: circles of threads come about, and are broken.
            if (below(8) == 0)
              request(below(keyCount));
            bool fails = below(10) == 0;
            if (below(50) == 0)
              std::this_thread::yield();
            --compiling[key];
            if (fails) {
              ++failures;
              return absl::UnavailableError("random failure");
            }
            return artifactFor(key, below(1000));
          },
          below(20) == 0 ? absl::Microseconds(below(100))
                         : absl::InfiniteDuration());
      if (artifact.ok())
        check(key, *artifact);
      else if (!absl::IsUnavailable(artifact.status()) &&
               !absl::IsDeadlineExceeded(artifact.status()) &&
               !absl::IsFailedPrecondition(artifact.status()))
        ++unexpected;
    };
    for (uint64_t i = 0; i != operations; ++i) {
      // Some keys are asked for more often than others.
      uint64_t key = std::min(below(keyCount), below(keyCount));
      uint64_t choice = below(1000);
      if (choice < 100) {
        auto found = cache->lookup(keys[key]);
        if (found.ok() && *found)
          check(key, **found);
      } else if (choice < 150) {
        if (!cache->insert(keys[key], artifactFor(key, below(1000))).ok())
          ++unexpected;
      } else if (choice < 152) {
        CompileCacheStats stats = cache->getStats();
        if (stats.memory.bytes > options.memoryBytes)
          ++overfull;
        // Not as many as a number has that went below zero.
        if (stats.lookupMisses > stats.lookups)
          ++unexpected;
      } else if (choice < 153 && disturbances.clears) {
        cache->clear();
      } else {
        request(key);
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread != threadCount; ++thread)
    threads.emplace_back(body, thread);
  for (std::thread &thread : threads)
    thread.join();

  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(unexpected, 0u);
  EXPECT_EQ(overfull, 0u);
  if (!disturbances.clears) {
    EXPECT_EQ(overlaps, 0u) << "two compiles of one key at a time";
  }
  CompileCacheStats stats = cache->getStats();
  EXPECT_EQ(stats.requests, requests);
  EXPECT_EQ(stats.compiles, compiles);
  EXPECT_EQ(stats.failures, failures);
  EXPECT_GT(stats.memory.evictions, 0u);
  EXPECT_GT(stats.joined, 0u);
  EXPECT_LE(stats.memory.bytes, options.memoryBytes);
  expectStatsAddUp(*cache);
  // No flight was left behind.
  for (const CacheKey &key : keys)
    EXPECT_THAT(
        cache->getOrCompile(key, compileTo("last"), absl::ZeroDuration()),
        IsOk());
}

TEST(CacheStressTest, ManyThreadsGetWhatTheyAskedForAndCountsAddUp) {
  stress({});
}

TEST(CacheStressTest, ClearsInBetweenMakeNoDifference) {
  stress({/*clears=*/true});
}

TEST(CacheStressTest, ATierBehindMakesNoDifference) {
  stress({/*clears=*/true, /*tiers=*/true});
}

} // namespace

//===- CacheModelTest.cpp - The cache against a model of its contract ----===//
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

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>

using namespace ctxpool;
using namespace ctxpool::test;

namespace {

/// The contract of a cache in memory that one thread uses, as simple as it gets.
class Model {
public:
  explicit Model(uint64_t memoryBytes) : memoryBytes(memoryBytes) {}

  std::optional<std::string> use(uint64_t key) {
    auto it = entries.find(key);
    if (it == entries.end())
      return std::nullopt;
    order.splice(order.begin(), order, it->second.place);
    return it->second.content;
  }

  void keep(uint64_t key, const std::string &content) {
    uint64_t bytes = footprintOf(artifactOf(content));
    if (entries.count(key) || bytes > memoryBytes)
      return;
    while (keptBytes + bytes > memoryBytes) {
      uint64_t oldest = order.back();
      keptBytes -= footprintOf(artifactOf(entries.at(oldest).content));
      entries.erase(oldest);
      order.pop_back();
      ++evictions;
    }
    order.push_front(key);
    entries[key] = {content, order.begin()};
    keptBytes += bytes;
  }

  /// A compile of the key begins, unless there is one already.
  std::optional<uint64_t> begin(uint64_t key) {
    if (flights.count(key))
      return std::nullopt;
    flights[key] = ++lastFlight;
    return lastFlight;
  }

  /// What a compile that succeeded is answered with.
  std::string finish(uint64_t key, uint64_t flight, const std::string &made) {
    if (!endFlight(key, flight))
      return made;
    if (std::optional<std::string> kept = use(key))
      return *kept;
    keep(key, made);
    return made;
  }

  /// Whether the flight had not been cleared.
  bool endFlight(uint64_t key, uint64_t flight) {
    auto it = flights.find(key);
    if (it == flights.end() || it->second != flight)
      return false;
    flights.erase(it);
    return true;
  }

  void clear() {
    entries.clear();
    order.clear();
    flights.clear();
    keptBytes = 0;
  }

  struct Entry {
    std::string content;
    std::list<uint64_t>::iterator place;
  };
  const uint64_t memoryBytes;
  std::map<uint64_t, Entry> entries;
  std::list<uint64_t> order; ///< Most recent use first.
  std::map<uint64_t, uint64_t> flights;
  uint64_t lastFlight = 0, keptBytes = 0, evictions = 0;
};

/// Does random things to a cache and a model, and compares.
class Schedule {
public:
  Schedule(uint64_t seed, uint64_t memoryBytes)
      : random(seed), model(memoryBytes), cache([&] {
          CompileCacheOptions options;
          options.memoryBytes = memoryBytes;
          return makeCache(options);
        }()) {}

  void step(int depth = 0) {
    uint64_t key = below(30);
    uint64_t choice = below(100);
    if (choice == 0) {
      model.clear();
      cache->clear();
    } else if (choice <= 20) {
      lookup(key);
    } else if (choice <= 30) {
      std::string content = newContent();
      model.keep(key, content);
      ASSERT_THAT(cache->insert(keyOf(key), artifactOf(content)), IsOk());
    } else {
      getOrCompile(key, depth);
    }
  }

  void compareCounts() {
    CompileCacheStats stats = cache->getStats();
    ASSERT_EQ(stats.memory.entries, model.entries.size());
    ASSERT_EQ(stats.memory.bytes, model.keptBytes);
    ASSERT_LE(stats.memory.bytes, model.memoryBytes);
    ASSERT_EQ(stats.memory.evictions, model.evictions);
    ASSERT_EQ(stats.requests, requests);
    ASSERT_EQ(stats.memory.hits, hits);
    ASSERT_EQ(stats.compiles, compiles);
    ASSERT_EQ(stats.failures, failures);
    ASSERT_EQ(stats.refused, refused);
    expectStatsAddUp(*cache);
  }

private:
  uint64_t below(uint64_t bound) {
    return std::uniform_int_distribution<uint64_t>(0, bound - 1)(random);
  }

  /// Never the same twice.
  std::string newContent() {
    std::string content = std::to_string(++lastContent);
    // A few that are larger than the bound.
    content.resize(below(20) == 0 ? model.memoryBytes + 1 : 20 + below(1000),
                   '.');
    return content;
  }

  void lookup(uint64_t key) {
    auto found = cache->lookup(keyOf(key));
    ASSERT_THAT(found, IsOk());
    std::optional<std::string> expected = model.use(key);
    ASSERT_EQ(found->has_value(), expected.has_value());
    if (expected) {
      ASSERT_EQ((*found)->getBytes(), *expected);
    }
  }

  void getOrCompile(uint64_t key, int depth) {
    ++requests;
    std::optional<std::string> kept = model.use(key);
    std::optional<uint64_t> flight;
    if (kept)
      ++hits;
    else
      flight = model.begin(key);

    std::optional<std::string> made;
    bool compiled = false;
    auto artifact =
        cache->getOrCompile(keyOf(key), [&]() -> absl::StatusOr<Artifact> {
          compiled = true;
          ++compiles;
          for (uint64_t inner = depth < 4 ? below(4) : 0; inner != 0; --inner)
            step(depth + 1);
          if (below(5) == 0)
            return absl::InternalError("random failure");
          made = newContent();
          return artifactOf(*made);
        });

    ASSERT_EQ(compiled, flight.has_value());
    if (kept) {
      ASSERT_THAT(artifact, IsOk());
      ASSERT_EQ(artifact->getBytes(), *kept);
    } else if (!flight) {
      ++refused;
      ASSERT_THAT(artifact, StatusIs(absl::StatusCode::kFailedPrecondition,
                                     keyOf(key).digest.toHex()));
    } else if (!made) {
      ++failures;
      model.endFlight(key, *flight);
      ASSERT_THAT(artifact,
                  StatusIs(absl::StatusCode::kInternal, "random failure"));
    } else {
      ASSERT_THAT(artifact, IsOk());
      ASSERT_EQ(artifact->getBytes(), model.finish(key, *flight, *made));
    }
  }

  std::mt19937_64 random;
  Model model;
  std::unique_ptr<CompileCache> cache;
  uint64_t lastContent = 0;
  uint64_t requests = 0, hits = 0, compiles = 0, failures = 0, refused = 0;
};

TEST(CacheModelTest, RandomSchedulesGiveWhatTheContractSays) {
  uint64_t seed = numberFromEnvironment("CONTEXT_POOL_TEST_SEED", 1);
  uint64_t steps = isSanitized ? 300 : 3000;
  for (uint64_t round = 0; round != 20; ++round) {
    SCOPED_TRACE("CONTEXT_POOL_TEST_SEED=" + std::to_string(seed) + ", round " +
                 std::to_string(round));
    Schedule schedule(seed * 1000 + round, /*memoryBytes=*/1000 + 700 * round);
    for (uint64_t step = 0; step != steps; ++step) {
      schedule.step();
      schedule.compareCounts();
      if (HasFatalFailure())
        return;
    }
  }
}

} // namespace

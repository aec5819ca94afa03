//===- CacheTestSupport.cpp - Keys, artifacts and tiers for tests ---------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/cache/CacheTestSupport.h"

#include "context_pool/cache/CacheAccess.h"
#include "test/support/StatusMatchers.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/BLAKE3.h"

using namespace ctxpool;
using namespace ctxpool::test;

CacheKey test::keyOf(uint64_t number) {
  CacheKey key;
  key.digest.bytes = llvm::BLAKE3::hash<32>(llvm::ArrayRef<uint8_t>(
      reinterpret_cast<const uint8_t *>(&number), sizeof(number)));
  return key;
}

Artifact test::artifactOf(const std::string &bytes) {
  return Artifact::copyOf("test", bytes);
}

uint64_t test::footprintOf(const Artifact &artifact) {
  return artifact.getBytes().size() + artifact.getKind().size() + 256;
}

std::unique_ptr<CompileCache> test::makeCache(CompileCacheOptions options) {
  return makeCacheOn(nullptr, nullptr, std::move(options));
}

absl::StatusOr<Artifact> test::mustNotCompile() {
  ADD_FAILURE() << "compiled";
  return absl::InternalError("compiled");
}

absl::StatusOr<Artifact> test::getOrCompileThroughPlainCode(
    CompileCache &cache, const CacheKey &key,
    llvm::function_ref<absl::StatusOr<Artifact>()> compile) {
  return cache.getOrCompile(key, [&] {
    absl::StatusOr<Artifact> artifact = compile();
    // Not a tail call: the frame stays.
    EXPECT_TRUE(artifact.ok() || !artifact.status().message().empty());
    return artifact;
  });
}

void test::expectStatsAddUp(CompileCache &cache) {
  CompileCacheStats stats = cache.getStats();
  EXPECT_EQ(stats.requests, stats.memory.hits + stats.disk.hits +
                                stats.remote.hits + stats.joined +
                                stats.compiles + stats.refused);
  EXPECT_EQ(stats.lookups, stats.lookupHits + stats.lookupMisses);
  EXPECT_LE(stats.failures, stats.compiles);
  EXPECT_LE(stats.abandoned, stats.joined);
  EXPECT_LE(stats.mismatches, stats.verified);
  EXPECT_LE(stats.memory.entries + stats.memory.evictions, stats.memory.writes);
}

bool FakeTierState::has(const CacheKey &key) {
  std::lock_guard<std::mutex> lock(mutex);
  return artifacts.count(key.digest.toHex()) != 0;
}

void FakeTierState::add(const CacheKey &key, const Artifact &artifact) {
  std::lock_guard<std::mutex> lock(mutex);
  artifacts.insert_or_assign(key.digest.toHex(), artifact);
}

namespace {

class FakeClaim : public detail::CompileClaim {
public:
  explicit FakeClaim(std::shared_ptr<FakeTierState> state)
      : state(std::move(state)) {
    std::lock_guard<std::mutex> lock(this->state->mutex);
    ++this->state->claimsHeld;
  }
  ~FakeClaim() override {
    std::lock_guard<std::mutex> lock(state->mutex);
    --state->claimsHeld;
  }

private:
  std::shared_ptr<FakeTierState> state;
};

class FakeTier : public detail::Tier {
public:
  explicit FakeTier(std::shared_ptr<FakeTierState> state)
      : state(std::move(state)) {}

  absl::StatusOr<detail::TierFound> find(const CacheKey &key) override {
    if (state->onGet)
      state->onGet();
    std::lock_guard<std::mutex> lock(state->mutex);
    ++state->gets;
    if (!state->getFault.ok())
      return state->getFault;
    auto it = state->artifacts.find(key.digest.toHex());
    if (it == state->artifacts.end())
      return detail::TierFound();
    return detail::TierFound{it->second, state->isOld};
  }

  std::vector<absl::Status>
  putAll(llvm::ArrayRef<detail::TierWrite> writes) override {
    {
      std::lock_guard<std::mutex> lock(state->mutex);
      state->batches.push_back(writes.size());
    }
    return Tier::putAll(writes);
  }

  size_t getMaxWrites() const override { return state->maxWrites; }
  uint64_t getMaxArtifactBytes() const override { return state->maxBytes; }

  absl::Status put(const CacheKey &key, const Artifact &artifact,
                   bool replace) override {
    if (state->onPut)
      state->onPut();
    std::lock_guard<std::mutex> lock(state->mutex);
    ++state->puts;
    state->replaces += replace;
    state->writers.push_back(std::this_thread::get_id());
    if (!state->putFault.ok())
      return state->putFault;
    if (replace)
      state->artifacts.insert_or_assign(key.digest.toHex(), artifact);
    else
      state->artifacts.emplace(key.digest.toHex(), artifact);
    return absl::OkStatus();
  }

  absl::Status clear() override {
    if (state->onClear)
      state->onClear();
    std::lock_guard<std::mutex> lock(state->mutex);
    ++state->clears;
    if (!state->clearFault.ok())
      return state->clearFault;
    state->artifacts.clear();
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<detail::CompileClaim>>
  claim(const CacheKey &key, absl::Duration limit) override {
    if (!state->hasClaims)
      return Tier::claim(key, limit);
    {
      std::lock_guard<std::mutex> lock(state->mutex);
      ++state->claims;
      state->claimLimit = limit;
      if (!state->claimFault.ok())
        return state->claimFault;
    }
    if (state->onClaim && !state->onClaim())
      return nullptr;
    return std::make_unique<FakeClaim>(state);
  }

  CacheTierStats getStats() const override {
    std::lock_guard<std::mutex> lock(state->mutex);
    CacheTierStats stats;
    stats.entries = state->artifacts.size();
    stats.rejected = 7;
    return stats;
  }

private:
  const std::shared_ptr<FakeTierState> state;
};

} // namespace

std::unique_ptr<detail::Tier>
test::makeFakeTier(std::shared_ptr<FakeTierState> state) {
  if (!state)
    return nullptr;
  return std::make_unique<FakeTier>(std::move(state));
}

std::unique_ptr<CompileCache>
test::makeCacheOn(std::shared_ptr<FakeTierState> disk,
                  std::shared_ptr<FakeTierState> remote,
                  CompileCacheOptions options) {
  auto cache = detail::CacheAccess::createCache(
      std::move(options),
      {makeFakeTier(std::move(disk)), makeFakeTier(std::move(remote))});
  EXPECT_THAT(cache, IsOk());
  return *std::move(cache);
}

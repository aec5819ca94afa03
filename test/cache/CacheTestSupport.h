//===- CacheTestSupport.h - Keys, artifacts and tiers for tests -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_TEST_CACHE_CACHETESTSUPPORT_H
#define CONTEXT_POOL_TEST_CACHE_CACHETESTSUPPORT_H

#include "context_pool/CompileCache.h"
#include "context_pool/cache/Tier.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ctxpool::test {

/// A key for each number, spread over the shards.
CacheKey keyOf(uint64_t number);

/// An artifact of kind `test`.
Artifact artifactOf(const std::string &bytes);

/// What the cache counts for that artifact against its bound.
uint64_t footprintOf(const Artifact &artifact);

std::unique_ptr<CompileCache> makeCache(CompileCacheOptions options = {});

/// A compile function that gives `bytes`.
inline auto compileTo(const std::string &bytes) {
  return [bytes]() -> absl::StatusOr<Artifact> { return artifactOf(bytes); };
}

/// A compile function that must not run.
absl::StatusOr<Artifact> mustNotCompile();

/// `getOrCompile`, with a frame between it and `compile` of code that is compiled
/// without exceptions.
absl::StatusOr<Artifact> getOrCompileThroughPlainCode(
    CompileCache &cache, const CacheKey &key,
    llvm::function_ref<absl::StatusOr<Artifact>()> compile);

/// Whether the counts of `cache`, which nobody uses at the moment, add up.
void expectStatsAddUp(CompileCache &cache);

/// What a test sets in a `FakeTier` and sees of it. May be used while the cache
/// is, and after it.
struct FakeTierState {
  std::mutex mutex;
  std::map<std::string, Artifact> artifacts; ///< By the key's digits.
  absl::Status getFault, putFault, clearFault, claimFault;
  bool hasClaims = false;
  bool isOld = false;        ///< What `find` says of each.
  absl::Duration claimLimit; ///< Of the last claim that was asked for.
  size_t gets = 0, puts = 0, replaces = 0, clears = 0, claims = 0,
         claimsHeld = 0;
  std::vector<std::thread::id> writers;
  size_t maxWrites = 1;        ///< Not changed while the tier is in use.
  uint64_t maxBytes = 1 << 30; ///< Of an artifact; neither.
  std::vector<size_t> batches; ///< How many writes came at once.

  /// Called without the lock, before anything is done.
  std::function<void()> onGet, onPut, onClear;
  /// Called when a claim is asked for; whether it is given.
  std::function<bool()> onClaim;

  bool has(const CacheKey &key);
  void add(const CacheKey &key, const Artifact &artifact);
  template <typename T>
  T read(T FakeTierState::*member) {
    std::lock_guard<std::mutex> lock(mutex);
    return this->*member;
  }
};

std::unique_ptr<detail::Tier>
makeFakeTier(std::shared_ptr<FakeTierState> state);

/// A cache with a fake tier as its directory, and one as its server; null: none.
std::unique_ptr<CompileCache>
makeCacheOn(std::shared_ptr<FakeTierState> disk,
            std::shared_ptr<FakeTierState> remote = nullptr,
            CompileCacheOptions options = {});

} // namespace ctxpool::test

#endif // CONTEXT_POOL_TEST_CACHE_CACHETESTSUPPORT_H

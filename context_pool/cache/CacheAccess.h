//===- CacheAccess.h - What the cache may and users may not -----*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_CACHEACCESS_H
#define CONTEXT_POOL_CACHE_CACHEACCESS_H

#include "context_pool/CompileCache.h"
#include "context_pool/cache/DiskTier.h"
#include "context_pool/cache/FlightCache.h"
#include "context_pool/cache/RemoteTier.h"
#include "context_pool/cache/Tier.h"

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <memory>
#include <optional>

namespace ctxpool::detail {

/// The tiers behind the memory of a cache, in the order in which they are
/// asked. Either may be null.
struct Tiers {
  std::unique_ptr<Tier> disk;
  std::unique_ptr<Tier> remote;
};

/// What the tiers of a cache with those options are told.
DiskTierOptions getDiskTierOptions(const CompileCacheOptions &options);
RemoteTierOptions getRemoteTierOptions(const CompileCacheOptions &options);

struct CacheAccess {
  /// A cache with those tiers; what `options` says of tiers is not looked at.
  ///
  /// Errors: those of `CompileCache::create`.
  static absl::StatusOr<std::unique_ptr<CompileCache>>
  createCache(CompileCacheOptions options, Tiers tiers);

  /// The meaning of an artifact that does not say it, from its bytes; nothing
  /// where they do not tell.
  using ReadMeaning =
      llvm::function_ref<std::optional<Fingerprint>(const Artifact &)>;

  /// What the caller of `getOrCompile` has to say besides, on its thread.
  struct Caller {
    /// Where a hit is verified, and `compile` gave a meaning and other bytes.
    /// Null: what was cached without a meaning has none.
    ReadMeaning readMeaning = nullptr;

    /// Called before a wait for another process, and before nothing else: for
    /// who holds what that process, or others, may need meanwhile. The wait ends
    /// after `processTimeout`, where other waits end after the timeout.
    /// Null: no wait is longer than the timeout.
    llvm::function_ref<void()> beforeProcess = nullptr;
    absl::Duration processTimeout = absl::ZeroDuration();
  };

  /// `cache.getOrCompile` of that caller.
  static absl::StatusOr<Artifact>
  getOrCompile(CompileCache &cache, const CacheKey &key,
               llvm::function_ref<absl::StatusOr<Artifact>()> compile,
               absl::Duration timeout, const Caller &caller);

  static FlightCache::Value toValue(const Artifact &artifact);
  static Artifact toArtifact(const FlightCache::Value &value);
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_CACHEACCESS_H

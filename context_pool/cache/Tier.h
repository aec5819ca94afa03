//===- Tier.h - A place that keeps artifacts --------------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_TIER_H
#define CONTEXT_POOL_CACHE_TIER_H

#include "context_pool/CompileCache.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "llvm/ADT/ArrayRef.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ctxpool::detail {

/// The right to compile a key, among processes, until it is destroyed.
class CompileClaim {
public:
  virtual ~CompileClaim() = default;
};

/// An artifact on its way to a tier.
struct TierWrite {
  CacheKey key;
  Artifact artifact;
  bool replace = false;
};

/// What a tier has under a key.
struct TierFound {
  std::optional<Artifact> artifact; ///< Nothing on a miss.

  /// Whether it is among what goes next to make room, unless it is put again.
  bool isOld = false;
};

/// What a tier holds under a key, for people.
struct TierEntry {
  std::optional<CacheKey> key; ///< Nothing where it is too damaged to tell.
  std::string kind;            ///< Empty where it is too damaged to tell.
  uint64_t bytes = 0;          ///< Of the artifact; 0 without a kind.
  absl::Duration compileCost;
  absl::Duration expiresIn = absl::InfiniteDuration();
};

/// What reading everything in a tier found.
struct TierVerification {
  uint64_t entries = 0; ///< That were read, damaged ones included.
  std::vector<TierEntry> damaged;
};

/// A place behind the memory of the process in which artifacts are kept: a
/// directory, a server.
///
/// An artifact comes back with its kind, bytes, meaning and compile cost.
/// What is damaged or cannot be trusted is a miss, and is never given out again.
///
/// A status that is not OK is a fault of the tier. The cache counts it and goes
/// on as after a miss; the tier recovers by itself once the cause is gone.
///
/// Thread safety: every member may be called from several threads at once.
class Tier {
public:
  virtual ~Tier() = default;

  /// Writes nothing: what is found and old is for the caller to put again, where
  /// that keeps nobody waiting.
  virtual absl::StatusOr<TierFound> find(const CacheKey &key) = 0;

  /// The artifact that `find` gives.
  absl::StatusOr<std::optional<Artifact>> get(const CacheKey &key) {
    absl::StatusOr<TierFound> found = find(key);
    if (!found.ok())
      return found.status();
    return std::move(found->artifact);
  }

  /// Publishes, whole or not at all. What the tier holds already under the key
  /// stays, unless `replace`. ResourceExhausted for an artifact that is too
  /// large.
  virtual absl::Status put(const CacheKey &key, const Artifact &artifact,
                           bool replace) = 0;

  /// As `put` of each, in order: a status each. The most that come at once are
  /// `getMaxWrites`.
  virtual std::vector<absl::Status> putAll(llvm::ArrayRef<TierWrite> writes) {
    std::vector<absl::Status> results;
    for (const TierWrite &write : writes)
      results.push_back(put(write.key, write.artifact, write.replace));
    return results;
  }

  /// The largest artifact, in bytes, that `put` would take. The cache does not
  /// offer larger ones.
  virtual uint64_t getMaxArtifactBytes() const {
    return std::numeric_limits<uint64_t>::max();
  }

  /// How many writes are better made together: more than one where each would be
  /// a journey of its own.
  virtual size_t getMaxWrites() const { return 1; }

  /// The fault with which `put` would fail at once, without an attempt; OK where
  /// there is none. Costs next to nothing, so that nobody else has to be woken to
  /// find that out.
  virtual absl::Status checkReady() const { return absl::OkStatus(); }

  /// Forgets everything that was published.
  virtual absl::Status clear() = 0;

  /// The right to compile `key`. Where another has it, waits until that one is
  /// done or dead, up to `limit` and to the tier's own limit; null where the wait
  /// ended with something published (look again) or at the limit. With a `limit`
  /// of zero or less it does not wait. Unimplemented, which is no fault: the tier
  /// has no such rights.
  virtual absl::StatusOr<std::unique_ptr<CompileClaim>>
  claim(const CacheKey & /*key*/, absl::Duration /*limit*/) {
    return absl::UnimplementedError("this tier has no claims");
  }

  /// What only the tier knows: entries and bytes, evictions, entries that were
  /// rejected. The cache counts hits, writes and errors. Opens nothing.
  virtual CacheTierStats getStats() const = 0;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_TIER_H

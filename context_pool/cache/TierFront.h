//===- TierFront.h - A tier as the cache uses it ----------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_TIERFRONT_H
#define CONTEXT_POOL_CACHE_TIERFRONT_H

#include "context_pool/cache/Tier.h"
#include "context_pool/support/Mutex.h"
#include "context_pool/support/Thread.h"

#include "absl/status/status.h"
#include "absl/time/time.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

namespace ctxpool::detail {

/// A tier whose faults are counted and are misses, and which is written to by a
/// thread of its own: a cache never slows a compile down.
///
/// Thread safety: every member may be called from several threads at once, but
/// for the destructor.
class TierFront {
public:
  /// Writes that may wait. More are dropped.
  static constexpr size_t maxQueuedWrites = 1024;
  static constexpr uint64_t maxQueuedBytes = 256ull << 20;

  /// The most bytes that are written at once, but for one that is larger: what
  /// follows does not wait long.
  static constexpr uint64_t maxBytesAtOnce = 1ull << 20;

  explicit TierFront(std::unique_ptr<Tier> tier);

  /// Finishes the writes that wait.
  ~TierFront();

  /// What is found and old is put again, as by `put`, where `mayPut`.
  std::optional<Artifact> get(const CacheKey &key, bool mayPut);

  struct Claimed {
    /// Released when it is destroyed. Null: another process was waited for in
    /// vain, or has published.
    std::unique_ptr<CompileClaim> claim;
    /// Whether to look again: somebody else may have published meanwhile.
    bool lookAgain = false;
  };
  /// Waits no longer than `limit`.
  Claimed claim(const CacheKey &key, absl::Duration limit);

  /// What is published before `clear` is not written after it: the number to
  /// give to `put` for what was begun now.
  uint64_t getEpoch() const { return epoch.load(); }

  /// Has `artifact` written, and `claim` released then. Does not wait.
  void put(const CacheKey &key, const Artifact &artifact, bool replace,
           std::unique_ptr<CompileClaim> claim, uint64_t epochOfBegin);

  /// Drops the writes that wait, waits for the one under way, and forgets what
  /// the tier holds. What was or is begun before `endClear` is not written.
  void beginClear();
  void endClear();

  /// Waits until what was put before the call is written. What is put meanwhile
  /// does not prolong it.
  ///
  /// Errors: the first fault of a write, or ResourceExhausted for one that was
  ///         dropped, since the last call.
  absl::Status flush();

  /// A hit that answered a request.
  void countHit() { hits.fetch_add(1); }

  CacheTierStats getStats() const;

private:
  struct QueuedWrite {
    uint64_t number; ///< One more than that of the write before.
    TierWrite write;
    std::unique_ptr<CompileClaim> claim;

    uint64_t getBytes() const { return write.artifact.getBytes().size(); }
  };

  void noteFault(const absl::Status &status);
  bool isSettledLocked(uint64_t number) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void run();

  const std::unique_ptr<Tier> tier;

  std::atomic<uint64_t> hits{0};
  std::atomic<uint64_t> epoch{0};

  mutable Mutex mutex;
  CondVar workCame, workWent;
  std::deque<QueuedWrite> queue ABSL_GUARDED_BY(mutex);
  uint64_t queuedBytes ABSL_GUARDED_BY(mutex) = 0;
  uint64_t lastNumber ABSL_GUARDED_BY(mutex) = 0; ///< Of all that were queued.
  /// The first of those that are being written; nothing: none is.
  std::optional<uint64_t> writingFrom ABSL_GUARDED_BY(mutex);
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  unsigned clears ABSL_GUARDED_BY(mutex) = 0;
  uint64_t writes ABSL_GUARDED_BY(mutex) = 0;
  uint64_t errors ABSL_GUARDED_BY(mutex) = 0;
  uint64_t dropped ABSL_GUARDED_BY(mutex) = 0;
  absl::Status lastError ABSL_GUARDED_BY(mutex);
  absl::Status unflushed ABSL_GUARDED_BY(mutex);

  /// Started by the first write.
  std::optional<Thread> writer ABSL_GUARDED_BY(mutex);
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_TIERFRONT_H

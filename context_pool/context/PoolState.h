//===- PoolState.h - What a pool, its threads and leases share  -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CONTEXT_POOLSTATE_H
#define CONTEXT_POOL_CONTEXT_POOLSTATE_H

#include "context_pool/ContextPool.h"
#include "context_pool/context/PooledContext.h"
#include "context_pool/support/Fork.h"
#include "context_pool/support/Mutex.h"
#include "context_pool/support/Thread.h"

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace ctxpool::detail {

/// The place where one thread keeps a context for its next lease.
///
/// Any thread may empty a slot, by exchange; only its own fills it. So the
/// owner needs no lock, and `trim`, callers that wait at `maxLive` and the
/// pool's destructor still get at every idle context.
struct alignas(64) ThreadSlot {
  std::atomic<PooledContext *> context{nullptr};
  /// Leases that the slot served. Written by its own thread only.
  std::atomic<uint64_t> hits{0};

  PooledContext *take() {
    if (!context.load())
      return nullptr;
    return context.exchange(nullptr);
  }

  /// Returns false where the slot is taken.
  bool put(PooledContext &pooled) {
    PooledContext *empty = nullptr;
    return context.compare_exchange_strong(empty, &pooled);
  }
};

/// What lives as long as a pool, one of its leases, or a thread that used it.
///
/// Lock order: `mutex` is the only lock, and no code of the user's and no code
/// of MLIR's runs under it: contexts are made and destroyed outside.
class PoolState : public std::enable_shared_from_this<PoolState> {
public:
  PoolState(std::shared_ptr<const ContextTemplate> contextTemplate,
            ContextPoolOptions options)
      : contextTemplate(std::move(contextTemplate)), options(options) {}

  const ContextTemplate &getTemplate() const { return *contextTemplate; }
  const ContextPoolOptions &getOptions() const { return options; }
  llvm::ThreadPoolInterface *getTemplateThreads() const;
  absl::StatusOr<std::unique_ptr<mlir::MLIRContext>>
  cloneTemplate(const std::function<void(mlir::MLIRContext &)> &prepare) const;

  absl::Status start();

  /// Ends the pool: what is idle is destroyed, what is on loan when it returns.
  void close();

  /// Whether this is a forked child and the pool its parent's. Then the lock is
  /// not to be taken, for it may be held by a thread that is no more.
  bool isInherited() const { return mark.isInherited(); }
  absl::Status inheritedError() const;
  /// Ends an inherited pool, which is to leave everything as it is.
  void leak() { leaked = shared_from_this(); }

  /// Whether a thread that put a context into its slot has to take it out again
  /// and give it to somebody: to a waiting caller, or to its end.
  ///
  /// A caller that waits raises this before it looks into the slots, and a
  /// thread looks at it after it filled its slot, both in one total order: one
  /// of the two sees the other.
  bool wantsContexts() const { return attention.load() != 0; }

  bool isClosed() const { return attention.load() & closedBit; }

  /// The thread of `slot` exits.
  void removeSlot(ThreadSlot &slot);

  /// A context for a thread whose own slot has none. Where the thread has no
  /// slot yet, `newSlot` is set to one, or to null where no more are to be had.
  absl::StatusOr<PooledContext *> acquire(absl::Duration timeout,
                                          ThreadSlot **newSlot);
  /// Takes back a context that is fit to be lent again.
  void giveBack(PooledContext &pooled);
  /// Takes back a context that is not.
  void retire(PooledContext &pooled, Retirement reason);
  /// Forgets a context that is neither to be used nor destroyed.
  void abandon();

  absl::Status prewarm(size_t contexts);
  void trim(size_t keepIdle);
  ContextPoolStats getStats() const;

private:
  /// A caller of acquire that waits at `maxLive`. It is handed a context, or a
  /// place to make one of its own.
  struct Waiter {
    PooledContext *context = nullptr;
    bool hasPlace = false;
    CondVar served;
    bool isServed() const { return context || hasPlace; }
  };

  /// Destroys contexts that are no longer live, and gives up their places.
  void destroy(llvm::ArrayRef<PooledContext *> contexts);

  /// Makes a context, and lets go of the lock meanwhile. Its place has to be taken
  /// before.
  absl::StatusOr<std::unique_ptr<PooledContext>> makeContext(MutexLock &lock)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  /// Counts a context that was just made, in `where` as well.
  void countCloneLocked(uint64_t &where) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  bool takePlaceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void givePlaceUpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  Waiter *popWaiterLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void passPlaceToWaiterLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void wantRefillLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  /// Hands a live context to the first waiter, or keeps it. Returns false where
  /// there is no room for it.
  bool storeLocked(PooledContext &pooled) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  /// Has a live context destroyed. Returns it where that is for the caller to
  /// do.
  [[nodiscard]] PooledContext *disposeLocked(PooledContext &pooled)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  PooledContext *stealFromSlotsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  /// Whether the shared list takes one more, which is live or, `added`, not
  /// yet.
  bool sharedHasRoomLocked(size_t added) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  size_t countIdleLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  bool wantsCloneLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  void refill();

  /// Null once the pool is closed.
  std::shared_ptr<const ContextTemplate> contextTemplate;
  const ContextPoolOptions options;
  const ForkMark mark;
  /// Itself, where it is to live for ever.
  std::shared_ptr<PoolState> leaked;

  /// The number of waiters, and `closedBit` after `close`. On a cache line that
  /// is written to only then.
  static constexpr uint32_t closedBit = 1u << 31;
  alignas(64) std::atomic<uint32_t> attention{0};

  alignas(64) mutable Mutex mutex;
  bool closed ABSL_GUARDED_BY(mutex) = false;
  std::vector<std::unique_ptr<ThreadSlot>> slots ABSL_GUARDED_BY(mutex);
  std::vector<PooledContext *> shared ABSL_GUARDED_BY(mutex);
  /// Contexts that the refill thread is to destroy.
  std::vector<PooledContext *> retired ABSL_GUARDED_BY(mutex);
  std::deque<Waiter *> waiters ABSL_GUARDED_BY(mutex);
  /// Contexts that exist, are being made or are yet to be destroyed: what
  /// `maxLive` bounds.
  size_t places ABSL_GUARDED_BY(mutex) = 0;
  /// A lease came from elsewhere than a slot since the shared list was filled.
  bool refillWanted ABSL_GUARDED_BY(mutex) = false;
  /// The least that a `trim` was to keep since the refill thread began to make
  /// its latest context.
  size_t trimmedTo ABSL_GUARDED_BY(mutex) = 0;
  /// Of the moment: `live`. Of slots that are gone: `threadLocalHits`. Else as
  /// documented; `idle`, `leased` and `leases` are computed.
  ContextPoolStats stats ABSL_GUARDED_BY(mutex);

  CondVar refillWork;
  /// A context that was in the making exists or failed, or a place was given up:
  /// what `prewarm` waits for at `maxLive`.
  CondVar placesSettled;
  std::optional<Thread> refillThread;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CONTEXT_POOLSTATE_H

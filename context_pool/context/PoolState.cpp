//===- PoolState.cpp - What a pool, its threads and leases share ----------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/context/PoolState.h"

#include "context_pool/context/TemplateImpl.h"

#include "absl/strings/str_cat.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;

//===----------------------------------------------------------------------===//
// Beginning and end
//===----------------------------------------------------------------------===//

llvm::ThreadPoolInterface *PoolState::getTemplateThreads() const {
  return contextTemplate->impl->threadPool;
}

absl::StatusOr<std::unique_ptr<mlir::MLIRContext>> PoolState::cloneTemplate(
    const std::function<void(mlir::MLIRContext &)> &prepare) const {
  return contextTemplate->clone(prepare);
}

absl::Status PoolState::start() {
  if (!options.backgroundRefill)
    return absl::OkStatus();
  {
    MutexLock lock(mutex);
    refillWanted = true;
  }
  absl::StatusOr<Thread> thread =
      Thread::start(Thread::compilerStackBytes, [this] { refill(); });
  if (!thread.ok())
    return absl::Status(thread.status().code(),
                        absl::StrCat("context pool: refill thread: ",
                                     thread.status().message()));
  refillThread = *std::move(thread);
  return absl::OkStatus();
}

absl::Status PoolState::inheritedError() const {
  return absl::FailedPreconditionError(
      absl::StrCat("context pool '", contextTemplate->getName().str(),
                   "': made before a fork, expected one of this process"));
}

void PoolState::close() {
  {
    MutexLock lock(mutex);
    closed = true;
    attention.fetch_or(closedBit);
    refillWork.notifyOne();
  }
  if (refillThread)
    refillThread->join();

  std::vector<PooledContext *> left;
  {
    MutexLock lock(mutex);
    left.swap(shared);
    while (PooledContext *pooled = stealFromSlotsLocked())
      left.push_back(pooled);
    stats.live -= left.size();
    left.insert(left.end(), retired.begin(), retired.end());
    retired.clear();
  }
  destroy(left);
  // Threads that used the pool keep this object; nothing of the user's is to
  // stay with it.
  contextTemplate = nullptr;
}

//===----------------------------------------------------------------------===//
// Making and destroying contexts
//===----------------------------------------------------------------------===//

absl::StatusOr<std::unique_ptr<PooledContext>>
PoolState::makeContext(MutexLock &lock) {
  lock.unlock();
  absl::StatusOr<std::unique_ptr<PooledContext>> made =
      PooledContext::create(shared_from_this());
  lock.lock();
  placesSettled.notifyAll();
  return made;
}

void PoolState::countCloneLocked(uint64_t &where) {
  ++stats.live;
  ++stats.clones;
  ++where;
}

void PoolState::destroy(llvm::ArrayRef<PooledContext *> contexts) {
  // The last context may hold the last reference to this.
  std::shared_ptr<PoolState> self = shared_from_this();
  for (PooledContext *pooled : contexts) {
    delete pooled;
    MutexLock lock(mutex);
    givePlaceUpLocked();
  }
}

PooledContext *PoolState::disposeLocked(PooledContext &pooled) {
  --stats.live;
  if (options.backgroundRefill && !closed && !options.destroyOnReturn) {
    retired.push_back(&pooled);
    refillWork.notifyOne();
    return nullptr;
  }
  ++stats.foregroundDestroyed;
  return &pooled;
}

bool PoolState::wantsCloneLocked() const {
  if (options.maxLive != 0 && places >= options.maxLive)
    return false;
  return !waiters.empty() || (refillWanted && shared.size() < options.minIdle &&
                              sharedHasRoomLocked(/*added=*/1));
}

void PoolState::wantRefillLocked() {
  if (shared.size() >= options.minIdle)
    return;
  refillWanted = true;
  refillWork.notifyOne();
}

void PoolState::refill() {
  MutexLock lock(mutex);
  while (!closed) {
    // Making comes first: somebody may be about to need one.
    if (wantsCloneLocked()) {
      ++places;
      trimmedTo = std::numeric_limits<size_t>::max();
      absl::StatusOr<std::unique_ptr<PooledContext>> made = makeContext(lock);
      if (made.ok()) {
        countCloneLocked(stats.backgroundClones);
        PooledContext *pooled = made->release();
        // Nobody needs it where a trim came meanwhile, and no lease after that.
        bool isSurplus =
            waiters.empty() && !refillWanted && countIdleLocked() >= trimmedTo;
        if (isSurplus || !storeLocked(*pooled)) {
          --stats.live;
          retired.push_back(pooled);
        }
        continue;
      }
      // Nobody is here to take the error: whoever needs the next context makes
      // it and meets the error there.
      refillWanted = false;
      if (waiters.empty())
        --places;
      else
        passPlaceToWaiterLocked();
      continue;
    }
    if (!retired.empty()) {
      PooledContext *pooled = retired.back();
      retired.pop_back();
      lock.unlock();
      destroy(pooled);
      lock.lock();
      continue;
    }
    refillWork.wait(mutex);
  }
}

//===----------------------------------------------------------------------===//
// Places and waiters
//===----------------------------------------------------------------------===//

bool PoolState::takePlaceLocked() {
  if (options.maxLive != 0 && places >= options.maxLive)
    return false;
  ++places;
  return true;
}

void PoolState::givePlaceUpLocked() {
  placesSettled.notifyAll();
  if (waiters.empty() || (options.backgroundRefill && !closed)) {
    --places;
    // Makes the context for the waiter, if there is one.
    refillWork.notifyOne();
    return;
  }
  passPlaceToWaiterLocked();
}

void PoolState::passPlaceToWaiterLocked() {
  Waiter *waiter = popWaiterLocked();
  waiter->hasPlace = true;
  waiter->served.notifyOne();
}

PoolState::Waiter *PoolState::popWaiterLocked() {
  Waiter *waiter = waiters.front();
  waiters.pop_front();
  attention.fetch_sub(1);
  return waiter;
}

bool PoolState::storeLocked(PooledContext &pooled) {
  if (!waiters.empty()) {
    Waiter *waiter = popWaiterLocked();
    waiter->context = &pooled;
    waiter->served.notifyOne();
    return true;
  }
  if (!sharedHasRoomLocked(/*added=*/0))
    return false;
  shared.push_back(&pooled);
  return true;
}

bool PoolState::sharedHasRoomLocked(size_t added) const {
  // Each slot may hold a context, so it counts as if it did, unless there are
  // not as many contexts.
  return !closed && (shared.size() + slots.size() < options.maxIdle ||
                     stats.live + added <= options.maxIdle);
}

PooledContext *PoolState::stealFromSlotsLocked() {
  for (std::unique_ptr<ThreadSlot> &slot : slots)
    if (PooledContext *pooled = slot->take())
      return pooled;
  return nullptr;
}

size_t PoolState::countIdleLocked() const {
  return shared.size() +
         llvm::count_if(slots, [](const std::unique_ptr<ThreadSlot> &slot) {
           return slot->context.load() != nullptr;
         });
}

//===----------------------------------------------------------------------===//
// Leases
//===----------------------------------------------------------------------===//

absl::StatusOr<PooledContext *> PoolState::acquire(absl::Duration timeout,
                                                   ThreadSlot **newSlot) {
  MutexLock lock(mutex);
  ++stats.lockAcquisitions;
  // `minIdle` contexts have room in the shared list however many threads come.
  if (newSlot && slots.size() + options.minIdle < options.maxIdle &&
      !options.destroyOnReturn) {
    slots.push_back(std::make_unique<ThreadSlot>());
    *newSlot = slots.back().get();
  }

  // Those who wait come first.
  Waiter waiter;
  if (waiters.empty()) {
    if (!shared.empty()) {
      waiter.context = shared.back();
      shared.pop_back();
      wantRefillLocked();
    } else if (takePlaceLocked()) {
      waiter.hasPlace = true;
      wantRefillLocked();
    }
  }

  if (!waiter.isServed()) {
    waiters.push_back(&waiter);
    attention.fetch_add(1);
    // A thread that filled its slot just now may not have seen that somebody
    // waits.
    while (!waiters.empty()) {
      PooledContext *pooled = stealFromSlotsLocked();
      if (!pooled)
        break;
      storeLocked(*pooled);
    }
    refillWork.notifyOne();
  }

  if (!waiter.isServed()) {
    // Time that does not fit into the clock never ends.
    constexpr absl::Duration endless = absl::Hours(24 * 365 * 100);
    CondVar::Clock::time_point deadline = CondVar::Clock::time_point::max();
    if (timeout < endless)
      deadline =
          CondVar::Clock::now() +
          absl::ToChronoNanoseconds(std::max(timeout, absl::ZeroDuration()));
    if (timeout > absl::ZeroDuration())
      ++stats.waits;
    bool inTime = timeout > absl::ZeroDuration();
    while (!waiter.isServed() && inTime) {
      if (timeout < endless)
        inTime = waiter.served.waitUntil(mutex, deadline);
      else
        waiter.served.wait(mutex);
    }
    if (!waiter.isServed()) {
      waiters.erase(llvm::find(waiters, &waiter));
      attention.fetch_sub(1);
      return absl::DeadlineExceededError(absl::StrCat(
          "context pool '", contextTemplate->getName().str(),
          "': no context came free within ", absl::FormatDuration(timeout),
          ": of maxLive = ", options.maxLive, ", ",
          stats.live - countIdleLocked(), " are on loan and ",
          places - stats.live, " are being made or destroyed"));
    }
  }

  if (waiter.context) {
    ++stats.sharedHits;
    return waiter.context;
  }
  absl::StatusOr<std::unique_ptr<PooledContext>> made = makeContext(lock);
  if (!made.ok()) {
    givePlaceUpLocked();
    return made.status();
  }
  countCloneLocked(stats.foregroundClones);
  return made->release();
}

void PoolState::giveBack(PooledContext &pooled) {
  PooledContext *toDestroy = nullptr;
  {
    MutexLock lock(mutex);
    ++stats.lockAcquisitions;
    if (options.destroyOnReturn || !storeLocked(pooled))
      toDestroy = disposeLocked(pooled);
  }
  if (toDestroy)
    destroy(toDestroy);
}

void PoolState::retire(PooledContext &pooled, Retirement reason) {
  PooledContext *toDestroy = nullptr;
  {
    MutexLock lock(mutex);
    ++stats.lockAcquisitions;
    switch (reason) {
    case Retirement::Leases:
      ++stats.retiredByLeases;
      break;
    case Retirement::Bytes:
      ++stats.retiredByBytes;
      break;
    case Retirement::Drift:
      ++stats.retiredByDrift;
      break;
    case Retirement::Discarded:
      ++stats.discarded;
      break;
    }
    toDestroy = disposeLocked(pooled);
  }
  if (toDestroy)
    destroy(toDestroy);
}

void PoolState::abandon() {
  MutexLock lock(mutex);
  ++stats.lockAcquisitions;
  ++stats.abandoned;
  --stats.live;
  givePlaceUpLocked();
}

void PoolState::removeSlot(ThreadSlot &slot) {
  PooledContext *toDestroy = nullptr;
  {
    MutexLock lock(mutex);
    PooledContext *pooled = slot.take();
    stats.threadLocalHits += slot.hits.load(std::memory_order_relaxed);
    slots.erase(llvm::find_if(
        slots, [&](const auto &other) { return other.get() == &slot; }));
    if (pooled && !storeLocked(*pooled))
      toDestroy = disposeLocked(*pooled);
  }
  if (toDestroy)
    destroy(toDestroy);
}

//===----------------------------------------------------------------------===//
// The rest of the pool's interface
//===----------------------------------------------------------------------===//

absl::Status PoolState::prewarm(size_t contexts) {
  auto describe = [&] {
    return absl::StrCat("context pool '", contextTemplate->getName().str(),
                        "': prewarm: ", contexts, " contexts");
  };
  if (contexts > options.maxIdle)
    return absl::InvalidArgumentError(absl::StrCat(
        describe(), " asked for, at most maxIdle = ", options.maxIdle,
        " are kept"));

  MutexLock lock(mutex);
  while (countIdleLocked() < contexts) {
    if (!sharedHasRoomLocked(/*added=*/1))
      return absl::ResourceExhaustedError(absl::StrCat(
          describe(), ": maxIdle = ", options.maxIdle, " has to hold those of ",
          slots.size(), " threads, which are on loan"));
    if (!takePlaceLocked()) {
      if (places > stats.live) {
        // What becomes of these places, others are about to tell.
        placesSettled.wait(mutex);
        continue;
      }
      return absl::ResourceExhaustedError(absl::StrCat(
          describe(), ": maxLive = ", options.maxLive, " contexts exist, ",
          countIdleLocked(), " of them idle"));
    }
    absl::StatusOr<std::unique_ptr<PooledContext>> made = makeContext(lock);
    if (!made.ok()) {
      givePlaceUpLocked();
      return made.status();
    }
    countCloneLocked(stats.backgroundClones);
    PooledContext *pooled = made->release();
    if (storeLocked(*pooled))
      continue;
    // Others filled the pool meanwhile.
    PooledContext *toDestroy = disposeLocked(*pooled);
    lock.unlock();
    if (toDestroy)
      destroy(toDestroy);
    lock.lock();
  }
  return absl::OkStatus();
}

void PoolState::trim(size_t keepIdle) {
  std::vector<PooledContext *> surplus;
  {
    MutexLock lock(mutex);
    refillWanted = false;
    trimmedTo = std::min(trimmedTo, keepIdle);
    for (size_t idle = countIdleLocked(); idle > keepIdle; --idle) {
      PooledContext *pooled = nullptr;
      if (shared.empty()) {
        pooled = stealFromSlotsLocked();
      } else {
        pooled = shared.back();
        shared.pop_back();
      }
      if (!pooled)
        break; // Lent meanwhile.
      --stats.live;
      surplus.push_back(pooled);
    }
  }
  destroy(surplus);
}

ContextPoolStats PoolState::getStats() const {
  MutexLock lock(mutex);
  ContextPoolStats result = stats;
  for (const std::unique_ptr<ThreadSlot> &slot : slots)
    result.threadLocalHits += slot->hits.load(std::memory_order_relaxed);
  result.leases =
      result.threadLocalHits + result.sharedHits + result.foregroundClones;
  // A context that moves from slot to slot meanwhile may be seen twice.
  result.idle = std::min(countIdleLocked(), result.live);
  result.leased = result.live - result.idle;
  return result;
}

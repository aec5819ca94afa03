//===- SpreadMutex.h - Read by many threads, seldom written -----*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_SPREADMUTEX_H
#define CONTEXT_POOL_CACHE_SPREADMUTEX_H

#include "context_pool/support/Mutex.h"

#include "absl/base/thread_annotations.h"

#include <array>
#include <atomic>
#include <cstddef>

namespace ctxpool::detail {

/// A lock in parts, of which a reader takes one and a writer all. Threads have
/// parts in turn, so that readers seldom write to memory that another reader
/// writes to: a `std::shared_mutex` counts all of them in one place.
///
/// A part has a `Data` for whoever holds it, such as counts.
template <typename Data>
class ABSL_LOCKABLE SpreadMutex {
public:
  static constexpr size_t partCount = 16;

  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (Part &part : parts)
      part.mutex.lock();
  }
  void unlock() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (Part &part : parts)
      part.mutex.unlock();
  }

  /// Calls `visit` with the data of each part, one after the other.
  template <typename Visit>
  void visitParts(Visit &&visit) {
    for (Part &part : parts) {
      MutexLock lock(part.mutex);
      visit(part.data);
    }
  }

private:
  template <typename>
  friend class SpreadReadLock;

  /// On cache lines of its own.
  struct alignas(128) Part {
    Mutex mutex;
    Data data;
  };

  /// That of the calling thread.
  static size_t getPart() {
    static std::atomic<size_t> threads{0};
    static thread_local const size_t number =
        threads.fetch_add(1, std::memory_order_relaxed);
    return number % partCount;
  }

  std::array<Part, partCount> parts;
};

template <typename Data>
class ABSL_SCOPED_LOCKABLE SpreadReadLock {
public:
  explicit SpreadReadLock(SpreadMutex<Data> &mutex)
      ABSL_SHARED_LOCK_FUNCTION(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS
      : number(mutex.getPart()),
        part(mutex.parts[number]) {
    part.mutex.lock();
  }
  ~SpreadReadLock() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    part.mutex.unlock();
  }
  SpreadReadLock(const SpreadReadLock &) = delete;
  SpreadReadLock &operator=(const SpreadReadLock &) = delete;

  Data &getData() { return part.data; }
  /// Which of the parts it is: nobody else has the same at that moment.
  size_t getPart() const { return number; }

private:
  const size_t number;
  typename SpreadMutex<Data>::Part &part;
};

template <typename Data>
class ABSL_SCOPED_LOCKABLE SpreadWriteLock {
public:
  explicit SpreadWriteLock(SpreadMutex<Data> &mutex)
      ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex(mutex) {
    mutex.lock();
  }
  ~SpreadWriteLock() ABSL_UNLOCK_FUNCTION() { mutex.unlock(); }
  SpreadWriteLock(const SpreadWriteLock &) = delete;
  SpreadWriteLock &operator=(const SpreadWriteLock &) = delete;

private:
  SpreadMutex<Data> &mutex;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_SPREADMUTEX_H

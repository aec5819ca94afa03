//===- Mutex.h - Annotated mutex and condition variable ---------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The standard mutex with clang's thread safety annotations.
///
/// Not `absl::Mutex`: where Abseil is a shared library that was built without
/// ThreadSanitizer, as distributions ship it, ThreadSanitizer does not see its
/// locks and reports a race on everything that they guard.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_SUPPORT_MUTEX_H
#define CONTEXT_POOL_SUPPORT_MUTEX_H

#include "absl/base/thread_annotations.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ctxpool {

class ABSL_LOCKABLE Mutex {
public:
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { mutex.unlock(); }

private:
  friend class CondVar;
  std::mutex mutex;
};

/// Holds a mutex for a scope, and can let go of it for a part of the scope.
class ABSL_SCOPED_LOCKABLE MutexLock {
public:
  explicit MutexLock(Mutex &mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex(mutex) {
    mutex.lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() {
    if (held)
      mutex.unlock();
  }
  MutexLock(const MutexLock &) = delete;
  MutexLock &operator=(const MutexLock &) = delete;

  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    mutex.lock();
    held = true;
  }
  void unlock() ABSL_UNLOCK_FUNCTION() {
    held = false;
    mutex.unlock();
  }

private:
  Mutex &mutex;
  bool held = true;
};

class CondVar {
public:
  using Clock = std::chrono::steady_clock;

  void notifyOne() { condition.notify_one(); }
  void notifyAll() { condition.notify_all(); }

  void wait(Mutex &mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Adopted adopted(mutex);
    condition.wait(adopted.lock);
  }

  /// Returns false when `deadline` has passed.
  bool waitUntil(Mutex &mutex, Clock::time_point deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Adopted adopted(mutex);
    return condition.wait_until(adopted.lock, deadline) ==
           std::cv_status::no_timeout;
  }

private:
  /// The lock that the caller holds, in the form that the standard wants, and
  /// left to the caller also where the thread is cancelled as it waits.
  struct Adopted {
    explicit Adopted(Mutex &mutex) : lock(mutex.mutex, std::adopt_lock) {}
    ~Adopted() { (void)lock.release(); }
    Adopted(const Adopted &) = delete;
    Adopted &operator=(const Adopted &) = delete;

    std::unique_lock<std::mutex> lock;
  };

  std::condition_variable condition;
};

} // namespace ctxpool

#endif // CONTEXT_POOL_SUPPORT_MUTEX_H

//===- Fork.h - What was made before a fork ---------------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Tells an object in a forked child that it was made in the parent, and keeps
/// what is global usable there.
///
/// A child has a copy of the parent's memory and one thread. A mutex that
/// another thread of the parent held stays locked for ever, a thread that would
/// be joined does not exist, and what another thread was changing is half
/// changed. So an object that was inherited neither locks, joins nor destroys
/// anything: it leaks, and the child makes its own.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_SUPPORT_FORK_H
#define CONTEXT_POOL_SUPPORT_FORK_H

#include "context_pool/support/Mutex.h"

#include <atomic>
#include <cstdint>

#include <pthread.h>

namespace ctxpool::detail {

/// The forks between the process that loaded the library and this one.
///
/// Process-wide, as `fork` is: a handler of `pthread_atfork`, registered as the
/// library is loaded, counts in the child.
extern std::atomic<uint64_t> forkGeneration;

inline uint64_t getForkGeneration() {
  return forkGeneration.load(std::memory_order_relaxed);
}

/// A member of what has to know whether it was inherited. Costs two loads to
/// ask. Copies are of the same process as the original.
///
/// `vfork`, `posix_spawn` and a raw `clone` run no handlers and go unnoticed:
/// their children may only `exec` or `_exit`.
class ForkMark {
public:
  /// Whether the mark was made before a fork to which this process owes its
  /// life.
  bool isInherited() const { return generation != getForkGeneration(); }

private:
  uint64_t generation = getForkGeneration();
};

/// Has a mutex that is global held across every fork: a child finds it free, and
/// what it guards whole. To be called once, as the library is loaded; nobody may
/// fork, or wait for another such mutex, while holding it.
template <Mutex &mutex>
int holdAcrossForks() noexcept ABSL_NO_THREAD_SAFETY_ANALYSIS {
  auto unlock = []() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.unlock(); };
  return pthread_atfork([]() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.lock(); },
                        unlock, unlock);
}

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_SUPPORT_FORK_H

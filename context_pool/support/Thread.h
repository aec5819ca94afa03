//===- Thread.h - A thread with a stated stack size -------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_SUPPORT_THREAD_H
#define CONTEXT_POOL_SUPPORT_THREAD_H

#include "context_pool/support/Fork.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <pthread.h>

namespace ctxpool {

/// A joinable thread whose stack has a stated size, and whose start can fail.
///
/// `std::thread` offers neither: it takes the platform's default stack, on
/// which MLIR's recursive parser and verifier overflow early, and throws where
/// no thread can be had. In a forked child, a thread of the parent's counts as
/// ended.
class Thread {
public:
  /// A stack that MLIR's recursive parts can work on: 1,000 nested regions take
  /// them 1 MiB.
  static constexpr size_t compilerStackBytes = size_t(8) << 20;

  /// Runs `body` on a new thread. Below its stack lies a guard of 64 KiB, so
  /// that an overflow by one large frame is met there, too.
  ///
  /// Errors: ResourceExhausted - the system has no thread or stack to give.
  static absl::StatusOr<Thread> start(size_t stackBytes,
                                      std::function<void()> body);

  Thread(Thread &&other) noexcept;
  Thread &operator=(Thread &&other) noexcept;

  /// Joins.
  ~Thread() { join(); }

  /// Waits for the thread to end. Does nothing when it was joined before.
  void join();

  /// Leaves the thread to itself. What it uses has to last as long as it runs.
  void detach();

private:
  explicit Thread(pthread_t handle) : handle(handle) {}
  std::optional<pthread_t> handle;
  detail::ForkMark mark;
};

namespace detail {

/// Runs `body` as if on the caller's thread, with that much stack for it: there,
/// where that is small, for which the thread should have 256 KiB left, or where
/// it has more than enough left; and else on a thread of its own, which is
/// waited for. An exception of `body` comes to the caller from there as well,
/// and where `body` ends its thread, the caller's ends.
///
/// Errors: ResourceExhausted - the system has no thread or stack to give; as of
///                             the guide. `body` did not run.
absl::Status runWithStack(uint64_t bytes, const std::function<void()> &body);

/// Has its argument run on another thread, to its end. Exceptions come back.
using RunElsewhere =
    llvm::function_ref<absl::Status(llvm::function_ref<void()>)>;

/// Runs `body` by `elsewhere`, and there with what the calling thread has, such
/// as its recovery from crashes.
using ThreadGuide = absl::Status (*)(RunElsewhere elsewhere,
                                     llvm::function_ref<void()> body);

/// Sets who takes what `runWithStack` runs for the calling thread to another
/// one; null: nobody. Returns who did before. A thread begins without one.
ThreadGuide exchangeThreadGuide(ThreadGuide guide);

} // namespace detail

} // namespace ctxpool

#endif // CONTEXT_POOL_SUPPORT_THREAD_H

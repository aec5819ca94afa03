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

/// Runs `body` with that much stack for it, and waits for its end: on the
/// caller's thread, which should have 256 KiB, or, where that is not enough, on
/// one of its own.
///
/// Errors: ResourceExhausted - the system has no thread or stack to give.
absl::Status runWithStack(uint64_t bytes, const std::function<void()> &body);

} // namespace detail

} // namespace ctxpool

#endif // CONTEXT_POOL_SUPPORT_THREAD_H

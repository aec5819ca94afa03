//===- Deadline.h - An end in time -----------------------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_COMPILE_DEADLINE_H
#define CONTEXT_POOL_COMPILE_DEADLINE_H

#include "absl/time/time.h"

#include <algorithm>
#include <chrono>

namespace ctxpool::detail {

/// A moment some time from now, by a clock that nobody sets.
class Deadline {
public:
  explicit Deadline(absl::Duration timeout)
      : end(timeout == absl::InfiniteDuration() ? absl::InfiniteDuration()
                                                : now() + timeout) {}

  bool isOver() const { return getRemaining() == absl::ZeroDuration(); }

  /// At least 0.
  absl::Duration getRemaining() const {
    if (end == absl::InfiniteDuration())
      return end;
    return std::max(end - now(), absl::ZeroDuration());
  }

private:
  static absl::Duration now() {
    return absl::FromChrono(
        std::chrono::steady_clock::now().time_since_epoch());
  }

  absl::Duration end;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_COMPILE_DEADLINE_H

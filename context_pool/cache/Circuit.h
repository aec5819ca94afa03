//===- Circuit.h - When to leave a failing server alone ---------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_CIRCUIT_H
#define CONTEXT_POOL_CACHE_CIRCUIT_H

#include "context_pool/support/Mutex.h"

#include <chrono>
#include <cstdint>
#include <functional>

namespace ctxpool::detail {

/// What a circuit goes by.
struct CircuitOptions {
  using Clock = std::chrono::steady_clock;

  /// Failures in a row that begin a rest ...
  unsigned failures = 3;
  /// ... as does a shorter row that has cost this long: a refusal is cheap, a
  /// server that does not answer is not.
  Clock::duration patience = std::chrono::milliseconds(20);

  /// The first rest; each that follows without a success in between is twice as
  /// long, up to the longest.
  Clock::duration firstRest = std::chrono::seconds(1);
  Clock::duration longestRest = std::chrono::seconds(60);

  /// The time; a test has its own.
  std::function<Clock::time_point()> now = [] { return Clock::now(); };
};

/// Decides whether a server, or the disk, that fails is asked at all.
///
///   state    | ask          | failed            | succeeded | probed
///   ---------+--------------+-------------------+-----------+-------------------
///   closed   | Go           | closed or resting | closed    | -
///   resting  | Rest         | resting           | closed    | -
///   overdue  | Probe, once: | resting           | closed    | -
///            | then probing |                   |           |
///   probing  | Rest         | probing           | closed    | closed on probation,
///            |              |                   |           | or resting, longer
///
/// On probation, after a probe, one failure is enough for the next rest.
///
/// Thread safety: every member may be called from several threads at once.
class Circuit {
public:
  using Clock = CircuitOptions::Clock;

  explicit Circuit(CircuitOptions options);

  enum class Answer {
    Go,
    Rest, ///< Do not ask the server.
    Probe ///< Do not either; but have somebody find out, and call `probed`.
  };
  Answer ask();

  /// A call gave an answer, or failed after having cost that long.
  void succeeded();
  void failed(Clock::duration cost);

  void probed(bool success);

  struct State {
    bool resting = false;
    unsigned failures = 0;         ///< In a row.
    uint64_t rests = 0;            ///< Begun so far.
    Clock::duration restLeft = {}; ///< Zero where it is over, or there is none.
  };
  State getState() const;

private:
  void restLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const CircuitOptions options;

  mutable Mutex mutex;
  bool resting ABSL_GUARDED_BY(mutex) = false;
  bool probing ABSL_GUARDED_BY(mutex) = false;
  bool probation ABSL_GUARDED_BY(mutex) = false;
  unsigned failures ABSL_GUARDED_BY(mutex) = 0;
  Clock::duration cost ABSL_GUARDED_BY(mutex) = {}; ///< Of those.
  Clock::duration nextRest ABSL_GUARDED_BY(mutex);
  Clock::time_point restEnd ABSL_GUARDED_BY(mutex);
  uint64_t rests ABSL_GUARDED_BY(mutex) = 0;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_CIRCUIT_H

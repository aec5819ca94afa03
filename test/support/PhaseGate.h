//===- PhaseGate.h - Deterministic interleavings for tests ---- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Numbered phases that threads of a test wait for, in place of sleeps.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_TEST_SUPPORT_PHASEGATE_H
#define CONTEXT_POOL_TEST_SUPPORT_PHASEGATE_H

#include "gtest/gtest.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace ctxpool::test {

/// Far longer than anything takes: a wait that reaches it has failed.
constexpr std::chrono::seconds deadline(120);

/// Threads wait until a phase has come; phases only go up. The destructor lets
/// everybody through, so that a failed assertion does not leave a thread
/// behind.
class PhaseGate {
public:
  ~PhaseGate() { open(std::numeric_limits<int>::max()); }

  void open(int newPhase) {
    std::lock_guard<std::mutex> lock(mutex);
    phase = std::max(phase, newPhase);
    changed.notify_all();
  }

  void await(int wanted) {
    std::unique_lock<std::mutex> lock(mutex);
    EXPECT_TRUE(
        changed.wait_for(lock, deadline, [&] { return phase >= wanted; }))
        << "phase " << wanted << " did not come";
  }

private:
  std::mutex mutex;
  std::condition_variable changed;
  int phase = 0;
};

/// Waits for something that another thread brings about and nobody announces.
/// Returns false when it does not come. Sleeps, for it may be the thread waited
/// for that needs the processor.
inline bool eventually(const std::function<bool()> &condition) {
  auto end = std::chrono::steady_clock::now() + deadline;
  for (int tries = 0; !condition(); ++tries) {
    if (std::chrono::steady_clock::now() > end)
      return false;
    if (tries < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

} // namespace ctxpool::test

#endif // CONTEXT_POOL_TEST_SUPPORT_PHASEGATE_H

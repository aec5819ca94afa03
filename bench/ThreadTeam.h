//===- ThreadTeam.h - Threads that work in rounds ------------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_THREADTEAM_H
#define CONTEXT_POOL_BENCH_THREADTEAM_H

#include "context_pool/support/Mutex.h"
#include "context_pool/support/Thread.h"

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace ctxpool::bench {

/// The compile threads: started once, so that what a thread keeps for itself
/// stays warm, and set to work in rounds.
///
/// Confined to the thread that created it.
class ThreadTeam {
public:
  /// MLIR's parser, verifier and printer recurse as deep as regions nest. Only
  /// the part of a stack that was ever used takes memory.
  static constexpr size_t stackBytes = size_t(64) << 20;

  /// Errors: ResourceExhausted - a thread could not be started.
  static absl::StatusOr<std::unique_ptr<ThreadTeam>> create(unsigned threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam &) = delete;
  ThreadTeam &operator=(const ThreadTeam &) = delete;

  unsigned size() const { return static_cast<unsigned>(threads.size()); }

  /// Has every thread call `work` with its number, and waits for all. Returns
  /// the wall time in seconds from the moment that the threads could begin to
  /// the moment that the last one ended.
  double run(const std::function<void(unsigned thread)> &work);

  /// As `run`, on the first thread only: for work that wants a large stack.
  void runOnOne(const std::function<void()> &work);

private:
  ThreadTeam() = default;
  void serve(unsigned number);

  Mutex mutex;
  CondVar changed, finished;
  const std::function<void(unsigned)> *work ABSL_GUARDED_BY(mutex) = nullptr;
  uint64_t round ABSL_GUARDED_BY(mutex) = 0;
  unsigned busy ABSL_GUARDED_BY(mutex) = 0;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::vector<Thread> threads;
};

/// Runs `work` on a thread with a large stack and returns what it returns, or
/// `otherwise`, after a message, where no thread can be had.
int runOnLargeStack(const std::function<int()> &work, int otherwise);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_THREADTEAM_H

//===- RequestQueue.h - Requests, and threads to serve them -----*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_COMPILE_REQUESTQUEUE_H
#define CONTEXT_POOL_COMPILE_REQUESTQUEUE_H

#include "context_pool/CompileCache.h"
#include "context_pool/support/Mutex.h"
#include "context_pool/support/Thread.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "llvm/ADT/FunctionExtras.h"

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <utility>
#include <vector>

namespace ctxpool::detail {

/// A bounded queue, and the threads that serve what comes into it, in the order
/// in which it came. A thread that ends while it serves a request
/// (`pthread_exit`, `pthread_cancel`) is replaced, and its request answered.
/// Everything that was added has its answer after `stop`.
///
/// Thread safety: every member may be called from several threads at once, but
/// for `start`, `stop` and the destructor.
class RequestQueue {
public:
  using Answer = absl::StatusOr<Artifact>;
  using Future = std::future<Answer>;
  using Serve = llvm::unique_function<Answer()>;

  /// `capacity`: of requests that wait for a thread. `onAnswer` is told of every
  /// answer before it is given.
  RequestQueue(size_t capacity, std::function<void(const Answer &)> onAnswer)
      : capacity(capacity), onAnswer(std::move(onAnswer)) {}

  /// Errors: ResourceExhausted - fewer threads could be had. `stop` ends those
  ///                             that were.
  absl::Status start(unsigned threadCount, size_t stackBytes);

  enum class Waiting {
    Finish, ///< What waits is served.
    Cancel  ///< What waits is answered with Cancelled.
  };

  /// Ends the threads when they have served what they have begun.
  void stop(Waiting waiting);

  /// Has `serve` called by one of the threads. Waits where the queue is full.
  Future add(Serve serve);

  /// Whether the calling thread is one of those of a queue.
  static bool isOnThreadOfQueue();

  size_t countWaiting() const;
  size_t countRunning() const { return running; }

private:
  struct Request {
    Serve serve;
    std::promise<Answer> promise;
  };

  absl::StatusOr<Thread> startThread();
  void work();
  void serve(Request request);
  void give(Request &request, Answer answer);
  /// Of the calling thread, which ends.
  void replaceThread();

  const size_t capacity;
  const std::function<void(const Answer &)> onAnswer;
  size_t stackBytes = 0;
  std::atomic<size_t> running{0};
  mutable Mutex mutex;
  std::deque<Request> waiting ABSL_GUARDED_BY(mutex);
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  CondVar hasWork, hasRoom;
  std::vector<Thread> threads ABSL_GUARDED_BY(mutex);
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_COMPILE_REQUESTQUEUE_H

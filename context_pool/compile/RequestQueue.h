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
#include <list>
#include <optional>
#include <utility>

namespace ctxpool::detail {

/// A bounded queue, and the threads that serve what comes into it, in the order
/// in which it came. A thread that ends in a request (`pthread_exit`,
/// `pthread_cancel`) is replaced, and the request answered; the thread is joined,
/// and its stack freed, when the next one ends. Where no other thread can be had,
/// those that are left serve, and the next `add` tries again.
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
  absl::Status start(size_t threadCount, size_t stackBytes);

  enum class Waiting {
    Finish, ///< What waits is served.
    Cancel  ///< What waits is answered with Cancelled.
  };

  /// Ends the threads when they have served what they have begun.
  void stop(Waiting waiting);

  /// Has `serve` called by one of the threads. Waits where the queue is full. The
  /// answer is ResourceExhausted where all threads have ended and none can be
  /// had.
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

  /// A list: a thread finds itself in it.
  using Threads = std::list<std::optional<Thread>>;
  using Place = Threads::iterator;

  /// Starts as many as are wanting.
  absl::Status startThreadsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void work(Place self);
  void serve(Request request);
  void give(Request &request, Answer answer);
  /// Of the calling thread, which ends.
  void replaceThread(Place self);

  const size_t capacity;
  const std::function<void(const Answer &)> onAnswer;
  size_t stackBytes = 0; ///< Written by `start`.
  std::atomic<size_t> running{0};
  mutable Mutex mutex;
  std::deque<Request> waiting ABSL_GUARDED_BY(mutex);
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  CondVar hasWork, hasRoom;
  size_t threadCount ABSL_GUARDED_BY(mutex) = 0;
  /// Of `threads`, those that have not ended in a request.
  size_t serving ABSL_GUARDED_BY(mutex) = 0;
  Threads threads ABSL_GUARDED_BY(mutex);
  /// Those that ended in a request, until somebody joins them.
  Threads ended ABSL_GUARDED_BY(mutex);
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_COMPILE_REQUESTQUEUE_H

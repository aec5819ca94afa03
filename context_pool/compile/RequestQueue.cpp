//===- RequestQueue.cpp - Requests, and threads to serve them -------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiled with exceptions: a thread that ends in a pass unwinds through here.
//
//===----------------------------------------------------------------------===//

#include "context_pool/compile/RequestQueue.h"

#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;

/// The queue whose thread the calling one is.
static thread_local const RequestQueue *queueOfThread = nullptr;

namespace {
/// Raises a count for a scope.
class CountedScope {
public:
  explicit CountedScope(std::atomic<size_t> &count) : count(count) { ++count; }
  ~CountedScope() { --count; }
  CountedScope(const CountedScope &) = delete;
  CountedScope &operator=(const CountedScope &) = delete;

private:
  std::atomic<size_t> &count;
};
} // namespace

absl::Status RequestQueue::start(unsigned threadCount, size_t stackBytes) {
  while (threads.size() < threadCount) {
    absl::StatusOr<Thread> thread =
        Thread::start(stackBytes, [this] { work(); });
    if (!thread.ok())
      return thread.status();
    threads.push_back(*std::move(thread));
  }
  return absl::OkStatus();
}

void RequestQueue::stop(Waiting whatWaits) {
  std::deque<Request> dropped;
  {
    MutexLock lock(mutex);
    stopping = true;
    if (whatWaits == Waiting::Cancel)
      dropped.swap(waiting);
    hasWork.notifyAll();
  }
  for (Request &request : dropped)
    request.promise.set_value(absl::CancelledError(
        "compile service: destroyed before the request was begun"));
  threads.clear();
}

RequestQueue::Future RequestQueue::add(Serve serve) {
  Request request{std::move(serve), {}};
  Future future = request.promise.get_future();
  MutexLock lock(mutex);
  while (waiting.size() >= capacity)
    hasRoom.wait(mutex);
  waiting.push_back(std::move(request));
  hasWork.notifyOne();
  return future;
}

bool RequestQueue::isOnOwnThread() const { return queueOfThread == this; }

size_t RequestQueue::countWaiting() const {
  MutexLock lock(mutex);
  return waiting.size();
}

void RequestQueue::work() {
  queueOfThread = this;
  MutexLock lock(mutex);
  while (true) {
    if (waiting.empty()) {
      if (stopping)
        return;
      hasWork.wait(mutex);
      continue;
    }
    Request request = std::move(waiting.front());
    waiting.pop_front();
    hasRoom.notifyOne();
    lock.unlock();
    {
      CountedScope scope(running);
      Answer answer = request.serve();
      request.promise.set_value(std::move(answer));
    }
    lock.lock();
  }
}

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

/// Whether the calling thread is one of a queue's.
static thread_local bool isThreadOfQueue = false;

absl::StatusOr<Thread> RequestQueue::startThread() {
  return Thread::start(stackBytes, [this] { work(); });
}

absl::Status RequestQueue::start(unsigned threadCount, size_t bytesOfStacks) {
  stackBytes = bytesOfStacks;
  for (unsigned number = 0; number < threadCount; ++number) {
    absl::StatusOr<Thread> thread = startThread();
    if (!thread.ok())
      return thread.status();
    MutexLock lock(mutex);
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
  auto cancel = [&] {
    for (Request &request : dropped)
      give(request, absl::CancelledError("compile service: destroyed before "
                                         "the request was begun"));
    dropped.clear();
  };
  cancel();

  // Joins them. One that ends in a request has put another in its place by then.
  auto takeThreads = [&] {
    MutexLock lock(mutex);
    return std::exchange(threads, {});
  };
  while (!takeThreads().empty()) {
  }
  {
    // What is left where no thread could be had for that.
    MutexLock lock(mutex);
    dropped.swap(waiting);
  }
  cancel();
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

bool RequestQueue::isOnThreadOfQueue() { return isThreadOfQueue; }

size_t RequestQueue::countWaiting() const {
  MutexLock lock(mutex);
  return waiting.size();
}

void RequestQueue::work() {
  isThreadOfQueue = true;
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
    serve(std::move(request));
    lock.lock();
  }
}

void RequestQueue::give(Request &request, Answer answer) {
  onAnswer(answer);
  request.promise.set_value(std::move(answer));
}

void RequestQueue::serve(Request request) {
  // Owns the request, which goes without the lock: with it may go an artifact,
  // and what that one's owner does is not known here.
  struct Serving {
    RequestQueue &queue;
    Request request;
    bool answered = false;
    ~Serving() {
      if (!answered) {
        queue.give(request,
                   absl::AbortedError("compile service: abandoned: the thread "
                                      "that served the request ended"));
        queue.replaceThread();
      }
      --queue.running;
    }
  } serving{*this, std::move(request)};
  ++running;
  Answer answer = serving.request.serve();
  serving.answered = true;
  give(serving.request, std::move(answer));
}

void RequestQueue::replaceThread() {
  absl::StatusOr<Thread> thread = startThread();
  MutexLock lock(mutex);
  if (thread.ok())
    threads.push_back(*std::move(thread));
}

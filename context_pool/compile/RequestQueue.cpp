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

#include "context_pool/compile/Annotate.h"

#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;

/// Whether the calling thread is one of a queue's.
static thread_local bool isThreadOfQueue = false;

absl::Status RequestQueue::startThreadsLocked() {
  while (serving < threadCount) {
    // It waits for the lock, and finds itself in its place.
    Place place = threads.emplace(threads.end());
    absl::StatusOr<Thread> thread =
        Thread::start(stackBytes, [this, place] { work(place); });
    if (!thread.ok()) {
      threads.erase(place);
      return thread.status();
    }
    place->emplace(*std::move(thread));
    ++serving;
  }
  return absl::OkStatus();
}

absl::Status RequestQueue::start(size_t count, size_t bytesOfStacks) {
  stackBytes = bytesOfStacks;
  MutexLock lock(mutex);
  threadCount = count;
  return startThreadsLocked();
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
    Threads taken = std::exchange(ended, {});
    taken.splice(taken.end(), threads);
    return taken;
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

static absl::Status noThread(const absl::Status &status) {
  return annotate(status, "compile service: no thread to serve the request");
}

RequestQueue::Future RequestQueue::add(Serve serve) {
  Request request{std::move(serve), {}};
  Future future = request.promise.get_future();
  absl::Status started;
  {
    MutexLock lock(mutex);
    while (waiting.size() >= capacity)
      hasRoom.wait(mutex);
    // Where there was none to be had in place of one that ended, there may be by
    // now.
    started = startThreadsLocked();
    if (serving != 0) {
      waiting.push_back(std::move(request));
      hasWork.notifyOne();
      return future;
    }
  }
  give(request, noThread(started));
  return future;
}

bool RequestQueue::isOnThreadOfQueue() { return isThreadOfQueue; }

size_t RequestQueue::countWaiting() const {
  MutexLock lock(mutex);
  return waiting.size();
}

void RequestQueue::work(Place self) {
  isThreadOfQueue = true;
  // Where the thread ends in a request, or was cancelled by one and ends here.
  struct Unwinding {
    RequestQueue &queue;
    const Place self;
    bool returns = false;
    ~Unwinding() {
      if (!returns)
        queue.replaceThread(self);
    }
  } unwinding{*this, self};

  MutexLock lock(mutex);
  while (true) {
    if (waiting.empty()) {
      if (stopping) {
        unwinding.returns = true;
        return;
      }
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
  struct Call {
    RequestQueue &queue;
    Request request;
    bool answered = false;
    ~Call() {
      if (!answered)
        queue.give(request,
                   absl::AbortedError("compile service: abandoned: the thread "
                                      "that served the request ended"));
      --queue.running;
    }
  } call{*this, std::move(request)};
  ++running;
  Answer answer = call.request.serve();
  call.answered = true;
  give(call.request, std::move(answer));
}

void RequestQueue::replaceThread(Place self) {
  Threads joined;
  std::deque<Request> dropped;
  absl::Status started;
  {
    MutexLock lock(mutex);
    joined.swap(ended);
    // `stop` joins all that there are, and may be at it.
    if (!stopping)
      ended.splice(ended.end(), threads, self);
    --serving;
    started = startThreadsLocked();
    if (serving == 0) {
      dropped.swap(waiting);
      hasRoom.notifyAll();
    }
  }
  for (Request &request : dropped)
    give(request, noThread(started));
}

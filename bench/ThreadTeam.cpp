//===- ThreadTeam.cpp - Threads that work in rounds -----------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/ThreadTeam.h"

#include "bench/CommandLine.h"

#include "bench/ProcessInfo.h"

#include "absl/status/status.h"

#include <utility>

using namespace ctxpool;
using namespace ctxpool::bench;

absl::StatusOr<std::unique_ptr<ThreadTeam>>
ThreadTeam::create(unsigned threadCount) {
  std::unique_ptr<ThreadTeam> team(new ThreadTeam);
  for (unsigned number = 0; number < threadCount; ++number) {
    absl::StatusOr<Thread> thread = Thread::start(
        stackBytes, [team = team.get(), number] { team->serve(number); });
    if (!thread.ok())
      return thread.status();
    team->threads.push_back(*std::move(thread));
  }
  return team;
}

ThreadTeam::~ThreadTeam() {
  {
    MutexLock lock(mutex);
    stopping = true;
  }
  for (size_t i = 0; i < threads.size(); ++i)
    changed.notifyOne();
  for (Thread &thread : threads)
    thread.join();
}

void ThreadTeam::serve(unsigned number) {
  uint64_t served = 0;
  MutexLock lock(mutex);
  while (true) {
    while (round == served && !stopping)
      changed.wait(mutex);
    if (stopping)
      return;
    served = round;
    const std::function<void(unsigned)> &current = *work;
    lock.unlock();
    current(number);
    lock.lock();
    if (--busy == 0)
      finished.notifyOne();
  }
}

double ThreadTeam::run(const std::function<void(unsigned)> &newWork) {
  MutexLock lock(mutex);
  double begin = getWallSeconds();
  work = &newWork;
  busy = size();
  ++round;
  // All signals are given before a thread that they wake can come back to wait
  // for the next round, so that each wakes another thread.
  for (size_t i = 0; i < threads.size(); ++i)
    changed.notifyOne();
  while (busy != 0)
    finished.wait(mutex);
  work = nullptr;
  return getWallSeconds() - begin;
}

void ThreadTeam::runOnOne(const std::function<void()> &newWork) {
  run([&](unsigned number) {
    if (number == 0)
      newWork();
  });
}

int bench::runOnLargeStack(const std::function<int()> &work, int otherwise) {
  absl::StatusOr<std::unique_ptr<ThreadTeam>> team = ThreadTeam::create(1);
  if (!team.ok()) {
    printError(team.status().ToString());
    return otherwise;
  }
  int result = otherwise;
  (*team)->runOnOne([&] { result = work(); });
  return result;
}

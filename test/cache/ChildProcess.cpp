//===- ChildProcess.cpp - A test's other processes ------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/cache/ChildProcess.h"

#include "test/support/PhaseGate.h"

#include "gtest/gtest.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

using namespace ctxpool::test;

ChildProcess::ChildProcess(const std::function<int()> &body) {
  std::fflush(nullptr);
  pid_t child = fork();
  if (child == 0) {
    std::signal(SIGALRM, SIG_DFL);
    alarm(static_cast<unsigned>(deadline.count()));
    int result = body();
    std::fflush(nullptr);
    _exit(result);
  }
  if (child > 0)
    process = child;
  EXPECT_GT(child, 0) << "no process";
}

ChildProcess::ChildProcess(ChildProcess &&other) noexcept
    : process(std::exchange(other.process, std::nullopt)) {}

ChildProcess::~ChildProcess() {
  if (!process)
    return;
  kill(SIGKILL);
  wait();
}

int ChildProcess::wait() {
  if (!process)
    return -SIGKILL;
  int status = 0;
  while (waitpid(*process, &status, 0) < 0 && errno == EINTR) {
  }
  process.reset();
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void ChildProcess::kill(int signal) const {
  if (process)
    ::kill(*process, signal);
}

Signal::Signal() { EXPECT_EQ(pipe(ends), 0); }

Signal::~Signal() {
  close(ends[0]);
  close(ends[1]);
}

void Signal::send() const {
  char byte = 1;
  EXPECT_EQ(write(ends[1], &byte, 1), 1);
}

bool Signal::await() const {
  pollfd readable = {ends[0], POLLIN, 0};
  char byte;
  const std::chrono::milliseconds wait = deadline;
  return poll(&readable, 1, static_cast<int>(wait.count())) == 1 &&
         read(ends[0], &byte, 1) == 1;
}

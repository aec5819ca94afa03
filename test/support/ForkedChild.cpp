//===- ForkedChild.cpp - Code of tests that runs in a child ---------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/support/ForkedChild.h"

#include "test/support/PhaseGate.h"

#include <csignal>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

static bool leaks = false;

/// LeakSanitizer's hook.
extern "C" int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() { return leaks; }

void ctxpool::test::expectLeaks() { leaks = true; }

std::string ctxpool::test::runInChild(const std::function<bool()> &body,
                                      ChildExit how) {
  pid_t child = fork();
  if (child < 0)
    return "no fork";
  if (child == 0) {
    // A child leaks what it inherits.
    expectLeaks();
    int code = body() ? 0 : 1;
    if (how == ChildExit::Exit)
      exit(code);
    _exit(code);
  }

  int status = 0;
  if (!eventually([&] { return waitpid(child, &status, WNOHANG) == child; })) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return "hangs";
  }
  if (WIFSIGNALED(status))
    return "signal " + std::to_string(WTERMSIG(status));
  return "exit " + std::to_string(WEXITSTATUS(status));
}

//===- ChildProcess.h - A test's other processes ----------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_TEST_CACHE_CHILDPROCESS_H
#define CONTEXT_POOL_TEST_CACHE_CHILDPROCESS_H

#include <functional>
#include <optional>
#include <sys/types.h>

namespace ctxpool::test {

/// A process that runs a function and ends with what it returns, or with SIGALRM
/// after `deadline`. A copy of this process, so that other threads of this one,
/// and what they hold, are missing in it: start it while there are none.
class ChildProcess {
public:
  explicit ChildProcess(const std::function<int()> &body);
  ChildProcess(ChildProcess &&other) noexcept;
  ChildProcess &operator=(ChildProcess &&) = delete;

  /// Ends it, if it has not ended.
  ~ChildProcess();

  /// Waits for its end: its result, or the negative number of the signal that
  /// ended it.
  int wait();

  void kill(int signal) const;

private:
  std::optional<pid_t> process;
};

/// A byte that one process sends and another waits for.
class Signal {
public:
  Signal();
  ~Signal();
  Signal(const Signal &) = delete;
  Signal &operator=(const Signal &) = delete;

  void send() const;

  /// False when it did not come in time, or all who could send it are gone.
  bool await() const;

private:
  int ends[2];
};

} // namespace ctxpool::test

#endif // CONTEXT_POOL_TEST_CACHE_CHILDPROCESS_H

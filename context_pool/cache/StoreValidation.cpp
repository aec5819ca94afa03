//===- StoreValidation.cpp - Whether a store is whole ---------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/StoreValidation.h"

#include "context_pool/cache/LLVMStore.h"

#include "absl/strings/str_cat.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ctxpool;
using namespace ctxpool::detail;

/// What the child does: it must not end in what the process installed for its
/// own crashes, nor say anything, nor outlive its time.
[[noreturn]] static void validateAndExit(const std::string &storeFolder,
                                         unsigned seconds, int verdict) {
  for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM})
    std::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  alarm(seconds);
  rlimit noCore = {0, 0};
  setrlimit(RLIMIT_CORE, &noCore);
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int standard : {0, 1, 2})
    if (null >= 0)
      dup2(null, standard);

  char valid = LLVMStore::validate(storeFolder).ok() ? 1 : 0;
  (void)!::write(verdict, &valid, 1);
  _exit(0);
}

absl::Status
ctxpool::detail::validateInChild(const std::string &storeFolder,
                                 absl::Duration limit,
                                 llvm::function_ref<bool()> giveUp) {
  using Clock = std::chrono::steady_clock;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC))
    return absl::ErrnoToStatus(errno, "validating a store");
  const pid_t child = fork();
  if (child < 0) {
    int error = errno;
    ::close(ends[0]);
    ::close(ends[1]);
    return absl::ErrnoToStatus(error, "starting a process that validates");
  }
  if (child == 0)
    validateAndExit(storeFolder,
                    static_cast<unsigned>(absl::ToInt64Seconds(limit)) + 1,
                    ends[1]);
  ::close(ends[1]);

  const Clock::time_point begin = Clock::now();
  bool ended = false;
  bool cancelled = false;
  char valid = 0;
  while (!ended && !cancelled &&
         absl::FromChrono(Clock::now() - begin) < limit) {
    pollfd readable = {ends[0], POLLIN, 0};
    if (poll(&readable, 1, /*milliseconds=*/20) > 0)
      ended = ::read(ends[0], &valid, 1) >= 0;
    cancelled = giveUp();
  }
  ::close(ends[0]);
  // A child that has ended may have been waited for by others.
  if (!ended)
    kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }

  if (valid)
    return absl::OkStatus();
  if (cancelled && !ended)
    return absl::CancelledError("validating a store: the cache is closed");
  return absl::DataLossError(
      absl::StrCat("the store in '", storeFolder, "' is damaged"));
}

//===- ProcessInfo.cpp - Time and memory of this process ------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/ProcessInfo.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "llvm/Support/raw_ostream.h"

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/resource.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

using namespace ctxpool;

static double readClock(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

double bench::getWallSeconds() { return readClock(CLOCK_MONOTONIC); }

double bench::getCpuSeconds() { return readClock(CLOCK_PROCESS_CPUTIME_ID); }

size_t bench::getHeapBytes() {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
#else
  return 0;
#endif
}

void bench::releaseFreeMemory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

uint64_t bench::getResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0, residentPages = 0;
  statm >> pages >> residentPages;
  return residentPages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

size_t bench::countThreads() {
  std::error_code error;
  std::filesystem::directory_iterator tasks("/proc/self/task", error);
  return error ? 0
               : static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

absl::StatusOr<uint64_t>
bench::measurePeakResident(const std::function<bool()> &body) {
  // What is buffered would be written twice.
  llvm::outs().flush();
  std::fflush(nullptr);
  pid_t child = fork();
  if (child < 0)
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot fork: ", std::generic_category().message(errno)));
  if (child == 0)
    _exit(body() ? 0 : 1);

  int state = 0;
  rusage usage = {};
  while (wait4(child, &state, 0, &usage) < 0)
    if (errno != EINTR)
      return absl::InternalError(absl::StrCat(
          "cannot wait for a child: ", std::generic_category().message(errno)));
  if (WIFSIGNALED(state))
    return absl::InternalError(
        absl::StrCat("died of signal ", WTERMSIG(state)));
  if (!WIFEXITED(state) || WEXITSTATUS(state) != 0)
    return absl::InternalError("could not be set up");
  // Linux counts in KiB.
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

//===- FileLock.cpp - A lock that processes share -------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/FileLock.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace ctxpool::detail;

absl::StatusOr<FileLock> FileLock::open(const std::string &path,
                                        Presence presence) {
  int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  if (presence == OrCreate)
    flags |= O_CREAT;
  int descriptor;
  do
    descriptor = ::open(path.c_str(), flags, 0600);
  while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("opening '", path, "'"));
  return FileLock(descriptor);
}

FileLock::FileLock(FileLock &&other) noexcept
    : descriptor(std::exchange(other.descriptor, -1)), mark(other.mark) {}

FileLock &FileLock::operator=(FileLock &&other) noexcept {
  std::swap(descriptor, other.descriptor);
  std::swap(mark, other.mark);
  return *this;
}

FileLock::~FileLock() {
  if (descriptor < 0)
    return;
  // To close the file does not end the lock while a child has it open too.
  if (!isInherited())
    (void)flock(descriptor, LOCK_UN);
  ::close(descriptor);
}

absl::StatusOr<bool> FileLock::tryLock(Kind kind) {
  int operation = (kind == Shared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  while (flock(descriptor, operation)) {
    if (errno == EWOULDBLOCK)
      return false;
    if (errno != EINTR)
      return absl::ErrnoToStatus(errno, "locking a file");
  }
  return true;
}

absl::StatusOr<bool> FileLock::tryLockFor(Kind kind, absl::Duration timeout,
                                          llvm::function_ref<bool()> giveUp) {
  return pollFor(timeout, giveUp, [&] { return tryLock(kind); });
}

absl::StatusOr<bool>
ctxpool::detail::pollFor(absl::Duration timeout,
                         llvm::function_ref<bool()> giveUp,
                         llvm::function_ref<absl::StatusOr<bool>()> attempt) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  // Nothing tells when a lock becomes free but a wait that cannot be ended.
  absl::Duration pause = absl::Milliseconds(1);
  while (true) {
    absl::StatusOr<bool> done = attempt();
    if (!done.ok() || *done)
      return done;
    if (absl::FromChrono(Clock::now() - begin) >= timeout || giveUp())
      return false;
    absl::SleepFor(std::min(pause, timeout));
    pause = std::min(2 * pause, absl::Milliseconds(20));
  }
}

bool FileLock::isAt(const std::string &path) const {
  struct stat file;
  struct stat found;
  if (lstat(path.c_str(), &found))
    return errno != ENOENT && errno != ENOTDIR;
  return fstat(descriptor, &file) == 0 && file.st_dev == found.st_dev &&
         file.st_ino == found.st_ino;
}

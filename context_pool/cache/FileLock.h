//===- FileLock.h - A lock that processes share -----------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_FILELOCK_H
#define CONTEXT_POOL_CACHE_FILELOCK_H

#include "context_pool/support/Fork.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <string>

namespace ctxpool::detail {

/// Calls `attempt` until it returns true or an error, `timeout` has passed or
/// `giveUp` says so; returns its last result.
absl::StatusOr<bool>
pollFor(absl::Duration timeout, llvm::function_ref<bool()> giveUp,
        llvm::function_ref<absl::StatusOr<bool>()> attempt);

/// An open file, and the lock (`flock`) that is held through it: among
/// processes, and among the threads of one. It ends with the process that holds
/// it, however that ends; but where that one is killed, only when its children
/// that were forked meanwhile have ended as well or called `exec`, for they have
/// the file open, too. A child leaves the lock to its parent: it neither unlocks
/// nor has to close it for the parent to do so.
class FileLock {
public:
  enum Presence { Existing, OrCreate };
  enum Kind { Shared, Exclusive };

  /// Opens a file, of the user only, through no symbolic link, and locks nothing.
  static absl::StatusOr<FileLock> open(const std::string &path,
                                       Presence presence = OrCreate);

  FileLock(FileLock &&other) noexcept;
  FileLock &operator=(FileLock &&other) noexcept;
  ~FileLock();

  /// Takes the lock, or changes its kind, where nobody is in the way. Who fails
  /// to change the kind may have lost the lock.
  absl::StatusOr<bool> tryLock(Kind kind);

  /// The same, and tries again until `timeout` has passed or `giveUp` says so.
  absl::StatusOr<bool> tryLockFor(Kind kind, absl::Duration timeout,
                                  llvm::function_ref<bool()> giveUp);

  /// Whether the file is what is at `path`: neither it nor a folder above it was
  /// deleted, moved or replaced. True where nobody can say.
  bool isAt(const std::string &path) const;

  /// Whether the lock is that of a process which forked into this one.
  bool isInherited() const { return mark.isInherited(); }

private:
  explicit FileLock(int theDescriptor) : descriptor(theDescriptor) {}
  int descriptor;
  ForkMark mark;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_FILELOCK_H

//===- CacheDirectory.h - A folder of generations of stores -----*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A folder that processes share, and what of it is in use:
///
///     generations      which of the folders below are in use, a small text
///     gen.<n>/cas/     a store of LLVM's
///     gen.<n>/seal     what a store's files looked like when it was closed; gone
///                      while it is open
///     gen.<n>/boot     the start of the machine during which it was opened last
///     gen.<n>/users    locked by everybody who has the store open
///     door             locked while somebody opens a store or starts another
///     room             locked while somebody writes to a disk that is almost full
///     locks/<key>      locked while somebody compiles a key
///
/// `generations` comes first. Where it is lost or damaged, the folder is a cache
/// only if each `gen.<n>` has some of the above in it, or nothing at all. Any
/// other one that has such names belongs to somebody who means something else by
/// them, and is left alone.
///
/// A store of LLVM's only grows, and can be closed only when nobody uses what it
/// mapped. So there are two, the current one and the one before, and when the
/// current one is full a new one takes its place and the oldest is deleted:
/// atomically, by one small file, while others go on with what they have open.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_CACHEDIRECTORY_H
#define CONTEXT_POOL_CACHE_CACHEDIRECTORY_H

#include "context_pool/cache/FileLock.h"
#include "context_pool/cache/LLVMStore.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace ctxpool::detail {

/// The text and a line by which a reader sees that nothing of it was lost: what
/// the small files in the folder end with.
std::string withCheck(std::string text);

/// An open store. Closes and seals it when destroyed, which takes LLVM
/// milliseconds.
class Generation {
public:
  Generation(std::string theFolder, uint64_t theNumber, FileLock theUsers,
             std::unique_ptr<LLVMStore> theStore);
  ~Generation();
  Generation(const Generation &) = delete;
  Generation &operator=(const Generation &) = delete;

  LLVMStore &getStore() const { return *store; }
  uint64_t getNumber() const { return number; }

  /// The folder that LLVM knows.
  std::string getStoreFolder() const;

  /// Whether somebody deleted or moved it.
  bool isGone() const;

  /// Whether a process opened it that forked into this one.
  bool isInherited() const { return users.isInherited(); }

private:
  const std::string folder;
  const uint64_t number;
  FileLock users;
  std::unique_ptr<LLVMStore> store;
};

/// The generations that were in use when the folder was opened.
class OpenDirectory {
public:
  OpenDirectory(std::string thePath, std::optional<FileLock> theGenerations,
                std::shared_ptr<Generation> theCurrent,
                std::shared_ptr<Generation> thePrevious, std::string theAwaited)
      : path(std::move(thePath)), awaited(std::move(theAwaited)),
        generations(std::move(theGenerations)), current(std::move(theCurrent)),
        previous(std::move(thePrevious)) {}

  /// Whether others are in use by now, or the folder is gone. Looks no more often
  /// than every `interval`: a look costs as much as reading a small artifact.
  bool isOutdated(absl::Duration interval) const;

  /// Null only where the folder is read only, and there is none that is whole.
  const std::shared_ptr<Generation> &getCurrent() const { return current; }

  /// Null where there is none.
  const std::shared_ptr<Generation> &getPrevious() const { return previous; }

private:
  using Clock = std::chrono::steady_clock;

  const std::string path;    ///< Of `generations`.
  const std::string awaited; ///< What appears when there is more to open.
  const std::optional<FileLock> generations; ///< Nothing: there was none.
  mutable std::atomic<Clock::duration> lookedAt{Clock::duration::min()};
  const std::shared_ptr<Generation> current;
  const std::shared_ptr<Generation> previous;
};

/// Thread safety: every member may be called from several threads at once.
class CacheDirectory {
public:
  struct Options {
    std::string path;

    /// Whether the folder may belong to somebody else, or be writable by others.
    bool allowForeign = false;

    /// `open` makes, publishes and deletes nothing, but for what goes with a store
    /// that LLVM opens. The other members that write are not for use.
    bool readOnly = false;

    /// How long to wait for a lock that is held for moments only.
    absl::Duration lockWait = absl::Seconds(5);

    /// For how long what was seen of the room on the disk is believed, where
    /// there was plenty.
    absl::Duration lookInterval = absl::Milliseconds(10);

    /// How long a store may take to be validated before it is given up.
    absl::Duration validationWait = absl::Minutes(2);

    /// Takes over generations that nobody uses any more, on the thread that used
    /// it last. Null: they are closed there.
    std::function<void(std::unique_ptr<Generation>)> close = nullptr;
  };

  /// Ends waits early.
  using GiveUp = llvm::function_ref<bool()>;

  explicit CacheDirectory(Options theOptions)
      : options(std::move(theOptions)) {}

  /// Whether the folder has a list of generations, of whatever version; `open`
  /// says whether it is one of a cache.
  static bool isCache(llvm::StringRef path);

  /// FailedPrecondition where the folder is there and belongs to somebody else,
  /// or others may write to it, or it is no folder.
  absl::Status checkTrust() const;

  /// Opens the generations in use; makes the folder, of the user only, where
  /// there is none. A store that was not closed before the machine
  /// stopped, or that somebody else than LLVM wrote to, is validated in a child
  /// process first, and replaced by an empty one where it is damaged.
  ///
  /// Where it is only read, nothing is there in place of what is absent or
  /// damaged. LLVM opens a store for writing only: its files grow for as long as
  /// it is open, their times change, and a validation leaves a note among them.
  /// `seal` and `boot` go along with that, so that the next one who opens the
  /// store believes it, as after any other use.
  ///
  /// Errors: those of `checkTrust`;
  ///         FailedPrecondition - the folder is of another version, or has files
  ///                              that are named as those of a cache and is none,
  ///                              or the process may not make large files;
  ///         DeadlineExceeded - somebody holds a lock for too long;
  ///         ResourceExhausted - the disk is full;
  ///         whatever the file system gave.
  absl::StatusOr<std::shared_ptr<const OpenDirectory>>
  open(GiveUp giveUp) const;

  /// Makes an empty generation the current one, and what is current the previous
  /// one or, unless `keepCurrent`, garbage. Given `expected`, only where that is
  /// the current one: whether it was.
  absl::StatusOr<bool> startGeneration(bool keepCurrent,
                                       std::optional<uint64_t> expected,
                                       GiveUp giveUp) const;

  /// Deletes the generations that are not in use, and lock files of keys that
  /// nobody holds. Who has one open goes on with it. Folders that are only named
  /// like generations stay. Nothing where the folder is no cache.
  absl::Status collectGarbage() const;

  /// Fails with ResourceExhausted unless `bytes` more can be written without a
  /// full disk. Where they only just can, gives a lock to be held while writing.
  /// LLVM would not survive a full disk.
  absl::StatusOr<std::optional<FileLock>> makeRoom(uint64_t bytes,
                                                   GiveUp giveUp) const;

  /// The file that who compiles the key locks. Makes the folder that it is in.
  absl::StatusOr<std::string> getClaimPath(const Fingerprint &key) const;

private:
  /// Numbers of generations; 0 is none.
  struct InUse {
    uint64_t current = 0;
    uint64_t previous = 0;
  };

  std::string getFile(const char *name) const;
  FileLock::Presence getPresence() const;
  absl::Status checkFolder() const;
  absl::StatusOr<std::string> findForeign() const;
  absl::Status checkOwn() const;
  absl::StatusOr<std::optional<FileLock>> enter(GiveUp giveUp) const;
  std::string getGeneration(uint64_t number) const;
  absl::StatusOr<FileLock> lockDoor(GiveUp giveUp) const;
  absl::StatusOr<std::optional<InUse>> readInUse() const;
  absl::Status publish(const InUse &inUse) const;
  absl::StatusOr<uint64_t> getFreeNumber() const;
  absl::StatusOr<std::shared_ptr<Generation>>
  openGeneration(uint64_t number, bool create, GiveUp giveUp) const;
  absl::Status ensureValid(const std::string &folder, GiveUp giveUp) const;

  const Options options;

  /// When the disk had room in plenty, and what was written since.
  mutable std::atomic<std::chrono::steady_clock::duration> hadRoomAt{
      std::chrono::steady_clock::duration::min()};
  mutable std::atomic<uint64_t> bytesSince = 0;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_CACHEDIRECTORY_H

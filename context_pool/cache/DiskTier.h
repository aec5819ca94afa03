//===- DiskTier.h - Artifacts in a folder that processes share --*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_DISKTIER_H
#define CONTEXT_POOL_CACHE_DISKTIER_H

#include "context_pool/cache/CacheDirectory.h"
#include "context_pool/cache/Circuit.h"
#include "context_pool/cache/Tier.h"
#include "context_pool/support/Mutex.h"
#include "context_pool/support/Thread.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ctxpool::detail {

struct DiskTierOptions {
  /// Created, of the user only, when first used.
  std::string directory;

  /// What the folder may hold, in bytes of objects and LLVM's tables, but for
  /// what processes write at the same moment, and the table entry of an artifact.
  /// At least `minDirectoryBytes`. Artifacts that were given out keep at most as
  /// much again on the disk: see `DiskTier`.
  uint64_t directoryBytes = 10ull << 30;

  /// Makes, writes and deletes nothing, but for what `CacheDirectory::open` says
  /// of LLVM: `put`, `clear` and `collectGarbage` are FailedPrecondition, and
  /// nobody gets a claim.
  bool readOnly = false;

  /// Whether the folder may belong to somebody else, or be writable by others.
  bool allowForeignDirectory = false;

  /// How long `claim` waits at most for who else compiles the key: another
  /// process, or a tier of this one on the same folder, which a tier cannot tell
  /// from that.
  absl::Duration crossProcessWait = absl::Seconds(60);

  /// How long a call waits for the folder to be opened, and opening it for each
  /// lock that other processes hold for moments. A folder that takes longer fails
  /// further calls at once until it is open.
  absl::Duration lockWait = absl::Seconds(5);

  /// For how long a call may go on with what another process has cleared or
  /// replaced.
  absl::Duration lookInterval = absl::Milliseconds(10);

  /// How long a store may take to be validated before it is given up.
  absl::Duration validationWait = absl::Minutes(2);

  /// After opening the folder failed, it is left alone this long, twice as long
  /// after the next time, and so on up to a minute.
  absl::Duration retryAfter = absl::Milliseconds(500);
};

/// The disk tier.
///
/// An artifact is an object of LLVM's store: a header, and the bytes, where they
/// are many as an object of their own, so that LLVM gives them a file and a hit
/// maps that. LLVM's action cache takes one object for a key and no other, and
/// its store never writes an object again that it has. So a key has several
/// slots, of which the last one that is taken counts, and what goes into another
/// slot is another object, even with the same bytes.
///
/// An artifact keeps the store that it is mapped from, also when that made room
/// for others and was deleted. So that this does not add up, bytes are copied for
/// as long as such a store is kept: at most two deleted stores are, each of half
/// of `directoryBytes`.
///
/// In a forked child, every call fails, and artifacts stay valid. Its owner leaks
/// it there: what waits in the parent can be destroyed only there.
class DiskTier final : public Tier {
public:
  static constexpr uint64_t minDirectoryBytes = 4ull << 20;

  /// Errors: InvalidArgument - an option is out of its range;
  ///         FailedPrecondition - the folder is there, and belongs to somebody
  ///                              else or is writable by others;
  ///         ResourceExhausted - no thread.
  /// Any other fault shows when the folder is used, and may be gone by then.
  static absl::StatusOr<std::unique_ptr<DiskTier>>
  create(DiskTierOptions options);

  /// Artifacts that were given out stay valid. The last one from a store closes
  /// it.
  ~DiskTier() override;

  absl::StatusOr<TierFound> find(const CacheKey &key) override;

  /// May wait for an empty store to take the place of a full one.
  absl::Status put(const CacheKey &key, const Artifact &artifact,
                   bool replace) override;

  uint64_t getMaxArtifactBytes() const override {
    return options.directoryBytes / 2;
  }

  /// Other processes notice within their `lookInterval`. Where it fails, nothing
  /// is given out or taken in until a later call has made up for it.
  absl::Status clear() override;

  absl::StatusOr<std::unique_ptr<CompileClaim>>
  claim(const CacheKey &key, absl::Duration limit) override;

  /// Reads the tables of what is open to count the entries, about 2 us for each.
  /// While somebody has them locked, there are as many as the last time.
  CacheTierStats getStats() const override;

  //===--------------------------------------------------------------------===//
  // For people
  //===--------------------------------------------------------------------===//

  /// Whether somebody has used the folder as a cache. Looks without opening it,
  /// which would make one of it.
  static bool isCache(llvm::StringRef directory);

  /// Everything that `get` would give, unless it is damaged, by key.
  absl::StatusOr<std::vector<TierEntry>> list() const;

  /// Reads everything that is published.
  absl::StatusOr<TierVerification> verify() const;

  /// Deletes what is not in use: old generations, files of processes that were
  /// killed.
  absl::Status collectGarbage();

private:
  /// What the worker can be asked for; a later one does the earlier ones' work.
  enum class Task { None, Open, Rotate, Clear };

  enum class Presence { Missing, Damaged, Valid };
  struct Found {
    Presence presence = Presence::Missing;
    unsigned slot = 0; ///< The last one that is taken.
    std::optional<Artifact> artifact;
    bool isOld = false; ///< In the previous generation.
  };

  /// Whether an artifact keeps the store, or has bytes of its own.
  enum class Bytes { Mapped, Copied };

  /// What is to be written, and from which slot on.
  struct Plan {
    Artifact artifact;
    unsigned slot = 0;
  };

  /// How generations that nobody uses any more find the worker, which they may
  /// outlive.
  struct WayHome {
    Mutex mutex; ///< Taken before that of the tier.
    DiskTier *tier ABSL_GUARDED_BY(mutex) = nullptr;
  };

  using Directory = std::shared_ptr<const OpenDirectory>;

  explicit DiskTier(DiskTierOptions theOptions);

  absl::Status checkWritable(const char *what) const;
  absl::StatusOr<Directory> acquire(absl::Duration lookInterval) const;
  absl::Status bring(Task task) const;
  absl::Status tooLate() const;
  absl::Status waitForWorkerLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status rotate(uint64_t number);
  bool mayMap() const;
  bool isPinnedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  Directory replaceLocked(Directory next) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  void work();
  absl::Status startCleared() const;
  absl::Status startRotation(const Directory &before, uint64_t number);
  static uint64_t countUnused(const OpenDirectory &directory);
  static void close(const std::shared_ptr<WayHome> &wayHome,
                    std::unique_ptr<Generation> generation);

  static absl::StatusOr<Found>
  findIn(const std::shared_ptr<Generation> &generation, const CacheKey &key,
         Bytes bytes);
  static absl::StatusOr<Found> findIn(const OpenDirectory &directory,
                                      const CacheKey &key, Bytes bytes);
  absl::StatusOr<Found> lookUp(const CacheKey &key, Bytes bytes) const;
  static absl::StatusOr<std::optional<Plan>>
  plan(const OpenDirectory &directory, const CacheKey &key,
       const Artifact &artifact, bool replace);
  bool isFullFor(const OpenDirectory &directory, const Plan &plan) const;
  absl::Status write(const OpenDirectory &directory, const CacheKey &key,
                     const Plan &plan, bool replace) const;
  absl::StatusOr<bool> contains(const CacheKey &key) const;
  static absl::StatusOr<std::vector<TierEntry>>
  list(const OpenDirectory &directory, uint64_t &unreadable);

  const DiskTierOptions options;
  const std::shared_ptr<WayHome> wayHome = std::make_shared<WayHome>();
  const CacheDirectory directory;
  const ForkMark mark;

  std::atomic<uint64_t> rejected = 0;
  std::atomic<uint64_t> evictions = 0;
  mutable std::atomic<uint64_t> countedEntries = 0; ///< By `getStats`.
  std::atomic<bool> stopping = false;

  /// Whether the folder is opened, and whether a full store is replaced, or
  /// neither for a while since that failed.
  mutable Circuit openings;
  mutable Circuit rotations;

  /// The worker opens and closes stores, so that no compile waits for locks of
  /// others, for LLVM to write back, or for a validation longer than it wants to.
  /// A store is not dropped while this is held: it goes to the worker.
  mutable Mutex mutex;
  mutable CondVar toWorker;
  mutable CondVar fromWorker;
  mutable Task wanted ABSL_GUARDED_BY(mutex) = Task::None;
  bool working ABSL_GUARDED_BY(mutex) = false;

  /// Somebody has waited in vain for what the worker is doing.
  mutable bool late ABSL_GUARDED_BY(mutex) = false;

  /// The number of the generation that `Rotate` is wanted for.
  uint64_t fullGeneration ABSL_GUARDED_BY(mutex) = 0;

  /// Clears that were asked for, and those that were made up for.
  mutable uint64_t clearsWanted ABSL_GUARDED_BY(mutex) = 0;
  uint64_t clearsDone ABSL_GUARDED_BY(mutex) = 0;

  mutable Directory opened ABSL_GUARDED_BY(mutex);
  absl::Status lastResult ABSL_GUARDED_BY(mutex);
  absl::Status lastRotation ABSL_GUARDED_BY(mutex);

  /// What was open before `opened`, by number, as long as somebody uses it.
  mutable std::vector<std::pair<uint64_t, std::weak_ptr<const Generation>>>
      replaced ABSL_GUARDED_BY(mutex);
  mutable std::atomic<bool> isPinned = false; ///< As it was seen last.

  std::vector<std::unique_ptr<Generation>> toClose ABSL_GUARDED_BY(mutex);

  std::optional<Thread> worker;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_DISKTIER_H

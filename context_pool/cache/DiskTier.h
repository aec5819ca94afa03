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
#include "context_pool/cache/Tier.h"
#include "context_pool/support/Mutex.h"
#include "context_pool/support/Thread.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ctxpool::detail {

struct DiskTierOptions {
  /// Created, of the user only, when first used.
  std::string directory;

  /// What the folder may hold, in bytes of objects and LLVM's tables; more for
  /// as long as it takes to notice. At least `minDirectoryBytes`.
  uint64_t directoryBytes = 10ull << 30;

  /// Nothing is written by `get`.
  bool readOnly = false;

  /// Whether the folder may belong to somebody else, or be writable by others.
  bool allowForeignDirectory = false;

  /// How long `claim` waits for another process that compiles the key.
  absl::Duration crossProcessWait = absl::Seconds(60);

  /// How long a call waits for the folder to be opened, and opening it for locks
  /// that other processes hold for moments.
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

  /// Artifacts that were given out stay valid.
  ~DiskTier() override;

  absl::StatusOr<std::optional<Artifact>> get(const CacheKey &key) override;
  absl::Status put(const CacheKey &key, const Artifact &artifact,
                   bool replace) override;

  uint64_t getMaxArtifactBytes() const override {
    return options.directoryBytes / 2;
  }

  /// Other processes notice within their `lookInterval`.
  absl::Status clear() override;

  absl::StatusOr<std::unique_ptr<CompileClaim>>
  claim(const CacheKey &key) override;

  /// Reads the tables to count the entries.
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
  /// What `bring` can be asked for; a later one does the earlier ones' work.
  enum class Task { None, Open, Rotate, Clear };

  enum class Presence { Missing, Damaged, Valid };
  struct Found {
    Presence presence = Presence::Missing;
    unsigned slot = 0; ///< The last one that is taken.
    std::optional<Artifact> artifact;
  };

  explicit DiskTier(DiskTierOptions theOptions);

  absl::StatusOr<std::shared_ptr<const OpenDirectory>> acquire() const;
  absl::Status bring(Task task) const;
  void work();
  static uint64_t countUnused(const OpenDirectory &directory);

  static absl::StatusOr<Found>
  find(const std::shared_ptr<Generation> &generation, const CacheKey &key);
  absl::Status putInto(const OpenDirectory &directory, const CacheKey &key,
                       const Artifact &artifact, bool replace);
  absl::StatusOr<bool> contains(const CacheKey &key) const;
  absl::StatusOr<std::vector<TierEntry>> list(uint64_t &unreadable) const;

  const DiskTierOptions options;
  const CacheDirectory directory;
  const ForkMark mark;

  std::atomic<uint64_t> rejected = 0;
  std::atomic<uint64_t> evictions = 0;
  std::atomic<bool> stopping = false;

  /// The worker opens and closes stores, so that no compile waits for locks of
  /// others, for LLVM to write back, or for a validation longer than it wants to.
  mutable Mutex mutex;
  mutable CondVar toWorker;
  mutable CondVar fromWorker;
  mutable Task wanted ABSL_GUARDED_BY(mutex) = Task::None;
  bool working ABSL_GUARDED_BY(mutex) = false;

  /// The number of the generation that `Rotate` is wanted for.
  uint64_t fullGeneration ABSL_GUARDED_BY(mutex) = 0;
  std::shared_ptr<const OpenDirectory> opened ABSL_GUARDED_BY(mutex);
  absl::Status lastResult ABSL_GUARDED_BY(mutex);
  absl::Duration rest ABSL_GUARDED_BY(mutex);
  CondVar::Clock::time_point restUntil ABSL_GUARDED_BY(mutex);

  std::optional<Thread> worker;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_DISKTIER_H

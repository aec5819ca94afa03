//===- FlightCache.h - Made once, kept while there is room ------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// What `CompileCache` and `ObjectCache` have in common: objects of any type in
/// memory, each made by one thread while others wait for it.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_FLIGHTCACHE_H
#define CONTEXT_POOL_CACHE_FLIGHTCACHE_H

#include "context_pool/CompileCache.h"
#include "context_pool/cache/SpreadMutex.h"
#include "context_pool/support/Fork.h"
#include "context_pool/support/Mutex.h"

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ctxpool::detail {

struct Flight;

/// The sum of two times of at least 0, or the longest time.
inline int64_t addSaturated(int64_t lhs, int64_t rhs) {
  constexpr int64_t longest = std::numeric_limits<int64_t>::max();
  return rhs > longest - lhs ? longest : lhs + rhs;
}

/// A hit writes to nothing that a hit on another thread reads, of the same key
/// or another one, unless there are more threads than parts of a lock: its part,
/// with counters, and of the entry what that part has of it.
/// What is kept is bounded; to make room, the entry goes whose last use is
/// longest ago.
///
/// A key that is being made has a flight. The thread that began it leads it; the
/// others wait, each to its own deadline. No thread waits for itself, be it
/// through other threads and caches.
///
/// Thread safety: every member may be called from several threads at once. No
/// lock is held while objects are made or destroyed.
class FlightCache {
public:
  struct Value {
    std::shared_ptr<const void> object; ///< Null: no value.
    uint64_t bytes = 0;
    int64_t costNanoseconds = 0; ///< What it took to make it. At least 0.

    explicit operator bool() const { return object != nullptr; }
  };

  /// How a request came by its answer.
  enum class Source { Kept, Joined, Made, Refused };

  struct Answer {
    absl::StatusOr<Value> value;
    Source source;
  };

  /// What is looked up is kept, or it is not, in which case `generation` tells
  /// `insert` whether there was a `clear` in between.
  struct Found {
    Value value;
    uint64_t generation = 0;
  };

  struct Policy {
    bool use = true;      ///< Requests are answered with what is kept.
    bool keep = true;     ///< What is made is kept.
    bool replace = false; ///< ... in place of what is kept already.
  };

  struct Stats {
    uint64_t requests = 0; ///< Calls of getOrMake.
    uint64_t kept = 0;     ///< ... by Source.
    uint64_t joined = 0;
    uint64_t made = 0;
    uint64_t refused = 0;
    uint64_t failures = 0;  ///< Of `made`, those that gave no value.
    uint64_t abandoned = 0; ///< Of `joined`, those that gave up.
    uint64_t lookups = 0, lookupHits = 0;
    uint64_t inserted = 0; ///< Values that were taken in.
    uint64_t evictions = 0;
    uint64_t entries = 0, bytes = 0; ///< At the moment.
    /// What it had taken to make the values that were found.
    absl::Duration timeSaved;
  };

  using Make = llvm::function_ref<absl::StatusOr<Value>()>;

  /// What an entry takes besides the bytes of its value: its node in the map,
  /// and what the owners of values allocate around them.
  static constexpr uint64_t entryOverheadBytes = 256;

  explicit FlightCache(uint64_t capacityBytes)
      : FlightCache(capacityBytes, Policy()) {}
  FlightCache(uint64_t capacityBytes, Policy policy);
  ~FlightCache();
  FlightCache(const FlightCache &) = delete;
  FlightCache &operator=(const FlightCache &) = delete;

  /// The value that is kept under `key`; else that of its flight, for which it
  /// waits up to `timeout`; else it leads a flight, and calls `make`.
  ///
  /// Errors: what `make` gave, or Internal for an exception out of it.
  ///         Aborted - the thread that led the flight ended.
  ///         DeadlineExceeded, FailedPrecondition - as
  ///         `CompileCache::getOrCompile`.
  Answer getOrMake(const CacheKey &key, Make make, absl::Duration timeout);

  /// Never waits for a flight.
  Found find(const CacheKey &key);

  /// Keeps `value` where the policy has it so, unless `expected` is no longer the
  /// generation, or something is kept already that the policy does not replace.
  /// A flight of that key gives what is kept in place of what it makes, but where
  /// the policy replaces.
  void insert(const CacheKey &key, Value value,
              std::optional<uint64_t> expected = std::nullopt);

  /// Forgets what is kept. Flights under way keep those who wait for them, and
  /// what they make is not kept.
  void clear();

  Stats getStats() const;

  /// Whether it was made before a fork: nothing else may be called then, the
  /// destructor included.
  bool isInherited() const { return mark.isInherited(); }

  /// What `body` gave, or Internal for an exception out of it; `what` is its name
  /// in the message. The unwinding of a thread that ends passes through.
  static absl::Status runGuarded(const char *what,
                                 llvm::function_ref<absl::Status()> body);

private:
  /// What is counted as it is read.
  struct ReadCounts {
    uint64_t requests = 0, kept = 0, lookups = 0, lookupHits = 0;
    int64_t savedNanoseconds = 0;
  };
  using Parts = SpreadMutex<ReadCounts>;
  using ReadLock = SpreadReadLock<ReadCounts>;
  using WriteLock = SpreadWriteLock<ReadCounts>;

  /// What hits of one part of the lock write to, on cache lines of its own.
  struct alignas(64) Use {
    /// With a count of owners of its own: hits of threads that have other parts
    /// do not write to it.
    std::shared_ptr<const void> object;
    /// Nanoseconds of the steady clock.
    std::atomic<int64_t> last{0};
  };

  struct Entry {
    CacheKey key;
    Value value;
    /// Null for parts that have not used it. An element is written by who has
    /// that part.
    std::array<std::atomic<Use *>, Parts::partCount> uses{};
    int64_t listedUse = 0; ///< As `byUse` has it.

    Entry() = default;
    ~Entry();
    Entry(const Entry &) = delete;
    Entry &operator=(const Entry &) = delete;

    int64_t getLastUse() const;
  };

  struct KeyHash {
    // A key is a digest: any of its bytes are as good as a hash. The first ones
    // choose the bucket and others the shard.
    size_t operator()(const CacheKey &key) const {
      return hash_value(key.digest);
    }
  };

  template <typename T>
  using KeyMap = std::unordered_map<CacheKey, T, KeyHash>;

  /// The keys that are being made. On cache lines of its own.
  struct alignas(128) Shard {
    mutable Mutex mutex;
    KeyMap<std::shared_ptr<Flight>> flights ABSL_GUARDED_BY(mutex);
    Stats stats ABSL_GUARDED_BY(mutex);
  };

  /// What was dropped, to be destroyed when no lock is held.
  using Garbage = std::vector<std::shared_ptr<const void>>;

  static constexpr size_t shardCount = 64;
  static size_t shardOf(const CacheKey &key) {
    return key.digest.bytes[8] % shardCount;
  }

  /// What is kept under `key`, and is used now; else no value.
  Value useLocked(const CacheKey &key, const ReadLock &lock)
      ABSL_SHARED_LOCKS_REQUIRED(reading);
  /// The same as the answer to a request.
  Value answerLocked(const CacheKey &key, ReadLock &lock)
      ABSL_SHARED_LOCKS_REQUIRED(reading);

  /// What `outcome` becomes for those who asked: it itself, or what was kept
  /// meanwhile.
  absl::StatusOr<Value> finish(Shard &shard, const CacheKey &key,
                               Flight &flight, absl::StatusOr<Value> outcome);

  /// Makes room for `value`, if there can be.
  bool reserveLocked(const Value &value, Garbage &garbage)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(insertion);
  /// The entry whose last use is longest ago. There is one.
  Entry &findOldestLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(insertion);
  void addLocked(const CacheKey &key, Value value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(insertion);
  void eraseLocked(Entry &entry, Garbage &garbage)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(insertion, reading);

  // Locks are taken in the order `insertion`, that of a shard, `reading`.

  mutable Parts reading;
  std::array<Shard, shardCount> shards;

  const ForkMark mark;
  const uint64_t capacityBytes;

  /// In as many maps as there are shards, so that none grows for long while
  /// nobody can read.
  std::array<KeyMap<std::unique_ptr<Entry>>, shardCount>
      entries ABSL_GUARDED_BY(reading);
  uint64_t generation ABSL_GUARDED_BY(reading) = 0;

  /// Taken by all that takes entries in or drops them, so that the bound is
  /// exact. Hits do without.
  mutable Mutex insertion;
  uint64_t keptBytes ABSL_GUARDED_BY(insertion) = 0;
  uint64_t inserted ABSL_GUARDED_BY(insertion) = 0;
  uint64_t evictions ABSL_GUARDED_BY(insertion) = 0;
  /// Entries by a use of theirs, which is the last one or an earlier one: hits
  /// do not come here, and an entry is put in its place when it is the first.
  std::set<std::pair<int64_t, Entry *>> byUse ABSL_GUARDED_BY(insertion);

  const Policy policy;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_FLIGHTCACHE_H

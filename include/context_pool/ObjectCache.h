//===- ObjectCache.h - Live objects, made once ------------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// What `CompileCache` does for artifacts in memory, for live objects that are
/// made from them, such as loaded executables.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_OBJECTCACHE_H
#define CONTEXT_POOL_OBJECTCACHE_H

#include "context_pool/CompileCache.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <cstdint>
#include <memory>

namespace ctxpool {

/// Counts since the cache was created. Where no call is under way,
/// `requests == hits + joined + creations + refused`, and
/// `lookups == lookupHits + lookupMisses`.
struct ObjectCacheStats {
  uint64_t requests = 0;  ///< Calls of getOrCreate.
  uint64_t hits = 0;      ///< ... that were given what was kept.
  uint64_t joined = 0;    ///< ... that waited for another's creation.
  uint64_t creations = 0; ///< ... that created.
  uint64_t refused = 0;   ///< ... that asked for what they were creating.
  uint64_t failures = 0;  ///< Creations that failed.
  uint64_t abandoned = 0; ///< Waiters that gave up at their deadline.
  uint64_t lookups = 0, lookupHits = 0, lookupMisses = 0;
  uint64_t evictions = 0;
  uint64_t entries = 0; ///< At the moment.
  uint64_t bytes = 0;   ///< At the moment.
};

namespace detail {

class FlightCache;

/// `ObjectCache` but for the type.
class ObjectCacheCore {
public:
  struct Sized {
    std::shared_ptr<const void> object;
    uint64_t bytes;
  };

  explicit ObjectCacheCore(uint64_t memoryBytes);
  ~ObjectCacheCore();

  absl::StatusOr<std::shared_ptr<const void>>
  getOrCreate(const CacheKey &key,
              llvm::function_ref<absl::StatusOr<Sized>()> create,
              absl::Duration timeout);
  std::shared_ptr<const void> lookup(const CacheKey &key);
  void clear();
  ObjectCacheStats getStats() const;

private:
  std::unique_ptr<FlightCache> cache;
};

} // namespace detail

/// Objects that are made once for each key and shared by everybody who asks:
/// one creation of a key at a time, as in `CompileCache::getOrCompile`, and the
/// objects that were used last stay as long as there is room.
///
/// Ownership:     the cache owns what it keeps together with those who asked for
///                it. An object that is evicted, or whose cache is gone, lives
///                on until its last user lets go of it, and is destroyed on that
///                thread. The cache destroys objects without a lock. Owners
///                on several threads are counted apart, so that hits on these
///                write to nothing that they share: `use_count()` says nothing.
/// Thread safety: every member may be called from several threads at once, but
///                for the destructor, which no other call may overlap. An object
///                is shared by threads: what it says of threads is between it
///                and them.
/// Fork:          in a forked child an inherited cache has nothing and makes
///                nothing (FailedPrecondition); destroying it leaks what it
///                holds. Objects that are in use stay valid.
///
/// \code
///   ctxpool::ObjectCache<ctxpool::Executable> loaded(/*memoryBytes=*/1 << 26);
///   absl::StatusOr<std::shared_ptr<ctxpool::Executable>> executable =
///       loaded.getOrCreate(
///           key, [&] { return ctxpool::Executable::load(artifact); },
///           [&](const ctxpool::Executable &) {
///             return artifact.getBytes().size();
///           });
/// \endcode
template <typename T>
class ObjectCache {
public:
  /// `memoryBytes` is the most that is kept: the sum of what the objects are
  /// said to take, and of 256 bytes for each. What is evicted and still in use
  /// is not counted. 0: nothing is kept.
  explicit ObjectCache(uint64_t memoryBytes) : core(memoryBytes) {}

  /// The object of `key`: the one that is kept; else the one that another thread
  /// is creating, for which it waits up to `timeout`; else what `create` gives,
  /// which runs on the calling thread, without a lock. `sizeOf` says what the
  /// object takes, in bytes. An object that is larger than the bound is not
  /// kept, and handed out.
  ///
  /// Errors: what `create` gave, for everybody who waited for it; nothing is
  ///         kept, and the next call creates again.
  ///         InvalidArgument - `create` gave null.
  ///         DeadlineExceeded, FailedPrecondition, Internal, Aborted - as
  ///         `CompileCache::getOrCompile`.
  absl::StatusOr<std::shared_ptr<T>>
  getOrCreate(const CacheKey &key,
              llvm::function_ref<absl::StatusOr<std::shared_ptr<T>>()> create,
              llvm::function_ref<uint64_t(const T &)> sizeOf,
              absl::Duration timeout = absl::InfiniteDuration()) {
    using Sized = detail::ObjectCacheCore::Sized;
    absl::StatusOr<std::shared_ptr<const void>> object = core.getOrCreate(
        key,
        [&]() -> absl::StatusOr<Sized> {
          absl::StatusOr<std::shared_ptr<T>> created = create();
          if (!created.ok())
            return created.status();
          uint64_t bytes = *created ? sizeOf(**created) : 0;
          return Sized{*std::move(created), bytes};
        },
        timeout);
    if (!object.ok())
      return object.status();
    return cast(*object);
  }

  /// The object that is kept under `key`, which counts as a use; else null.
  /// Never waits.
  std::shared_ptr<T> lookup(const CacheKey &key) {
    return cast(core.lookup(key));
  }

  /// Forgets everything. What is being created goes to those who wait for it,
  /// and is not kept.
  void clear() { core.clear(); }

  /// The counts, consistent with one another when no thread uses the cache.
  ObjectCacheStats getStats() const { return core.getStats(); }

private:
  // The object came in as a pointer to T, which may be const or not.
  static std::shared_ptr<T> cast(const std::shared_ptr<const void> &object) {
    return std::static_pointer_cast<T>(std::const_pointer_cast<void>(object));
  }

  detail::ObjectCacheCore core;
};

} // namespace ctxpool

#endif // CONTEXT_POOL_OBJECTCACHE_H

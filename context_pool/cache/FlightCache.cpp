//===- FlightCache.cpp - Made once, kept while there is room --------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiled with exceptions, unlike the rest of the library: what users' code
// throws ends here, and a thread that ends in users' code unwinds through here.
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/FlightCache.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cxxabi.h>
#include <exception>
#include <thread>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;

//===----------------------------------------------------------------------===//
// Flights, and who waits for whom
//===----------------------------------------------------------------------===//

struct detail::Flight {
  const std::thread::id leader = std::this_thread::get_id();

  Mutex mutex;
  CondVar landed;
  /// Written with the lock held; also read without.
  std::atomic<bool> done{false};
  std::optional<absl::StatusOr<FlightCache::Value>>
      outcome ABSL_GUARDED_BY(mutex);
};

namespace {

/// Which thread waits for which flight, over all caches of the process: the
/// only way to see that the compile of one cache waits for another cache, whose
/// compile waits for the first. Touched by those who wait, and nobody else.
class WaitGraph {
public:
  /// Never destroyed: threads may wait while the process ends. In a forked
  /// child a new one: its threads wait for nothing yet, and nobody knows who
  /// held the lock.
  static WaitGraph &get() {
    static std::atomic<WaitGraph *> current{nullptr};
    WaitGraph *graph = current.load();
    while (!graph || graph->mark.isInherited()) {
      auto made = std::make_unique<WaitGraph>();
      if (current.compare_exchange_strong(graph, made.get()))
        graph = made.release();
    }
    return *graph;
  }

  /// Notes that the calling thread waits for `flight`. Not where it would wait
  /// for itself: what it leads would never land.
  bool add(const Flight &flight) {
    std::thread::id self = std::this_thread::get_id();
    MutexLock lock(mutex);
    // Every thread waits for one flight at most, and every flight has one
    // leader: there is one path. It ends, for each edge was checked when it was
    // added. A flight that landed holds up nobody.
    for (const Flight *next = &flight; next && !next->done.load();) {
      if (next->leader == self)
        return false;
      auto it = waits.find(next->leader);
      next = it == waits.end() ? nullptr : it->second;
    }
    waits[self] = &flight;
    return true;
  }

  void remove() {
    MutexLock lock(mutex);
    waits.erase(std::this_thread::get_id());
  }

private:
  const ForkMark mark;
  Mutex mutex;
  std::unordered_map<std::thread::id, const Flight *>
      waits ABSL_GUARDED_BY(mutex);
};

/// What `flight` gave, or nothing where it has not landed after `timeout`.
std::optional<absl::StatusOr<FlightCache::Value>>
waitFor(Flight &flight, absl::Duration timeout) {
  // Time that does not fit into the clock never ends.
  constexpr absl::Duration endless = absl::Hours(24 * 365 * 100);
  CondVar::Clock::time_point deadline = CondVar::Clock::time_point::max();
  if (timeout < endless)
    deadline =
        CondVar::Clock::now() +
        absl::ToChronoNanoseconds(std::max(timeout, absl::ZeroDuration()));

  MutexLock lock(flight.mutex);
  bool inTime = timeout > absl::ZeroDuration();
  while (!flight.outcome && inTime) {
    if (timeout < endless)
      inTime = flight.landed.waitUntil(flight.mutex, deadline);
    else
      flight.landed.wait(flight.mutex);
  }
  return flight.outcome;
}

int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch() /
         std::chrono::nanoseconds(1);
}

uint64_t footprint(const FlightCache::Value &value) {
  // No sum of sizes of things in memory overflows, but a stated size may.
  return std::max(value.bytes, value.bytes + FlightCache::entryOverheadBytes);
}

} // namespace

absl::Status FlightCache::runGuarded(llvm::function_ref<absl::Status()> body) {
  try {
    return body();
  }
#ifdef __GLIBCXX__
  catch (abi::__forced_unwind &) {
    // `pthread_exit` and `pthread_cancel`: libstdc++ ends a process in which
    // such an unwinding is caught and not passed on.
    throw;
  }
#endif
  catch (const std::exception &exception) {
    return absl::InternalError(
        absl::StrCat("the compile threw an exception: ", exception.what()));
  } catch (...) {
    return absl::InternalError(
        "the compile threw something that is no std::exception");
  }
}

//===----------------------------------------------------------------------===//
// FlightCache
//===----------------------------------------------------------------------===//

FlightCache::FlightCache(uint64_t capacityBytes, Policy policy)
    : capacityBytes(capacityBytes), policy(policy) {}

FlightCache::~FlightCache() {
  // The lists hold entries of the maps.
  clear();
}

const FlightCache::Value *FlightCache::Shard::use(const CacheKey &key) {
  auto it = entries.find(key);
  if (it == entries.end())
    return nullptr;
  Entry &entry = it->second;
  entry.lastUse = now();
  byUse.remove(entry);
  byUse.push_front(entry);
  return &entry.value;
}

FlightCache::Answer FlightCache::getOrMake(const CacheKey &key, Make make,
                                           absl::Duration timeout) {
  Shard &shard = shardOf(key);
  std::shared_ptr<Flight> flight;
  bool leads;
  {
    MutexLock lock(shard.mutex);
    ++shard.stats.requests;
    if (policy.use) {
      if (const Value *value = shard.use(key)) {
        ++shard.stats.kept;
        shard.savedNanoseconds += value->costNanoseconds;
        return {*value, Source::Kept};
      }
    }
    std::shared_ptr<Flight> &ofKey = shard.flights[key];
    leads = !ofKey;
    if (leads)
      ofKey = std::make_shared<Flight>();
    flight = ofKey;
  }

  if (leads) {
    // A thread that ends within `make` lands its flight as it unwinds.
    struct Landing {
      FlightCache &cache;
      Shard &shard;
      const CacheKey &key;
      Flight &flight;
      bool landed = false;
      absl::StatusOr<Value> land(absl::StatusOr<Value> outcome) {
        landed = true;
        return cache.finish(shard, key, flight, std::move(outcome));
      }
      ~Landing() {
        if (!landed)
          (void)land(absl::AbortedError(
              absl::StrCat("key ", key.digest.toHex(),
                           ": abandoned: the thread that was making it "
                           "ended")));
      }
    } landing{*this, shard, key, *flight};
    absl::StatusOr<Value> made = Value();
    absl::Status status = runGuarded([&]() -> absl::Status {
      made = make();
      return made.status();
    });
    if (!status.ok())
      made = status;
    return {landing.land(std::move(made)), Source::Made};
  }

  bool mayWait = WaitGraph::get().add(*flight);
  {
    MutexLock lock(shard.mutex);
    ++(mayWait ? shard.stats.joined : shard.stats.refused);
  }
  if (!mayWait)
    return {absl::FailedPreconditionError(absl::StrCat(
                "key ", key.digest.toHex(),
                ": asked for by what is making it, on this thread or through "
                "threads that wait for one another")),
            Source::Refused};

  std::optional<absl::StatusOr<Value>> outcome = waitFor(*flight, timeout);
  WaitGraph::get().remove();
  if (outcome)
    return {*std::move(outcome), Source::Joined};
  MutexLock lock(shard.mutex);
  ++shard.stats.abandoned;
  return {absl::DeadlineExceededError(
              absl::StrCat("key ", key.digest.toHex(),
                           ": another thread was still making it after ",
                           absl::FormatDuration(timeout))),
          Source::Joined};
}

absl::StatusOr<FlightCache::Value>
FlightCache::finish(Shard &shard, const CacheKey &key, Flight &flight,
                    absl::StatusOr<Value> outcome) {
  // What made it forked, and this is the child: nobody waits here.
  if (isInherited())
    return outcome;

  Garbage garbage;
  {
    // Held throughout, so that nothing is taken in, and no `clear` comes,
    // between the looks at the shard.
    MutexLock insertionLock(insertion);
    bool keep;
    {
      MutexLock lock(shard.mutex);
      ++shard.stats.made;
      if (!outcome.ok())
        ++shard.stats.failures;
      // Since a `clear` the key may have a flight again, which is another's.
      auto ofKey = shard.flights.find(key);
      bool detached =
          ofKey == shard.flights.end() || ofKey->second.get() != &flight;
      keep = outcome.ok() && policy.keep && !detached;
      auto kept = shard.entries.find(key);
      if (keep && kept != shard.entries.end()) {
        if (policy.replace) {
          eraseLocked(shard, kept->second, garbage);
        } else {
          outcome = *shard.use(key);
          keep = false;
        }
      }
      if (!keep && !detached)
        shard.flights.erase(ofKey);
    }
    if (keep) {
      bool fits = reserveLocked(*outcome, garbage);
      // At once, so that nobody finds neither flight nor entry.
      MutexLock lock(shard.mutex);
      if (fits)
        addLocked(shard, key, *outcome);
      shard.flights.erase(key);
    }
  }

  MutexLock lock(flight.mutex);
  flight.outcome = outcome;
  flight.done = true;
  flight.landed.notifyAll();
  return outcome;
}

FlightCache::Found FlightCache::find(const CacheKey &key) {
  Shard &shard = shardOf(key);
  MutexLock lock(shard.mutex);
  ++shard.stats.lookups;
  Found found;
  found.generation = shard.generation;
  if (!policy.use)
    return found;
  if (const Value *value = shard.use(key)) {
    ++shard.stats.lookupHits;
    shard.savedNanoseconds += value->costNanoseconds;
    found.value = *value;
  }
  return found;
}

void FlightCache::insert(const CacheKey &key, Value value,
                         std::optional<uint64_t> generation) {
  if (!policy.keep)
    return;
  Shard &shard = shardOf(key);
  Garbage garbage;
  MutexLock insertionLock(insertion);
  {
    MutexLock lock(shard.mutex);
    if (generation && *generation != shard.generation)
      return;
    auto kept = shard.entries.find(key);
    if (kept != shard.entries.end()) {
      if (!policy.replace)
        return;
      eraseLocked(shard, kept->second, garbage);
    }
  }
  if (!reserveLocked(value, garbage))
    return;
  MutexLock lock(shard.mutex);
  addLocked(shard, key, std::move(value));
}

bool FlightCache::reserveLocked(const Value &value, Garbage &garbage) {
  uint64_t needed = footprint(value);
  if (needed > capacityBytes)
    return false;
  while (keptBytes > capacityBytes - needed) {
    // A hit may come between the look at a shard and the eviction from it, and
    // the entry be one that was used just now. Nothing is taken in or dropped
    // meanwhile: no shard that had an entry has none.
    Shard *oldest = nullptr;
    int64_t oldestUse = 0;
    for (Shard &shard : shards) {
      MutexLock lock(shard.mutex);
      if (shard.byUse.empty())
        continue;
      int64_t lastUse = shard.byUse.back().lastUse;
      if (!oldest || lastUse < oldestUse) {
        oldest = &shard;
        oldestUse = lastUse;
      }
    }
    MutexLock lock(oldest->mutex);
    ++oldest->stats.evictions;
    eraseLocked(*oldest, oldest->byUse.back(), garbage);
  }
  return true;
}

void FlightCache::addLocked(Shard &shard, const CacheKey &key, Value value) {
  auto [it, isNew] = shard.entries.try_emplace(key);
  Entry &entry = it->second;
  entry.key = &it->first;
  entry.lastUse = now();
  keptBytes += footprint(value);
  ++shard.stats.inserted;
  ++shard.stats.entries;
  shard.stats.bytes += footprint(value);
  entry.value = std::move(value);
  shard.byUse.push_front(entry);
}

void FlightCache::eraseLocked(Shard &shard, Entry &entry, Garbage &garbage) {
  keptBytes -= footprint(entry.value);
  --shard.stats.entries;
  shard.stats.bytes -= footprint(entry.value);
  garbage.push_back(std::move(entry.value.object));
  shard.byUse.remove(entry);
  // Not by `*entry.key`: a reference into what is erased.
  shard.entries.erase(shard.entries.find(*entry.key));
}

void FlightCache::clear() {
  Garbage garbage;
  MutexLock insertionLock(insertion);
  for (Shard &shard : shards) {
    MutexLock lock(shard.mutex);
    ++shard.generation;
    shard.flights.clear();
    while (!shard.byUse.empty())
      eraseLocked(shard, shard.byUse.back(), garbage);
  }
}

FlightCache::Stats FlightCache::getStats() const {
  Stats sum;
  // What is evicted from a shard to make room in another is not counted twice.
  MutexLock insertionLock(insertion);
  for (const Shard &shard : shards) {
    MutexLock lock(shard.mutex);
    const Stats &stats = shard.stats;
    sum.requests += stats.requests;
    sum.kept += stats.kept;
    sum.joined += stats.joined;
    sum.made += stats.made;
    sum.refused += stats.refused;
    sum.failures += stats.failures;
    sum.abandoned += stats.abandoned;
    sum.lookups += stats.lookups;
    sum.lookupHits += stats.lookupHits;
    sum.inserted += stats.inserted;
    sum.evictions += stats.evictions;
    sum.entries += stats.entries;
    sum.bytes += stats.bytes;
    sum.timeSaved += absl::Nanoseconds(shard.savedNanoseconds);
  }
  return sum;
}

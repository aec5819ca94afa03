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

  /// The wait of the calling thread for `flight`, noted as long as this lives:
  /// a thread that is cancelled waits no longer. None where it would wait for
  /// itself: what it leads would never land.
  class Edge {
  public:
    explicit Edge(const Flight &flight)
        : graph(get()), isNoted(graph.add(flight)) {}
    ~Edge() {
      if (isNoted)
        graph.remove();
    }
    Edge(const Edge &) = delete;
    Edge &operator=(const Edge &) = delete;

    explicit operator bool() const { return isNoted; }

  private:
    WaitGraph &graph;
    const bool isNoted;
  };

private:
  /// Returns false where the calling thread would wait for itself.
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

absl::Status FlightCache::runGuarded(const char *what,
                                     llvm::function_ref<absl::Status()> body) {
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
        absl::StrCat(what, " threw an exception: ", exception.what()));
  } catch (...) {
    return absl::InternalError(
        absl::StrCat(what, " threw something that is no std::exception"));
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

FlightCache::Entry::~Entry() {
  for (std::atomic<Use *> &use : uses)
    delete use.load(std::memory_order_relaxed);
}

int64_t FlightCache::Entry::getLastUse() const {
  int64_t last = listedUse;
  for (const std::atomic<Use *> &part : uses)
    if (const Use *use = part.load(std::memory_order_acquire))
      last = std::max(last, use->last.load(std::memory_order_relaxed));
  return last;
}

/// Another owner of `object`, whose count of owners is on cache lines of its own.
static std::shared_ptr<const void>
makeOwner(const std::shared_ptr<const void> &object) {
  struct alignas(64) Owner {
    explicit Owner(std::shared_ptr<const void> object)
        : object(std::move(object)) {}
    std::shared_ptr<const void> object;
  };
  return {std::make_shared<Owner>(object), object.get()};
}

FlightCache::Value FlightCache::useLocked(const CacheKey &key,
                                          const ReadLock &lock) {
  auto &map = entries[shardOf(key)];
  auto it = map.find(key);
  if (it == map.end())
    return Value();
  const Value &value = it->second->value;
  std::atomic<Use *> &part = it->second->uses[lock.getPart()];
  Use *use = part.load(std::memory_order_relaxed);
  if (!use) {
    use = new Use{makeOwner(value.object)};
    part.store(use, std::memory_order_release);
  }
  use->last.store(now(), std::memory_order_relaxed);
  return {use->object, value.bytes, value.costNanoseconds};
}

FlightCache::Value FlightCache::answerLocked(const CacheKey &key,
                                             ReadLock &lock) {
  ReadCounts &counts = lock.getData();
  Value value = useLocked(key, lock);
  if (value) {
    ++counts.kept;
    counts.savedNanoseconds =
        addSaturated(counts.savedNanoseconds, value.costNanoseconds);
  }
  return value;
}

FlightCache::Answer FlightCache::getOrMake(const CacheKey &key, Make make,
                                           absl::Duration timeout) {
  {
    ReadLock lock(reading);
    ++lock.getData().requests;
    if (policy.use)
      if (Value value = answerLocked(key, lock))
        return {std::move(value), Source::Kept};
  }

  Shard &shard = shards[shardOf(key)];
  std::shared_ptr<Flight> flight;
  bool leads;
  {
    MutexLock lock(shard.mutex);
    std::shared_ptr<Flight> &ofKey = shard.flights[key];
    leads = !ofKey;
    if (leads) {
      // A flight may have landed since the look.
      if (policy.use) {
        ReadLock readLock(reading);
        if (Value value = answerLocked(key, readLock)) {
          shard.flights.erase(key);
          return {std::move(value), Source::Kept};
        }
      }
      ofKey = std::make_shared<Flight>();
    }
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
    absl::Status status = runGuarded("the creation", [&]() -> absl::Status {
      made = make();
      return made.status();
    });
    if (!status.ok())
      made = status;
    return {landing.land(std::move(made)), Source::Made};
  }

  WaitGraph::Edge edge(*flight);
  {
    MutexLock lock(shard.mutex);
    ++(edge ? shard.stats.joined : shard.stats.refused);
  }
  if (!edge)
    return {absl::FailedPreconditionError(absl::StrCat(
                "key ", key.digest.toHex(),
                ": asked for by what is making it, on this thread or through "
                "threads that wait for one another")),
            Source::Refused};

  if (std::optional<absl::StatusOr<Value>> outcome = waitFor(*flight, timeout))
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
      if (keep && policy.replace) {
        WriteLock writeLock(reading);
        auto &map = entries[shardOf(key)];
        if (auto kept = map.find(key); kept != map.end())
          eraseLocked(*kept->second, garbage);
      } else if (keep) {
        ReadLock readLock(reading);
        if (Value kept = useLocked(key, readLock)) {
          garbage.push_back(std::move(outcome->object));
          outcome = std::move(kept);
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
        addLocked(key, *outcome);
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
  ReadLock lock(reading);
  ReadCounts &counts = lock.getData();
  ++counts.lookups;
  Found found;
  found.generation = generation;
  if (!policy.use)
    return found;
  found.value = useLocked(key, lock);
  if (found.value) {
    ++counts.lookupHits;
    counts.savedNanoseconds =
        addSaturated(counts.savedNanoseconds, found.value.costNanoseconds);
  }
  return found;
}

void FlightCache::insert(const CacheKey &key, Value value,
                         std::optional<uint64_t> expected) {
  if (!policy.keep)
    return;
  Garbage garbage;
  MutexLock insertionLock(insertion);
  {
    WriteLock lock(reading);
    if (expected && *expected != generation)
      return;
    auto &map = entries[shardOf(key)];
    if (auto kept = map.find(key); kept != map.end()) {
      if (!policy.replace)
        return;
      eraseLocked(*kept->second, garbage);
    }
  }
  if (reserveLocked(value, garbage))
    addLocked(key, std::move(value));
}

FlightCache::Entry &FlightCache::findOldestLocked() {
  // Hits go on meanwhile. What is in place since the search began was used
  // later than anything that is not in place.
  int64_t begin = now();
  while (true) {
    auto first = byUse.begin();
    Entry &entry = *first->second;
    int64_t lastUse = entry.getLastUse();
    if (lastUse == entry.listedUse || entry.listedUse >= begin)
      return entry;
    auto node = byUse.extract(first);
    node.value().first = entry.listedUse = lastUse;
    byUse.insert(std::move(node));
  }
}

bool FlightCache::reserveLocked(const Value &value, Garbage &garbage) {
  uint64_t needed = footprint(value);
  if (needed > capacityBytes)
    return false;
  while (keptBytes > capacityBytes - needed) {
    // A hit may come between the search and the eviction, and the entry be one
    // that was used just now.
    Entry &oldest = findOldestLocked();
    WriteLock lock(reading);
    ++evictions;
    eraseLocked(oldest, garbage);
  }
  return true;
}

void FlightCache::addLocked(const CacheKey &key, Value value) {
  keptBytes += footprint(value);
  ++inserted;
  auto entry = std::make_unique<Entry>();
  entry->key = key;
  entry->value = std::move(value);
  entry->listedUse = now();
  byUse.emplace(entry->listedUse, entry.get());
  WriteLock lock(reading);
  entries[shardOf(key)].emplace(key, std::move(entry));
}

void FlightCache::eraseLocked(Entry &entry, Garbage &garbage) {
  keptBytes -= footprint(entry.value);
  garbage.push_back(std::move(entry.value.object));
  for (std::atomic<Use *> &part : entry.uses)
    if (Use *use = part.load(std::memory_order_relaxed))
      garbage.push_back(std::move(use->object));
  byUse.erase({entry.listedUse, &entry});
  auto &map = entries[shardOf(entry.key)];
  map.erase(map.find(entry.key));
}

void FlightCache::clear() {
  Garbage garbage;
  MutexLock insertionLock(insertion);
  for (Shard &shard : shards) {
    MutexLock lock(shard.mutex);
    shard.flights.clear();
  }
  WriteLock lock(reading);
  ++generation;
  while (!byUse.empty())
    eraseLocked(*byUse.begin()->second, garbage);
}

FlightCache::Stats FlightCache::getStats() const {
  Stats sum;
  {
    MutexLock lock(insertion);
    sum.inserted = inserted;
    sum.evictions = evictions;
    sum.entries = byUse.size();
    sum.bytes = keptBytes;
  }
  for (const Shard &shard : shards) {
    MutexLock lock(shard.mutex);
    sum.joined += shard.stats.joined;
    sum.made += shard.stats.made;
    sum.refused += shard.stats.refused;
    sum.failures += shard.stats.failures;
    sum.abandoned += shard.stats.abandoned;
  }
  reading.visitParts([&](const ReadCounts &counts) {
    sum.requests += counts.requests;
    sum.kept += counts.kept;
    sum.lookups += counts.lookups;
    sum.lookupHits += counts.lookupHits;
    sum.timeSaved += absl::Nanoseconds(counts.savedNanoseconds);
  });
  return sum;
}

//===- ObjectCache.cpp - Live objects, made once --------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiled with exceptions: a thread that ends in a creation unwinds through
// here.
//
//===----------------------------------------------------------------------===//

#include "context_pool/ObjectCache.h"

#include "context_pool/cache/FlightCache.h"

#include "absl/strings/str_cat.h"

#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;

ObjectCacheCore::ObjectCacheCore(uint64_t memoryBytes)
    : cache(std::make_unique<FlightCache>(memoryBytes)) {}

ObjectCacheCore::~ObjectCacheCore() {
  // Its locks may be held for ever.
  if (cache->isInherited())
    (void)cache.release(); // NOLINT(bugprone-unused-return-value)
}

absl::StatusOr<std::shared_ptr<const void>>
ObjectCacheCore::getOrCreate(const CacheKey &key,
                             llvm::function_ref<absl::StatusOr<Sized>()> create,
                             absl::Duration timeout) {
  if (cache->isInherited())
    return absl::FailedPreconditionError(
        "object cache: made before a fork, expected one of this process");
  FlightCache::Answer answer = cache->getOrMake(
      key,
      [&]() -> absl::StatusOr<FlightCache::Value> {
        absl::StatusOr<Sized> created = create();
        if (!created.ok())
          return created.status();
        if (!created->object)
          return absl::InvalidArgumentError(absl::StrCat(
              "key ", key.digest.toHex(), ": what was created is null"));
        FlightCache::Value value;
        value.object = std::move(created->object);
        value.bytes = created->bytes;
        return value;
      },
      timeout);
  if (!answer.value.ok())
    return answer.value.status();
  return std::move(answer.value->object);
}

std::shared_ptr<const void> ObjectCacheCore::lookup(const CacheKey &key) {
  return cache->isInherited() ? nullptr : cache->find(key).value.object;
}

void ObjectCacheCore::clear() {
  if (!cache->isInherited())
    cache->clear();
}

ObjectCacheStats ObjectCacheCore::getStats() const {
  if (cache->isInherited())
    return ObjectCacheStats();
  FlightCache::Stats kept = cache->getStats();
  ObjectCacheStats stats;
  stats.requests = kept.requests;
  stats.hits = kept.kept;
  stats.joined = kept.joined;
  stats.creations = kept.made;
  stats.refused = kept.refused;
  stats.failures = kept.failures;
  stats.abandoned = kept.abandoned;
  stats.lookups = kept.lookups;
  stats.lookupHits = kept.lookupHits;
  stats.lookupMisses = kept.lookups - kept.lookupHits;
  stats.evictions = kept.evictions;
  stats.entries = kept.entries;
  stats.bytes = kept.bytes;
  return stats;
}

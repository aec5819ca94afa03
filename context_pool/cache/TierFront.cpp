//===- TierFront.cpp - A tier as the cache uses it ------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/TierFront.h"

#include "absl/strings/str_cat.h"

#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::detail;

TierFront::TierFront(std::unique_ptr<Tier> tier) : tier(std::move(tier)) {}

TierFront::~TierFront() {
  std::optional<Thread> ending;
  {
    MutexLock lock(mutex);
    stopping = true;
    workCame.notifyOne();
    ending = std::exchange(writer, std::nullopt);
  }
}

void TierFront::noteFault(const absl::Status &status) {
  MutexLock lock(mutex);
  ++errors;
  lastError = status;
}

std::optional<Artifact> TierFront::get(const CacheKey &key, bool mayPut) {
  const uint64_t begin = getEpoch();
  absl::StatusOr<TierFound> found = tier->find(key);
  if (!found.ok()) {
    noteFault(found.status());
    return std::nullopt;
  }
  if (found->artifact && found->isOld && mayPut)
    put(key, *found->artifact, /*replace=*/false, /*claim=*/nullptr, begin);
  return std::move(found->artifact);
}

TierFront::Claimed TierFront::claim(const CacheKey &key, absl::Duration limit) {
  absl::StatusOr<std::unique_ptr<CompileClaim>> claim = tier->claim(key, limit);
  if (claim.ok())
    return {*std::move(claim), /*lookAgain=*/true};
  if (!absl::IsUnimplemented(claim.status()))
    noteFault(claim.status());
  return {};
}

void TierFront::put(const CacheKey &key, const Artifact &artifact, bool replace,
                    std::unique_ptr<CompileClaim> claim,
                    uint64_t epochOfBegin) {
  const uint64_t bytes = artifact.getBytes().size();
  absl::Status fault = tier->checkReady();
  // A claim that is not passed on is released after the lock: parameters are
  // destroyed after local variables.
  MutexLock lock(mutex);
  if (clears != 0 || epochOfBegin != epoch.load())
    return;
  if (!fault.ok()) {
    ++errors;
    unflushed.Update(fault);
    lastError = std::move(fault);
    return;
  }
  absl::Status problem;
  if (bytes > tier->getMaxArtifactBytes()) {
    problem = absl::ResourceExhaustedError(absl::StrCat(
        "key ", key.digest.toHex(), ": an artifact of ", bytes,
        " bytes, where at most ", tier->getMaxArtifactBytes(), " are kept"));
  } else if (queue.size() == maxQueuedWrites ||
             // One that is larger than the bound is not dropped for ever.
             (!queue.empty() && queuedBytes + bytes > maxQueuedBytes)) {
    problem = absl::ResourceExhaustedError(
        absl::StrCat("key ", key.digest.toHex(), ": ", queue.size(),
                     " writes of ", queuedBytes, " bytes are waiting"));
  } else if (!writer) {
    absl::StatusOr<Thread> started =
        Thread::start(Thread::compilerStackBytes, [this] { run(); });
    if (started.ok())
      writer = *std::move(started);
    else
      problem = started.status();
  }
  if (!problem.ok()) {
    ++dropped;
    unflushed.Update(problem);
    lastError = std::move(problem);
    return;
  }
  queuedBytes += bytes;
  queue.push_back({++lastNumber, {key, artifact, replace}, std::move(claim)});
  workCame.notifyOne();
}

void TierFront::run() {
  MutexLock lock(mutex);
  while (true) {
    while (queue.empty() && !stopping)
      workCame.wait(mutex);
    if (queue.empty())
      return;
    writingFrom = queue.front().number;
    std::vector<absl::Status> results;
    {
      std::vector<TierWrite> batch;
      std::vector<std::unique_ptr<CompileClaim>> claims;
      uint64_t bytes = 0;
      while (!queue.empty() && batch.size() != tier->getMaxWrites() &&
             (batch.empty() ||
              bytes + queue.front().getBytes() <= maxBytesAtOnce)) {
        bytes += queue.front().getBytes();
        batch.push_back(std::move(queue.front().write));
        claims.push_back(std::move(queue.front().claim));
        queue.pop_front();
      }
      queuedBytes -= bytes;
      lock.unlock();
      results = tier->putAll(batch);
    }
    lock.lock();
    writingFrom.reset();
    for (const absl::Status &result : results) {
      if (result.ok()) {
        ++writes;
        continue;
      }
      ++errors;
      lastError = result;
      unflushed.Update(result);
    }
    workWent.notifyAll();
  }
}

void TierFront::beginClear() {
  {
    // Their claims are released without the lock, and before the wait.
    std::deque<QueuedWrite> forgotten;
    MutexLock lock(mutex);
    ++clears;
    epoch.fetch_add(1);
    forgotten.swap(queue);
    queuedBytes = 0;
    workWent.notifyAll();
  }
  {
    MutexLock lock(mutex);
    while (writingFrom)
      workWent.wait(mutex);
  }
  if (absl::Status status = tier->clear(); !status.ok())
    noteFault(status);
}

void TierFront::endClear() {
  MutexLock lock(mutex);
  --clears;
  epoch.fetch_add(1);
}

/// Whether the write with that number, and those before it, are done or
/// forgotten.
bool TierFront::isSettledLocked(uint64_t number) const {
  if (writingFrom)
    return number < *writingFrom;
  return queue.empty() || number < queue.front().number;
}

absl::Status TierFront::flush() {
  MutexLock lock(mutex);
  const uint64_t last = lastNumber;
  while (!isSettledLocked(last))
    workWent.wait(mutex);
  return std::exchange(unflushed, absl::OkStatus());
}

CacheTierStats TierFront::getStats() const {
  CacheTierStats stats = tier->getStats();
  stats.hits = hits.load();
  MutexLock lock(mutex);
  stats.writes = writes;
  stats.errors = errors;
  stats.dropped = dropped;
  if (!lastError.ok())
    stats.lastError = lastError.ToString();
  return stats;
}

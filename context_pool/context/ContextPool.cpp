//===- ContextPool.cpp - Warm contexts for compiler threads ---------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ContextPool.h"

#include "context_pool/context/PoolState.h"

#include "absl/strings/str_cat.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Compiler.h"

#include <pthread.h>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;

//===----------------------------------------------------------------------===//
// The slots of a thread
//===----------------------------------------------------------------------===//

namespace {

/// The slots of one thread, one for each pool that it used. Keeps the pools'
/// states alive, so that none is found at the address of another.
class ThreadSlots {
public:
  ~ThreadSlots();
  ThreadSlot *find(const PoolState &pool) const {
    for (const Entry &entry : entries)
      if (entry.pool.get() == &pool)
        return entry.slot;
    return nullptr;
  }
  void add(std::shared_ptr<PoolState> pool, ThreadSlot &slot);

private:
  struct Entry {
    std::shared_ptr<PoolState> pool;
    ThreadSlot *slot;
  };
  llvm::SmallVector<Entry, 2> entries;
};

} // namespace

static thread_local ThreadSlots threadSlots;

// What a thread looks at first. Without constructors and destructors, so that a
// read is a load, and works before and after the life of `threadSlots`.
static thread_local const PoolState *latestPool = nullptr;
static thread_local ThreadSlot *latestSlot = nullptr;
static thread_local bool threadExits = false;

// In a child nothing is the latest, so that only what is looked up has to be
// asked whether it was inherited, and a warm lease has not.
[[maybe_unused]] static const int registered =
    pthread_atfork(nullptr, nullptr, [] { latestPool = nullptr; });

ThreadSlots::~ThreadSlots() {
  latestPool = nullptr;
  latestSlot = nullptr;
  threadExits = true;
  for (Entry &entry : entries)
    if (!entry.pool->isInherited())
      entry.pool->removeSlot(*entry.slot);
}

void ThreadSlots::add(std::shared_ptr<PoolState> pool, ThreadSlot &slot) {
  // A thread may outlive many pools.
  llvm::erase_if(entries, [](Entry &entry) {
    if (!entry.pool->isClosed() || entry.pool->isInherited())
      return false;
    if (latestPool == entry.pool.get())
      latestPool = nullptr;
    entry.pool->removeSlot(*entry.slot);
    return true;
  });
  entries.push_back({std::move(pool), &slot});
}

/// The calling thread's slot in `pool`; null where it has none.
static ThreadSlot *findSlot(const PoolState &pool) {
  if (LLVM_LIKELY(latestPool == &pool))
    return latestSlot;
  if (threadExits || pool.isInherited())
    return nullptr;
  ThreadSlot *slot = threadSlots.find(pool);
  if (slot) {
    latestPool = &pool;
    latestSlot = slot;
  }
  return slot;
}

//===----------------------------------------------------------------------===//
// ContextLease
//===----------------------------------------------------------------------===//

mlir::MLIRContext *ContextLease::get() const { return &pooled->getContext(); }

absl::StatusOr<mlir::PassManager *>
ContextLease::getPassManager(llvm::StringRef pipeline) {
  return pooled->getPassManager(pipeline);
}

std::vector<CapturedDiagnostic> ContextLease::takeDiagnostics() {
  return pooled->takeDiagnostics();
}

void ContextLease::charge(uint64_t bytes) { pooled->charge(bytes); }

void ContextLease::retire() { pooled->requestRetirement(); }

void ContextLease::abandon() {
  PoolState &pool = std::exchange(pooled, nullptr)->getPool();
  if (!pool.isInherited())
    pool.abandon();
}

void ContextLease::returnContext(PooledContext &pooled) {
  PoolState &pool = pooled.getPool();
  if (LLVM_UNLIKELY(latestPool != &pool) && pool.isInherited())
    return;
  if (std::optional<Retirement> reason = pooled.endLease())
    return pool.retire(pooled, *reason);
  ThreadSlot *slot = findSlot(pool);
  if (!slot || !slot->put(pooled))
    return pool.giveBack(pooled);
  // From here on the context is anybody's; the thread's slots keep `pool`.
  if (LLVM_UNLIKELY(pool.wantsContexts()))
    if (PooledContext *reclaimed = slot->take())
      pool.giveBack(*reclaimed);
}

//===----------------------------------------------------------------------===//
// ContextPool
//===----------------------------------------------------------------------===//

static absl::Status validate(const ContextPoolOptions &options) {
  auto invalid = [](llvm::StringRef field, uint64_t value,
                    const std::string &expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "context pool: ", field.str(), " = ", value, ", expected ", expected));
  };
  if (options.minIdle > options.maxIdle)
    return invalid("minIdle", options.minIdle,
                   absl::StrCat("at most maxIdle = ", options.maxIdle));
  if (options.maxLive != 0 && options.minIdle > options.maxLive)
    return invalid("minIdle", options.minIdle,
                   absl::StrCat("at most maxLive = ", options.maxLive));
  if (options.maxLeasesPerContext == 0)
    return invalid("maxLeasesPerContext", 0, "at least 1");
  if (options.maxBytesPerContext == 0)
    return invalid("maxBytesPerContext", 0, "at least 1");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ContextPool>>
ContextPool::create(std::shared_ptr<const ContextTemplate> contextTemplate,
                    ContextPoolOptions options) {
  if (!contextTemplate)
    return absl::InvalidArgumentError(
        "context pool: contextTemplate is null, expected a template");
  if (absl::Status status = validate(options); !status.ok())
    return status;
  auto state = std::make_shared<PoolState>(std::move(contextTemplate), options);
  if (absl::Status status = state->start(); !status.ok())
    return status;
  return std::unique_ptr<ContextPool>(new ContextPool(std::move(state)));
}

ContextPool::ContextPool(std::shared_ptr<PoolState> state)
    : state(std::move(state)) {}

ContextPool::~ContextPool() {
  if (state->isInherited())
    state->leak();
  else
    state->close();
}

absl::StatusOr<ContextLease> ContextPool::acquire(absl::Duration timeout) {
  ThreadSlot *slot = findSlot(*state);
  if (LLVM_LIKELY(slot != nullptr))
    if (PooledContext *pooled = slot->take()) {
      // No other thread writes to it, so that the increment needs not be
      // atomic.
      slot->hits.store(slot->hits.load(std::memory_order_relaxed) + 1,
                       std::memory_order_relaxed);
      return ContextLease(*pooled);
    }

  if (state->isInherited())
    return state->inheritedError();

  ThreadSlot *newSlot = nullptr;
  absl::StatusOr<PooledContext *> pooled =
      state->acquire(timeout, slot || threadExits ? nullptr : &newSlot);
  if (newSlot)
    threadSlots.add(state, *newSlot);
  if (!pooled.ok())
    return pooled.status();
  return ContextLease(**pooled);
}

absl::Status ContextPool::prewarm(size_t contexts) {
  if (state->isInherited())
    return state->inheritedError();
  return state->prewarm(contexts);
}

void ContextPool::trim(size_t keepIdle) {
  if (!state->isInherited())
    state->trim(keepIdle);
}

ContextPoolStats ContextPool::getStats() const {
  return state->isInherited() ? ContextPoolStats() : state->getStats();
}

const ContextTemplate &ContextPool::getTemplate() const {
  return state->getTemplate();
}

const ContextPoolOptions &ContextPool::getOptions() const {
  return state->getOptions();
}

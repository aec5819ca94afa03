//===- ForkTest.cpp - What a forked child may do with a pool --------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/support/Fork.h"

#include "context_pool/ContextPool.h"
#include "context_pool/support/Thread.h"
#include "test/support/ForkedChild.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/ThreadPool.h"

#include <atomic>
#include <optional>
#include <thread>

using namespace ctxpool;
using namespace ctxpool::test;
using detail::ForkMark;

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CTXPOOL_NO_THREADS_IN_CHILD
#endif
#endif

namespace {

std::unique_ptr<ContextPool> makePool(
    std::shared_ptr<const ContextTemplate> contextTemplate = smallTemplate()) {
  auto pool = ContextPool::create(std::move(contextTemplate));
  EXPECT_THAT(pool, IsOk());
  return *std::move(pool);
}

/// A thread that holds the lock of a pool nearly all the time, so that a fork
/// finds it held.
class LockHolder {
public:
  explicit LockHolder(ContextPool &pool)
      : thread([this, &pool] {
          while (!stops) {
            pool.getStats();
            started = true;
          }
        }) {
    EXPECT_TRUE(eventually([&] { return started.load(); }));
  }
  ~LockHolder() {
    stops = true;
    thread.join();
  }

private:
  std::atomic<bool> stops{false}, started{false};
  std::thread thread;
};

/// Forks often enough to meet a lock that is held.
constexpr int forks = isSanitized ? 5 : 30;

TEST(ForkTest, AMarkTellsInAChildThatItWasInherited) {
  ForkMark mark;
  ForkMark copy = mark;

  EXPECT_EQ(runInChild([&] {
              ForkMark own;
              return mark.isInherited() && copy.isInherited() &&
                     !own.isInherited() &&
                     runInChild([&] {
                       return own.isInherited() && mark.isInherited();
                     }) == "exit 0";
            }),
            "exit 0");
  EXPECT_FALSE(mark.isInherited());
}

TEST(ForkTest, AThreadOfTheParentsCountsAsEndedInAChild) {
  PhaseGate gate;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(thread, Thread::start(Thread::compilerStackBytes,
                                                     [&] { gate.await(1); }));

  EXPECT_EQ(runInChild([&] {
              Thread moved = std::move(thread);
              moved.join();
              return true;
            }),
            "exit 0");
  gate.open(1);
}

TEST(ForkTest, AChildDestroysInheritedPoolsAndLeasesAndNeverWaits) {
  auto pool = makePool();
  std::optional<ContextLease> lease(*pool->acquire());
  LockHolder holder(*pool);
  for (int round = 0; round < forks; ++round)
    ASSERT_EQ(runInChild([&] {
                lease.reset();
                pool.reset();
                return true;
              }),
              "exit 0");
}

TEST(ForkTest, AChildLeavesTheContextsOfATemplateWithThreadsAlone) {
  llvm::DefaultThreadPool threads(llvm::hardware_concurrency(2));
  ContextTemplateOptions options = smallTemplateOptions();
  options.threadPool = &threads;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(contextTemplate,
                               ContextTemplate::create(std::move(options)));
  auto pool = makePool(contextTemplate);
  std::optional<ContextLease> lease(*pool->acquire());

  EXPECT_EQ(runInChild([&] {
              lease.reset();
              pool.reset();
              contextTemplate.reset();
              return true;
            }),
            "exit 0");
}

TEST(ForkTest, AnInheritedPoolRefusesToLendInAChild) {
  auto pool = makePool();
  pool->acquire()->release(); // Into the slot of this thread.
  LockHolder holder(*pool);
  auto isRefusal = [](const absl::Status &status) {
    return status.code() == absl::StatusCode::kFailedPrecondition &&
           status.message().find("made before a fork") != std::string::npos;
  };
  for (int round = 0; round < forks; ++round)
    ASSERT_EQ(runInChild([&] {
                pool->trim();
                return isRefusal(pool->acquire().status()) &&
                       isRefusal(pool->prewarm(1)) &&
                       pool->getStats().leases == 0;
              }),
              "exit 0");
  EXPECT_THAT(pool->acquire(), IsOk());
}

TEST(ForkTest, AnInheritedLeaseIsAbandonedInAChildWithoutALock) {
  auto pool = makePool();
  std::optional<ContextLease> lease(*pool->acquire());
  LockHolder holder(*pool);
  for (int round = 0; round < forks; ++round)
    ASSERT_EQ(runInChild([&] {
                lease->abandon();
                return true;
              }),
              "exit 0");
}

TEST(ForkTest, ThreadsOfAChildEndWithoutTheInheritedPoolsLock) {
  // The thread that forks is the one of the child, and has a slot in the pool.
  auto pool = makePool();
  LockHolder holder(*pool);
  std::thread([&] {
    pool->acquire()->release();
    for (int round = 0; round < forks; ++round)
      ASSERT_EQ(runInChild([] { return true; }, ChildExit::Exit), "exit 0");
  }).join();
}

TEST(ForkTest, AChildMakesAPoolOfItsOwn) {
#ifdef CTXPOOL_NO_THREADS_IN_CHILD
  GTEST_SKIP() << "ThreadSanitizer has no threads in a forked child";
#endif
  auto pool = makePool();
  pool->acquire()->release();
  // Until the refill thread rests: a child would wait for ever for what MLIR
  // makes on first use, if that thread was making it.
  ASSERT_TRUE(eventually([&] { return pool->getStats().idle == 2; }));
  LockHolder holder(*pool);
  EXPECT_EQ(runInChild([&] {
              auto own = ContextPool::create(smallTemplate());
              if (!own.ok())
                return false;
              bool works = true;
              auto compile = [&] {
                for (int round = 0; round < 3; ++round) {
                  auto lease = (*own)->acquire();
                  works &=
                      lease.ok() && lease->parse("func.func private @f()").ok();
                }
              };
              compile();
              std::thread(compile).join();
              works &= (*own)->getStats().leases == 6;
              own->reset();
              pool.reset();
              return works;
            }),
            "exit 0");
}

} // namespace

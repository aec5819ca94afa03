//===- ContextPoolStressTest.cpp - Races on a ContextPool -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ContextPool.h"

#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"
#include "test/support/TestFiles.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/Parser/Parser.h"

#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::test;

namespace {

constexpr unsigned threadCount = 64;

/// The seed of the random schedules.
unsigned testSeed() {
  return unsigned(numberFromEnvironment("CONTEXT_POOL_TEST_SEED", 1));
}

/// Whether the refill thread or the callers make and destroy contexts.
class ContextPoolStressTest : public testing::TestWithParam<bool> {
protected:
  std::unique_ptr<ContextPool> makePool(ContextPoolOptions options) {
    options.backgroundRefill = GetParam();
    auto pool = ContextPool::create(smallTemplate(), options);
    EXPECT_THAT(pool, IsOk());
    return *std::move(pool);
  }

  testing::ScopedTrace trace{__FILE__, __LINE__,
                             "CONTEXT_POOL_TEST_SEED=" +
                                 std::to_string(testSeed())};
};

INSTANTIATE_TEST_SUITE_P(, ContextPoolStressTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool> &info) {
                           return info.param ? "Background" : "Foreground";
                         });

/// Uses a context in a way in which a second user at the same time would show.
void useAlone(ContextLease &lease) {
  EXPECT_FALSE(lease->allowsUnregisteredDialects());
  lease->allowUnregisteredDialects(true);
  EXPECT_TRUE(mlir::parseSourceString<mlir::ModuleOp>(
      "func.func @f() { \"a.b\"() : () -> () return }", lease.get()));
}

TEST_P(ContextPoolStressTest, RandomReturnsTrimsAndDiscards) {
  ContextPoolOptions options;
  options.maxLive = 4;
  options.maxLeasesPerContext = 50;
  options.maxBytesPerContext = 16 << 20;
  auto pool = makePool(options);

  std::atomic<uint64_t> leases{0};
  std::atomic<int> leased{0};
  // Leases that their thread leaves to another one.
  std::mutex mutex;
  ContextLease abandoned;

  auto run = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int round = 0; round < 40; ++round) {
      if (random() % 32 == 0)
        pool->trim(random() % 4);
      if (random() % 16 == 0) {
        EXPECT_LE(pool->getStats().live, 4u);
      }
      absl::StatusOr<ContextLease> lease =
          pool->acquire(random() % 8 == 0 ? absl::Microseconds(100)
                                          : absl::InfiniteDuration());
      if (!lease.ok()) {
        EXPECT_THAT(lease,
                    StatusIs(absl::StatusCode::kDeadlineExceeded, "maxLive"));
        continue;
      }
      ++leases;
      EXPECT_LE(++leased, 4);
      useAlone(*lease);
      --leased;
      switch (random() % 4) {
      case 0:
        lease->retire();
        break;
      case 1:
        lease->charge(uint64_t(1) << 20);
        break;
      case 2: {
        // Returns the previous one, and leaves this one to the next thread that
        // comes here, or to the one below.
        std::lock_guard<std::mutex> lock(mutex);
        abandoned = *std::move(lease);
        break;
      }
      default:
        break;
      }
      // Nobody may wait for a context that is abandoned for good.
      std::lock_guard<std::mutex> lock(mutex);
      if (random() % 2 == 0 || round % 8 == 7)
        abandoned.release();
    }
    std::lock_guard<std::mutex> lock(mutex);
    abandoned.release();
  };
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < threadCount; ++thread)
    threads.emplace_back(run, testSeed() * threadCount + thread);
  for (std::thread &thread : threads)
    thread.join();

  ContextPoolStats stats = pool->getStats();
  EXPECT_EQ(stats.leases, leases);
  EXPECT_EQ(stats.leases,
            stats.threadLocalHits + stats.sharedHits + stats.foregroundClones);
  EXPECT_EQ(stats.clones, stats.foregroundClones + stats.backgroundClones);
  EXPECT_EQ(stats.leased, 0u);
  EXPECT_LE(stats.live, 4u);
  pool.reset();
  EXPECT_EQ(WitnessDialect::countAlive(), 0u);
}

TEST_P(ContextPoolStressTest, ThePoolIsDestroyedWhileLeasesReturn) {
  for (int round = 0; round < 5; ++round) {
    auto pool = makePool(ContextPoolOptions());
    PhaseGate gate;
    std::atomic<unsigned> holding{0};
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < threadCount; ++thread)
      threads.emplace_back([&, thread] {
        // Some have a context in their slot, too.
        if (thread % 2 == 0) {
          EXPECT_THAT(pool->acquire(), IsOk());
        }
        absl::StatusOr<ContextLease> lease = pool->acquire();
        EXPECT_THAT(lease, IsOk());
        ++holding;
        gate.await(1);
        useAlone(*lease);
      });
    EXPECT_TRUE(eventually([&] { return holding == threadCount; }));
    gate.open(1);
    pool.reset();
    for (std::thread &thread : threads)
      thread.join();
    EXPECT_EQ(WitnessDialect::countAlive(), 0u);
  }
}

TEST_P(ContextPoolStressTest, ThreadsComeAndGo) {
  ContextPoolOptions options;
  options.maxIdle = 8;
  auto pool = makePool(options);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 8; ++thread)
      threads.emplace_back([&] {
        for (int lease = 0; lease < 5; ++lease) {
          absl::StatusOr<ContextLease> acquired = pool->acquire();
          EXPECT_THAT(acquired, IsOk());
          useAlone(*acquired);
        }
      });
    for (std::thread &thread : threads)
      thread.join();
    EXPECT_LE(pool->getStats().idle, 8u);
  }
  EXPECT_EQ(pool->getStats().leases, 800u);
}

TEST_P(ContextPoolStressTest, StorageOutlivesTheThreadThatMadeIt) {
  auto pool = makePool(ContextPoolOptions());
  for (int round = 0; round < 50; ++round) {
    ContextLease lease;
    mlir::OwningOpRef<mlir::ModuleOp> module;
    std::thread([&] {
      absl::StatusOr<ContextLease> acquired = pool->acquire();
      ASSERT_THAT(acquired, IsOk());
      lease = *std::move(acquired);
      module = mlir::parseSourceString<mlir::ModuleOp>(
          "module attributes {a.x = distinct[0]<1>, a.y = distinct[1]<1>} {}",
          lease.get());
      ASSERT_TRUE(module);
    }).join();
    std::thread([&, moved = std::move(lease)]() mutable {
      std::string text;
      llvm::raw_string_ostream stream(text);
      module->print(stream);
      EXPECT_THAT(text, testing::HasSubstr("distinct[1]<1"));
      module = nullptr;
      moved.release();
    }).join();
  }
}

} // namespace

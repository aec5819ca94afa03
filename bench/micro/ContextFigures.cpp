//===- ContextFigures.cpp - Figures of templates and the pool -------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CompileMode.h"
#include "bench/ModuleSource.h"
#include "bench/ProcessInfo.h"
#include "bench/Statistics.h"
#include "bench/micro/Figure.h"
#include "bench/micro/MicroContexts.h"
#include "context_pool/ContextPool.h"
#include "context_pool/context/ContextReset.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ThreadPool.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

using namespace ctxpool;
using namespace ctxpool::bench;

using Samples = absl::StatusOr<std::vector<double>>;

//===----------------------------------------------------------------------===//
// R1: leases
//===----------------------------------------------------------------------===//

/// The least that a user of a context does with it.
static void touch(mlir::MLIRContext *context) {
  mlir::Type type = mlir::IntegerType::get(context, 32);
  asm volatile("" : : "r"(type.getAsOpaquePointer()) : "memory");
}

/// Acquires, touches and releases `rounds` times. Returns false when a lease
/// cannot be had.
static bool lease(ContextPool &pool, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    absl::StatusOr<ContextLease> lease = pool.acquire();
    if (!lease.ok())
      return false;
    touch(lease->get());
  }
  return true;
}

static absl::StatusOr<std::unique_ptr<ContextPool>> makeLeasePool() {
  // The rounds are far shorter than what a retirement is made up for in.
  ContextPoolOptions options;
  options.maxLeasesPerContext = ~uint64_t(0);
  return ContextPool::create(fullTemplate(), options);
}

constexpr int leaseRounds = 200000;

static Samples measureLease() {
  absl::StatusOr<std::unique_ptr<ContextPool>> pool = makeLeasePool();
  if (!pool.ok())
    return pool.status();
  lease(**pool, leaseRounds);
  std::vector<double> samples;
  for (int repetition = 0; repetition < repetitions; ++repetition)
    samples.push_back(nanosecondsOf([&] { lease(**pool, leaseRounds); }) /
                      leaseRounds);
  return samples;
}

/// What a round takes beyond the reset of the context and the touch.
static Samples measureLeaseWithoutReset() {
  absl::StatusOr<std::unique_ptr<ContextPool>> pool = makeLeasePool();
  if (!pool.ok())
    return pool.status();
  absl::StatusOr<std::unique_ptr<mlir::MLIRContext>> context =
      fullTemplate()->clone();
  if (!context.ok())
    return context.status();
  // As a pooled context has it.
  (*context)->getDiagEngine().registerHandler([](mlir::Diagnostic &) {});
  detail::ContextBaseline baseline(**context, nullptr);
  return interleave(
      [&] {
        return nanosecondsOf([&] { lease(**pool, leaseRounds); }) / leaseRounds;
      },
      [&] {
        return nanosecondsOf([&] {
                 for (int round = 0; round < leaseRounds; ++round) {
                   touch(context->get());
                   baseline.reset(**context);
                 }
               }) /
               leaseRounds;
      },
      [](double round, double reset) { return round - reset; });
}

/// Runs `body` on two threads that begin together. Returns the nanoseconds
/// until both are done.
static double onTwoThreads(const std::function<void()> &body) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread)
    threads.emplace_back([&] {
      ++ready;
      while (!go) {
      }
      body();
    });
  while (ready != 2) {
  }
  return nanosecondsOf([&] {
    go = true;
    for (std::thread &thread : threads)
      thread.join();
  });
}

static Samples measureTwoThreads() {
  absl::StatusOr<std::unique_ptr<ContextPool>> pool = makeLeasePool();
  if (!pool.ok())
    return pool.status();
  if (absl::Status status = (*pool)->prewarm(2); !status.ok())
    return status;
  // A rate is rounds over time, and two threads make twice the rounds. Each
  // side takes its first lease in a thread of its own, from the shared list.
  return ratios(
      [&] { return 2 / onTwoThreads([&] { lease(**pool, 4 * leaseRounds); }); },
      [&] {
        std::thread thread;
        return 1 / nanosecondsOf([&] {
                 thread = std::thread([&] { lease(**pool, 4 * leaseRounds); });
                 thread.join();
               });
      });
}

/// Locks that warm rounds on two threads take.
static Samples countLocks() {
  absl::StatusOr<std::unique_ptr<ContextPool>> pool = makeLeasePool();
  if (!pool.ok())
    return pool.status();
  if (absl::Status status = (*pool)->prewarm(2); !status.ok())
    return status;
  std::vector<double> samples;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    std::atomic<int> warm{0};
    std::atomic<uint64_t> before{0}, after{0};
    onTwoThreads([&] {
      lease(**pool, 1);
      if (++warm == 2)
        before = (*pool)->getStats().lockAcquisitions;
      while (warm != 2 || before == 0) {
      }
      lease(**pool, leaseRounds);
      if (++warm == 4)
        after = (*pool)->getStats().lockAcquisitions;
      while (warm < 4) {
      }
    });
    samples.push_back(double(after - before));
  }
  return samples;
}

static Samples measureGetPassManager() {
  absl::StatusOr<std::unique_ptr<ContextPool>> pool = makeLeasePool();
  if (!pool.ok())
    return pool.status();
  absl::StatusOr<ContextLease> lease = (*pool)->acquire();
  if (!lease.ok())
    return lease.status();
  constexpr int calls = 1000000;
  auto look = [&] {
    for (int call = 0; call < calls; ++call)
      if (!lease->getPassManager(linalgToLLVMPipeline).ok())
        return;
  };
  if (auto first = lease->getPassManager(linalgToLLVMPipeline); !first.ok())
    return first.status();
  look();
  std::vector<double> samples;
  for (int repetition = 0; repetition < repetitions; ++repetition)
    samples.push_back(nanosecondsOf(look) / calls);
  return samples;
}

//===----------------------------------------------------------------------===//
// R2: clones
//===----------------------------------------------------------------------===//

/// What a program without the library does.
static std::unique_ptr<mlir::MLIRContext> makeReference() {
  auto context = std::make_unique<mlir::MLIRContext>(allDialects());
  context->loadAllAvailableDialects();
  return context;
}

/// `measure` of making a clone over `measure` of making the reference. Making a
/// context takes a tenth longer or shorter from one time to the next, so that
/// each sample is of the medians of many.
static Samples
compareClone(const std::shared_ptr<const ContextTemplate> &contextTemplate,
             double (*measure)(const std::function<void()> &)) {
  std::unique_ptr<mlir::MLIRContext> made;
  auto makeClone = [&] { made = *contextTemplate->clone(); };
  auto makeOther = [&] { made = makeReference(); };
  std::vector<double> samples;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    constexpr int pairs = 31;
    std::vector<double> clones, references;
    for (int pair = 0; pair < 2 * pairs; ++pair) {
      // In the order A B B A, so that neither always follows the other.
      bool isClone = (pair / 2 + pair) % 2 == 0;
      made = nullptr;
      if (isClone)
        clones.push_back(measure(makeClone));
      else
        references.push_back(measure(makeOther));
    }
    samples.push_back(median(clones) / median(references));
  }
  return samples;
}

static double timeOf(const std::function<void()> &body) {
  return nanosecondsOf(body);
}

static double heapOf(const std::function<void()> &body) {
  size_t before = getHeapBytes();
  body();
  return double(getHeapBytes() - before);
}

static Samples comparePipelineClone() {
  ContextTemplateOptions options;
  options.populate = registerAll;
  options.preload.emplace();
  options.preloadForPipeline = linalgToLLVMPipeline;
  absl::StatusOr<std::shared_ptr<const ContextTemplate>> contextTemplate =
      ContextTemplate::create(std::move(options));
  if (!contextTemplate.ok())
    return contextTemplate.status();
  return compareClone(*contextTemplate, timeOf);
}

/// Clones and destructions on a compile thread whose contexts are replaced
/// every few requests.
static Samples countForegroundWork() {
  absl::StatusOr<const ModuleSource *> module = smallestModule();
  if (!module.ok())
    return module.status();
  ContextPoolOptions options;
  options.maxLeasesPerContext = 32;
  auto pool = ContextPool::create(fullTemplate(), options);
  if (!pool.ok())
    return pool.status();
  if (absl::Status status = (*pool)->prewarm(2); !status.ok())
    return status;
  std::vector<double> samples;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    ContextPoolStats before = (*pool)->getStats();
    for (int request = 0; request < 200; ++request) {
      absl::StatusOr<ContextLease> lease = (*pool)->acquire();
      if (!lease.ok())
        return lease.status();
      absl::StatusOr<Artifact> result = serveInLease(*lease, **module);
      if (!result.ok())
        return result.status();
    }
    ContextPoolStats after = (*pool)->getStats();
    if (after.retiredByLeases == before.retiredByLeases)
      return absl::InternalError("no context was replaced");
    samples.push_back(
        double(after.foregroundClones + after.foregroundDestroyed -
               before.foregroundClones - before.foregroundDestroyed));
  }
  return samples;
}

//===----------------------------------------------------------------------===//
// R3: requests
//===----------------------------------------------------------------------===//

/// Requests a second of the pool, over those of another mode. The pool preloads
/// what the module's pipeline depends on.
static Samples compareRequests(llvm::StringRef other) {
  absl::StatusOr<const ModuleSource *> module = smallestModule();
  if (!module.ok())
    return module.status();
  CompileSetup setup;
  setup.registry = &allDialects();
  setup.preload.emplace();
  setup.preloadForPipeline = (*module)->pipeline;
  absl::StatusOr<std::unique_ptr<CompileMode>> pool =
      createCompileMode("pool", setup);
  if (!pool.ok())
    return pool.status();
  absl::StatusOr<std::unique_ptr<CompileMode>> baseline =
      createCompileMode(other, setup);
  if (!baseline.ok())
    return baseline.status();
  absl::Status failure;
  auto serve = [&](CompileMode &mode, int requests) {
    return nanosecondsOf([&] {
             for (int request = 0; request < requests; ++request) {
               absl::StatusOr<Artifact> result = mode.serve(**module);
               if (!result.ok())
                 failure = result.status();
             }
           }) /
           requests;
  };
  std::vector<double> samples = ratios([&] { return serve(**baseline, 20); },
                                       [&] { return serve(**pool, 100); });
  if (!failure.ok())
    return failure;
  return samples;
}

//===----------------------------------------------------------------------===//
// R4: memory
//===----------------------------------------------------------------------===//

/// By how much, in percent, the most memory that the last half of many leases
/// reaches exceeds what the first half reached.
static Samples measureGrowth() {
  constexpr int leases = 100000, attributes = 100, samplesPerHalf = 500;
  std::vector<double> samples;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    auto pool = ContextPool::create(fullTemplate(), {});
    if (!pool.ok())
      return pool.status();
    uint64_t highest[2] = {0, 0};
    int64_t value = 0;
    for (int round = 0; round < leases; ++round) {
      absl::StatusOr<ContextLease> lease = (*pool)->acquire();
      if (!lease.ok())
        return lease.status();
      mlir::Builder builder(lease->get());
      for (int attribute = 0; attribute < attributes; ++attribute)
        builder.getI64IntegerAttr(++value);
      lease->release();
      if (round % (leases / 2 / samplesPerHalf) == 0) {
        uint64_t &ofHalf = highest[round >= leases / 2];
        ofHalf = std::max(ofHalf, getResidentBytes());
      }
    }
    samples.push_back((double(highest[1]) / double(highest[0]) - 1) * 100);
  }
  return samples;
}

/// The most resident memory, in MiB, while modules with a large constant each
/// pass through two contexts.
static Samples measureConstants() {
  constexpr size_t constantBytes = 1 << 20;
  std::vector<double> samples;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    ContextPoolOptions options;
    options.maxLive = 2;
    options.maxBytesPerContext = 64 << 20;
    auto pool = ContextPool::create(fullTemplate(), options);
    if (!pool.ok())
      return pool.status();
    uint64_t highest = 0;
    for (int round = 0; round < 1000; ++round) {
      absl::StatusOr<ContextLease> lease = (*pool)->acquire();
      if (!lease.ok())
        return lease.status();
      std::vector<char> data(constantBytes);
      std::memcpy(data.data(), &round, sizeof(round));
      auto type = mlir::RankedTensorType::get(
          {constantBytes}, mlir::IntegerType::get(lease->get(), 8));
      mlir::DenseElementsAttr::getFromRawBuffer(type, data);
      lease->charge(constantBytes);
      lease->release();
      highest = std::max(highest, getResidentBytes());
    }
    samples.push_back(double(highest) / (1 << 20));
  }
  return samples;
}

//===----------------------------------------------------------------------===//
// R5: threads
//===----------------------------------------------------------------------===//

/// Threads that appear or go while leases with a shared thread pool are taken.
static Samples countThreadChanges() {
  std::vector<double> samples;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    llvm::DefaultThreadPool threads(llvm::hardware_concurrency(2));
    ContextTemplateOptions options;
    options.populate = registerAll;
    options.threadPool = &threads;
    auto contextTemplate = ContextTemplate::create(std::move(options));
    if (!contextTemplate.ok())
      return contextTemplate.status();
    auto pool = ContextPool::create(*contextTemplate, {});
    if (!pool.ok())
      return pool.status();
    absl::StatusOr<const ModuleSource *> module = smallestModule();
    if (!module.ok())
      return module.status();
    // The thread pool starts its threads as tasks need them: here, all at once.
    std::atomic<unsigned> running{0};
    for (unsigned thread = 0; thread < threads.getMaxConcurrency(); ++thread)
      threads.async([&] {
        ++running;
        while (running != threads.getMaxConcurrency())
          std::this_thread::yield();
      });
    threads.wait();
    size_t before = countThreads(), most = before, fewest = before;
    for (int round = 0; round < 1000; ++round) {
      absl::StatusOr<ContextLease> lease = (*pool)->acquire();
      if (!lease.ok())
        return lease.status();
      if (round % 10 == 0)
        if (auto result = serveInLease(*lease, **module); !result.ok())
          return result.status();
      size_t now = countThreads();
      most = std::max(most, now);
      fewest = std::min(fewest, now);
    }
    samples.push_back(double(most - fewest));
  }
  return samples;
}

std::vector<Figure> ctxpool::bench::makeContextFigures() {
  constexpr auto atMost = Figure::Bound::AtMost;
  constexpr auto atLeast = Figure::Bound::AtLeast;
  auto clone = [](double (*measure)(const std::function<void()> &)) {
    return [measure] { return compareClone(fullTemplate(), measure); };
  };
  auto requests = [](const char *mode) {
    return [mode] { return compareRequests(mode); };
  };
  return {
      {"R1", "acquire, touch and release with the full reset, one thread",
       atMost, 250, "ns", measureLease},
      {"R1-own", "the pool's own part of it, without the reset", atMost, 25,
       "ns", measureLeaseWithoutReset},
      {"R1b", "rate of two threads over that of one", atLeast, 1.7, "x",
       measureTwoThreads},
      {"R1b-locks", "locks of the pool that warm leases on two threads take",
       atMost, 0, "", countLocks},
      {"R1c", "a warm getPassManager", atMost, 30, "ns", measureGetPassManager},
      {"R2", "clone over MLIRContext + loadAllAvailableDialects, time", atMost,
       1.0, "x", clone(timeOf)},
      {"R2-memory", "the same, heap", atMost, 1.02, "x", clone(heapOf)},
      {"R2b", "the same with preloadForPipeline of linalg to LLVM, time",
       atMost, 0.35, "x", comparePipelineClone},
      {"R2c", "clones and destructions on the compile thread of a warm pool",
       atMost, 0, "", countForegroundWork},
      {"R3", "requests/s of the smallest bundled module, pool over fresh",
       atLeast, 6, "x", requests("fresh")},
      {"R3b", "the same, pool over fresh-lazy", atLeast, 3, "x",
       requests("fresh-lazy")},
      {"R4", "growth over the last half of 100,000 leases, 100 attributes each",
       atMost, 2, "%", measureGrowth},
      {"R4b", "resident memory, 1,000 constants of 1 MiB, two contexts", atMost,
       400, "MiB", measureConstants},
      {"R5", "change of the thread count over 1,000 leases, shared thread pool",
       atMost, 0, "", countThreadChanges},
  };
}

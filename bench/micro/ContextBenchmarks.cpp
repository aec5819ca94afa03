//===- ContextBenchmarks.cpp - Google Benchmark cases of the pool ---------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/micro/Benchmarks.h"
#include "bench/micro/MicroContexts.h"
#include "context_pool/ContextPool.h"

#include "benchmark/benchmark.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"

using namespace ctxpool;
using namespace ctxpool::bench;

/// The pool that all threads of a benchmark share. Warm, and never at a limit.
static ContextPool &sharedPool() {
  static const std::unique_ptr<ContextPool> pool = [] {
    ContextPoolOptions options;
    options.maxLeasesPerContext = ~uint64_t(0);
    return *ContextPool::create(fullTemplate(), options);
  }();
  return *pool;
}

/// A lease from the thread's own slot and its return with the full reset: the
/// path that a compile thread is on. Several threads must not slow one another.
static void BM_ContextPoolLease(benchmark::State &state) {
  ContextPool &pool = sharedPool();
  for (auto _ : state) {
    absl::StatusOr<ContextLease> lease = pool.acquire();
    if (!lease.ok()) {
      state.SkipWithError(lease.status().ToString().c_str());
      break;
    }
    benchmark::DoNotOptimize(lease->get());
  }
}

/// Every other lease is of a second context, so that it comes from the shared
/// list and goes there, under the lock.
static void BM_ContextPoolLeaseThroughSharedList(benchmark::State &state) {
  ContextPool &pool = sharedPool();
  for (auto _ : state) {
    absl::StatusOr<ContextLease> first = pool.acquire();
    absl::StatusOr<ContextLease> second = pool.acquire();
    if (!first.ok() || !second.ok()) {
      state.SkipWithError("no lease");
      break;
    }
  }
  state.SetItemsProcessed(2 * state.iterations());
}

/// A pass manager that the context has built before.
static void BM_ContextLeaseGetPassManager(benchmark::State &state) {
  absl::StatusOr<ContextLease> lease = sharedPool().acquire();
  for (auto _ : state)
    benchmark::DoNotOptimize(lease->getPassManager(linalgToLLVMPipeline));
}

/// Making a context of all dialects. Its destruction is not timed.
static void BM_ContextTemplateClone(benchmark::State &state) {
  for (auto _ : state) {
    absl::StatusOr<std::unique_ptr<mlir::MLIRContext>> context =
        fullTemplate()->clone();
    state.PauseTiming();
    context->reset();
    state.ResumeTiming();
  }
}

/// The same without the library.
static void BM_MLIRContextLoadAllAvailableDialects(benchmark::State &state) {
  for (auto _ : state) {
    auto context = std::make_unique<mlir::MLIRContext>(
        allDialects(), mlir::MLIRContext::Threading::DISABLED);
    context->loadAllAvailableDialects();
    state.PauseTiming();
    context.reset();
    state.ResumeTiming();
  }
}

/// Destroying a context of all dialects.
static void BM_MLIRContextDestroy(benchmark::State &state) {
  for (auto _ : state) {
    state.PauseTiming();
    std::unique_ptr<mlir::MLIRContext> context = *fullTemplate()->clone();
    state.ResumeTiming();
    context.reset();
  }
}

// By functions: the macros of Google Benchmark use an extension of the
// preprocessor that clang warns of.
void bench::registerContextBenchmarks() {
  using benchmark::RegisterBenchmark;
  RegisterBenchmark("BM_ContextPoolLease", BM_ContextPoolLease)
      ->ThreadRange(1, 4)
      ->UseRealTime();
  RegisterBenchmark("BM_ContextPoolLeaseThroughSharedList",
                    BM_ContextPoolLeaseThroughSharedList)
      ->ThreadRange(1, 4)
      ->UseRealTime();
  RegisterBenchmark("BM_ContextLeaseGetPassManager",
                    BM_ContextLeaseGetPassManager);
  RegisterBenchmark("BM_ContextTemplateClone", BM_ContextTemplateClone)
      ->Unit(benchmark::kMillisecond);
  RegisterBenchmark("BM_MLIRContextLoadAllAvailableDialects",
                    BM_MLIRContextLoadAllAvailableDialects)
      ->Unit(benchmark::kMillisecond);
  RegisterBenchmark("BM_MLIRContextDestroy", BM_MLIRContextDestroy)
      ->Unit(benchmark::kMillisecond);
}

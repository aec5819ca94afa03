//===- ContextPoolTest.cpp - ContextPool, rule by rule --------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ContextPool.h"

#include "test/support/ForkedChild.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Transform/IR/TransformDialect.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/ThreadPool.h"

#include <atomic>
#include <thread>

using namespace ctxpool;
using namespace ctxpool::test;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

namespace {

/// A pool that makes and destroys contexts on the threads that use it, so that
/// every count is exact.
ContextPoolOptions foreground() {
  ContextPoolOptions options;
  options.backgroundRefill = false;
  return options;
}

std::unique_ptr<ContextPool> makePool(
    ContextPoolOptions options = foreground(),
    std::shared_ptr<const ContextTemplate> contextTemplate = smallTemplate()) {
  auto pool = ContextPool::create(std::move(contextTemplate), options);
  EXPECT_THAT(pool, IsOk());
  return *std::move(pool);
}

/// A template of the builtin dialect only.
std::shared_ptr<const ContextTemplate> bareTemplate() {
  auto made = ContextTemplate::create({});
  EXPECT_THAT(made, IsOk());
  return *made;
}

ContextLease acquire(ContextPool &pool) {
  auto lease = pool.acquire();
  EXPECT_THAT(lease, IsOk());
  return *std::move(lease);
}

/// Takes and returns a context, and changes it meanwhile.
void lendTo(ContextPool &pool,
            const std::function<void(ContextLease &)> &borrower) {
  ContextLease lease = acquire(pool);
  borrower(lease);
}

std::shared_ptr<const ContextTemplate>
templateWith(const std::function<void(ContextTemplateOptions &)> &change) {
  ContextTemplateOptions options = smallTemplateOptions();
  change(options);
  auto made = ContextTemplate::create(std::move(options));
  EXPECT_THAT(made, IsOk());
  return *std::move(made);
}

//===----------------------------------------------------------------------===//
// create
//===----------------------------------------------------------------------===//

TEST(ContextPoolTest, OptionsOutOfRangeAreInvalidArgumentsThatNameTheField) {
  auto with = [](const std::function<void(ContextPoolOptions &)> &change) {
    ContextPoolOptions options;
    change(options);
    return ContextPool::create(smallTemplate(), options);
  };
  auto invalid = [](const char *text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, text);
  };

  EXPECT_THAT(ContextPool::create(nullptr), invalid("contextTemplate is null"));
  EXPECT_THAT(with([](auto &options) { options.minIdle = 65; }),
              invalid("minIdle = 65, expected at most maxIdle = 64"));
  EXPECT_THAT(with([](auto &options) {
                options.minIdle = 3;
                options.maxLive = 2;
              }),
              invalid("minIdle = 3, expected at most maxLive = 2"));
  EXPECT_THAT(with([](auto &options) { options.maxLeasesPerContext = 0; }),
              invalid("maxLeasesPerContext = 0, expected at least 1"));
  EXPECT_THAT(with([](auto &options) { options.maxBytesPerContext = 0; }),
              invalid("maxBytesPerContext = 0, expected at least 1"));
}

//===----------------------------------------------------------------------===//
// acquire
//===----------------------------------------------------------------------===//

TEST(ContextPoolTest, AcquireLooksInTheThreadsOwnSlotFirst) {
  auto pool = makePool();
  mlir::MLIRContext *first = acquire(*pool).get();
  ASSERT_THAT(pool->prewarm(3), IsOk());

  EXPECT_EQ(acquire(*pool).get(), first);
  EXPECT_EQ(pool->getStats().threadLocalHits, 1u);
}

TEST(ContextPoolTest, AcquireLooksInTheSharedListNext) {
  auto pool = makePool();
  ASSERT_THAT(pool->prewarm(1), IsOk());

  ContextLease lease = acquire(*pool);

  EXPECT_EQ(pool->getStats().sharedHits, 1u);
  EXPECT_EQ(pool->getStats().clones, 1u);
}

TEST(ContextPoolTest, AcquireClonesWhereNothingIsIdle) {
  auto pool = makePool();
  ContextLease first = acquire(*pool);
  ContextLease second = acquire(*pool);

  EXPECT_NE(first.get(), second.get());
  EXPECT_EQ(pool->getStats().foregroundClones, 2u);
  EXPECT_EQ(first->getRegistryHash(), pool->getTemplate().getRegistryHash());
}

TEST(ContextPoolTest, AWarmLeaseTakesNoLock) {
  auto pool = makePool();
  acquire(*pool).release();
  uint64_t before = pool->getStats().lockAcquisitions;

  for (int round = 0; round < 1000; ++round)
    acquire(*pool)->getRegistryHash();

  EXPECT_EQ(pool->getStats().lockAcquisitions, before);
  EXPECT_EQ(pool->getStats().threadLocalHits, 1000u);
}

TEST(ContextPoolTest, AThreadHasASlotInEachPoolThatItUses) {
  auto first = makePool(), second = makePool();
  for (int round = 0; round < 10; ++round) {
    acquire(*first).release();
    acquire(*second).release();
  }

  EXPECT_EQ(first->getStats().threadLocalHits, 9u);
  EXPECT_EQ(second->getStats().threadLocalHits, 9u);
}

TEST(ContextPoolTest, AThreadThatOutlivesItsPoolsUsesTheNextOnesAlike) {
  for (int round = 0; round < 20; ++round) {
    auto pool = makePool();
    acquire(*pool).release();
    acquire(*pool).release();
    EXPECT_EQ(pool->getStats().threadLocalHits, 1u);
  }
  EXPECT_EQ(WitnessDialect::countAlive(), 0u);
}

TEST(ContextPoolTest, StatsAddUp) {
  auto pool = makePool();
  ASSERT_THAT(pool->prewarm(2), IsOk());
  ContextLease first = acquire(*pool), second = acquire(*pool),
               third = acquire(*pool);
  first.release();
  acquire(*pool).release();

  ContextPoolStats stats = pool->getStats();
  EXPECT_EQ(stats.leases, 4u);
  EXPECT_EQ(stats.leases,
            stats.threadLocalHits + stats.sharedHits + stats.foregroundClones);
  EXPECT_EQ(stats.clones, stats.foregroundClones + stats.backgroundClones);
  EXPECT_EQ(stats.live, 3u);
  EXPECT_EQ(stats.idle, 1u);
  EXPECT_EQ(stats.leased, 2u);
}

TEST(ContextPoolTest, ErrorOfOnCloneReachesTheCallerOfAcquire) {
  std::atomic<bool> broken{true};
  auto contextTemplate = templateWith([&](ContextTemplateOptions &options) {
    options.onClone = [&](mlir::MLIRContext &) {
      return broken ? absl::UnavailableError("no licence") : absl::OkStatus();
    };
  });
  for (bool background : {false, true}) {
    broken = true;
    ContextPoolOptions options = foreground();
    options.backgroundRefill = background;
    options.maxLive = 1;
    auto pool = makePool(options, contextTemplate);

    EXPECT_THAT(pool->acquire(), StatusIs(absl::StatusCode::kUnavailable,
                                          "onClone: no licence"));
    EXPECT_THAT(pool->prewarm(1), StatusIs(absl::StatusCode::kUnavailable,
                                           "onClone: no licence"));
    EXPECT_EQ(pool->getStats().live, 0u);
    // The place of the failed clone is free again.
    broken = false;
    EXPECT_THAT(pool->acquire(), IsOk());
  }
}

TEST(ContextPoolTest, NoLockIsHeldWhileOnCloneRuns) {
  ContextPool *pool = nullptr;
  int calls = 0;
  auto owned =
      makePool(foreground(), templateWith([&](ContextTemplateOptions &options) {
                 options.onClone = [&](mlir::MLIRContext &) {
                   // Each of these would wait for itself.
                   pool->getStats();
                   pool->trim();
                   if (++calls == 1) {
                     EXPECT_THAT(pool->acquire(), IsOk());
                   }
                   return absl::OkStatus();
                 };
               }));
  pool = owned.get();

  EXPECT_THAT(pool->acquire(), IsOk());
  EXPECT_EQ(calls, 2);
}

//===----------------------------------------------------------------------===//
// The reset
//===----------------------------------------------------------------------===//

TEST(ContextPoolTest, FlagsAreResetOnReturn) {
  auto pool = makePool();
  mlir::MLIRContext *context = nullptr;
  lendTo(*pool, [&](ContextLease &lease) {
    context = lease.get();
    lease->allowUnregisteredDialects(true);
    lease->printOpOnDiagnostic(false);
    lease->printStackTraceOnDiagnostic(true);
  });

  ContextLease lease = acquire(*pool);
  ASSERT_EQ(lease.get(), context);
  EXPECT_FALSE(lease->allowsUnregisteredDialects());
  EXPECT_TRUE(lease->shouldPrintOpOnDiagnostic());
  EXPECT_FALSE(lease->shouldPrintStackTraceOnDiagnostic());
}

TEST(ContextPoolTest, FlagsThatOnCloneSetAreThoseAReturnedContextHas) {
  auto pool =
      makePool(foreground(), templateWith([](ContextTemplateOptions &options) {
                 options.allowUnregisteredDialects = true;
                 options.onClone = [](mlir::MLIRContext &context) {
                   context.printOpOnDiagnostic(false);
                   return absl::OkStatus();
                 };
               }));
  lendTo(*pool, [&](ContextLease &lease) {
    lease->allowUnregisteredDialects(false);
    lease->printOpOnDiagnostic(true);
  });

  ContextLease lease = acquire(*pool);
  EXPECT_TRUE(lease->allowsUnregisteredDialects());
  EXPECT_FALSE(lease->shouldPrintOpOnDiagnostic());
}

TEST(ContextPoolTest, ThreadsThatALeaseStartedEndOnReturn) {
  auto pool = makePool();
  lendTo(*pool, [&](ContextLease &lease) { lease->enableMultithreading(); });

  EXPECT_FALSE(acquire(*pool)->isMultithreadingEnabled());
}

TEST(ContextPoolTest, TheSharedThreadPoolIsGivenBackOnReturn) {
  llvm::DefaultThreadPool shared(llvm::hardware_concurrency(1));
  auto pool =
      makePool(foreground(), templateWith([&](ContextTemplateOptions &options) {
                 options.threadPool = &shared;
               }));
  mlir::MLIRContext *context = acquire(*pool).get();

  lendTo(*pool, [&](ContextLease &lease) { lease->disableMultithreading(); });
  EXPECT_EQ(&acquire(*pool)->getThreadPool(), &shared);

  llvm::DefaultThreadPool other(llvm::hardware_concurrency(1));
  lendTo(*pool, [&](ContextLease &lease) {
    lease->disableMultithreading();
    lease->setThreadPool(other);
  });
  EXPECT_EQ(&acquire(*pool)->getThreadPool(), &shared);
  EXPECT_EQ(acquire(*pool).get(), context);
}

TEST(ContextPoolTest, ThreadsOfOnCloneThatALeaseEndedRetireTheContext) {
  auto pool =
      makePool(foreground(), templateWith([](ContextTemplateOptions &options) {
                 options.onClone = [](mlir::MLIRContext &context) {
                   context.enableMultithreading();
                   return absl::OkStatus();
                 };
               }));
  lendTo(*pool, [&](ContextLease &lease) { lease->disableMultithreading(); });

  EXPECT_EQ(pool->getStats().retiredByDrift, 1u);
  EXPECT_TRUE(acquire(*pool)->isMultithreadingEnabled());
}

TEST(ContextPoolTest, LeakedDiagnosticHandlersAreRemovedOnReturn) {
  auto pool = makePool();
  int seen = 0;
  lendTo(*pool, [&](ContextLease &lease) {
    for (int handler = 0; handler < 3; ++handler)
      lease->getDiagEngine().registerHandler(
          [&](mlir::Diagnostic &) { ++seen; });
    mlir::emitError(mlir::UnknownLoc::get(lease.get())) << "first";
    EXPECT_EQ(seen, 1);
  });

  ContextLease lease = acquire(*pool);
  mlir::emitError(mlir::UnknownLoc::get(lease.get())) << "second";
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(lease.takeDiagnostics().size(), 1u);
}

TEST(ContextPoolTest, DiagnosticHandlersOfOnCloneStay) {
  int seen = 0;
  auto pool =
      makePool(foreground(), templateWith([&](ContextTemplateOptions &options) {
                 options.onClone = [&](mlir::MLIRContext &context) {
                   context.getDiagEngine().registerHandler(
                       [&](mlir::Diagnostic &) { ++seen; });
                   return absl::OkStatus();
                 };
               }));
  for (int round = 0; round < 3; ++round)
    lendTo(*pool, [&](ContextLease &lease) {
      mlir::emitError(mlir::UnknownLoc::get(lease.get())) << "seen";
    });

  EXPECT_EQ(seen, 3);
}

TEST(ContextPoolTest, TheActionHandlerIsRemovedOnReturn) {
  auto pool = makePool();
  lendTo(*pool, [&](ContextLease &lease) {
    lease->registerActionHandler([](llvm::function_ref<void()> run,
                                    const mlir::tracing::Action &) { run(); });
    ASSERT_TRUE(lease->hasActionHandler());
  });

  EXPECT_FALSE(acquire(*pool)->hasActionHandler());
  EXPECT_EQ(pool->getStats().clones, 1u);
}

TEST(ContextPoolTest, AnActionHandlerOfOnCloneThatALeaseRemovedIsRestored) {
  auto pool =
      makePool(foreground(), templateWith([](ContextTemplateOptions &options) {
                 options.onClone = [](mlir::MLIRContext &context) {
                   context.registerActionHandler(
                       [](llvm::function_ref<void()> run,
                          const mlir::tracing::Action &) { run(); });
                   return absl::OkStatus();
                 };
               }));
  lendTo(*pool,
         [](ContextLease &lease) { lease->registerActionHandler(nullptr); });

  // By a new context.
  EXPECT_TRUE(acquire(*pool)->hasActionHandler());
  EXPECT_EQ(pool->getStats().retiredByDrift, 1u);
}

/// Lets a context have a remark engine that drops everything.
void setRemarkEngine(mlir::MLIRContext &context) {
  mlir::remark::RemarkCategories categories;
  categories.all = ".*";
  EXPECT_TRUE(succeeded(mlir::remark::enableOptimizationRemarks(
      context, nullptr,
      std::make_unique<mlir::remark::RemarkEmittingPolicyAll>(), categories)));
}

TEST(ContextPoolTest, TheRemarkEngineIsRemovedOnReturn) {
  auto pool = makePool();
  lendTo(*pool, [&](ContextLease &lease) {
    setRemarkEngine(*lease);
    ASSERT_TRUE(lease->getRemarkEngine());
  });

  EXPECT_FALSE(acquire(*pool)->getRemarkEngine());
  EXPECT_EQ(pool->getStats().clones, 1u);
}

/// Puts a blob that counts its deletions into a context. Returns its key.
std::string insertBlob(mlir::MLIRContext &context, std::atomic<int> &deleted) {
  static const char data[4] = {1, 2, 3, 4};
  mlir::AsmResourceBlob blob(
      llvm::ArrayRef<char>(data), 4,
      [&deleted](void *, size_t, size_t) { ++deleted; },
      /*dataIsMutable=*/false);
  auto &manager =
      mlir::DenseResourceElementsHandle::getManagerInterface(&context);
  mlir::DenseResourceElementsHandle handle =
      manager.insert("weights", std::move(blob));
  auto type =
      mlir::RankedTensorType::get({4}, mlir::IntegerType::get(&context, 8));
  (void)mlir::DenseResourceElementsAttr::get(type, handle);
  return handle.getKey().str();
}

TEST(ContextPoolTest, ResourceBlobsThatALeaseBroughtInAreFreedOnReturn) {
  auto pool = makePool();
  std::atomic<int> deleted{0};
  for (int round = 1; round <= 3; ++round) {
    lendTo(*pool, [&](ContextLease &lease) {
      // A key that was used by another lease is free.
      EXPECT_EQ(insertBlob(*lease, deleted), "weights");
    });
    EXPECT_EQ(deleted, round);
  }
  EXPECT_EQ(pool->getStats().clones, 1u);
}

TEST(ContextPoolTest, ResourceBlobsOfOnCloneStay) {
  std::atomic<int> deleted{0};
  auto pool =
      makePool(foreground(), templateWith([&](ContextTemplateOptions &options) {
                 options.onClone = [&](mlir::MLIRContext &context) {
                   insertBlob(context, deleted);
                   return absl::OkStatus();
                 };
               }));
  auto hasBlob = [](ContextLease &lease) {
    auto *entry =
        mlir::DenseResourceElementsHandle::getManagerInterface(lease.get())
            .getBlobManager()
            .lookup("weights");
    return entry && entry->getBlob();
  };
  acquire(*pool).release();
  lendTo(*pool, [&](ContextLease &lease) { EXPECT_TRUE(hasBlob(lease)); });
  EXPECT_EQ(pool->getStats().clones, 1u);
  EXPECT_EQ(deleted, 0);

  // Blobs beside them, or a change to them, cannot be taken back.
  lendTo(*pool, [&](ContextLease &lease) { insertBlob(*lease, deleted); });
  EXPECT_EQ(pool->getStats().retiredByDrift, 1u);
  lendTo(*pool, [&](ContextLease &lease) {
    mlir::DenseResourceElementsHandle::getManagerInterface(lease.get())
        .update("weights", mlir::AsmResourceBlob());
  });
  EXPECT_EQ(pool->getStats().retiredByDrift, 2u);
  lendTo(*pool, [&](ContextLease &lease) { EXPECT_TRUE(hasBlob(lease)); });
}

TEST(ContextPoolTest, ADriftedContextKeepsItsDialectsWhereThePolicyIsKeep) {
  auto pool =
      makePool(foreground(), templateWith([](ContextTemplateOptions &options) {
                 options.preload = {"witness"};
               }));
  for (int round = 0; round < 3; ++round)
    lendTo(*pool, [](ContextLease &lease) { lease->getOrLoadDialect("scf"); });

  EXPECT_TRUE(acquire(*pool)->getLoadedDialect("scf"));
  EXPECT_EQ(pool->getStats().clones, 1u);
}

TEST(ContextPoolTest, ADriftedContextIsReplacedWhereThePolicyIsRetire) {
  ContextPoolOptions options = foreground();
  options.drift = ContextPoolOptions::Drift::Retire;
  auto pool =
      makePool(options, templateWith([](ContextTemplateOptions &options) {
                 options.preload = {"witness"};
               }));
  lendTo(*pool, [](ContextLease &lease) { lease->getOrLoadDialect("scf"); });

  EXPECT_FALSE(acquire(*pool)->getLoadedDialect("scf"));
  EXPECT_EQ(pool->getStats().retiredByDrift, 1u);
}

/// Has the transform dialect keep a named sequence for all modules.
void addToTransformLibrary(ContextLease &lease) {
  auto library = mlir::parseSourceString<mlir::ModuleOp>(
      R"mlir(
        module attributes {transform.with_named_sequence} {
          transform.named_sequence @keep(%root: !transform.any_op {transform.readonly}) {
            transform.yield
          }
          "test.constant"() {value = dense_resource<blob> : tensor<1xi32>} : () -> ()
        }
        {-# dialect_resources: {builtin: {blob: "0x0400000001000000"}} #-}
      )mlir",
      lease.get());
  ASSERT_TRUE(library);
  auto *dialect = lease->getLoadedDialect<mlir::transform::TransformDialect>();
  EXPECT_TRUE(succeeded(dialect->loadIntoLibraryModule(std::move(library))));
}

size_t transformLibrarySize(ContextLease &lease) {
  return llvm::range_size(
      *lease->getLoadedDialect<mlir::transform::TransformDialect>()
           ->getLibraryModule()
           .getBody());
}

std::shared_ptr<const ContextTemplate> transformTemplate(
    std::function<absl::Status(mlir::MLIRContext &)> onClone = nullptr) {
  return templateWith([&](ContextTemplateOptions &options) {
    options.populate = [](mlir::DialectRegistry &registry) {
      registry.insert<mlir::transform::TransformDialect>();
    };
    options.allowUnregisteredDialects = true;
    options.onClone = onClone;
  });
}

TEST(ContextPoolTest, TheTransformLibraryIsEmptiedOnReturn) {
  auto pool = makePool(foreground(), transformTemplate());
  for (int round = 0; round < 3; ++round)
    lendTo(*pool, [](ContextLease &lease) {
      EXPECT_EQ(transformLibrarySize(lease), 0u);
      addToTransformLibrary(lease);
      EXPECT_GT(transformLibrarySize(lease), 0u);
    });

  EXPECT_EQ(pool->getStats().clones, 1u);
}

TEST(ContextPoolTest, ATransformLibraryOfOnCloneThatALeaseAddedToIsRestored) {
  auto pool = makePool(
      foreground(), transformTemplate([](mlir::MLIRContext &context) {
        auto library = mlir::parseSourceString<mlir::ModuleOp>(
            "module attributes {transform.with_named_sequence} {"
            "  transform.named_sequence @first(%r: !transform.any_op"
            "      {transform.readonly}) { transform.yield } }",
            &context);
        return library && succeeded(
                              context
                                  .getLoadedDialect<
                                      mlir::transform::TransformDialect>()
                                  ->loadIntoLibraryModule(std::move(library)))
                   ? absl::OkStatus()
                   : absl::InternalError("the library was not taken");
      }));
  lendTo(*pool, [](ContextLease &lease) {
    EXPECT_EQ(transformLibrarySize(lease), 1u);
    addToTransformLibrary(lease);
  });

  // By a new context.
  ContextLease lease = acquire(*pool);
  EXPECT_EQ(transformLibrarySize(lease), 1u);
  EXPECT_EQ(pool->getStats().retiredByDrift, 1u);
}

TEST(ContextPoolTest, BlobsOfADialectThatDriftedInAreFreedAsWell) {
  // The builtin dialect has the only blob manager of upstream's, so a dialect
  // with one of its own is loaded late.
  struct LateDialect : public mlir::Dialect {
    explicit LateDialect(mlir::MLIRContext *context)
        : mlir::Dialect("late", context, mlir::TypeID::get<LateDialect>()) {
      addInterfaces<mlir::ResourceBlobManagerDialectInterface>();
    }
    MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LateDialect)
    static llvm::StringRef getDialectNamespace() { return "late"; }
  };
  auto pool = makePool();
  std::atomic<int> deleted{0};
  auto blobs = [](ContextLease &lease) -> mlir::DialectResourceBlobManager & {
    return lease->getOrLoadDialect<LateDialect>()
        ->getRegisteredInterface<mlir::ResourceBlobManagerDialectInterface>()
        ->getBlobManager();
  };
  for (int round = 1; round <= 2; ++round) {
    lendTo(*pool, [&](ContextLease &lease) {
      static const char data[1] = {0};
      EXPECT_EQ(blobs(lease).lookup("late"), nullptr);
      blobs(lease).insert(
          "late", mlir::AsmResourceBlob(
                      llvm::ArrayRef<char>(data), 1,
                      [&](void *, size_t, size_t) { ++deleted; }, false));
    });
    EXPECT_EQ(deleted, round);
  }
}

//===----------------------------------------------------------------------===//
// Retirement
//===----------------------------------------------------------------------===//

TEST(ContextPoolTest, AContextIsReplacedAfterMaxLeasesPerContext) {
  ContextPoolOptions options = foreground();
  options.maxLeasesPerContext = 10;
  auto pool = makePool(options);
  for (int round = 0; round < 30; ++round)
    acquire(*pool).release();

  EXPECT_EQ(pool->getStats().retiredByLeases, 3u);
  EXPECT_EQ(pool->getStats().clones, 3u);
  EXPECT_EQ(pool->getStats().live, 0u);
  EXPECT_EQ(WitnessDialect::countAlive(), 0u);
}

TEST(ContextPoolTest, AContextIsReplacedAfterMaxBytesPerContext) {
  ContextPoolOptions options = foreground();
  options.maxBytesPerContext = 100;
  auto pool = makePool(options);
  lendTo(*pool, [](ContextLease &lease) { lease.charge(60); });
  EXPECT_EQ(pool->getStats().retiredByBytes, 0u);
  lendTo(*pool, [](ContextLease &lease) {
    lease.charge(30);
    lease.charge(10);
  });
  EXPECT_EQ(pool->getStats().retiredByBytes, 1u);
  // More than a sum can hold.
  lendTo(*pool, [](ContextLease &lease) {
    lease.charge(~uint64_t(0));
    lease.charge(~uint64_t(0));
  });
  EXPECT_EQ(pool->getStats().retiredByBytes, 2u);
}

TEST(ContextPoolTest, ARetiredLeaseHasItsContextReplaced) {
  auto pool = makePool();
  lendTo(*pool, [](ContextLease &lease) { lease.retire(); });

  EXPECT_EQ(pool->getStats().discarded, 1u);
  EXPECT_EQ(pool->getStats().live, 0u);
  EXPECT_EQ(WitnessDialect::countAlive(), 0u);
}

TEST(ContextPoolTest, DestroyOnReturnDestroysOnTheReturningThread) {
  ContextPoolOptions options;
  options.destroyOnReturn = true;
  auto pool = makePool(options);
  WitnessDialect::takeDestroyers();
  ContextLease lease = acquire(*pool);
  lease.release();

  EXPECT_THAT(WitnessDialect::takeDestroyers(),
              testing::Contains(std::this_thread::get_id()));
}

TEST(ContextPoolTest, ACompileThreadOfAWarmPoolNeitherMakesNorDestroys) {
  ContextPoolOptions options;
  options.minIdle = 2;
  auto pool = makePool(options);
  ASSERT_TRUE(eventually([&] { return pool->getStats().idle == 2; }));
  WitnessDialect::takeDestroyers();

  for (uint64_t round = 1; round <= 20; ++round) {
    lendTo(*pool, [](ContextLease &lease) { lease.retire(); });
    // The refill thread has made up for it before the next one.
    ASSERT_TRUE(eventually([&] {
      return pool->getStats().idle == 2 && WitnessDialect::countAlive() == 2;
    }));
  }

  ContextPoolStats stats = pool->getStats();
  EXPECT_EQ(stats.discarded, 20u);
  EXPECT_EQ(stats.foregroundClones, 0u);
  EXPECT_EQ(stats.foregroundDestroyed, 0u);
  EXPECT_THAT(WitnessDialect::takeDestroyers(),
              Each(Not(std::this_thread::get_id())));
}

TEST(ContextPoolTest, TheRefillThreadKeepsMinIdleReady) {
  ContextPoolOptions options;
  options.minIdle = 3;
  auto pool = makePool(options);

  EXPECT_TRUE(eventually([&] { return pool->getStats().idle == 3; }));
  ContextLease lease = acquire(*pool);
  EXPECT_TRUE(eventually([&] { return pool->getStats().idle == 3; }));
  EXPECT_EQ(pool->getStats().foregroundClones, 0u);
}

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

TEST(ContextPoolTest, ContextsOfAnExitingThreadGoToTheSharedList) {
  auto pool = makePool();
  mlir::MLIRContext *context = nullptr;
  std::thread([&] { context = acquire(*pool).get(); }).join();

  EXPECT_EQ(pool->getStats().idle, 1u);
  EXPECT_EQ(acquire(*pool).get(), context);
  EXPECT_EQ(pool->getStats().sharedHits, 1u);
}

TEST(ContextPoolTest, CountsOfAnExitedThreadStay) {
  auto pool = makePool();
  std::thread([&] {
    for (int round = 0; round < 5; ++round)
      acquire(*pool).release();
  }).join();

  EXPECT_EQ(pool->getStats().leases, 5u);
  EXPECT_EQ(pool->getStats().threadLocalHits, 4u);
}

TEST(ContextPoolTest, ALeaseMayBeReturnedOnAnotherThread) {
  auto pool = makePool();
  ContextLease lease = acquire(*pool);
  mlir::MLIRContext *context = lease.get();
  std::thread([moved = std::move(lease)]() mutable { moved.release(); }).join();

  EXPECT_EQ(pool->getStats().idle, 1u);
  EXPECT_EQ(acquire(*pool).get(), context);
}

TEST(ContextPoolTest, APoolMayBeDestroyedBeforeItsLeases) {
  auto pool = makePool(ContextPoolOptions());
  ContextLease here = acquire(*pool), there = acquire(*pool);
  pool.reset();

  auto module = mlir::parseSourceString<mlir::ModuleOp>(
      "func.func @f() { return }", here.get());
  EXPECT_TRUE(module);
  module = nullptr;
  EXPECT_EQ(WitnessDialect::countAlive(), 2u);
  here.release();
  EXPECT_EQ(WitnessDialect::countAlive(), 1u);
  std::thread([moved = std::move(there)]() mutable {}).join();
  EXPECT_EQ(WitnessDialect::countAlive(), 0u);
}

TEST(ContextPoolTest, APoolMayBeDestroyedBeforeTheThreadsThatUsedIt) {
  auto pool = makePool();
  PhaseGate gate;
  std::thread user([&] {
    ContextLease kept = acquire(*pool);
    acquire(*pool).release();
    gate.open(1);
    gate.await(2);
    kept.release();
    // Its slot outlives the pool, and is given up when another one is used.
    auto next = makePool();
    acquire(*next).release();
  });
  gate.await(1);
  pool.reset();
  gate.open(2);
  user.join();

  EXPECT_EQ(WitnessDialect::countAlive(), 0u);
}

TEST(ContextPoolTest, NothingOfTheUsersOutlivesThePoolAndItsLeases) {
  auto resource = std::make_shared<int>(1);
  {
    auto pool = makePool(foreground(),
                         templateWith([&](ContextTemplateOptions &options) {
                           options.onClone = [resource](mlir::MLIRContext &) {
                             return absl::OkStatus();
                           };
                         }));
    ContextLease lease = acquire(*pool);
    pool.reset();
  }
  // Although this thread had a slot in the pool.
  EXPECT_EQ(resource.use_count(), 1);
}

TEST(ContextPoolTest, LeaseIsMoveOnlyAndEmptyAfterAMove) {
  static_assert(!std::is_copy_constructible_v<ContextLease>);
  auto pool = makePool();
  ContextLease first = acquire(*pool), second = acquire(*pool);
  mlir::MLIRContext *context = second.get();

  first = std::move(second);

  EXPECT_FALSE(second); // NOLINT(bugprone-use-after-move): what is tested
  EXPECT_EQ(first.get(), context);
  EXPECT_EQ(pool->getStats().leased, 1u);
  first.release();
  first.release();
  EXPECT_FALSE(first);
  EXPECT_EQ(pool->getStats().leased, 0u);
}

TEST(ContextPoolTest, ThreadsStayConstantHoweverManyContextsThereAre) {
  llvm::DefaultThreadPool shared(llvm::hardware_concurrency(2));
  auto pool = makePool(ContextPoolOptions(),
                       templateWith([&](ContextTemplateOptions &options) {
                         options.threadPool = &shared;
                       }));
  const char *source = "func.func @f() { return } func.func @g() { return }";
  auto use = [&](ContextLease &lease) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(source, lease.get());
    EXPECT_TRUE(module);
  };
  // The shared pool starts its threads as they are needed.
  size_t alone = countThreads();
  ASSERT_TRUE(eventually([&] {
    lendTo(*pool, use);
    return countThreads() == alone + shared.getMaxConcurrency();
  }));
  size_t before = countThreads();

  std::vector<ContextLease> leases;
  for (int round = 0; round < 64; ++round) {
    leases.push_back(acquire(*pool));
    use(leases.back());
  }
  leases.clear();
  for (int round = 0; round < 1000; ++round)
    lendTo(*pool, use);

  EXPECT_EQ(countThreads(), before);
}

TEST(ContextPoolDeathTest, APoolMayBeDestroyedDuringStaticDestruction) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        static std::unique_ptr<ContextPool> pool =
            makePool(ContextPoolOptions());
        static ContextLease lease = acquire(*pool);
        acquire(*pool).release();
        exit(0);
      },
      testing::ExitedWithCode(0), "");
}

//===----------------------------------------------------------------------===//
// maxLive
//===----------------------------------------------------------------------===//

ContextPoolOptions limitedTo(size_t maxLive, bool background = false) {
  ContextPoolOptions options;
  options.maxLive = maxLive;
  options.backgroundRefill = background;
  return options;
}

TEST(ContextPoolTest, AcquireAtMaxLiveIsDeadlineExceededAfterItsTimeout) {
  auto pool = makePool(limitedTo(2));
  ContextLease first = acquire(*pool), second = acquire(*pool);

  EXPECT_THAT(pool->acquire(absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "context pool 'small': no context came free within 0: "
                       "of maxLive = 2, 2 are on loan and 0 are being made "
                       "or destroyed"));
  EXPECT_EQ(pool->getStats().waits, 0u);
  EXPECT_THAT(pool->acquire(absl::Milliseconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "within 1ms"));
  EXPECT_EQ(pool->getStats().waits, 1u);
  EXPECT_THAT(pool->acquire(-absl::InfiniteDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ""));
  second.release();
  EXPECT_THAT(pool->acquire(absl::ZeroDuration()), IsOk());
}

TEST(ContextPoolTest, AcquireAtMaxLiveWaitsForAReturnedContext) {
  for (bool retires : {false, true})
    for (bool background : {false, true}) {
      auto pool = makePool(limitedTo(1, background));
      // Waits as well, where the refill thread is making the context.
      ContextLease lease = acquire(*pool);
      uint64_t before = pool->getStats().waits;
      std::thread waiter([&] { EXPECT_THAT(pool->acquire(), IsOk()); });
      EXPECT_TRUE(eventually([&] { return pool->getStats().waits > before; }));
      if (retires)
        lease.retire();
      lease.release();
      waiter.join();
      EXPECT_LE(pool->getStats().live, 1u);
    }
}

TEST(ContextPoolTest, AcquireAtMaxLiveTakesAnIdleContextOfAnotherThread) {
  auto pool = makePool(limitedTo(1));
  PhaseGate gate;
  std::thread owner([&] {
    acquire(*pool).release();
    gate.open(1);
    gate.await(2);
  });
  gate.await(1);

  EXPECT_THAT(pool->acquire(absl::ZeroDuration()), IsOk());
  EXPECT_EQ(pool->getStats().clones, 1u);
  gate.open(2);
  owner.join();
}

TEST(ContextPoolTest, WaitingThreadsAreServedInTheOrderInWhichTheyCame) {
  auto pool = makePool(limitedTo(1));
  ContextLease lease = acquire(*pool);
  std::mutex mutex;
  std::vector<int> served;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 6; ++thread) {
    threads.emplace_back([&, thread] {
      ContextLease mine = acquire(*pool);
      std::lock_guard<std::mutex> lock(mutex);
      served.push_back(thread);
    });
    EXPECT_TRUE(eventually(
        [&] { return pool->getStats().waits == uint64_t(thread) + 1; }));
  }
  lease.release();
  for (std::thread &thread : threads)
    thread.join();

  EXPECT_THAT(served, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(ContextPoolTest, MaxLiveCountsContextsThatWaitForTheirDestruction) {
  auto pool = makePool(limitedTo(2, /*background=*/true));
  for (int round = 0; round < 50; ++round) {
    lendTo(*pool, [](ContextLease &lease) { lease.retire(); });
    EXPECT_LE(WitnessDialect::countAlive(), 2u);
  }
}

//===----------------------------------------------------------------------===//
// Abandoned contexts
//===----------------------------------------------------------------------===//

/// Ends the lease by `abandon`, which leaks its context.
void abandon(ContextLease lease) {
  expectLeaks();
  lease.abandon();
  EXPECT_FALSE(lease);
}

TEST(ContextPoolTest, AnAbandonedContextIsNeverUsedNorDestroyed) {
  // In a child: the dialect that tells is seen by other tests.
  EXPECT_EQ(runInChild([] {
              auto pool = makePool();
              ContextLease lease = acquire(*pool);
              mlir::MLIRContext *context = lease.get();
              lease.abandon();
              bool isAnother = acquire(*pool).get() != context;
              pool.reset();
              return isAnother && WitnessDialect::countAlive() == 1;
            }),
            "exit 0");
}

TEST(ContextPoolTest, AnAbandonedContextIsNoLongerLiveButCounted) {
  for (bool background : {false, true}) {
    ContextPoolOptions options;
    options.backgroundRefill = background;
    auto pool = makePool(options, bareTemplate());
    ContextLease other = acquire(*pool);
    abandon(acquire(*pool));

    ContextPoolStats stats = pool->getStats();
    EXPECT_EQ(stats.abandoned, 1u);
    EXPECT_EQ(stats.discarded, 0u);
    EXPECT_EQ(stats.leased, 1u);
    EXPECT_EQ(stats.live, stats.idle + stats.leased);
    EXPECT_EQ(stats.leases, stats.threadLocalHits + stats.sharedHits +
                                stats.foregroundClones);
  }
}

TEST(ContextPoolTest, ACallerThatWaitsAtMaxLiveGoesOnAfterAnAbandonedContext) {
  for (bool background : {false, true}) {
    auto pool = makePool(limitedTo(1, background), bareTemplate());
    ContextLease lease = acquire(*pool);
    uint64_t before = pool->getStats().waits;
    std::thread waiter([&] { EXPECT_THAT(pool->acquire(), IsOk()); });
    EXPECT_TRUE(eventually([&] { return pool->getStats().waits > before; }));
    abandon(std::move(lease));
    waiter.join();
    EXPECT_LE(pool->getStats().live, 1u);
  }
}

TEST(ContextPoolTest, ALeaseMayBeAbandonedAfterItsPool) {
  auto pool = makePool(foreground(), bareTemplate());
  ContextLease lease = acquire(*pool);
  pool.reset();
  abandon(std::move(lease));
}

TEST(ContextPoolTest, IdleNeverExceedsMaxIdle) {
  ContextPoolOptions options = foreground();
  options.maxIdle = 2;
  auto pool = makePool(options);
  {
    std::vector<ContextLease> leases;
    for (int lease = 0; lease < 8; ++lease)
      leases.push_back(acquire(*pool));
  }
  EXPECT_EQ(pool->getStats().idle, 2u);
  EXPECT_EQ(pool->getStats().live, 2u);

  std::vector<std::thread> threads;
  PhaseGate gate;
  std::atomic<int> holding{0};
  for (int thread = 0; thread < 8; ++thread)
    threads.emplace_back([&] {
      {
        ContextLease lease = acquire(*pool);
        ++holding;
        gate.await(1);
      }
      EXPECT_LE(pool->getStats().idle, 2u);
      gate.await(2);
    });
  EXPECT_TRUE(eventually([&] { return holding == 8; }));
  gate.open(1);
  gate.open(2);
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_LE(pool->getStats().idle, 2u);
}

TEST(ContextPoolTest, WithoutIdleContextsEveryLeaseHasANewOne) {
  ContextPoolOptions options = foreground();
  options.minIdle = options.maxIdle = 0;
  auto pool = makePool(options);
  acquire(*pool).release();
  acquire(*pool).release();

  EXPECT_EQ(pool->getStats().clones, 2u);
  EXPECT_EQ(pool->getStats().live, 0u);
}

//===----------------------------------------------------------------------===//
// prewarm, trim
//===----------------------------------------------------------------------===//

TEST(ContextPoolTest, PrewarmMakesContextsUntilThatManyAreIdle) {
  auto pool = makePool();
  ASSERT_THAT(pool->prewarm(3), IsOk());
  ASSERT_THAT(pool->prewarm(2), IsOk());
  EXPECT_EQ(pool->getStats().idle, 3u);

  ContextLease lease = acquire(*pool);
  ASSERT_THAT(pool->prewarm(3), IsOk());
  EXPECT_EQ(pool->getStats().idle, 3u);
  EXPECT_EQ(pool->getStats().live, 4u);
}

TEST(ContextPoolTest, PrewarmBeyondTheLimitsIsAnErrorThatKeepsWhatWasMade) {
  ContextPoolOptions options = limitedTo(3);
  options.maxIdle = 4;
  auto pool = makePool(options);

  EXPECT_THAT(pool->prewarm(5),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "prewarm: 5 contexts asked for, at most maxIdle = 4"));
  EXPECT_THAT(pool->prewarm(4),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "maxLive = 3 contexts exist, 3 of them idle"));
  EXPECT_EQ(pool->getStats().idle, 3u);
}

TEST(ContextPoolTest, PrewarmWaitsForContextsThatOthersAreMaking) {
  for (bool broken : {false, true}) {
    std::atomic<int> clones{0};
    ContextPoolOptions options;
    options.minIdle = options.maxLive = 1;
    std::unique_ptr<ContextPool> pool;
    // Opens before the pool is destroyed, whose thread waits for it.
    PhaseGate gate;
    pool =
        makePool(options, templateWith([&](ContextTemplateOptions &options) {
                   options.onClone = [&](mlir::MLIRContext &) -> absl::Status {
                     // The first one is the refill thread's.
                     if (++clones == 1)
                       gate.await(1);
                     return broken ? absl::UnavailableError("no licence")
                                   : absl::OkStatus();
                   };
                 }));
    EXPECT_TRUE(eventually([&] { return clones == 1; }));

    std::atomic<bool> calls{false};
    std::atomic<bool> returned{false};
    absl::Status status;
    std::thread caller([&] {
      calls = true;
      status = pool->prewarm(1);
      returned = true;
    });
    EXPECT_TRUE(eventually([&] { return calls.load(); }));
    // Time for it to return too early; it waits however long this is.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(returned);
    gate.open(1);
    caller.join();

    if (broken) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                   "onClone: no licence"));
    } else {
      EXPECT_THAT(status, IsOk());
    }
    EXPECT_EQ(clones, broken ? 2 : 1);
    EXPECT_EQ(pool->getStats().idle, broken ? 0u : 1u);
  }
}

TEST(ContextPoolTest, PrewarmIsNotLimitedByThreadsThatHaveNoContext) {
  ContextPoolOptions options = foreground();
  options.maxIdle = 4;
  auto pool = makePool(options);
  PhaseGate gate;
  std::atomic<int> warm{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread)
    threads.emplace_back([&] {
      acquire(*pool).release();
      ++warm;
      gate.await(1);
    });
  EXPECT_TRUE(eventually([&] { return warm == 3; }));
  pool->trim(0);

  EXPECT_THAT(pool->prewarm(4), IsOk());
  EXPECT_EQ(pool->getStats().idle, 4u);
  gate.open(1);
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(pool->getStats().idle, 4u);
}

TEST(ContextPoolTest, TrimDestroysIdleContextsOfTheListAndOfAllSlots) {
  auto pool = makePool();
  ASSERT_THAT(pool->prewarm(4), IsOk());
  PhaseGate gate;
  std::thread other([&] {
    acquire(*pool).release();
    gate.open(1);
    gate.await(2);
    // Its slot was emptied.
    acquire(*pool).release();
  });
  gate.await(1);
  acquire(*pool).release();
  EXPECT_EQ(pool->getStats().idle, 4u);

  pool->trim(1);
  EXPECT_EQ(pool->getStats().idle, 1u);
  pool->trim();
  EXPECT_EQ(pool->getStats().idle, 0u);
  EXPECT_EQ(WitnessDialect::countAlive(), 0u);
  gate.open(2);
  other.join();
}

TEST(ContextPoolTest, TheRefillThreadRestsAfterATrimUntilTheNextLease) {
  auto pool = makePool(ContextPoolOptions());
  ASSERT_TRUE(eventually([&] { return pool->getStats().idle == 1; }));
  pool->trim();
  EXPECT_EQ(pool->getStats().idle, 0u);

  ContextLease lease = acquire(*pool);
  EXPECT_TRUE(eventually([&] { return pool->getStats().idle == 1; }));
}

TEST(ContextPoolTest, AContextInTheMakingIsKeptAfterATrimWhereItIsWanted) {
  // What the trim keeps, whether a lease comes before the context exists, and
  // how many are idle in the end.
  struct Case {
    size_t keepIdle;
    bool leases;
    size_t idle;
  };
  for (const Case &each :
       {Case{0, false, 0}, Case{1, false, 1}, Case{0, true, 1}}) {
    SCOPED_TRACE(testing::Message() << each.keepIdle << ", " << each.leases);
    std::atomic<int> clones{0};
    std::unique_ptr<ContextPool> pool;
    // Opens before the pool is destroyed, whose thread waits for it.
    PhaseGate gate;
    pool = makePool(ContextPoolOptions(),
                    templateWith([&](ContextTemplateOptions &options) {
                      options.onClone = [&](mlir::MLIRContext &) {
                        // The first one is the refill thread's.
                        if (++clones == 1)
                          gate.await(1);
                        return absl::OkStatus();
                      };
                    }));
    EXPECT_TRUE(eventually([&] { return clones == 1; }));

    pool->trim(each.keepIdle);
    ContextLease lease;
    if (each.leases)
      lease = acquire(*pool);
    gate.open(1);

    size_t live = each.idle + each.leases;
    EXPECT_TRUE(
        eventually([&] { return pool->getStats().backgroundClones == 1; }));
    EXPECT_EQ(pool->getStats().idle, each.idle);
    EXPECT_EQ(pool->getStats().live, live);
    EXPECT_TRUE(
        eventually([&] { return WitnessDialect::countAlive() == live; }));
  }
}

TEST(ContextPoolTest, PrewarmGetsThePlaceOfAContextThatATrimDidAwayWith) {
  std::atomic<int> clones{0};
  ContextPoolOptions options;
  options.minIdle = options.maxLive = 1;
  std::unique_ptr<ContextPool> pool;
  PhaseGate gate;
  pool = makePool(options, templateWith([&](ContextTemplateOptions &options) {
                    options.onClone = [&](mlir::MLIRContext &) {
                      if (++clones == 1)
                        gate.await(1);
                      return absl::OkStatus();
                    };
                  }));
  EXPECT_TRUE(eventually([&] { return clones == 1; }));

  pool->trim();
  std::thread caller([&] { EXPECT_THAT(pool->prewarm(1), IsOk()); });
  gate.open(1);
  caller.join();

  EXPECT_EQ(clones, 2);
  EXPECT_EQ(pool->getStats().idle, 1u);
  EXPECT_EQ(pool->getStats().live, 1u);
}

//===----------------------------------------------------------------------===//
// getPassManager
//===----------------------------------------------------------------------===//

/// Runs `pipeline` on a module in the lease's context.
mlir::LogicalResult runOn(ContextLease &lease, llvm::StringRef pipeline) {
  auto passManager = lease.getPassManager(pipeline);
  EXPECT_THAT(passManager, IsOk());
  auto module = mlir::parseSourceString<mlir::ModuleOp>(
      R"mlir(
        func.func @f(%a: i1, %b: i32) -> i32 {
          %r = scf.if %a -> i32 {
            scf.yield %b : i32
          } else {
            %c = arith.constant 1 : i32
            scf.yield %c : i32
          }
          return %r : i32
        }
      )mlir",
      lease.get());
  EXPECT_TRUE(module);
  return (*passManager)->run(*module);
}

/// Runs on functions only, and says so to pass managers.
struct AnchoredPass
    : public mlir::PassWrapper<AnchoredPass,
                               mlir::OperationPass<mlir::func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(AnchoredPass)
  llvm::StringRef getArgument() const override { return "test-anchored"; }
  void runOnOperation() override {}
};

TEST(ContextPoolTest, APassManagerIsReusedWhileItsContextLives) {
  registerPasses();
  auto pool = makePool();
  const char *one = "builtin.module(canonicalize)";
  const char *two = "builtin.module(func.func(convert-scf-to-cf),cse)";
  mlir::PassManager *managerOfOne = nullptr, *managerOfTwo = nullptr;
  lendTo(*pool, [&](ContextLease &lease) {
    EXPECT_TRUE(succeeded(runOn(lease, one)));
    EXPECT_TRUE(succeeded(runOn(lease, two)));
    managerOfOne = *lease.getPassManager(one);
    managerOfTwo = *lease.getPassManager(two);
  });

  lendTo(*pool, [&](ContextLease &lease) {
    EXPECT_TRUE(succeeded(runOn(lease, two)));
    EXPECT_TRUE(succeeded(runOn(lease, one)));
    EXPECT_EQ(*lease.getPassManager(std::string(one)), managerOfOne);
    EXPECT_EQ(*lease.getPassManager(std::string(two)), managerOfTwo);
  });
  EXPECT_NE(managerOfOne, managerOfTwo);
}

TEST(ContextPoolTest, APassManagerServesModulesWhoseDialectsComeLater) {
  static mlir::PassRegistration<AnchoredPass> registration;
  auto pool =
      makePool(foreground(), templateWith([](ContextTemplateOptions &options) {
                 options.preload.emplace(); // Nothing.
               }));
  const char *pipeline =
      "builtin.module(func.func(test-anchored),any(func.func(test-anchored)))";
  for (llvm::StringRef text :
       {"module {}", "func.func @f() { return }", "module {}"})
    lendTo(*pool, [&](ContextLease &lease) {
      CTXPOOL_ASSERT_OK_AND_ASSIGN(passManager, lease.getPassManager(pipeline));
      auto module = mlir::parseSourceString<mlir::ModuleOp>(text, lease.get());
      EXPECT_TRUE(succeeded(passManager->run(*module)))
          << toString(lease.takeDiagnostics());
    });
}

TEST(ContextPoolTest, APassManagerOfAPreloadedPipelineIsNoDrift) {
  registerPasses();
  const char *pipeline = "builtin.module(func.func(canonicalize),cse)";
  ContextPoolOptions options = foreground();
  options.drift = ContextPoolOptions::Drift::Retire;
  auto pool = makePool(
      options, templateWith([&](ContextTemplateOptions &templateOptions) {
        templateOptions.preload.emplace();
        templateOptions.preloadForPipeline = pipeline;
      }));
  for (int again = 0; again < 3; ++again)
    lendTo(*pool, [&](ContextLease &lease) {
      EXPECT_THAT(lease.getPassManager(pipeline), IsOk());
    });

  EXPECT_EQ(pool->getStats().retiredByDrift, 0u);
  EXPECT_EQ(pool->getStats().clones, 1u);
}

TEST(ContextPoolTest, APassManagerRunsThePipelineOnItsAnchor) {
  registerPasses();
  auto pool = makePool();
  ContextLease lease = acquire(*pool);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      passManager,
      lease.getPassManager("builtin.module(func.func(convert-scf-to-cf))"));

  std::string text;
  llvm::raw_string_ostream stream(text);
  passManager->printAsTextualPipeline(stream);
  EXPECT_THAT(text,
              testing::HasSubstr("builtin.module(func.func(convert-scf-to-cf"));
  EXPECT_EQ(passManager->getContext(), lease.get());
}

TEST(ContextPoolTest, AWrongPipelineOfAPassManagerIsAnInvalidArgument) {
  registerPasses();
  auto pool = makePool();
  ContextLease lease = acquire(*pool);

  for (int again = 0; again < 2; ++again)
    EXPECT_THAT(lease.getPassManager("builtin.module(no-such-pass)"),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "'no-such-pass' does not refer to a registered pass"));
  EXPECT_THAT(lease.getPassManager("builtin.module(canonicalize{nope=1})"),
              StatusIs(absl::StatusCode::kInvalidArgument, "nope"));
  EXPECT_THAT(lease.getPassManager(""),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "pass pipeline '': expected pass pipeline"));
}

TEST(ContextPoolTest, PassManagersBelongToTheContextOfTheirLease) {
  registerPasses();
  auto pool = makePool();
  ContextLease first = acquire(*pool), second = acquire(*pool);
  const char *pipeline = "builtin.module(cse)";

  EXPECT_EQ((*first.getPassManager(pipeline))->getContext(), first.get());
  EXPECT_EQ((*second.getPassManager(pipeline))->getContext(), second.get());
}

TEST(ContextPoolTest, APassManagerThatFailedWorksForTheNextLease) {
  registerPasses();
  auto pool = makePool();
  const char *pipeline = "builtin.module(convert-scf-to-cf,any(cse))";
  lendTo(*pool, [&](ContextLease &lease) {
    auto passManager = lease.getPassManager("func.func(cse)");
    ASSERT_THAT(passManager, IsOk());
    mlir::OwningOpRef<mlir::ModuleOp> module(
        mlir::ModuleOp::create(mlir::UnknownLoc::get(lease.get())));
    EXPECT_TRUE(failed((*passManager)->run(*module)));
    EXPECT_THAT(toString(lease.takeDiagnostics()),
                testing::HasSubstr("can't run 'func.func' pass manager on "
                                   "'builtin.module' op"));
  });
  lendTo(*pool, [&](ContextLease &lease) {
    EXPECT_TRUE(succeeded(runOn(lease, pipeline)));
  });
}

/// Makes operations of a dialect that it did not say it depends on.
struct ForgetfulPass
    : public mlir::PassWrapper<ForgetfulPass,
                               mlir::OperationPass<mlir::func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ForgetfulPass)
  llvm::StringRef getArgument() const override { return "test-forgetful"; }
  void runOnOperation() override {
    mlir::OpBuilder builder(getOperation().getBody());
    mlir::Location location = getOperation().getLoc();
    mlir::Value one = mlir::arith::ConstantOp::create(
        builder, location, builder.getF32FloatAttr(1));
    mlir::math::ExpOp::create(builder, location, one);
  }
};

TEST(ContextPoolTest, DialectsAreLoadedBeforePassesRunOnSeveralThreads) {
  static mlir::PassRegistration<ForgetfulPass> registration;
  llvm::DefaultThreadPool threads(llvm::hardware_concurrency(2));
  auto pool = makePool(
      foreground(), templateWith([&](ContextTemplateOptions &options) {
        options.threadPool = &threads;
        auto populate = options.populate;
        options.populate = [populate](mlir::DialectRegistry &registry) {
          populate(registry);
          registry.insert<mlir::math::MathDialect>();
        };
      }));
  std::string source;
  for (int function = 0; function < 20; ++function)
    source += "func.func @f" + std::to_string(function) + "() { return }\n";

  for (int round = 0; round < 100; ++round)
    lendTo(*pool, [&](ContextLease &lease) {
      auto module =
          mlir::parseSourceString<mlir::ModuleOp>(source, lease.get());
      auto passManager =
          lease.getPassManager("builtin.module(func.func(test-forgetful))");
      ASSERT_THAT(passManager, IsOk());
      EXPECT_TRUE(succeeded((*passManager)->run(*module)));
    });
}

//===----------------------------------------------------------------------===//
// Diagnostics of a lease
//===----------------------------------------------------------------------===//

TEST(ContextPoolTest, DiagnosticsAreCapturedWithSeverityLocationAndNotes) {
  auto pool = makePool();
  ContextLease lease = acquire(*pool);
  auto location = mlir::FileLineColLoc::get(lease.get(), "a.mlir", 3, 7);
  mlir::emitWarning(location) << "odd";
  {
    auto error = mlir::emitError(location) << "wrong";
    error.attachNote(mlir::UnknownLoc::get(lease.get())) << "since";
    error.attachNote() << "and";
  }
  mlir::emitRemark(location) << "by the way";

  std::vector<CapturedDiagnostic> diagnostics = lease.takeDiagnostics();
  ASSERT_EQ(diagnostics.size(), 3u);
  EXPECT_EQ(diagnostics[0].severity, mlir::DiagnosticSeverity::Warning);
  EXPECT_EQ(diagnostics[1].severity, mlir::DiagnosticSeverity::Error);
  EXPECT_EQ(diagnostics[1].location, "\"a.mlir\":3:7");
  EXPECT_EQ(diagnostics[1].message, "wrong");
  ASSERT_EQ(diagnostics[1].notes.size(), 2u);
  EXPECT_EQ(diagnostics[1].notes[0].location, "unknown");
  EXPECT_EQ(toString(diagnostics), "\"a.mlir\":3:7: warning: odd\n"
                                   "\"a.mlir\":3:7: error: wrong\n"
                                   "unknown: note: since\n"
                                   "\"a.mlir\":3:7: note: and\n"
                                   "\"a.mlir\":3:7: remark: by the way");
  EXPECT_THAT(lease.takeDiagnostics(), IsEmpty());
}

TEST(ContextPoolTest, DiagnosticsThatALeaseDidNotTakeAreNotTheNextOnes) {
  auto pool = makePool();
  lendTo(*pool, [](ContextLease &lease) {
    mlir::emitError(mlir::UnknownLoc::get(lease.get())) << "mine";
  });

  EXPECT_THAT(acquire(*pool).takeDiagnostics(), IsEmpty());
}

TEST(ContextPoolTest, AHandlerOfTheLeaseComesBeforeTheCapture) {
  auto pool = makePool();
  ContextLease lease = acquire(*pool);
  mlir::ScopedDiagnosticHandler errorsOnly(
      lease.get(), [](mlir::Diagnostic &diagnostic) {
        return mlir::success(diagnostic.getSeverity() ==
                             mlir::DiagnosticSeverity::Error);
      });
  mlir::emitError(mlir::UnknownLoc::get(lease.get())) << "for the handler";
  mlir::emitWarning(mlir::UnknownLoc::get(lease.get())) << "for the lease";

  EXPECT_EQ(toString(lease.takeDiagnostics()),
            "unknown: warning: for the lease");
}

TEST(ContextPoolTest, NothingReachesStderr) {
  auto pool = makePool();
  testing::internal::CaptureStderr();
  lendTo(*pool, [](ContextLease &lease) {
    mlir::emitError(mlir::UnknownLoc::get(lease.get())) << "captured";
    EXPECT_FALSE(
        mlir::parseSourceString<mlir::ModuleOp>("not mlir", lease.get()));
    EXPECT_FALSE(lease.getPassManager("builtin.module(nonsense)").ok());
  });

  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

/// A module with four functions whose verification fails, each with `marker`,
/// among good ones.
std::string faultyModule(const std::string &marker) {
  std::string source;
  for (int function = 0; function < 24; ++function) {
    std::string name = marker + "_" + std::to_string(function);
    source += "func.func @" + name + "() -> i32 {\n";
    source += function % 6 == 5
                  ? "  \"" + marker + ".unknown_" + std::to_string(function) +
                        "\"() : () -> ()\n"
                  : "";
    source += "  %c = arith.constant 1 : i32\n  return %c : i32\n}\n";
  }
  return source;
}

TEST(ContextPoolTest, DiagnosticsOfSeveralThreadsDoNotInterleave) {
  llvm::DefaultThreadPool shared(llvm::hardware_concurrency(2));
  auto pool = makePool(ContextPoolOptions(),
                       templateWith([&](ContextTemplateOptions &options) {
                         options.threadPool = &shared;
                       }));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread)
    threads.emplace_back([&, thread] {
      std::string marker = "t" + std::to_string(thread);
      for (int round = 0; round < 10; ++round) {
        ContextLease lease = acquire(*pool);
        // Parses as the unregistered operations are allowed, and then fails to
        // verify, function by function, on the shared threads.
        lease->allowUnregisteredDialects();
        auto module = mlir::parseSourceString<mlir::ModuleOp>(
            faultyModule(marker), lease.get());
        ASSERT_TRUE(module);
        lease->allowUnregisteredDialects(false);
        EXPECT_TRUE(failed(mlir::verify(*module)));

        std::vector<CapturedDiagnostic> diagnostics = lease.takeDiagnostics();
        ASSERT_EQ(diagnostics.size(), 4u);
        for (int fault = 0; fault < 4; ++fault)
          EXPECT_THAT(diagnostics[fault].message,
                      testing::HasSubstr(marker + ".unknown_" +
                                         std::to_string(fault * 6 + 5)));
      }
    });
  for (std::thread &thread : threads)
    thread.join();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

TEST(ContextPoolTest, MemoryStaysBoundedWhileConstantsComeAndGo) {
  if (isSanitized)
    GTEST_SKIP() << "resident memory means something only without a sanitizer";
  ContextPoolOptions options = limitedTo(2, /*background=*/true);
  options.maxBytesPerContext = 64 << 20;
  auto pool = makePool(options);
  constexpr size_t constantBytes = 1 << 20;
  for (unsigned round = 0; round < 1000; ++round)
    lendTo(*pool, [&](ContextLease &lease) {
      std::vector<char> data(constantBytes, char(round));
      data[0] = char(round >> 8);
      auto type = mlir::RankedTensorType::get(
          {constantBytes}, mlir::IntegerType::get(lease.get(), 8));
      // Every other one is uniqued, and stays until the context is replaced.
      if (round % 2 == 0) {
        mlir::DenseElementsAttr::getFromRawBuffer(type, data);
        lease.charge(constantBytes);
      } else {
        mlir::DenseResourceElementsAttr::get(
            type, "weights",
            mlir::HeapAsmResourceBlob::allocateAndCopyWithAlign(data, 16));
      }
    });

  EXPECT_LT(residentBytes(), size_t(400) << 20);
  EXPECT_GE(pool->getStats().retiredByBytes, 7u);
}

} // namespace

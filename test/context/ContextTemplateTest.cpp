//===- ContextTemplateTest.cpp - ContextTemplate, rule by rule ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ContextTemplate.h"

#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/ExtensibleDialect.h"
#include "mlir/IR/Location.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ThreadPool.h"

#include <atomic>

using namespace ctxpool;
using namespace ctxpool::test;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Ge;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Le;
using testing::Not;

namespace {

/// Sets what `create` is called with.
absl::StatusOr<std::shared_ptr<const ContextTemplate>>
createWith(const std::function<void(ContextTemplateOptions &)> &change) {
  ContextTemplateOptions options = smallTemplateOptions();
  change(options);
  return ContextTemplate::create(std::move(options));
}

//===----------------------------------------------------------------------===//
// create
//===----------------------------------------------------------------------===//

TEST(ContextTemplateTest, PopulateIsCalledOnce) {
  int calls = 0;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      made, createWith([&](ContextTemplateOptions &options) {
        options.populate = [&](mlir::DialectRegistry &) { ++calls; };
      }));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(first, made->clone());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(second, made->clone());

  EXPECT_EQ(calls, 1);
}

TEST(ContextTemplateTest, WithoutPopulateOnlyTheBuiltinDialectIsThere) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(made, ContextTemplate::create({}));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(context, made->clone());

  EXPECT_THAT(loadedDialects(*context), ElementsAre("builtin"));
  EXPECT_THAT(context->getAvailableDialects(), ElementsAre("builtin"));
}

TEST(ContextTemplateTest, WithoutPreloadEveryRegisteredDialectIsLoaded) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(context, fullTemplate()->clone());

  for (llvm::StringRef name : context->getAvailableDialects())
    EXPECT_TRUE(context->getLoadedDialect(name)) << name.str();
}

TEST(ContextTemplateTest, WithEmptyPreloadNoneIsLoaded) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(made,
                               createWith([](ContextTemplateOptions &options) {
                                 options.preload.emplace();
                               }));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(context, made->clone());

  EXPECT_THAT(made->getPreloadedDialects(), IsEmpty());
  EXPECT_THAT(loadedDialects(*context), ElementsAre("builtin"));
  EXPECT_TRUE(context->getOrLoadDialect("scf"));
}

TEST(ContextTemplateTest, PreloadLoadsTheNamedDialectsAndWhatTheyDependOn) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(made,
                               createWith([](ContextTemplateOptions &options) {
                                 options.preload = {"builtin", "cf"};
                               }));

  EXPECT_THAT(made->getPreloadedDialects(), ElementsAre("arith", "cf"));
}

TEST(ContextTemplateTest, PreloadOfAnUnknownDialectIsAnInvalidArgument) {
  auto preload = [](std::string name) {
    return createWith([&](ContextTemplateOptions &options) {
      options.preload = {"scf", name};
    });
  };

  EXPECT_THAT(preload("arit"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "preload: 'arit' is not a registered dialect; did you "
                       "mean 'arith'?"));
  EXPECT_THAT(preload("transform"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "registered are: arith, builtin, cf, func, scf, "
                       "witness"));
}

TEST(ContextTemplateTest, PreloadForPipelineLoadsWhatThePassesDependOn) {
  registerPasses();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      made, createWith([](ContextTemplateOptions &options) {
        options.preload.emplace();
        options.preloadForPipeline =
            "builtin.module(func.func(convert-scf-to-cf),convert-func-to-llvm)";
      }));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(context, made->clone());

  // The LLVM dialect is not in the registry: the pass brings it along.
  EXPECT_THAT(loadedDialects(*context), IsSupersetOf({"cf", "llvm"}));
  EXPECT_THAT(loadedDialects(*context), Not(Contains("witness")));
}

TEST(ContextTemplateTest, PreloadForPipelineLoadsWhatItNestsOn) {
  registerPasses();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      made, createWith([](ContextTemplateOptions &options) {
        options.preload.emplace();
        options.preloadForPipeline =
            "builtin.module(func.func(scf.for(canonicalize)),no-such.op(cse))";
      }));

  EXPECT_THAT(made->getPreloadedDialects(), IsSupersetOf({"func", "scf"}));
  EXPECT_THAT(made->getPreloadedDialects(), Not(Contains("witness")));
}

TEST(ContextTemplateTest, PreloadForPipelineAddsToPreload) {
  registerPasses();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      made, createWith([](ContextTemplateOptions &options) {
        options.preload = {"witness"};
        options.preloadForPipeline = "builtin.module(convert-scf-to-cf)";
      }));

  EXPECT_THAT(made->getPreloadedDialects(), IsSupersetOf({"witness", "cf"}));
}

TEST(ContextTemplateTest, WrongPipelineIsAnInvalidArgumentWithMlirsMessage) {
  registerPasses();
  auto pipeline = [](std::string text) {
    return createWith([&](ContextTemplateOptions &options) {
      options.preloadForPipeline = text;
    });
  };

  EXPECT_THAT(pipeline("builtin.module(no-such-pass)"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "preloadForPipeline: pass pipeline "
                       "'builtin.module(no-such-pass)': "));
  EXPECT_THAT(pipeline("builtin.module(no-such-pass)"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "'no-such-pass' does not refer to a registered pass"));
  EXPECT_THAT(pipeline("canonicalize"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "expected pass pipeline to be wrapped with the anchor"));
}

//===----------------------------------------------------------------------===//
// clone
//===----------------------------------------------------------------------===//

TEST(ContextTemplateTest, CloneHasTheLoadedDialectsAndRegistryHash) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(first, fullTemplate()->clone());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(second, fullTemplate()->clone());
  std::vector<std::string> preloaded = fullTemplate()->getPreloadedDialects();
  preloaded.push_back("builtin");

  EXPECT_THAT(loadedDialects(*first),
              testing::UnorderedElementsAreArray(preloaded));
  EXPECT_EQ(first->getRegistryHash(), fullTemplate()->getRegistryHash());
  EXPECT_EQ(second->getRegistryHash(), fullTemplate()->getRegistryHash());
}

TEST(ContextTemplateTest, CloneIsWhatLoadingAllAvailableDialectsMakes) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::MLIRContext reference(registry);
  reference.loadAllAvailableDialects();

  CTXPOOL_ASSERT_OK_AND_ASSIGN(clone, fullTemplate()->clone());

  EXPECT_EQ(loadedDialects(*clone), loadedDialects(reference));
  EXPECT_EQ(clone->getRegistryHash(), reference.getRegistryHash());
}

/// An interface that only an extension attaches.
struct MarkInterface : public mlir::DialectInterface::Base<MarkInterface> {
  explicit MarkInterface(mlir::Dialect *dialect) : Base(dialect) {}
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(MarkInterface)
};

TEST(ContextTemplateTest, CloneHasTheExtensionsAlsoForDialectsLoadedLater) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      made, createWith([](ContextTemplateOptions &options) {
        auto populate = options.populate;
        options.populate = [populate](mlir::DialectRegistry &registry) {
          populate(registry);
          registry.addExtension(
              +[](mlir::MLIRContext *, mlir::arith::ArithDialect *dialect) {
                dialect->addInterfaces<MarkInterface>();
              });
          registry.addExtension(
              +[](mlir::MLIRContext *, mlir::scf::SCFDialect *dialect) {
                dialect->addInterfaces<MarkInterface>();
              });
        };
        options.preload = {"arith"};
      }));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(context, made->clone());

  auto isMarked = [&](llvm::StringRef dialect) {
    return context->getOrLoadDialect(dialect)
               ->getRegisteredInterface<MarkInterface>() != nullptr;
  };
  EXPECT_TRUE(isMarked("arith"));
  EXPECT_TRUE(isMarked("scf"));
  EXPECT_FALSE(isMarked("func"));
}

TEST(ContextTemplateTest, CloneHasTheTemplatesFlags) {
  for (bool allow : {false, true}) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        made, createWith([&](ContextTemplateOptions &options) {
          options.allowUnregisteredDialects = allow;
        }));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(context, made->clone());
    EXPECT_EQ(context->allowsUnregisteredDialects(), allow);
  }
}

TEST(ContextTemplateTest, WithoutThreadPoolClonesStartNoThreads) {
  size_t before = countThreads();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(context, fullTemplate()->clone());

  EXPECT_FALSE(context->isMultithreadingEnabled());
  EXPECT_EQ(countThreads(), before);
}

TEST(ContextTemplateTest, ClonesShareTheThreadPool) {
  llvm::DefaultThreadPool threads(llvm::hardware_concurrency(2));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(made,
                               createWith([&](ContextTemplateOptions &options) {
                                 options.threadPool = &threads;
                               }));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(first, made->clone());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(second, made->clone());

  EXPECT_EQ(&first->getThreadPool(), &threads);
  EXPECT_EQ(&second->getThreadPool(), &threads);
}

TEST(ContextTemplateTest, CloneOutlivesItsTemplate) {
  std::unique_ptr<mlir::MLIRContext> context;
  {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        made, createWith([](ContextTemplateOptions &options) {
          options.preload.emplace();
        }));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(clone, made->clone());
    context = std::move(clone);
  }

  EXPECT_TRUE(context->getOrLoadDialect("scf"));
}

TEST(ContextTemplateTest, OnCloneRunsOnEveryCloneAfterItsDialectsAreLoaded) {
  std::vector<mlir::MLIRContext *> seen;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      made, createWith([&](ContextTemplateOptions &options) {
        options.onClone = [&](mlir::MLIRContext &context) {
          EXPECT_TRUE(context.getLoadedDialect("scf"));
          seen.push_back(&context);
          return absl::OkStatus();
        };
      }));
  EXPECT_THAT(seen, IsEmpty());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(first, made->clone());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(second, made->clone());

  EXPECT_THAT(seen, ElementsAre(first.get(), second.get()));
}

TEST(ContextTemplateTest, ErrorOfOnCloneFailsTheCloneWithItsDiagnostics) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      made, createWith([](ContextTemplateOptions &options) {
        options.onClone = [](mlir::MLIRContext &context) {
          mlir::emitError(mlir::UnknownLoc::get(&context)) << "no target";
          return absl::NotFoundError("no target description");
        };
      }));

  EXPECT_THAT(
      made->clone(),
      StatusIs(absl::StatusCode::kNotFound,
               "context template 'small': onClone: no target description\n"
               "unknown: error: no target"));
}

TEST(ContextTemplateTest, ClonesMayBeMadeOnSeveralThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int thread = 0; thread < 8; ++thread)
    threads.emplace_back([&] {
      for (int round = 0; round < 4; ++round) {
        auto context = fullTemplate()->clone();
        right += context.ok() && (*context)->getRegistryHash() ==
                                     fullTemplate()->getRegistryHash();
      }
    });
  for (std::thread &thread : threads)
    thread.join();

  EXPECT_EQ(right, 32);
}

TEST(ContextTemplateTest, PreloadedDialectsAreInLoadOrder) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(none,
                               createWith([](ContextTemplateOptions &options) {
                                 options.preload.emplace();
                               }));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(context, none->clone());

  // Loaded one by one in that order, no dialect brings in another one.
  auto all = smallTemplate();
  size_t loaded = context->getLoadedDialects().size();
  for (const std::string &name : all->getPreloadedDialects()) {
    context->getOrLoadDialect(name);
    EXPECT_EQ(context->getLoadedDialects().size(), ++loaded) << name;
  }
}

//===----------------------------------------------------------------------===//
// capture
//===----------------------------------------------------------------------===//

TEST(ContextTemplateTest, CaptureTakesOverRegistryDialectsAndSettings) {
  std::shared_ptr<const ContextTemplate> captured;
  std::vector<std::string> dialects;
  llvm::hash_code hash = 0;
  {
    mlir::DialectRegistry registry;
    mlir::registerAllDialects(registry);
    mlir::registerAllExtensions(registry);
    mlir::MLIRContext source(registry, mlir::MLIRContext::Threading::DISABLED);
    source.loadDialect<mlir::scf::SCFDialect, mlir::math::MathDialect>();
    source.allowUnregisteredDialects();
    source.printOpOnDiagnostic(false);
    source.printStackTraceOnDiagnostic(true);
    dialects = loadedDialects(source);
    hash = source.getRegistryHash();

    CTXPOOL_ASSERT_OK_AND_ASSIGN(made,
                                 ContextTemplate::capture(source, "live"));
    captured = made;

    // The source is as it was.
    EXPECT_EQ(loadedDialects(source), dialects);
    EXPECT_EQ(source.getRegistryHash(), hash);
  }

  CTXPOOL_ASSERT_OK_AND_ASSIGN(context, captured->clone());
  EXPECT_EQ(captured->getName(), "live");
  EXPECT_EQ(loadedDialects(*context), dialects);
  EXPECT_EQ(context->getRegistryHash(), hash);
  EXPECT_TRUE(context->allowsUnregisteredDialects());
  EXPECT_FALSE(context->shouldPrintOpOnDiagnostic());
  EXPECT_TRUE(context->shouldPrintStackTraceOnDiagnostic());
  EXPECT_TRUE(context->getOrLoadDialect("linalg"));
}

TEST(ContextTemplateTest, CaptureReproducesDialectsThatARegisteredOneBrings) {
  mlir::DialectRegistry registry;
  registry.insert<mlir::scf::SCFDialect>();
  mlir::MLIRContext source(registry, mlir::MLIRContext::Threading::DISABLED);
  source.loadAllAvailableDialects();
  ASSERT_TRUE(source.getLoadedDialect("arith"));

  CTXPOOL_ASSERT_OK_AND_ASSIGN(captured, ContextTemplate::capture(source));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(context, captured->clone());

  EXPECT_EQ(loadedDialects(*context), loadedDialects(source));
}

TEST(ContextTemplateTest, CaptureNamesDialectsThatItCannotReproduce) {
  mlir::DialectRegistry registry;
  registry.insert<mlir::arith::ArithDialect>();
  mlir::MLIRContext source(registry, mlir::MLIRContext::Threading::DISABLED);
  source.loadAllAvailableDialects();
  source.loadDialect<mlir::func::FuncDialect, WitnessDialect>();
  source.getOrLoadDynamicDialect("made_at_run_time",
                                 [](mlir::DynamicDialect *) {});

  EXPECT_THAT(
      ContextTemplate::capture(source, "live"),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               "capturing a context as template 'live': these dialects are "
               "loaded but not registered, so that a clone cannot load them: "
               "func, made_at_run_time, witness"));
}

TEST(ContextTemplateTest, CaptureNamesDialectsThatWereAddedToByHand) {
  mlir::DialectRegistry registry;
  registry.insertDynamic("dyn",
                         [](mlir::MLIRContext *, mlir::DynamicDialect *) {});
  mlir::MLIRContext source(registry, mlir::MLIRContext::Threading::DISABLED);
  auto *dialect =
      static_cast<mlir::DynamicDialect *>(source.getOrLoadDialect("dyn"));
  dialect->registerDynamicOp(mlir::DynamicOpDefinition::get(
      "late", dialect, [](mlir::Operation *) { return mlir::success(); },
      [](mlir::Operation *) { return mlir::success(); }));

  EXPECT_THAT(
      ContextTemplate::capture(source),
      StatusIs(absl::StatusCode::kFailedPrecondition, "these differ: dyn"));
}

TEST(ContextTemplateTest, CaptureLeavesTheThreadsOfTheSourceAlone) {
  mlir::MLIRContext source(mlir::MLIRContext::Threading::ENABLED);
  llvm::DefaultThreadPool threads(llvm::hardware_concurrency(1));

  CTXPOOL_ASSERT_OK_AND_ASSIGN(alone, ContextTemplate::capture(source));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      threaded, ContextTemplate::capture(source, "threaded", &threads));

  CTXPOOL_ASSERT_OK_AND_ASSIGN(first, alone->clone());
  EXPECT_FALSE(first->isMultithreadingEnabled());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(second, threaded->clone());
  EXPECT_EQ(&second->getThreadPool(), &threads);
}

//===----------------------------------------------------------------------===//
// measureDialectCosts
//===----------------------------------------------------------------------===//

TEST(ContextTemplateTest, DialectCostsTellWhatEachDialectRegistersAndTakes) {
  std::vector<DialectCost> costs = fullTemplate()->measureDialectCosts();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(context, fullTemplate()->clone());

  std::vector<std::string> names;
  size_t operations = 0;
  for (const DialectCost &cost : costs) {
    SCOPED_TRACE(cost.name);
    names.push_back(cost.name);
    operations += cost.operations;
    EXPECT_GT(cost.loadMicroseconds, 0);
    EXPECT_GT(cost.totalMicroseconds, 0);
    EXPECT_THAT(cost.extensionShare, AllOf(Ge(0), Le(1)));
    EXPECT_FALSE(cost.viaDependency);
  }
  EXPECT_EQ(llvm::ArrayRef(names), fullTemplate()->getPreloadedDialects());
  // The rest is of the builtin dialect.
  EXPECT_EQ(operations + 2, context->getRegisteredOperations().size());

  auto cost = [&](llvm::StringRef name) {
    return *llvm::find_if(
        costs, [&](const DialectCost &cost) { return cost.name == name; });
  };
  // Counted in the dialects' definitions.
  EXPECT_EQ(cost("async").types, 6u);
  EXPECT_EQ(cost("async").attributes, 0u);
  EXPECT_EQ(cost("cf").operations, 4u);
  EXPECT_EQ(cost("dlti").types, 0u);
  EXPECT_THAT(cost("arith").pulledInBy, IsSupersetOf({"scf", "linalg"}));
  EXPECT_THAT(cost("cf").pulledInBy, Not(Contains("arith")));
}

TEST(ContextTemplateTest, DialectCostsTellWhatIsLoadedOnlyAsADependency) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(made,
                               createWith([](ContextTemplateOptions &options) {
                                 options.preload = {"cf"};
                               }));

  std::vector<DialectCost> costs = made->measureDialectCosts();

  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[0].name, "arith");
  EXPECT_TRUE(costs[0].viaDependency);
  EXPECT_THAT(costs[0].pulledInBy, ElementsAre("cf"));
  EXPECT_EQ(costs[1].name, "cf");
  EXPECT_FALSE(costs[1].viaDependency);
}

} // namespace

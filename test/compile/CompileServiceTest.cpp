//===- CompileServiceTest.cpp - CompileService, rule by rule --------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/CompileService.h"

#include "context_pool/ContextPool.h"
#include "context_pool/Equivalence.h"
#include "context_pool/Executable.h"
#include "context_pool/ModuleTransfer.h"
#include "test/compile/CompileTestSupport.h"
#include "test/support/ForkedChild.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"
#include "test/support/TestFiles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/Verifier.h"
#include "mlir/InitAllDialects.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/ThreadPool.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

using namespace ctxpool;
using namespace ctxpool::test;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using Code = absl::StatusCode;
using Output = CompileServiceOptions::Output;
using OnDestroy = CompileServiceOptions::OnDestroy;

namespace {

//===----------------------------------------------------------------------===//
// A pass that does what the module asks for
//===----------------------------------------------------------------------===//

__attribute__((no_sanitize("undefined", "address"))) void writeToNull() {
  *const_cast<volatile int *>(static_cast<int *>(nullptr)) = 1;
}

__attribute__((noinline)) int overflowStack(volatile int *outer) {
  if (*outer < 0)
    return 0;
  volatile int frame[256] = {};
  frame[0] = *outer + 1;
  return overflowStack(frame) + frame[0];
}

using Action = std::function<void(mlir::ModuleOp)>;

/// What happens where a module declares a function of that name; set by a test
/// before it compiles.
std::map<std::string, Action> &actions() {
  static std::map<std::string, Action> map;
  return map;
}

struct DoPass : mlir::PassWrapper<DoPass, mlir::OperationPass<mlir::ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DoPass)
  llvm::StringRef getArgument() const final { return "test-do"; }
  void runOnOperation() final {
    for (auto function : getOperation().getOps<mlir::func::FuncOp>()) {
      llvm::StringRef name = function.getName();
      if (name == "segv")
        writeToNull();
      else if (name == "abort")
        abort();
      else if (name == "overflow") {
        volatile int bottom = 0;
        overflowStack(&bottom);
      } else if (name == "fatal")
        llvm::reportFatalInternalError("cannot do it");
      else if (name == "usage")
        llvm::reportFatalUsageError("may not do it");
      else if (name == "throw")
        throw std::runtime_error("did not do it");
      else if (name == "fail") {
        function.emitError("will not do it");
        signalPassFailure();
      } else if (name == "warn") {
        function.emitWarning("would rather not do it");
        signalPassFailure();
      } else if (name == "silent") {
        signalPassFailure();
      } else if (auto action = actions().find(name.str());
                 action != actions().end())
        action->second(getOperation());
    }
  }
};

/// Declares the function of `name`, and another one that tells modules apart.
std::string moduleThatDoes(llvm::StringRef name, int number = 0) {
  return ("func.func private @" + name + "()\nfunc.func private @number" +
          std::to_string(number) + "()\n")
      .str();
}

std::string goodModule(int number = 0) {
  return moduleThatDoes("nothing", number);
}

class CompileServiceTest : public testing::Test {
protected:
  CompileServiceTest() {
    registerPasses();
    static const bool once = [] {
      mlir::PassRegistration<DoPass>();
      return true;
    }();
    (void)once;
    options.threads = 2;
    options.recipe.pipeline = "builtin.module(canonicalize,test-do,cse)";
  }
  ~CompileServiceTest() override { actions().clear(); }

  void makePool(ContextPoolOptions poolOptions = {},
                std::shared_ptr<const ContextTemplate> contextTemplate =
                    smallTemplate()) {
    auto made = ContextPool::create(std::move(contextTemplate), poolOptions);
    ASSERT_THAT(made, IsOk());
    pool = *std::move(made);
  }
  void makePoolWithThreads(llvm::ThreadPoolInterface &threads) {
    ContextTemplateOptions templateOptions = smallTemplateOptions();
    templateOptions.threadPool = &threads;
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        contextTemplate, ContextTemplate::create(std::move(templateOptions)));
    makePool({}, contextTemplate);
  }
  void limitContexts(size_t maxLive) {
    ContextPoolOptions limited;
    limited.maxLive = maxLive;
    limited.backgroundRefill = false;
    makePool(limited);
  }
  void makeCache(CompileCacheOptions cacheOptions = {}) {
    auto made = CompileCache::create(std::move(cacheOptions));
    ASSERT_THAT(made, IsOk());
    cache = *std::move(made);
  }
  std::unique_ptr<CompileService> makeService() {
    if (!pool)
      makePool();
    auto made = CompileService::create(*pool, cache.get(), options);
    EXPECT_THAT(made, IsOk());
    return *std::move(made);
  }
  std::unique_ptr<CompileService> makeCrashProofService() {
    expectLeaks();
    options.crashRecovery = true;
    return makeService();
  }

  /// A module in a context of its own.
  mlir::ModuleOp parseModule(llvm::StringRef text) {
    if (!context)
      context = *smallTemplate()->clone();
    modules.push_back(parse(*context, text));
    return *modules.back();
  }

  /// ... for one of several threads: in a context that lives as long as the test.
  mlir::ModuleOp parseModuleOnThread(int number) {
    return parseModuleThatDoes("nothing", number);
  }
  mlir::ModuleOp parseModuleThatDoes(llvm::StringRef name, int number = 0) {
    auto own = *smallTemplate()->clone();
    auto module = parse(*own, moduleThatDoes(name, number));
    std::lock_guard<std::mutex> lock(ofThreadsMutex);
    ofThreads.emplace_back(std::move(own), std::move(module));
    return *ofThreads.back().second;
  }

  CompileServiceOptions options;
  std::unique_ptr<ContextPool> pool;
  std::unique_ptr<CompileCache> cache;
  std::unique_ptr<mlir::MLIRContext> context;
  std::vector<mlir::OwningOpRef<mlir::ModuleOp>> modules;
  std::mutex ofThreadsMutex;
  std::vector<std::pair<std::unique_ptr<mlir::MLIRContext>,
                        mlir::OwningOpRef<mlir::ModuleOp>>>
      ofThreads;
};

std::string textOf(const Artifact &bytecode) {
  auto context = *fullTemplate()->clone();
  auto module = parse(*context, bytecode.getBytes());
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream);
  return text;
}

bool isReady(CompileService::Future &future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

/// The answer, for which the test waits up to its deadline.
absl::StatusOr<Artifact> answerOf(CompileService::Future future) {
  if (future.wait_for(deadline) != std::future_status::ready)
    return absl::UnknownError("no answer");
  return future.get();
}

//===----------------------------------------------------------------------===//
// create
//===----------------------------------------------------------------------===//

TEST_F(CompileServiceTest, CreateNamesTheFieldThatIsOutOfItsRange) {
  makePool();
  auto create =
      [&](const std::function<void(CompileServiceOptions &)> &change) {
        CompileServiceOptions changed = options;
        change(changed);
        return CompileService::create(*pool, nullptr, changed).status();
      };

  EXPECT_THAT(create([](auto &o) { o.timeout = absl::Seconds(-1); }),
              StatusIs(Code::kInvalidArgument,
                       "compile service: timeout = -1s, expected at least 0"));
  EXPECT_THAT(create([](auto &o) { o.queueCapacity = 0; }),
              StatusIs(Code::kInvalidArgument, "queueCapacity = 0"));
  EXPECT_THAT(create([](auto &o) { o.stackBytes = 1 << 20; }),
              StatusIs(Code::kInvalidArgument,
                       "stackBytes = 1048576, expected at least 8388608"));
  EXPECT_THAT(create([](auto &o) { o.output = Output(7); }),
              StatusIs(Code::kInvalidArgument, "output = 7"));
  EXPECT_THAT(create([](auto &o) { o.onDestroy = OnDestroy(7); }),
              StatusIs(Code::kInvalidArgument, "onDestroy = 7"));
  EXPECT_THAT(create([](auto &o) { o.recipe.optimizationLevel = 9; }),
              StatusIs(Code::kInvalidArgument, "optimizationLevel"));
  EXPECT_THAT(
      create([](auto &o) { o.recipe.pipeline = "builtin.module(no-such)"; }),
      StatusIs(Code::kInvalidArgument, "no-such"));
  EXPECT_THAT(create([](auto &o) { o.recipe.pipeline = ""; }),
              StatusIs(Code::kInvalidArgument, "recipe.pipeline"));
  EXPECT_THAT(create([](auto &o) { o.recipe.target = "toaster-acme-none"; }),
              StatusIs(Code::kInvalidArgument, "target 'toaster-acme-none'"));
  EXPECT_THAT(create([](auto &o) { o.recipe.pipeline = "func.func(cse)"; }),
              StatusIs(Code::kInvalidArgument,
                       "recipe.pipeline = func.func(cse), expected "
                       "builtin.module as its anchor"));
}

TEST_F(CompileServiceTest, AnOutputOfLLVMNeedsContextsThatTranslate) {
  makePool();
  for (Output output : {Output::LLVMIR, Output::Object}) {
    options.output = output;
    EXPECT_THAT(CompileService::create(*pool, nullptr, options),
                StatusIs(Code::kFailedPrecondition, "compile service: output"));
  }
}

TEST_F(CompileServiceTest, TimeoutAndCrashRecoveryNeedTheActionHandler) {
  ContextTemplateOptions templateOptions = smallTemplateOptions();
  templateOptions.onClone = [](mlir::MLIRContext &context) {
    context.registerActionHandler(
        [](llvm::function_ref<void()> action, const mlir::tracing::Action &) {
          action();
        });
    return absl::OkStatus();
  };
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      contextTemplate, ContextTemplate::create(std::move(templateOptions)));
  makePool({}, contextTemplate);

  // Without them it stays the template's, and nobody knows of passes.
  EXPECT_THAT(makeService()->compileSource(moduleThatDoes("silent")),
              StatusIs(Code::kInvalidArgument, "pipeline: MLIR does not say"));
  EXPECT_EQ(pool->getStats().retiredByDrift, 0u);
  options.timeout = absl::Hours(1);
  EXPECT_THAT(CompileService::create(*pool, nullptr, options),
              StatusIs(Code::kFailedPrecondition, "action handler"));
  options.timeout = absl::InfiniteDuration();
  options.crashRecovery = true;
  EXPECT_THAT(CompileService::create(*pool, nullptr, options),
              StatusIs(Code::kFailedPrecondition, "action handler"));
}

TEST_F(CompileServiceTest, OptionsAreGivenBackSettled) {
  options.threads = 0;
  options.recipe.pipeline = " builtin.module( cse ) ";
  auto service = makeService();

  EXPECT_GE(service->getOptions().threads, 1u);
  EXPECT_EQ(service->getOptions().recipe.pipeline, "builtin.module(cse)");
}

TEST_F(CompileServiceTest, AServiceOfAnothersOptionsSharesItsArtifacts) {
  makeCache();
  options.recipe.options = "mine";
  auto service = makeService();
  EXPECT_THAT(service->compileSource(goodModule()), IsOk());
  options = service->getOptions();
  EXPECT_EQ(options.recipe.options, "mine");
  EXPECT_THAT(makeService()->compileSource(goodModule()), IsOk());

  EXPECT_EQ(cache->getStats().compiles, 1u);
}

TEST_F(CompileServiceTest, TheResolvedRecipeMakesTheKeysOfTheService) {
  makeCache();
  options.recipe.options = "mine";
  options.structural.symbols = StructuralOptions::Symbols::NormalizeAll;
  auto service = makeService();
  mlir::ModuleOp module = parseModule(goodModule());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(made, service->compile(module));

  CTXPOOL_ASSERT_OK_AND_ASSIGN(digest, fingerprint(module, options.structural));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      known, cache->lookup(service->getResolvedRecipe().makeKey(digest)));
  ASSERT_TRUE(known.has_value());
  EXPECT_EQ(known->getBytes().data(), made.getBytes().data());
  EXPECT_EQ(service->getResolvedRecipe().get().options, "output=module;mine");
}

TEST_F(CompileServiceTest, ASourceWaitsForAnotherProcessWithoutAContext) {
  TemporaryFolder folder;
  CompileCacheOptions shared;
  shared.directory = folder.getPath("cache");
  makeCache(shared);
  limitContexts(1);
  auto service = makeService();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(digest, fingerprint(parseModule(goodModule())));
  CacheKey key = service->getResolvedRecipe().makeKey(digest);
  // Two caches are to a folder what two processes are.
  CTXPOOL_ASSERT_OK_AND_ASSIGN(others, CompileCache::create(shared));
  PhaseGate gate;
  std::thread other([&] {
    EXPECT_THAT(others->getOrCompile(key,
                                     [&]() -> absl::StatusOr<Artifact> {
                                       gate.open(1);
                                       gate.await(2);
                                       return Artifact::copyOf("mlir-bytecode",
                                                               "theirs");
                                     }),
                IsOk());
  });
  gate.await(1);

  CompileService::Future future = service->submitSource(goodModule());
  // The context comes back before there is an answer.
  EXPECT_TRUE(eventually([&] {
    ContextPoolStats stats = pool->getStats();
    return stats.leases == 1 && stats.leased == 0;
  }));
  EXPECT_FALSE(isReady(future));
  gate.open(2);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(artifact, answerOf(std::move(future)));
  other.join();

  EXPECT_EQ(artifact.getBytes(), "theirs");
  EXPECT_EQ(cache->getStats().compiles, 0u);
}

TEST_F(CompileServiceTest, ASourceIsCompiledWhereAnotherProcessTakesTooLong) {
  TemporaryFolder folder;
  CompileCacheOptions shared;
  shared.directory = folder.getPath("cache");
  shared.crossProcessWait = absl::Milliseconds(20);
  makeCache(shared);
  limitContexts(1);
  auto service = makeService();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(digest, fingerprint(parseModule(goodModule())));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(others, CompileCache::create(shared));
  EXPECT_THAT(others->getOrCompile(
                  service->getResolvedRecipe().makeKey(digest),
                  [&]() -> absl::StatusOr<Artifact> {
                    EXPECT_THAT(service->compileSource(goodModule()), IsOk());
                    return Artifact::copyOf("mlir-bytecode", "theirs");
                  }),
              IsOk());
  EXPECT_EQ(cache->getStats().compiles, 1u);
}

//===----------------------------------------------------------------------===//
// compile
//===----------------------------------------------------------------------===//

constexpr llvm::StringLiteral addition = R"(
  func.func @add(%a: i32, %b: i32) -> i32 {
    %unused = arith.muli %a, %b : i32
    %sum = arith.addi %a, %b : i32
    return %sum : i32
  })";

TEST_F(CompileServiceTest, OutputModuleIsTheModuleAfterThePipeline) {
  auto service = makeService();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(artifact,
                               service->compile(parseModule(addition)));

  EXPECT_EQ(artifact.getKind(), "mlir-bytecode");
  EXPECT_THAT(textOf(artifact), AllOf(HasSubstr("arith.addi"),
                                      testing::Not(HasSubstr("arith.muli"))));
}

TEST_F(CompileServiceTest, OutputsOfLLVMAreBitcodeAndObjects) {
  makePool({}, compilingTemplate());
  options.recipe.pipeline =
      "builtin.module(convert-arith-to-llvm,convert-func-to-llvm)";
  options.output = Output::LLVMIR;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bitcode, makeService()->compileSource(addition));
  EXPECT_EQ(bitcode.getKind(), "llvm-bitcode");
  EXPECT_THAT(bitcode.getBytes().str(), StartsWith("BC"));

  options.output = Output::Object;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(object, makeService()->compileSource(addition));
  EXPECT_EQ(object.getKind(), "object");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(executable, Executable::load(object));
  EXPECT_EQ(call<int>(*executable, "add", 40, 2), 42);
}

TEST_F(CompileServiceTest, AModuleWithoutFunctionsIsAnEmptyObject) {
  makePool({}, compilingTemplate());
  options.recipe.pipeline = "builtin.module()";
  options.output = Output::Object;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(object,
                               makeService()->compileSource("module {}"));
  EXPECT_THAT(Executable::load(object), IsOk());
}

TEST_F(CompileServiceTest, CodeOfWhatIsNotLoweredIsInvalidArgument) {
  makePool({}, compilingTemplate());
  options.recipe.pipeline = "builtin.module(convert-arith-to-llvm)";
  for (Output output : {Output::LLVMIR, Output::Object}) {
    options.output = output;
    EXPECT_THAT(makeService()->compileSource(addition, "request.mlir"),
                StatusIs(Code::kInvalidArgument,
                         "compiling request.mlir: translation to LLVM IR"));
  }
}

TEST_F(CompileServiceTest, OutputsHaveKeysOfTheirOwn) {
  makePool({}, compilingTemplate());
  makeCache();
  options.recipe.pipeline =
      "builtin.module(convert-arith-to-llvm,convert-func-to-llvm)";
  std::set<std::string> kinds;
  for (Output output : {Output::Module, Output::LLVMIR, Output::Object}) {
    options.output = output;
    CTXPOOL_ASSERT_OK_AND_ASSIGN(artifact,
                                 makeService()->compileSource(addition));
    kinds.insert(artifact.getKind().str());
  }
  EXPECT_EQ(kinds.size(), 3u);
}

TEST_F(CompileServiceTest, CompileRunsOnTheCallingThread) {
  std::thread::id compiledOn;
  actions()["where"] = [&](mlir::ModuleOp) {
    compiledOn = std::this_thread::get_id();
  };
  auto service = makeService();
  EXPECT_THAT(service->compileSource(moduleThatDoes("where")), IsOk());
  EXPECT_EQ(compiledOn, std::this_thread::get_id());
  compiledOn = {};
  EXPECT_THAT(service->compile(parseModule(moduleThatDoes("where"))), IsOk());
  EXPECT_EQ(compiledOn, std::this_thread::get_id());
}

TEST_F(CompileServiceTest, CompileLeavesTheModuleAsItIs) {
  auto service = makeService();
  mlir::ModuleOp module = parseModule(addition);
  std::string before, after;
  llvm::raw_string_ostream(before) << module;
  EXPECT_THAT(service->compile(module), IsOk());
  llvm::raw_string_ostream(after) << module;

  EXPECT_EQ(before, after);
}

TEST_F(CompileServiceTest, ThreadsMayCompileModulesOfOneContext) {
  makeCache();
  auto service = makeService();
  std::vector<mlir::ModuleOp> sources;
  for (int number = 0; number < 8; ++number)
    sources.push_back(parseModule(goodModule(number % 4)));
  std::vector<std::thread> threads;
  for (mlir::ModuleOp source : sources)
    threads.emplace_back(
        [&service, source] { EXPECT_THAT(service->compile(source), IsOk()); });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(cache->getStats().compiles, 4u);
}

TEST_F(CompileServiceTest, EqualModulesOfTwoContextsShareAnArtifact) {
  makeCache();
  auto service = makeService();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(first, service->compile(parseModule(addition)));
  auto otherContext = *fullTemplate()->clone();
  auto other = parse(*otherContext, addition);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(second, service->compile(*other));

  EXPECT_EQ(first.getBytes().data(), second.getBytes().data());
  EXPECT_EQ(cache->getStats().compiles, 1u);
}

TEST_F(CompileServiceTest, StructuralOptionsSayWhichModulesAreEqual) {
  makeCache();
  for (bool locations : {false, true}) {
    options.structural.includeLocations = locations;
    auto service = makeService();
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        first, service->compileSource("module {} loc(\"a\")"));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        second, service->compileSource("module {} loc(\"b\")"));
    EXPECT_EQ(first.getBytes().data() == second.getBytes().data(), !locations);
  }
}

TEST_F(CompileServiceTest, WithoutACacheEveryRequestCompiles) {
  std::atomic<int> compiles{0};
  actions()["count"] = [&](mlir::ModuleOp) { ++compiles; };
  auto service = makeService();
  for (int round = 0; round < 3; ++round)
    EXPECT_THAT(service->compileSource(moduleThatDoes("count")), IsOk());
  EXPECT_THAT(service->compile(parseModule(moduleThatDoes("count"))), IsOk());
  EXPECT_THAT(answerOf(service->submit(parseModule(moduleThatDoes("count")))),
              IsOk());
  EXPECT_EQ(compiles, 5);
}

TEST_F(CompileServiceTest, AFailingPassIsInvalidArgumentWithItsDiagnostics) {
  makeCache();
  auto service = makeService();
  for (int round = 0; round < 2; ++round)
    EXPECT_THAT(service->compileSource(moduleThatDoes("fail"), "request.mlir"),
                StatusIs(Code::kInvalidArgument,
                         "compiling request.mlir: pipeline: pass 'test-do': "
                         "\"request.mlir\":1:1: error: will not do it"));
  EXPECT_THAT(service->compile(parseModule(moduleThatDoes("fail"))),
              StatusIs(Code::kInvalidArgument,
                       "compiling a module: pipeline: pass 'test-do': "));
  // Errors are not cached.
  EXPECT_EQ(cache->getStats().compiles, 3u);
}

TEST_F(CompileServiceTest, AFailingPassIsNamedWhereItDoesNotSayWhy) {
  for (bool recovers : {false, true}) {
    options.crashRecovery = recovers;
    auto service = makeService();
    EXPECT_THAT(
        service->compileSource(moduleThatDoes("silent"), "request.mlir"),
        StatusIs(Code::kInvalidArgument,
                 "compiling request.mlir: pipeline: pass 'test-do': "
                 "MLIR does not say why"));
    EXPECT_THAT(service->compileSource(moduleThatDoes("warn"), "request.mlir"),
                StatusIs(Code::kInvalidArgument,
                         "compiling request.mlir: pipeline: pass 'test-do': "
                         "\"request.mlir\":1:1: warning: would rather not"));
  }
}

TEST_F(CompileServiceTest, APassThatLeavesWhatDoesNotVerifyIsNamed) {
  actions()["break"] = [](mlir::ModuleOp module) {
    module.walk([](mlir::func::ReturnOp op) { op->erase(); });
  };
  EXPECT_THAT(makeService()->compileSource(addition.str() +
                                           "func.func private @break()"),
              StatusIs(Code::kInvalidArgument,
                       "pipeline: pass 'test-do': \"<source>\":"));
}

TEST_F(CompileServiceTest, WhereContextsHaveThreadsThePassMayBeAnEarlierOne) {
  llvm::DefaultThreadPool threads(llvm::hardware_concurrency(2));
  makePoolWithThreads(threads);
  EXPECT_THAT(makeService()->compileSource(moduleThatDoes("silent")),
              StatusIs(Code::kInvalidArgument,
                       "pipeline: pass 'test-do' or an earlier one: MLIR"));
  pool.reset();
}

TEST_F(CompileServiceTest, AModuleThatDoesNotVerifyIsInvalidArgument) {
  auto service = makeService();
  mlir::ModuleOp module = parseModule(addition);
  // The terminator goes.
  module.walk([](mlir::func::ReturnOp op) { op->erase(); });
  EXPECT_THAT(service->compile(module),
              StatusIs(Code::kInvalidArgument, "compiling a module: verifier"));
  EXPECT_THAT(service->compileSource("func.func @f() -> i32 { return }",
                                     "request.mlir"),
              StatusIs(Code::kInvalidArgument,
                       "compiling request.mlir: verifier: "
                       "\"request.mlir\":1:25: error: "));
}

TEST_F(CompileServiceTest, TextThatDoesNotParseIsInvalidArgument) {
  auto service = makeService();
  EXPECT_THAT(service->compileSource("func.func @", "request.mlir"),
              StatusIs(Code::kInvalidArgument,
                       "compiling request.mlir: parser: cannot parse "
                       "'request.mlir': \"request.mlir\":1:"));
}

TEST_F(CompileServiceTest, ADialectThatContextsLackIsFailedPrecondition) {
  auto service = makeService();
  auto full = *fullTemplate()->clone();
  auto module = parse(*full, "func.func @f(%a: f32) -> f32 {\n"
                             "  %b = math.sin %a : f32\n"
                             "  return %b : f32\n}");
  EXPECT_THAT(service->compile(*module),
              StatusIs(Code::kFailedPrecondition, "math"));
  EXPECT_THAT(answerOf(service->submit(*module)),
              StatusIs(Code::kFailedPrecondition, "math"));
}

TEST_F(CompileServiceTest, ExtraTellsServicesOfDifferentTemplatesApart) {
  makeCache();
  std::set<const char *> artifacts;
  for (const char *extra : {"", "full"}) {
    options.recipe.extra = {extra};
    for (const auto &contextTemplate : {smallTemplate(), fullTemplate()}) {
      makePool({}, contextTemplate);
      CTXPOOL_ASSERT_OK_AND_ASSIGN(artifact,
                                   makeService()->compileSource(addition));
      artifacts.insert(artifact.getBytes().data());
    }
  }
  EXPECT_EQ(artifacts.size(), 2u);
}

TEST_F(CompileServiceTest, SourcesShareArtifactsWithModules) {
  makeCache();
  auto service = makeService();
  mlir::ModuleOp module = parseModule(addition);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(ofModule, service->compile(module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(ofText, service->compileSource(addition));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(ofBytes,
                               service->compileSource(bytes.getBytes()));

  EXPECT_EQ(ofText.getBytes().data(), ofModule.getBytes().data());
  EXPECT_EQ(ofBytes.getBytes().data(), ofModule.getBytes().data());
}

TEST_F(CompileServiceTest, ManyThreadsThatAskForOneModuleCompileItOnce) {
  // Two contexts for all of them: nobody waits for the compile with a context.
  limitContexts(2);
  makeCache();
  options.threads = 4;
  std::atomic<int> compiles{0};
  PhaseGate gate;
  actions()["await"] = [&](mlir::ModuleOp) {
    ++compiles;
    gate.await(1);
  };
  auto service = makeService();
  const std::string text = moduleThatDoes("await");
  mlir::ModuleOp module = parseModule(text);

  std::mutex mutex;
  std::set<const char *> artifacts;
  auto expectArtifact = [&](const absl::StatusOr<Artifact> &artifact) {
    ASSERT_THAT(artifact, IsOk());
    std::lock_guard<std::mutex> lock(mutex);
    artifacts.insert(artifact->getBytes().data());
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 64; ++thread)
    threads.emplace_back([&, thread] {
      switch (thread % 4) {
      case 0:
        return expectArtifact(service->compile(module));
      case 1:
        return expectArtifact(service->compileSource(text));
      case 2:
        return expectArtifact(answerOf(service->submit(module)));
      default:
        return expectArtifact(answerOf(service->submitSource(text)));
      }
    });
  EXPECT_TRUE(eventually([&] { return compiles == 1; }));
  gate.open(1);
  for (std::thread &thread : threads)
    thread.join();

  EXPECT_EQ(compiles, 1);
  EXPECT_EQ(artifacts.size(), 1u);
}

TEST_F(CompileServiceTest, VerifiedHitsSeeThroughNamesOfPrivateSymbols) {
  CompileCacheOptions verifying;
  verifying.verifyHits = true;
  verifying.verifyInterval = 1;
  makeCache(verifying);
  // As upstream's passes do, every compile names what it makes in another way.
  std::atomic<int> number{0};
  auto add = [&](bool isPrivate) {
    return [&number, isPrivate](mlir::ModuleOp module) {
      auto builder = mlir::OpBuilder::atBlockBegin(module.getBody());
      auto function = mlir::func::FuncOp::create(
          builder, module.getLoc(), "made" + std::to_string(++number),
          builder.getFunctionType({}, {}));
      function.setPrivate();
      if (isPrivate)
        return;
      function.setPublic();
      builder.setInsertionPointToStart(function.addEntryBlock());
      mlir::func::ReturnOp::create(builder, module.getLoc());
    };
  };
  actions()["hide"] = add(/*isPrivate=*/true);
  actions()["show"] = add(/*isPrivate=*/false);
  auto service = makeService();

  for (int round = 0; round < 2; ++round)
    EXPECT_THAT(service->compileSource(moduleThatDoes("hide")), IsOk());
  EXPECT_EQ(number, 2);
  EXPECT_EQ(cache->getStats().verified, 1u);
  EXPECT_EQ(cache->getStats().mismatches, 0u);
  for (int round = 0; round < 2; ++round)
    EXPECT_THAT(service->compile(parseModule(moduleThatDoes("show"))), IsOk());
  EXPECT_EQ(cache->getStats().verified, 2u);
  EXPECT_EQ(cache->getStats().mismatches, 1u);
}

/// What the service makes of `text`, put under its key into a cache that
/// verifies by somebody who does not; then it is asked for.
class VerifiedHitOfServiceTest : public CompileServiceTest {
protected:
  void ask(llvm::StringRef text, const Artifact &cached) {
    CompileCacheOptions verifying;
    verifying.verifyHits = true;
    verifying.verifyInterval = 1;
    makeCache(verifying);
    auto service = makeService();
    mlir::ModuleOp module = parseModule(text);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(digest, fingerprint(module));
    CacheKey key = service->getResolvedRecipe().makeKey(digest);
    ASSERT_THAT(cache->insert(key, cached), IsOk());
    EXPECT_THAT(service->compile(module), IsOk());
    EXPECT_THAT(service->compileSource(text), IsOk());
    EXPECT_EQ(cache->getStats().verified, 2u);
  }
  absl::StatusOr<Artifact> compileWithoutVerifying(llvm::StringRef text) {
    return CompileService::create(*pool, nullptr, options)
        .value()
        ->compileSource(text);
  }
};

TEST_F(VerifiedHitOfServiceTest, ModulesOfACacheThatDoesNotVerifyAreCompared) {
  // One context is enough for that.
  limitContexts(1);
  std::atomic<int> number{0};
  actions()["hide"] = [&](mlir::ModuleOp module) {
    auto builder = mlir::OpBuilder::atBlockBegin(module.getBody());
    mlir::func::FuncOp::create(builder, module.getLoc(),
                               "made" + std::to_string(++number),
                               builder.getFunctionType({}, {}))
        .setPrivate();
  };
  std::string text = addition.str() + moduleThatDoes("hide");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(cached, compileWithoutVerifying(text));
  ask(text, cached);
  EXPECT_EQ(cache->getStats().mismatches, 0u);
  EXPECT_EQ(cache->getStats().incomparable, 0u);

  CTXPOOL_ASSERT_OK_AND_ASSIGN(other, compileWithoutVerifying(goodModule()));
  ask(text, other);
  EXPECT_EQ(cache->getStats().mismatches, 2u);
  EXPECT_EQ(cache->getStats().incomparable, 0u);
}

TEST_F(VerifiedHitOfServiceTest, CodeOfACacheThatDoesNotVerifyIsIncomparable) {
  makePool({}, compilingTemplate());
  options.recipe.pipeline =
      "builtin.module(convert-arith-to-llvm,convert-func-to-llvm)";
  options.output = Output::Object;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(cached, compileWithoutVerifying(addition));
  ask(addition, cached);
  EXPECT_EQ(cache->getStats().mismatches, 0u);
  EXPECT_EQ(cache->getStats().incomparable, 0u);
  ask(addition, Artifact::copyOf("object", "with names of another run"));
  EXPECT_EQ(cache->getStats().mismatches, 0u);
  EXPECT_EQ(cache->getStats().incomparable, 2u);
}

//===----------------------------------------------------------------------===//
// submit
//===----------------------------------------------------------------------===//

TEST_F(CompileServiceTest, SubmitReadsTheModuleBeforeItReturns) {
  options.threads = 1;
  PhaseGate gate;
  actions()["await"] = [&](mlir::ModuleOp) { gate.await(1); };
  auto service = makeService();
  auto blocker = service->submitSource(moduleThatDoes("await"));
  CompileService::Future ofModule, ofSource;
  {
    auto own = *smallTemplate()->clone();
    auto module = parse(*own, addition);
    ofModule = service->submit(*module);
    std::string text = addition.str();
    ofSource = service->submitSource(text);
    std::fill(text.begin(), text.end(), '#');
  }
  gate.open(1);

  EXPECT_THAT(answerOf(std::move(blocker)), IsOk());
  EXPECT_THAT(answerOf(std::move(ofModule)), IsOk());
  EXPECT_THAT(answerOf(std::move(ofSource)), IsOk());
}

TEST_F(CompileServiceTest, SubmittedModulesAreServedByThreadsOfTheStatedStack) {
  options.stackBytes = size_t(24) << 20;
  std::atomic<size_t> stackBytes{0};
  actions()["measure"] = [&](mlir::ModuleOp) {
    pthread_attr_t attributes;
    size_t bytes = 0;
    ASSERT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_destroy(&attributes);
    stackBytes = bytes;
  };
  auto service = makeService();
  EXPECT_THAT(answerOf(service->submitSource(moduleThatDoes("measure"))),
              IsOk());
  EXPECT_GE(stackBytes, options.stackBytes);
}

TEST_F(CompileServiceTest, AsManyRequestsAreServedAtOnceAsThereAreThreads) {
  options.threads = 4;
  PhaseGate gate;
  std::atomic<int> there{0};
  actions()["meet"] = [&](mlir::ModuleOp) {
    if (++there == 4)
      gate.open(1);
    gate.await(1);
  };
  auto service = makeService();
  std::vector<CompileService::Future> futures;
  for (int number = 0; number < 4; ++number)
    futures.push_back(service->submitSource(moduleThatDoes("meet", number)));
  for (CompileService::Future &future : futures)
    EXPECT_THAT(answerOf(std::move(future)), IsOk());
}

TEST_F(CompileServiceTest, SubmitAnswersWhatTheCacheHasAtOnce) {
  makeCache();
  options.threads = 1;
  PhaseGate gate;
  actions()["await"] = [&](mlir::ModuleOp) { gate.await(1); };
  auto service = makeService();
  mlir::ModuleOp module = parseModule(addition);
  EXPECT_THAT(service->compile(module), IsOk());
  auto blocker = service->submitSource(moduleThatDoes("await"));

  CompileService::Future hit = service->submit(module);
  EXPECT_TRUE(isReady(hit));
  EXPECT_THAT(hit.get(), IsOk());
  gate.open(1);
  EXPECT_THAT(answerOf(std::move(blocker)), IsOk());
}

TEST_F(CompileServiceTest, SubmitWaitsWhereTheQueueIsFull) {
  options.threads = 1;
  options.queueCapacity = 1;
  PhaseGate gate;
  std::atomic<bool> opened{false};
  actions()["await"] = [&](mlir::ModuleOp) { gate.await(1); };
  auto service = makeService();
  auto first = service->submitSource(moduleThatDoes("await"));
  EXPECT_TRUE(eventually([&] { return service->getStats().running == 1; }));
  auto second = service->submitSource(goodModule(1));
  EXPECT_EQ(service->getStats().queued, 1u);

  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      CompileService::Future future =
          thread % 2 == 0 ? service->submit(parseModuleOnThread(thread))
                          : service->submitSource(goodModule(thread));
      EXPECT_TRUE(opened);
      EXPECT_THAT(answerOf(std::move(future)), IsOk());
    });
  opened = true;
  gate.open(1);
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_THAT(answerOf(std::move(first)), IsOk());
  EXPECT_THAT(answerOf(std::move(second)), IsOk());
  EXPECT_EQ(service->getStats().queued, 0u);
}

TEST_F(CompileServiceTest, DestructionServesWhatIsQueued) {
  options.threads = 1;
  PhaseGate gate;
  actions()["await"] = [&](mlir::ModuleOp) { gate.await(1); };
  auto service = makeService();
  std::vector<CompileService::Future> futures;
  futures.push_back(service->submitSource(moduleThatDoes("await")));
  for (int number = 0; number < 5; ++number)
    futures.push_back(service->submitSource(goodModule(number)));
  std::thread destroyer([&] { service.reset(); });
  gate.open(1);
  destroyer.join();

  for (CompileService::Future &future : futures) {
    ASSERT_TRUE(isReady(future));
    EXPECT_THAT(future.get(), IsOk());
  }
}

TEST_F(CompileServiceTest, DestructionCancelsWhatIsQueuedWhereAskedTo) {
  options.threads = 1;
  options.onDestroy = OnDestroy::Cancel;
  PhaseGate gate;
  actions()["await"] = [&](mlir::ModuleOp) { gate.await(1); };
  auto service = makeService();
  auto begun = service->submitSource(moduleThatDoes("await"));
  EXPECT_TRUE(eventually([&] { return service->getStats().running == 1; }));
  std::vector<CompileService::Future> queued;
  for (int number = 0; number < 5; ++number)
    queued.push_back(service->submitSource(goodModule(number)));
  std::thread destroyer([&] { service.reset(); });

  for (CompileService::Future &future : queued)
    EXPECT_THAT(answerOf(std::move(future)),
                StatusIs(Code::kCancelled, "destroyed before"));
  gate.open(1);
  destroyer.join();
  ASSERT_TRUE(isReady(begun));
  EXPECT_THAT(begun.get(), IsOk());
}

TEST_F(CompileServiceTest, AModuleThatBytecodeLosesIsCompiledBySubmit) {
  ContextTemplateOptions templateOptions;
  templateOptions.populate = [](mlir::DialectRegistry &registry) {
    mlir::registerAllDialects(registry);
  };
  templateOptions.allowUnregisteredDialects = true;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      contextTemplate, ContextTemplate::create(std::move(templateOptions)));
  makePool({}, contextTemplate);
  std::thread::id compiledOn;
  actions()["where"] = [&](mlir::ModuleOp) {
    compiledOn = std::this_thread::get_id();
  };
  options.recipe.pipeline = "builtin.module(test-do)";
  auto service = makeService();
  auto own = *contextTemplate->clone();
  auto module = parse(*own, R"(
    #d = distinct[0]<unit>
    module {
      func.func private @where() attributes {t.a = #d, t.b = #dlti.map<"k" = #d>}
    })");
  ASSERT_FALSE(serialize(*module).ok());

  CompileService::Future future = service->submit(*module);
  EXPECT_TRUE(isReady(future));
  EXPECT_EQ(compiledOn, std::this_thread::get_id());
  // Bytecode of the result loses it as well, and is not given.
  EXPECT_THAT(future.get(),
              StatusIs(Code::kFailedPrecondition, "writing bytecode"));
}

//===----------------------------------------------------------------------===//
// Nesting
//===----------------------------------------------------------------------===//

TEST_F(CompileServiceTest, APassMayCompileByItsOwnService) {
  makeCache();
  options.threads = 1;
  CompileService *service = nullptr;
  std::atomic<int> inner{0};
  actions()["nest"] = [&](mlir::ModuleOp) {
    EXPECT_THAT(service->compileSource(goodModule(1)), IsOk());
    EXPECT_THAT(answerOf(service->submitSource(goodModule(2))), IsOk());
    auto module = parseModuleOnThread(3);
    EXPECT_THAT(answerOf(service->submit(module)), IsOk());
    ++inner;
  };
  auto owned = makeService();
  service = owned.get();

  EXPECT_THAT(service->compileSource(moduleThatDoes("nest")), IsOk());
  EXPECT_THAT(answerOf(service->submitSource(moduleThatDoes("nest", 1))),
              IsOk());
  EXPECT_EQ(inner, 2);
}

TEST_F(CompileServiceTest, APassThatAsksForItsOwnModuleIsFailedPrecondition) {
  makeCache();
  CompileService *service = nullptr;
  absl::StatusOr<Artifact> inner = absl::UnknownError("");
  const std::string text = moduleThatDoes("itself");
  actions()["itself"] = [&](mlir::ModuleOp) {
    inner = service->compileSource(text);
  };
  auto owned = makeService();
  service = owned.get();

  EXPECT_THAT(service->compileSource(text), IsOk());
  EXPECT_THAT(inner, StatusIs(Code::kFailedPrecondition, ""));
}

TEST_F(CompileServiceTest, ANestedCompileDoesNotWaitForAContextAtMaxLive) {
  limitContexts(1);
  for (bool cached : {false, true}) {
    if (cached)
      makeCache();
    CompileService *service = nullptr;
    std::vector<absl::Status> inner;
    actions()["nest"] = [&](mlir::ModuleOp) {
      inner = {service->compileSource(goodModule(1)).status(),
               service->compile(parseModuleOnThread(2)).status(),
               answerOf(service->submitSource(goodModule(3))).status()};
    };
    options.threads = 1;
    auto owned = makeService();
    service = owned.get();

    EXPECT_THAT(answerOf(service->submitSource(moduleThatDoes("nest"))),
                IsOk());
    EXPECT_EQ(inner.size(), 3u);
    for (const absl::Status &status : inner)
      EXPECT_THAT(status, StatusIs(Code::kResourceExhausted,
                                   "a compile out of a compile does not wait"));
  }
}

TEST_F(CompileServiceTest, ThatGoesForContextsOfOtherPoolsAsWell) {
  // Others may hold one of those, and wait for one of these.
  limitContexts(1);
  auto outer = makeService();
  std::unique_ptr<ContextPool> outerPool = std::move(pool);
  limitContexts(1);
  auto inner = makeService();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lease, pool->acquire());
  absl::Status status;
  actions()["nest"] = [&](mlir::ModuleOp) {
    status = inner->compileSource(goodModule()).status();
  };
  EXPECT_THAT(answerOf(outer->submitSource(moduleThatDoes("nest"))), IsOk());
  EXPECT_THAT(status, StatusIs(Code::kResourceExhausted,
                               "a compile out of a compile does not wait"));
  lease.release();
  outer.reset();
}

TEST_F(CompileServiceTest, WhoHoldsALimitedContextWaitsForNobodysCompile) {
  makeCache();
  limitContexts(1);
  auto outer = makeService();
  std::unique_ptr<ContextPool> outerPool = std::move(pool);
  makePool();
  auto inner = makeService();
  PhaseGate gate;
  std::atomic<int> compiles{0};
  actions()["once"] = [&](mlir::ModuleOp) {
    if (++compiles != 1)
      return;
    gate.open(1);
    gate.await(2);
  };
  actions()["nest"] = [&](mlir::ModuleOp) {
    EXPECT_THAT(inner->compileSource(moduleThatDoes("once")), IsOk());
    EXPECT_THAT(inner->compile(parseModuleThatDoes("once")), IsOk());
  };
  auto first = inner->submitSource(moduleThatDoes("once"));
  gate.await(1);
  EXPECT_THAT(answerOf(outer->submitSource(moduleThatDoes("nest"))), IsOk());
  EXPECT_EQ(compiles, 3);
  gate.open(2);
  EXPECT_THAT(answerOf(std::move(first)), IsOk());
  outer.reset();
}

TEST_F(CompileServiceTest, WhatACompileSubmitsItServesItself) {
  options.threads = 1;
  options.queueCapacity = 1;
  auto other = makeService();
  auto service = makeService();
  std::vector<std::thread::id> servedOn;
  std::mutex mutex;
  actions()["where"] = [&](mlir::ModuleOp) {
    std::lock_guard<std::mutex> lock(mutex);
    servedOn.push_back(std::this_thread::get_id());
  };
  std::thread::id outerThread;
  actions()["nest"] = [&](mlir::ModuleOp) {
    outerThread = std::this_thread::get_id();
    for (CompileService *to : {service.get(), other.get()}) {
      auto ofSource = to->submitSource(moduleThatDoes("where"));
      auto ofModule = to->submit(parseModuleThatDoes("where"));
      EXPECT_TRUE(isReady(ofSource) && isReady(ofModule));
      EXPECT_THAT(ofSource.get(), IsOk());
      EXPECT_THAT(ofModule.get(), IsOk());
    }
  };
  const std::string nest = moduleThatDoes("nest");
  for (bool onThreadOfService : {false, true}) {
    servedOn.clear();
    EXPECT_THAT(onThreadOfService ? answerOf(service->submitSource(nest))
                                  : service->compileSource(nest),
                IsOk());
    EXPECT_EQ(servedOn, std::vector<std::thread::id>(4, outerThread));
    EXPECT_EQ(outerThread != std::this_thread::get_id(), onThreadOfService);
  }
}

TEST_F(CompileServiceTest, NestedCompilesOfEachOthersModulesDoNotWait) {
  // Two threads with a context each that both want what the other is making.
  limitContexts(2);
  makeCache();
  CompileService *service = nullptr;
  PhaseGate gate;
  std::atomic<int> begun{0}, refused{0};
  auto nest = [&](llvm::StringRef other) {
    return [&, other = other.str()](mlir::ModuleOp) {
      if (++begun == 2)
        gate.open(1);
      gate.await(1);
      absl::Status status =
          service->compileSource(moduleThatDoes(other)).status();
      // The second may find the context of the first.
      refused += absl::IsResourceExhausted(status);
      EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
    };
  };
  actions()["left"] = nest("right");
  actions()["right"] = nest("left");
  auto owned = makeService();
  service = owned.get();

  auto left = service->submitSource(moduleThatDoes("left"));
  auto right = service->submitSource(moduleThatDoes("right"));
  EXPECT_THAT(answerOf(std::move(left)), IsOk());
  EXPECT_THAT(answerOf(std::move(right)), IsOk());
  EXPECT_GE(refused, 1);
}

//===----------------------------------------------------------------------===//
// timeout
//===----------------------------------------------------------------------===//

TEST_F(CompileServiceTest, ATimeoutOfZeroRunsNoPassAndAnswersWhatIsCached) {
  makeCache();
  EXPECT_THAT(makeService()->compileSource(addition), IsOk());
  options.timeout = absl::ZeroDuration();
  std::atomic<int> compiles{0};
  actions()["count"] = [&](mlir::ModuleOp) { ++compiles; };
  auto service = makeService();

  EXPECT_THAT(service->compileSource(addition), IsOk());
  EXPECT_THAT(service->compileSource(moduleThatDoes("count"), "request.mlir"),
              StatusIs(Code::kDeadlineExceeded,
                       "compiling request.mlir: pipeline: not done within 0, "
                       "stopped before the first pass"));
  EXPECT_EQ(compiles, 0);
  EXPECT_EQ(service->getStats().timeouts, 1u);
}

TEST_F(CompileServiceTest, ATimeoutStopsThePipelineAfterThePassThatOutlastsIt) {
  options.timeout = absl::Milliseconds(200);
  std::atomic<int> outlasted{0};
  actions()["outlast"] = [&](mlir::ModuleOp) {
    ++outlasted;
    auto end = std::chrono::steady_clock::now() +
               absl::ToChronoMilliseconds(options.timeout);
    while (std::chrono::steady_clock::now() <= end)
      std::this_thread::yield();
  };
  // Twice: the second time nothing of it runs.
  options.recipe.pipeline = "builtin.module(test-do,cse,test-do)";
  auto service = makeService();
  absl::Status status =
      answerOf(service->submitSource(moduleThatDoes("outlast"))).status();
  // Unless the machine was so slow that not even the first began in time.
  if (outlasted == 1)
    EXPECT_THAT(status, StatusIs(Code::kDeadlineExceeded,
                                 "not done within 200ms, stopped after pass "
                                 "'test-do'"));
  EXPECT_THAT(status,
              StatusIs(Code::kDeadlineExceeded, "not done within 200ms"));
  EXPECT_LE(outlasted, 1);
  EXPECT_EQ(service->getStats().timeouts, 1u);
}

TEST_F(CompileServiceTest, ATimeoutBoundsTheWaitForAContext) {
  limitContexts(1);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lease, pool->acquire());
  options.timeout = absl::Milliseconds(1);
  auto service = makeService();

  EXPECT_THAT(service->compile(parseModule(addition)),
              StatusIs(Code::kDeadlineExceeded, "no context came free"));
  EXPECT_THAT(service->compileSource(addition),
              StatusIs(Code::kDeadlineExceeded, "no context came free"));
}

TEST_F(CompileServiceTest, ATimeoutBoundsTheWaitForAnothersCompile) {
  makeCache();
  PhaseGate gate;
  actions()["await"] = [&](mlir::ModuleOp) {
    gate.open(1);
    gate.await(2);
  };
  const std::string text = moduleThatDoes("await");
  auto patient = makeService();
  options.timeout = absl::Milliseconds(1);
  auto hasty = makeService();
  auto first = patient->submitSource(text);
  gate.await(1);

  EXPECT_THAT(hasty->compile(parseModule(text)),
              StatusIs(Code::kDeadlineExceeded, ""));
  EXPECT_THAT(hasty->compileSource(text),
              StatusIs(Code::kDeadlineExceeded, ""));
  gate.open(2);
  EXPECT_THAT(answerOf(std::move(first)), IsOk());
}

//===----------------------------------------------------------------------===//
// Crashes
//===----------------------------------------------------------------------===//

TEST_F(CompileServiceTest, ACrashIsAnInternalErrorThatNamesThePass) {
  makeCache();
  auto service = makeCrashProofService();
  for (auto [name, reason] : std::vector<std::pair<std::string, std::string>>{
           {"segv", "signal 11 (Segmentation fault)"},
           {"abort", "signal 6 (Aborted)"},
           {"overflow", "signal 11 (Segmentation fault), the stack overflowed"},
           {"fatal", "fatal error: cannot do it"},
           {"usage", "fatal error: may not do it"},
           {"throw", "exception: did not do it"}}) {
    auto isCrash = StatusIs(Code::kInternal,
                            ": pipeline: pass 'test-do': crashed: " + reason);
    mlir::ModuleOp module = parseModule(moduleThatDoes(name));
    EXPECT_THAT(service->compile(module), isCrash);
    EXPECT_THAT(service->compileSource(moduleThatDoes(name)), isCrash);
    EXPECT_THAT(answerOf(service->submit(module)), isCrash);
    EXPECT_THAT(answerOf(service->submitSource(moduleThatDoes(name))), isCrash);
    // The service goes on.
    EXPECT_THAT(service->compileSource(goodModule()), IsOk());
    EXPECT_THAT(answerOf(service->submitSource(goodModule(1))), IsOk());
  }
  EXPECT_EQ(service->getStats().crashes, 24u);
  EXPECT_EQ(pool->getStats().abandoned, 24u);
}

TEST_F(CompileServiceTest, AContextThatSawACrashIsNeverUsedAgain) {
  limitContexts(1);
  mlir::MLIRContext *crashed = nullptr, *next = nullptr;
  actions()["remember"] = [&](mlir::ModuleOp module) {
    crashed = module.getContext();
    abort();
  };
  actions()["compare"] = [&](mlir::ModuleOp module) {
    next = module.getContext();
  };
  auto service = makeCrashProofService();
  EXPECT_THAT(service->compileSource(moduleThatDoes("remember")),
              StatusIs(Code::kInternal, "crashed"));
  EXPECT_THAT(service->compileSource(moduleThatDoes("compare")), IsOk());

  EXPECT_NE(next, nullptr);
  EXPECT_NE(next, crashed);
  EXPECT_EQ(pool->getStats().abandoned, 1u);
}

TEST_F(CompileServiceTest, ACrashOfCodeGenerationNamesIt) {
  makePool({}, compilingTemplate());
  options.output = Output::Object;
  auto service = makeCrashProofService();
  // LLVM ends the process over a function that it cannot instrument with.
  for (int again = 0; again < 2; ++again) {
    EXPECT_THAT(
        service->compileSource(
            R"(llvm.func @f() attributes {passthrough =
                 [["instrument-function-entry-inlined", "nothing"]]} {
                 llvm.return
               })",
            "instrumented.mlir"),
        StatusIs(Code::kInternal,
                 "compiling instrumented.mlir: code generation: crashed: fatal "
                 "error: Unknown instrumentation function: 'nothing'"));
    EXPECT_THAT(service->compileSource(addText), IsOk());
  }
  EXPECT_EQ(service->getStats().crashes, 2u);
}

TEST_F(CompileServiceTest, ACrashBetweenPassesIsOneOfTheVerifier) {
  auto service = makeCrashProofService();
  // A type that is none.
  actions()["damage"] = [](mlir::ModuleOp module) {
    module.walk([](mlir::arith::AddIOp op) {
      op.getResult().setType(mlir::Type::getFromOpaquePointer(
          reinterpret_cast<const void *>(uintptr_t(64))));
    });
  };
  EXPECT_THAT(
      service->compileSource(addition.str() + "func.func private @damage()"),
      StatusIs(Code::kInternal, "verifier after pass 'test-do': crashed: "));
}

TEST_F(CompileServiceTest, AnExceptionIsAnInternalErrorWithoutCrashRecovery) {
  expectLeaks();
  auto service = makeService();
  EXPECT_THAT(
      service->compileSource(moduleThatDoes("throw")),
      StatusIs(Code::kInternal,
               "pipeline: pass 'test-do': crashed: exception: did not do it"));
  EXPECT_THAT(service->compileSource(goodModule()), IsOk());
  EXPECT_EQ(pool->getStats().abandoned, 1u);
}

TEST_F(CompileServiceTest, EveryoneWhoWaitsForACompileThatDoesNotReturnIsTold) {
  expectLeaks();
  struct End {
    bool recovers;
    std::function<void()> end;
    Code code;
    const char *message;
  };
  for (const End &end : std::vector<End>{
           {true, [] { abort(); }, Code::kInternal, "Aborted"},
           {false, [] { throw std::runtime_error("out of luck"); },
            Code::kInternal, "exception: out of luck"},
           {false, [] { pthread_exit(nullptr); }, Code::kAborted, "ended"},
           {true, [] { pthread_exit(nullptr); }, Code::kAborted, "ended"}}) {
    makePool();
    makeCache();
    PhaseGate gate;
    actions()["await"] = [&](mlir::ModuleOp) {
      gate.open(1);
      EXPECT_TRUE(eventually([&] { return cache->getStats().joined == 4; }));
      end.end();
    };
    options.crashRecovery = end.recovers;
    auto service = makeService();
    mlir::ModuleOp module = parseModule(moduleThatDoes("await"));
    // Not of the service, which may be the thread that ends.
    std::thread leader([&] { (void)service->compile(module); });
    gate.await(1);
    std::vector<std::thread> waiters;
    for (int thread = 0; thread < 4; ++thread)
      waiters.emplace_back([&] {
        EXPECT_THAT(service->compile(module), StatusIs(end.code, end.message));
      });
    leader.join();
    for (std::thread &waiter : waiters)
      waiter.join();

    EXPECT_EQ(pool->getStats().abandoned, 1u);
    actions()["await"] = [](mlir::ModuleOp) {};
    EXPECT_THAT(service->compile(module), IsOk());
  }
}

TEST_F(CompileServiceTest, AThreadThatEndsInARequestIsReplaced) {
  expectLeaks();
  options.threads = 1;
  actions()["end"] = [](mlir::ModuleOp) { pthread_exit(nullptr); };
  auto service = makeService();
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT(answerOf(service->submitSource(moduleThatDoes("end"))),
                StatusIs(Code::kAborted, "the thread that served"));
    EXPECT_THAT(answerOf(service->submitSource(goodModule())), IsOk());
  }
  EXPECT_EQ(service->getStats().requests, 6u);
  EXPECT_EQ(service->getStats().failures, 3u);
  // Also of one that the destructor waits for.
  std::vector<CompileService::Future> futures;
  futures.push_back(service->submitSource(moduleThatDoes("end")));
  futures.push_back(service->submitSource(goodModule()));
  service.reset();
  EXPECT_THAT(answerOf(std::move(futures[0])), StatusIs(Code::kAborted, ""));
  EXPECT_THAT(answerOf(std::move(futures[1])), IsOk());
}

TEST_F(CompileServiceTest, ACrashOfANestedCompileIsTheNestedOnes) {
  makeCache();
  auto plain = makeService();
  absl::Status inner;
  actions()["nest"] = [&](mlir::ModuleOp) {
    // By a service that does not recover itself: its caller must not skip what
    // that one holds.
    inner = plain->compileSource(moduleThatDoes("segv")).status();
    abort();
  };
  auto service = makeCrashProofService();
  EXPECT_THAT(service->compileSource(moduleThatDoes("nest")),
              StatusIs(Code::kInternal, "signal 6 (Aborted)"));
  EXPECT_THAT(inner, StatusIs(Code::kInternal, "signal 11"));
  // Nobody is left who would be waited for.
  EXPECT_THAT(service->compileSource(moduleThatDoes("segv")),
              StatusIs(Code::kInternal, "signal 11"));
}

TEST_F(CompileServiceTest, ACrashOfTheHostsCodeInANestedCompileIsTheHosts) {
#if LLVM_THREAD_SANITIZER_BUILD
  GTEST_SKIP() << "ThreadSanitizer has no threads in a forked child";
#endif
  // The caller's recovery would skip what others wait for.
  EXPECT_EQ(
      runInChild([&] {
        struct sigaction host = {};
        host.sa_handler = [](int) { _exit(42); };
        sigaction(SIGSEGV, &host, nullptr);
        bool crashes = false;
        ContextTemplateOptions templateOptions = smallTemplateOptions();
        templateOptions.onClone = [&](mlir::MLIRContext &) {
          if (crashes)
            raise(SIGSEGV);
          return absl::OkStatus();
        };
        ContextPoolOptions empty;
        empty.minIdle = empty.maxIdle = 0;
        empty.backgroundRefill = false;
        makePool(empty, *ContextTemplate::create(std::move(templateOptions)));
        makeCache();
        std::unique_ptr<CompileService> inner = makeService();
        std::unique_ptr<ContextPool> ofInner = std::move(pool);
        actions()["nest"] = [&](mlir::ModuleOp) {
          crashes = true;
          (void)inner->compileSource(goodModule());
        };
        (void)makeCrashProofService()->compileSource(moduleThatDoes("nest"));
        return false;
      }),
      "exit 42");
}

TEST_F(CompileServiceTest, TheHostsSignalHandlersAreBackAfterwards) {
  struct sigaction host = {}, before = {}, during = {}, after = {};
  host.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGSEGV, &host, &before), 0);
  {
    auto service = makeCrashProofService();
    sigaction(SIGSEGV, nullptr, &during);
    EXPECT_THAT(service->compileSource(moduleThatDoes("segv")),
                StatusIs(Code::kInternal, "crashed"));
  }
  sigaction(SIGSEGV, &before, &after);
  EXPECT_NE(during.sa_handler, host.sa_handler);
  EXPECT_EQ(after.sa_handler, host.sa_handler);
}

TEST_F(CompileServiceTest, WithoutCrashRecoverySignalsAreTheHosts) {
  struct sigaction before = {}, during = {};
  sigaction(SIGSEGV, nullptr, &before);
  auto service = makeService();
  sigaction(SIGSEGV, nullptr, &during);
  EXPECT_EQ(during.sa_sigaction, before.sa_sigaction);
}

TEST_F(CompileServiceTest, AFatalErrorHandlerOfTheHostsIsKeptWhereAskedTo) {
  static std::atomic<int> calls;
  calls = 0;
  llvm::ScopedFatalErrorHandler host(
      [](void *, const char *, bool) { ++calls; });
  options.keepFatalErrorHandler = true;
  auto service = makeCrashProofService();
  EXPECT_THAT(service->compileSource(moduleThatDoes("fatal")),
              StatusIs(Code::kInternal, "signal 6 (Aborted)"));
  EXPECT_EQ(calls, 1);
}

TEST_F(CompileServiceTest,
       ContextsOfATemplateWithThreadsHaveNoneWhileTheyMayCrash) {
  llvm::DefaultThreadPool threads(llvm::hardware_concurrency(2));
  makePoolWithThreads(threads);
  std::atomic<bool> threaded{false};
  actions()["look"] = [&](mlir::ModuleOp module) {
    threaded = module->getContext()->isMultithreadingEnabled();
  };
  EXPECT_THAT(makeService()->compileSource(moduleThatDoes("look")), IsOk());
  EXPECT_TRUE(threaded);
  EXPECT_THAT(makeCrashProofService()->compileSource(moduleThatDoes("look")),
              IsOk());
  EXPECT_FALSE(threaded);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lease, pool->acquire());
  EXPECT_TRUE(lease->isMultithreadingEnabled());
  lease.release();
  pool.reset();
}

/// As gen-deep.py of the shared cases writes them.
std::string nestedRegions(int depth) {
  std::string text;
  for (int level = 0; level < depth; ++level)
    text += "\"t.r\"() ({\n";
  text += "\"t.x\"() : () -> ()\n";
  for (int level = 0; level < depth; ++level)
    text += "}) : () -> ()\n";
  return text;
}

TEST_F(CompileServiceTest, RegionsNestedTooDeeplyAreAnErrorOfTheRequest) {
  if (isSanitized)
    GTEST_SKIP() << "frames of sanitized code are larger";
  ContextTemplateOptions templateOptions = smallTemplateOptions();
  templateOptions.allowUnregisteredDialects = true;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      contextTemplate, ContextTemplate::create(std::move(templateOptions)));
  makePool({}, contextTemplate);
  makeCache();
  options.recipe.pipeline = "builtin.module()";
  auto service = makeCrashProofService();
  auto fits = service->submitSource(nestedRegions(1000));
  auto overflows = service->submitSource(nestedRegions(5000), "deep.mlir");
  auto fitsAgain = service->submitSource(nestedRegions(999));

  EXPECT_THAT(answerOf(std::move(fits)), IsOk());
  EXPECT_THAT(answerOf(std::move(overflows)),
              StatusIs(Code::kInternal,
                       "compiling deep.mlir: parser: crashed: signal 11 "
                       "(Segmentation fault), the stack overflowed"));
  EXPECT_THAT(answerOf(std::move(fitsAgain)), IsOk());
}

TEST_F(CompileServiceTest, ModulesThatCrashUpstreamBetweenGoodOnesAreErrors) {
  auto folder = sharedDir("cases/inputs/crash");
  if (!folder)
    GTEST_SKIP() << "no folder of collected cases";
  makePool({}, fullTemplate());
  makeCache();
  options.recipe.pipeline = "builtin.module(canonicalize)";
  auto service = makeCrashProofService();
  std::vector<std::filesystem::path> files = moduleFiles(*folder);
  ASSERT_FALSE(files.empty());

  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread)
    threads.emplace_back([&, thread] {
      for (size_t index = 0; index < files.size(); ++index) {
        std::string text = readFile(files[index]);
        std::string name = files[index].filename();
        int number = thread * 100 + int(index);
        auto good = service->submitSource(goodModule(number));
        auto bad = service->submitSource(text, name);
        EXPECT_THAT(service->compileSource(goodModule(number + 50)), IsOk());
        for (const absl::Status &status :
             {service->compileSource(text, name).status(),
              answerOf(std::move(bad)).status()}) {
          EXPECT_THAT(status, StatusIs(Code::kInternal, name));
          EXPECT_THAT(std::string(status.message()),
                      testing::AnyOf(HasSubstr(": parser: crashed: "),
                                     HasSubstr(": verifier: crashed: ")));
        }
        EXPECT_THAT(answerOf(std::move(good)), IsOk());
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(service->getStats().crashes, 16 * files.size());
  EXPECT_EQ(service->getStats().failures, 16 * files.size());
  EXPECT_EQ(pool->getStats().leased, 0u);
}

TEST_F(CompileServiceTest, SixtyFourThreadsGetTheRightAnswersAmongCrashes) {
  makeCache();
  options.threads = 4;
  options.queueCapacity = 8;
  auto service = makeCrashProofService();
  struct Kind {
    const char *does;
    Code code;
  };
  constexpr Kind kinds[] = {
      {"nothing", Code::kOk},     {"fail", Code::kInvalidArgument},
      {"segv", Code::kInternal},  {"throw", Code::kInternal},
      {"fatal", Code::kInternal}, {"nothing", Code::kOk},
      {"nothing", Code::kOk}};
  uint64_t seed = numberFromEnvironment("CONTEXT_POOL_TEST_SEED", 1);
  SCOPED_TRACE("seed " + std::to_string(seed));
  constexpr int threadCount = 64, rounds = isSanitized ? 5 : 20;
  std::atomic<uint64_t> errors{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < threadCount; ++thread)
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(seed * 1000 + thread);
      auto own = *smallTemplate()->clone();
      for (int round = 0; round < rounds; ++round) {
        const Kind &kind = kinds[random() % std::size(kinds)];
        std::string text = moduleThatDoes(kind.does, int(random() % 10));
        absl::StatusOr<Artifact> answer = absl::UnknownError("");
        auto module = parse(*own, text);
        switch (random() % 4) {
        case 0:
          answer = service->compile(*module);
          break;
        case 1:
          answer = service->compileSource(text);
          break;
        case 2:
          answer = answerOf(service->submit(*module));
          break;
        default:
          answer = answerOf(service->submitSource(text));
        }
        EXPECT_THAT(answer, StatusIs(kind.code, ""));
        errors += !answer.ok();
      }
    });
  for (std::thread &thread : threads)
    thread.join();

  CompileServiceStats stats = service->getStats();
  EXPECT_EQ(stats.requests, uint64_t(threadCount * rounds));
  EXPECT_EQ(stats.failures, errors);
  EXPECT_EQ(stats.crashes, pool->getStats().abandoned);
  EXPECT_EQ(stats.queued, 0u);
  EXPECT_EQ(pool->getStats().leased, 0u);
}

//===----------------------------------------------------------------------===//
// Fork
//===----------------------------------------------------------------------===//

TEST_F(CompileServiceTest, AChildDestroysWhatItInheritedAndMakesItsOwn) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "ThreadSanitizer has no threads in a forked child";
#endif
#endif
  makeCache();
  PhaseGate gate;
  actions()["await"] = [&](mlir::ModuleOp) {
    gate.open(1);
    gate.await(2);
  };
  auto service = makeCrashProofService();
  struct sigaction during = {};
  sigaction(SIGSEGV, nullptr, &during);
  // What MLIR and LLVM make on first use exists before there are threads: a
  // child would wait for ever for one that was making it. Twice, for a hit.
  for (int time = 0; time < 2; ++time)
    EXPECT_THAT(service->compileSource(goodModule()), IsOk());
  EXPECT_TRUE(eventually([&] { return pool->getStats().idle >= 1; }));
  // A thread in a compile, and others that take every lock all the time.
  auto busy = service->submitSource(moduleThatDoes("await"));
  gate.await(1);
  std::atomic<bool> stops{false};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread)
    threads.emplace_back([&, thread] {
      for (int number = 0; !stops; ++number) {
        service->getStats();
        EXPECT_THAT(service->compileSource(goodModule(
                        number % 2 == 0 ? 7 : thread * 1000000 + number)),
                    IsOk());
      }
    });
  for (int round = 0; round < 10; ++round)
    EXPECT_EQ(runInChild([&] {
                if (!absl::IsFailedPrecondition(
                        service->compileSource(goodModule()).status()) ||
                    !absl::IsFailedPrecondition(
                        service->submitSource(goodModule()).get().status()) ||
                    service->getStats().requests != 0)
                  return false;
                service.reset();
                cache.reset();
                pool.reset();
                struct sigaction after = {};
                sigaction(SIGSEGV, nullptr, &after);
                if (after.sa_sigaction == during.sa_sigaction)
                  return false;
                makePool();
                makeCache();
                service = makeService();
                bool works =
                    service->compileSource(goodModule()).ok() &&
                    answerOf(service->submitSource(goodModule(1))).ok() &&
                    absl::IsInternal(
                        answerOf(service->submitSource(moduleThatDoes("segv")))
                            .status());
                service.reset();
                return works;
              }),
              "exit 0");
  stops = true;
  for (std::thread &thread : threads)
    thread.join();
  gate.open(2);
  EXPECT_THAT(answerOf(std::move(busy)), IsOk());
}

} // namespace

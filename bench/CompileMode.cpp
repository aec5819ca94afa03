//===- CompileMode.cpp - Ways to serve a compile request ------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CompileMode.h"

#include "bench/CommandLine.h"
#include "bench/CrashGuard.h"
#include "bench/ModuleParser.h"

#include "context_pool/ContextPool.h"
#include "context_pool/ContextTemplate.h"
#include "context_pool/Fingerprint.h"
#include "context_pool/ModuleTransfer.h"
#include "context_pool/compile/CodeGenerator.h"
#include "context_pool/support/Mutex.h"
#include "context_pool/support/Pipeline.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <atomic>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::bench;
using detail::CodeGenerator;

llvm::ArrayRef<llvm::StringRef> bench::getCompileOutputNames() {
  static constexpr llvm::StringRef names[] = {"module", "llvmir", "object"};
  return names;
}

CompileRecipe bench::makeRecipe(llvm::StringRef pipeline,
                                CompileOutput output) {
  CompileRecipe recipe;
  recipe.pipeline = pipeline.str();
  recipe.options = absl::StrCat(
      "output=", getCompileOutputNames()[size_t(output)].str(), ";");
  return recipe;
}

std::optional<CompileOutput> bench::findCompileOutput(llvm::StringRef name) {
  return findByName<CompileOutput>(getCompileOutputNames(), name);
}

static absl::Status
makeFailure(llvm::StringRef step,
            llvm::ArrayRef<CapturedDiagnostic> diagnostics) {
  std::string reason = formatDiagnostics(diagnostics);
  return absl::InvalidArgumentError(absl::StrCat(
      step.str(),
      " failed: ", reason.empty() ? "MLIR gave no reason" : reason));
}

/// Gives the diagnostics of this request.
using TakeDiagnostics = llvm::function_ref<std::vector<CapturedDiagnostic>()>;

using Received = absl::StatusOr<mlir::OwningOpRef<mlir::Operation *>>;
using Result = absl::StatusOr<Artifact>;

static Received parse(const ModuleSource &source, mlir::MLIRContext &context) {
  absl::StatusOr<mlir::OwningOpRef<mlir::ModuleOp>> module =
      parseModule(*source.bytes, context, /*verify=*/true);
  if (!module.ok())
    return absl::Status(
        module.status().code(),
        absl::StrCat("parsing failed: ", module.status().message()));
  return mlir::OwningOpRef<mlir::Operation *>(module->release());
}

static absl::Status addStep(llvm::StringRef step, const absl::Status &status) {
  return absl::Status(status.code(),
                      absl::StrCat(step.str(), ": ", status.message()));
}

/// Where results come from once the pipeline has run.
struct Emitter {
  CompileOutput output = CompileOutput::Module;
  const CodeGenerator *generator = nullptr; ///< Null where that is a module.
};

static Result emit(mlir::Operation *module, const Emitter &emitter,
                   TakeDiagnostics takeDiagnostics) {
  if (emitter.output == CompileOutput::Module) {
    std::string bytecode;
    llvm::raw_string_ostream stream(bytecode);
    if (failed(mlir::writeBytecodeToFile(
            module, stream, mlir::BytecodeWriterConfig("ctxpool-bench"))))
      return makeFailure("writing the result", takeDiagnostics());
    return Artifact::copyOf("mlir-bytecode", bytecode);
  }
  auto top = llvm::cast<mlir::ModuleOp>(module);
  bool isObject = emitter.output == CompileOutput::Object;
  absl::StatusOr<CodeGenerator::Bytes> code =
      isObject ? emitter.generator->emitObject(top)
               : emitter.generator->emitLLVMIR(top);
  if (!code.ok())
    return code.status();
  return Artifact::copyOf(isObject ? "object" : "llvm-bitcode",
                          {code->data(), code->size()});
}

/// The request itself, the same in every mode once its module is there.
static Result compile(Received received, mlir::PassManager &passManager,
                      const Emitter &emitter, TakeDiagnostics takeDiagnostics) {
  if (!received.ok())
    return received.status();
  mlir::OwningOpRef<mlir::Operation *> module = *std::move(received);
  if (failed(passManager.run(*module)))
    return makeFailure("the pipeline", takeDiagnostics());
  return emit(*module, emitter, takeDiagnostics);
}

/// What generates code for this machine. Null where a module comes out.
static absl::StatusOr<std::unique_ptr<CodeGenerator>>
createGenerator(CompileOutput output) {
  if (output == CompileOutput::Module)
    return nullptr;
  // Settled once: what a request of a naive server makes is the generator.
  static const auto &host =
      *new absl::StatusOr<ResolvedRecipe>(ResolvedRecipe::create(
          makeRecipe("builtin.module()", CompileOutput::Object)));
  if (!host.ok())
    return host.status();
  return CodeGenerator::create(host->get());
}

static constexpr llvm::StringLiteral pipelineIsWrong = "the pipeline is wrong";

static mlir::Operation *getLive(const ModuleSource &source) {
  return source.live->module.get().getOperation();
}

static Received nameCloning(Received cloned) {
  if (!cloned.ok())
    return addStep("cloning failed", cloned.status());
  return cloned;
}

namespace {

class FreshMode final : public CompileMode {
public:
  FreshMode(bool loadsAll, bool takesLive, const CompileSetup &theSetup)
      : loadAll(loadsAll), takeLive(takesLive), setup(theSetup) {}

  llvm::StringRef getName() const override {
    return loadAll ? "fresh" : "fresh-lazy";
  }
  uint64_t getContextsCreated() const override { return contexts; }

  Result serve(const ModuleSource &source) override {
    contexts.fetch_add(1, std::memory_order_relaxed);
    if (!setup.crashRecovery)
      return serveUnguarded(source);
    Result result = absl::UnknownError("");
    absl::Status crash = runGuarded([&] { result = serveUnguarded(source); });
    return crash.ok() ? std::move(result) : crash;
  }

private:
  Result serveUnguarded(const ModuleSource &source) const {
    mlir::MLIRContext context(*setup.registry,
                              mlir::MLIRContext::Threading::DISABLED);
    context.allowUnregisteredDialects(setup.allowUnregisteredDialects);
    if (loadAll)
      context.loadAllAvailableDialects();
    DiagnosticCollector diagnostics(context);
    absl::StatusOr<mlir::OpPassManager> pipeline =
        detail::parsePipeline(source.getPipeline());
    if (!pipeline.ok())
      return addStep(pipelineIsWrong, pipeline.status());
    mlir::PassManager passManager(&context, pipeline->getOpAnchorName());
    static_cast<mlir::OpPassManager &>(passManager) = *std::move(pipeline);
    absl::StatusOr<std::unique_ptr<CodeGenerator>> generator =
        createGenerator(setup.output);
    if (!generator.ok())
      return generator.status();
    auto takeDiagnostics = [&] { return diagnostics.take(); };
    return compile(source.live && takeLive
                       ? nameCloning(cloneInto(getLive(source), context))
                       : parse(source, context),
                   passManager, {setup.output, generator->get()},
                   takeDiagnostics);
  }

  const bool loadAll;
  const bool takeLive;
  const CompileSetup setup;
  std::atomic<uint64_t> contexts{0};
};

/// What the module of `source` becomes in a context of the pool.
Received receive(ContextLease &lease, const ModuleSource &source) {
  if (source.live)
    return nameCloning(lease.cloneIn(getLive(source)));
  // The constants of a module stay in the context.
  lease.charge(source.bytes->getBufferSize());
  return parse(source, *lease);
}

/// Compiles what came into a context of the pool.
Result compileInLease(ContextLease &lease, Received received,
                      llvm::StringRef pipeline, const Emitter &emitter) {
  absl::StatusOr<mlir::PassManager *> passManager =
      lease.getPassManager(pipeline);
  if (!passManager.ok())
    return addStep(pipelineIsWrong, passManager.status());
  return compile(std::move(received), **passManager, emitter,
                 [&] { return lease.takeDiagnostics(); });
}

class PoolMode : public CompileMode {
public:
  PoolMode(std::unique_ptr<ContextPool> pool, CompileOutput output,
           std::unique_ptr<CodeGenerator> generator)
      : pool(std::move(pool)), output(output), generator(std::move(generator)) {
  }

  llvm::StringRef getName() const override { return "pool"; }
  uint64_t getContextsCreated() const override {
    return pool->getStats().clones;
  }
  bool keepsContexts() const override { return true; }

  Result serve(const ModuleSource &source) override {
    absl::StatusOr<ContextLease> lease = pool->acquire();
    if (!lease.ok())
      return lease.status();
    return compileInLease(*lease, receive(*lease, source), source.getPipeline(),
                          getEmitter());
  }

protected:
  Emitter getEmitter() const { return {output, generator.get()}; }

  const std::unique_ptr<ContextPool> pool;
  const CompileOutput output;

private:
  const std::unique_ptr<CodeGenerator> generator;
};

/// What a mode keeps for each pipeline, made when a request first wants it.
template <typename T>
class PerPipeline {
public:
  absl::StatusOr<T *>
  get(llvm::StringRef pipeline,
      llvm::function_ref<absl::StatusOr<std::unique_ptr<T>>()> make) {
    MutexLock lock(mutex);
    std::unique_ptr<T> &entry = entries[pipeline];
    if (!entry) {
      absl::StatusOr<std::unique_ptr<T>> made = make();
      if (!made.ok())
        return addStep(pipelineIsWrong, made.status());
      entry = *std::move(made);
    }
    return entry.get();
  }

private:
  Mutex mutex;
  llvm::StringMap<std::unique_ptr<T>> entries ABSL_GUARDED_BY(mutex);
};

CompileCacheStats getStatsOf(CompileCache &cache) {
  // What could not be written is in the counts.
  cache.flush().IgnoreError();
  return cache.getStats();
}

class CachedPoolMode final : public PoolMode {
public:
  CachedPoolMode(std::unique_ptr<ContextPool> pool, CompileOutput output,
                 std::unique_ptr<CodeGenerator> generator,
                 std::unique_ptr<CompileCache> cache)
      : PoolMode(std::move(pool), output, std::move(generator)),
        cache(std::move(cache)) {}

  llvm::StringRef getName() const override { return "pool+cache"; }
  std::optional<CompileCacheStats> getCacheStats() const override {
    return getStatsOf(*cache);
  }

  Result serve(const ModuleSource &source) override {
    llvm::StringRef pipeline = source.getPipeline();
    absl::StatusOr<ResolvedRecipe *> recipe = recipes.get(
        pipeline, [&]() -> absl::StatusOr<std::unique_ptr<ResolvedRecipe>> {
          absl::StatusOr<ResolvedRecipe> resolved =
              ResolvedRecipe::create(makeRecipe(pipeline, output));
          if (!resolved.ok())
            return resolved.status();
          return std::make_unique<ResolvedRecipe>(*std::move(resolved));
        });
    if (!recipe.ok())
      return recipe.status();
    return source.live ? serveLive(source, **recipe)
                       : serveBytes(source, **recipe);
  }

private:
  /// Only what the cache does not have needs a context.
  Result serveLive(const ModuleSource &source, const ResolvedRecipe &recipe) {
    absl::StatusOr<Fingerprint> digest = fingerprint(getLive(source));
    if (!digest.ok())
      return digest.status();
    return cache->getOrCompile(recipe.makeKey(*digest),
                               [&] { return PoolMode::serve(source); });
  }

  Result serveBytes(const ModuleSource &source, const ResolvedRecipe &recipe) {
    absl::StatusOr<ContextLease> lease = pool->acquire();
    if (!lease.ok())
      return lease.status();
    Received module = receive(*lease, source);
    if (!module.ok())
      return module.status();
    absl::StatusOr<Fingerprint> digest = fingerprint(module->get());
    if (!digest.ok())
      return digest.status();
    return cache->getOrCompile(recipe.makeKey(*digest), [&] {
      return compileInLease(*lease, std::move(module), source.getPipeline(),
                            getEmitter());
    });
  }

  const std::unique_ptr<CompileCache> cache;
  PerPipeline<ResolvedRecipe> recipes;
};

class ServiceMode final : public CompileMode {
public:
  ServiceMode(std::unique_ptr<ContextPool> pool, const CompileSetup &setup,
              std::unique_ptr<CompileCache> cache)
      : pool(std::move(pool)), output(setup.output),
        crashRecovery(setup.crashRecovery), cache(std::move(cache)) {}

  llvm::StringRef getName() const override { return "service"; }
  uint64_t getContextsCreated() const override {
    return pool->getStats().clones;
  }
  bool keepsContexts() const override { return true; }
  std::optional<CompileCacheStats> getCacheStats() const override {
    return getStatsOf(*cache);
  }

  Result serve(const ModuleSource &source) override {
    absl::StatusOr<CompileService *> service =
        services.get(source.getPipeline(), [&] {
          CompileServiceOptions options;
          // Requests are served where they arrive, on threads of the run.
          options.threads = 1;
          options.recipe.pipeline = source.getPipeline().str();
          options.output = output;
          options.crashRecovery = crashRecovery;
          return CompileService::create(*pool, cache.get(), std::move(options));
        });
    if (!service.ok())
      return service.status();
    if (source.live)
      return (*service)->compile(source.live->module.get());
    return (*service)->compileSource(source.bytes->getBuffer(), source.name);
  }

private:
  const std::unique_ptr<ContextPool> pool;
  const CompileOutput output;
  const bool crashRecovery;
  const std::unique_ptr<CompileCache> cache;
  PerPipeline<CompileService> services;
};

} // namespace

Result bench::serveInLease(ContextLease &lease, const ModuleSource &source) {
  return compileInLease(lease, receive(lease, source), source.getPipeline(),
                        {});
}

absl::StatusOr<std::unique_ptr<ContextPool>>
bench::createPool(const CompileSetup &setup) {
  ContextTemplateOptions options;
  options.name = "ctxpool-bench";
  options.populate = [&](mlir::DialectRegistry &registry) {
    setup.registry->appendTo(registry);
  };
  options.preload = setup.preload;
  options.preloadForPipeline = setup.preloadForPipeline;
  options.allowUnregisteredDialects = setup.allowUnregisteredDialects;
  absl::StatusOr<std::shared_ptr<const ContextTemplate>> contextTemplate =
      ContextTemplate::create(std::move(options));
  if (!contextTemplate.ok())
    return contextTemplate.status();

  ContextPoolOptions poolOptions;
  // Every thread has a slot of its own.
  poolOptions.maxIdle = std::max<size_t>(
      poolOptions.maxIdle, setup.threads + poolOptions.minIdle + 1);
  return ContextPool::create(*std::move(contextTemplate), poolOptions);
}

static absl::StatusOr<std::unique_ptr<CompileMode>>
createPooledMode(llvm::StringRef name, const CompileSetup &setup) {
  absl::StatusOr<std::unique_ptr<ContextPool>> pool = createPool(setup);
  if (!pool.ok())
    return pool.status();
  absl::StatusOr<std::unique_ptr<CodeGenerator>> generator =
      createGenerator(setup.output);
  if (!generator.ok())
    return generator.status();
  if (name == "pool")
    return std::make_unique<PoolMode>(*std::move(pool), setup.output,
                                      *std::move(generator));
  absl::StatusOr<std::unique_ptr<CompileCache>> cache =
      CompileCache::create(setup.cache);
  if (!cache.ok())
    return cache.status();
  if (name == "service")
    return std::make_unique<ServiceMode>(*std::move(pool), setup,
                                         *std::move(cache));
  return std::make_unique<CachedPoolMode>(
      *std::move(pool), setup.output, *std::move(generator), *std::move(cache));
}

llvm::ArrayRef<llvm::StringRef> bench::getCompileModeNames() {
  static constexpr llvm::StringRef names[] = {"fresh", "fresh-lazy", "pool",
                                              "pool+cache", "service"};
  return names;
}

std::unique_ptr<CompileMode>
bench::createReferenceMode(const CompileSetup &setup) {
  return std::make_unique<FreshMode>(/*loadsAll=*/true, /*takesLive=*/false,
                                     setup);
}

absl::StatusOr<std::unique_ptr<CompileMode>>
bench::createCompileMode(llvm::StringRef name, const CompileSetup &setup) {
  if (name == "fresh" || name == "fresh-lazy")
    return std::make_unique<FreshMode>(name == "fresh", /*takesLive=*/true,
                                       setup);
  if (llvm::is_contained(getCompileModeNames(), name))
    return createPooledMode(name, setup);
  return absl::NotFoundError(
      absl::StrCat("there is no mode '", name.str(), "'"));
}

//===- CompileMode.cpp - Ways to serve a compile request ------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CompileMode.h"

#include "bench/ModuleParser.h"

#include "context_pool/ContextPool.h"
#include "context_pool/ContextTemplate.h"
#include "context_pool/ModuleTransfer.h"
#include "context_pool/support/Pipeline.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <atomic>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::bench;

/// What runs where a module has no pipeline: the request is parse, verify,
/// write.
static constexpr llvm::StringLiteral emptyPipeline = "builtin.module()";

static llvm::StringRef getPipeline(const ModuleSource &source) {
  return source.pipeline.empty() ? llvm::StringRef(emptyPipeline)
                                 : llvm::StringRef(source.pipeline);
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

static Received parse(const ModuleSource &source, mlir::MLIRContext &context,
                      TakeDiagnostics takeDiagnostics) {
  mlir::OwningOpRef<mlir::ModuleOp> module =
      parseModule(*source.bytes, context, /*verify=*/true);
  if (!module)
    return makeFailure("parsing", takeDiagnostics());
  return mlir::OwningOpRef<mlir::Operation *>(module.release());
}

static absl::Status addStep(llvm::StringRef step, const absl::Status &status) {
  return absl::Status(status.code(),
                      absl::StrCat(step.str(), ": ", status.message()));
}

/// The request itself, the same in every mode once its module is there.
static absl::StatusOr<std::string> compile(Received received,
                                           mlir::PassManager &passManager,
                                           TakeDiagnostics takeDiagnostics) {
  if (!received.ok())
    return received.status();
  mlir::OwningOpRef<mlir::Operation *> module = *std::move(received);
  if (failed(passManager.run(*module)))
    return makeFailure("the pipeline", takeDiagnostics());
  std::string bytecode;
  llvm::raw_string_ostream stream(bytecode);
  if (failed(mlir::writeBytecodeToFile(
          *module, stream, mlir::BytecodeWriterConfig("ctxpool-bench"))))
    return makeFailure("writing the result", takeDiagnostics());
  return bytecode;
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

  absl::StatusOr<std::string> serve(const ModuleSource &source) override {
    contexts.fetch_add(1, std::memory_order_relaxed);
    mlir::MLIRContext context(*setup.registry,
                              mlir::MLIRContext::Threading::DISABLED);
    context.allowUnregisteredDialects(setup.allowUnregisteredDialects);
    if (loadAll)
      context.loadAllAvailableDialects();
    DiagnosticCollector diagnostics(context);
    absl::StatusOr<mlir::OpPassManager> pipeline =
        detail::parsePipeline(getPipeline(source));
    if (!pipeline.ok())
      return addStep(pipelineIsWrong, pipeline.status());
    mlir::PassManager passManager(&context, pipeline->getOpAnchorName());
    static_cast<mlir::OpPassManager &>(passManager) = *std::move(pipeline);
    auto takeDiagnostics = [&] { return diagnostics.take(); };
    return compile(source.live && takeLive
                       ? nameCloning(cloneInto(getLive(source), context))
                       : parse(source, context, takeDiagnostics),
                   passManager, takeDiagnostics);
  }

private:
  const bool loadAll;
  const bool takeLive;
  const CompileSetup setup;
  std::atomic<uint64_t> contexts{0};
};

class PoolMode final : public CompileMode {
public:
  explicit PoolMode(std::unique_ptr<ContextPool> owned)
      : pool(std::move(owned)) {}

  llvm::StringRef getName() const override { return "pool"; }
  uint64_t getContextsCreated() const override {
    return pool->getStats().clones;
  }
  bool keepsContexts() const override { return true; }

  absl::StatusOr<std::string> serve(const ModuleSource &source) override {
    absl::StatusOr<ContextLease> lease = pool->acquire();
    if (!lease.ok())
      return lease.status();
    return serveInLease(*lease, source);
  }

private:
  const std::unique_ptr<ContextPool> pool;
};

} // namespace

absl::StatusOr<std::string> bench::serveInLease(ContextLease &lease,
                                                const ModuleSource &source) {
  absl::StatusOr<mlir::PassManager *> passManager =
      lease.getPassManager(getPipeline(source));
  if (!passManager.ok())
    return addStep(pipelineIsWrong, passManager.status());
  auto takeDiagnostics = [&] { return lease.takeDiagnostics(); };
  if (source.live)
    return compile(nameCloning(lease.cloneIn(getLive(source))), **passManager,
                   takeDiagnostics);
  // The constants of a module stay in the context.
  lease.charge(source.bytes->getBufferSize());
  return compile(parse(source, *lease, takeDiagnostics), **passManager,
                 takeDiagnostics);
}

static absl::StatusOr<std::unique_ptr<CompileMode>>
createPoolMode(const CompileSetup &setup) {
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
  absl::StatusOr<std::unique_ptr<ContextPool>> pool =
      ContextPool::create(*std::move(contextTemplate), poolOptions);
  if (!pool.ok())
    return pool.status();
  return std::make_unique<PoolMode>(*std::move(pool));
}

llvm::ArrayRef<llvm::StringRef> bench::getCompileModeNames() {
  static constexpr llvm::StringRef names[] = {"fresh", "fresh-lazy", "pool"};
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
  if (name == "pool")
    return createPoolMode(setup);
  return absl::NotFoundError(
      absl::StrCat("there is no mode '", name.str(), "'"));
}

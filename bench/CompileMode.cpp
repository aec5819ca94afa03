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

/// The request itself, the same in every mode. `takeDiagnostics` gives those of
/// this request.
static absl::StatusOr<std::string>
compile(const ModuleSource &source, mlir::MLIRContext &context,
        mlir::PassManager &passManager,
        llvm::function_ref<std::vector<CapturedDiagnostic>()> takeDiagnostics) {
  mlir::OwningOpRef<mlir::ModuleOp> module =
      parseModule(*source.bytes, context, /*verify=*/true);
  if (!module)
    return makeFailure("parsing", takeDiagnostics());
  if (failed(passManager.run(*module)))
    return makeFailure("the pipeline", takeDiagnostics());
  std::string bytecode;
  llvm::raw_string_ostream stream(bytecode);
  if (failed(mlir::writeBytecodeToFile(
          *module, stream, mlir::BytecodeWriterConfig("ctxpool-bench"))))
    return makeFailure("writing the result", takeDiagnostics());
  return bytecode;
}

static absl::Status addSource(const absl::Status &status) {
  return absl::Status(
      status.code(), absl::StrCat("the pipeline is wrong: ", status.message()));
}

namespace {

class FreshMode final : public CompileMode {
public:
  FreshMode(bool loadsAll, const CompileSetup &theSetup)
      : loadAll(loadsAll), setup(theSetup) {}

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
      return addSource(pipeline.status());
    mlir::PassManager passManager(&context, pipeline->getOpAnchorName());
    static_cast<mlir::OpPassManager &>(passManager) = *std::move(pipeline);
    return compile(source, context, passManager,
                   [&] { return diagnostics.take(); });
  }

private:
  const bool loadAll;
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
  // The constants of a module stay in the context.
  lease.charge(source.bytes->getBufferSize());
  absl::StatusOr<mlir::PassManager *> passManager =
      lease.getPassManager(getPipeline(source));
  if (!passManager.ok())
    return addSource(passManager.status());
  return compile(source, *lease, **passManager,
                 [&] { return lease.takeDiagnostics(); });
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

absl::StatusOr<std::unique_ptr<CompileMode>>
bench::createCompileMode(llvm::StringRef name, const CompileSetup &setup) {
  if (name == "fresh" || name == "fresh-lazy")
    return std::make_unique<FreshMode>(name == "fresh", setup);
  if (name == "pool")
    return createPoolMode(setup);
  return absl::NotFoundError(
      absl::StrCat("there is no mode '", name.str(), "'"));
}

//===- Compilation.cpp - One module on its way to an artifact -------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiled with exceptions: a thread that ends in a pass unwinds through here.
//
//===----------------------------------------------------------------------===//

#include "context_pool/compile/Compilation.h"

#include "context_pool/ModuleTransfer.h"
#include "context_pool/compile/Annotate.h"
#include "context_pool/compile/CrashRecovery.h"
#include "context_pool/compile/ResultDigest.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/STLExtras.h"

#include <functional>
#include <optional>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::detail;

using Output = CompileServiceOptions::Output;
using Result = absl::StatusOr<Artifact>;

static constexpr llvm::StringLiteral bytecodeKind = "mlir-bytecode";

/// Of the calling thread.
static thread_local const Compilation *innermost = nullptr;

Compilation::Compilation(CompilationSetup &setup, const ContextPool &pool,
                         ContextLease lease, std::string name,
                         Deadline deadline)
    : setup(setup), pool(pool), lease(std::move(lease)), name(std::move(name)),
      deadline(deadline), outer(innermost) {
  innermost = this;
  if (recovers())
    this->lease->disableMultithreading();
}

Compilation::~Compilation() {
  // A destructor of MLIR's is as good as a pass.
  if (module)
    (void)protect([&] {
      enter("destruction");
      module = nullptr;
      return absl::OkStatus();
    });
  innermost = outer;
}

bool Compilation::isUnderWay() { return innermost != nullptr; }

bool Compilation::holdsLimitedContext() {
  for (const Compilation *held = innermost; held; held = held->outer)
    if (held->pool.getOptions().maxLive != 0)
      return true;
  return false;
}

absl::Status Compilation::load(Load bringIn, llvm::StringLiteral how) {
  return protect([&]() -> absl::Status {
    enter(how);
    absl::StatusOr<OwningModule> brought = bringIn(lease);
    if (!brought.ok())
      return fail(brought.status());
    module = *std::move(brought);
    enter("verifier");
    if (mlir::failed(mlir::verify(*module)))
      return failWithDiagnostics();
    return absl::OkStatus();
  });
}

absl::StatusOr<CacheKey> Compilation::makeKey(
    llvm::function_ref<absl::StatusOr<CacheKey>(mlir::ModuleOp)> make) {
  std::optional<CacheKey> key;
  absl::Status status = protect([&]() -> absl::Status {
    enter("fingerprint");
    absl::StatusOr<CacheKey> made = make(*module);
    if (!made.ok())
      return fail(made.status());
    key = *made;
    return absl::OkStatus();
  });
  if (!status.ok())
    return status;
  return *key;
}

Result Compilation::finish() {
  std::optional<Artifact> artifact;
  absl::Status status = protect([&]() -> absl::Status {
    if (absl::Status passes = runPipeline(); !passes.ok())
      return passes;
    std::optional<Fingerprint> meaning;
    if (setup.givesMeaning) {
      enter("digest");
      // Code has the names of private symbols.
      OwningModule copy(module->clone());
      meaning = Fingerprint{digestModule(*copy)};
    }
    Result emitted = emit();
    if (!emitted.ok())
      return fail(emitted.status());
    artifact = meaning ? emitted->withMeaning(*meaning) : *emitted;
    enter("destruction");
    module = nullptr;
    return absl::OkStatus();
  });
  if (!status.ok())
    return status;
  return *std::move(artifact);
}

std::string Compilation::describe() const {
  return absl::StrCat("compiling ", name, ": ", stage.str());
}

absl::Status Compilation::fail(const absl::Status &status) const {
  return annotate(status, describe());
}

absl::Status Compilation::failWithDiagnostics(const std::string &where) {
  std::vector<CapturedDiagnostic> diagnostics = lease.takeDiagnostics();
  auto isError = [](const CapturedDiagnostic &diagnostic) {
    return diagnostic.severity == mlir::DiagnosticSeverity::Error;
  };
  // Where there is none, what is less has to do.
  if (llvm::any_of(diagnostics, isError))
    llvm::erase_if(diagnostics, std::not_fn(isError));
  absl::Status failed = absl::InvalidArgumentError(
      diagnostics.empty() ? "MLIR does not say why" : toString(diagnostics));
  return fail(where.empty() ? failed : annotate(failed, where));
}

absl::Status Compilation::protect(llvm::function_ref<absl::Status()> step) {
  // Also where the thread ends in the step, and unwinds through here.
  struct Guard {
    Compilation &compilation;
    bool returned = false;
    ~Guard() {
      if (!returned)
        compilation.abandon();
    }
  } guard{*this};

  absl::Status status;
  absl::StatusOr<std::optional<std::string>> crash =
      runProtected(recovers() ? Recovery::Everything : Recovery::Exceptions,
                   [&] { status = step(); });
  guard.returned = !crash.ok() || !*crash;
  if (!crash.ok())
    return crash.status();
  if (!*crash)
    return status;
  ++setup.crashes;
  return absl::InternalError(absl::StrCat(
      describe(), observer ? ": " + observer->describeCurrent() : "",
      ": crashed: ", **crash));
}

void Compilation::abandon() {
  // The observer is the context's.
  (void)module.release();   // NOLINT(bugprone-unused-return-value)
  (void)observer.release(); // NOLINT(bugprone-unused-return-value)
  lease.abandon();
}

absl::Status Compilation::runPipeline() {
  enter("pipeline");
  absl::StatusOr<mlir::PassManager *> passes =
      lease.getPassManager(setup.options.recipe.pipeline);
  if (!passes.ok())
    return fail(passes.status());
  // Those of earlier steps do not say why a pass fails.
  lease.takeDiagnostics();
  // A handler of the template's stays where the options allow.
  if (recovers() || setup.options.timeout != absl::InfiniteDuration() ||
      !lease->hasActionHandler())
    observer = std::make_unique<PassObserver>(*lease, deadline);
  bool failed = mlir::failed((*passes)->run(*module));
  bool stopped = observer && observer->hasStopped();
  std::string where;
  if (stopped)
    where = observer->describeProgress();
  else if (failed && observer)
    where = observer->describeFailure();
  observer.reset();
  if (stopped) {
    ++setup.timeouts;
    return fail(absl::DeadlineExceededError(absl::StrCat(
        "not done within ", absl::FormatDuration(setup.options.timeout),
        ", stopped ", where)));
  }
  return failed ? failWithDiagnostics(where) : absl::OkStatus();
}

std::optional<Fingerprint> Compilation::readMeaning(const Artifact &artifact) {
  // Of code there is no telling what a private symbol was called for.
  if (artifact.getKind() != bytecodeKind)
    return std::nullopt;
  absl::Status status = load(
      [&](ContextLease &context) {
        return context.parse(artifact.getBytes(), name, /*verify=*/false);
      },
      "parser");
  if (!status.ok())
    return std::nullopt;
  std::optional<Fingerprint> meaning;
  status = protect([&] {
    enter("digest");
    meaning = Fingerprint{digestModule(*module)};
    enter("destruction");
    module = nullptr;
    return absl::OkStatus();
  });
  return status.ok() ? meaning : std::nullopt;
}

Result Compilation::emit() {
  auto onStage = [&](llvm::StringLiteral newStage) { enter(newStage); };
  if (setup.options.output == Output::Module) {
    enter("writing bytecode");
    absl::StatusOr<SerializedModule> bytes = serialize(*module);
    if (!bytes.ok())
      return bytes.status();
    return Artifact::adopt(bytecodeKind, bytes->getBytes(),
                           std::make_shared<SerializedModule>(*bytes));
  }
  bool isObject = setup.options.output == Output::Object;
  absl::StatusOr<CodeGenerator::Bytes> bytes =
      isObject ? setup.generator->emitObject(*module, onStage)
               : setup.generator->emitLLVMIR(*module, onStage);
  if (!bytes.ok())
    return bytes.status();
  return Artifact::copyOf(isObject ? "object" : "llvm-bitcode",
                          {bytes->data(), bytes->size()});
}

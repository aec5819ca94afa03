//===- Compilation.h - One module on its way to an artifact -----*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_COMPILE_COMPILATION_H
#define CONTEXT_POOL_COMPILE_COMPILATION_H

#include "context_pool/CompileService.h"
#include "context_pool/ContextPool.h"
#include "context_pool/compile/CodeGenerator.h"
#include "context_pool/compile/Deadline.h"
#include "context_pool/compile/PassObserver.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace ctxpool::detail {

/// What the compiles of a service have in common.
struct CompilationSetup {
  const CompileServiceOptions options; ///< Settled.
  /// Null where the output is a module.
  std::unique_ptr<CodeGenerator> generator;
  /// Whether artifacts say what they mean. It costs a print of the module, and
  /// matters only to a cache that compares.
  bool givesMeaning = false;

  std::atomic<uint64_t> crashes{0}, timeouts{0};
};

/// A module in a leased context, step by step: `load`, `makeKey` where it is
/// wanted, `finish`. After an error only the destructor may be called: what
/// crashes takes the module and the context with it.
///
/// Thread safety: of one thread, whose compilations end in the reverse of the
/// order in which they begin.
class Compilation {
public:
  using OwningModule = mlir::OwningOpRef<mlir::ModuleOp>;
  using Load = llvm::function_ref<absl::StatusOr<OwningModule>(ContextLease &)>;

  /// `lease` is on a context of `pool`; `name` is the module's in messages.
  Compilation(CompilationSetup &setup, const ContextPool &pool,
              ContextLease lease, std::string name, Deadline deadline);
  ~Compilation();
  Compilation(const Compilation &) = delete;
  Compilation &operator=(const Compilation &) = delete;

  /// Brings a module into the context, which it need not verify, and verifies
  /// it. `how` names the step.
  absl::Status load(Load bringIn, llvm::StringLiteral how);

  absl::StatusOr<CacheKey>
  makeKey(llvm::function_ref<absl::StatusOr<CacheKey>(mlir::ModuleOp)> make);

  /// The rest, from the loaded module to its artifact.
  absl::StatusOr<Artifact> finish();

  /// What an artifact means that a compile without `givesMeaning` made; nothing
  /// where its bytes do not tell. Before `load` or after `finish`.
  std::optional<Fingerprint> readMeaning(const Artifact &artifact);

  /// Whether the calling thread is in a compilation.
  static bool isUnderWay();

  /// ... in a context of a pool that has a `maxLive`, which others may be
  /// waiting for.
  static bool holdsLimitedContext();

private:
  bool recovers() const { return setup.options.crashRecovery; }

  void enter(llvm::StringRef newStage) { stage = newStage; }
  std::string describe() const;
  absl::Status fail(const absl::Status &status) const;
  /// `where`, of the stage, in front of them.
  absl::Status failWithDiagnostics(const std::string &where = "");

  /// Runs a step, during which the module may crash.
  absl::Status protect(llvm::function_ref<absl::Status()> step);
  /// After a step that did not return: what it was at is not to be trusted.
  void abandon();

  absl::Status runPipeline();
  absl::StatusOr<Artifact> emit();

  CompilationSetup &setup;
  const ContextPool &pool;
  ContextLease lease;
  OwningModule module;
  const std::string name;
  const Deadline deadline;
  llvm::StringRef stage;
  std::unique_ptr<PassObserver> observer;
  /// The one in which the thread began this one.
  const Compilation *const outer;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_COMPILE_COMPILATION_H

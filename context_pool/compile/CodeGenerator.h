//===- CodeGenerator.h - From the LLVM dialect to bytes ---------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_COMPILE_CODEGENERATOR_H
#define CONTEXT_POOL_COMPILE_CODEGENERATOR_H

#include "context_pool/CompileCache.h"
#include "context_pool/compile/TargetMachines.h"

#include "absl/status/statusor.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <memory>

namespace ctxpool::detail {

/// Turns modules in the LLVM dialect into LLVM IR or machine code, as a recipe's
/// target, CPU, features, code model and optimisation level say.
///
/// Functions keep the `target_cpu` and `target_features` that they have; others
/// are compiled for those of the recipe. Code is position-independent.
///
/// Contexts:      every call makes an LLVM context of its own. It may intern in
///                the module's MLIR context, and needs to be the only user of it.
/// Mutation:      translation may rewrite the module; it stays valid, and is
///                meant to be thrown away.
/// Thread safety: thread-safe; calls with modules of different contexts run side
///                by side.
/// Diagnostics:   none reaches a handler or is printed. Errors are in the status.
class CodeGenerator {
public:
  /// Told the name of what begins: `translation to LLVM IR`, `optimisation`,
  /// `code generation`. The names are literals.
  using StageHook = llvm::function_ref<void(llvm::StringLiteral stage)>;
  using Bytes = llvm::SmallVector<char, 0>;

  /// Initialises LLVM's targets when it is the first in the process.
  ///
  /// Errors: InvalidArgument - what LLVM cannot do; the message names the field
  ///                           of the recipe.
  static absl::StatusOr<std::unique_ptr<CodeGenerator>>
  create(const CompileRecipe &resolved);

  /// Whether `context` has what the emissions need. Loads the LLVM dialect.
  ///
  /// Errors: FailedPrecondition - it lacks the translation interfaces that
  ///                              `registerAllToLLVMIRTranslations` adds.
  static absl::Status checkContext(mlir::MLIRContext &context);

  /// Optimised LLVM IR as bitcode.
  ///
  /// Errors: InvalidArgument    - not all of the module is in the LLVM dialect,
  ///                              it was lowered for another target, a function
  ///                              names a processor, feature or garbage collector
  ///                              that LLVM does not have, or LLVM refuses it;
  ///                              the message has the reason.
  ///         FailedPrecondition - as `checkContext`.
  absl::StatusOr<Bytes> emitLLVMIR(mlir::ModuleOp module,
                                   StageHook onStage = nullptr) const {
    return emit(module, Output::Bitcode, onStage);
  }

  /// A relocatable object file.
  ///
  /// Errors: as `emitLLVMIR`, and InvalidArgument - the target has no object
  ///         files, or the module uses intrinsics of another target.
  absl::StatusOr<Bytes> emitObject(mlir::ModuleOp module,
                                   StageHook onStage = nullptr) const {
    return emit(module, Output::Object, onStage);
  }

private:
  enum class Output { Bitcode, Object };

  explicit CodeGenerator(std::unique_ptr<TargetMachines> machines,
                         unsigned level)
      : machines(std::move(machines)), level(level) {}
  absl::StatusOr<Bytes> emit(mlir::ModuleOp module, Output output,
                             StageHook onStage) const;

  const std::unique_ptr<TargetMachines> machines;
  const unsigned level;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_COMPILE_CODEGENERATOR_H

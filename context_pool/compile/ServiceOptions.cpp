//===- ServiceOptions.cpp - What a compile service can be told ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/compile/ServiceOptions.h"

#include "context_pool/ContextPool.h"
#include "context_pool/compile/Annotate.h"
#include "context_pool/compile/CodeGenerator.h"
#include "context_pool/support/Pipeline.h"
#include "context_pool/support/Thread.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"

using namespace ctxpool;
using namespace ctxpool::detail;

using Output = CompileServiceOptions::Output;
using OnDestroy = CompileServiceOptions::OnDestroy;

absl::Status detail::validate(const CompileServiceOptions &options) {
  auto invalid = [](llvm::StringRef field, const std::string &value,
                    const std::string &expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("compile service: ", field.str(), " = ", value,
                     ", expected ", expected));
  };
  if (options.output != Output::Module && options.output != Output::LLVMIR &&
      options.output != Output::Object)
    return invalid("output", absl::StrCat(int(options.output)),
                   "Module, LLVMIR or Object");
  if (options.onDestroy != OnDestroy::Finish &&
      options.onDestroy != OnDestroy::Cancel)
    return invalid("onDestroy", absl::StrCat(int(options.onDestroy)),
                   "Finish or Cancel");
  if (options.timeout < absl::ZeroDuration())
    return invalid("timeout", absl::FormatDuration(options.timeout),
                   "at least 0");
  if (options.queueCapacity == 0)
    return invalid("queueCapacity", "0", "at least 1");
  if (options.stackBytes < Thread::compilerStackBytes)
    return invalid("stackBytes", absl::StrCat(options.stackBytes),
                   absl::StrCat("at least ", Thread::compilerStackBytes));
  absl::StatusOr<mlir::OpPassManager> pipeline =
      parsePipeline(options.recipe.pipeline);
  if (!pipeline.ok())
    return annotate(pipeline.status(), "compile service: recipe.pipeline");
  llvm::StringRef anchor = pipeline->getOpAnchorName();
  if (anchor != mlir::ModuleOp::getOperationName() &&
      anchor != mlir::OpPassManager::getAnyOpAnchorName())
    return invalid("recipe.pipeline", options.recipe.pipeline,
                   "builtin.module as its anchor");
  return absl::OkStatus();
}

absl::Status detail::checkTemplate(const ContextPool &pool,
                                   const CompileServiceOptions &options) {
  bool needsActions =
      options.crashRecovery || options.timeout != absl::InfiniteDuration();
  if (options.output == Output::Module && !needsActions)
    return absl::OkStatus();
  // Not of the pool, whose contexts may have to stay as they are.
  absl::StatusOr<std::unique_ptr<mlir::MLIRContext>> context =
      pool.getTemplate().clone();
  if (!context.ok())
    return context.status();
  if (needsActions && (*context)->hasActionHandler())
    return absl::FailedPreconditionError(absl::StrCat(
        "compile service: timeout and crashRecovery need the action handler of "
        "contexts, and template '",
        pool.getTemplate().getName().str(), "' sets one"));
  if (options.output == Output::Module)
    return absl::OkStatus();
  if (absl::Status status = CodeGenerator::checkContext(**context);
      !status.ok())
    return annotate(status, "compile service: output");
  return absl::OkStatus();
}

llvm::StringLiteral detail::nameOf(Output output) {
  switch (output) {
  case Output::Module:
    return "output=module;";
  case Output::LLVMIR:
    return "output=llvmir;";
  case Output::Object:
    return "output=object;";
  }
  llvm_unreachable("validated");
}

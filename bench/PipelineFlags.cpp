//===- PipelineFlags.cpp - What is compiled with --------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/PipelineFlags.h"

#include "bench/CommandLine.h"
#include "bench/Registration.h"
#include "context_pool/support/Pipeline.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"

using namespace ctxpool;
using namespace ctxpool::bench;
namespace cl = llvm::cl;

PipelineFlags::PipelineFlags(cl::SubCommand &command,
                             cl::OptionCategory &category,
                             llvm::StringRef purpose, Use use)
    : help("Pipeline with its anchor, such as builtin.module(cse):\n" +
           purpose.str()),
      use(use), pipeline("pass-pipeline", cl::sub(command), cl::cat(category),
                         cl::value_desc("text"), cl::desc(help)),
      dialectPlugins("load-dialect-plugin", cl::sub(command), cl::cat(category),
                     cl::value_desc("so"),
                     cl::desc("Load dialects from a plugin library")),
      passPlugins("load-pass-plugin", cl::sub(command), cl::cat(category),
                  cl::value_desc("so"),
                  cl::desc("Load passes from a plugin library")) {}

absl::Status bench::checkRunsOnModules(llvm::StringRef pipeline) {
  absl::StatusOr<mlir::OpPassManager> parsed = detail::parsePipeline(pipeline);
  if (!parsed.ok())
    return parsed.status();
  llvm::StringRef anchor = parsed->getOpAnchorName();
  if (anchor != mlir::ModuleOp::getOperationName() &&
      anchor != mlir::OpPassManager::getAnyOpAnchorName())
    return absl::InvalidArgumentError(absl::StrCat(
        "'", anchor.str(), "' is its anchor, expected builtin.module"));
  return absl::OkStatus();
}

int PipelineFlags::setUp(mlir::DialectRegistry &registry,
                         llvm::StringRef command) const {
  if (pipeline.getNumOccurrences() && pipeline.empty())
    return usageError(
        "--pass-pipeline= is empty; builtin.module() runs no pass", command);
  if (!registerEverything(registry, dialectPlugins, passPlugins))
    return exitFailure;
  if (pipeline.empty())
    return exitSuccess;
  absl::Status status = use == Use::RunsOnModules
                            ? checkRunsOnModules(pipeline)
                            : detail::parsePipeline(pipeline).status();
  if (!status.ok())
    return usageError("--pass-pipeline: " + std::string(status.message()),
                      command);
  return exitSuccess;
}

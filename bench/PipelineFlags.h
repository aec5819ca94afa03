//===- PipelineFlags.h - What is compiled with ---------------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_PIPELINEFLAGS_H
#define CONTEXT_POOL_BENCH_PIPELINEFLAGS_H

#include "absl/status/status.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/CommandLine.h"

#include <string>

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace ctxpool::bench {

/// Whether `pipeline` can run on modules, as compile services want it.
///
/// Errors: InvalidArgument - it has another anchor, or is no pipeline.
absl::Status checkRunsOnModules(llvm::StringRef pipeline);

/// The options of commands that know a pipeline, and plugins for it.
class PipelineFlags {
public:
  /// What the pipeline is for: to run on modules, or to be looked at.
  enum class Use { RunsOnModules, IsLookedAt };

  /// `purpose` is what the help says that the pipeline is for.
  PipelineFlags(llvm::cl::SubCommand &command,
                llvm::cl::OptionCategory &category, llvm::StringRef purpose,
                Use use = Use::RunsOnModules);

  /// Empty where none was given.
  const std::string &getPipeline() const { return pipeline.getValue(); }

  /// Registers all dialects and passes, those of the plugins too, and checks
  /// the pipeline. Returns `exitSuccess`, or, after an error was printed, what
  /// the command has to exit with.
  int setUp(mlir::DialectRegistry &registry, llvm::StringRef command) const;

private:
  const std::string help;
  const Use use;
  llvm::cl::opt<std::string> pipeline;
  llvm::cl::list<std::string> dialectPlugins, passPlugins;
};

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_PIPELINEFLAGS_H

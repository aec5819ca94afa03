//===- RecipeFlags.h - What is done to modules ------------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_RECIPEFLAGS_H
#define CONTEXT_POOL_BENCH_RECIPEFLAGS_H

#include "bench/CompileMode.h"
#include "context_pool/CompileCache.h"

#include "llvm/Support/CommandLine.h"

#include <string>

namespace ctxpool::bench {

/// The options of commands that name all of a recipe but its pipeline, and what
/// comes out.
class RecipeFlags {
public:
  RecipeFlags(llvm::cl::SubCommand &command,
              llvm::cl::OptionCategory &category);

  /// Why an option is wrong; empty where none is.
  std::string check() const;

  /// Valid where `check` finds nothing.
  CompileOutput getOutput() const { return *findCompileOutput(outputName); }

  /// Puts what was asked for into `recipe`, behind the `options` that it has.
  void apply(CompileRecipe &recipe) const;

private:
  llvm::cl::opt<std::string> target, cpu, features, codeModel;
  llvm::cl::opt<unsigned> optimizationLevel;
  llvm::cl::opt<std::string> outputName, options;
  llvm::cl::list<std::string> extra;
};

/// Why no code for `output` can be made with the target, CPU, features, code model
/// and level of `recipe`, whatever its pipeline; empty where it can.
std::string checkCodeOptions(CompileRecipe recipe, CompileOutput output);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_RECIPEFLAGS_H

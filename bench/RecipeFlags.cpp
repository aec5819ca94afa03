//===- RecipeFlags.cpp - What is done to modules --------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/RecipeFlags.h"

#include "context_pool/compile/CodeGenerator.h"

#include "absl/status/statusor.h"
#include "llvm/ADT/StringExtras.h"

#include <optional>

using namespace ctxpool;
using namespace ctxpool::bench;
namespace cl = llvm::cl;

RecipeFlags::RecipeFlags(cl::SubCommand &command, cl::OptionCategory &category)
    : target("target", cl::sub(command), cl::cat(category),
             cl::value_desc("triple"),
             cl::desc("Target triple (default: this machine's)")),
      cpu("cpu", cl::sub(command), cl::cat(category), cl::value_desc("name"),
          cl::desc("CPU, as LLVM's -mcpu, or native (default: the target's\n"
                   "generic one)")),
      features("features", cl::sub(command), cl::cat(category),
               cl::value_desc("+a,-b,..."),
               cl::desc("Features of the CPU, as LLVM's -mattr")),
      codeModel("code-model", cl::sub(command), cl::cat(category),
                cl::value_desc("name"),
                cl::desc("tiny, small, kernel, medium or large (default: the\n"
                         "target's own)")),
      optimizationLevel("opt-level", cl::sub(command), cl::cat(category),
                        cl::value_desc("0..3"),
                        cl::init(CompileRecipe().optimizationLevel),
                        cl::desc("Optimisation level (default: 2)")),
      outputName("output", cl::sub(command), cl::cat(category),
                 cl::value_desc("what"), cl::init("module"),
                 cl::desc("What comes out: module (default), llvmir or "
                          "object")),
      options("options", cl::sub(command), cl::cat(category),
              cl::value_desc("text"),
              cl::desc("Whatever else the compiler is told")),
      extra("extra", cl::sub(command), cl::cat(category),
            cl::value_desc("text"),
            cl::desc("A further input that changes the result; may be\n"
                     "repeated")) {}

std::string RecipeFlags::check() const {
  std::optional<CompileOutput> output = findCompileOutput(outputName);
  if (!output)
    return "--output: '" + outputName + "' is not an output; the outputs are " +
           llvm::join(getCompileOutputNames(), ", ");
  CompileRecipe recipe;
  apply(recipe);
  return checkCodeOptions(recipe, *output);
}

std::string bench::checkCodeOptions(CompileRecipe recipe,
                                    CompileOutput output) {
  // Which may be a file's.
  recipe.pipeline = "builtin.module()";
  absl::StatusOr<ResolvedRecipe> resolved = ResolvedRecipe::create(recipe);
  absl::Status status = resolved.status();
  if (resolved.ok() && output != CompileOutput::Module)
    status = detail::CodeGenerator::create(resolved->get()).status();
  return status.ok() ? "" : std::string(status.message());
}

void RecipeFlags::apply(CompileRecipe &recipe) const {
  recipe.target = target;
  recipe.cpu = cpu;
  recipe.features = features;
  recipe.codeModel = codeModel;
  recipe.optimizationLevel = optimizationLevel;
  recipe.options += options;
  recipe.extra.assign(extra.begin(), extra.end());
}

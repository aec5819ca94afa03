//===- CompileTestSupport.h - From text to running code ---------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_TEST_COMPILE_COMPILETESTSUPPORT_H
#define CONTEXT_POOL_TEST_COMPILE_COMPILETESTSUPPORT_H

#include "context_pool/CompileCache.h"
#include "context_pool/ContextTemplate.h"
#include "context_pool/Executable.h"

#include "absl/status/statusor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringRef.h"
#include "gtest/gtest.h"

#include <memory>
#include <string>

namespace ctxpool::test {

/// `add`, of two numbers of 32 bits.
constexpr llvm::StringLiteral addText = R"(
  llvm.func @add(%a: i32, %b: i32) -> i32 {
    %sum = llvm.add %a, %b : i32
    llvm.return %sum : i32
  }
)";

/// All of upstream's dialects, extensions and translations to LLVM IR.
std::shared_ptr<const ContextTemplate> compilingTemplate();

/// For this machine's target and its generic CPU, without a pipeline.
CompileRecipe hostRecipe();

/// Fails the test where `text` does not parse.
mlir::OwningOpRef<mlir::ModuleOp> parse(mlir::MLIRContext &context,
                                        llvm::StringRef text);

/// The text after `// PIPELINE:` in the first line of a bundled module.
std::string pipelineOf(llvm::StringRef text);

/// The object file that `recipe` makes of `text`, in a context of its own.
absl::StatusOr<Artifact> compileObject(llvm::StringRef text,
                                       const CompileRecipe &recipe);

/// ... of `text` in the LLVM dialect, loaded. Fails the test where any of that
/// does.
std::shared_ptr<Executable> loadText(llvm::StringRef text);

/// Calls a function of compiled code. Not checked by -fsanitize=function, which
/// looks for a mark that such code does not have.
template <typename Result, typename... Arguments>
#if defined(__clang__)
__attribute__((no_sanitize("function")))
#endif
Result callAddress(void *address, Arguments... arguments) {
  return reinterpret_cast<Result (*)(Arguments...)>(address)(arguments...);
}

/// Calls `name` of `executable`, by its exact name.
template <typename Result = void, typename... Arguments>
Result call(const Executable &executable, llvm::StringRef name,
            Arguments... arguments) {
  absl::StatusOr<void *> address = executable.lookup(name);
  if (!address.ok()) {
    ADD_FAILURE() << address.status().ToString();
    return Result();
  }
  return callAddress<Result>(*address, arguments...);
}

} // namespace ctxpool::test

#endif // CONTEXT_POOL_TEST_COMPILE_COMPILETESTSUPPORT_H

//===- ResultDigest.cpp - Whether two compiles gave one result ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/ResultDigest.h"

#include "bench/ModuleParser.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"

using namespace ctxpool;
using namespace ctxpool::bench;
using namespace mlir;

absl::StatusOr<Digest> bench::digestResult(llvm::StringRef bytecode,
                                           const DialectRegistry &registry) {
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.allowUnregisteredDialects();
  // A copy: resources need an alignment that a string does not have.
  std::unique_ptr<llvm::MemoryBuffer> bytes = copyAligned(bytecode, "result");
  absl::StatusOr<OwningOpRef<ModuleOp>> module =
      parseModule(*bytes, context, /*verify=*/false);
  if (!module.ok())
    return absl::InvalidArgumentError(absl::StrCat(
        "the result cannot be read back: ", module.status().message()));
  return digestModule(**module);
}

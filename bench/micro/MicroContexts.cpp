//===- MicroContexts.cpp - Contexts and modules for the figures -----------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/micro/MicroContexts.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"

#include <algorithm>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;

void bench::registerAll(mlir::DialectRegistry &registry) {
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
}

const mlir::DialectRegistry &bench::allDialects() {
  static const mlir::DialectRegistry registry = [] {
    mlir::DialectRegistry all;
    registerAll(all);
    return all;
  }();
  return registry;
}

const std::shared_ptr<const ContextTemplate> &bench::fullTemplate() {
  static const std::shared_ptr<const ContextTemplate> full = [] {
    ContextTemplateOptions options;
    options.name = "full";
    options.populate = registerAll;
    // Nothing in these options can be wrong.
    return *ContextTemplate::create(std::move(options));
  }();
  return full;
}

const llvm::StringLiteral bench::linalgToLLVMPipeline =
    "builtin.module("
    "one-shot-bufferize{bufferize-function-boundaries=true},"
    "func.func(convert-linalg-to-loops),lower-affine,convert-scf-to-cf,"
    "expand-strided-metadata,lower-affine,convert-math-to-llvm,"
    "convert-arith-to-llvm,convert-index-to-llvm,finalize-memref-to-llvm,"
    "convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)";

absl::StatusOr<const ModuleSource *> bench::smallestModule() {
  static const std::vector<ModuleSource> modules = readBundledModules();
  if (modules.empty())
    return absl::NotFoundError("no modules are bundled");
  return &*std::min_element(modules.begin(), modules.end(),
                            [](const ModuleSource &a, const ModuleSource &b) {
                              return a.bytes->getBufferSize() <
                                     b.bytes->getBufferSize();
                            });
}

//===- FuzzSupport.cpp - What the fuzz targets share ----------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/fuzz/FuzzSupport.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"

#include <cstdio>
#include <cstdlib>

using namespace mlir;

namespace ctxpool::fuzz {

std::unique_ptr<MLIRContext> makeContext() {
  static const DialectRegistry *registry = [] {
    auto *made = new DialectRegistry();
    registerAllDialects(*made);
    registerAllExtensions(*made);
    return made;
  }();
  auto context = std::make_unique<MLIRContext>(
      *registry, MLIRContext::Threading::DISABLED);
  context->allowUnregisteredDialects();
  return context;
}

const char *step = "";

void require(bool condition, const char *what) {
  if (condition)
    return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

} // namespace ctxpool::fuzz

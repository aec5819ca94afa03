//===- FuzzSupport.h - What the fuzz targets share --------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_TEST_FUZZ_FUZZSUPPORT_H
#define CONTEXT_POOL_TEST_FUZZ_FUZZSUPPORT_H

#include "mlir/IR/MLIRContext.h"

#include <memory>

namespace ctxpool::fuzz {

/// A context that has all of upstream's dialects registered and takes
/// unregistered ones.
std::unique_ptr<mlir::MLIRContext> makeContext();

/// What is being done with an input, for reports of crashes.
extern const char *step;

/// Ends the process where the condition does not hold.
void require(bool condition, const char *what);

} // namespace ctxpool::fuzz

#endif // CONTEXT_POOL_TEST_FUZZ_FUZZSUPPORT_H

//===- Registration.h - Dialects and passes the tool knows ---- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_REGISTRATION_H
#define CONTEXT_POOL_BENCH_REGISTRATION_H

#include "llvm/ADT/ArrayRef.h"

#include <string>

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace ctxpool::bench {

/// Registers all of upstream's dialects and extensions with `registry` and all
/// of its passes with MLIR, then what the plugins bring. A plugin is a shared
/// library with an entry point as mlir-opt's options of the same names want it;
/// it finds MLIR in this executable and must not bring its own. Prints an error
/// and returns false where a plugin cannot be loaded.
bool registerEverything(mlir::DialectRegistry &registry,
                        llvm::ArrayRef<std::string> dialectPlugins,
                        llvm::ArrayRef<std::string> passPlugins);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_REGISTRATION_H

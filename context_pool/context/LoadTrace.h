//===- LoadTrace.h - Watching dialects being loaded ----------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CONTEXT_LOADTRACE_H
#define CONTEXT_POOL_CONTEXT_LOADTRACE_H

#include "mlir/IR/DialectRegistry.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

namespace ctxpool::detail {

/// What has just happened to a dialect.
enum class LoadPhase {
  Constructed, ///< It has registered its operations, types and attributes.
  Extended     ///< The registry's extensions have been applied to it.
};

/// Told of every dialect that a context loads, the builtin one excepted,
/// however the loading came about.
using LoadListener =
    llvm::function_ref<void(mlir::MLIRContext &, llvm::StringRef, LoadPhase)>;

/// A copy of `registry` with which a context tells `listener` what it loads.
/// Contexts that are made with it must not outlive the listener.
///
/// A dialect loads those that it depends on before it is constructed, and
/// extensions may load more, so that the two phases of a dialect enclose
/// others.
mlir::DialectRegistry traceLoading(const mlir::DialectRegistry &registry,
                                   LoadListener listener);

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CONTEXT_LOADTRACE_H

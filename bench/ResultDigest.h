//===- ResultDigest.h - Whether two compiles gave one result -- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_RESULTDIGEST_H
#define CONTEXT_POOL_BENCH_RESULTDIGEST_H

#include "context_pool/compile/ResultDigest.h"

#include "absl/status/statusor.h"
#include "llvm/ADT/StringRef.h"

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace ctxpool::bench {

using Digest = detail::ResultDigest;
using detail::digestBytes;
using detail::digestModule;

/// `digestModule` of a module in bytecode, read into a context of its own which
/// has the dialects of `registry`.
///
/// Errors: InvalidArgument - the bytes cannot be read back; the message has
/// MLIR's.
absl::StatusOr<Digest> digestResult(llvm::StringRef bytecode,
                                    const mlir::DialectRegistry &registry);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_RESULTDIGEST_H

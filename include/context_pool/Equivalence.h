//===- Equivalence.h - Whether two pieces of IR are the same ----*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Compares operations, in one context or in two.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_EQUIVALENCE_H
#define CONTEXT_POOL_EQUIVALENCE_H

#include "context_pool/Fingerprint.h"

#include "absl/status/status.h"

namespace mlir {
class Operation;
} // namespace mlir

namespace ctxpool {

/// OK if `lhs` and `rhs` are equivalent: if `fingerprint` gives both one
/// digest, see there for what counts. Stops at the first difference, in the
/// order in which the IR prints.
///
/// Contexts:      those of `lhs` and `rhs`, which may be one or two; only read,
///                but for one kind of difference: to name a property that is no
///                attribute, those of the two operations are converted to
///                attributes, which are interned.
/// Thread safety: as `fingerprint`.
/// Errors:        InvalidArgument - they differ. The message is the path to the
///                                  first difference and both values, long
///                                  names and values abbreviated, in less than
///                                  2 KiB: `func.func @f, region 0, block 0,
///                                  operation 3 (arith.addf): property
///                                  'fastmath': <none> vs <fast>`.
///                FailedPrecondition - they were equal up to an attribute that
///                                  cannot be encoded without loss; the message
///                                  names it.
absl::Status checkEquivalence(mlir::Operation *lhs, mlir::Operation *rhs,
                              const StructuralOptions &options = {});

/// Whether `checkEquivalence` is OK, without the work of telling why not.
/// Nothing is interned, as by `fingerprint`.
bool isEquivalent(mlir::Operation *lhs, mlir::Operation *rhs,
                  const StructuralOptions &options = {});

} // namespace ctxpool

#endif // CONTEXT_POOL_EQUIVALENCE_H

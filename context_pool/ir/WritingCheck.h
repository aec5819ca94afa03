//===- WritingCheck.h - What MLIR's writer does not manage ------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A look at IR before MLIR's writer sees it. The writer numbers a value that it
/// does not know as another one, recurses as deep as regions, attributes and
/// types nest, prints shared parts as often as they occur, and loses what text
/// does not hold.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_IR_WRITINGCHECK_H
#define CONTEXT_POOL_IR_WRITINGCHECK_H

#include "absl/status/statusor.h"

#include <cstdint>
#include <vector>

namespace mlir {
class Dialect;
class Operation;
} // namespace mlir

namespace ctxpool::detail {

/// What writing an operation takes.
struct WritingSummary {
  /// Whether the bytes have to be compared with what they were made of.
  bool mayLose = false;
  /// Those of the operations, attributes and types, each once, without the
  /// builtin one and what is not registered.
  std::vector<mlir::Dialect *> dialects;
  /// What the writer needs of the stack.
  uint64_t stackBytes = 0;
};

/// Finds what MLIR's writer must not see. Without `includeLocations`, those of
/// operations and block arguments do not count. Recurses not.
///
/// Errors: InvalidArgument    - an operand or successor is defined where the
///                              operation that uses it does not see it.
///         FailedPrecondition - text would be too large, or the nesting is too
///                              deep for any stack.
absl::StatusOr<WritingSummary> checkWriting(mlir::Operation *op,
                                            bool includeLocations);

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_IR_WRITINGCHECK_H

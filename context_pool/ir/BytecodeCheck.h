//===- BytecodeCheck.h - What MLIR's reader does not survive ----*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A walk over the framing of bytecode before MLIR's reader sees it. The reader
/// says well what is wrong with most bytes; some it trusts: it allocates as many
/// entries as a count says, writes behind the end of a table, or follows an
/// attribute that refers to itself for ever. Those are refused here, and no
/// others.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_IR_BYTECODECHECK_H
#define CONTEXT_POOL_IR_BYTECODECHECK_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace mlir {
class MLIRContext;
} // namespace mlir

namespace ctxpool::detail {

/// What decides whether and how MLIR can read the bytes in a context.
struct BytecodeSummary {
  /// Regions in regions.
  uint64_t regions = 0;
  /// Attributes and types in each other, brackets of their texts included.
  uint64_t attributes = 0;

  /// The name of operations that have properties, in the bytes.
  struct OperationName {
    llvm::StringRef dialect;
    llvm::StringRef name;
    /// Whether it was registered where the bytes were written.
    bool wasRegistered;
  };
  std::vector<OperationName> withProperties;
  /// Whether a dialect noted its version, by which it may upgrade what is read.
  bool hasVersions = false;
  /// Whether uses come in the order in which MLIR's reader meets them: no list of
  /// uses has an order of its own, and no value is used before its definition.
  bool hasUsesInOrder = true;

  /// Whether MLIR's reader makes the same of the bytes where it reads isolated
  /// operations after what is around them: in those, it neither sorts uses, nor
  /// does it have a dialect upgrade them.
  bool readsInParts() const { return hasUsesInOrder && !hasVersions; }
};

/// Finds bytes that MLIR's reader would not survive. What is wrong with the
/// bytes and well diagnosed by the reader is left to it.
///
/// `bytes` begins as bytecode does, and lies where the reader will find it: it
/// aligns by address.
///
/// Errors: InvalidArgument - the reader must not see the bytes.
absl::StatusOr<BytecodeSummary> checkBytecode(llvm::StringRef bytes);

/// Whether the context knows the operations that the writer of the bytes knew.
/// Properties are encoded as the operation has it, or as an attribute where it
/// was not registered; MLIR's reader takes the one for the other where the
/// context does not agree. Loads their dialects.
///
/// Errors: InvalidArgument - an operation is registered there, and not here, or
///                           the other way round.
absl::Status checkOperations(const BytecodeSummary &summary,
                             mlir::MLIRContext &context);

/// Runs `body` where MLIR has the stack that it needs to read bytes of the
/// depth: on the caller's thread, which should have 256 KiB, or, where that is
/// not enough, on one of its own.
///
/// Errors: InvalidArgument   - no stack is large enough.
///         ResourceExhausted - the system has no thread or stack to give.
absl::Status runWithStack(const BytecodeSummary &summary,
                          const std::function<void()> &body);

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_IR_BYTECODECHECK_H

//===- Diagnostics.h - MLIR diagnostics as values ---------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A diagnostic that outlives the context which emitted it.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_DIAGNOSTICS_H
#define CONTEXT_POOL_DIAGNOSTICS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace mlir {
class Diagnostic;
enum class DiagnosticSeverity;
} // namespace mlir

namespace ctxpool {

/// One diagnostic of MLIR with its notes, as text that refers to no context.
///
/// A value: copyable, and safe to read from any thread.
struct CapturedDiagnostic {
  mlir::DiagnosticSeverity severity;

  /// Where, as MLIR prints it without `loc()`: `"file.mlir":3:7`, `unknown`,
  /// `callsite("f" at "g.mlir":1:1)`.
  std::string location;

  /// What, without severity and location.
  std::string message;

  /// The attached notes, in the order in which they were attached.
  std::vector<CapturedDiagnostic> notes;

  /// The diagnostic as one line, `<location>: <severity>: <message>`, followed
  /// by one such line for each note.
  std::string toString() const;

  /// Copies `diagnostic` and its notes. Reads the diagnostic's context.
  static CapturedDiagnostic capture(mlir::Diagnostic &diagnostic);
};

/// The name of a severity as MLIR's tools print it: `error`, `warning`,
/// `remark`, `note`.
llvm::StringRef toString(mlir::DiagnosticSeverity severity);

/// The diagnostics as text, one `CapturedDiagnostic::toString` after the other,
/// separated by newlines: what goes into the message of an `absl::Status`.
std::string toString(llvm::ArrayRef<CapturedDiagnostic> diagnostics);

} // namespace ctxpool

#endif // CONTEXT_POOL_DIAGNOSTICS_H

//===- Diagnostics.cpp - MLIR diagnostics as values -----------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/Diagnostics.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"

using namespace ctxpool;

/// `location` as MLIR prints it, without the `loc(...)` around it.
static std::string printLocation(mlir::Location location) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  location->print(stream);
  llvm::StringRef inner = text;
  if (inner.consume_front("loc(") && inner.consume_back(")"))
    return inner.str();
  return text;
}

CapturedDiagnostic CapturedDiagnostic::capture(mlir::Diagnostic &diagnostic) {
  CapturedDiagnostic captured;
  captured.severity = diagnostic.getSeverity();
  captured.location = printLocation(diagnostic.getLocation());
  captured.message = diagnostic.str();
  for (mlir::Diagnostic &note : diagnostic.getNotes())
    captured.notes.push_back(capture(note));
  return captured;
}

std::string CapturedDiagnostic::toString() const {
  std::string text = (llvm::Twine(location) + ": " +
                      ctxpool::toString(severity) + ": " + message)
                         .str();
  for (const CapturedDiagnostic &note : notes)
    text += "\n" + note.toString();
  return text;
}

llvm::StringRef ctxpool::toString(mlir::DiagnosticSeverity severity) {
  switch (severity) {
  case mlir::DiagnosticSeverity::Note:
    return "note";
  case mlir::DiagnosticSeverity::Warning:
    return "warning";
  case mlir::DiagnosticSeverity::Error:
    return "error";
  case mlir::DiagnosticSeverity::Remark:
    return "remark";
  }
  llvm_unreachable("a severity that MLIR does not have");
}

std::string ctxpool::toString(llvm::ArrayRef<CapturedDiagnostic> diagnostics) {
  return llvm::join(llvm::map_range(diagnostics,
                                    [](const CapturedDiagnostic &diagnostic) {
                                      return diagnostic.toString();
                                    }),
                    "\n");
}

//===- DiagnosticCapture.h - Errors of MLIR for a status --------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_SUPPORT_DIAGNOSTICCAPTURE_H
#define CONTEXT_POOL_SUPPORT_DIAGNOSTICCAPTURE_H

#include "context_pool/Diagnostics.h"

#include "mlir/IR/Diagnostics.h"

#include <string>
#include <vector>

namespace ctxpool::detail {

/// While it lives, errors that a context emits are kept for the message of a
/// status, and everything less is dropped: nothing is printed, and no handler
/// of the user's is called.
class DiagnosticCapture {
public:
  explicit DiagnosticCapture(mlir::MLIRContext &context)
      : handler(&context, [this](mlir::Diagnostic &diagnostic) {
          if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error &&
              captured.size() < maxErrors)
            captured.push_back(CapturedDiagnostic::capture(diagnostic));
          return mlir::success();
        }) {}
  DiagnosticCapture(const DiagnosticCapture &) = delete;
  DiagnosticCapture &operator=(const DiagnosticCapture &) = delete;

  /// The errors so far, and forgets them. Empty where there were none.
  std::string take() {
    std::string text = ctxpool::toString(captured);
    captured.clear();
    return text;
  }

private:
  /// More say nothing that these do not, and damaged input makes very many.
  static constexpr size_t maxErrors = 16;

  std::vector<CapturedDiagnostic> captured;
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_SUPPORT_DIAGNOSTICCAPTURE_H

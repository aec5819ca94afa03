//===- DiagnosticsTest.cpp - CapturedDiagnostic, rule by rule -------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/Diagnostics.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"

using namespace ctxpool;

namespace {

TEST(DiagnosticsTest, ACapturedDiagnosticOutlivesItsContext) {
  std::vector<CapturedDiagnostic> captured;
  {
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    mlir::ScopedDiagnosticHandler handler(
        &context, [&](mlir::Diagnostic &diagnostic) {
          captured.push_back(CapturedDiagnostic::capture(diagnostic));
        });
    mlir::Location callee =
        mlir::NameLoc::get(mlir::StringAttr::get(&context, "f"),
                           mlir::FileLineColLoc::get(&context, "a.mlir", 1, 2));
    mlir::emitError(mlir::CallSiteLoc::get(
        callee, mlir::FileLineColLoc::get(&context, "b.mlir", 3, 4)))
        << "wrong";
  }

  ASSERT_EQ(captured.size(), 1u);
  EXPECT_EQ(captured[0].location,
            "callsite(\"f\"(\"a.mlir\":1:2) at \"b.mlir\":3:4)");
  EXPECT_EQ(captured[0].toString(), captured[0].location + ": error: wrong");
}

TEST(DiagnosticsTest, SeveritiesHaveTheNamesThatToolsPrint) {
  EXPECT_EQ(toString(mlir::DiagnosticSeverity::Error), "error");
  EXPECT_EQ(toString(mlir::DiagnosticSeverity::Warning), "warning");
  EXPECT_EQ(toString(mlir::DiagnosticSeverity::Remark), "remark");
  EXPECT_EQ(toString(mlir::DiagnosticSeverity::Note), "note");
}

TEST(DiagnosticsTest, NoDiagnosticsAreNoText) {
  EXPECT_EQ(toString(llvm::ArrayRef<CapturedDiagnostic>()), "");
}

} // namespace

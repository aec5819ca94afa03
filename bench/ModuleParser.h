//===- ModuleParser.h - From the bytes of a file to a module -- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_MODULEPARSER_H
#define CONTEXT_POOL_BENCH_MODULEPARSER_H

#include "context_pool/Diagnostics.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mlir {
class MLIRContext;
} // namespace mlir

namespace ctxpool::bench {

/// Captures the diagnostics of a context as long as it lives.
///
/// Confined to the thread that uses the context.
class DiagnosticCollector {
public:
  explicit DiagnosticCollector(mlir::MLIRContext &observed);
  ~DiagnosticCollector();
  DiagnosticCollector(const DiagnosticCollector &) = delete;
  DiagnosticCollector &operator=(const DiagnosticCollector &) = delete;

  std::vector<CapturedDiagnostic> take() { return std::move(captured); }
  std::string toString() const;

private:
  mlir::MLIRContext &context;
  uint64_t handler;
  std::vector<CapturedDiagnostic> captured;
};

/// Diagnostics as lines `file:line:column: error: message`, as compilers print
/// them and editors find them. Where there are errors, only these with their
/// notes: warnings are not why something failed.
std::string formatDiagnostics(llvm::ArrayRef<CapturedDiagnostic> diagnostics);

/// The module in `bytes`, text or bytecode. What is not a module at the top is
/// wrapped in one. Resources alias `bytes`, which has to outlive the module.
/// Null where that fails; diagnostics go to the context.
mlir::OwningOpRef<mlir::ModuleOp> parseModule(const llvm::MemoryBuffer &bytes,
                                              mlir::MLIRContext &context,
                                              bool verify);

/// A copy of `bytes` that is aligned to 64 and followed by a zero byte.
std::unique_ptr<llvm::MemoryBuffer> copyAligned(llvm::StringRef bytes,
                                                llvm::StringRef name);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_MODULEPARSER_H

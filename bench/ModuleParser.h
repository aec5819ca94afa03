//===- ModuleParser.h - From the bytes of a file to a module -- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_MODULEPARSER_H
#define CONTEXT_POOL_BENCH_MODULEPARSER_H

#include "bench/ModuleSource.h"
#include "context_pool/Diagnostics.h"

#include "absl/status/statusor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace mlir {
class DialectRegistry;
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

  std::vector<CapturedDiagnostic> take() { return std::exchange(captured, {}); }
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
/// Both are checked before MLIR reads them, as `ContextLease::parse` does.
///
/// Diagnostics are in the status and reach no other handler.
/// Errors: InvalidArgument - it is not a module; the message has MLIR's. Or MLIR
///                           would not survive it.
///         ResourceExhausted - as of `deserialize`.
absl::StatusOr<mlir::OwningOpRef<mlir::ModuleOp>>
parseModule(const llvm::MemoryBuffer &bytes, mlir::MLIRContext &context,
            bool verify);

/// A module in a context of its own, into which dialects are loaded on demand.
struct LoadedModule {
  /// What resources of the module alias. Ahead of the context, which goes first.
  std::shared_ptr<const llvm::MemoryBuffer> bytes;
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

/// Parses and verifies a file.
///
/// Errors: NotFound        - the file could not be read.
///         Internal        - MLIR crashed on it, and crashes are recovered from.
///         as of `parseModule`.
absl::StatusOr<LoadedModule> loadModule(const ModuleSource &source,
                                        const mlir::DialectRegistry &registry,
                                        bool allowUnregisteredDialects);

/// What the bytes of a module are aligned to: the largest alignment that a
/// resource in bytecode may ask for. MLIR reads it only from a buffer that is
/// aligned as much.
constexpr size_t moduleAlignment = 4096;

/// A copy of `bytes` that is aligned to that and followed by a zero byte.
std::unique_ptr<llvm::MemoryBuffer> copyAligned(llvm::StringRef bytes,
                                                llvm::StringRef name);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_MODULEPARSER_H

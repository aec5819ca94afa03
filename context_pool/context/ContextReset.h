//===- ContextReset.h - Setting a used context back -------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// All that is undone when a context comes back to the pool. What is not undone
/// here, such as uniqued attributes, is bounded by retiring the context.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CONTEXT_CONTEXTRESET_H
#define CONTEXT_POOL_CONTEXT_CONTEXTRESET_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/SmallVector.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace mlir {
class ResourceBlobManagerDialectInterface;
namespace transform {
class TransformDialect;
} // namespace transform
} // namespace mlir

namespace ctxpool::detail {

/// How a context was when it was made, and the way back to it.
class ContextBaseline {
public:
  enum class Outcome {
    Restored, ///< The context is as it was.
    Drifted,  ///< ... but for dialects, operations, types or attributes that
              ///< were registered since. The next reset takes them as given.
    Damaged   ///< Something was changed that cannot be set back.
  };

  /// Takes `context` as the state to come back to. `threadPool` are the threads
  /// that outlive the context; null where there are none.
  ContextBaseline(mlir::MLIRContext &context,
                  llvm::ThreadPoolInterface *threadPool);

  /// The data, in bytes, of all resource blobs that dialects of `context` hold:
  /// a reset drops those that came since the constructor.
  static uint64_t countBlobBytes(mlir::MLIRContext &context);

  /// Sets `context`, the one of the constructor, back. No other thread may use
  /// it, and no operation may be left in it.
  Outcome reset(mlir::MLIRContext &context);

private:
  /// A blob that the context had from the beginning.
  struct Blob {
    std::string key;
    const void *data;
    size_t bytes;
  };
  /// The resource blobs of a dialect.
  struct BlobManager {
    mlir::ResourceBlobManagerDialectInterface *interface;
    llvm::SmallVector<Blob, 0> blobs;
  };

  void findDialectState(mlir::MLIRContext &context);
  bool resetThreads(mlir::MLIRContext &context) const;
  void eraseDiagnosticHandlers(mlir::MLIRContext &context);
  bool resetTransformLibrary();
  bool resetBlobs();

  bool allowsUnregisteredDialects;
  bool printsOpOnDiagnostic;
  bool printsStackTraceOnDiagnostic;
  bool hasActionHandler;
  mlir::remark::detail::RemarkEngine *remarkEngine;
  /// The threads of the context, and those that can be given back to it.
  llvm::ThreadPoolInterface *threads;
  llvm::ThreadPoolInterface *lastingThreads;
  /// Handlers with this identifier and below were there from the beginning.
  mlir::DiagnosticEngine::HandlerID lastHandler;
  llvm::hash_code registryHash;
  llvm::SmallVector<BlobManager, 2> blobManagers;
  /// The named sequences that the transform dialect, where it is loaded, holds
  /// for all modules of the context; how many there were from the beginning.
  mlir::transform::TransformDialect *transformDialect = nullptr;
  size_t transformLibrarySize = 0;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CONTEXT_CONTEXTRESET_H

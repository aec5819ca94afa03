//===- OperationCopier.h - Operations in another context --------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_IR_OPERATIONCOPIER_H
#define CONTEXT_POOL_IR_OPERATIONCOPIER_H

#include "context_pool/ModuleTransfer.h"
#include "context_pool/ir/Translator.h"

namespace ctxpool::detail {

/// What `cloneInto` does, with a translator that may know something already.
/// With `stripLocations`, all locations of the copy are unknown.
absl::StatusOr<mlir::OwningOpRef<mlir::Operation *>>
copyOperation(mlir::Operation *source, Translator &translator,
              const CloneOptions &options, bool stripLocations = false);

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_IR_OPERATIONCOPIER_H

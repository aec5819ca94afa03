//===- MicroContexts.h - Contexts and modules for the figures - -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_MICRO_MICROCONTEXTS_H
#define CONTEXT_POOL_BENCH_MICRO_MICROCONTEXTS_H

#include "bench/ModuleSource.h"
#include "context_pool/ContextTemplate.h"

#include "absl/status/statusor.h"
#include "llvm/ADT/StringRef.h"

#include <memory>

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace ctxpool::bench {

/// Registers all of upstream's dialects and extensions.
void registerAll(mlir::DialectRegistry &registry);

/// A registry with all of them.
const mlir::DialectRegistry &allDialects();

/// A template with all of them preloaded.
const std::shared_ptr<const ContextTemplate> &fullTemplate();

/// What a JIT for linear algebra on tensors runs.
extern const llvm::StringLiteral linalgToLLVMPipeline;

/// The bundled module with the fewest bytes.
absl::StatusOr<const ModuleSource *> smallestModule();

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_MICRO_MICROCONTEXTS_H

//===- TemplateImpl.h - Inside a ContextTemplate ----------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CONTEXT_TEMPLATEIMPL_H
#define CONTEXT_POOL_CONTEXT_TEMPLATEIMPL_H

#include "context_pool/ContextTemplate.h"

#include "mlir/IR/DialectRegistry.h"

namespace ctxpool {

struct ContextTemplate::Impl {
  std::string name;
  mlir::DialectRegistry registry;
  /// The dialects that are loaded by name; the rest comes with them.
  std::vector<std::string> requested;
  /// All that are loaded, in load order.
  std::vector<std::string> preloaded;
  bool allowsUnregisteredDialects = false;
  /// Unset: as MLIR has it for a new context.
  std::optional<bool> printsOpOnDiagnostic;
  std::optional<bool> printsStackTraceOnDiagnostic;
  llvm::ThreadPoolInterface *threadPool = nullptr;
  std::function<absl::Status(mlir::MLIRContext &)> onClone;
  llvm::hash_code registryHash = 0;

  /// Loads `requested` into a context, and sets `preloaded` and `registryHash`
  /// from it.
  void learnLoadOrder();
};

} // namespace ctxpool

#endif // CONTEXT_POOL_CONTEXT_TEMPLATEIMPL_H

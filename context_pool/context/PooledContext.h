//===- PooledContext.h - A context that a pool lends ---------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CONTEXT_POOLEDCONTEXT_H
#define CONTEXT_POOL_CONTEXT_POOLEDCONTEXT_H

#include "context_pool/ContextPool.h"
#include "context_pool/context/ContextReset.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ctxpool::detail {

/// Why a context is not lent again.
enum class Retirement { Leases, Bytes, Drift, Discarded };

/// A clone of a pool's template, with what its leases left for later ones and
/// what decides over its end. Used by one thread at a time.
class PooledContext {
public:
  /// A clone of the template of `pool`, which it keeps alive.
  static absl::StatusOr<std::unique_ptr<PooledContext>>
  create(std::shared_ptr<PoolState> pool);

  mlir::MLIRContext &getContext() { return *context; }
  PoolState &getPool() { return *pool; }

  absl::StatusOr<mlir::PassManager *> getPassManager(llvm::StringRef pipeline);
  std::vector<CapturedDiagnostic> takeDiagnostics();
  void charge(uint64_t bytes);
  /// Large attributes that were charged for: they stay as long as the context.
  llvm::DenseSet<const void *> &getChargedAttributes() {
    return chargedAttributes;
  }
  void requestRetirement() { retirementRequested = true; }

  /// Sets the context back after a lease. Returns why it must not be lent
  /// again, if it must not.
  std::optional<Retirement> endLease();

private:
  explicit PooledContext(std::shared_ptr<PoolState> pool);

  struct CachedPassManager {
    CachedPassManager(llvm::StringRef pipeline, mlir::MLIRContext &context,
                      mlir::OpPassManager passes)
        : pipeline(pipeline), passManager(&context, passes.getOpAnchorName()) {
      static_cast<mlir::OpPassManager &>(passManager) = std::move(passes);
    }
    const std::string pipeline;
    mlir::PassManager passManager;
  };

  const std::shared_ptr<PoolState> pool;
  std::vector<CapturedDiagnostic> diagnostics;
  uint64_t leases = 0;
  uint64_t chargedBytes = 0;
  llvm::DenseSet<const void *> chargedAttributes;
  bool retirementRequested = false;
  std::unique_ptr<mlir::MLIRContext> context;
  std::optional<ContextBaseline> baseline;
  // Destroyed before the context that they refer to.
  llvm::StringMap<std::unique_ptr<CachedPassManager>> passManagers;
  /// The one of `passManagers` that was asked for last: a thread mostly runs
  /// one pipeline, and comparing its text is cheaper than hashing it.
  CachedPassManager *lastPassManager = nullptr;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CONTEXT_POOLEDCONTEXT_H

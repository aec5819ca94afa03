//===- PooledContext.cpp - A context that a pool lends --------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/context/PooledContext.h"

#include "context_pool/context/PoolState.h"
#include "context_pool/support/Pipeline.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringRef.h"

#include <limits>
#include <string>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;

PooledContext::PooledContext(std::shared_ptr<PoolState> pool)
    : pool(std::move(pool)) {}

absl::StatusOr<std::unique_ptr<PooledContext>>
PooledContext::create(std::shared_ptr<PoolState> pool) {
  std::unique_ptr<PooledContext> pooled(new PooledContext(std::move(pool)));
  PooledContext *self = pooled.get();
  absl::StatusOr<std::unique_ptr<mlir::MLIRContext>> clone =
      pooled->pool->cloneTemplate([self](mlir::MLIRContext &context) {
        // The first handler is asked last: one that a lease or `onClone`
        // registers goes before it.
        context.getDiagEngine().registerHandler(
            [self](mlir::Diagnostic &diagnostic) {
              self->diagnostics.push_back(
                  CapturedDiagnostic::capture(diagnostic));
              return mlir::success();
            });
      });
  if (!clone.ok())
    return clone.status();
  pooled->context = *std::move(clone);
  pooled->baseline.emplace(*pooled->context,
                           pooled->pool->getTemplateThreads());
  pooled->diagnostics.clear();
  return pooled;
}

absl::StatusOr<mlir::PassManager *>
PooledContext::getPassManager(llvm::StringRef pipeline) {
  if (lastPassManager && lastPassManager->pipeline == pipeline)
    return &lastPassManager->passManager;

  auto known = passManagers.find(pipeline);
  if (known == passManagers.end()) {
    absl::StatusOr<mlir::OpPassManager> parsed = parsePipeline(pipeline);
    if (!parsed.ok())
      return parsed.status();
    // As far as the context knows them. A pass manager remembers from its first
    // run on what the context knew of an operation that it nests on, and MLIR
    // frees that when the dialect is loaded later.
    for (const std::string &dialect : getAnchorDialects(*parsed))
      context->getOrLoadDialect(dialect);
    auto made = std::make_unique<CachedPassManager>(pipeline, *context,
                                                    *std::move(parsed));
    known = passManagers.try_emplace(pipeline, std::move(made)).first;
  }
  lastPassManager = known->second.get();
  return &lastPassManager->passManager;
}

std::vector<CapturedDiagnostic> PooledContext::takeDiagnostics() {
  return std::exchange(diagnostics, {});
}

void PooledContext::charge(uint64_t bytes) {
  // A sum that does not fit is as good as the largest one.
  if (__builtin_add_overflow(chargedBytes, bytes, &chargedBytes))
    chargedBytes = std::numeric_limits<uint64_t>::max();
}

std::optional<Retirement> PooledContext::endLease() {
  const ContextPoolOptions &options = pool->getOptions();
  ++leases;
  if (retirementRequested)
    return Retirement::Discarded;
  ContextBaseline::Outcome outcome = baseline->reset(*context);
  if (outcome == ContextBaseline::Outcome::Damaged ||
      (outcome == ContextBaseline::Outcome::Drifted &&
       options.drift == ContextPoolOptions::Drift::Retire))
    return Retirement::Drift;
  if (chargedBytes >= options.maxBytesPerContext)
    return Retirement::Bytes;
  if (leases >= options.maxLeasesPerContext)
    return Retirement::Leases;
  if (!diagnostics.empty())
    diagnostics = {};
  return std::nullopt;
}

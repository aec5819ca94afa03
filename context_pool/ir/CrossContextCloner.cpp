//===- CrossContextCloner.cpp - A copy of IR in another context -----------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ir/OperationCopier.h"
#include "context_pool/ir/Translator.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

using namespace mlir;

namespace ctxpool {
namespace {

/// Tells whether a context is the one that it was. A handler for diagnostics
/// dies with its context, and a pool removes the handlers of a lease; so does
/// what the handler holds.
class ContextWatch {
public:
  explicit ContextWatch(MLIRContext &watched) : context(&watched) { start(); }
  ~ContextWatch() {
    if (isCurrent())
      context->getDiagEngine().eraseHandler(handler);
  }
  ContextWatch(const ContextWatch &) = delete;
  ContextWatch &operator=(const ContextWatch &) = delete;

  MLIRContext &getContext() const { return *context; }
  bool isCurrent() const { return !token.expired(); }

  /// The context is known to be alive.
  void start() {
    auto held = std::make_shared<char>();
    token = held;
    handler = context->getDiagEngine().registerHandler(
        [held = std::move(held)](Diagnostic &) {
          // For the next handler.
          return failure();
        });
  }

private:
  MLIRContext *context;
  std::weak_ptr<char> token;
  DiagnosticEngine::HandlerID handler = 0;
};

absl::StatusOr<OwningOpRef<ModuleOp>>
asModule(absl::StatusOr<OwningOpRef<Operation *>> cloned) {
  if (!cloned.ok())
    return cloned.status();
  return OwningOpRef<ModuleOp>(cast<ModuleOp>(cloned->release()));
}

} // namespace

class detail::ClonerImpl {
public:
  ClonerImpl(MLIRContext &source, MLIRContext &destination)
      : from(source), to(destination), translator(source, destination) {}

  absl::StatusOr<OwningOpRef<Operation *>> clone(Operation *source,
                                                 const CloneOptions &options) {
    if (source->getContext() != &from.getContext())
      return absl::InvalidArgumentError(
          "cannot clone the operation: it is not of the context that the "
          "cloner was made for");
    // Not to be touched: it may be gone.
    if (!to.isCurrent())
      return absl::FailedPreconditionError(
          "cannot clone the operation: the cloner's destination was destroyed "
          "or went back to its pool");
    if (!from.isCurrent()) {
      translator.forgetSource();
      from.start();
    }
    return copyOperation(source, translator, options);
  }

  uint64_t getInternedBytes() const { return translator.getInternedBytes(); }

private:
  ContextWatch from, to;
  Translator translator;
};

CrossContextCloner::CrossContextCloner(MLIRContext &from, MLIRContext &to)
    : impl(std::make_unique<detail::ClonerImpl>(from, to)) {}
CrossContextCloner::~CrossContextCloner() = default;
CrossContextCloner::CrossContextCloner(CrossContextCloner &&) noexcept =
    default;
CrossContextCloner &
CrossContextCloner::operator=(CrossContextCloner &&) noexcept = default;

absl::StatusOr<OwningOpRef<Operation *>>
CrossContextCloner::clone(Operation *source, const CloneOptions &options) {
  return impl->clone(source, options);
}

absl::StatusOr<OwningOpRef<ModuleOp>>
CrossContextCloner::clone(ModuleOp source, const CloneOptions &options) {
  return asModule(impl->clone(source, options));
}

uint64_t CrossContextCloner::getInternedBytes() const {
  return impl->getInternedBytes();
}

absl::StatusOr<OwningOpRef<Operation *>>
cloneInto(Operation *source, MLIRContext &destination,
          const CloneOptions &options) {
  detail::Translator translator(*source->getContext(), destination);
  return detail::copyOperation(source, translator, options);
}

absl::StatusOr<OwningOpRef<ModuleOp>> cloneInto(ModuleOp source,
                                                MLIRContext &destination,
                                                const CloneOptions &options) {
  return asModule(cloneInto(source.getOperation(), destination, options));
}

} // namespace ctxpool

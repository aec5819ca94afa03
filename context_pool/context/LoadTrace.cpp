//===- LoadTrace.cpp - Watching dialects being loaded ---------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/context/LoadTrace.h"

#include "mlir/IR/Dialect.h"
#include "mlir/Support/TypeID.h"

#include <memory>

using namespace ctxpool::detail;

namespace {

/// Calls the listener for each dialect that it is applied to.
class Tracer : public mlir::DialectExtensionBase {
public:
  Tracer(LoadListener listener, LoadPhase phase)
      // Without a dialect of its own, an extension is applied to each one.
      : mlir::DialectExtensionBase({}), listener(listener), phase(phase) {}

  void apply(mlir::MLIRContext *context,
             llvm::MutableArrayRef<mlir::Dialect *> dialects) const override {
    for (mlir::Dialect *dialect : dialects)
      if (dialect->getNamespace() != "builtin")
        listener(*context, dialect->getNamespace(), phase);
  }

  std::unique_ptr<mlir::DialectExtensionBase> clone() const override {
    return std::make_unique<Tracer>(*this);
  }

private:
  LoadListener listener;
  LoadPhase phase;
};

} // namespace

mlir::DialectRegistry
ctxpool::detail::traceLoading(const mlir::DialectRegistry &registry,
                              LoadListener listener) {
  static mlir::SelfOwningTypeID first, last;
  // Extensions are applied in the order in which they were added.
  mlir::DialectRegistry traced;
  traced.addExtension(
      first, std::make_unique<Tracer>(listener, LoadPhase::Constructed));
  registry.appendTo(traced);
  traced.addExtension(last,
                      std::make_unique<Tracer>(listener, LoadPhase::Extended));
  return traced;
}

//===- ResultChangingPlugin.cpp - Passes that give new results ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "llvm/ADT/STLExtras.h"

#include <atomic>
#include <csignal>
#include <memory>
#include <string>

using namespace mlir;

namespace {

/// Another number in every run of the process.
int nextNumber() {
  static std::atomic<int> number{0};
  return ++number;
}

/// Sets every constant to a value that no run before it gave: a wrong result.
class ChangeConstantsPass
    : public PassWrapper<ChangeConstantsPass, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ChangeConstantsPass)
  llvm::StringRef getArgument() const override {
    return "test-change-constants";
  }

private:
  void runOnOperation() override {
    getOperation()->walk([](Operation *op) {
      if (auto value = op->getAttrOfType<IntegerAttr>("value"))
        op->setAttr("value", IntegerAttr::get(value.getType(), nextNumber()));
    });
  }
};

/// Gives private symbols new names and another order, as upstream's passes may:
/// the same result.
class RenamePrivatePass
    : public PassWrapper<RenamePrivatePass, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(RenamePrivatePass)
  llvm::StringRef getArgument() const override { return "test-rename-private"; }

private:
  void runOnOperation() override {
    ModuleOp module = getOperation();
    int number = nextNumber();
    for (Operation &op : llvm::make_early_inc_range(*module.getBody())) {
      if (SymbolTable::getSymbolVisibility(&op) !=
          SymbolTable::Visibility::Private)
        continue;
      std::string name =
          SymbolTable::getSymbolName(&op).str() + "_" + std::to_string(number);
      auto newName = StringAttr::get(&getContext(), name);
      if (failed(SymbolTable::replaceAllSymbolUses(&op, newName, module)))
        return signalPassFailure();
      SymbolTable::setSymbolName(&op, newName);
      if (number % 2)
        op.moveBefore(&module.getBody()->front());
    }
  }
};

/// Fails in every second run.
class FailSometimesPass
    : public PassWrapper<FailSometimesPass, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FailSometimesPass)
  llvm::StringRef getArgument() const override { return "test-fail-sometimes"; }

private:
  void runOnOperation() override {
    if (nextNumber() % 2) {
      getOperation()->emitError("odd run");
      signalPassFailure();
    }
  }
};

/// Ends the process as a crash would, and without a report of it.
class CrashPass : public PassWrapper<CrashPass, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CrashPass)
  llvm::StringRef getArgument() const override { return "test-crash"; }

private:
  void runOnOperation() override { std::raise(SIGKILL); }
};

void registerPasses() {
  PassRegistration<ChangeConstantsPass>();
  PassRegistration<RenamePrivatePass>();
  PassRegistration<FailSometimesPass>();
  PassRegistration<CrashPass>();
}

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "ResultChangingPlugin", "1", registerPasses};
}

//===- TinyDialectPlugin.cpp - A dialect with one operation ---------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/IR/Dialect.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"

using namespace mlir;

namespace {

class AnswerOp
    : public Op<AnswerOp, OpTrait::ZeroOperands, OpTrait::ZeroResults,
                OpTrait::ZeroRegions, OpTrait::ZeroSuccessors> {
public:
  using Op::Op;
  static llvm::StringRef getOperationName() { return "tiny.answer"; }
  static llvm::ArrayRef<llvm::StringRef> getAttributeNames() { return {}; }
  static ParseResult parse(OpAsmParser &parser, OperationState &state) {
    return parser.parseOptionalAttrDict(state.attributes);
  }
  void print(OpAsmPrinter &printer) {
    printer.printOptionalAttrDict((*this)->getAttrs());
  }
};

class TinyDialect : public Dialect {
public:
  explicit TinyDialect(MLIRContext *owner)
      : Dialect(getDialectNamespace(), owner, TypeID::get<TinyDialect>()) {
    addOperations<AnswerOp>();
  }
  static llvm::StringRef getDialectNamespace() { return "tiny"; }
};

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK DialectPluginLibraryInfo
mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "TinyDialectPlugin", "1",
          [](DialectRegistry *registry) { registry->insert<TinyDialect>(); }};
}

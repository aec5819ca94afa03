//===- LazyModule.cpp - Reading parts of a module -------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ModuleTransfer.h"
#include "context_pool/ir/SerializedStorage.h"
#include "context_pool/support/DiagnosticCapture.h"

#include "absl/strings/str_cat.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace ctxpool {

class detail::LazyModuleImpl {
public:
  LazyModuleImpl(SerializedModule bytes, MLIRContext &destination,
                 const DeserializeOptions &chosen)
      : module(std::move(bytes)), context(destination), options(chosen),
        config(&context, /*verifyAfterParse=*/false),
        source(makeSource(module)),
        reader(std::make_unique<BytecodeReader>(
            llvm::MemoryBufferRef(module.getBytes(), "serialized module"),
            config, /*lazyLoad=*/true, source)) {}

  ~LazyModuleImpl() { finish(); }

  absl::Status open() {
    DiagnosticCapture diagnostics(context);
    if (failed(reader->readTopLevel(&block)))
      return readingFailed(diagnostics.take());
    if (!llvm::hasSingleElement(block) || !isa<ModuleOp>(block.front()))
      return absl::InvalidArgumentError(
          "cannot read the serialized module lazily: it is not one "
          "builtin.module");
    top = cast<ModuleOp>(block.front());
    // Of the module itself, the body is wanted; of what is in it, nothing.
    if (reader->isMaterializable(top) && failed(reader->materialize(top)))
      return readingFailed(diagnostics.take());
    if (top->getRegion(0).empty())
      return absl::InvalidArgumentError(
          "cannot read the serialized module lazily: it has no body");
    for (Operation &op : *top.getBody()) {
      auto name =
          op.getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName());
      if (!name)
        continue;
      names.push_back(name.getValue().str());
      symbols.try_emplace(name.getValue(), &op);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Operation *> materialize(llvm::StringRef symbol) {
    auto found = symbols.find(symbol);
    if (found == symbols.end())
      return absl::NotFoundError(absl::StrCat(
          "the serialized module has no symbol '", symbol.str(), "'"));
    Operation *op = found->second;
    if (!reader->isMaterializable(op))
      return op;
    DiagnosticCapture diagnostics(context);
    if (failed(reader->materialize(op, [](Operation *) { return true; })))
      return readingFailed(diagnostics.take());
    if (options.verify && failed(verify(op)))
      return readingFailed(diagnostics.take());
    return op;
  }

  /// Drops what was not read: MLIR's reader asks for that before it dies.
  void finish() {
    if (!reader)
      return;
    DiagnosticCapture diagnostics(context);
    (void)reader->finalize([](Operation *) { return false; });
    reader.reset();
  }

  OwningOpRef<ModuleOp> release() {
    finish();
    top->remove();
    return OwningOpRef<ModuleOp>(std::exchange(top, ModuleOp()));
  }

  const SerializedModule module;
  MLIRContext &context;
  const DeserializeOptions options;
  // The reader refers to the configuration, and to the block that it fills.
  const ParserConfig config;
  const std::shared_ptr<llvm::SourceMgr> source;
  Block block;
  std::unique_ptr<BytecodeReader> reader;
  ModuleOp top;
  std::vector<std::string> names;
  llvm::StringMap<Operation *> symbols;
};

LazyModule::LazyModule(std::unique_ptr<detail::LazyModuleImpl> implementation)
    : impl(std::move(implementation)) {}
LazyModule::~LazyModule() = default;

absl::StatusOr<std::unique_ptr<LazyModule>>
LazyModule::open(SerializedModule bytes, MLIRContext &context,
                 const DeserializeOptions &options) {
  if (absl::Status status = detail::checkMagic(bytes.getBytes()); !status.ok())
    return status;
  auto impl = std::make_unique<detail::LazyModuleImpl>(std::move(bytes),
                                                       context, options);
  if (absl::Status status = impl->open(); !status.ok())
    return status;
  return std::unique_ptr<LazyModule>(new LazyModule(std::move(impl)));
}

const std::vector<std::string> &LazyModule::getSymbols() const {
  return impl->names;
}

absl::StatusOr<Operation *> LazyModule::materialize(llvm::StringRef symbol) {
  return impl->materialize(symbol);
}

ModuleOp LazyModule::getModule() const { return impl->top; }

OwningOpRef<ModuleOp> LazyModule::release() { return impl->release(); }

} // namespace ctxpool

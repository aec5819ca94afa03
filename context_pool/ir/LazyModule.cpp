//===- LazyModule.cpp - Reading parts of a module -------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ModuleTransfer.h"
#include "context_pool/ir/BytecodeCheck.h"
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
  LazyModuleImpl(SerializedModule bytes, const BytecodeSummary &summaryOfBytes,
                 MLIRContext &destination, const DeserializeOptions &chosen)
      : module(std::move(bytes)), summary(summaryOfBytes), context(destination),
        options(chosen), config(&context, /*verifyAfterParse=*/false),
        source(makeSource(module)),
        reader(std::make_unique<BytecodeReader>(
            llvm::MemoryBufferRef(module.getBytes(), "serialized module"),
            config, /*lazyLoad=*/true, source)) {}

  ~LazyModuleImpl() { finish(); }

  absl::Status open() {
    DiagnosticCapture diagnostics(context);
    if (absl::Status known = checkOperations(summary, context); !known.ok()) {
      reader.reset();
      return known;
    }
    if (failed(reader->readTopLevel(&block))) {
      // The operations that it would finalize are gone already.
      reader.reset();
      return readingFailed(diagnostics.take());
    }
    if (!llvm::hasSingleElement(block) || !isa<ModuleOp>(block.front()))
      return absl::InvalidArgumentError(
          "cannot read the serialized module lazily: it is not one "
          "builtin.module");
    top = cast<ModuleOp>(block.front());
    // Of the module itself, the body is wanted; of what is in it, nothing.
    if (reader->isMaterializable(top) && failed(reader->materialize(top))) {
      // It may use placeholders that die with the reader.
      top->dropAllReferences();
      return readingFailed(diagnostics.take());
    }
    if (top->getNumRegions() == 0 || top->getRegion(0).empty())
      return absl::InvalidArgumentError(
          "cannot read the serialized module lazily: it has no body");
    for (Operation &op : *top.getBody()) {
      auto name =
          op.getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName());
      if (!name)
        continue;
      names.push_back(name.getValue().str());
      symbols.try_emplace(name.getValue(), Symbol{&op, absl::OkStatus()});
    }
    // Nobody could ask for these.
    llvm::SmallVector<Operation *> others;
    top->walk([&](Operation *op) {
      if (reader->isMaterializable(op) && !isLeftOut(op))
        others.push_back(op);
    });
    for (Operation *op : others)
      if (failed(reader->materialize(op, [](Operation *) { return true; }))) {
        top->dropAllReferences();
        return readingFailed(diagnostics.take());
      }
    return absl::OkStatus();
  }

  absl::StatusOr<Operation *> materialize(llvm::StringRef symbol) {
    auto found = symbols.find(symbol);
    if (found == symbols.end())
      return absl::NotFoundError(absl::StrCat(
          "the serialized module has no symbol '", symbol.str(), "'"));
    Symbol &entry = found->second;
    if (!reader->isMaterializable(entry.op))
      return entry.status.ok() ? absl::StatusOr<Operation *>(entry.op)
                               : entry.status;
    DiagnosticCapture diagnostics(context);
    if (failed(
            reader->materialize(entry.op, [](Operation *) { return true; }))) {
      // It may use placeholders that die with the reader.
      entry.op->dropAllReferences();
      for (Region &region : entry.op->getRegions())
        region.getBlocks().clear();
      return entry.status = readingFailed(diagnostics.take());
    }
    if (options.verify && failed(verify(entry.op)))
      return entry.status = readingFailed(diagnostics.take());
    return entry.op;
  }

  /// Whether it can be asked for by its name, and nothing needs it before.
  bool isLeftOut(Operation *op) {
    auto name = op->getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName());
    if (!name || op->getParentOp() != top || !op->use_empty())
      return false;
    return symbols.lookup(name.getValue()).op == op;
  }

  /// Drops what was not read: MLIR's reader asks for that before it dies.
  void finish() {
    if (!reader)
      return;
    DiagnosticCapture diagnostics(context);
    (void)reader->finalize([](Operation *op) {
      // Of what was opened and is not valid.
      op->dropAllUses();
      return false;
    });
    reader.reset();
  }

  OwningOpRef<ModuleOp> release() {
    finish();
    top->remove();
    return OwningOpRef<ModuleOp>(std::exchange(top, ModuleOp()));
  }

  struct Symbol {
    Operation *op = nullptr;
    /// Why it could not be read.
    absl::Status status;
  };

  const SerializedModule module;
  /// Of the module.
  const BytecodeSummary &summary;
  MLIRContext &context;
  const DeserializeOptions options;
  // The reader refers to the configuration, and to the block that it fills.
  const ParserConfig config;
  const std::shared_ptr<llvm::SourceMgr> source;
  Block block;
  std::unique_ptr<BytecodeReader> reader;
  ModuleOp top;
  std::vector<std::string> names;
  llvm::StringMap<Symbol> symbols;
};

LazyModule::LazyModule(std::unique_ptr<detail::LazyModuleImpl> implementation)
    : impl(std::move(implementation)) {}
LazyModule::~LazyModule() = default;

absl::StatusOr<std::unique_ptr<LazyModule>>
LazyModule::open(SerializedModule bytes, MLIRContext &context,
                 const DeserializeOptions &options) {
  if (absl::Status status = detail::checkMagic(bytes.getBytes()); !status.ok())
    return status;
  const absl::StatusOr<detail::BytecodeSummary> &summary =
      detail::SerializedStorage::of(bytes).check();
  if (!summary.ok())
    return summary.status();
  auto impl = std::make_unique<detail::LazyModuleImpl>(
      std::move(bytes), *summary, context, options);
  absl::Status status;
  if (absl::Status ran =
          detail::runWithStack(*summary, [&] { status = impl->open(); });
      !ran.ok())
    return ran;
  if (!status.ok())
    return status;
  return std::unique_ptr<LazyModule>(new LazyModule(std::move(impl)));
}

const std::vector<std::string> &LazyModule::getSymbols() const {
  return impl->names;
}

absl::StatusOr<Operation *> LazyModule::materialize(llvm::StringRef symbol) {
  absl::StatusOr<Operation *> result = nullptr;
  if (absl::Status ran = detail::runWithStack(
          impl->summary, [&] { result = impl->materialize(symbol); });
      !ran.ok())
    return ran;
  return result;
}

ModuleOp LazyModule::getModule() const { return impl->top; }

OwningOpRef<ModuleOp> LazyModule::release() { return impl->release(); }

} // namespace ctxpool

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
#include "mlir/Bytecode/Encoding.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
    // An upgrade has to see the whole module, and may replace any operation of
    // it.
    bool readsAll = summary.hasVersions;
    if (failed(reader->readTopLevel(&block, [&](Operation *op) {
          return readsAll || !mayBeLeftOut(op);
        }))) {
      // The operations that it would finalize are gone already.
      reader.reset();
      return readingFailed(diagnostics.take());
    }
    if (!llvm::hasSingleElement(block) || !isa<ModuleOp>(block.front()))
      return absl::InvalidArgumentError(
          "cannot read the serialized module lazily: it is not one "
          "builtin.module");
    top = cast<ModuleOp>(block.front());
    if (top->getNumRegions() == 0 || top->getRegion(0).empty())
      return absl::InvalidArgumentError(
          "cannot read the serialized module lazily: it has no body");
    llvm::SmallVector<Operation *> others;
    for (Operation &op : *top.getBody()) {
      auto name =
          op.getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName());
      if (name && symbols.try_emplace(name.getValue(), Symbol{&op, {}}).second)
        names.push_back(name.getValue().str());
      else if (reader->isMaterializable(&op))
        // Nobody could ask for it: it has the name of another one.
        others.push_back(&op);
    }
    for (Operation *op : others)
      if (failed(read(op))) {
        // It may use placeholders that die with the reader.
        top->dropAllReferences();
        return readingFailed(diagnostics.take());
      }
    if (options.verify && failed(verifyWhatIsThere()))
      return readingFailed(diagnostics.take());
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
    if (failed(read(entry.op))) {
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

  /// Whether it is a symbol of the module, or of what is no module, and nothing
  /// else can refer to its results or to symbols in it.
  static bool mayBeLeftOut(Operation *op) {
    // The reader puts what it reads into a module of its own.
    Operation *parent = op->getParentOp(), *ofReader = parent->getParentOp();
    if (!ofReader)
      return !isa<ModuleOp>(op);
    return !ofReader->getParentOp() && op->getNumResults() == 0 &&
           !op->hasTrait<OpTrait::SymbolTable>() &&
           op->getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName());
  }

  /// Reads the regions of an operation that was left out.
  LogicalResult read(Operation *op) {
    if (failed(reader->materialize(op, [](Operation *) { return true; })))
      return failure();
    if (!summary.hasUsesInOrder)
      orderUses(op);
    return success();
  }

  /// Gives the uses of what is defined in the operation's regions the order
  /// that bytes without an order of their own stand for, from the last to the
  /// first. MLIR's reader does so only with what it reads at the top.
  static void orderUses(Operation *root) {
    llvm::DenseMap<Operation *, unsigned> places;
    root->walk<WalkOrder::PreOrder>([&](Operation *op) {
      places.try_emplace(op, static_cast<unsigned>(places.size()));
    });
    llvm::SmallVector<std::pair<uint64_t, unsigned>> uses;
    llvm::SmallVector<unsigned> order;
    auto orderUsesOf = [&](Value value) {
      uses.clear();
      for (OpOperand &use : value.getUses())
        uses.push_back({bytecode::getUseID(use, places.lookup(use.getOwner())),
                        static_cast<unsigned>(uses.size())});
      // As they are, unless a use came before the definition.
      if (llvm::is_sorted(uses, std::greater<>()))
        return;
      llvm::sort(uses, std::greater<>());
      order.resize(uses.size());
      for (auto [to, use] : llvm::enumerate(uses))
        order[use.second] = static_cast<unsigned>(to);
      value.shuffleUseList(order);
    };
    for (Region &region : root->getRegions())
      region.walk<WalkOrder::PreOrder>([&](Block *block) {
        llvm::for_each(block->getArguments(), orderUsesOf);
        for (Operation &op : *block)
          llvm::for_each(op.getResults(), orderUsesOf);
      });
  }

  /// Verifies the module without what was left out of it.
  LogicalResult verifyWhatIsThere() {
    if (reader->getNumOpsToMaterialize() == 0)
      return verify(top);
    // A verifier of a dialect's attribute on the module looks into symbols: that
    // of the transform dialect verifies them all.
    DictionaryAttr attributes = top->getDiscardableAttrDictionary();
    top->setDiscardableAttrs(llvm::ArrayRef<NamedAttribute>());
    bool isValid = succeeded(verify(top, /*verifyRecursively=*/false));
    top->setDiscardableAttrs(attributes);
    if (!isValid)
      return failure();
    for (Operation &op : *top.getBody())
      if (!reader->isMaterializable(&op) && failed(verify(&op)))
        return failure();
    return success();
  }

  /// Drops what was not read: MLIR's reader asks for that before it dies.
  void finish() {
    if (!reader)
      return;
    DiagnosticCapture diagnostics(context);
    dropUnread(*reader);
    reader.reset();
  }

  OwningOpRef<ModuleOp> release() {
    finish();
    // What became of them is no symbol of the module.
    for (auto &entry : symbols)
      if (!entry.second.status.ok())
        entry.second.op->erase();
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

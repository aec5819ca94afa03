//===- ResultDigest.cpp - Whether two compiles gave one result ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/compile/ResultDigest.h"

#include "absl/strings/str_cat.h"
#include "mlir/Dialect/LLVMIR/LLVMAttrs.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OperationSupport.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/raw_ostream.h"

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::detail;
using namespace mlir;

ResultDigest ctxpool::detail::digestBytes(llvm::StringRef bytes) {
  return llvm::BLAKE3::hash<32>(llvm::arrayRefFromStringRef(bytes));
}

//===----------------------------------------------------------------------===//
// Symbols
//===----------------------------------------------------------------------===//

static bool isPrivateSymbol(Operation &op) {
  if (!op.getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName()))
    return false;
  if (SymbolTable::getSymbolVisibility(&op) == SymbolTable::Visibility::Private)
    return true;
  // What a private symbol became in the LLVM dialect.
  auto linkage = op.getAttrOfType<LLVM::LinkageAttr>("linkage");
  return linkage && (linkage.getLinkage() == LLVM::Linkage::Private ||
                     linkage.getLinkage() == LLVM::Linkage::Internal);
}

/// Calls `visit` on `op` and on everything within that looks up symbols in the
/// same table as `op` does.
static void walkSymbolScope(Operation *op,
                            llvm::function_ref<void(Operation *)> visit) {
  visit(op);
  if (op->hasTrait<OpTrait::SymbolTable>())
    return;
  for (Region &region : op->getRegions())
    for (Operation &nested : region.getOps())
      walkSymbolScope(&nested, visit);
}

/// Calls `visit` on the first component of every symbol reference in `op`, in
/// an order that depends only on what `op` is.
static void walkReferences(Operation *op,
                           llvm::function_ref<void(StringAttr)> visit) {
  walkSymbolScope(op, [&](Operation *user) {
    user->getAttrDictionary().walk<WalkOrder::PreOrder>(
        [&](SymbolRefAttr reference) {
          visit(reference.getRootReference());
          // The other components are names in other tables.
          return WalkResult::skip();
        });
  });
}

namespace {
using SymbolNames = llvm::DenseMap<StringAttr, StringAttr>;
} // namespace

/// Gives the symbols among `ops` their names in `names`, and has `ops` refer to
/// them by these.
static void renameSymbols(llvm::ArrayRef<Operation *> ops,
                          const SymbolNames &names) {
  AttrTypeReplacer replacer;
  replacer.addReplacement(
      [&](SymbolRefAttr reference) -> std::pair<Attribute, WalkResult> {
        StringAttr name = names.lookup(reference.getRootReference());
        if (!name)
          return {reference, WalkResult::skip()};
        return {SymbolRefAttr::get(name, reference.getNestedReferences()),
                WalkResult::skip()};
      });
  for (Operation *op : ops) {
    if (auto symbol =
            op->getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName()))
      if (StringAttr name = names.lookup(symbol))
        SymbolTable::setSymbolName(op, name);
    walkSymbolScope(op,
                    [&](Operation *user) { replacer.replaceElementsIn(user); });
  }
}

//===----------------------------------------------------------------------===//
// Private symbols that nothing public refers to
//===----------------------------------------------------------------------===//

namespace {
/// An operation with its own name, and those of the unreached symbols that it
/// refers to, replaced by ones that say nothing.
struct Skeleton {
  ResultDigest text;
  /// Numbers of the symbols, each once, in the order of the names that stand for
  /// them in the text.
  std::vector<size_t> references;
};
using SymbolNumbers = llvm::DenseMap<StringAttr, size_t>;
} // namespace

static Skeleton makeSkeleton(Operation *op, const SymbolNumbers &unreached,
                             const std::string &prefix) {
  MLIRContext *context = op->getContext();
  Skeleton skeleton;
  SymbolNames names;
  // References to itself are a part of the text: whose they are is clear.
  names[SymbolTable::getSymbolName(op)] =
      StringAttr::get(context, prefix + "self");
  walkReferences(op, [&](StringAttr name) {
    auto it = unreached.find(name);
    if (it == unreached.end())
      return;
    StringAttr standIn =
        StringAttr::get(context, llvm::Twine(prefix) + "reference." +
                                     llvm::Twine(skeleton.references.size()));
    if (names.try_emplace(name, standIn).second)
      skeleton.references.push_back(it->second);
  });

  OwningOpRef<Operation *> copy(op->clone());
  renameSymbols(*copy, names);
  std::string text;
  llvm::raw_string_ostream stream(text);
  copy->print(stream, OpPrintingFlags()
                          .useLocalScope()
                          .printGenericOpForm()
                          .elideLargeResourceString(0));
  skeleton.text = digestBytes(text);
  return skeleton;
}

/// Names after their content for `unreached`, in which no other symbol's name
/// begins with `prefix`. Only symbols that cannot be told apart get the same
/// name.
static std::vector<ResultDigest>
labelUnreached(llvm::ArrayRef<Operation *> unreached,
               const std::string &prefix) {
  SymbolNumbers numbers;
  for (auto [number, op] : llvm::enumerate(unreached))
    numbers[SymbolTable::getSymbolName(op)] = number;
  std::vector<Skeleton> skeletons;
  std::vector<ResultDigest> labels;
  for (Operation *op : unreached) {
    skeletons.push_back(makeSkeleton(op, numbers, prefix));
    labels.push_back(skeletons.back().text);
  }
  size_t classes = std::set<ResultDigest>(labels.begin(), labels.end()).size();
  while (true) {
    std::vector<ResultDigest> refined;
    for (const Skeleton &skeleton : skeletons) {
      llvm::BLAKE3 hasher;
      hasher.update(skeleton.text);
      for (size_t reference : skeleton.references)
        hasher.update(labels[reference]);
      refined.push_back(hasher.final<32>());
    }
    size_t refinedClasses =
        std::set<ResultDigest>(refined.begin(), refined.end()).size();
    labels = std::move(refined);
    if (refinedClasses == classes)
      return labels;
    classes = refinedClasses;
  }
}

//===----------------------------------------------------------------------===//
// Canonical form
//===----------------------------------------------------------------------===//

/// What no name that stays begins with: neither that of a public symbol among
/// `ops` nor one that `ops` refer to and that is none of `privates`. It depends
/// on these names only.
static std::string
findUnusedPrefix(llvm::ArrayRef<Operation *> ops,
                 const llvm::DenseMap<StringAttr, Operation *> &privates) {
  llvm::SmallVector<llvm::StringRef> taken;
  auto take = [&](StringAttr name) {
    if (name && !privates.contains(name))
      taken.push_back(name.getValue());
  };
  for (Operation *op : ops) {
    take(op->getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName()));
    walkReferences(op, take);
  }
  std::string prefix = "ctxpool.";
  while (llvm::any_of(
      taken, [&](llvm::StringRef name) { return name.starts_with(prefix); }))
    prefix += "_.";
  return prefix;
}

/// Puts the private symbols of `table` in an order, and gives them names, that
/// depend on neither their order nor their names before.
static void canonicalizeSymbolTable(Operation *table) {
  if (table->getNumRegions() != 1 || !table->getRegion(0).hasOneBlock())
    return;
  Block &block = table->getRegion(0).front();
  llvm::DenseMap<StringAttr, Operation *> privates;
  llvm::SmallVector<Operation *> all;
  llvm::SmallVector<Operation *> privatesInOrder;
  for (Operation &op : block) {
    all.push_back(&op);
    if (isPrivateSymbol(op)) {
      privates[SymbolTable::getSymbolName(&op)] = &op;
      privatesInOrder.push_back(&op);
    }
  }
  if (privates.empty())
    return;

  llvm::SetVector<Operation *> reached;
  auto reach = [&](StringAttr name) {
    if (Operation *symbol = privates.lookup(name))
      reached.insert(symbol);
  };
  for (Operation *op : all)
    if (!isPrivateSymbol(*op))
      walkReferences(op, reach);
  for (size_t next = 0; next < reached.size(); ++next)
    walkReferences(reached[next], reach);

  const std::string prefix = findUnusedPrefix(all, privates);
  SymbolNames names;
  MLIRContext *context = table->getContext();
  auto setName = [&](Operation *op, const llvm::Twine &name) {
    names[SymbolTable::getSymbolName(op)] = StringAttr::get(context, name);
  };
  for (auto [number, op] : llvm::enumerate(reached))
    setName(op, prefix + "private." + llvm::Twine(number));
  llvm::SmallVector<Operation *> unreached;
  for (Operation *op : privatesInOrder)
    if (!reached.contains(op)) {
      // For now: so that none is called what a reached one becomes.
      setName(op, prefix + "unreached." + llvm::Twine(unreached.size()));
      unreached.push_back(op);
    }
  renameSymbols(all, names);

  llvm::SmallVector<std::pair<ResultDigest, Operation *>> labelled;
  if (!unreached.empty()) {
    names.clear();
    for (auto [label, op] :
         llvm::zip(labelUnreached(unreached, prefix), unreached)) {
      setName(op, prefix + "unreached." + llvm::toHex(label));
      labelled.emplace_back(label, op);
    }
    renameSymbols(unreached, names);
    // Those with one label cannot be told apart: their order does not matter.
    llvm::sort(labelled, llvm::less_first());
  }

  for (auto [label, op] : llvm::reverse(labelled))
    op->moveBefore(&block, block.begin());
  for (Operation *op : llvm::reverse(reached))
    op->moveBefore(&block, block.begin());
}

/// Names resources after their alignment and contents. A resource without data
/// keeps its key, which is all that it has.
static void canonicalizeResources(ModuleOp module) {
  llvm::StringMap<std::optional<DenseResourceElementsHandle>> known;
  AttrTypeReplacer replacer;
  replacer.addReplacement([&](DenseResourceElementsAttr attr) -> Attribute {
    const AsmResourceBlob *blob = attr.getRawHandle().getBlob();
    if (!blob)
      return attr;
    llvm::ArrayRef<char> data = blob->getData();
    ResultDigest digest = digestBytes({data.data(), data.size()});
    std::string key = absl::StrCat("ctxpool_", blob->getDataAlignment(), "_",
                                   llvm::toHex(digest));
    // Without data: the key tells all about it.
    auto [handle, isNew] = known.try_emplace(key);
    if (isNew)
      handle->second =
          DenseResourceElementsHandle::getManagerInterface(module.getContext())
              .insert(key);
    return DenseResourceElementsAttr::get(attr.getType(), *handle->second);
  });
  replacer.recursivelyReplaceElementsIn(module);
}

namespace {
/// Hashes what is printed, which may be far larger than the module.
class HashingStream final : public llvm::raw_ostream {
public:
  HashingStream() { SetBufferSize(1 << 16); }
  ~HashingStream() override { flush(); }

  ResultDigest getDigest() {
    flush();
    return hasher.final<32>();
  }

private:
  void write_impl(const char *bytes, size_t count) override {
    hasher.update(llvm::arrayRefFromStringRef(llvm::StringRef(bytes, count)));
    position += count;
  }
  uint64_t current_pos() const override { return position; }

  llvm::BLAKE3 hasher;
  uint64_t position = 0;
};
} // namespace

ResultDigest ctxpool::detail::digestModule(ModuleOp module) {
  canonicalizeResources(module);
  // From the inside to the outside: the text of a table within a private symbol
  // has to be settled before the symbol is labelled by its text.
  module->walk<WalkOrder::PostOrder>([](Operation *op) {
    if (op->hasTrait<OpTrait::SymbolTable>())
      canonicalizeSymbolTable(op);
  });
  HashingStream stream;
  module->print(stream, OpPrintingFlags()
                            .printGenericOpForm()
                            .enableDebugInfo(false)
                            .elideLargeResourceString(0));
  return stream.getDigest();
}

//===- Symbols.cpp - Symbol names that do not count -----------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ir/Symbols.h"

#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/SymbolTable.h"

using namespace mlir;

namespace ctxpool::detail {
namespace {

/// What a nameless symbol or a name is, in an encoded reference.
enum class Part : uint8_t { Name = 1, Number = 2, Root = 3 };

/// First byte of an encoded reference; no record of the codec begins with it.
constexpr uint8_t referenceTag = 192;

bool isPrivate(Operation *op) {
  auto visibility = op->getAttrOfType<StringAttr>("sym_visibility");
  return visibility && visibility.getValue() == "private";
}

/// Whether all that the symbol stands for is here. What is not known to be a
/// definition may be a declaration of something that is found elsewhere by this
/// name: to call `@sin` is not to call `@cos`, although both are private.
bool isDefinition(Operation *op) {
  auto symbol = dyn_cast<SymbolOpInterface>(op);
  if (symbol && symbol.isDeclaration())
    return false;
  // Declarations, of which not every interface tells, have no body.
  if (llvm::any_of(op->getRegions(),
                   [](Region &region) { return !region.empty(); }))
    return true;
  StringRef name = op->getName().getStringRef();
  if (name == "memref.global")
    return op->getAttr("initial_value") != nullptr;
  if (name == "llvm.mlir.global")
    return op->getAttr("value") != nullptr;
  if (name == "ml_program.global") {
    Attribute value = op->getAttr("value");
    // Told by its name: to ask for its class takes the dialect's library.
    return value &&
           value.getAbstractAttribute().getName() != "ml_program.extern";
  }
  if (name == "emitc.global")
    return !op->getAttr("extern_specifier") &&
           (op->getAttr("initial_value") || op->getAttr("static_specifier"));
  if (name == "spirv.GlobalVariable")
    return !op->getAttr("linkage_attributes") && op->getAttr("initializer");
  return false;
}

} // namespace

StringAttr Symbols::getName(Operation *op) {
  return op->getAttrOfType<StringAttr>("sym_name");
}

Attribute Symbols::getInherentName(Operation *op) {
  if (op->getPropertiesStorageSize() == 0)
    return {};
  return op->getInherentAttr("sym_name").value_or(Attribute());
}

Symbols::Table &Symbols::getTable(Operation *op) {
  std::unique_ptr<Table> &table = tables[op];
  if (table)
    return *table;
  table = std::make_unique<Table>();
  if (op->getNumRegions() == 0 || op->getRegion(0).empty())
    return *table;
  unsigned number = 0;
  for (Operation &symbol : op->getRegion(0).front()) {
    StringAttr name = getName(&symbol);
    if (!name)
      continue;
    bool nameless = (mode == StructuralOptions::Symbols::NormalizeAll ||
                     (normalize() && isPrivate(&symbol))) &&
                    isDefinition(&symbol);
    table->byName.try_emplace(name.getValue(),
                              Symbol{&symbol, nameless, number});
    table->namelessOps[&symbol] = nameless;
    number += nameless;
  }
  return *table;
}

bool Symbols::isNameless(Operation *op) {
  if (!normalize())
    return false;
  if (op == root)
    return mode == StructuralOptions::Symbols::NormalizeAll &&
           getName(op) != nullptr && isDefinition(op);
  Operation *parent = op->getParentOp();
  return parent && parent->hasTrait<OpTrait::SymbolTable>() &&
         getTable(parent).namelessOps.lookup(op);
}

void Symbols::encode(Operation *user, SymbolRefAttr reference,
                     codec::Record &record) {
  record.writeByte(referenceTag);
  StringAttr rootName = reference.getRootReference();
  Operation *found = nullptr;
  unsigned level = 0;
  auto writeFound = [&](const Symbol &symbol, StringRef name) {
    found = symbol.op;
    if (symbol.nameless) {
      record.writeByte(static_cast<uint8_t>(Part::Number));
      record.writeVarInt(level);
      record.writeVarInt(symbol.number);
    } else {
      record.writeByte(static_cast<uint8_t>(Part::Name));
      record.writeString(name);
    }
  };

  bool known = false;
  for (Operation *op = user; op; op = op->getParentOp()) {
    if (op->hasTrait<OpTrait::SymbolTable>()) {
      Table &table = getTable(op);
      auto it = table.byName.find(rootName.getValue());
      if (it != table.byName.end()) {
        writeFound(it->second, rootName.getValue());
        known = true;
        break;
      }
      ++level;
    }
    if (op == root)
      break;
  }
  if (!known) {
    // The root is defined outside of what is looked at, and may name itself.
    if (isNameless(root) && getName(root).getValue() == rootName.getValue()) {
      record.writeByte(static_cast<uint8_t>(Part::Root));
      found = root;
    } else {
      record.writeByte(static_cast<uint8_t>(Part::Name));
      record.writeString(rootName.getValue());
    }
  }

  record.writeVarInt(reference.getNestedReferences().size());
  level = 0;
  for (FlatSymbolRefAttr nested : reference.getNestedReferences()) {
    if (found && found->hasTrait<OpTrait::SymbolTable>()) {
      Table &table = getTable(found);
      auto it = table.byName.find(nested.getValue());
      if (it != table.byName.end()) {
        writeFound(it->second, nested.getValue());
        continue;
      }
    }
    found = nullptr;
    record.writeByte(static_cast<uint8_t>(Part::Name));
    record.writeString(nested.getValue());
  }
}

} // namespace ctxpool::detail

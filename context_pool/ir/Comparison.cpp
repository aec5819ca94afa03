//===- Comparison.cpp - Two operations side by side -----------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ir/Comparison.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Region.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/APInt.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Compiler.h"

#include <cassert>
#include <cstring>
#include <optional>

using namespace mlir;

namespace ctxpool::detail {

using codec::Record;
using codec::Reference;

//===----------------------------------------------------------------------===//
// Attributes and types
//===----------------------------------------------------------------------===//

bool Comparison::isSameDistinct(const void *lhs, const void *rhs) {
  auto [lhsIt, lhsNew] = distinctOfLhs.try_emplace(lhs, rhs);
  auto [rhsIt, rhsNew] = distinctOfRhs.try_emplace(rhs, lhs);
  return lhsIt->second == rhs && rhsIt->second == lhs;
}

bool Comparison::encode(Reference reference, Operation *user, Symbols &symbols,
                        Record &record) {
  absl::Status encoded;
  if (reference.kind == Reference::Kind::Type) {
    encoded = codec::encodeStructure(reference.getType(), record);
  } else {
    Attribute attribute = reference.getAttribute();
    auto symbol = dyn_cast<SymbolRefAttr>(attribute);
    if (symbol && symbols.normalize()) {
      record.clear();
      symbols.encode(user, symbol, record);
    } else {
      encoded = codec::encode(attribute, record);
    }
  }
  if (encoded.ok())
    return true;
  if (status.ok())
    status = std::move(encoded);
  return false;
}

/// The kinds that most modules have most of are compared faster than
/// remembered.
Comparison::Answer Comparison::isSameSmall(Attribute lhs, Attribute rhs) {
  TypeID id = lhs.getTypeID();
  if (id == TypeID::get<IntegerAttr>()) {
    if (rhs.getTypeID() != id)
      return Answer::No;
    auto left = cast<IntegerAttr>(lhs), right = cast<IntegerAttr>(rhs);
    APInt leftValue = left.getValue(), rightValue = right.getValue();
    return leftValue.getBitWidth() == rightValue.getBitWidth() &&
                   leftValue == rightValue &&
                   isSame(left.getType(), right.getType())
               ? Answer::Yes
               : Answer::No;
  }
  if (id == TypeID::get<StringAttr>()) {
    if (rhs.getTypeID() != id)
      return Answer::No;
    auto left = cast<StringAttr>(lhs), right = cast<StringAttr>(rhs);
    // The type of a string may be any, and its depth as well.
    if (!isa<NoneType>(left.getType()) || !isa<NoneType>(right.getType()))
      return Answer::Unknown;
    return left.getValue() == right.getValue() ? Answer::Yes : Answer::No;
  }
  if (id == TypeID::get<FloatAttr>()) {
    if (rhs.getTypeID() != id)
      return Answer::No;
    auto left = cast<FloatAttr>(lhs), right = cast<FloatAttr>(rhs);
    return left.getValue().bitwiseIsEqual(right.getValue()) &&
                   isSame(left.getType(), right.getType())
               ? Answer::Yes
               : Answer::No;
  }
  return Answer::Unknown;
}

bool Comparison::isSameSlow(Reference lhsStart, Reference rhsStart) {
  struct Pair {
    Reference lhs, rhs;
  };
  SmallVector<Pair, 8> stack{{lhsStart, rhsStart}};
  SmallVector<const void *, 8> added;
  bool reachesSymbol = false;
  std::optional<Record> lhsRecord, rhsRecord;
  bool same = true;

  while (!stack.empty() && same) {
    auto [lhs, rhs] = stack.pop_back_val();
    if (lhs.kind != rhs.kind) {
      same = false;
      break;
    }
    if (lhs.kind == Reference::Kind::Bytes) {
      same = lhs.size == rhs.size &&
             (lhs.pointer == rhs.pointer ||
              std::memcmp(lhs.pointer, rhs.pointer, lhs.size) == 0);
      continue;
    }
    if (!lhs.pointer || !rhs.pointer) {
      same = lhs.pointer == rhs.pointer;
      continue;
    }
    if (lhs.kind == Reference::Kind::Attribute) {
      Answer answer = isSameSmall(lhs.getAttribute(), rhs.getAttribute());
      if (answer != Answer::Unknown) {
        same = answer == Answer::Yes;
        continue;
      }
    }
    Partner &partner = pairs[lhs.pointer];
    if (partner.pointer == rhs.pointer)
      continue;
    // Equal attributes at several addresses: resources under several keys, or
    // attributes of several contexts. Cycles end here as well.
    if (partner.pointer &&
        !otherPairs.insert({lhs.pointer, rhs.pointer}).second)
      continue;
    // Taken for equal from here on: if they are not, all ends with that.
    partner.pointer = rhs.pointer;
    added.push_back(lhs.pointer);

    if (lhs.kind == Reference::Kind::Attribute) {
      Attribute left = lhs.getAttribute(), right = rhs.getAttribute();
      if (isa<SymbolRefAttr>(left))
        reachesSymbol = true;
      if (isa<DistinctAttr>(left) && isa<DistinctAttr>(right))
        if (!isSameDistinct(lhs.pointer, rhs.pointer)) {
          same = false;
          continue;
        }
    }

    if (!lhsRecord) {
      lhsRecord.emplace();
      rhsRecord.emplace();
    }
    if (!encode(lhs, lhsUser, lhsSymbols, *lhsRecord) ||
        !encode(rhs, rhsUser, rhsSymbols, *rhsRecord)) {
      same = false;
      continue;
    }
    if (lhsRecord->bytes != rhsRecord->bytes ||
        lhsRecord->references.size() != rhsRecord->references.size()) {
      same = false;
      continue;
    }
    // Depth first and in order, as distinct attributes are numbered. Data that
    // the record owns goes with it, and is compared at once.
    size_t first = stack.size();
    for (size_t i = lhsRecord->references.size(); i-- > 0;) {
      Reference left = lhsRecord->references[i];
      Reference right = rhsRecord->references[i];
      if (left.kind == Reference::Kind::Bytes &&
          right.kind == Reference::Kind::Bytes) {
        if (left.size != right.size ||
            (left.pointer != right.pointer &&
             std::memcmp(left.pointer, right.pointer, left.size) != 0)) {
          same = false;
          break;
        }
        continue;
      }
      stack.push_back({left, right});
    }
    if (!same)
      stack.truncate(first);
  }

  // What turned out different is not to be taken for equal. Nor is what reaches
  // a symbol reference, where names do not count: what that means depends on
  // the operation that holds it.
  if (!same ||
      (reachesSymbol && options.symbols != StructuralOptions::Symbols::Exact)) {
    for (const void *pointer : added)
      pairs[pointer].pointer = nullptr;
    otherPairs.clear();
  }
  return same;
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

/// Whether a value, or a block where `type` is null, is defined below the root.
static bool isInside(const void *pointer, Type type, Operation *root) {
  Operation *op;
  if (type) {
    Value value = Value::getFromOpaquePointer(pointer);
    op = value.getDefiningOp();
    if (!op)
      op = value.getParentBlock()->getParentOp();
    // The root's own results, and the arguments of its own blocks, are below
    // it.
  } else {
    op = static_cast<Block *>(const_cast<void *>(pointer))->getParentOp();
  }
  return op && root->isAncestor(op);
}

bool Comparison::isSameUse(const void *lhs, Type lhsType, const void *rhs,
                           Type rhsType, unsigned index) {
  Partner &partner = values[lhs];
  if (LLVM_LIKELY(partner.pointer != nullptr))
    return partner.pointer == rhs;
  // The first use of something that is defined later, or outside.
  partner.pointer = rhs;
  Pending use{lhs, lhsType, rhsType, lhsUser, rhsUser, index};
  return pending.try_emplace(rhs, use).second &&
         isInside(lhs, lhsType, lhsRoot) == isInside(rhs, rhsType, rhsRoot);
}

bool Comparison::define(const void *lhs, const void *rhs) {
  Partner &partner = values[lhs];
  if (LLVM_UNLIKELY(!pending.empty())) {
    auto it = pending.find(rhs);
    if (it != pending.end()) {
      bool same = it->second.lhs == lhs;
      pending.erase(it);
      return same;
    }
  }
  if (partner.pointer)
    return false;
  partner.pointer = rhs;
  return true;
}

bool Comparison::compareRecords(Record &lhs, Record &rhs) {
  if (lhs.bytes != rhs.bytes || lhs.references.size() != rhs.references.size())
    return false;
  for (size_t i = 0, e = lhs.references.size(); i != e; ++i) {
    Reference left = lhs.references[i], right = rhs.references[i];
    if (left.kind != right.kind)
      return false;
    if (left.kind == Reference::Kind::Bytes) {
      if (left.size != right.size ||
          std::memcmp(left.pointer, right.pointer, left.size) != 0)
        return false;
    } else if (!isSame(left, right)) {
      return false;
    }
  }
  return true;
}

bool Comparison::compareProperties(const Name &name, bool nameless) {
  name.info.writeProperties(lhsUser, lhsProperties.begin(), nameless);
  name.otherInfo.writeProperties(rhsUser, rhsProperties.begin(), nameless);
  for (Properties *properties : {&lhsProperties, &rhsProperties})
    if (!properties->sink.status.ok()) {
      status = properties->sink.status;
      return false;
    }
  return compareRecords(lhsProperties.record, rhsProperties.record);
}

bool Comparison::compareOperations(Operation *lhs, Operation *rhs) {
  lhsUser = difference.lhs = lhs;
  rhsUser = difference.rhs = rhs;
  difference.lhsBlock = difference.rhsBlock = nullptr;

  Name &name = names[lhs->getName().getAsOpaquePointer()];
  const void *rhsName = rhs->getName().getAsOpaquePointer();
  if (LLVM_UNLIKELY(name.other != rhsName)) {
    if (lhs->getName().getStringRef() != rhs->getName().getStringRef())
      return differ(Kind::Name);
    OperationInfo lhsInfo = OperationInfo::of(lhs);
    OperationInfo rhsInfo = OperationInfo::of(rhs);
    if (lhsInfo.properties != rhsInfo.properties)
      return differ(Kind::Registration);
    name.other = rhsName;
    name.info = lhsInfo;
    name.otherInfo = rhsInfo;
  }

  unsigned operands = lhs->getNumOperands();
  if (operands != rhs->getNumOperands())
    return differ(Kind::OperandCount);
  for (unsigned i = 0; i != operands; ++i) {
    Value left = lhs->getOperand(i), right = rhs->getOperand(i);
    if (LLVM_UNLIKELY(!left || !right)
            ? left != right
            : !isSameUse(left.getAsOpaquePointer(), left.getType(),
                         right.getAsOpaquePointer(), right.getType(), i))
      return differ(Kind::Operand, i);
  }
  unsigned successors = lhs->getNumSuccessors();
  if (successors != rhs->getNumSuccessors())
    return differ(Kind::SuccessorCount);
  for (unsigned i = 0; i != successors; ++i) {
    Block *left = lhs->getSuccessor(i), *right = rhs->getSuccessor(i);
    if (LLVM_UNLIKELY(!left || !right)
            ? left != right
            : !isSameUse(left, Type(), right, Type(), i))
      return differ(Kind::Successor, i);
  }
  unsigned results = lhs->getNumResults();
  if (results != rhs->getNumResults())
    return differ(Kind::ResultCount);
  for (unsigned i = 0; i != results; ++i) {
    OpResult left = lhs->getOpResult(i), right = rhs->getOpResult(i);
    if (!isSame(left.getType(), right.getType()))
      return differ(Kind::ResultType, i);
    if (!define(left.getAsOpaquePointer(), right.getAsOpaquePointer()))
      return differ(Kind::ResultUse, i);
  }

  bool nameless = false;
  if (LLVM_UNLIKELY(lhsSymbols.normalize())) {
    nameless = lhsSymbols.isNameless(lhs);
    if (nameless != rhsSymbols.isNameless(rhs))
      return differ(Kind::Symbol);
  }
  if (name.info.properties != PropertyKind::None &&
      !compareProperties(name, nameless))
    return differ(Kind::Properties);
  DictionaryFilter lhsDictionary(lhs, options, nameless, lhsEmpty);
  DictionaryFilter rhsDictionary(rhs, options, nameless, rhsEmpty);
  using Form = DictionaryFilter::Form;
  if (lhsDictionary.getForm() != rhsDictionary.getForm())
    return differ(Kind::Attributes);
  if (lhsDictionary.getForm() == Form::Whole) {
    if (!isSame(lhsDictionary.getDictionary(), rhsDictionary.getDictionary()))
      return differ(Kind::Attributes);
  } else if (lhsDictionary.getForm() == Form::Entries) {
    OperationInfo::writeEntries(lhsDictionary.getDictionary(),
                                lhsProperties.begin(), lhsDictionary);
    OperationInfo::writeEntries(rhsDictionary.getDictionary(),
                                rhsProperties.begin(), rhsDictionary);
    if (!compareRecords(lhsProperties.record, rhsProperties.record))
      return differ(Kind::Attributes);
  }
  if (options.includeLocations &&
      !isSame(Attribute(lhs->getLoc()), Attribute(rhs->getLoc())))
    return differ(Kind::Location);

  unsigned regions = lhs->getNumRegions();
  if (regions != rhs->getNumRegions())
    return differ(Kind::RegionCount);
  if (regions != 0) {
    levels.push_back({lhs, rhs, 0, nullptr, nullptr, {}, {}});
    return enterRegion(levels.back());
  }
  return true;
}

bool Comparison::enterRegion(Level &level) {
  lhsUser = difference.lhs = level.lhs;
  rhsUser = difference.rhs = level.rhs;
  difference.lhsBlock = difference.rhsBlock = nullptr;
  Region &lhs = level.lhs->getRegion(level.region);
  Region &rhs = level.rhs->getRegion(level.region);
  auto lhsIt = lhs.begin(), lhsEnd = lhs.end();
  auto rhsIt = rhs.begin(), rhsEnd = rhs.end();
  for (; lhsIt != lhsEnd && rhsIt != rhsEnd; ++lhsIt, ++rhsIt)
    if (!define(&*lhsIt, &*rhsIt)) {
      difference.lhsBlock = &*lhsIt;
      difference.rhsBlock = &*rhsIt;
      return differ(Kind::BlockUse);
    }
  if (lhsIt != lhsEnd || rhsIt != rhsEnd)
    return differ(Kind::BlockCount, level.region);
  level.lhsBlock = level.rhsBlock = nullptr;
  if (lhs.empty())
    return true;
  return enterBlock(level, &lhs.front(), &rhs.front());
}

bool Comparison::enterBlock(Level &level, Block *lhs, Block *rhs) {
  lhsUser = difference.lhs = level.lhs;
  rhsUser = difference.rhs = level.rhs;
  difference.lhsBlock = level.lhsBlock = lhs;
  difference.rhsBlock = level.rhsBlock = rhs;
  level.lhsNext = lhs->begin();
  level.rhsNext = rhs->begin();
  unsigned arguments = lhs->getNumArguments();
  if (arguments != rhs->getNumArguments())
    return differ(Kind::ArgumentCount);
  for (unsigned i = 0; i != arguments; ++i) {
    BlockArgument left = lhs->getArgument(i), right = rhs->getArgument(i);
    if (!isSame(left.getType(), right.getType()))
      return differ(Kind::ArgumentType, i);
    if (!define(left.getAsOpaquePointer(), right.getAsOpaquePointer()))
      return differ(Kind::ArgumentUse, i);
    if (options.includeLocations &&
        !isSame(Attribute(left.getLoc()), Attribute(right.getLoc())))
      return differ(Kind::ArgumentLocation, i);
  }
  return true;
}

bool Comparison::step() {
  Level &level = levels.back();
  if (level.lhsBlock) {
    bool lhsDone = level.lhsNext == level.lhsBlock->end();
    bool rhsDone = level.rhsNext == level.rhsBlock->end();
    if (lhsDone != rhsDone) {
      difference.lhs = level.lhs;
      difference.rhs = level.rhs;
      difference.lhsBlock = level.lhsBlock;
      difference.rhsBlock = level.rhsBlock;
      return differ(Kind::OperationCount);
    }
    if (!lhsDone) {
      Operation *lhs = &*level.lhsNext++;
      Operation *rhs = &*level.rhsNext++;
      // Invalidates `level`.
      return compareOperations(lhs, rhs);
    }
    if (Block *lhs = level.lhsBlock->getNextNode())
      return enterBlock(level, lhs, level.rhsBlock->getNextNode());
  }
  if (++level.region != level.lhs->getNumRegions())
    return enterRegion(level);
  levels.pop_back();
  return true;
}

/// What is still pending is defined outside on both sides: were it defined
/// inside on one, that definition would have met another partner. Then the type
/// counts.
bool Comparison::comparePending() {
  lhsUser = lhsRoot;
  rhsUser = rhsRoot;
  const Pending *first = nullptr;
  for (auto &[rhs, use] : pending) {
    if (!use.lhsType == !use.rhsType &&
        (!use.lhsType || isSame(use.lhsType, use.rhsType)))
      continue;
    // Any will do; the same one every time is kinder.
    if (!first || use.index < first->index)
      first = &use;
  }
  if (!first)
    return true;
  difference.lhs = first->lhsUser;
  difference.rhs = first->rhsUser;
  difference.lhsBlock = difference.rhsBlock = nullptr;
  return differ(first->lhsType ? Kind::Operand : Kind::Successor, first->index);
}

bool Comparison::run() {
  assert(lhsRoot && rhsRoot && "no operation");
  bool same = compareOperations(lhsRoot, rhsRoot);
  while (same && !levels.empty())
    same = step();
  if (same && !pending.empty())
    same = comparePending();
  if (same)
    return true;
  if (!status.ok())
    difference.kind = Kind::Unreadable;
  return false;
}

} // namespace ctxpool::detail

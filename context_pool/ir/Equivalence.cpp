//===- Equivalence.cpp - Whether two pieces of IR are the same ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/Equivalence.h"

#include "context_pool/ir/OperationInfo.h"
#include "context_pool/ir/PointerTable.h"
#include "context_pool/ir/Symbols.h"

#include "context_pool/codec/Encoder.h"
#include "context_pool/support/Fork.h"
#include "context_pool/support/Mutex.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/Block.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/Region.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/APInt.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Compiler.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <optional>
#include <set>
#include <vector>

using namespace mlir;

namespace ctxpool {
namespace {

using codec::Record;
using codec::Reference;
using detail::DictionaryFilter;
using detail::OperationInfo;
using detail::Symbols;

/// What the first difference is; `Comparison::describe` makes text of it.
struct Difference {
  enum class Kind {
    None,
    /// An attribute or type cannot be encoded; the status tells.
    Unreadable,
    Name,
    Registration,
    OperandCount,
    Operand,
    ResultCount,
    ResultType,
    ResultUse,
    SuccessorCount,
    Successor,
    RegionCount,
    BlockCount,
    BlockUse,
    ArgumentCount,
    ArgumentType,
    ArgumentLocation,
    ArgumentUse,
    OperationCount,
    Properties,
    Attributes,
    Location,
    Symbol,
  };

  Kind kind = Kind::None;
  Operation *lhs = nullptr;
  Operation *rhs = nullptr;
  Block *lhsBlock = nullptr;
  Block *rhsBlock = nullptr;
  /// Of the operand, result, argument, successor or region.
  unsigned index = 0;
};

/// Properties, or some attributes of an operation, as one record.
struct Properties {
  Record record;
  codec::RecordSink sink{record};

  codec::RecordSink &begin() {
    record.clear();
    sink.status = absl::OkStatus();
    return sink;
  }
};

/// Walks two operations side by side and stops at the first difference.
///
/// It compares what the fingerprint is made of, and agrees with it: values and
/// blocks are paired where they first occur, which holds to the end exactly
/// when their numbers by first occurrence agree; so are distinct attributes;
/// and attributes are equal when their records are, which is when their digests
/// are.
class Comparison {
public:
  Comparison(Operation *lhs, Operation *rhs, const StructuralOptions &which)
      : lhsRoot(lhs), rhsRoot(rhs), options(which),
        lhsSymbols(lhs, which.symbols), rhsSymbols(rhs, which.symbols),
        lhsEmpty(DictionaryAttr::get(lhs->getContext())),
        rhsEmpty(DictionaryAttr::get(rhs->getContext())) {}

  bool run();

  /// Why `run` was false.
  absl::Status describe();

private:
  using Kind = Difference::Kind;

  struct Level {
    Operation *lhs, *rhs;
    unsigned region;
    Block *lhsBlock, *rhsBlock;
    Block::iterator lhsNext, rhsNext;
  };

  struct Name {
    const void *other = nullptr;
    OperationInfo info, otherInfo;
  };

  /// The other side of a value or a block.
  struct Partner {
    const void *pointer = nullptr;
  };

  bool differ(Kind kind, unsigned index = 0) {
    difference.kind = kind;
    difference.index = index;
    return false;
  }

  enum class Answer { No, Yes, Unknown };
  Answer isSameSmall(Attribute lhs, Attribute rhs);

  bool isSame(Reference lhs, Reference rhs) {
    if (!lhs.pointer || !rhs.pointer)
      return lhs.pointer == rhs.pointer;
    if (lhs.kind == Reference::Kind::Attribute &&
        rhs.kind == Reference::Kind::Attribute) {
      Answer answer = isSameSmall(lhs.getAttribute(), rhs.getAttribute());
      if (answer != Answer::Unknown)
        return answer == Answer::Yes;
    }
    if (auto *known = pairs.find(lhs.pointer))
      if (known->pointer == rhs.pointer)
        return true;
    return isSameSlow(lhs, rhs);
  }
  bool isSame(Attribute lhs, Attribute rhs) {
    return isSame(Reference::to(lhs), Reference::to(rhs));
  }
  bool isSame(Type lhs, Type rhs) {
    return isSame(Reference::to(lhs), Reference::to(rhs));
  }
  bool isSameSlow(Reference lhs, Reference rhs);
  bool encode(Reference reference, Operation *user, Symbols &symbols,
              Record &record);
  bool isSameDistinct(const void *lhs, const void *rhs);

  bool isSameUse(const void *lhs, Type lhsType, const void *rhs, Type rhsType,
                 unsigned index);
  bool define(const void *lhs, const void *rhs);

  bool compareOperations(Operation *lhs, Operation *rhs);
  bool compareProperties(const Name &name, bool nameless);
  bool compareRecords(Record &lhs, Record &rhs);
  bool enterRegion(Level &level);
  bool enterBlock(Level &level, Block *lhs, Block *rhs);
  bool step();
  bool comparePending();

  std::string describePath(Operation *op);
  std::string versus(Attribute lhs, Attribute rhs);
  std::string versus(Type lhs, Type rhs);
  std::string describeDifference();
  std::string describeAttributes(DictionaryFilter &lhs, DictionaryFilter &rhs);
  std::string describeProperties();
  std::string describeProperties(Attribute lhs, Attribute rhs, bool nameless);

  Operation *lhsRoot, *rhsRoot;
  StructuralOptions options;
  Symbols lhsSymbols, rhsSymbols;
  DictionaryAttr lhsEmpty, rhsEmpty;
  Difference difference;
  absl::Status status;

  /// The operations that hold what is being compared.
  Operation *lhsUser = nullptr;
  Operation *rhsUser = nullptr;

  detail::PointerTable<Name> names;
  /// Attributes and types found equal: the last partner of each of the left's.
  detail::PointerTable<Partner> pairs;
  /// Values and blocks.
  detail::PointerTable<Partner, 6> values;
  /// Those used before their definition, from the right's side.
  struct Pending {
    const void *lhs;
    Type lhsType, rhsType;
    /// The first use.
    Operation *lhsUser, *rhsUser;
    unsigned index;
  };
  llvm::DenseMap<const void *, Pending> pending;
  llvm::DenseMap<const void *, const void *> distinctOfLhs, distinctOfRhs;
  /// Pairs of which the left one has another partner by now.
  std::set<std::pair<const void *, const void *>> otherPairs;
  std::vector<Level> levels;
  Properties lhsProperties, rhsProperties;
};

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
  if (name.info.properties != detail::PropertyKind::None &&
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

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

/// Names in a message are as long as this at most, other texts as given.
constexpr size_t nameLimit = 80;
constexpr size_t valueLimit = 120;
/// And the path and what differs there as long as this: all of a message stays
/// below 2 KiB.
constexpr size_t partLimit = 960;

/// Where the text may be cut at or before `place`: not within a character.
size_t cutBefore(StringRef text, size_t place) {
  place = std::min(place, text.size());
  while (place != 0 && place != text.size() &&
         (static_cast<uint8_t>(text[place]) & 0xC0) == 0x80)
    --place;
  return place;
}

/// The text, without its middle if it is longer than the limit.
std::string shorten(StringRef text, size_t limit = nameLimit) {
  if (text.size() <= limit)
    return text.str();
  size_t head = cutBefore(text, limit / 2);
  size_t tail = cutBefore(text, text.size() - limit / 2);
  return absl::StrCat(text.take_front(head).str(), "...",
                      text.drop_front(tail).str());
}

std::string quoted(StringRef text) {
  return absl::StrCat("'", shorten(text), "'");
}

std::string opNameOf(Operation *op) {
  return shorten(op->getName().getStringRef());
}

std::string nameOf(Operation *op) {
  std::string text = opNameOf(op);
  if (StringAttr name = Symbols::getName(op))
    absl::StrAppend(&text, " @", shorten(name.getValue()));
  return text;
}

/// Cuts both texts to what surrounds their first difference.
void showDifference(std::string &lhs, std::string &rhs) {
  if (lhs.size() <= valueLimit && rhs.size() <= valueLimit)
    return;
  constexpr size_t before = 40;
  size_t size = std::min(lhs.size(), rhs.size());
  size_t place =
      std::mismatch(lhs.begin(), lhs.begin() + size, rhs.begin()).first -
      lhs.begin();
  size_t begin = place > before ? cutBefore(lhs, place - before) : 0;
  for (std::string *text : {&lhs, &rhs}) {
    size_t end = cutBefore(*text, begin + valueLimit);
    bool isCut = end < text->size();
    *text = absl::StrCat(begin ? "..." : "", text->substr(begin, end - begin),
                         isCut ? "..." : "");
  }
}

/// `<none>` for `#arith.fastmath<none>`: what is the same on both sides and
/// only names the kind of attribute says nothing.
void dropCommonKind(std::string &lhs, std::string &rhs) {
  size_t end = 0;
  while (end < lhs.size() &&
         (llvm::isAlnum(lhs[end]) || lhs[end] == '#' || lhs[end] == '.' ||
          lhs[end] == '_' || lhs[end] == '!'))
    ++end;
  if (end < 2 || (lhs[0] != '#' && lhs[0] != '!') || end == lhs.size() ||
      lhs[end] != '<' || rhs.compare(0, end + 1, lhs, 0, end + 1) != 0)
    return;
  lhs.erase(0, end);
  rhs.erase(0, end);
}

/// An element of a dense constant. With `bits`, every one of them.
std::string describeElement(DenseIntOrFPElementsAttr dense, size_t index,
                            bool bits) {
  Type type = dense.getElementType();
  if (isa<FloatType>(type)) {
    APFloat value = *(dense.value_begin<APFloat>() + index);
    SmallString<32> text;
    if (bits)
      value.bitcastToAPInt().toString(text, 16, /*Signed=*/false,
                                      /*formatAsCLiteral=*/true);
    else
      value.toString(text);
    return shorten(text);
  }
  if (isa<IntegerType, IndexType>(type)) {
    SmallString<32> text;
    APInt value = *(dense.value_begin<APInt>() + index);
    value.toString(text, 10, /*Signed=*/!type.isUnsignedInteger());
    return shorten(text);
  }
  ArrayRef<char> raw = dense.getRawData();
  size_t size =
      dense.isSplat() ? raw.size() : raw.size() / dense.getNumElements();
  raw = raw.slice(dense.isSplat() ? 0 : index * size, size);
  return shorten("0x" + llvm::toHex(StringRef(raw.data(), raw.size())));
}

/// How two dense constants differ, or nothing.
std::string describeElements(Attribute lhs, Attribute rhs) {
  auto leftDense = dyn_cast_or_null<DenseElementsAttr>(lhs);
  auto rightDense = dyn_cast_or_null<DenseElementsAttr>(rhs);
  if (!leftDense || !rightDense)
    return "";
  std::string leftType = codec::describe(leftDense.getType());
  std::string rightType = codec::describe(rightDense.getType());
  if (leftType != rightType)
    return absl::StrCat("dense constants of ", leftType, " vs ", rightType);
  size_t elements = leftDense.getNumElements();
  if (elements != size_t(rightDense.getNumElements()))
    return "";
  std::string where = absl::StrCat("dense constants of ", leftType,
                                   " differ first in element ");
  auto leftStrings = dyn_cast<DenseStringElementsAttr>(lhs);
  auto rightStrings = dyn_cast<DenseStringElementsAttr>(rhs);
  if (leftStrings && rightStrings) {
    ArrayRef<StringRef> leftValues = leftStrings.getRawStringData();
    ArrayRef<StringRef> rightValues = rightStrings.getRawStringData();
    for (size_t i = 0; i != elements; ++i) {
      StringRef left = leftValues[leftStrings.isSplat() ? 0 : i];
      StringRef right = rightValues[rightStrings.isSplat() ? 0 : i];
      if (left == right)
        continue;
      std::string leftText = left.str(), rightText = right.str();
      showDifference(leftText, rightText);
      return absl::StrCat(where, i, ": \"", leftText, "\" vs \"", rightText,
                          "\"");
    }
    return "";
  }
  auto left = dyn_cast<DenseIntOrFPElementsAttr>(lhs);
  auto right = dyn_cast<DenseIntOrFPElementsAttr>(rhs);
  if (!left || !right)
    return "";
  for (size_t i = 0; i != elements; ++i) {
    // The data tells of large constants faster than their elements do.
    ArrayRef<char> leftData = left.getRawData(), rightData = right.getRawData();
    if (i == 0 && leftData.size() == rightData.size() &&
        leftData.size() % elements == 0 && leftData.size() >= elements &&
        !left.isSplat() && !right.isSplat()) {
      size_t byte =
          std::mismatch(leftData.begin(), leftData.end(), rightData.begin())
              .first -
          leftData.begin();
      if (byte == leftData.size())
        return "";
      i = byte / (leftData.size() / elements);
    }
    for (bool bits : {false, true}) {
      std::string leftText = describeElement(left, i, bits);
      std::string rightText = describeElement(right, i, bits);
      if (leftText != rightText)
        return absl::StrCat(where, i, ": ", leftText, " vs ", rightText);
    }
  }
  return "";
}

/// How two resources of one type differ, or nothing.
std::string describeResources(Attribute lhs, Attribute rhs) {
  auto left = dyn_cast_or_null<DenseResourceElementsAttr>(lhs);
  auto right = dyn_cast_or_null<DenseResourceElementsAttr>(rhs);
  if (!left || !right)
    return "";
  std::string type = codec::describe(left.getType());
  if (type != codec::describe(right.getType()))
    return "";
  std::string path = absl::StrCat("resources of ", type, " differ: ");
  AsmResourceBlob *leftBlob = left.getRawHandle().getBlob();
  AsmResourceBlob *rightBlob = right.getRawHandle().getBlob();
  if (!leftBlob || !rightBlob)
    return leftBlob == rightBlob
               ? ""
               : absl::StrCat(path, leftBlob ? "contents" : "none", " vs ",
                              rightBlob ? "contents" : "none");
  if (leftBlob->getDataAlignment() != rightBlob->getDataAlignment())
    return absl::StrCat(path, "alignment ", leftBlob->getDataAlignment(),
                        " vs ", rightBlob->getDataAlignment());
  ArrayRef<char> leftData = leftBlob->getData(),
                 rightData = rightBlob->getData();
  if (leftData.size() != rightData.size())
    return absl::StrCat(path, "contents of ", leftData.size(), " bytes vs ",
                        rightData.size());
  auto [leftIt, rightIt] =
      std::mismatch(leftData.begin(), leftData.end(), rightData.begin());
  if (leftIt == leftData.end())
    return "";
  return absl::StrCat(
      path, "contents, first in byte ", leftIt - leftData.begin(), ": ",
      static_cast<uint8_t>(*leftIt), " vs ", static_cast<uint8_t>(*rightIt));
}

std::string count(size_t number, const char *what) {
  return absl::StrCat(number, " ", what, number == 1 ? "" : "s");
}

std::string describeBlock(Block *block) {
  if (!block)
    return "null";
  Region *region = block->getParent();
  if (!region || !region->getParentOp())
    return "a block of no operation";
  unsigned index = std::distance(region->begin(), Region::iterator(block));
  return absl::StrCat("region ", region->getRegionNumber(), ", block ", index);
}

std::string describeValue(Value value) {
  if (!value)
    return "null";
  if (auto result = dyn_cast<OpResult>(value)) {
    Operation *op = result.getOwner();
    std::string text =
        absl::StrCat("result ", result.getResultNumber(), " of ");
    if (Block *block = op->getBlock())
      absl::StrAppend(&text, "operation ",
                      std::distance(block->begin(), Block::iterator(op)), " (",
                      nameOf(op), ") in ", describeBlock(block));
    else
      absl::StrAppend(&text, nameOf(op));
    return text;
  }
  auto argument = cast<BlockArgument>(value);
  return absl::StrCat("argument ", argument.getArgNumber(), " of ",
                      describeBlock(argument.getOwner()));
}

/// The way to `op`: the symbols around it by name, and below the innermost of
/// them, or the root, regions, blocks and operations by number.
std::string Comparison::describePath(Operation *op) {
  SmallVector<Operation *> around;
  for (Operation *current = op;; current = current->getParentOp()) {
    around.push_back(current);
    if (current == lhsRoot)
      break;
  }
  // From the innermost symbol outwards, only symbols are named.
  size_t anchor = around.size() - 1;
  for (size_t i = 0; i != around.size(); ++i)
    if (Symbols::getName(around[i])) {
      anchor = i;
      break;
    }
  std::string path;
  for (size_t i = around.size(); i-- > anchor + 1;)
    if (Symbols::getName(around[i]))
      absl::StrAppend(&path, nameOf(around[i]), ", ");
  absl::StrAppend(&path, nameOf(around[anchor]));
  // Deep nests are cut in the middle.
  constexpr size_t shownLevels = 8;
  for (size_t i = anchor; i-- > 0;) {
    if (anchor > 2 * shownLevels && i == anchor - shownLevels - 1) {
      absl::StrAppend(&path, ", ... ", anchor - 2 * shownLevels, " levels ...");
      i = shownLevels;
      continue;
    }
    Operation *current = around[i];
    Block *block = current->getBlock();
    absl::StrAppend(&path, ", ", describeBlock(block), ", operation ",
                    std::distance(block->begin(), Block::iterator(current)),
                    " (", opNameOf(current), ")");
  }
  return path;
}

/// Both values, with what tells them apart; of large lists, the parts that do.
std::string Comparison::versus(Attribute lhs, Attribute rhs) {
  constexpr size_t whole = ~size_t(0);
  std::string path;
  for (;;) {
    std::string special = describeResources(lhs, rhs);
    if (special.empty())
      special = describeElements(lhs, rhs);
    bool isSmall = true;
    if (auto dense = dyn_cast_or_null<DenseElementsAttr>(lhs))
      isSmall = dense.isSplat() || dense.getNumElements() <= 16;
    if (auto dense = dyn_cast_or_null<DenseElementsAttr>(rhs))
      isSmall = isSmall && (dense.isSplat() || dense.getNumElements() <= 16);
    if (!special.empty() && (!isSmall || isa<DenseResourceElementsAttr>(lhs)))
      return absl::StrCat(path, special);
    auto leftDistinct = dyn_cast_or_null<DistinctAttr>(lhs);
    auto rightDistinct = dyn_cast_or_null<DistinctAttr>(rhs);
    if (leftDistinct && rightDistinct) {
      if (isSame(leftDistinct.getReferencedAttr(),
                 rightDistinct.getReferencedAttr()))
        return absl::StrCat(
            path, "a distinct attribute with another identity, around ",
            codec::describe(leftDistinct.getReferencedAttr(), valueLimit));
      lhs = leftDistinct.getReferencedAttr();
      rhs = rightDistinct.getReferencedAttr();
      absl::StrAppend(&path, "distinct attribute around ");
      continue;
    }

    std::string left = codec::describe(lhs, whole);
    std::string right = codec::describe(rhs, whole);
    dropCommonKind(left, right);
    bool isCut = left.size() > valueLimit || right.size() > valueLimit;
    if (left != right && !isCut && !StringRef(left).starts_with("a large "))
      return absl::StrCat(path, left, " vs ", right);

    // The first part that differs says more than the begin of the whole.
    auto leftArray = dyn_cast_or_null<ArrayAttr>(lhs);
    auto rightArray = dyn_cast_or_null<ArrayAttr>(rhs);
    auto leftDictionary = dyn_cast_or_null<DictionaryAttr>(lhs);
    auto rightDictionary = dyn_cast_or_null<DictionaryAttr>(rhs);
    bool descended = false;
    if (path.size() < 200 && leftArray && rightArray) {
      if (leftArray.size() != rightArray.size())
        return absl::StrCat(path, leftArray.size(), " elements vs ",
                            rightArray.size());
      for (size_t i = 0; i != leftArray.size() && !descended; ++i)
        if (!isSame(leftArray[i], rightArray[i])) {
          absl::StrAppend(&path, "element ", i, ": ");
          lhs = leftArray[i];
          rhs = rightArray[i];
          descended = true;
        }
    } else if (path.size() < 200 && leftDictionary && rightDictionary) {
      auto descend = [&](StringRef name) {
        Attribute leftEntry = leftDictionary.get(name);
        Attribute rightEntry = rightDictionary.get(name);
        if (descended || isSame(leftEntry, rightEntry))
          return;
        absl::StrAppend(&path, "entry ", quoted(name), ": ");
        lhs = leftEntry;
        rhs = rightEntry;
        descended = true;
      };
      DictionaryAttr entries = leftDictionary;
      for (NamedAttribute entry : entries)
        descend(entry.getName().strref());
      entries = rightDictionary;
      for (NamedAttribute entry : entries)
        descend(entry.getName().strref());
    }
    if (descended)
      continue;
    if (left != right) {
      showDifference(left, right);
      return absl::StrCat(path, left, " vs ", right);
    }
    return absl::StrCat(path, shorten(left, valueLimit),
                        " on both sides, which differ in a part that is not "
                        "shown");
  }
}

std::string Comparison::versus(Type lhs, Type rhs) {
  constexpr size_t whole = ~size_t(0);
  std::string left = codec::describe(lhs, whole);
  std::string right = codec::describe(rhs, whole);
  if (left == right)
    return absl::StrCat(shorten(left, valueLimit),
                        " on both sides, which differ in a part that is not "
                        "shown");
  dropCommonKind(left, right);
  showDifference(left, right);
  return absl::StrCat(left, " vs ", right);
}

std::string Comparison::describeAttributes(DictionaryFilter &lhs,
                                           DictionaryFilter &rhs) {
  for (NamedAttribute entry : lhs.getDictionary()) {
    StringRef name = entry.getName().strref();
    if (!lhs(name))
      continue;
    Attribute other = rhs(name) ? rhs.getDictionary().get(name) : Attribute();
    if (!isSame(entry.getValue(), other))
      return absl::StrCat("attribute ", quoted(name), ": ",
                          versus(entry.getValue(), other));
  }
  for (NamedAttribute entry : rhs.getDictionary()) {
    StringRef name = entry.getName().strref();
    if (rhs(name) && !(lhs(name) && lhs.getDictionary().get(name)))
      return absl::StrCat("attribute ", quoted(name), ": ",
                          versus(Attribute(), entry.getValue()));
  }
  return "attributes differ";
}

/// Held across forks: a child may compare, whatever threads of the parent do.
Mutex conversionMutex;
[[maybe_unused]] const int conversionIsHeld =
    detail::holdAcrossForks<conversionMutex>();

std::string Comparison::describeProperties() {
  Operation *lhs = difference.lhs, *rhs = difference.rhs;
  bool nameless = lhsSymbols.isNameless(lhs) && Symbols::getInherentName(lhs);
  if (!lhs->getName().isRegistered())
    return describeProperties(lhs->getPropertiesAsAttribute(),
                              rhs->getPropertiesAsAttribute(), nameless);
  for (StringAttr name : lhs->getName().getAttributeNames()) {
    StringRef text = name.getValue();
    // Asking for these by name would make an attribute of them.
    if (detail::isSegmentSizes(text) || (nameless && text == "sym_name"))
      continue;
    std::optional<Attribute> left = lhs->getInherentAttr(text);
    std::optional<Attribute> right = rhs->getInherentAttr(text);
    if (!left || !right)
      continue;
    if (!isSame(*left, *right))
      return absl::StrCat("property ", quoted(text), ": ",
                          versus(*left, *right));
  }
  // What is left has no attribute yet, and is given one: of messages alone, and
  // of one at a time, since a context may not be made for several threads.
  MutexLock lock(conversionMutex);
  return describeProperties(lhs->getPropertiesAsAttribute(),
                            rhs->getPropertiesAsAttribute(), nameless);
}

std::string Comparison::describeProperties(Attribute lhs, Attribute rhs,
                                           bool nameless) {
  auto left = dyn_cast_or_null<DictionaryAttr>(lhs);
  auto right = dyn_cast_or_null<DictionaryAttr>(rhs);
  if (!left || !right)
    return isSame(lhs, rhs) ? "properties that are no attributes differ"
                            : absl::StrCat("properties: ", versus(lhs, rhs));
  for (DictionaryAttr entries : {left, right})
    for (NamedAttribute entry : entries) {
      StringRef name = entry.getName().strref();
      if (nameless && name == "sym_name")
        continue;
      if (!isSame(left.get(name), right.get(name)))
        return absl::StrCat("property ", quoted(name), ": ",
                            versus(left.get(name), right.get(name)));
    }
  return "properties that are no attributes differ";
}

std::string Comparison::describeDifference() {
  Operation *lhs = difference.lhs, *rhs = difference.rhs;
  unsigned index = difference.index;
  switch (difference.kind) {
  case Kind::None:
  case Kind::Unreadable:
    return "no difference";
  case Kind::Name: {
    std::string left = lhs->getName().getStringRef().str();
    std::string right = rhs->getName().getStringRef().str();
    showDifference(left, right);
    return absl::StrCat("name: ", left, " vs ", right);
  }
  case Kind::Registration:
    return "the operation is registered on one side only";
  case Kind::OperandCount:
    return absl::StrCat(count(lhs->getNumOperands(), "operand"), " vs ",
                        rhs->getNumOperands());
  case Kind::Operand: {
    Value left = lhs->getOperand(index), right = rhs->getOperand(index);
    std::string leftText = describeValue(left);
    std::string rightText = describeValue(right);
    if (leftText == rightText && left.getType() && right.getType())
      return absl::StrCat("operand ", index, ": ", leftText, " of type ",
                          versus(left.getType(), right.getType()));
    return absl::StrCat("operand ", index, ": ", leftText, " vs ", rightText);
  }
  case Kind::ResultCount:
    return absl::StrCat(count(lhs->getNumResults(), "result"), " vs ",
                        rhs->getNumResults());
  case Kind::ResultType:
    return absl::StrCat("type of result ", index, ": ",
                        versus(lhs->getResult(index).getType(),
                               rhs->getResult(index).getType()));
  case Kind::ResultUse:
    return absl::StrCat("result ", index,
                        " was used before in places that differ");
  case Kind::SuccessorCount:
    return absl::StrCat(count(lhs->getNumSuccessors(), "successor"), " vs ",
                        rhs->getNumSuccessors());
  case Kind::Successor:
    return absl::StrCat("successor ", index, ": ",
                        describeBlock(lhs->getSuccessor(index)), " vs ",
                        describeBlock(rhs->getSuccessor(index)));
  case Kind::RegionCount:
    return absl::StrCat(count(lhs->getNumRegions(), "region"), " vs ",
                        rhs->getNumRegions());
  case Kind::BlockCount: {
    auto blocks = [&](Operation *op) {
      Region &region = op->getRegion(index);
      return std::distance(region.begin(), region.end());
    };
    return absl::StrCat("region ", index, ": ", count(blocks(lhs), "block"),
                        " vs ", blocks(rhs));
  }
  case Kind::BlockUse:
    return "the block was a successor before in places that differ";
  case Kind::ArgumentCount:
    return absl::StrCat(
        count(difference.lhsBlock->getNumArguments(), "argument"), " vs ",
        difference.rhsBlock->getNumArguments());
  case Kind::ArgumentType:
    return absl::StrCat(
        "type of argument ", index, ": ",
        versus(difference.lhsBlock->getArgument(index).getType(),
               difference.rhsBlock->getArgument(index).getType()));
  case Kind::ArgumentLocation:
    return absl::StrCat(
        "location of argument ", index, ": ",
        versus(Attribute(difference.lhsBlock->getArgument(index).getLoc()),
               Attribute(difference.rhsBlock->getArgument(index).getLoc())));
  case Kind::ArgumentUse:
    return absl::StrCat("argument ", index,
                        " was used before in places that differ");
  case Kind::OperationCount:
    return absl::StrCat(
        count(difference.lhsBlock->getOperations().size(), "operation"), " vs ",
        difference.rhsBlock->getOperations().size());
  case Kind::Properties:
    return describeProperties();
  case Kind::Attributes: {
    DictionaryFilter left(lhs, options, lhsSymbols.isNameless(lhs), lhsEmpty);
    DictionaryFilter right(rhs, options, rhsSymbols.isNameless(rhs), rhsEmpty);
    return describeAttributes(left, right);
  }
  case Kind::Location:
    return absl::StrCat("location: ", versus(Attribute(lhs->getLoc()),
                                             Attribute(rhs->getLoc())));
  case Kind::Symbol:
    return "the name of the symbol counts on one side only";
  }
  return "";
}

absl::Status Comparison::describe() {
  std::string path = describePath(difference.lhs);
  if (difference.lhsBlock)
    absl::StrAppend(&path, ", ", describeBlock(difference.lhsBlock));
  path = shorten(path, partLimit);
  if (difference.kind == Kind::Unreadable) {
    StringRef reason(status.message().data(), status.message().size());
    return absl::Status(status.code(),
                        absl::StrCat(path, ": ", shorten(reason, partLimit)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", shorten(describeDifference(), partLimit)));
}

} // namespace

absl::Status checkEquivalence(Operation *lhs, Operation *rhs,
                              const StructuralOptions &options) {
  Comparison comparison(lhs, rhs, options);
  return comparison.run() ? absl::OkStatus() : comparison.describe();
}

bool isEquivalent(Operation *lhs, Operation *rhs,
                  const StructuralOptions &options) {
  return Comparison(lhs, rhs, options).run();
}

} // namespace ctxpool

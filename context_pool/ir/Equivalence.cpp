//===- Equivalence.cpp - Whether two pieces of IR are the same ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/Equivalence.h"

#include "context_pool/ir/Comparison.h"
#include "context_pool/support/Fork.h"
#include "context_pool/support/Mutex.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/Region.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/APInt.h"
#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <optional>

using namespace mlir;

namespace ctxpool {
namespace detail {
namespace {

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

/// Held across forks: a child may compare, whatever threads of the parent do.
Mutex conversionMutex;
[[maybe_unused]] const int conversionIsHeld =
    holdAcrossForks<conversionMutex>();

} // namespace

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

std::string Comparison::describeProperties() {
  Operation *lhs = difference.lhs, *rhs = difference.rhs;
  bool nameless = lhsSymbols.isNameless(lhs) && Symbols::getInherentName(lhs);
  if (!lhs->getName().isRegistered())
    return describeProperties(lhs->getPropertiesAsAttribute(),
                              rhs->getPropertiesAsAttribute(), nameless);
  for (StringAttr name : lhs->getName().getAttributeNames()) {
    StringRef text = name.getValue();
    // Asking for these by name would make an attribute of them.
    if (isSegmentSizes(text) || (nameless && text == "sym_name"))
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

} // namespace detail

absl::Status checkEquivalence(Operation *lhs, Operation *rhs,
                              const StructuralOptions &options) {
  detail::Comparison comparison(lhs, rhs, options);
  return comparison.run() ? absl::OkStatus() : comparison.describe();
}

bool isEquivalent(Operation *lhs, Operation *rhs,
                  const StructuralOptions &options) {
  return detail::Comparison(lhs, rhs, options).run();
}

} // namespace ctxpool

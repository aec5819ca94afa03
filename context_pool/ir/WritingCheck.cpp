//===- WritingCheck.cpp - What MLIR's writer does not manage --------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ir/WritingCheck.h"

#include "context_pool/codec/Encoder.h"
#include "context_pool/codec/TextSize.h"
#include "context_pool/ir/OperationInfo.h"
#include "context_pool/ir/PointerTable.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/IntegerSet.h"
#include "mlir/IR/OpDefinition.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

using namespace mlir;

namespace ctxpool::detail {
namespace {

using codec::Reference;

/// Bytecode has an attribute or type without an encoding as text, and text loses
/// a `distinct`'s identity, the low bits of a wide float, the payload of a NaN
/// and the data of a resource.
class Checker {
public:
  Checker(Operation *operation, bool withLocations)
      : root(operation), includesLocations(withLocations) {}

  /// Whether there was no error. `oneByOne`: an error names the first operation
  /// that has what it is about.
  bool run(bool oneByOne) {
    std::vector<std::pair<Operation *, uint64_t>> stack{{root, 0}};
    while (!stack.empty()) {
      auto [op, depth] = stack.back();
      stack.pop_back();
      current = op;
      visit(op);
      if (!checkScope(op) || ((oneByOne || queue.size() > 4096) && !drain()))
        return false;
      regionDepth = std::max(regionDepth, depth);
      for (Region &region : op->getRegions())
        for (Block &block : region) {
          for (BlockArgument argument : block.getArguments()) {
            add(argument.getType());
            if (includesLocations)
              add(Attribute(argument.getLoc()));
          }
          for (Operation &nested : block)
            stack.push_back({&nested, depth + 1});
        }
      if (oneByOne && !drain())
        return false;
    }
    return drain();
  }

  absl::StatusOr<WritingSummary> summarize() {
    // Measured with MLIR 22.1: 571 bytes for a region, up to 475 for an attribute
    // or type, and 160 for an affine expression.
    constexpr uint64_t bytesOfLevel = 1024;
    constexpr uint64_t largest = uint64_t(4) << 30;
    uint64_t levels =
        regionDepth + measureDepth() + textDepth + expressionDepth;
    summary.stackBytes = llvm::SaturatingMultiply(levels, bytesOfLevel);
    if (summary.stackBytes > largest)
      return absl::FailedPreconditionError(
          absl::StrCat("cannot serialize the operation: it nests ", levels,
                       " regions, attributes, types and affine expressions"));
    return summary;
  }

  absl::Status status;

private:
  void noteDialect(Dialect *dialect) {
    if (dialect && dialect != latestDialect && !isa<BuiltinDialect>(dialect) &&
        !llvm::is_contained(summary.dialects, dialect))
      summary.dialects.push_back(dialect);
    latestDialect = dialect;
  }

  /// Collects what an operation refers to.
  struct Sink {
    explicit Sink(Checker &owner) : checker(owner) {}
    void writeByte(uint8_t) {}
    void writeVarInt(uint64_t) {}
    void writeRaw(const void *, size_t) {}
    void writeData(ArrayRef<char>) {}
    void writeAttribute(Attribute attribute) { checker.add(attribute); }
    void writeType(Type type) { checker.add(type); }
    void writeResource(const AsmDialectResourceHandle &) {}
    Checker &checker;
  };

  std::string nameOf(Operation *op) {
    return op->getName().getStringRef().str();
  }

  //===--------------------------------------------------------------------===//
  // Operations
  //===--------------------------------------------------------------------===//

  void visit(Operation *op) {
    if (includesLocations)
      add(Attribute(op->getLoc()));
    add(Attribute(op->getRawDictionaryAttrs()));
    for (Type type : op->getResultTypes())
      add(type);
    const void *key = op->getName().getAsOpaquePointer();
    OperationInfo *info = infos.find(key);
    if (!info) {
      infos[key] = OperationInfo::of(op);
      info = infos.find(key);
      noteDialect(op->getDialect());
    }
    Sink sink(*this);
    info->writeProperties(op, sink, /*nameless=*/false);
  }

  /// The writer gives numbers to the values that an operation can see, and to
  /// the blocks of its region. It takes any other for one of these.
  bool checkScope(Operation *op) {
    Region *own = op == root ? nullptr : op->getParentRegion();
    for (Value operand : op->getOperands()) {
      Region *region = operand ? operand.getParentRegion() : nullptr;
      if (own && region == own)
        continue;
      if (own && region && own == lastUser && region == lastSeen)
        continue;
      if (!sees(own, region))
        return refuseScope(op, "uses a value");
      lastUser = own;
      lastSeen = region;
    }
    for (Block *successor : op->getSuccessors())
      if (!own || !successor || successor->getParent() != own)
        return refuseScope(op, "branches to a block");
    return true;
  }

  bool refuseScope(Operation *op, const char *what) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "cannot serialize the operation: ", nameOf(op), " ", what,
        op == root ? " that is defined outside of it"
                   : " that it does not see or that is outside of the whole"));
    return false;
  }

  bool sees(Region *inner, Region *outer) const {
    while (inner && inner != outer) {
      Operation *parent = inner->getParentOp();
      if (!parent || parent == root ||
          parent->hasTrait<OpTrait::IsIsolatedFromAbove>())
        return false;
      inner = parent->getParentRegion();
    }
    return inner;
  }

  //===--------------------------------------------------------------------===//
  // Attributes and types
  //===--------------------------------------------------------------------===//

  void add(Attribute attribute) { add(Reference::to(attribute), false); }
  void add(Type type) { add(Reference::to(type), false); }

  /// `inText`: MLIR's bytecode has it as a part of a text.
  void add(Reference reference, bool inText) {
    if (!reference.pointer)
      return;
    uint8_t &seen = states[reference.pointer];
    uint8_t state = inText ? 2 : 1;
    if (seen >= state)
      return;
    seen = state;
    queue.push_back({reference, inText});
  }

  bool drain() {
    while (!queue.empty()) {
      auto [reference, inText] = queue.back();
      queue.pop_back();
      if (!(reference.kind == Reference::Kind::Attribute
                ? examine(reference.getAttribute(), inText)
                : examine(reference.getType(), inText)))
        return false;
    }
    return true;
  }

  static bool isWide(Type type) {
    if (auto complex = dyn_cast<ComplexType>(type))
      type = complex.getElementType();
    auto number = dyn_cast<FloatType>(type);
    return number && number.getWidth() > 64;
  }

  /// Whether it is what text loses.
  static bool isFragile(Attribute attribute) {
    if (isa<DistinctAttr, DenseResourceElementsAttr>(attribute))
      return true;
    if (auto number = dyn_cast<FloatAttr>(attribute))
      return isWide(number.getType()) || number.getValue().isNaN();
    if (auto dense = dyn_cast<DenseElementsAttr>(attribute))
      return isWide(dense.getElementType());
    return false;
  }
  static bool isFragile(Type) { return false; }

  /// Whether things may nest in it more than a few levels deep.
  static bool mayNest(Attribute attribute) {
    if (auto string = dyn_cast<StringAttr>(attribute))
      return !isa<NoneType>(string.getType());
    return !isa<IntegerAttr, FloatAttr, SymbolRefAttr, UnitAttr, UnknownLoc,
                FileLineColRange>(attribute);
  }
  static bool mayNest(Type type) {
    return !isa<IntegerType, FloatType, IndexType, NoneType>(type);
  }

  template <typename AttributeOrType>
  bool examine(AttributeOrType value, bool inText) {
    summary.mayLose |= inText && isFragile(value);
    bool isText = inText;
    if (!isa<BuiltinDialect>(value.getDialect())) {
      noteDialect(&value.getDialect());
      codec::Record record;
      absl::Status encoded;
      if constexpr (std::is_same_v<AttributeOrType, Type>)
        encoded = codec::encodeStructure(value, record);
      else
        encoded = codec::encode(value, record);
      codec::Tag tag = encoded.ok()
                           ? static_cast<codec::Tag>(record.bytes.front())
                           : codec::Tag::PrintedAttribute;
      // All else is text, also what has an encoding here and not in MLIR.
      isText |=
          tag != codec::Tag::DialectAttribute && tag != codec::Tag::DialectType;
      if (isText && !inText && !measureText(value))
        return false;
      bool isPrinted =
          tag == codec::Tag::PrintedAttribute || tag == codec::Tag::PrintedType;
      // Also numbers that the dialect prints without an attribute around them.
      summary.mayLose |=
          !encoded.ok() ||
          (isPrinted && (!record.handles.empty() || hasPrintedFloat(record)));
      for (Reference reference : record.references)
        if (reference.kind != Reference::Kind::Bytes)
          add(reference, isText);
    }
    if constexpr (std::is_same_v<AttributeOrType, Attribute>) {
      if (auto map = dyn_cast<AffineMapAttr>(value))
        measureExpressions(map.getValue().getResults());
      else if (auto set = dyn_cast<IntegerSetAttr>(value))
        measureExpressions(set.getValue().getConstraints());
    }
    if (!isText && mayNest(value))
      nesting.push_back(Reference::to(value));
    value.walkImmediateSubElements(
        [&](Attribute part) { add(Reference::to(part), isText); },
        [&](Type part) { add(Reference::to(part), isText); });
    return true;
  }

  /// Whether the text has the mark of a number: see `codec::encode`.
  static bool hasPrintedFloat(const codec::Record &record) {
    for (size_t i = 1; i < record.bytes.size(); ++i)
      if (record.bytes[i - 1] == 1 && record.bytes[i] == 'f')
        return true;
    return false;
  }

  template <typename AttributeOrType>
  bool measureText(AttributeOrType value) {
    codec::TextSize size = measure.measure(Reference::to(value));
    textDepth = std::max(textDepth, size.depth);
    texts.insert(value.getAsOpaquePointer());
    if (size.isReasonable())
      return true;
    status = absl::FailedPreconditionError(absl::StrCat(
        "cannot serialize the operation: ", nameOf(current), " has ",
        codec::describe(value),
        ", which MLIR's bytecode holds as text; with each part as often as it "
        "occurs, that would be ",
        size.parts, " attributes and types, of which ", size.repeated,
        " are repeated, and not at most ", size.getMaxRepeated()));
    return false;
  }

  /// Of affine expressions, which are always text.
  void measureExpressions(ArrayRef<AffineExpr> expressions) {
    SmallVector<AffineExpr> path;
    for (AffineExpr expression : expressions) {
      for (path.push_back(expression); !path.empty();) {
        AffineExpr top = path.back();
        auto binary = dyn_cast<AffineBinaryOpExpr>(top);
        uint64_t depth = 0;
        bool isKnown = true;
        if (binary)
          for (AffineExpr side : {binary.getLHS(), binary.getRHS()}) {
            auto known = expressionDepths.find(side);
            if (known != expressionDepths.end())
              depth = std::max(depth, known->second);
            else
              path.push_back(side);
            isKnown &= known != expressionDepths.end();
          }
        if (!isKnown)
          continue;
        path.pop_back();
        expressionDepths[top] = depth + 1;
      }
      expressionDepth = std::max(expressionDepth, expressionDepths[expression]);
    }
  }

  /// How deep attributes and types nest that MLIR writes as numbers of others.
  uint64_t measureDepth() {
    // Most modules have few that could nest.
    constexpr uint64_t few = 64, flat = 4;
    if (nesting.size() <= few)
      return nesting.size() + flat;
    struct Frame {
      const void *value;
      std::vector<Reference> parts;
      uint64_t depth;
    };
    llvm::DenseMap<const void *, uint64_t> depths;
    std::vector<Frame> path;
    auto open = [&](Reference value) {
      // Also ends what comes back to itself.
      depths[value.pointer] = 1;
      path.push_back({value.pointer, {}, 0});
      codec::appendPrintedParts(value, path.back().parts);
    };
    uint64_t deepest = 0;
    for (Reference start : nesting) {
      if (depths.contains(start.pointer))
        continue;
      for (open(start); !path.empty();) {
        Frame &top = path.back();
        if (top.parts.empty()) {
          uint64_t depth = depths[top.value] = top.depth + 1;
          deepest = std::max(deepest, depth);
          path.pop_back();
          if (!path.empty())
            path.back().depth = std::max(path.back().depth, depth);
          continue;
        }
        Reference part = top.parts.back();
        top.parts.pop_back();
        if (texts.contains(part.pointer))
          continue;
        if (auto known = depths.find(part.pointer); known != depths.end())
          top.depth = std::max(top.depth, known->second);
        else
          open(part);
      }
    }
    return deepest + flat;
  }

  Operation *const root;
  const bool includesLocations;
  /// Whose attributes and types are being added.
  Operation *current = nullptr;
  WritingSummary summary;
  Dialect *latestDialect = nullptr;
  uint64_t regionDepth = 0, textDepth = 0, expressionDepth = 0;
  llvm::DenseMap<AffineExpr, uint64_t> expressionDepths;
  /// The last region that saw another one, and that one.
  Region *lastUser = nullptr, *lastSeen = nullptr;
  PointerTable<uint8_t> states;
  PointerTable<OperationInfo> infos;
  std::vector<std::pair<Reference, bool>> queue;
  /// What is not text and may have other things in it.
  std::vector<Reference> nesting;
  /// What is text, and no part of another one.
  llvm::DenseSet<const void *> texts;
  codec::TextMeasure measure;
};

} // namespace

absl::StatusOr<WritingSummary> checkWriting(Operation *op,
                                            bool includeLocations) {
  Checker checker(op, includeLocations);
  if (checker.run(/*oneByOne=*/false))
    return checker.summarize();
  // Once more: an attribute does not tell which operation has it.
  Checker again(op, includeLocations);
  return again.run(/*oneByOne=*/true) ? checker.status : again.status;
}

} // namespace ctxpool::detail

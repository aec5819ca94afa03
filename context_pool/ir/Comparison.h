//===- Comparison.h - Two operations side by side ---------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_IR_COMPARISON_H
#define CONTEXT_POOL_IR_COMPARISON_H

#include "context_pool/Equivalence.h"
#include "context_pool/ir/OperationInfo.h"
#include "context_pool/ir/PointerTable.h"
#include "context_pool/ir/Symbols.h"

#include "context_pool/codec/Encoder.h"
#include "context_pool/codec/SinkWriter.h"

#include "absl/status/status.h"
#include "mlir/IR/Block.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ctxpool::detail {

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
  mlir::Operation *lhs = nullptr;
  mlir::Operation *rhs = nullptr;
  mlir::Block *lhsBlock = nullptr;
  mlir::Block *rhsBlock = nullptr;
  /// Of the operand, result, argument, successor or region.
  unsigned index = 0;
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
  Comparison(mlir::Operation *lhs, mlir::Operation *rhs,
             const StructuralOptions &which)
      : lhsRoot(lhs), rhsRoot(rhs), options(which),
        lhsSymbols(lhs, which.symbols), rhsSymbols(rhs, which.symbols),
        lhsEmpty(mlir::DictionaryAttr::get(lhs->getContext())),
        rhsEmpty(mlir::DictionaryAttr::get(rhs->getContext())) {}

  bool run();

  /// Why `run` was false.
  absl::Status describe();

private:
  using Kind = Difference::Kind;

  /// Properties, or some attributes of an operation, as one record.
  struct Properties {
    codec::Record record;
    codec::RecordSink sink{record};

    codec::RecordSink &begin() {
      record.clear();
      sink.status = absl::OkStatus();
      return sink;
    }
  };

  struct Level {
    mlir::Operation *lhs, *rhs;
    unsigned region;
    mlir::Block *lhsBlock, *rhsBlock;
    mlir::Block::iterator lhsNext, rhsNext;
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
  Answer isSameSmall(mlir::Attribute lhs, mlir::Attribute rhs);

  bool isSame(codec::Reference lhs, codec::Reference rhs) {
    if (!lhs.pointer || !rhs.pointer)
      return lhs.pointer == rhs.pointer;
    if (lhs.kind == codec::Reference::Kind::Attribute &&
        rhs.kind == codec::Reference::Kind::Attribute) {
      Answer answer = isSameSmall(lhs.getAttribute(), rhs.getAttribute());
      if (answer != Answer::Unknown)
        return answer == Answer::Yes;
    }
    if (auto *known = pairs.find(lhs.pointer))
      if (known->pointer == rhs.pointer)
        return true;
    return isSameSlow(lhs, rhs);
  }
  bool isSame(mlir::Attribute lhs, mlir::Attribute rhs) {
    return isSame(codec::Reference::to(lhs), codec::Reference::to(rhs));
  }
  bool isSame(mlir::Type lhs, mlir::Type rhs) {
    return isSame(codec::Reference::to(lhs), codec::Reference::to(rhs));
  }
  bool isSameSlow(codec::Reference lhs, codec::Reference rhs);
  bool encode(codec::Reference reference, mlir::Operation *user,
              Symbols &symbols, codec::Record &record);
  bool isSameDistinct(const void *lhs, const void *rhs);

  bool isSameUse(const void *lhs, mlir::Type lhsType, const void *rhs,
                 mlir::Type rhsType, unsigned index);
  bool define(const void *lhs, const void *rhs);

  bool compareOperations(mlir::Operation *lhs, mlir::Operation *rhs);
  bool compareProperties(const Name &name, bool nameless);
  bool compareRecords(codec::Record &lhs, codec::Record &rhs);
  bool enterRegion(Level &level);
  bool enterBlock(Level &level, mlir::Block *lhs, mlir::Block *rhs);
  bool step();
  bool comparePending();

  std::string describePath(mlir::Operation *op);
  std::string versus(mlir::Attribute lhs, mlir::Attribute rhs);
  std::string versus(mlir::Type lhs, mlir::Type rhs);
  std::string describeDifference();
  std::string describeAttributes(DictionaryFilter &lhs, DictionaryFilter &rhs);
  std::string describeProperties();
  std::string describeProperties(mlir::Attribute lhs, mlir::Attribute rhs,
                                 bool nameless);

  mlir::Operation *lhsRoot, *rhsRoot;
  StructuralOptions options;
  Symbols lhsSymbols, rhsSymbols;
  mlir::DictionaryAttr lhsEmpty, rhsEmpty;
  Difference difference;
  absl::Status status;

  /// The operations that hold what is being compared.
  mlir::Operation *lhsUser = nullptr;
  mlir::Operation *rhsUser = nullptr;

  PointerTable<Name> names;
  /// Attributes and types found equal: the last partner of each of the left's.
  PointerTable<Partner> pairs;
  /// Values and blocks.
  PointerTable<Partner, 6> values;
  /// Those used before their definition, from the right's side.
  struct Pending {
    const void *lhs;
    mlir::Type lhsType, rhsType;
    /// The first use.
    mlir::Operation *lhsUser, *rhsUser;
    unsigned index;
  };
  llvm::DenseMap<const void *, Pending> pending;
  llvm::DenseMap<const void *, const void *> distinctOfLhs, distinctOfRhs;
  /// Pairs of which the left one has another partner by now.
  std::set<std::pair<const void *, const void *>> otherPairs;
  std::vector<Level> levels;
  Properties lhsProperties, rhsProperties;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_IR_COMPARISON_H

//===- TransferTestSupport.cpp - What a copy of a module has to be --------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/transfer/TransferTestSupport.h"

#include "test/support/StatusMatchers.h"
#include "test/support/TestFiles.h"

#include "mlir/Bytecode/BytecodeImplementation.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/DenseMap.h"

using namespace mlir;

namespace ctxpool::test {
namespace {

/// Every operation of both, in one order, without recursion.
void collect(Operation *root, std::vector<Operation *> &operations,
             std::vector<Block *> &blocks) {
  std::vector<Operation *> stack{root};
  while (!stack.empty()) {
    Operation *op = stack.back();
    stack.pop_back();
    operations.push_back(op);
    for (Region &region : op->getRegions())
      for (Block &block : region) {
        blocks.push_back(&block);
        for (Operation &nested : block)
          stack.push_back(&nested);
      }
  }
}

template <typename Range>
std::vector<std::pair<size_t, unsigned>>
usesOf(Range uses, const llvm::DenseMap<Operation *, size_t> &places) {
  std::vector<std::pair<size_t, unsigned>> result;
  for (auto &use : uses)
    if (places.count(use.getOwner()))
      result.push_back({places.lookup(use.getOwner()), use.getOperandNumber()});
  return result;
}

struct NotedVersion : DialectVersion {};

/// Marks each operation of its dialect that it upgrades.
struct UpgradeInterface : BytecodeDialectInterface {
  explicit UpgradeInterface(Dialect *dialect)
      : BytecodeDialectInterface(dialect) {}
  void writeVersion(DialectBytecodeWriter &writer) const override {
    writer.writeVarInt(1);
  }
  std::unique_ptr<DialectVersion>
  readVersion(DialectBytecodeReader &reader) const override {
    uint64_t version;
    if (failed(reader.readVarInt(version)))
      return nullptr;
    return std::make_unique<NotedVersion>();
  }
  LogicalResult upgradeFromVersion(Operation *top,
                                   const DialectVersion &) const override {
    top->walk([&](Operation *op) {
      if (op->getDialect() == getDialect())
        op->setAttr("upgraded", UnitAttr::get(op->getContext()));
    });
    return success();
  }
};

struct VersionedDialect : Dialect {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(VersionedDialect)
  static constexpr llvm::StringLiteral getDialectNamespace() {
    return llvm::StringLiteral("versioned");
  }
  explicit VersionedDialect(MLIRContext *context)
      : Dialect(getDialectNamespace(), context,
                TypeID::get<VersionedDialect>()) {
    addInterfaces<UpgradeInterface>();
    allowUnknownOperations();
  }
};

} // namespace

std::string sampleText() {
  return readFile(sourceDir() / "bench" / "modules" / "attention.mlir");
}

std::string compareUseLists(Operation *lhs, Operation *rhs) {
  std::vector<Operation *> left, right;
  std::vector<Block *> leftBlocks, rightBlocks;
  collect(lhs, left, leftBlocks);
  collect(rhs, right, rightBlocks);
  if (left.size() != right.size() || leftBlocks.size() != rightBlocks.size())
    return "another number of operations";
  llvm::DenseMap<Operation *, size_t> leftPlaces, rightPlaces;
  for (size_t i = 0; i != left.size(); ++i) {
    leftPlaces[left[i]] = i;
    rightPlaces[right[i]] = i;
  }
  for (size_t i = 0; i != left.size(); ++i)
    for (auto [from, to] :
         llvm::zip(left[i]->getResults(), right[i]->getResults()))
      if (usesOf(from.getUses(), leftPlaces) !=
          usesOf(to.getUses(), rightPlaces))
        return "uses of a result of " + left[i]->getName().getStringRef().str();
  for (size_t i = 0; i != leftBlocks.size(); ++i) {
    if (usesOf(leftBlocks[i]->getUses(), leftPlaces) !=
        usesOf(rightBlocks[i]->getUses(), rightPlaces))
      return "predecessors of a block";
    for (auto [from, to] : llvm::zip(leftBlocks[i]->getArguments(),
                                     rightBlocks[i]->getArguments()))
      if (usesOf(from.getUses(), leftPlaces) !=
          usesOf(to.getUses(), rightPlaces))
        return "uses of a block argument";
  }
  return {};
}

bool verifies(Operation *op) {
  ScopedDiagnosticHandler quiet(op->getContext(), [](Diagnostic &) {});
  return succeeded(verify(op));
}

void expectFaithful(Operation *source, Operation *copy, bool sameText) {
  StructuralOptions located;
  located.includeLocations = true;
  EXPECT_THAT(checkEquivalence(source, copy, located), IsOk());
  EXPECT_EQ(digestOf(source, located), digestOf(copy, located));
  EXPECT_EQ(compareUseLists(source, copy), "");
  EXPECT_EQ(verifies(source), verifies(copy));
  if (sameText) {
    EXPECT_EQ(genericText(source, true), genericText(copy, true));
  }
}

void loadVersionedDialect(MLIRContext &context) {
  context.loadDialect<VersionedDialect>();
}

} // namespace ctxpool::test

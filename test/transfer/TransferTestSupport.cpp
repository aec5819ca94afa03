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

#include "mlir/IR/Diagnostics.h"
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

} // namespace ctxpool::test

//===- IrTestSupport.cpp - Contexts, modules and mutations ----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/ir/IrTestSupport.h"

#include "test/support/TestContexts.h"

#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

using namespace mlir;

namespace ctxpool::test {

std::unique_ptr<MLIRContext> makeContext() {
  auto context = fullTemplate()->clone();
  EXPECT_TRUE(context.ok()) << context.status().ToString();
  (*context)->allowUnregisteredDialects();
  return *std::move(context);
}

std::unique_ptr<MLIRContext> makeDirtyContext() {
  std::unique_ptr<MLIRContext> first = makeContext();
  auto context = std::make_unique<MLIRContext>(
      first->getDialectRegistry(), MLIRContext::Threading::DISABLED);
  context->allowUnregisteredDialects();
  std::vector<std::string> names;
  for (llvm::StringRef name : context->getAvailableDialects())
    names.push_back(name.str());
  // Nothing was loaded but builtin; the other context loads in another order.
  std::sort(names.rbegin(), names.rend());
  for (const std::string &name : names)
    context->getOrLoadDialect(name);
  Builder builder(context.get());
  for (int i = 0; i != 500; ++i) {
    builder.getI32IntegerAttr(i * 3);
    builder.getStringAttr("junk" + std::to_string(i));
    RankedTensorType::get({i, 2}, builder.getF16Type());
    DistinctAttr::create(builder.getUnitAttr());
  }
  parse(*context, R"(
    module attributes {t.w = dense_resource<w> : tensor<4xi8>} {
      func.func @junk(%a: i64) -> i64 { return %a : i64 }
    }
    {-# dialect_resources: { builtin: { w: "0x0100000009090909" } } #-})");
  return context;
}

OwningOpRef<ModuleOp> tryParse(MLIRContext &context, llvm::StringRef text) {
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) {});
  return parseSourceString<ModuleOp>(
      text, ParserConfig(&context, /*verifyAfterParse=*/false));
}

OwningOpRef<ModuleOp> parse(MLIRContext &context, llvm::StringRef text) {
  std::string messages;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    messages += diagnostic.str() + "\n";
  });
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(
      text, ParserConfig(&context, /*verifyAfterParse=*/false));
  EXPECT_TRUE(module) << messages << text.substr(0, 400).str();
  return module;
}

Fingerprint digestOf(Operation *op, const StructuralOptions &options) {
  absl::StatusOr<Fingerprint> digest = fingerprint(op, options);
  EXPECT_TRUE(digest.ok()) << digest.status().ToString();
  return digest.ok() ? *digest : Fingerprint();
}

bool isSame(Operation *lhs, Operation *rhs, const StructuralOptions &options) {
  bool sameDigest = digestOf(lhs, options) == digestOf(rhs, options);
  absl::Status compared = checkEquivalence(lhs, rhs, options);
  EXPECT_EQ(sameDigest, compared.ok()) << compared.ToString();
  EXPECT_EQ(sameDigest, isEquivalent(lhs, rhs, options));
  EXPECT_EQ(sameDigest, isEquivalent(rhs, lhs, options));
  return sameDigest;
}

std::string genericText(Operation *op, bool locations) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  OpPrintingFlags flags;
  flags.printGenericOpForm().useLocalScope();
  if (locations)
    flags.enableDebugInfo(/*enable=*/true, /*prettyForm=*/false);
  op->print(stream, flags);
  return text;
}

OwningOpRef<ModuleOp> throughBytecode(ModuleOp module, MLIRContext &context,
                                      int version) {
  std::string bytes;
  llvm::raw_string_ostream stream(bytes);
  BytecodeWriterConfig config("context_pool tests");
  config.setDesiredBytecodeVersion(version);
  if (failed(writeBytecodeToFile(module, stream, config)))
    return nullptr;
  stream.flush();
  // Resources are aligned in the file, and so has to be the file in memory.
  std::unique_ptr<llvm::WritableMemoryBuffer> buffer =
      llvm::WritableMemoryBuffer::getNewUninitMemBuffer(
          bytes.size(), "bytecode", llvm::Align(4096));
  std::copy(bytes.begin(), bytes.end(), buffer->getBufferStart());
  llvm::SourceMgr sourceMgr;
  sourceMgr.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) {});
  return parseSourceFile<ModuleOp>(
      sourceMgr, ParserConfig(&context, /*verifyAfterParse=*/false));
}

void shuffleUseLists(Operation *op, std::mt19937_64 &random) {
  auto shuffle = [&](Value value) {
    unsigned uses = std::distance(value.use_begin(), value.use_end());
    if (uses < 2)
      return;
    SmallVector<unsigned> order(uses);
    for (unsigned i = 0; i != uses; ++i)
      order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    value.shuffleUseList(order);
  };
  op->walk([&](Operation *inner) {
    for (Value result : inner->getResults())
      shuffle(result);
    for (Region &region : inner->getRegions())
      for (Block &block : region)
        for (Value argument : block.getArguments())
          shuffle(argument);
  });
}

std::string mutate(ModuleOp module, std::mt19937_64 &random, bool locations) {
  SmallVector<Operation *> operations;
  module->walk([&](Operation *op) { operations.push_back(op); });
  auto upTo = [&](size_t bound) { return size_t(random() % bound); };
  Builder builder(module.getContext());

  auto changed = [&](Attribute attribute) -> Attribute {
    if (auto integer = dyn_cast<IntegerAttr>(attribute))
      return IntegerAttr::get(integer.getType(), integer.getValue() + 1);
    if (auto number = dyn_cast<FloatAttr>(attribute)) {
      APFloat value = number.getValue();
      value.changeSign();
      return FloatAttr::get(number.getType(), value);
    }
    if (auto string = dyn_cast<StringAttr>(attribute))
      return StringAttr::get(Twine(string.getValue()) + "x", string.getType());
    if (auto array = dyn_cast<ArrayAttr>(attribute)) {
      SmallVector<Attribute> elements(array.begin(), array.end());
      elements.push_back(builder.getUnitAttr());
      return builder.getArrayAttr(elements);
    }
    if (auto array = dyn_cast<DenseI64ArrayAttr>(attribute)) {
      SmallVector<int64_t> elements(array.asArrayRef());
      elements.push_back(1);
      return builder.getDenseI64ArrayAttr(elements);
    }
    if (auto symbol = dyn_cast<FlatSymbolRefAttr>(attribute))
      return FlatSymbolRefAttr::get(module.getContext(),
                                    (symbol.getValue() + "_x").str());
    if (auto type = dyn_cast<TypeAttr>(attribute))
      return TypeAttr::get(
          TupleType::get(module.getContext(), type.getValue()));
    return Attribute();
  };

  for (unsigned attempt = 0; attempt != 64; ++attempt) {
    Operation *op = operations[upTo(operations.size())];
    std::string name = op->getName().getStringRef().str();
    switch (upTo(locations ? 17 : 15)) {
    case 0:
      op->setDiscardableAttr("test.added", builder.getI8IntegerAttr(upTo(4)));
      return "add an attribute to " + name;
    case 1: {
      SmallVector<NamedAttribute> attributes(op->getDiscardableAttrs());
      if (attributes.empty())
        continue;
      NamedAttribute entry = attributes[upTo(attributes.size())];
      if (Attribute other = changed(entry.getValue())) {
        op->setDiscardableAttr(entry.getName(), other);
        return "change attribute " + entry.getName().str() + " of " + name;
      }
      op->removeDiscardableAttr(entry.getName());
      return "drop attribute " + entry.getName().str() + " of " + name;
    }
    case 2: {
      ArrayRef<StringAttr> names = op->getName().isRegistered()
                                       ? op->getName().getAttributeNames()
                                       : ArrayRef<StringAttr>();
      if (names.empty())
        continue;
      StringAttr inherent = names[upTo(names.size())];
      std::optional<Attribute> value = op->getInherentAttr(inherent);
      if (!value || !*value)
        continue;
      Attribute other = changed(*value);
      // A class of attribute that the property does not take would be dropped
      // where the property may be absent, and else leave a null behind.
      if (!other || other.getTypeID() != value->getTypeID())
        continue;
      op->setInherentAttr(inherent, other);
      std::optional<Attribute> now = op->getInherentAttr(inherent);
      if (!now || !*now) {
        op->setInherentAttr(inherent, *value);
        continue;
      }
      return "change property " + inherent.str() + " of " + name;
    }
    case 3: {
      if (op == module || !op->use_empty() || op->getNumSuccessors() != 0)
        continue;
      bool usedInside = false;
      for (Region &region : op->getRegions())
        usedInside |= !region.empty();
      if (usedInside)
        continue;
      op->erase();
      return "erase " + name;
    }
    case 4: {
      if (op->getNumOperands() < 2)
        continue;
      unsigned i = upTo(op->getNumOperands()), j = upTo(op->getNumOperands());
      Value left = op->getOperand(i), right = op->getOperand(j);
      op->setOperand(i, right);
      op->setOperand(j, left);
      return "swap operands of " + name;
    }
    case 5: {
      if (op->getNumResults() == 0)
        continue;
      OpResult result = op->getResult(upTo(op->getNumResults()));
      result.setType(isa<IndexType>(result.getType())
                         ? Type(builder.getI32Type())
                         : Type(builder.getIndexType()));
      return "change a result type of " + name;
    }
    case 6: {
      if (op == module)
        continue;
      OperationState state(op->getLoc(), "test.inserted");
      if (upTo(2))
        state.addTypes(builder.getI1Type());
      Operation *inserted = Operation::create(state);
      op->getBlock()->getOperations().insert(Block::iterator(op), inserted);
      return "insert before " + name;
    }
    case 7: {
      if (op == module || !op->getPrevNode())
        continue;
      op->moveBefore(op->getPrevNode());
      return "move up " + name;
    }
    case 8:
    case 9: {
      if (op == module || op->getNumRegions() == 0)
        continue;
      Region &region = op->getRegion(upTo(op->getNumRegions()));
      if (region.empty())
        continue;
      Block &block = *std::next(
          region.begin(), upTo(std::distance(region.begin(), region.end())));
      if (block.getNumArguments() == 0 || upTo(2)) {
        block.addArgument(builder.getI16Type(), op->getLoc());
        return "add a block argument in " + name;
      }
      BlockArgument argument = block.getArgument(upTo(block.getNumArguments()));
      argument.setType(isa<IndexType>(argument.getType())
                           ? Type(builder.getI32Type())
                           : Type(builder.getIndexType()));
      return "change the type of a block argument in " + name;
    }
    case 10: {
      if (op->getNumSuccessors() < 2)
        continue;
      Block *first = op->getSuccessor(0);
      op->setSuccessor(op->getSuccessor(1), 0);
      op->setSuccessor(first, 1);
      return "swap successors of " + name;
    }
    case 11: {
      if (op->getNumOperands() == 0)
        continue;
      // Another value of the same block or its arguments, earlier or later.
      Block *block = op->getBlock();
      SmallVector<Value> candidates(block->getArguments().begin(),
                                    block->getArguments().end());
      unsigned seen = 0;
      for (Operation &other : *block) {
        if (++seen > 64 || &other == op)
          break;
        candidates.append(other.result_begin(), other.result_end());
      }
      if (candidates.empty())
        continue;
      op->setOperand(upTo(op->getNumOperands()),
                     candidates[upTo(candidates.size())]);
      return "replace an operand of " + name;
    }
    case 12: {
      if (op == module || op->getNumRegions() < 2)
        continue;
      // The bodies of two regions change places.
      Region other;
      other.takeBody(op->getRegion(0));
      op->getRegion(0).takeBody(op->getRegion(1));
      op->getRegion(1).takeBody(other);
      return "swap regions of " + name;
    }
    case 13: {
      if (op == module)
        continue;
      Region *region = op->getParentRegion();
      if (region->hasOneBlock())
        continue;
      Block &last = region->back();
      if (&last == &region->front() || last.getPrevNode() == &region->front())
        continue;
      last.moveBefore(last.getPrevNode());
      return "move up the last block around " + name;
    }
    case 14: {
      if (op == module || op->getNumRegions() == 0)
        continue;
      Region &region = op->getRegion(upTo(op->getNumRegions()));
      region.push_back(new Block());
      return "add an empty block to " + name;
    }
    case 15:
      op->setLoc(FileLineColLoc::get(builder.getStringAttr("test.mlir"),
                                     upTo(3), upTo(3)));
      return "change the location of " + name;
    case 16: {
      Block *block = op->getBlock();
      if (!block || block->getNumArguments() == 0)
        continue;
      block->getArgument(upTo(block->getNumArguments()))
          .setLoc(FileLineColLoc::get(builder.getStringAttr("test.mlir"),
                                      upTo(3), upTo(3)));
      return "change the location of a block argument";
    }
    }
  }
  return "";
}

} // namespace ctxpool::test

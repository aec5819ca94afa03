//===- ReadingInPartsTest.cpp - Isolated operations read afterwards -------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ModuleTransfer.h"
#include "context_pool/ir/BytecodeCheck.h"
#include "test/ir/IrTestSupport.h"
#include "test/support/StatusMatchers.h"
#include "test/transfer/TransferTestSupport.h"

#include "mlir/Bytecode/BytecodeReader.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

/// Reads as MLIR does.
OwningOpRef<Operation *> readWithMlir(const SerializedModule &bytes,
                                      MLIRContext &context) {
  Block block;
  EXPECT_TRUE(succeeded(
      readBytecodeFile(llvm::MemoryBufferRef(bytes.getBytes(), "test"), &block,
                       ParserConfig(&context, /*verifyAfterParse=*/false))));
  Operation *op = &block.front();
  op->remove();
  return op;
}

class ReadingInPartsTest : public TransferTest {
protected:
  /// Expects of the module's bytes what the flag says, and the module that
  /// MLIR's reader makes of them.
  void expectRead(Operation *module, bool inParts) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(module));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        summary, ctxpool::detail::checkBytecode(bytes.getBytes()));
    EXPECT_EQ(summary.readsInParts(), inParts);
    OwningOpRef<Operation *> expected = readWithMlir(bytes, *destination);
    for (bool verified : {false, true}) {
      DeserializeOptions options;
      options.verify = verified;
      CTXPOOL_ASSERT_OK_AND_ASSIGN(read,
                                   deserialize(bytes, *destination, options));
      expectFaithful(*expected, *read);
      // What is a part of something else has other numbers there.
      expectFaithful(module, *read, /*sameText=*/!module->getParentOp());
    }
  }
};

TEST_F(ReadingInPartsTest, UsesAfterTheirDefinitionsNeedNoSorting) {
  auto module = parse(*source, sampleText());
  expectRead(*module, true);
}

TEST_F(ReadingInPartsTest, IsolatedOperationsInEachOtherAreAllRead) {
  auto module = parse(*source, R"(
    module {
      module {
        func.func @f(%a: i32) -> i32 {
          %0 = "t.isolating"() ({
            func.func @g(%b: i32) -> i32 {
              %1 = arith.addi %b, %b : i32
              return %1 : i32
            }
          }) : () -> i32
          %2 = arith.addi %0, %a : i32
          return %2 : i32
        }
      }
      func.func @h() { return }
    })");
  expectRead(*module, true);
  // The outermost one is not isolated.
  Operation &outer = *module->getBody()
                          ->front()
                          .getRegion(0)
                          .front()
                          .front()
                          .getRegion(0)
                          .front()
                          .begin();
  expectRead(&outer, true);
}

TEST_F(ReadingInPartsTest, UsesBeforeTheirDefinitionAreSorted) {
  // MLIR's reader turns them round where it meets the definition.
  expectRead(*parse(*source, R"(
    "t.graph"() ({
      "t.use"(%0, %0) : (i32, i32) -> ()
      "t.use"(%0) : (i32) -> ()
      %0 = "t.def"() : () -> i32
      "t.use"(%0) : (i32) -> ()
    }) : () -> ())"),
             false);
  // Of an argument of a block that comes later in the text.
  expectRead(*parse(*source, R"(
    func.func @f() -> i32 {
      cf.br ^bb2
    ^bb1:
      %0 = arith.addi %a, %a : i32
      return %0 : i32
    ^bb2:
      %a = arith.constant 1 : i32
      cf.br ^bb1
    })"),
             false);
}

TEST_F(ReadingInPartsTest, OrdersOfUsesAreApplied) {
  auto module = parse(*source, R"(
    func.func @f(%a: i32) -> i32 {
      %0 = arith.addi %a, %a : i32
      %1 = arith.muli %0, %a : i32
      %2 = arith.subi %0, %1 : i32
      return %0 : i32
    })");
  Operation *add = nullptr;
  module->walk([&](Operation *op) {
    if (op->getName().getStringRef() == "arith.addi")
      add = op;
  });
  add->getResult(0).shuffleUseList({2, 0, 1});
  expectRead(*module, false);
}

TEST_F(ReadingInPartsTest, OrdersOfUsesOfArgumentsAreApplied) {
  auto module = parse(*source, R"(
    func.func @f(%a: i32) {
      "t.use"(%a) : (i32) -> ()
      "t.use"(%a) : (i32) -> ()
      "t.use"(%a) : (i32) -> ()
      return
    })");
  module->getBody()->front().getRegion(0).front().getArgument(0).shuffleUseList(
      {1, 2, 0});
  expectRead(*module, false);
}

TEST_F(ReadingInPartsTest, DialectsUpgradeWhatIsInIsolatedOperations) {
  loadVersionedDialect(*source);
  loadVersionedDialect(*destination);
  auto module = parse(*source, R"(
    func.func @f() {
      "versioned.op"() : () -> ()
      return
    })");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(read, deserialize(bytes, *destination));
  size_t upgraded = 0;
  read->walk([&](Operation *op) { upgraded += op->hasAttr("upgraded"); });
  EXPECT_EQ(upgraded, 1u);
}

} // namespace

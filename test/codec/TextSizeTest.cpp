//===- TextSizeTest.cpp - Rules of the sizes of texts ---------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/codec/TextSize.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMTypes.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace ctxpool::codec;

namespace {

class TextSizeTest : public testing::Test {
protected:
  template <typename AttributeOrType>
  void expectSize(AttributeOrType value, uint64_t parts, uint64_t repeated,
                  uint64_t depth) {
    TextSize size = measure.measure(Reference::to(value));
    EXPECT_EQ(size.parts, parts);
    EXPECT_EQ(size.repeated, repeated);
    EXPECT_EQ(size.depth, depth);
  }
  LLVM::LLVMStructType makeStruct(llvm::StringRef name) {
    return LLVM::LLVMStructType::getIdentified(&context, name);
  }

  void SetUp() override { context.loadDialect<LLVM::LLVMDialect>(); }

  MLIRContext context{MLIRContext::Threading::DISABLED};
  Builder builder{&context};
  Type number = builder.getI32Type();
  TextMeasure measure;
};

TEST_F(TextSizeTest, CountsPartsAsOftenAsTheyOccur) {
  expectSize(number, 1, 0, 1);
  expectSize(Attribute(builder.getArrayAttr({})), 1, 0, 1);
  Attribute unit = builder.getUnitAttr();
  Attribute pair = builder.getArrayAttr({unit, unit});
  expectSize(pair, 3, 0, 2);
  expectSize(Attribute(builder.getArrayAttr({pair, unit, pair})), 8, 2, 3);
}

TEST_F(TextSizeTest, SeesIntoNamedStructs) {
  auto inner = makeStruct("inner"), outer = makeStruct("outer");
  ASSERT_TRUE(succeeded(inner.setBody({number, number}, false)));
  ASSERT_TRUE(succeeded(outer.setBody({inner, inner}, false)));
  expectSize(Type(outer), 7, 2, 3);
}

TEST_F(TextSizeTest, EndsWhereATypeComesBackToItself) {
  auto a = makeStruct("a"), b = makeStruct("b");
  ASSERT_TRUE(succeeded(a.setBody({b, b}, false)));
  ASSERT_TRUE(succeeded(b.setBody({a, number}, false)));
  // a (b (a, i32), b (a, i32))
  expectSize(Type(a), 7, 2, 3);
  // b (a (b, b), i32)
  expectSize(Type(b), 5, 0, 3);
}

TEST_F(TextSizeTest, NumbersSaturate) {
  Type type = number;
  for (int i = 0; i != 100; ++i)
    type = LLVM::LLVMStructType::getLiteral(&context, {type, type});
  TextSize size = measure.measure(Reference::to(type));
  EXPECT_EQ(size.parts, UINT64_MAX);
  EXPECT_EQ(size.depth, 101u);
  EXPECT_FALSE(size.isReasonable());
}

} // namespace

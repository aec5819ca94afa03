//===- EquivalenceTest.cpp - The first difference and its path ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/Equivalence.h"

#include "test/ir/IrTestSupport.h"
#include "test/support/ForkedChild.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"

#include <atomic>
#include <thread>
#include <vector>

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

struct Case {
  const char *name;
  const char *lhs;
  const char *rhs;
  const char *message;
};
void PrintTo(const Case &test, std::ostream *stream) { *stream << test.name; }

class DifferenceTest : public testing::TestWithParam<Case> {};

TEST_P(DifferenceTest, IsNamedByItsPath) {
  auto context = makeContext(), other = makeContext();
  auto lhs = parse(*context, GetParam().lhs);
  auto rhs = parse(*other, GetParam().rhs);
  ASSERT_TRUE(lhs && rhs);

  absl::Status status = checkEquivalence(*lhs, *rhs);

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), GetParam().message);
}

const Case cases[] = {
    {"Property",
     R"(func.func @f(%a: f32) { %0 = arith.addf %a, %a : f32
          %1 = arith.mulf %a, %a : f32 %2 = arith.subf %a, %a : f32
          %3 = arith.addf %a, %a : f32 return })",
     R"(func.func @f(%a: f32) { %0 = arith.addf %a, %a : f32
          %1 = arith.mulf %a, %a : f32 %2 = arith.subf %a, %a : f32
          %3 = arith.addf %a, %a fastmath<fast> : f32 return })",
     "func.func @f, region 0, block 0, operation 3 (arith.addf): property "
     "'fastmath': <none> vs <fast>"},
    {"PropertyOfTheSymbol", "func.func private @f()",
     "func.func private @f(i8)",
     "func.func @f: property 'function_type': () -> () vs (i8) -> ()"},
    {"SymbolName", "func.func private @f()", "func.func private @g()",
     "func.func @f: property 'sym_name': \"f\" vs \"g\""},
    {"Name", R"("t.a"() : () -> ())", R"("t.b"() : () -> ())",
     "builtin.module, region 0, block 0, operation 0 (t.a): name: t.a vs t.b"},
    {"NestedSymbols",
     R"(module @m { func.func @f() { "t.a"() : () -> () return } })",
     R"(module @m { func.func @f() { "t.b"() : () -> () return } })",
     "builtin.module @m, func.func @f, region 0, block 0, operation 0 (t.a): "
     "name: t.a vs t.b"},
    {"NestedRegions",
     R"("t.r"() ({}, { ^a: ^b: "t.x"() : () -> () "t.x"() {k = 1 : i8}
          : () -> () }) : () -> ())",
     R"("t.r"() ({}, { ^a: ^b: "t.x"() : () -> () "t.x"() {k = 2 : i8}
          : () -> () }) : () -> ())",
     "builtin.module, region 0, block 0, operation 0 (t.r), region 1, block 1, "
     "operation 1 (t.x): attribute 'k': 1 : i8 vs 2 : i8"},
    {"AttributeOnOneSide", R"("t.a"() {k} : () -> ())", R"("t.a"() : () -> ())",
     "builtin.module, region 0, block 0, operation 0 (t.a): attribute 'k': "
     "unit "
     "vs none"},
    {"AttributeOnOtherSide", R"("t.a"() : () -> ())",
     R"("t.a"() {k} : () -> ())",
     "builtin.module, region 0, block 0, operation 0 (t.a): attribute 'k': "
     "none "
     "vs unit"},
    {"OperandCount", R"(%0 = "t.a"() : () -> i1 "t.u"(%0) : (i1) -> ())",
     R"(%0 = "t.a"() : () -> i1 "t.u"(%0, %0) : (i1, i1) -> ())",
     "builtin.module, region 0, block 0, operation 1 (t.u): 1 operand vs 2"},
    {"Operand", R"(%0:2 = "t.a"() : () -> (i1, i1) "t.u"(%0#0) : (i1) -> ())",
     R"(%0:2 = "t.a"() : () -> (i1, i1) "t.u"(%0#1) : (i1) -> ())",
     "builtin.module, region 0, block 0, operation 1 (t.u): operand 0: result "
     "0 "
     "of operation 0 (t.a) in region 0, block 0 vs result 1 of operation 0 "
     "(t.a) "
     "in region 0, block 0"},
    {"OperandArgument",
     "func.func @f(%a: i32, %b: i32) -> i32 { return %a : i32 }",
     "func.func @f(%a: i32, %b: i32) -> i32 { return %b : i32 }",
     "func.func @f, region 0, block 0, operation 0 (func.return): operand 0: "
     "argument 0 of region 0, block 0 vs argument 1 of region 0, block 0"},
    {"ResultCount", R"("t.a"() : () -> i1)", R"("t.a"() : () -> (i1, i1))",
     "builtin.module, region 0, block 0, operation 0 (t.a): 1 result vs 2"},
    {"ResultType", R"("t.a"() : () -> i1)", R"("t.a"() : () -> i2)",
     "builtin.module, region 0, block 0, operation 0 (t.a): type of result 0: "
     "i1 vs i2"},
    {"RegionCount", R"("t.a"() ({}) : () -> ())", R"("t.a"() : () -> ())",
     "builtin.module, region 0, block 0, operation 0 (t.a): 1 region vs 0"},
    {"BlockCount", R"("t.a"() ({ ^a: }) : () -> ())",
     R"("t.a"() ({ ^a: ^b: }) : () -> ())",
     "builtin.module, region 0, block 0, operation 0 (t.a): region 0: 1 block "
     "vs 2"},
    {"ArgumentCount", R"("t.a"() ({ ^a(%0: i1): }) : () -> ())",
     R"("t.a"() ({ ^a: }) : () -> ())",
     "builtin.module, region 0, block 0, operation 0 (t.a), region 0, block 0: "
     "1 "
     "argument vs 0"},
    {"ArgumentType", R"("t.a"() ({ ^a(%0: i1): }) : () -> ())",
     R"("t.a"() ({ ^a(%0: i2): }) : () -> ())",
     "builtin.module, region 0, block 0, operation 0 (t.a), region 0, block 0: "
     "type of argument 0: i1 vs i2"},
    {"OperationCount", R"("t.a"() ({ "t.b"() : () -> () }) : () -> ())",
     R"("t.a"() ({ "t.b"() : () -> () "t.b"() : () -> () }) : () -> ())",
     "builtin.module, region 0, block 0, operation 0 (t.a), region 0, block 0: "
     "1 "
     "operation vs 2"},
    {"Successor",
     R"("t.r"() ({ ^a: "t.b"()[^b] : () -> () ^b: ^c: }) : () -> ())",
     R"("t.r"() ({ ^a: "t.b"()[^c] : () -> () ^b: ^c: }) : () -> ())",
     "builtin.module, region 0, block 0, operation 0 (t.r), region 0, block 0, "
     "operation 0 (t.b): successor 0: region 0, block 1 vs region 0, block 2"},
    {"UnregisteredProperty", R"("t.a"() <{k = "x"}> : () -> ())",
     R"("t.a"() <{k = "y"}> : () -> ())",
     "builtin.module, region 0, block 0, operation 0 (t.a): property 'k': "
     "\"x\" "
     "vs \"y\""},
    {"NativeProperty",
     R"(%0 = "t.i"() : () -> index
        %1 = "memref.alloc"(%0, %0) <{operandSegmentSizes = array<i32: 1, 1>}>
          : (index, index) -> memref<?xf32>)",
     R"(%0 = "t.i"() : () -> index
        %1 = "memref.alloc"(%0, %0) <{operandSegmentSizes = array<i32: 2, 0>}>
          : (index, index) -> memref<?xf32>)",
     "builtin.module, region 0, block 0, operation 1 (memref.alloc): property "
     "'operandSegmentSizes': array<i32: 1, 1> vs array<i32: 2, 0>"},
    {"NativeEnumeration",
     R"(llvm.func @f(%a: i32) { %0 = llvm.add %a, %a overflow<nsw> : i32
          llvm.return })",
     R"(llvm.func @f(%a: i32) { %0 = llvm.add %a, %a overflow<nuw> : i32
          llvm.return })",
     "llvm.func @f, region 0, block 0, operation 0 (llvm.add): property "
     "'overflowFlags': 1 : i32 vs 2 : i32"},
    {"DistinctIdentity",
     R"(module attributes {t.j = distinct[0]<1 : i8>, t.k = distinct[0]<1 : i8>} {})",
     R"(module attributes {t.j = distinct[0]<1 : i8>, t.k = distinct[1]<1 : i8>} {})",
     "builtin.module: attribute 't.k': a distinct attribute with another "
     "identity, around 1 : i8"},
    {"FirstElementThatDiffers",
     R"(module attributes {t.k = dense<1.0> : tensor<100xf32>} {})",
     R"(module attributes {t.k = dense<2.5> : tensor<100xf32>} {})",
     "builtin.module: attribute 't.k': dense<1.000000e+00> : tensor<100xf32> "
     "vs dense<2.500000e+00> : tensor<100xf32>"},
};
INSTANTIATE_TEST_SUITE_P(Paths, DifferenceTest, testing::ValuesIn(cases),
                         [](const auto &instance) {
                           return std::string(instance.param.name);
                         });

TEST(EquivalenceTest, MessageOfLargeConstantIsShortAndTellsWhere) {
  auto context = makeContext();
  std::string text = "module attributes {t.k = dense<[";
  for (int i = 0; i != 5000; ++i)
    text += (i ? ", " : "") + std::to_string(i);
  std::string other = text;
  text += "]> : tensor<5000xi32>} {}";
  other.replace(other.find(", 4321,"), 7, ", 9999,");
  other += "]> : tensor<5000xi32>} {}";
  absl::Status status =
      checkEquivalence(*parse(*context, text), *parse(*context, other));
  EXPECT_LT(status.message().size(), 400u);
  EXPECT_THAT(
      status,
      StatusIs(absl::StatusCode::kInvalidArgument,
               "dense constants of tensor<5000xi32> differ first in element "
               "4321: 4321 vs 9999"));
}

TEST(EquivalenceTest, MessageOfLargeConstantsOfTwoTypesHasTheTypes) {
  auto context = makeContext();
  auto text = [](const char *last, const char *type) {
    std::string list = "module attributes {t.k = dense<[";
    for (int i = 0; i != 20; ++i)
      list += "\"s\", ";
    return list + last + "]> : tensor<21x" + type + ">} {}";
  };
  auto base = parse(*context, text("\"v\"", "!t.s"));
  EXPECT_THAT(
      checkEquivalence(*base, *parse(*context, text("\"v\"", "!t.r"))),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "dense constants of tensor<21x!t.s> vs tensor<21x!t.r>"));
  EXPECT_THAT(checkEquivalence(*base, *parse(*context, text("\"u\"", "!t.s"))),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "differ first in element 20: \"v\" vs \"u\""));
}

TEST(EquivalenceTest, LongNamesAndValuesNeverMakeAMessageLong) {
  auto context = makeContext();
  std::string name(1 << 20, 'n');
  const std::string texts[] = {
      "\"t." + name + "\"() : () -> ()",
      "func.func @\"" + name + "\"() { \"t." + name +
          "\"() : () -> () return }",
      "module attributes {t." + name + " = 1 : i8} {}",
      "module attributes {t." + name + " = \"" + name + "\"} {}",
      "module @" + name + " { module @" + name + " { module @" + name +
          " { \"t.a\"() <{" + name + " = \"" + name + "\"}> : () -> () } } }",
      "\"t.a\"() : () -> !t.x<\"" + name + "\">",
  };
  for (const std::string &text : texts)
    for (const char *change : {"m", "nm"}) {
      std::string other = text;
      other.replace(other.rfind('n', other.rfind("nnn") + 1), 1, change);
      auto lhs = parse(*context, text), rhs = parse(*context, other);
      ASSERT_TRUE(lhs && rhs);
      absl::Status status = checkEquivalence(*lhs, *rhs);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_LT(status.message().size(), 2048u);
    }
}

TEST(EquivalenceTest, FirstDifferenceOfALongValueIsShown) {
  auto context = makeContext();
  auto text = [](const char *difference) {
    return "module attributes {t.k = \"" + std::string(1000, 'x') + difference +
           std::string(1000, 'y') + "\"} {}";
  };
  std::string x(40, 'x'), y(76, 'y');
  EXPECT_THAT(
      checkEquivalence(*parse(*context, text("left")),
                       *parse(*context, text("that"))),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "'t.k': ..." + x + "left" + y + "... vs ..." + x + "that" + y));
}

TEST(EquivalenceTest, MessageOfLongValuesIsCut) {
  auto context = makeContext();
  std::string text = "module attributes {t.k = \"" + std::string(100000, 'x');
  absl::Status status = checkEquivalence(*parse(*context, text + "a\"} {}"),
                                         *parse(*context, text + "b\"} {}"));
  EXPECT_LT(status.message().size(), 600u);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               "builtin.module: attribute 't.k'"));
}

TEST(EquivalenceTest, PartOfALargeListIsNamed) {
  auto context = makeContext();
  auto list = [](int changed) {
    std::string text = "module attributes {t.k = [";
    for (int i = 0; i != 10000; ++i)
      text += (i ? ", {v = " : "{v = ") +
              std::to_string(i == changed ? -1 : i) + " : i64}";
    return text + "]} {}";
  };
  EXPECT_THAT(
      checkEquivalence(*parse(*context, list(-1)),
                       *parse(*context, list(7000))),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "builtin.module: attribute 't.k': element 7000: {v = 7000 "
               ": i64} vs {v = -1 : i64}"));
}

TEST(EquivalenceTest, LocationIsNamedWhenAsked) {
  auto context = makeContext();
  StructuralOptions options;
  options.includeLocations = true;
  auto lhs = parse(*context, R"("t.a"() : () -> () loc("x":1:1))");
  auto rhs = parse(*context, R"("t.a"() : () -> () loc("y":2:2))");
  EXPECT_THAT(checkEquivalence(&lhs->front(), &rhs->front(), options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "t.a: location: loc(\"x\":1:1) vs loc(\"y\":2:2)"));
}

TEST(EquivalenceTest, ResourceContentsAreNamed) {
  auto context = makeContext();
  auto lhs = parse(*context, R"(
    module attributes {t.w = dense_resource<w> : tensor<4xi8>} {}
    {-# dialect_resources: { builtin: { w: "0x0100000001020304" } } #-})");
  auto rhs = parse(*context, R"(
    module attributes {t.w = dense_resource<w> : tensor<4xi8>} {}
    {-# dialect_resources: { builtin: { w: "0x0100000001020305" } } #-})");
  EXPECT_THAT(checkEquivalence(*lhs, *rhs),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "builtin.module: attribute 't.w': resources of "
                       "tensor<4xi8> differ: contents, first in byte 3: 4 vs "
                       "5"));
  auto aligned = parse(*context, R"(
    module attributes {t.w = dense_resource<w> : tensor<4xi8>} {}
    {-# dialect_resources: { builtin: { w: "0x0400000001020304" } } #-})");
  EXPECT_THAT(checkEquivalence(*lhs, *aligned),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "tensor<4xi8> differ: alignment 1 vs 4"));
}

TEST(EquivalenceTest, NullOperandsAndSuccessorsAreNamed) {
  auto context = makeContext();
  const char *text = R"("t.r"() ({
    ^a(%x: i1): "t.b"(%x)[^b] : (i1) -> ()
    ^b: }) : () -> ())";
  auto lhs = parse(*context, text), rhs = parse(*context, text);
  Operation *op = &rhs->front().getRegion(0).front().front();
  op->getBlockOperands().front().drop();
  EXPECT_THAT(checkEquivalence(*lhs, *rhs),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "(t.b): successor 0: region 0, block 1 vs null"));
  op->getOpOperand(0).drop();
  EXPECT_THAT(checkEquivalence(*rhs, *lhs),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "(t.b): operand 0: null vs argument 0 of region 0, "
                       "block 0"));
}

TEST(EquivalenceTest, BlockThatWasASuccessorElsewhereIsNamed) {
  auto context = makeContext();
  const char *text = R"("t.r"() ({
      ^a: "t.b"()[^b] : () -> ()
      ^b: "t.q"() ({ ^c: ^d: }) : () -> ()
    }) : () -> ())";
  auto lhs = parse(*context, text), rhs = parse(*context, text);
  // To blocks that come later, and not in the same place.
  for (auto [module, number] : {std::pair(*lhs, 0), std::pair(*rhs, 1)}) {
    Region &outer = module.front().getRegion(0);
    Region &inner = outer.back().front().getRegion(0);
    outer.front().front().setSuccessor(&*std::next(inner.begin(), number), 0);
  }
  EXPECT_THAT(checkEquivalence(*lhs, *rhs),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "(t.q), region 0, block 0: the block was a successor "
                       "before in places that differ"));
}

TEST(EquivalenceTest, AForkedChildComparesWhateverTheParentsThreadsDo) {
  auto add = [](MLIRContext &context, const char *flag) {
    return parse(context, std::string("llvm.func @f(%a: i32) { %0 = llvm.add "
                                      "%a, %a overflow<") +
                              flag + "> : i32 llvm.return }");
  };
  std::atomic<bool> stops{false};
  std::atomic<int> started{0};
  std::vector<std::thread> threads;
  for (int i = 0; i != 3; ++i)
    threads.emplace_back([&] {
      auto context = makeContext();
      auto lhs = add(*context, "nsw"), rhs = add(*context, "nuw");
      ++started;
      while (!stops)
        EXPECT_FALSE(checkEquivalence(*lhs, *rhs).ok());
    });
  auto context = makeContext();
  auto lhs = add(*context, "nsw"), rhs = add(*context, "nuw");
  EXPECT_TRUE(eventually([&] { return started == 3; }));

  for (int round = 0; round != (isSanitized ? 5 : 30); ++round)
    EXPECT_EQ(runInChild([&] { return !checkEquivalence(*lhs, *rhs).ok(); }),
              "exit 0");

  stops = true;
  for (std::thread &thread : threads)
    thread.join();
}

TEST(EquivalenceTest, EqualOperationsAreOk) {
  auto context = makeContext(), other = makeDirtyContext();
  const char *text = R"(func.func @f(%a: f32) { %0 = arith.addf %a, %a : f32
                          return })";
  EXPECT_THAT(checkEquivalence(*parse(*context, text), *parse(*other, text)),
              IsOk());
}

} // namespace

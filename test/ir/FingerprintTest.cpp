//===- FingerprintTest.cpp - What a fingerprint sees and does not ---------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/Fingerprint.h"

#include "test/ir/IrTestSupport.h"
#include "test/support/StatusMatchers.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/SymbolTable.h"

#include <map>
#include <set>

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

/// Two modules and whether they are the same.
struct Pair {
  const char *name;
  const char *lhs;
  const char *rhs;
};

void PrintTo(const Pair &pair, std::ostream *stream) { *stream << pair.name; }

std::string nameOf(const testing::TestParamInfo<Pair> &info) {
  return info.param.name;
}

//===----------------------------------------------------------------------===//
// Sensitive to
//===----------------------------------------------------------------------===//

class SensitiveTest : public testing::TestWithParam<Pair> {};

TEST_P(SensitiveTest, DiffersInOneContextAndInTwo) {
  auto first = makeContext(), second = makeDirtyContext();
  auto lhs = parse(*first, GetParam().lhs);
  auto rhs = parse(*first, GetParam().rhs);
  auto rhsElsewhere = parse(*second, GetParam().rhs);
  ASSERT_TRUE(lhs && rhs && rhsElsewhere);

  EXPECT_FALSE(isSame(*lhs, *rhs));
  EXPECT_FALSE(isSame(*lhs, *rhsElsewhere));
  EXPECT_TRUE(isSame(*rhs, *rhsElsewhere));
}

const Pair structurePairs[] = {
    {"OperationName", R"("t.a"() : () -> ())", R"("t.b"() : () -> ())"},
    {"Operand", R"(%0 = "t.a"() : () -> i1 %1 = "t.a"() : () -> i1
                   "t.u"(%0) : (i1) -> ())",
     R"(%0 = "t.a"() : () -> i1 %1 = "t.a"() : () -> i1
        "t.u"(%1) : (i1) -> ())"},
    {"OperandOrder", R"(%0 = "t.a"() : () -> i1 %1 = "t.a"() : () -> i1
                        "t.u"(%0, %1) : (i1, i1) -> ())",
     R"(%0 = "t.a"() : () -> i1 %1 = "t.a"() : () -> i1
        "t.u"(%1, %0) : (i1, i1) -> ())"},
    {"OperandCount", R"(%0 = "t.a"() : () -> i1 "t.u"(%0) : (i1) -> ())",
     R"(%0 = "t.a"() : () -> i1 "t.u"(%0, %0) : (i1, i1) -> ())"},
    {"OperandsOfCommutativeOperations",
     "func.func @f(%a: i32, %b: i32) -> i32 { %0 = arith.addi %a, %b : i32 "
     "return %0 : i32 }",
     "func.func @f(%a: i32, %b: i32) -> i32 { %0 = arith.addi %b, %a : i32 "
     "return %0 : i32 }"},
    {"OneValueTwiceAgainstTwoEqualValues",
     R"(%0 = "t.a"() : () -> i1 %1 = "t.a"() : () -> i1
        "t.u"(%0, %0) : (i1, i1) -> ())",
     R"(%0 = "t.a"() : () -> i1 %1 = "t.a"() : () -> i1
        "t.u"(%0, %1) : (i1, i1) -> ())"},
    {"ResultCount", R"("t.a"() : () -> i1)", R"("t.a"() : () -> (i1, i1))"},
    {"ResultType", R"("t.a"() : () -> i1)", R"("t.a"() : () -> i2)"},
    {"ResultOrder", R"("t.a"() : () -> (i1, i2))",
     R"("t.a"() : () -> (i2, i1))"},
    {"OneOperationOfTwoResultsAgainstTwoOfOne",
     R"(%0:2 = "t.p"() : () -> (i8, i8) "t.u"(%0#0, %0#1) : (i8, i8) -> ())",
     R"(%0 = "t.p"() : () -> i8 %1 = "t.p"() : () -> i8
        "t.u"(%0, %1) : (i8, i8) -> ())"},
    {"OperationOrder", R"("t.a"() : () -> () "t.b"() : () -> ())",
     R"("t.b"() : () -> () "t.a"() : () -> ())"},
    {"OperationCount", R"("t.a"() : () -> ())",
     R"("t.a"() : () -> () "t.a"() : () -> ())"},
    {"Attribute", R"("t.a"() {k = 1 : i8} : () -> ())",
     R"("t.a"() {k = 2 : i8} : () -> ())"},
    {"AttributeName", R"("t.a"() {k = 1 : i8} : () -> ())",
     R"("t.a"() {l = 1 : i8} : () -> ())"},
    {"AttributePresence", R"("t.a"() {k} : () -> ())", R"("t.a"() : () -> ())"},
    {"PropertyAgainstAttributeOfThatName",
     R"("t.a"() <{k = 1 : i8}> : () -> ())",
     R"("t.a"() {k = 1 : i8} : () -> ())"},
    {"PropertyOfUnregisteredOperation", R"("t.a"() <{k = 1 : i8}> : () -> ())",
     R"("t.a"() <{k = 2 : i8}> : () -> ())"},
    {"Property",
     "func.func @f(%a: f32) { %0 = arith.addf %a, %a : f32 return }",
     "func.func @f(%a: f32) { %0 = arith.addf %a, %a fastmath<fast> : f32 "
     "return }"},
    {"NativeProperty",
     R"(%0 = "t.i"() : () -> index
        %1 = "memref.alloc"(%0, %0) <{operandSegmentSizes = array<i32: 1, 1>}>
          : (index, index) -> memref<?xf32>)",
     R"(%0 = "t.i"() : () -> index
        %1 = "memref.alloc"(%0, %0) <{operandSegmentSizes = array<i32: 2, 0>}>
          : (index, index) -> memref<?xf32>)"},
    {"Successor",
     R"("t.r"() ({ ^a: "t.b"()[^b] : () -> () ^b: "t.x"() : () -> ()
                  ^c: "t.x"() : () -> () }) : () -> ())",
     R"("t.r"() ({ ^a: "t.b"()[^c] : () -> () ^b: "t.x"() : () -> ()
                  ^c: "t.x"() : () -> () }) : () -> ())"},
    {"SuccessorOrder",
     R"("t.r"() ({ ^a: "t.b"()[^b, ^c] : () -> () ^b: "t.x"() : () -> ()
                  ^c: "t.x"() : () -> () }) : () -> ())",
     R"("t.r"() ({ ^a: "t.b"()[^c, ^b] : () -> () ^b: "t.x"() : () -> ()
                  ^c: "t.x"() : () -> () }) : () -> ())"},
    {"RegionCount", R"("t.r"() ({}) : () -> ())",
     R"("t.r"() ({}, {}) : () -> ())"},
    {"NoRegionAgainstEmptyOne", R"("t.r"() : () -> ())",
     R"("t.r"() ({}) : () -> ())"},
    {"EmptyRegionAgainstEmptyBlock", R"("t.r"() ({}) : () -> ())",
     R"("t.r"() ({ ^a: }) : () -> ())"},
    {"RegionBoundary",
     R"("t.r"() ({ "t.x"() : () -> () "t.x"() : () -> () }, {}) : () -> ())",
     R"("t.r"() ({ "t.x"() : () -> () }, { "t.x"() : () -> () }) : () -> ())"},
    {"AfterRegionAgainstLastInside",
     R"("t.r"() ({ "t.s"() : () -> () }) : () -> () "t.e"() : () -> ())",
     R"("t.r"() ({ "t.s"() : () -> () "t.e"() : () -> () }) : () -> ())"},
    {"BlockBoundary",
     R"("t.r"() ({ ^a: "t.x"() : () -> () "t.x"() : () -> ()
                  ^b: "t.x"() : () -> () }) : () -> ())",
     R"("t.r"() ({ ^a: "t.x"() : () -> () ^b: "t.x"() : () -> ()
                  "t.x"() : () -> () }) : () -> ())"},
    {"BlockOrder",
     R"("t.r"() ({ ^a: "t.b"()[^b, ^c] : () -> () ^b: "t.x"() : () -> ()
                  ^c: "t.y"() : () -> () }) : () -> ())",
     R"("t.r"() ({ ^a: "t.b"()[^b, ^c] : () -> () ^c: "t.y"() : () -> ()
                  ^b: "t.x"() : () -> () }) : () -> ())"},
    {"UnreachableBlock",
     R"("t.r"() ({ ^a: "t.x"() : () -> () ^b: "t.y"() : () -> () }) : () -> ())",
     R"("t.r"() ({ ^a: "t.x"() : () -> () ^b: "t.z"() : () -> () }) : () -> ())"},
    {"BlockArgumentType", R"("t.r"() ({ ^a(%0: i1): }) : () -> ())",
     R"("t.r"() ({ ^a(%0: i2): }) : () -> ())"},
    {"BlockArgumentCount", R"("t.r"() ({ ^a(%0: i1): }) : () -> ())",
     R"("t.r"() ({ ^a(%0: i1, %1: i1): }) : () -> ())"},
    {"BlockArgumentUse",
     R"("t.r"() ({ ^a(%0: i1, %1: i1): "t.u"(%0, %1) : (i1, i1) -> () })
        : () -> ())",
     R"("t.r"() ({ ^a(%0: i1, %1: i1): "t.u"(%1, %0) : (i1, i1) -> () })
        : () -> ())"},
    {"BlocksThatUseArgumentsInOtherOrder",
     R"(func.func @f(%c: i1, %x: i32, %y: i32) -> (i32, i32) {
        cf.cond_br %c, ^a(%x, %y : i32, i32), ^b(%y, %x : i32, i32)
        ^a(%p: i32, %q: i32): return %p, %q : i32, i32
        ^b(%r: i32, %s: i32): return %r, %s : i32, i32 })",
     R"(func.func @f(%c: i1, %x: i32, %y: i32) -> (i32, i32) {
        cf.cond_br %c, ^a(%x, %y : i32, i32), ^b(%y, %x : i32, i32)
        ^a(%p: i32, %q: i32): return %p, %q : i32, i32
        ^b(%r: i32, %s: i32): return %s, %r : i32, i32 })"},
    {"DeepChange",
     R"("t.r"() ({ "t.r"() ({ "t.r"() ({ "t.x"() {k = 1 : i8} : () -> () })
        : () -> () }) : () -> () }) : () -> ())",
     R"("t.r"() ({ "t.r"() ({ "t.r"() ({ "t.x"() {k = 2 : i8} : () -> () })
        : () -> () }) : () -> () }) : () -> ())"},
    {"CycleAgainstSelfCycles",
     R"(%0 = "t.a"(%1) : (i1) -> i1 %1 = "t.a"(%0) : (i1) -> i1)",
     R"(%0 = "t.a"(%0) : (i1) -> i1 %1 = "t.a"(%1) : (i1) -> i1)"},
    {"CycleInOtherOrder",
     R"(%0 = "t.a"(%1) : (i1) -> i1 %1 = "t.b"(%0) : (i1) -> i1)",
     R"(%1 = "t.b"(%0) : (i1) -> i1 %0 = "t.a"(%1) : (i1) -> i1)"},
    {"ForwardReference",
     R"("t.u"(%0) : (i1) -> () %0 = "t.a"() : () -> i1 %1 = "t.a"() : () -> i1)",
     R"("t.u"(%1) : (i1) -> () %0 = "t.a"() : () -> i1 %1 = "t.a"() : () -> i1)"},
    {"SymbolName", "func.func private @f()", "func.func private @g()"},
    {"SymbolVisibility", "func.func private @f()", "func.func nested @f()"},
    {"SymbolReference", R"("t.a"() {s = @f} : () -> ())",
     R"("t.a"() {s = @g} : () -> ())"},
    {"LocationInAttribute", R"("t.a"() {l = loc("k":1:1)} : () -> ())",
     R"("t.a"() {l = loc("k":2:2)} : () -> ())"},
    {"UnregisteredDialectAttribute", R"("t.a"() {k = #t.x<1>} : () -> ())",
     R"("t.a"() {k = #t.x<2>} : () -> ())"},
    {"UnregisteredDialectType", R"("t.a"() : () -> !t.x<1>)",
     R"("t.a"() : () -> !t.x<2>)"},
};
INSTANTIATE_TEST_SUITE_P(Structure, SensitiveTest,
                         testing::ValuesIn(structurePairs), nameOf);

/// As modules whose attribute `t.k` is what is given.
const Pair attributePairs[] = {
    {"IntegerWidth", "1 : i8", "1 : i16"},
    {"IntegerSignedness", "1 : si8", "1 : ui8"},
    {"IntegerSignlessAgainstSigned", "1 : i8", "1 : si8"},
    {"IndexAgainstInteger", "1 : index", "1 : i64"},
    {"IntegerSign", "255 : ui8", "-1 : i8"},
    {"WideInteger", "36893488147419103232 : i128",
     "36893488147419103233 : i128"},
    {"BooleanAgainstInteger", "true", "1 : i2"},
    {"FloatSemantics", "1.0 : f16", "1.0 : bf16"},
    {"FloatWidth", "1.0 : f32", "1.0 : f64"},
    {"NegativeZero", "0.0 : f32", "-0.0 : f32"},
    {"NanPayload", "0x7FC00001 : f32", "0x7FC00002 : f32"},
    {"SignallingNan", "0x7F800001 : f32", "0x7FC00001 : f32"},
    {"NanSign", "0x7FC00000 : f32", "0xFFC00000 : f32"},
    {"NanAgainstInfinity", "0x7FC00000 : f32", "0x7F800000 : f32"},
    {"Denormal", "0x00000001 : f32", "0.0 : f32"},
    {"LastBitOfQuad", "0x3FFF0000000000000000000000000001 : f128",
     "0x3FFF0000000000000000000000000000 : f128"},
    {"LastBitOfX87", "0x3FFF8000000000000001 : f80",
     "0x3FFF8000000000000000 : f80"},
    {"SmallFloats", "1.0 : f8E5M2", "1.0 : f8E4M3FN"},
    {"String", "\"a\"", "\"b\""},
    {"StringType", "\"a\"", "\"a\" : i8"},
    {"EmptyString", "\"\"", "\"\\00\""},
    {"StringWithNul", "\"a\\00b\"", "\"a\\00c\""},
    {"LongString", "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
     "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\""},
    {"StringAgainstSymbol", "\"a\"", "@a"},
    {"StringBoundaries", "[\"ab\", \"c\"]", "[\"a\", \"bc\"]"},
    {"Nesting", "[[1 : i8], 2 : i8]", "[1 : i8, [2 : i8]]"},
    {"DictionaryBoundaries", "{ab = \"c\"}", "{a = \"bc\"}"},
    {"EmptyListAgainstEmptyDictionary", "[]", "{}"},
    {"UnitAgainstTrue", "unit", "true"},
    {"NestedSymbol", "@a", "@a::@b"},
    {"NestedSymbolBoundaries", "@a::@b::@c", "@a::@\"b::c\""},
    {"TypeAttribute", "i8", "i16"},
    {"DenseContents", "dense<[1, 2]> : tensor<2xi32>",
     "dense<[1, 3]> : tensor<2xi32>"},
    {"DenseSplatOfUnequalValue", "dense<1> : tensor<2xi32>",
     "dense<2> : tensor<2xi32>"},
    {"DenseSplatAgainstUnequalElements", "dense<1> : tensor<2xi32>",
     "dense<[1, 2]> : tensor<2xi32>"},
    {"DenseShape", "dense<1> : tensor<2x3xi32>", "dense<1> : tensor<3x2xi32>"},
    {"DenseElementType", "dense<1> : tensor<2xi32>",
     "dense<1> : tensor<2xi64>"},
    {"DenseTensorAgainstVector", "dense<1> : tensor<2xi32>",
     "dense<1> : vector<2xi32>"},
    {"DenseWithoutElements", "dense<> : tensor<0x2xi8>",
     "dense<> : tensor<0x3xi8>"},
    {"DenseOfOneBit", "dense<[true, false, true]> : tensor<3xi1>",
     "dense<[true, true, true]> : tensor<3xi1>"},
    {"DenseLastOfNineBits",
     "dense<[true, true, true, true, true, true, true, true, false]> : "
     "tensor<9xi1>",
     "dense<true> : tensor<9xi1>"},
    {"DenseOfFourBits", "dense<[-8, 7]> : tensor<2xi4>",
     "dense<[7, -8]> : tensor<2xi4>"},
    {"DenseOfOddWidth", "dense<[1, -1]> : tensor<2xi65>",
     "dense<[-1, 1]> : tensor<2xi65>"},
    {"DenseOfSmallFloats", "dense<[0x7F, 0x80]> : tensor<2xf8E4M3FN>",
     "dense<[0x7F, 0x81]> : tensor<2xf8E4M3FN>"},
    {"DenseNegativeZero", "dense<0.0> : tensor<2xf32>",
     "dense<-0.0> : tensor<2xf32>"},
    {"DenseComplex", "dense<[(1.0, -0.0)]> : tensor<1xcomplex<f32>>",
     "dense<[(1.0, 0.0)]> : tensor<1xcomplex<f32>>"},
    {"DenseComplexOrder", "dense<(1.0, 2.0)> : tensor<3xcomplex<f64>>",
     "dense<(2.0, 1.0)> : tensor<3xcomplex<f64>>"},
    {"DenseComplexOfBits", "dense<(true, false)> : tensor<2xcomplex<i1>>",
     "dense<(false, true)> : tensor<2xcomplex<i1>>"},
    {"DenseStrings", "dense<[\"a\", \"bc\"]> : tensor<2x!t.str>",
     "dense<[\"ab\", \"c\"]> : tensor<2x!t.str>"},
    {"SparseAgainstDense", "sparse<[[0]], [1]> : tensor<2xi8>",
     "dense<[1, 0]> : tensor<2xi8>"},
    {"SparseIndices", "sparse<[[0]], [1]> : tensor<2xi8>",
     "sparse<[[1]], [1]> : tensor<2xi8>"},
    {"ArrayElementType", "array<i32: 1>", "array<i64: 1>"},
    {"ArrayContents", "array<i32: 1>", "array<i32: 2>"},
    {"EmptyArrays", "array<i32>", "array<i64>"},
    {"AffineMapResult", "affine_map<(d0, d1) -> (d0)>",
     "affine_map<(d0, d1) -> (d1)>"},
    {"AffineMapInputs", "affine_map<(d0, d1) -> (d0)>",
     "affine_map<(d0) -> (d0)>"},
    {"AffineMapSymbol", "affine_map<(d0)[s0] -> (d0)>",
     "affine_map<(d0) -> (d0)>"},
    {"AffineMapDivision", "affine_map<(d0) -> (d0 floordiv 4)>",
     "affine_map<(d0) -> (d0 ceildiv 4)>"},
    {"AffineMapConstant", "affine_map<(d0) -> (d0 mod 4)>",
     "affine_map<(d0) -> (d0 mod 5)>"},
    {"IntegerSetRelation", "affine_set<(d0) : (d0 >= 0)>",
     "affine_set<(d0) : (d0 == 0)>"},
    {"IntegerSetAgainstMap", "affine_set<(d0) : (d0 >= 0)>",
     "affine_map<(d0) -> (d0)>"},
    {"StridedLayout", "strided<[?, 1], offset: ?>",
     "strided<[?, 1], offset: 0>"},
    {"OpaqueAttribute", "#u<\"x\">", "#u<\"y\">"},
    {"OpaqueAttributeDialect", "#u<\"x\">", "#v<\"x\">"},
    {"RangeLocation", "loc(\"f\":1:2 to 1:4)", "loc(\"f\":1:2)"},
    {"NameLocation", "loc(\"a\"(\"f\":1:2))", "loc(\"b\"(\"f\":1:2))"},
    {"CallSiteLocation", "loc(callsite(\"a\" at \"b\"))",
     "loc(callsite(\"b\" at \"a\"))"},
    {"FusedLocationMetadata", "loc(fused<\"m\">[\"a\":1:1, \"b\":1:1])",
     "loc(fused<\"n\">[\"a\":1:1, \"b\":1:1])"},
    {"FusedLocationOrder", "loc(fused[\"a\":1:1, \"b\":1:1])",
     "loc(fused[\"b\":1:1, \"a\":1:1])"},
    {"DistinctAgainstPlain", "distinct[0]<1 : i8>", "1 : i8"},
    {"DistinctContents", "distinct[0]<1 : i8>", "distinct[0]<2 : i8>"},
    {"DistinctIdentity", "[distinct[0]<1 : i8>, distinct[0]<1 : i8>]",
     "[distinct[0]<1 : i8>, distinct[1]<1 : i8>]"},
    {"DistinctPattern",
     "[distinct[0]<>, distinct[1]<>, distinct[0]<>, distinct[1]<>]",
     "[distinct[0]<>, distinct[1]<>, distinct[1]<>, distinct[0]<>]"},
    {"DistinctInPrintedAttribute",
     "[distinct[0]<>, #dlti.map<\"k\" = distinct[0]<>>]",
     "[distinct[0]<>, #dlti.map<\"k\" = distinct[1]<>>]"},
    {"QuadInPrintedAttribute",
     "#dlti.map<\"k\" = 0x3FFF0000000000000000000000000001 : f128>",
     "#dlti.map<\"k\" = 0x3FFF0000000000000000000000000000 : f128>"},
    {"DenseQuadInPrintedAttribute",
     "#dlti.map<\"k\" = dense<0x3FFF0000000000000000000000000001> : "
     "tensor<2xf128>>",
     "#dlti.map<\"k\" = dense<0x3FFF0000000000000000000000000000> : "
     "tensor<2xf128>>"},
    {"DataLayoutEntry", "#dlti.dl_entry<\"k\", 1 : i32>",
     "#dlti.dl_entry<\"k\", 2 : i32>"},
    {"DataLayoutEntryKey", "#dlti.dl_entry<\"k\", 1 : i32>",
     "#dlti.dl_entry<i8, 1 : i32>"},
    {"DataLayoutSpec", "#dlti.dl_spec<\"k\" = 1 : i32>",
     "#dlti.dl_spec<\"k\" = 2 : i32>"},
    {"QuantizedScale", "!quant.uniform<i8:f32, 0.1:3>",
     "!quant.uniform<i8:f32, 0.10000000000000002:3>"},
    {"QuantizedZeroPoint", "!quant.uniform<i8:f32, 0.1:3>",
     "!quant.uniform<i8:f32, 0.1:4>"},
    {"LlvmAliasScopeDomain",
     "[#llvm.alias_scope<id = distinct[0]<>, domain = "
     "#llvm.alias_scope_domain<id = distinct[2]<>>>, "
     "#llvm.alias_scope<id = distinct[1]<>, domain = "
     "#llvm.alias_scope_domain<id = distinct[2]<>>>]",
     "[#llvm.alias_scope<id = distinct[0]<>, domain = "
     "#llvm.alias_scope_domain<id = distinct[2]<>>>, "
     "#llvm.alias_scope<id = distinct[1]<>, domain = "
     "#llvm.alias_scope_domain<id = distinct[3]<>>>]"},
    {"VectorScalability", "vector<4xf32>", "vector<[4]xf32>"},
    {"TensorEncoding", "tensor<4xf32>", "tensor<4xf32, \"e\">"},
    {"TensorDynamic", "tensor<4xf32>", "tensor<?xf32>"},
    {"TensorUnranked", "tensor<f32>", "tensor<*xf32>"},
    {"MemRefLayout", "memref<4xf32>", "memref<4xf32, strided<[2]>>"},
    {"MemRefSpace", "memref<4xf32>", "memref<4xf32, 1>"},
    {"MemRefAgainstTensor", "memref<4xf32>", "tensor<4xf32>"},
    {"MemRefUnranked", "memref<*xf32>", "memref<*xf32, 1>"},
    {"FunctionTypeSides", "(i8) -> ()", "() -> (i8)"},
    {"TupleNesting", "tuple<i8, tuple<i8>>", "tuple<i8, i8>"},
    {"ComplexElement", "complex<f32>", "complex<f64>"},
    {"LlvmStructName", "!llvm.struct<\"a\", (i8)>",
     "!llvm.struct<\"b\", (i8)>"},
    {"LlvmStructBody", "!llvm.struct<\"a\", (i8)>",
     "!llvm.struct<\"a\", (i16)>"},
    {"LlvmStructLiteralBody", "!llvm.struct<(i8)>", "!llvm.struct<(i8, i8)>"},
    {"LlvmStructLiteralPacked", "!llvm.struct<(i8)>",
     "!llvm.struct<packed (i8)>"},
    {"LlvmArraySize", "!llvm.array<2 x i8>", "!llvm.array<3 x i8>"},
    {"LlvmArrayElement", "!llvm.array<2 x array<3 x i8>>",
     "!llvm.array<2 x array<3 x i9>>"},
    {"LlvmFunctionResult", "!llvm.func<void (i8)>", "!llvm.func<i8 (i8)>"},
    {"LlvmFunctionVarArg", "!llvm.func<void (i8)>",
     "!llvm.func<void (i8, ...)>"},
    {"LlvmPointerSpace", "!llvm.ptr", "!llvm.ptr<1>"},
    {"LlvmTargetName", "!llvm.target<\"a\", i8, 1>",
     "!llvm.target<\"b\", i8, 1>"},
    {"LlvmTargetType", "!llvm.target<\"a\", i8, 1>",
     "!llvm.target<\"a\", i9, 1>"},
    {"LlvmTargetNumber", "!llvm.target<\"a\", i8, 1>",
     "!llvm.target<\"a\", i8, 2>"},
    {"LlvmStructPacked", "!llvm.struct<\"a\", (i8)>",
     "!llvm.struct<\"a\", packed (i8)>"},
    {"LlvmStructOpaque", "!llvm.struct<\"a\", opaque>",
     "!llvm.struct<\"a\", ()>"},
    {"LlvmStructLiteral", "!llvm.struct<\"a\", (i8)>", "!llvm.struct<(i8)>"},
    {"RecursiveType",
     "!spirv.struct<a, (!spirv.ptr<!spirv.struct<a>, Generic>, i32)>",
     "!spirv.struct<a, (!spirv.ptr<!spirv.struct<a>, Generic>, i64)>"},
    {"MutuallyRecursiveTypes",
     "!spirv.struct<a, (!spirv.ptr<!spirv.struct<b, (!spirv.ptr<"
     "!spirv.struct<a>, Generic>)>, Generic>)>",
     "!spirv.struct<a, (!spirv.ptr<!spirv.struct<b, (!spirv.ptr<"
     "!spirv.struct<b>, Generic>)>, Generic>)>"},
};

class SensitiveAttributeTest : public testing::TestWithParam<Pair> {};

TEST_P(SensitiveAttributeTest, DiffersInTwoContexts) {
  // Named mutable types exist once in a context: every module gets its own.
  auto first = makeContext(), second = makeDirtyContext(),
       third = makeContext();
  auto module = [](const char *attribute) {
    return std::string("module attributes {t.k = ") + attribute + "} {}";
  };
  auto lhs = parse(*first, module(GetParam().lhs));
  auto rhs = parse(*second, module(GetParam().rhs));
  auto rhsAgain = parse(*third, module(GetParam().rhs));
  ASSERT_TRUE(lhs && rhs && rhsAgain);

  EXPECT_FALSE(isSame(*lhs, *rhs));
  EXPECT_TRUE(isSame(*rhs, *rhsAgain));
}

INSTANTIATE_TEST_SUITE_P(Kinds, SensitiveAttributeTest,
                         testing::ValuesIn(attributePairs), nameOf);

TEST(FingerprintTest, AllAttributesOfTheTableDiffer) {
  // Pairwise, not only each from its neighbour: a kind must not stand for
  // another.
  std::map<std::string, std::string> attributeOfDigest;
  for (const Pair &pair : attributePairs)
    for (const char *text : {pair.lhs, pair.rhs}) {
      auto context = makeContext();
      auto module = parse(*context, std::string("module attributes {t.k = ") +
                                        text + "} {}");
      ASSERT_TRUE(module);
      auto [it, isNew] = attributeOfDigest.try_emplace(
          digestOf(*module).toHex(), genericText(*module));
      EXPECT_TRUE(isNew || it->second == genericText(*module))
          << it->second << genericText(*module);
    }
}

//===----------------------------------------------------------------------===//
// Blind to
//===----------------------------------------------------------------------===//

class BlindTest : public testing::TestWithParam<Pair> {};

TEST_P(BlindTest, IsTheSameInOneContextAndInTwo) {
  auto first = makeContext(), second = makeDirtyContext();
  auto lhs = parse(*first, GetParam().lhs);
  auto rhs = parse(*first, GetParam().rhs);
  auto rhsElsewhere = parse(*second, GetParam().rhs);
  ASSERT_TRUE(lhs && rhs && rhsElsewhere);

  EXPECT_TRUE(isSame(*lhs, *rhs));
  EXPECT_TRUE(isSame(*lhs, *rhsElsewhere));
}

const Pair blindPairs[] = {
    {"SsaNames", R"(%0 = "t.a"() : () -> i1 "t.u"(%0) : (i1) -> ())",
     R"(%other = "t.a"() : () -> i1 "t.u"(%other) : (i1) -> ())"},
    {"BlockNames", R"("t.r"() ({ ^a: "t.b"()[^b] : () -> () ^b: }) : () -> ())",
     R"("t.r"() ({ ^x: "t.b"()[^y] : () -> () ^y: }) : () -> ())"},
    {"ResourceKeys",
     R"(module attributes {t.w = dense_resource<w> : tensor<4xi8>} {}
        {-# dialect_resources: { builtin: { w: "0x0100000001020304" } } #-})",
     R"(module attributes {t.w = dense_resource<other> : tensor<4xi8>} {}
        {-# dialect_resources: { builtin: { other: "0x0100000001020304" } } #-})"},
    {"CustomAndGenericForm",
     "func.func @f(%a: i32) -> i32 { %0 = arith.addi %a, %a : i32 "
     "return %0 : i32 }",
     R"("func.func"() <{function_type = (i32) -> i32, sym_name = "f"}> ({
        ^bb0(%a: i32): %0 = "arith.addi"(%a, %a) <{overflowFlags =
        #arith.overflow<none>}> : (i32, i32) -> i32
        "func.return"(%0) : (i32) -> () }) : () -> ())"},
    {"AttributeOrder", R"("t.a"() {a = 1 : i8, b = 2 : i8} : () -> ())",
     R"("t.a"() {b = 2 : i8, a = 1 : i8} : () -> ())"},
    {"SplatSpelledOut", R"("t.a"() {k = dense<1> : tensor<3xi32>} : () -> ())",
     R"("t.a"() {k = dense<[1, 1, 1]> : tensor<3xi32>} : () -> ())"},
    {"BooleanSplatSpelledOut",
     R"("t.a"() {k = dense<true> : tensor<3xi1>} : () -> ())",
     R"("t.a"() {k = dense<[true, true, true]> : tensor<3xi1>} : () -> ())"},
    {"Locations", R"("t.a"() : () -> () loc("x":1:1))",
     R"("t.a"() : () -> () loc("y":2:2))"},
    {"BlockArgumentLocations",
     R"("t.r"() ({ ^a(%0: i1 loc("x":1:1)): }) : () -> ())",
     R"("t.r"() ({ ^a(%0: i1 loc("y":2:2)): }) : () -> ())"},
    {"RangeOfOnePoint", R"("t.a"() {l = loc("f":1:2 to 1:2)} : () -> ())",
     R"("t.a"() {l = loc("f":1:2)} : () -> ())"},
    {"NumbersOfDistinctAttributes",
     R"("t.a"() {k = [distinct[0]<>, distinct[1]<>]} : () -> ())",
     R"("t.a"() {k = [distinct[7]<>, distinct[3]<>]} : () -> ())"},
    {"Comments", R"("t.a"() : () -> ())", "// c\n\"t.a\"() : () -> ()\n"},
};
INSTANTIATE_TEST_SUITE_P(Blind, BlindTest, testing::ValuesIn(blindPairs),
                         nameOf);

TEST(FingerprintTest, UseListOrderDoesNotCount) {
  auto context = makeContext();
  auto module = parse(*context, R"(
    func.func @f(%a: i32) -> i32 {
      %0 = arith.addi %a, %a : i32
      %1 = arith.muli %a, %0 : i32
      %2 = arith.subi %a, %0 : i32
      return %0 : i32
    })");
  Fingerprint before = digestOf(*module);
  std::mt19937_64 random(7);
  for (int i = 0; i != 20; ++i) {
    shuffleUseLists(*module, random);
    EXPECT_EQ(digestOf(*module), before);
  }
}

TEST(FingerprintTest,
     DistinctAttributesCountByFirstOccurrenceAcrossOperations) {
  auto context = makeContext(), other = makeContext();
  const char *twoIds = R"(
    "t.a"() {k = distinct[0]<1 : i8>} : () -> ()
    "t.b"() {k = distinct[1]<1 : i8>} : () -> ()
    "t.c"() {k = distinct[0]<1 : i8>} : () -> ())";
  const char *otherIds = R"(
    "t.a"() {k = distinct[5]<1 : i8>} : () -> ()
    "t.b"() {k = distinct[2]<1 : i8>} : () -> ()
    "t.c"() {k = distinct[5]<1 : i8>} : () -> ())";
  const char *otherPartition = R"(
    "t.a"() {k = distinct[0]<1 : i8>} : () -> ()
    "t.b"() {k = distinct[1]<1 : i8>} : () -> ()
    "t.c"() {k = distinct[1]<1 : i8>} : () -> ())";

  auto first = parse(*context, twoIds);
  EXPECT_TRUE(isSame(*first, *parse(*other, otherIds)));
  EXPECT_FALSE(isSame(*first, *parse(*other, otherPartition)));
  EXPECT_FALSE(isSame(*first, *parse(*context, otherPartition)));
  // Two parses in one context have distinct attributes of their own.
  EXPECT_TRUE(isSame(*first, *parse(*context, twoIds)));
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

TEST(FingerprintTest, LocationsCountWhenAsked) {
  auto context = makeContext();
  StructuralOptions options;
  options.includeLocations = true;
  auto base = parse(*context, R"("t.r"() ({ ^a(%0: i1 loc("x":1:1)):
      "t.u"(%0) : (i1) -> () loc("x":2:2) }) : () -> () loc("x":3:3))");
  auto operation = parse(*context, R"("t.r"() ({ ^a(%0: i1 loc("x":1:1)):
      "t.u"(%0) : (i1) -> () loc("x":2:9) }) : () -> () loc("x":3:3))");
  auto argument = parse(*context, R"("t.r"() ({ ^a(%0: i1 loc("x":1:9)):
      "t.u"(%0) : (i1) -> () loc("x":2:2) }) : () -> () loc("x":3:3))");
  // The module itself has the location of the text, which is one.
  Operation *baseOp = &base->front(), *operationOp = &operation->front(),
            *argumentOp = &argument->front();

  EXPECT_FALSE(isSame(baseOp, operationOp, options));
  EXPECT_FALSE(isSame(baseOp, argumentOp, options));
  EXPECT_TRUE(isSame(baseOp, operationOp));
  EXPECT_TRUE(isSame(baseOp, argumentOp));
}

TEST(FingerprintTest, EmptyAndOpaqueLocationsDoNoHarm) {
  auto context = makeContext();
  StructuralOptions options;
  options.includeLocations = true;
  auto module = parse(*context, R"("t.a"() : () -> () loc(fused[]))");
  Operation *op = &module->front();
  auto fallback = parse(*context, R"("t.a"() : () -> () loc("f":1:2))");
  static int somewhere;
  op->setLoc(OpaqueLoc::get(&somewhere, fallback->front().getLoc()));

  EXPECT_TRUE(isSame(op, &fallback->front(), options));
}

TEST(FingerprintTest, DiscardableAttributesCountUnlessExcluded) {
  auto context = makeContext();
  StructuralOptions options;
  options.includeDiscardableAttributes = false;
  auto lhs = parse(*context, R"(
    "t.a"() <{p = 1 : i8}> {k = 1 : i8} : () -> ()
    func.func private @f() attributes {t.x})");
  auto rhs = parse(*context, R"(
    "t.a"() <{p = 1 : i8}> : () -> ()
    func.func private @f())");
  auto property = parse(*context, R"(
    "t.a"() <{p = 2 : i8}> : () -> ()
    func.func private @f())");

  EXPECT_TRUE(isSame(*lhs, *rhs, options));
  EXPECT_FALSE(isSame(*lhs, *rhs));
  EXPECT_FALSE(isSame(*lhs, *property, options));
}

TEST(FingerprintTest, DigestsForDifferentOptionsDiffer) {
  auto context = makeContext();
  auto module = parse(*context, "");
  std::set<std::string> digests;
  for (bool locations : {false, true})
    for (bool discardable : {false, true})
      for (auto symbols : {StructuralOptions::Symbols::Exact,
                           StructuralOptions::Symbols::NormalizePrivate,
                           StructuralOptions::Symbols::NormalizeAll})
        digests.insert(
            digestOf(*module, {locations, discardable, symbols}).toHex());
  EXPECT_EQ(digests.size(), 12u);
}

//===----------------------------------------------------------------------===//
// Roots
//===----------------------------------------------------------------------===//

TEST(FingerprintTest, FunctionHasOneDigestInEveryModule) {
  auto context = makeContext(), other = makeDirtyContext();
  const char *function = R"(
    func.func @f(%a: i32, %b: memref<4xf32>) -> i32 {
      %c = arith.constant 5 : i32
      %0 = arith.addi %a, %c : i32
      %1 = func.call @f(%0, %b) : (i32, memref<4xf32>) -> i32
      return %1 : i32
    })";
  auto alone = parse(*context, function);
  auto among = parse(*other, std::string("func.func private @other(i64)\n"
                                         "func.func @first() { return }\n") +
                                 function);
  EXPECT_TRUE(isSame(SymbolTable::lookupSymbolIn(*alone, "f"),
                     SymbolTable::lookupSymbolIn(*among, "f")));
}

TEST(FingerprintTest, ValuesFromAboveCountByFirstUseAndType) {
  auto context = makeContext();
  const char *text = R"(
    func.func @f(%a: i32, %b: i32, %c: i64, %d: i1) {
      scf.if %d { "t.u"(%a, %b, %a) : (i32, i32, i32) -> () }
      scf.if %d { "t.u"(%b, %a, %b) : (i32, i32, i32) -> () }
      scf.if %d { "t.u"(%b, %a, %a) : (i32, i32, i32) -> () }
      scf.if %d { "t.u"(%b, %c, %b) : (i32, i64, i32) -> () }
      return
    })";
  auto module = parse(*context, text);
  Block &body = cast<Operation *>(SymbolTable::lookupSymbolIn(*module, "f"))
                    ->getRegion(0)
                    .front();
  std::vector<Operation *> ops;
  for (Operation &op : body)
    ops.push_back(&op);

  EXPECT_TRUE(isSame(ops[0], ops[1]));
  EXPECT_FALSE(isSame(ops[0], ops[2]));
  EXPECT_FALSE(isSame(ops[0], ops[3]));
}

TEST(FingerprintTest, ValueFromAboveIsNotOneFromInside) {
  auto context = makeContext();
  auto module = parse(*context, R"(
    "t.outer"() ({
      %x = "t.v"() : () -> i1
      "t.r"() ({ %0 = "t.v"() : () -> i1 "t.u"(%0, %x) : (i1, i1) -> () }) : () -> ()
      "t.r"() ({ %0 = "t.v"() : () -> i1 "t.u"(%0, %0) : (i1, i1) -> () }) : () -> ()
      "t.r"() ({ %0 = "t.v"() : () -> i1 "t.u"(%x, %0) : (i1, i1) -> () }) : () -> ()
      "t.r"() ({ "t.u"(%x, %x) : (i1, i1) -> () %0 = "t.v"() : () -> i1 }) : () -> ()
    }) : () -> ())");
  std::vector<Operation *> ops;
  for (Operation &op : module->front().getRegion(0).front())
    if (op.getNumRegions())
      ops.push_back(&op);
  for (size_t i = 0; i != ops.size(); ++i)
    for (size_t j = 0; j != ops.size(); ++j)
      EXPECT_EQ(isSame(ops[i], ops[j]), i == j) << i << " " << j;
}

TEST(FingerprintTest, NullOperandsAndSuccessorsCountAsSuch) {
  auto context = makeContext(), other = makeContext();
  // The null ones are of the operation "t.n".
  std::vector<OwningOpRef<ModuleOp>> modules;
  for (
      const char *text : {
          R"("t.r"() ({ ^a(%x: i1): "t.n"(%x)[^b] : (i1) -> () ^b: }) : () -> ())",
          R"("t.r"() ({ ^a(%x: i1): "t.o"(%x)[^b] : (i1) -> () ^b: }) : () -> ())",
          R"("t.r"() ({ ^a(%x: i1): "t.n"(%x, %x)[^b] : (i1, i1) -> () ^b: }) : () -> ())",
          R"("t.r"() ({ ^a(%x: i1): "t.n"() : () -> () ^b: }) : () -> ())",
      })
    for (MLIRContext *owner : {context.get(), other.get()}) {
      modules.push_back(parse(*owner, text));
      ASSERT_TRUE(modules.back());
      modules.back()->walk([](Operation *op) {
        if (op->getName().getStringRef() == "t.n")
          op->dropAllReferences();
      });
    }
  // With one of the two alone.
  for (bool keepsOperand : {false, true})
    for (MLIRContext *owner : {context.get(), other.get()}) {
      modules.push_back(parse(
          *owner, R"("t.r"() ({ ^a(%x: i1): "t.n"(%x)[^b] : (i1) -> () ^b: })
                     : () -> ())"));
      modules.back()->walk([&](Operation *op) {
        if (op->getName().getStringRef() != "t.n")
          return;
        if (keepsOperand)
          op->getBlockOperands().front().drop();
        else
          op->getOpOperand(0).drop();
      });
    }
  for (size_t i = 0; i != modules.size(); ++i)
    for (size_t j = 0; j != modules.size(); ++j)
      EXPECT_EQ(isSame(*modules[i], *modules[j]), i / 2 == j / 2)
          << i << " " << j;
}

TEST(FingerprintTest, DetachedOperationHasADigest) {
  auto context = makeContext();
  OperationState state(UnknownLoc::get(context.get()), "t.a");
  Operation *op = Operation::create(state);
  auto module = parse(*context, R"("t.a"() : () -> ())");
  EXPECT_TRUE(isSame(op, &module->front()));
  op->destroy();
}

TEST(FingerprintTest, AttributesOfAnotherContextCountByContents) {
  auto context = makeContext(), foreign = makeContext();
  auto module = parse(*context, R"(
    "t.a"() {k = "some text", l = [1 : i8, 2 : i8]} : () -> ()
    "t.b"() {k = "some text", l = [1 : i8, 2 : i8]} : () -> ())");
  Fingerprint before = digestOf(*module);
  auto donor = parse(*foreign, R"("t.a"() {k = "some text",
                                  l = [1 : i8, 2 : i8]} : () -> ())");
  // The verifier accepts it, and so it happens.
  module->front().setDiscardableAttr("k", donor->front().getAttr("k"));
  module->front().setDiscardableAttr("l", donor->front().getAttr("l"));
  EXPECT_EQ(digestOf(*module), before);
  auto again = parse(*context, R"(
    "t.a"() {k = "some text", l = [1 : i8, 2 : i8]} : () -> ()
    "t.b"() {k = "some text", l = [1 : i8, 2 : i8]} : () -> ())");
  EXPECT_TRUE(isSame(*module, *again));
}

TEST(FingerprintTest, EmptyDictionaryOfAnotherContextIsEmpty) {
  auto context = makeContext(), foreign = makeContext();
  auto lhs = parse(*context, R"("t.a"() : () -> ())");
  auto rhs = parse(*context, R"("t.a"() : () -> ())");
  rhs->front().setDiscardableAttrs(DictionaryAttr::get(foreign.get()));
  EXPECT_TRUE(isSame(*lhs, *rhs));
}

TEST(FingerprintTest, PartThatADialectDoesNotWriteCounts) {
  auto context = makeContext(), other = makeDirtyContext();
  auto make = [](MLIRContext &where, const char *part) {
    return parse(where, std::string(R"(
      #file = #llvm.di_file<"f.c" in "/d">
      #unit = #llvm.di_compile_unit<id = distinct[0]<>, sourceLanguage = DW_LANG_C,
        file = #file, isOptimized = false, emissionKind = Full)") +
                            part + "> module attributes {t.k = #unit} {}");
  };
  const char *parts[] = {"", R"(, splitDebugFilename = "a")",
                         R"(, splitDebugFilename = "b")",
                         R"(, producer = "a")"};
  for (const char *left : parts)
    for (const char *right : parts) {
      EXPECT_EQ(isSame(*make(*context, left), *make(*context, right)),
                left == right);
      EXPECT_EQ(isSame(*make(*context, left), *make(*other, right)),
                left == right);
    }
}

//===----------------------------------------------------------------------===//
// Resources
//===----------------------------------------------------------------------===//

std::string resourceModule(llvm::StringRef key, llvm::StringRef data) {
  std::string text = "module attributes {t.w = dense_resource<" + key.str() +
                     "> : tensor<4xi8>} {}";
  if (!data.empty())
    text += "{-# dialect_resources: { builtin: { " + key.str() + ": \"" +
            data.str() + "\" } } #-}";
  return text;
}

TEST(FingerprintTest, ResourceReadTwiceIntoOneContextIsTheSame) {
  auto context = makeContext();
  std::string text = resourceModule("w", "0x0100000001020304");
  auto first = parse(*context, text), second = parse(*context, text);
  EXPECT_TRUE(isSame(*first, *second));
}

TEST(FingerprintTest, ResourceCountsByContentsAndAlignment) {
  auto context = makeContext();
  auto base = parse(*context, resourceModule("w", "0x0100000001020304"));
  auto contents = parse(*context, resourceModule("w", "0x0100000001020305"));
  auto alignment = parse(*context, resourceModule("w", "0x0400000001020304"));
  EXPECT_FALSE(isSame(*base, *contents));
  EXPECT_FALSE(isSame(*base, *alignment));
}

TEST(FingerprintTest, MissingResourceIsNotAnEmptyOneAndNotAnyOther) {
  auto context = makeContext(), other = makeContext();
  auto missing = parse(*context, resourceModule("gone", ""));
  auto missingElsewhere = parse(*other, resourceModule("nowhere", ""));
  auto empty = parse(*context, resourceModule("e", "0x01000000"));
  auto full = parse(*context, resourceModule("f", "0x0100000001020304"));
  EXPECT_TRUE(isSame(*missing, *missingElsewhere));
  EXPECT_FALSE(isSame(*missing, *empty));
  EXPECT_FALSE(isSame(*missing, *full));
}

TEST(FingerprinterTest, SeesResourceDataThatArrivesLater) {
  auto context = makeContext();
  Fingerprinter fingerprinter(*context);
  auto module = parse(*context, resourceModule("late", ""));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(before, fingerprinter.compute(*module));

  auto attribute = cast<DenseResourceElementsAttr>((*module)->getAttr("t.w"));
  static const char data[] = {1, 2, 3, 4};
  attribute.getRawHandle().getResource()->setBlob(
      HeapAsmResourceBlob::allocateAndCopyWithAlign(
          llvm::ArrayRef<char>(data, 4), /*align=*/1));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(after, fingerprinter.compute(*module));

  EXPECT_NE(before, after);
  EXPECT_EQ(after, digestOf(*module));
  auto same = parse(*context, resourceModule("w", "0x0100000001020304"));
  EXPECT_TRUE(isSame(*module, *same));
}

TEST(FingerprinterTest, SeesResourceDataThatIsReplacedInPlace) {
  auto context = makeContext();
  Fingerprinter fingerprinter(*context);
  auto module = parse(*context, "");
  std::vector<char> data(4096, 1);
  auto handle = DenseResourceElementsHandle::getManagerInterface(context.get())
                    .insert("w", UnmanagedAsmResourceBlob::allocateInferAlign(
                                     llvm::ArrayRef<char>(data)));
  auto type = RankedTensorType::get({4096}, IntegerType::get(context.get(), 8));
  (*module)->setAttr("t.w", DenseResourceElementsAttr::get(type, handle));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(before, fingerprinter.compute(*module));
  data[4000] = 2;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(after, fingerprinter.compute(*module));
  EXPECT_NE(before, after);
  EXPECT_EQ(after, digestOf(*module));
}

//===----------------------------------------------------------------------===//
// Fingerprinter
//===----------------------------------------------------------------------===//

TEST(FingerprinterTest, GivesWhatFingerprintGivesInAnyOrderAndUnderAnyOptions) {
  auto context = makeContext();
  const char *texts[] = {
      R"("t.a"() {k = distinct[0]<1 : i8>, l = [@f, "x"]} : () -> ())",
      R"(func.func private @f() func.func @g() { call @f() : () -> () return })",
      R"("t.a"() {k = [distinct[0]<1 : i8>, distinct[1]<1 : i8>]} : () -> ())",
      R"("t.t"() : () -> !llvm.struct<"s", (i8, ptr)>)",
      R"(module attributes {t.w = dense_resource<w> : tensor<4xi8>} {}
         {-# dialect_resources: { builtin: { w: "0x0100000001020304" } } #-})",
  };
  std::vector<OwningOpRef<ModuleOp>> modules;
  for (const char *text : texts)
    modules.push_back(parse(*context, text));
  Fingerprinter fingerprinter(*context);
  std::mt19937_64 random(11);
  for (int i = 0; i != 200; ++i) {
    ModuleOp module = *modules[random() % modules.size()];
    StructuralOptions options;
    options.includeLocations = random() % 2;
    options.includeDiscardableAttributes = random() % 2;
    options.symbols = static_cast<StructuralOptions::Symbols>(random() % 3);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(digest,
                                 fingerprinter.compute(module, options));
    EXPECT_EQ(digest, digestOf(module, options));
  }
}

TEST(FingerprinterTest, SeesBodyOfTypeThatComesLater) {
  auto context = makeContext();
  Fingerprinter fingerprinter(*context);
  // A struct that is only named, until another text gives it a body.
  auto module = parse(
      *context,
      R"("t.t"() : () -> !spirv.struct<later, (!spirv.ptr<!spirv.struct<later>, Generic>)>)");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(digest, fingerprinter.compute(*module));
  auto other = makeContext();
  auto same = parse(
      *other,
      R"("t.t"() : () -> !spirv.struct<later, (!spirv.ptr<!spirv.struct<later>, Generic>)>)");
  EXPECT_EQ(digest, digestOf(*same));
}

TEST(FingerprinterTest, IsUsableAfterItMovedAndAfterModulesAreGone) {
  auto context = makeContext();
  Fingerprinter first(*context);
  Fingerprinter second(std::move(first));
  std::string digest;
  for (int i = 0; i != 50; ++i) {
    auto module = parse(*context, R"(
      func.func @f(%a: i32) -> i32 { %0 = arith.addi %a, %a : i32
        return %0 : i32 })");
    CTXPOOL_ASSERT_OK_AND_ASSIGN(computed, second.compute(*module));
    if (digest.empty())
      digest = computed.toHex();
    EXPECT_EQ(computed.toHex(), digest);
  }
}

//===----------------------------------------------------------------------===//
// The value
//===----------------------------------------------------------------------===//

TEST(FingerprintTest, HexIsReadBack) {
  auto context = makeContext();
  Fingerprint digest = digestOf(*parse(*context, ""));
  std::string hex = digest.toHex();
  EXPECT_EQ(hex.size(), 64u);
  EXPECT_EQ(Fingerprint::fromHex(hex), digest);
  EXPECT_EQ(Fingerprint::fromHex(llvm::StringRef(hex).upper()), digest);
  EXPECT_EQ(Fingerprint::fromHex(hex.substr(1)), std::nullopt);
  EXPECT_EQ(Fingerprint::fromHex(hex + "00"), std::nullopt);
  hex[5] = 'g';
  EXPECT_EQ(Fingerprint::fromHex(hex), std::nullopt);
}

} // namespace

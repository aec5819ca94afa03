//===- GoldenTest.cpp - Fingerprints that must not change -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/ir/IrTestSupport.h"

#include "llvm/Config/llvm-config.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

/// Modules whose digests are in test/golden/fingerprints.txt. They hold in
/// every process and build; a change of one is a change of the scheme, whose
/// version in Fingerprint.cpp then has to change as well. New ones are added at
/// the end.
struct Golden {
  const char *name;
  const char *text;
};

const Golden goldens[] = {
    {"empty", "module {}"},
    {"scalars", R"(
      func.func @f(%a: i32, %b: f32, %c: index) -> (i32, f32) {
        %k = arith.constant -7 : i32
        %x = arith.constant 2.5 : f32
        %0 = arith.addi %a, %k overflow<nsw> : i32
        %1 = arith.mulf %b, %x fastmath<fast> : f32
        %2 = arith.cmpi slt, %a, %0 : i32
        %3 = arith.select %2, %a, %0 : i32
        return %3, %1 : i32, f32
      })"},
    {"blocks", R"(
      func.func @g(%c: i1, %x: i32, %y: i32) -> (i32, i32) {
        cf.cond_br %c, ^a(%x, %y : i32, i32), ^b(%y, %x : i32, i32)
      ^a(%p: i32, %q: i32):
        return %p, %q : i32, i32
      ^b(%r: i32, %s: i32):
        cf.br ^a(%s, %r : i32, i32)
      ^unreachable:
        return %x, %y : i32, i32
      })"},
    {"regions", R"(
      func.func @h(%n: index, %m: memref<?xf32, strided<[2], offset: ?>>) {
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        scf.for %i = %c0 to %n step %c1 {
          %v = memref.load %m[%i] : memref<?xf32, strided<[2], offset: ?>>
          %z = arith.cmpf ult, %v, %v : f32
          scf.if %z { memref.store %v, %m[%c0] : memref<?xf32, strided<[2], offset: ?>> }
        }
        return
      })"},
    {"linalg", R"(
      #map = affine_map<(d0, d1) -> (d0, d1)>
      #sum = affine_map<(d0, d1) -> (d0)>
      func.func @s(%a: tensor<4x?xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
        %0 = linalg.generic {indexing_maps = [#map, #sum],
            iterator_types = ["parallel", "reduction"]}
            ins(%a : tensor<4x?xf32>) outs(%b : tensor<4xf32>) {
        ^bb0(%x: f32, %y: f32):
          %1 = arith.addf %x, %y : f32
          linalg.yield %1 : f32
        } -> tensor<4xf32>
        return %0 : tensor<4xf32>
      })"},
    {"constants", R"(
      module attributes {
        t.a = dense<[1, 2, 3]> : tensor<3xi32>, t.b = dense<true> : tensor<9xi1>,
        t.c = dense<[true, false, true]> : vector<3xi1>,
        t.d = dense<[-8, 7]> : tensor<2xi4>, t.e = dense<> : tensor<0x2xi8>,
        t.f = dense<(1.0, -0.0)> : tensor<2xcomplex<f32>>,
        t.g = dense<[0x7F, 0x80]> : tensor<2xf8E4M3FN>,
        t.h = sparse<[[0, 1], [2, 0]], [1.0, -0.0]> : tensor<3x2xf32>,
        t.i = array<i32: 1, 2>, t.j = 0x7FC00001 : f32,
        t.k = 0x3FFF0000000000000000000000000001 : f128,
        t.l = 340282366920938463463374607431768211455 : ui128,
        t.m = dense<["a", "b\00c"]> : tensor<2x!t.s>, t.n = unit,
        t.o = affine_set<(d0)[s0] : (d0 - s0 >= 0, d0 == 3)>,
        t.p = "typed" : i32, t.q = #t.opaque<x>, t.r = !t.opaque<y>,
        t.s = loc(fused<"m">["a":1:1, callsite("b" at "c":2:3)])} {})"},
    {"resources", R"(
      module attributes {t.w = dense_resource<w> : tensor<4xi8>,
                         t.v = dense_resource<gone> : tensor<4xi8>} {}
      {-# dialect_resources: { builtin: { w: "0x0400000001020304" } } #-})"},
    {"llvm", R"(
      #domain = #llvm.alias_scope_domain<id = distinct[0]<>, description = "d">
      #scope = #llvm.alias_scope<id = distinct[1]<>, domain = #domain>
      #other = #llvm.alias_scope<id = distinct[2]<>, domain = #domain>
      llvm.func @l(%p: !llvm.ptr, %s: !llvm.struct<"n", (i32, ptr)>) -> i32 {
        %0 = llvm.load %p {alias_scopes = [#scope], noalias_scopes = [#other]}
          : !llvm.ptr -> i32
        %1 = llvm.getelementptr inbounds %p[3] : (!llvm.ptr) -> !llvm.ptr, i32
        llvm.store %0, %1 {alias_scopes = [#other]} : i32, !llvm.ptr
        llvm.return %0 : i32
      })"},
    {"graph", R"(
      "t.g"() ({
        %0 = "t.a"(%1, %2) : (i1, i2) -> i1
        %1 = "t.b"(%0) <{p = [1 : i8, {q = "s"}]}> {d} : (i1) -> i1
        %2 = "t.c"(%2) : (i2) -> i2
      }, {}, { ^bb0: }) : () -> ())"},
    {"mixed", R"(
      module @m attributes {dlti.dl_spec = #dlti.dl_spec<index = 32 : i64>,
                            t.d = [distinct[0]<1 : i8>, distinct[1]<1 : i8>]} {
        func.func private @p(!quant.uniform<i8:f32, 0.1:3>) attributes {t.s = @m}
        func.func @q(%a: vector<[4]x2xf32>, %b: memref<*xf16, 3>,
                     %c: !spirv.struct<r, (!spirv.ptr<!spirv.struct<r>, Generic>)>)
      })"},
    {"structs", R"(
      llvm.func private @t(!llvm.struct<packed (i8, struct<"s", (struct<(i8, ptr)>)>)>,
          !llvm.struct<"o", opaque>, !llvm.target<"x", i8, 3>,
          !llvm.struct<"u", (array<2 x struct<"v", (struct<"u">, i32)>>)>,
          !llvm.struct<"v", (struct<"u", (array<2 x struct<"v">>)>, i32)>)
      #f = #llvm.di_file<"f.c" in "d">
      #u = #llvm.di_compile_unit<id = distinct[0]<>, sourceLanguage = DW_LANG_C,
        file = #f, isOptimized = false, emissionKind = Full,
        splitDebugFilename = "s">
      module attributes {t.u = #u} {})"},
};

std::filesystem::path goldenFile() {
  return sourceDir() / "test" / "golden" / "fingerprints.txt";
}

TEST(GoldenTest, DigestsAreAsTheyWere) {
  // `<digest> <mode> <module>`, a line each.
  std::map<std::pair<std::string, std::string>, std::string> expected;
  std::ifstream file(goldenFile());
  std::string digest, mode, name;
  while (file >> digest >> mode >> name)
    expected[{mode, name}] = digest;
  if (LLVM_VERSION_MAJOR != 22)
    GTEST_SKIP() << "the digests are those of MLIR 22";

  auto context = makeContext();
  Fingerprinter fingerprinter(*context);
  for (const Golden &golden : goldens) {
    auto module = parse(*context, golden.text);
    ASSERT_TRUE(module);
    StructuralOptions all;
    all.symbols = StructuralOptions::Symbols::NormalizeAll;
    for (auto [modeName, options] :
         {std::pair("exact", StructuralOptions()), std::pair("all", all)}) {
      std::string computed = digestOf(*module, options).toHex();
      auto it = expected.find({modeName, golden.name});
      EXPECT_TRUE(it != expected.end() && it->second == computed)
          << "not in test/golden/fingerprints.txt: " << computed << " "
          << modeName << " " << golden.name;
      auto remembered = fingerprinter.compute(*module, options);
      ASSERT_TRUE(remembered.ok());
      EXPECT_EQ(remembered->toHex(), computed);
    }
  }
}

} // namespace

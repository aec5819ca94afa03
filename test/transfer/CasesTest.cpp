//===- CasesTest.cpp - What goes wrong with modules that move -------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The kinds of failure that users of MLIR reported of modules that cross
/// contexts, each by direct copy and through bytes.
///
//===----------------------------------------------------------------------===//

#include "context_pool/ModuleTransfer.h"
#include "test/ir/IrTestSupport.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"
#include "test/transfer/TransferTestSupport.h"

#include "mlir/Dialect/IRDL/IR/IRDL.h"
#include "mlir/Dialect/IRDL/IRDLLoading.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

enum class Way { Clone, Bytes };

absl::StatusOr<OwningOpRef<Operation *>>
transfer(Operation *source, MLIRContext &destination, Way way) {
  if (way == Way::Clone)
    return cloneInto(source, destination);
  absl::StatusOr<SerializedModule> bytes = serialize(source);
  if (!bytes.ok())
    return bytes.status();
  DeserializeOptions options;
  options.verify = verifies(source);
  return deserialize(*bytes, destination, options);
}

class CasesTest : public testing::TestWithParam<Way> {
protected:
  absl::StatusOr<OwningOpRef<Operation *>> move(Operation *op,
                                                MLIRContext &context) {
    return transfer(op, context, GetParam());
  }

  /// Moves the text's module there and back, and expects it unchanged.
  void expectKept(llvm::StringRef text) {
    auto source = makeContext(), destination = makeDirtyContext();
    auto module = parse(*source, text);
    ASSERT_TRUE(module);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(there, move(*module, *destination));
    expectFaithful(*module, *there, /*sameText=*/false);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(back, move(*there, *source));
    expectFaithful(*module, *back, /*sameText=*/false);
  }

  /// What bytes lose: copied as it is, or refused with the name.
  void expectKeptOrRefused(Operation *op, llvm::StringRef name) {
    auto destination = makeContext();
    auto moved = move(op, *destination);
    if (GetParam() == Way::Bytes) {
      EXPECT_THAT(moved, StatusIs(failedPrecondition, name.str()));
      return;
    }
    ASSERT_THAT(moved, IsOk());
    expectFaithful(op, moved->get(), /*sameText=*/false);
  }
};

INSTANTIATE_TEST_SUITE_P(BothWays, CasesTest,
                         testing::Values(Way::Clone, Way::Bytes),
                         [](const auto &way) {
                           return way.param == Way::Clone ? "Clone" : "Bytes";
                         });

TEST_P(CasesTest, DistinctIdentityInAttributesThatAreText) {
  auto context = makeContext();
  auto map = parse(*context, R"(
    #d = distinct[0]<unit>
    module attributes {t.a = #d, t.b = #dlti.map<"k" = #d>} {})");
  ASSERT_TRUE(map);
  expectKeptOrRefused(*map, "t.b");
  // One domain of two alias scopes.
  auto scopes = parse(*context, R"(
    #domain = #llvm.alias_scope_domain<id = distinct[0]<>>
    #a = #llvm.alias_scope<id = distinct[1]<>, domain = #domain>
    #b = #llvm.alias_scope<id = distinct[2]<>, domain = #domain>
    llvm.func @f(%p: !llvm.ptr) {
      %0 = llvm.load %p {alias_scopes = [#a], noalias_scopes = [#b]}
        : !llvm.ptr -> i32
      llvm.return
    })");
  ASSERT_TRUE(scopes);
  expectKeptOrRefused(*scopes, "llvm.load");
}

TEST_P(CasesTest, DistinctIdentityInDebugInfo) {
  expectKept(R"(
    #file = #llvm.di_file<"f.c" in "/d">
    #unit = #llvm.di_compile_unit<id = distinct[0]<>, sourceLanguage = DW_LANG_C,
      file = #file, isOptimized = false, emissionKind = Full>
    #one = #llvm.di_subprogram<id = distinct[1]<>, compileUnit = #unit,
      scope = #file, name = "one", file = #file, subprogramFlags = Definition>
    #two = #llvm.di_subprogram<id = distinct[2]<>, compileUnit = #unit,
      scope = #file, name = "two", file = #file, subprogramFlags = Definition>
    module {
      llvm.func @one() { llvm.return } loc(fused<#one>["f.c":1:1])
      llvm.func @two() { llvm.return } loc(fused<#two>["f.c":2:1])
    })");
}

TEST_P(CasesTest, SplitDebugFileNameOfACompileUnit) {
  // It has no field in MLIR's encoding of the attribute.
  auto context = makeContext();
  auto module = parse(*context, R"(
    #file = #llvm.di_file<"f.c" in "/d">
    #unit = #llvm.di_compile_unit<id = distinct[0]<>, sourceLanguage = DW_LANG_C,
      file = #file, isOptimized = false, emissionKind = Full,
      splitDebugFilename = "f.dwo">
    module attributes {t.unit = #unit} {})");
  ASSERT_TRUE(module);
  expectKeptOrRefused(*module, "t.unit");
}

TEST_P(CasesTest, WideFloatsInAttributesThatAreText) {
  auto context = makeContext();
  for (const char *value :
       {"0x3FFF0000000000000000000000000001 : f128",
        "0x3FFF8000000000000001 : f80",
        "dense<0x3FFF0000000000000000000000000001> : tensor<1xf128>"}) {
    auto module = parse(*context, std::string("module attributes {t.m = "
                                              "#dlti.map<\"k\" = ") +
                                      value + ">} {}");
    ASSERT_TRUE(module) << value;
    expectKeptOrRefused(*module, "t.m");
  }
}

TEST_P(CasesTest, RangeLocationOfOnePoint) {
  auto source = makeContext(), destination = makeContext();
  auto module = parse(*source, "module {}");
  auto rangeIn = [](MLIRContext &context) {
    return FileLineColRange::get(StringAttr::get(&context, "f"), 1, 2, 1, 2);
  };
  ASSERT_FALSE(isStrictFileLineColLoc(rangeIn(*source)));
  module->getOperation()->setLoc(rangeIn(*source));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(moved, move(*module, *destination));
  expectFaithful(*module, *moved, /*sameText=*/GetParam() == Way::Clone);
  // Bytes say a point.
  EXPECT_EQ(moved->getLoc() == Location(rangeIn(*destination)),
            GetParam() == Way::Clone);
  EXPECT_EQ(isStrictFileLineColLoc(moved->getLoc()), GetParam() == Way::Bytes);
}

TEST_P(CasesTest, OpaqueLocationBecomesItsFallback) {
  auto source = makeContext(), destination = makeContext();
  auto module = parse(*source, "module {}");
  Location fallback =
      FileLineColLoc::get(StringAttr::get(source.get(), "f"), 1, 2);
  module->getOperation()->setLoc(
      OpaqueLoc::get<const char *>("an address", fallback));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(moved, move(*module, *destination));
  expectFaithful(*module, *moved);
  EXPECT_EQ(moved->getLoc(),
            Location(FileLineColLoc::get(
                StringAttr::get(destination.get(), "f"), 1, 2)));
}

TEST_P(CasesTest, StructsWhoseTextIsLarge) {
  // Twice as large with each level.
  std::string type = "i8";
  for (int i = 0; i != 10; ++i)
    type =
        "struct<\"" + std::to_string(i) + "\", (" + type + ", " + type + ")>";
  expectKept("module attributes {t.t = !llvm." + type + "} {}");
}

TEST_P(CasesTest, ResourcesThatComeTwiceIntoOneContext) {
  constexpr llvm::StringLiteral text = R"(
    module attributes {t.a = dense_resource<w> : tensor<4xi8>,
                       t.b = dense_resource<w_1> : tensor<4xi8>} {}
    {-# dialect_resources: { builtin: {
      w: "0x0400000001020304", w_1: "0x0400000005060708" } } #-})";
  auto source = makeContext(), destination = makeContext();
  auto module = parse(*source, text);
  ASSERT_TRUE(module);
  for (int i = 0; i != 3; ++i) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(moved, move(*module, *destination));
    EXPECT_TRUE(isSame(*module, *moved));
  }
}

TEST_P(CasesTest, ResourcesWithOddNames) {
  expectKept(R"(
    module attributes {
      t.a = dense_resource<"sp ace"> : tensor<1xi8>,
      t.b = dense_resource<"q\22uote"> : tensor<1xi8>,
      t.c = dense_resource<"tab\09"> : tensor<1xi8>,
      t.d = dense_resource<"\C3\A9"> : tensor<1xi8>} {}
    {-# dialect_resources: { builtin: {
      "sp ace": "0x0100000001", "q\22uote": "0x0100000002",
      "tab\09": "0x0100000003", "\C3\A9": "0x0100000004" } } #-})");
}

TEST_P(CasesTest, ResourcesWithoutData) {
  expectKept(
      "module attributes {t.a = dense_resource<gone> : tensor<4xi8>} {}");
}

TEST_P(CasesTest, ExternalResourcesAreNotOfTheModule) {
  // They are in a map of whoever parses; MLIR drops them where there is none.
  auto source = makeContext(), destination = makeContext();
  auto module = parse(*source, R"(
    module {}
    {-# external_resources: { ext: { s: "string", b: true } } #-})");
  ASSERT_TRUE(module);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(moved, move(*module, *destination));
  expectFaithful(*module, *moved);
}

TEST_P(CasesTest, UnregisteredTypesAttributesAndOperations) {
  expectKept(R"(
    "no.op"() ({
    ^bb0(%a: !no.type<"x", [1]>):
      "no.use"(%a) {no.attr = #no.attr<y>} : (!no.type<"x", [1]>) -> ()
    }) {n = #no.other} : () -> ())");
}

TEST_P(CasesTest, UseListsThatAreNoInversesOfThemselves) {
  auto source = makeContext(), destination = makeContext();
  auto module = parse(*source, R"(
    func.func @f(%a: i32) -> i32 {
      %0 = arith.addi %a, %a : i32
      %1 = arith.muli %0, %a : i32
      %2 = arith.subi %0, %1 : i32
      %3 = arith.addi %0, %2 : i32
      return %0 : i32
    })");
  std::mt19937_64 random(11);
  for (int i = 0; i != 30; ++i) {
    shuffleUseLists(*module, random);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(moved, move(*module, *destination));
    EXPECT_EQ(compareUseLists(*module, *moved), "");
  }
}

TEST_P(CasesTest, DeepArraysTerminate) {
  expectKept("module attributes {t.a = [[[[[[[[[[1]]]]]]]]]], "
             "t.t = tuple<tuple<tuple<tuple<tuple<tuple<i1>>>>>>} {}");
}

TEST_P(CasesTest, BooleansPackedAndSplat) {
  expectKept(R"(
    module attributes {
      t.a = dense<true> : tensor<9xi1>, t.b = dense<false> : tensor<9xi1>,
      t.c = dense<[true, false, true]> : tensor<3xi1>,
      t.d = dense<[true, true, true, true, true, true, true, false, true]>
        : tensor<9xi1>,
      t.e = dense<true> : tensor<i1>, t.f = dense<> : tensor<0xi1>,
      t.g = dense<[[true, false], [false, true]]> : tensor<2x2xi1>,
      t.h = array<i1: true, false>} {})");
}

TEST_P(CasesTest, NumbersOfOddWidths) {
  expectKept(R"(
    module attributes {
      t.a = dense<[1, 2, 3]> : tensor<3xi4>, t.b = dense<7> : tensor<3xi3>,
      t.c = dense<[1, -1]> : tensor<2xi129>, t.d = -1 : i65,
      t.e = dense<[(1.0, 2.0), (3.0, 4.0)]> : tensor<2xcomplex<f32>>,
      t.f = dense<1.0> : tensor<2xf8E5M2>, t.g = dense<[1.0, 2.0]> : tensor<2xtf32>,
      t.h = 1.0 : f8E4M3FN, t.i = 1.0 : tf32, t.j = dense<["a", "b"]> : tensor<2x!t.s>,
      t.k = dense<[1, 2]> : vector<2xindex>, t.l = array<f32: 1.0, 2.0>} {})");
}

TEST_P(CasesTest, DialectThatTheDestinationLacks) {
  auto source = makeContext();
  MLIRContext destination(MLIRContext::Threading::DISABLED);
  auto code = GetParam() == Way::Clone ? failedPrecondition : invalidArgument;
  for (auto [text, dialect] :
       {std::pair("func.func @f() { return }", "func"),
        std::pair("module attributes {a = #llvm.fastmath<fast>} {}", "llvm"),
        std::pair("module attributes {a = !llvm.ptr} {}", "llvm")}) {
    auto module = parse(*source, text);
    ASSERT_TRUE(module) << text;
    EXPECT_THAT(move(*module, destination), StatusIs(code, dialect));
  }
  // Operations with properties that the destination takes for unregistered.
  destination.allowUnregisteredDialects();
  auto module = parse(*source, "func.func @f() { return }");
  EXPECT_FALSE(move(*module, destination).ok());
}

TEST_P(CasesTest, ReferencesThatWereDropped) {
  auto source = makeContext(), destination = makeContext();
  for (const char *name : {"arith.addi", "cf.br"}) {
    auto module = parse(*source, R"(
      func.func @f(%a: i32) {
        %0 = arith.addi %a, %a : i32
        cf.br ^end
      ^end:
        return
      })");
    ASSERT_TRUE(module);
    module->walk([&](Operation *op) {
      if (op->getName().getStringRef() == name)
        op->dropAllReferences();
    });
    for (MLIRContext *context : {destination.get(), source.get()})
      EXPECT_THAT(move(*module, *context), StatusIs(invalidArgument, name));
  }
}

TEST_P(CasesTest, BytesThatEndInZero) {
  auto source = makeContext(), destination = makeContext();
  auto module = parse(*source, "module attributes {t.s = \"a\\00b\\00\"} {}");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(moved, move(*module, *destination));
  EXPECT_EQ(cast<StringAttr>((*moved)->getAttr("t.s")).getValue(),
            llvm::StringRef("a\0b\0", 4));
}

/// Defines the dialect `dyn` in the context.
void defineDialect(MLIRContext &context) {
  context.loadDialect<irdl::IRDLDialect>();
  auto definition = parse(context, R"(
    irdl.dialect @dyn {
      irdl.operation @op {
        %0 = irdl.any
        irdl.results(r: %0)
      }
      irdl.type @type {
        %0 = irdl.any
        irdl.parameters(p: %0)
      }
    })");
  ASSERT_TRUE(definition);
  ASSERT_TRUE(succeeded(irdl::loadDialects(*definition)));
}

TEST_P(CasesTest, DialectDefinedAtRunTime) {
  auto source = makeContext(), same = makeContext(), other = makeContext();
  for (MLIRContext *context : {source.get(), same.get(), other.get()})
    context->allowUnregisteredDialects(false);
  defineDialect(*source);
  auto module = parse(*source, "%0 = \"dyn.op\"() : () -> !dyn.type<i32>");
  ASSERT_TRUE(module);
  auto code = GetParam() == Way::Clone ? failedPrecondition : invalidArgument;
  EXPECT_THAT(move(*module, *other), StatusIs(code, "'dyn'"));
  // The definition moves like any other module, and is loaded there.
  defineDialect(*same);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(moved, move(*module, *same));
  expectFaithful(*module, *moved);
}

} // namespace

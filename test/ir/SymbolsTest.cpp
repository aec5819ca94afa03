//===- SymbolsTest.cpp - Names of symbols that do not count ---------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/ir/IrTestSupport.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/SymbolTable.h"

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

using Mode = StructuralOptions::Symbols;

StructuralOptions with(Mode mode) {
  StructuralOptions options;
  options.symbols = mode;
  return options;
}

struct Case {
  const char *name;
  const char *lhs;
  const char *rhs;
  bool samePrivate, sameAll;
};
void PrintTo(const Case &test, std::ostream *stream) { *stream << test.name; }

class SymbolsTest : public testing::TestWithParam<Case> {};

TEST_P(SymbolsTest, ComparesAsTheModeSays) {
  auto context = makeContext(), other = makeDirtyContext();
  auto lhs = parse(*context, GetParam().lhs);
  auto rhs = parse(*context, GetParam().rhs);
  auto rhsElsewhere = parse(*other, GetParam().rhs);
  ASSERT_TRUE(lhs && rhs && rhsElsewhere);
  for (ModuleOp right : {*rhs, *rhsElsewhere}) {
    EXPECT_FALSE(isSame(*lhs, right));
    EXPECT_EQ(isSame(*lhs, right, with(Mode::NormalizePrivate)),
              GetParam().samePrivate);
    EXPECT_EQ(isSame(*lhs, right, with(Mode::NormalizeAll)),
              GetParam().sameAll);
  }
}

const Case cases[] = {
    {"PrivateName",
     R"(func.func private @clip_0(%a: i32) -> i32 { return %a : i32 }
        func.func @main(%a: i32) -> i32 {
          %0 = call @clip_0(%a) : (i32) -> i32 return %0 : i32 })",
     R"(func.func private @clip_1(%a: i32) -> i32 { return %a : i32 }
        func.func @main(%a: i32) -> i32 {
          %0 = call @clip_1(%a) : (i32) -> i32 return %0 : i32 })",
     true, true},
    {"PublicName",
     R"(func.func @f() { return } func.func @main() { call @f() : () -> () return })",
     R"(func.func @g() { return } func.func @main() { call @g() : () -> () return })",
     false, true},
    {"TwoPrivateNamesSwapped",
     R"(func.func private @a() { return } func.func private @b() { return }
        func.func @main() { call @a() : () -> () call @b() : () -> () return })",
     R"(func.func private @b() { return } func.func private @a() { return }
        func.func @main() { call @b() : () -> () call @a() : () -> () return })",
     true, true},
    {"ReferencesToOthers",
     R"(func.func private @a() { return } func.func private @b() { return }
        func.func @main() { call @a() : () -> () call @b() : () -> () return })",
     R"(func.func private @a() { return } func.func private @b() { return }
        func.func @main() { call @b() : () -> () call @a() : () -> () return })",
     false, false},
    {"DefinitionInOtherOrder",
     R"(func.func private @a() { return } func.func private @b(i8)
        func.func @main() { call @a() : () -> () return })",
     R"(func.func private @b(i8) func.func private @a() { return }
        func.func @main() { call @a() : () -> () return })",
     false, false},
    {"VisibilityStillCounts", "func.func private @a() { return }",
     "func.func nested @a() { return }", false, false},
    {"NestedVisibilityIsPublic", "func.func nested @a() { return }",
     "func.func nested @b() { return }", false, true},
    {"StringThatSpellsTheNameCounts",
     R"(func.func private @a() attributes {t.n = "a"} { return })",
     R"(func.func private @b() attributes {t.n = "b"} { return })", false,
     false},
    {"PropertyThatSpellsTheNameCounts",
     R"(llvm.func @a() attributes {sym_visibility = "private", section = "a"} {
          llvm.return })",
     R"(llvm.func @b() attributes {sym_visibility = "private", section = "b"} {
          llvm.return })",
     false, false},
    {"ReferenceInsideOfContainers",
     R"(func.func private @a() { return } "t.u"() {k = [{x = @a}, @a]} : () -> ())",
     R"(func.func private @b() { return } "t.u"() {k = [{x = @b}, @b]} : () -> ())",
     true, true},
    {"ReferenceOfTheModuleItself",
     R"(module attributes {t.k = @a} { func.func private @a() { return } })",
     R"(module attributes {t.k = @b} { func.func private @b() { return } })",
     true, true},
    {"UnresolvedReferenceCountsByName",
     R"(func.func private @a() { return } "t.u"() {k = @x} : () -> ())",
     R"(func.func private @a() { return } "t.u"() {k = @y} : () -> ())", false,
     false},
    {"ResolvedAgainstUnresolved",
     R"(func.func private @a() { return } "t.u"() {k = @a} : () -> ())",
     R"(func.func private @b() { return } "t.u"() {k = @a} : () -> ())", false,
     false},
    {"NestedTable",
     R"(module @m { func.func private @a() { return } "t.u"() {k = @a} : () -> () }
        func.func private @a() { return } "t.u"() {k = @a} : () -> ())",
     R"(module @m { func.func private @p() { return } "t.u"() {k = @p} : () -> () }
        func.func private @q() { return } "t.u"() {k = @q} : () -> ())",
     true, true},
    {"NestedReference",
     R"(module @m attributes {sym_visibility = "private"} {
          module @n { func.func nested @f() { return } } }
        "t.u"() {k = @m::@n::@f} : () -> ())",
     R"(module @x attributes {sym_visibility = "private"} {
          module @n { func.func nested @f() { return } } }
        "t.u"() {k = @x::@n::@f} : () -> ())",
     true, true},
    {"NestedReferencePublicParts",
     R"(module @m { module @n { func.func nested @f() { return } } }
        "t.u"() {k = @m::@n::@f} : () -> ())",
     R"(module @x { module @y { func.func nested @g() { return } } }
        "t.u"() {k = @x::@y::@g} : () -> ())",
     false, true},
    {"NestedReferenceToOtherPart",
     R"(module @m { func.func nested @f() { return } func.func nested @g() { return } }
        "t.u"() {k = @m::@f} : () -> ())",
     R"(module @m { func.func nested @f() { return } func.func nested @g() { return } }
        "t.u"() {k = @m::@g} : () -> ())",
     false, false},
    {"ShadowedName",
     R"(func.func private @a() { return } module @m { func.func private @b() { return }
        "t.u"() {k = @b} : () -> () })",
     R"(func.func private @b() { return } module @m { func.func private @a() { return }
        "t.u"() {k = @b} : () -> () })",
     false, false},
    {"SameReferenceInTwoScopes",
     R"(func.func private @a() { return } "t.u"() {k = @a} : () -> ()
        module @m { func.func private @b() { return } "t.u"() {k = @a} : () -> () })",
     R"(func.func private @b() { return } "t.u"() {k = @b} : () -> ()
        module @m { func.func private @a() { return } "t.u"() {k = @a} : () -> () })",
     false, false},
    {"UnregisteredSymbolWithABody",
     R"("t.def"() <{sym_name = "a", sym_visibility = "private", v = 1 : i8}>
          ({ ^a: }) : () -> () "t.u"() {k = @a} : () -> ())",
     R"("t.def"() <{sym_name = "b", sym_visibility = "private", v = 1 : i8}>
          ({ ^a: }) : () -> () "t.u"() {k = @b} : () -> ())",
     true, true},
    {"UnregisteredSymbolByAttribute",
     R"("t.def"() ({ ^a: }) {sym_name = "a", sym_visibility = "private",
          v = 1 : i8} : () -> () "t.u"() {k = @a} : () -> ())",
     R"("t.def"() ({ ^a: }) {sym_name = "b", sym_visibility = "private",
          v = 1 : i8} : () -> () "t.u"() {k = @b} : () -> ())",
     true, true},
    {"RestOfASymbolCounts",
     R"("t.def"() ({ ^a: }) {sym_name = "a", sym_visibility = "private",
          v = 1 : i8} : () -> ())",
     R"("t.def"() ({ ^a: }) {sym_name = "b", sym_visibility = "private",
          v = 2 : i8} : () -> ())",
     false, false},
    {"WhatIsNotKnownToBeADefinitionCountsByName",
     R"("t.def"() {sym_name = "a", sym_visibility = "private", v = 1 : i8}
          : () -> ())",
     R"("t.def"() {sym_name = "b", sym_visibility = "private", v = 1 : i8}
          : () -> ())",
     false, false},
    {"ExternMlProgramGlobalCountsByName",
     R"(ml_program.global private @a(#ml_program.extern<i32>) : i32)",
     R"(ml_program.global private @b(#ml_program.extern<i32>) : i32)", false,
     false},
    {"DefinedMlProgramGlobal", R"(ml_program.global private @a(1 : i32) : i32)",
     R"(ml_program.global private @b(1 : i32) : i32)", true, true},
    {"ExternEmitCGlobalCountsByName", R"(emitc.global extern @a : i32)",
     R"(emitc.global extern @b : i32)", false, false},
    {"DefinedEmitCGlobal", R"(emitc.global static @a : i32 = 1)",
     R"(emitc.global static @b : i32 = 1)", false, true},
    {"ImportedSpirvVariableCountsByName",
     R"(spirv.module Logical GLSL450 { spirv.GlobalVariable @v
          {linkage_attributes = #spirv.linkage_attributes<linkage_name = "v",
           linkage_type = <Import>>} : !spirv.ptr<f32, Private> })",
     R"(spirv.module Logical GLSL450 { spirv.GlobalVariable @w
          {linkage_attributes = #spirv.linkage_attributes<linkage_name = "v",
           linkage_type = <Import>>} : !spirv.ptr<f32, Private> })",
     false, false},
    {"DefinedLlvmGlobal",
     R"(llvm.mlir.global internal @a(1 : i32) {sym_visibility = "private"} : i32)",
     R"(llvm.mlir.global internal @b(1 : i32) {sym_visibility = "private"} : i32)",
     true, true},
    {"LlvmLinkageMakesNoSymbolPrivate",
     R"(llvm.mlir.global internal @a(1 : i32) : i32)",
     R"(llvm.mlir.global internal @b(1 : i32) : i32)", false, true},
    {"PropertyWithTheNameAsValueCounts",
     R"(llvm.func @a() attributes {sym_visibility = "private", section = "a"} {
          llvm.return })",
     R"(llvm.func @b() attributes {sym_visibility = "private", section = "b"} {
          llvm.return })",
     false, false},
    {"PropertyWithTheValueOfOneNameIsNotTheName",
     R"(llvm.func @a() attributes {sym_visibility = "private", section = "a"} {
          llvm.return })",
     R"(llvm.func @b() attributes {sym_visibility = "private", section = "a"} {
          llvm.return })",
     true, true},
    {"VisibilityWithTheValueOfOneNameIsNotTheName",
     R"(llvm.func @private() attributes {sym_visibility = "private"} {
          llvm.return })",
     R"(llvm.func @b() attributes {sym_visibility = "private"} {
          llvm.return })",
     true, true},
    {"LaterPropertyWithTheNameAsValueCounts",
     R"("llvm.func"() <{sym_name = "private", sym_visibility = "private",
          function_type = !llvm.func<void ()>}> ({ llvm.return }) : () -> ())",
     R"("llvm.func"() <{sym_name = "nested", sym_visibility = "nested",
          function_type = !llvm.func<void ()>}> ({ llvm.return }) : () -> ())",
     false, false},
    {"DeclaredFunctionCountsByName",
     R"(func.func private @sin(f32) -> f32 func.func @main(%a: f32) -> f32 {
          %0 = call @sin(%a) : (f32) -> f32 return %0 : f32 })",
     R"(func.func private @cos(f32) -> f32 func.func @main(%a: f32) -> f32 {
          %0 = call @cos(%a) : (f32) -> f32 return %0 : f32 })",
     false, false},
    {"DeclaredGlobalCountsByName",
     R"(memref.global "private" @a : memref<2xi32>)",
     R"(memref.global "private" @b : memref<2xi32>)", false, false},
    {"DefinedGlobal",
     R"(memref.global "private" @a : memref<2xi32> = uninitialized)",
     R"(memref.global "private" @b : memref<2xi32> = uninitialized)", true,
     true},
    {"DeclaredLlvmFunctionCountsByName",
     R"(llvm.func @a() attributes {sym_visibility = "private"})",
     R"(llvm.func @b() attributes {sym_visibility = "private"})", false, false},
    {"NameOutsideOfATableCounts",
     R"("t.r"() ({ func.func private @a() { return } }) : () -> ())",
     R"("t.r"() ({ func.func private @b() { return } }) : () -> ())", false,
     false},
};
INSTANTIATE_TEST_SUITE_P(Symbols, SymbolsTest, testing::ValuesIn(cases),
                         [](const auto &instance) {
                           return std::string(instance.param.name);
                         });

Operation *symbol(ModuleOp module, llvm::StringRef name) {
  return SymbolTable::lookupSymbolIn(module, name);
}

TEST(SymbolsOfRootTest, OwnNameOfTheRootCountsUnlessAllAreNormalized) {
  auto context = makeContext();
  auto module = parse(*context, R"(
    func.func private @f(%a: i32) -> i32 {
      %0 = call @f(%a) : (i32) -> i32 return %0 : i32 }
    func.func private @g(%a: i32) -> i32 {
      %0 = call @g(%a) : (i32) -> i32 return %0 : i32 }
    func.func private @h(%a: i32) -> i32 {
      %0 = call @g(%a) : (i32) -> i32 return %0 : i32 })");
  Operation *f = symbol(*module, "f"), *g = symbol(*module, "g"),
            *h = symbol(*module, "h");

  EXPECT_FALSE(isSame(f, g, with(Mode::NormalizePrivate)));
  EXPECT_TRUE(isSame(f, g, with(Mode::NormalizeAll)));
  // A call of another function is not a call of oneself.
  EXPECT_FALSE(isSame(g, h, with(Mode::NormalizeAll)));
  // And what is defined elsewhere counts by name.
  EXPECT_FALSE(isSame(f, h, with(Mode::NormalizeAll)));
}

TEST(SymbolsOfRootTest, NameOfAModuleCountsUnlessAllAreNormalized) {
  auto context = makeContext();
  auto lhs = parse(*context, "module @a {}"),
       rhs = parse(*context, "module @b {}");
  EXPECT_FALSE(isSame(*lhs, *rhs, with(Mode::NormalizePrivate)));
  EXPECT_TRUE(isSame(*lhs, *rhs, with(Mode::NormalizeAll)));
}

TEST(SymbolsOfRootTest, AttributeBesideTheSymbolsNameCounts) {
  auto context = makeContext();
  auto make = [&](const char *name) {
    auto module = parse(*context, R"(func.func private @f() { return })");
    module->front().setDiscardableAttr("sym_name",
                                       StringAttr::get(context.get(), name));
    return module;
  };
  auto lhs = make("a"), rhs = make("b");
  for (Mode mode : {Mode::Exact, Mode::NormalizePrivate, Mode::NormalizeAll})
    EXPECT_FALSE(isSame(*lhs, *rhs, with(mode)));
}

TEST(SymbolsOfRootTest, PropertyWithADefaultIsNotAnAbsentOne) {
  auto context = makeContext();
  const char *text = R"(llvm.func @f() attributes {sym_visibility = "private"} {
                          llvm.return })";
  auto lhs = parse(*context, text), rhs = parse(*context, text);
  ASSERT_TRUE(rhs->front().removeAttr("CConv"));
  for (Mode mode : {Mode::Exact, Mode::NormalizePrivate, Mode::NormalizeAll})
    EXPECT_FALSE(isSame(*lhs, *rhs, with(mode)));
}

TEST(SymbolsOfRootTest, ModesLeaveTheSourceAsItWas) {
  auto context = makeContext();
  auto module = parse(*context, R"(
    llvm.func @f(%a: i32) attributes {sym_visibility = "private"} {
      llvm.call @f(%a) : (i32) -> () llvm.return })");
  std::string before = genericText(*module);
  digestOf(*module, with(Mode::NormalizePrivate));
  digestOf(*module, with(Mode::NormalizeAll));
  EXPECT_EQ(genericText(*module), before);
}

TEST(SymbolsOfRootTest, RandomRenamingOfPrivateSymbolsIsNotSeen) {
  auto context = makeContext();
  const char *text = R"(
    memref.global "private" constant @p0 : memref<2xi32> = dense<1>
    func.func private @p1(%a: i32) -> i32 { return %a : i32 }
    func.func private @p2(%a: i32) -> i32 {
      %0 = call @p1(%a) : (i32) -> i32 return %0 : i32 }
    func.func @main(%a: i32) -> i32 {
      %g = memref.get_global @p0 : memref<2xi32>
      %0 = call @p2(%a) : (i32) -> i32
      %f = constant @p1 : (i32) -> i32
      %1 = call_indirect %f(%0) : (i32) -> i32
      return %1 : i32 })";
  auto module = parse(*context, text);
  Fingerprint digest = digestOf(*module, with(Mode::NormalizePrivate));
  std::mt19937_64 random(1);
  for (int round = 0; round != 20; ++round) {
    auto renamed = parse(*context, text);
    for (Operation &op : llvm::make_early_inc_range(*renamed->getBody())) {
      if (SymbolTable::getSymbolVisibility(&op) !=
          SymbolTable::Visibility::Private)
        continue;
      auto name = StringAttr::get(context.get(),
                                  "r" + std::to_string(random() % 1000000));
      ASSERT_TRUE(succeeded(SymbolTable::replaceAllSymbolUses(
          &op, name, renamed->getOperation())));
      SymbolTable::setSymbolName(&op, name);
    }
    EXPECT_EQ(digestOf(*renamed, with(Mode::NormalizePrivate)), digest);
    EXPECT_FALSE(isSame(*module, *renamed));
  }
}

} // namespace

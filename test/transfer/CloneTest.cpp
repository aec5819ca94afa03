//===- CloneTest.cpp - Rules of the copy into another context -------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ContextPool.h"
#include "context_pool/Equivalence.h"
#include "context_pool/ModuleTransfer.h"
#include "context_pool/support/Thread.h"
#include "test/ir/IrTestSupport.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"
#include "test/transfer/TransferTestSupport.h"

#include "mlir/Dialect/LLVMIR/LLVMAttrs.h"
#include "mlir/Dialect/LLVMIR/LLVMTypes.h"
#include "mlir/Dialect/SPIRV/IR/SPIRVTypes.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Location.h"

#include <thread>

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

using CloneTest = TransferTest;

/// A context that has nothing but the builtin dialect.
std::unique_ptr<MLIRContext> bareContext() {
  return std::make_unique<MLIRContext>(MLIRContext::Threading::DISABLED);
}

/// The distinct attributes below the operation, each as often as it occurs.
std::vector<DistinctAttr> distinctOf(Operation *op) {
  std::vector<DistinctAttr> found;
  AttrTypeWalker walker;
  walker.addWalk([&](DistinctAttr attribute) { found.push_back(attribute); });
  op->walk([&](Operation *nested) {
    walker.walk(nested->getAttrDictionary());
    walker.walk(Attribute(nested->getLoc()));
  });
  return found;
}

TEST_F(CloneTest, UseListsKeepTheirOrder) {
  auto module = parse(*source, R"(
    func.func @f(%c: i1, %a: i32) -> i32 {
      %0 = arith.addi %a, %a : i32
      %1 = scf.if %c -> i32 {
        %2 = arith.muli %0, %a : i32
        scf.yield %2 : i32
      } else {
        scf.yield %0 : i32
      }
      cf.cond_br %c, ^bb1(%0 : i32), ^bb1(%1 : i32)
    ^bb1(%3: i32):
      %4 = arith.addi %0, %3 : i32
      return %4 : i32
    })");
  std::mt19937_64 random(7);
  for (int i = 0; i != 50; ++i) {
    shuffleUseLists(*module, random);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *destination));
    EXPECT_EQ(compareUseLists(*module, *copy), "");
  }
}

TEST_F(CloneTest, WorksWithinOneContextAsCloneDoes) {
  auto context = makeContext();
  auto module = parse(*context, R"(
    func.func @f(%a: i32) -> i32 attributes {d = distinct[0]<unit>} {
      %0 = arith.addi %a, %a : i32
      return %0 : i32
    })");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *context));
  expectFaithful(*module, *copy);
  Operation *function = &module->getBody()->front();
  Operation *copied = &copy->getBody()->front();
  EXPECT_EQ(function->getAttr("d"), copied->getAttr("d"));

  // Operands from outside stay what they are.
  Operation *add = &function->getRegion(0).front().front();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(alone, cloneInto(add, *context));
  EXPECT_EQ(alone->getOperand(0), add->getOperand(0));
}

TEST_F(CloneTest, WithinOneContextSuccessorsFromOutsideStayWhatTheyAre) {
  auto module = parse(*source, R"(
    func.func @f() {
      cf.br ^end
    ^end:
      return
    })");
  Operation *branch = &module->getBody()->front().getRegion(0).front().front();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(branch, *source));
  EXPECT_EQ(copy->getSuccessor(0), branch->getSuccessor(0));
  EXPECT_THAT(cloneInto(branch, *destination),
              StatusIs(invalidArgument, "branches to a block outside"));
}

TEST_F(CloneTest, ForwardReferencesAndCyclesOfGraphRegions) {
  auto module = parse(*source, R"(
    "t.graph"() ({
      %0 = "t.a"(%1, %0) : (i32, i32) -> i32
      %1 = "t.b"(%0, %2) ({
        "t.c"(%2, %1) : (i32, i32) -> ()
      }) : (i32, i32) -> i32
      %2 = "t.d"() : () -> i32
    }) : () -> ())");
  ASSERT_TRUE(module);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *destination));
  expectFaithful(*module, *copy);
}

TEST_F(CloneTest, OutlivesTheSource) {
  OwningOpRef<ModuleOp> copy;
  std::string text;
  {
    auto module = parse(*source, sampleText());
    CTXPOOL_ASSERT_OK_AND_ASSIGN(made, cloneInto(*module, *destination));
    copy = std::move(made);
    text = genericText(*module, true);
  }
  source.reset();
  EXPECT_EQ(genericText(*copy, true), text);
  EXPECT_TRUE(verifies(*copy));
}

TEST_F(CloneTest, DistinctAttributesAreEqualAsInTheSource) {
  auto module = parse(*source, R"(
    #a = distinct[0]<unit>
    #b = distinct[1]<unit>
    module attributes {
      t.direct = [#a, #b],
      t.in_text = #dlti.map<"x" = #a, "y" = #b>,
      t.again = #dlti.map<"z" = #a>
    } {})");
  ASSERT_TRUE(module);
  CrossContextCloner cloner(*source, *destination);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(first, cloner.clone(*module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(second, cloner.clone(*module));
  expectFaithful(*module, *first);

  std::vector<DistinctAttr> expected = distinctOf(*module);
  std::vector<DistinctAttr> found = distinctOf(*first);
  ASSERT_EQ(expected.size(), found.size());
  for (size_t i = 0; i != expected.size(); ++i)
    for (size_t j = 0; j != expected.size(); ++j)
      EXPECT_EQ(expected[i] == expected[j], found[i] == found[j]);
  // Across calls of one cloner, and not of two.
  EXPECT_EQ(found, distinctOf(*second));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(other, cloneInto(*module, *destination));
  EXPECT_NE(found.front(), distinctOf(*other).front());
}

TEST_F(CloneTest, WideFloatsInTextualAttributesAreExact) {
  auto module = parse(*source, "module {}");
  Builder builder(source.get());
  APFloat value(APFloat::IEEEquad(), APInt(128, {1, 0x3fff000000000000ull}));
  module->getOperation()->setAttr("t.exact",
                                  FloatAttr::get(builder.getF128Type(), value));
  auto holder = parse(
      *source, R"(module attributes {t.m = #dlti.map<"x" = 1.0 : f128>} {})");
  ASSERT_TRUE(holder);
  Attribute map = holder->getOperation()->getAttr("t.m");
  // A map whose number no text can tell.
  AttrTypeReplacer replacer;
  replacer.addReplacement([&](FloatAttr) -> std::optional<Attribute> {
    return FloatAttr::get(builder.getF128Type(), value);
  });
  module->getOperation()->setAttr("t.m", replacer.replace(map));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *destination));
  expectFaithful(*module, *copy);
  EXPECT_TRUE(cast<FloatAttr>(copy->getOperation()->getAttr("t.exact"))
                  .getValue()
                  .bitwiseIsEqual(value));
}

TEST_F(CloneTest, LocationsKeepTheirKind) {
  auto module = parse(*source, "module {}");
  Builder builder(source.get());
  StringAttr file = builder.getStringAttr("f");
  Location point = FileLineColLoc::get(file, 1, 2);
  Location range = FileLineColRange::get(file, 1, 2, 1, 2);
  Location none =
      FusedLoc::get(source.get(), ArrayRef<Location>(), Attribute());
  Location opaque = OpaqueLoc::get<const char *>("an address", point);
  Location all = FusedLoc::get(
      source.get(),
      ArrayRef<Location>{point, range, none, CallSiteLoc::get(point, opaque)},
      builder.getUnitAttr());
  module->getOperation()->setLoc(all);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *destination));
  expectFaithful(*module, *copy, /*sameText=*/false);
  auto parts = cast<FusedLoc>(Location(copy->getLoc())).getLocations();
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_TRUE(isStrictFileLineColLoc(parts[0]));
  EXPECT_EQ(isStrictFileLineColLoc(parts[1]), isStrictFileLineColLoc(range));
  EXPECT_TRUE(cast<FusedLoc>(parts[2]).getLocations().empty());
  EXPECT_EQ(Location(cast<CallSiteLoc>(parts[3]).getCaller()), parts[0]);
}

TEST_F(CloneTest, RecursiveTypes) {
  auto module = parse(*source, R"(
    "t.op"() {
      a = !llvm.struct<"a", (ptr, i32, struct<"b", (array<2 x struct<"c", (ptr)>>, i8)>)>,
      s = !spirv.struct<s, (!spirv.ptr<!spirv.struct<s>, Generic>)>
    } : () -> ())");
  ASSERT_TRUE(module);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *destination));
  expectFaithful(*module, *copy);
}

/// The type that a module with `type` as an attribute has in a clone.
Type cloneType(Type type, MLIRContext &destination) {
  OwningOpRef<ModuleOp> module =
      ModuleOp::create(UnknownLoc::get(type.getContext()));
  module->getOperation()->setAttr("t.type", TypeAttr::get(type));
  absl::StatusOr<OwningOpRef<ModuleOp>> copy = cloneInto(*module, destination);
  EXPECT_THAT(copy, IsOk());
  if (!copy.ok())
    return Type();
  EXPECT_TRUE(isEquivalent(*module, copy->get()));
  return copy->get()->getAttrOfType<TypeAttr>("t.type").getValue();
}

TEST_F(CloneTest, SharedPartsOfNestedStructsAreBuiltOnce) {
  constexpr int depth = 500;
  // Their text would have 2^500 parts.
  Type literal = IntegerType::get(source.get(), 32), identified = literal;
  for (int i = 0; i != depth; ++i) {
    literal =
        LLVM::LLVMStructType::getLiteral(source.get(), {literal, literal});
    auto outer = LLVM::LLVMStructType::getIdentified(source.get(),
                                                     "s" + std::to_string(i));
    ASSERT_TRUE(succeeded(outer.setBody({identified, identified}, i % 2 == 0)));
    identified = outer;
  }

  for (auto [type, isIdentified] :
       {std::pair(literal, false), std::pair(identified, true)}) {
    Type part = cloneType(type, *destination);
    for (int i = depth - 1; i >= 0; --i) {
      auto structure = dyn_cast_or_null<LLVM::LLVMStructType>(part);
      ASSERT_TRUE(structure);
      ASSERT_EQ(structure.getContext(), destination.get());
      EXPECT_EQ(structure.isIdentified(), isIdentified);
      EXPECT_EQ(structure.isPacked(), isIdentified && i % 2 == 0);
      ASSERT_EQ(structure.getBody().size(), 2u);
      EXPECT_EQ(structure.getBody()[0], structure.getBody()[1]);
      part = structure.getBody()[0];
    }
    EXPECT_EQ(part, IntegerType::get(destination.get(), 32));
  }
}

TEST_F(CloneTest, SharedPartsOfNestedAttributesAreBuiltOnce) {
  Builder builder(source.get());
  Attribute value = builder.getUnitAttr();
  for (int i = 0; i != 5000; ++i)
    value = builder.getArrayAttr({value, value});
  OwningOpRef<ModuleOp> module = ModuleOp::create(builder.getUnknownLoc());
  module->getOperation()->setAttr("t.value", value);

  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *destination));

  EXPECT_TRUE(isEquivalent(*module, *copy));
}

TEST_F(CloneTest, StructsThatContainEachOther) {
  auto a = LLVM::LLVMStructType::getIdentified(source.get(), "a");
  auto b = LLVM::LLVMStructType::getIdentified(source.get(), "b");
  Type pointer = LLVM::LLVMPointerType::get(source.get(), 3);
  auto literal = LLVM::LLVMStructType::getLiteral(source.get(), {b, pointer});
  auto array = LLVM::LLVMArrayType::get(b, 2);
  ASSERT_TRUE(succeeded(a.setBody({array, pointer}, /*isPacked=*/true)));
  ASSERT_TRUE(succeeded(
      b.setBody({LLVM::LLVMFunctionType::get(a, {literal}, /*isVarArg=*/true)},
                /*isPacked=*/false)));

  // Whichever one is met first.
  for (Type root : {Type(a), Type(b), Type(literal), Type(array)}) {
    destination = makeContext();
    ASSERT_TRUE(cloneType(root, *destination));
    auto copyA = LLVM::LLVMStructType::getIdentified(destination.get(), "a");
    auto copyB = LLVM::LLVMStructType::getIdentified(destination.get(), "b");
    Type there = LLVM::LLVMPointerType::get(destination.get(), 3);
    EXPECT_TRUE(copyA.isPacked());
    EXPECT_THAT(
        copyA.getBody(),
        testing::ElementsAre(LLVM::LLVMArrayType::get(copyB, 2), there));
    EXPECT_THAT(copyB.getBody(),
                testing::ElementsAre(LLVM::LLVMFunctionType::get(
                    copyA,
                    {LLVM::LLVMStructType::getLiteral(destination.get(),
                                                      {copyB, there})},
                    /*isVarArg=*/true)));
  }
}

TEST_F(CloneTest, StructsWithoutABodyAreOpaque) {
  for (Type type :
       {LLVM::LLVMStructType::getOpaque("opaque", source.get()),
        LLVM::LLVMStructType::getIdentified(source.get(), "without")}) {
    auto copy =
        dyn_cast_or_null<LLVM::LLVMStructType>(cloneType(type, *destination));
    ASSERT_TRUE(copy);
    EXPECT_TRUE(copy.isOpaque());
    EXPECT_EQ(copy.getName(), cast<LLVM::LLVMStructType>(type).getName());
  }
}

TEST_F(CloneTest, AnotherTypeOfTheNameIsRefused) {
  for (auto [here, there] : {
           std::pair("(i32)", "(i64)"),
           std::pair("(i32)", "packed (i32)"),
           std::pair("(i32)", "opaque"),
           std::pair("opaque", "(i32)"),
       }) {
    source = makeContext();
    destination = makeContext();
    auto typeOf = [](StringRef body) {
      return ("\"t.op\"() {a = !llvm.struct<\"a\", " + body + ">} : () -> ()")
          .str();
    };
    auto module = parse(*source, typeOf(here));
    auto other = parse(*destination, typeOf(there));
    ASSERT_TRUE(module && other);
    EXPECT_THAT(cloneInto(*module, *destination),
                StatusIs(failedPrecondition, "!llvm.struct<\"a\""))
        << here << " as " << there;
    EXPECT_TRUE(verifies(*other));
  }
}

TEST_F(CloneTest, WhatIsBuiltFromAccessorsIsWhatItsTextSays) {
  // One of each, with values that are not the defaults.
  constexpr const char *texts[] = {
      "#llvm.linkage<internal>",
      "#llvm.linkage<weak_odr>",
      "#llvm.cconv<fastcc>",
      "#llvm.cconv<cc_10>",
      "#llvm.tailcallkind<musttail>",
      "#llvm.uwtableKind<sync>",
      "#llvm.framePointerKind<\"non-leaf\">",
      "#llvm.fastmath<nnan, contract>",
      "#llvm.overflow<nuw>",
      "#llvm.memory_effects<other = none, argMem = read, inaccessibleMem = "
      "write, errnoMem = readwrite, targetMem0 = read, targetMem1 = write>",
      "#llvm.target_features<[\"+sse\", \"-avx\"]>",
      "#llvm.target_features<[]>",
      "#llvm.tbaa_root<id = \"r\">",
      "#llvm.tbaa_root",
      "#llvm.tbaa_type_desc<id = \"\", members = {<#llvm.tbaa_root, 0>}>",
      "#llvm.tbaa_tag<base_type = <id = \"b\", members = {<#llvm.tbaa_root<id "
      "= \"r\">, 4>, <#llvm.tbaa_type_desc<id = \"i\", members = "
      "{<#llvm.tbaa_root, 0>}>, 8>}>, access_type = <id = \"a\", members = "
      "{<#llvm.tbaa_root, 0>}>, offset = 12, constant = true>",
      "#llvm.tbaa_tag<base_type = <id = \"b\", members = {<#llvm.tbaa_root, "
      "0>}>, access_type = <id = \"b\", members = {<#llvm.tbaa_root, 0>}>, "
      "offset = -1>",
      "#llvm.alias_scope<id = \"s\", domain = <id = \"d\", description = "
      "\"of the domain\">, description = \"of the scope\">",
      "#llvm.alias_scope<id = \"s\", domain = <id = \"d\">>",
      "#llvm.loop_unroll<disable = true, full = false>",
      "#llvm.loop_annotation<disableNonforced = true, unroll = <count = 4 : "
      "i32>, mustProgress = true, startLoc = loc(fused<\"m\">[\"f.c\":1:2])>",
      "#llvm.di_null_type",
      "#llvm.di_file<\"f.c\" in \"/d\">",
      "#llvm.di_basic_type<tag = DW_TAG_base_type, name = \"int\", sizeInBits "
      "= 32, encoding = DW_ATE_signed>",
      "#llvm.di_derived_type<tag = DW_TAG_member, name = \"m\", baseType = "
      "#llvm.di_basic_type<tag = DW_TAG_base_type, name = \"int\">, sizeInBits "
      "= 32, alignInBits = 16, offsetInBits = 8, dwarfAddressSpace = 3, "
      "extraData = #llvm.di_null_type>",
      "#llvm.di_derived_type<tag = DW_TAG_pointer_type>",
      "#llvm.di_composite_type<tag = DW_TAG_array_type, name = \"a\", file = "
      "<\"f.c\" in \"/d\">, line = 3, scope = #llvm.di_file<\"g.c\" in "
      "\"/d\">, baseType = #llvm.di_null_type, flags = Vector, sizeInBits = "
      "64, "
      "alignInBits = 32, elements = #llvm.di_subrange<count = 4 : i64>>",
      "#llvm.di_subrange<count = 4 : i64, lowerBound = -1 : i64, stride = 2 : "
      "i64>",
      "#llvm.di_subroutine_type<callingConvention = DW_CC_normal, types = "
      "#llvm.di_null_type, #llvm.di_null_type>",
      "#llvm.di_expression<[DW_OP_plus_uconst(7), DW_OP_stack_value]>",
      "#llvm.di_expression<>",
      "#llvm.di_lexical_block<scope = #llvm.di_file<\"f.c\" in \"/d\">, file = "
      "<\"g.c\" in \"/d\">, line = 4, column = 5>",
      "#llvm.di_lexical_block_file<scope = #llvm.di_file<\"f.c\" in \"/d\">, "
      "file = <\"g.c\" in \"/d\">, discriminator = 6>",
      "#llvm.di_local_variable<scope = #llvm.di_file<\"f.c\" in \"/d\">, name "
      "= "
      "\"v\", file = <\"g.c\" in \"/d\">, line = 1, arg = 2, alignInBits = 32, "
      "type = #llvm.di_null_type, flags = Artificial>",
      "#llvm.di_local_variable<scope = #llvm.di_file<\"f.c\" in \"/d\">>",
      "#llvm.di_global_variable<scope = #llvm.di_file<\"f.c\" in \"/d\">, name "
      "= \"g\", linkageName = \"l\", file = <\"g.c\" in \"/d\">, line = 9, "
      "type "
      "= #llvm.di_null_type, isLocalToUnit = true, isDefined = false, "
      "alignInBits = 8>",
      "#llvm.di_global_variable_expression<var = <file = <\"g.c\" in \"/d\">, "
      "line = 9, type = #llvm.di_null_type>, expr = <[DW_OP_stack_value]>>",
      "#llvm.di_label<scope = #llvm.di_file<\"f.c\" in \"/d\">, name = \"l\", "
      "file = <\"g.c\" in \"/d\">, line = 8>",
      "#dlti.dl_spec<i64 = dense<[32, 64]> : vector<2xi64>, "
      "\"dlti.stack_alignment\" = 128 : i64>",
      "#dlti.dl_spec<>",
      "!llvm.ptr<7>",
      "!llvm.void",
      "!llvm.token",
      "!llvm.label",
      "!llvm.metadata",
      "!llvm.x86_amx",
      "!llvm.ppc_fp128",
      "!llvm.array<0 x array<3 x ptr>>",
      "!llvm.func<i32 (ptr, i8, ...)>",
      "!llvm.func<void ()>",
      "!llvm.struct<packed (i8, ptr<1>)>",
      "!llvm.struct<()>",
      "!llvm.target<\"spirv.Image\", !llvm.void, i32, 0, 1, 2>",
  };
  for (std::string text : texts) {
    std::string module = "module attributes {t.it = " + text + "} {}";
    auto original = parse(*source, module),
         wanted = parse(*destination, module);
    ASSERT_TRUE(original && wanted) << text;
    CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*original, *destination));
    EXPECT_EQ((*copy)->getAttr("t.it"), (*wanted)->getAttr("t.it")) << text;
  }
}

TEST_F(CloneTest, DebugInformationKeepsItsIdentityAndItsRecursion) {
  auto module = parse(*source, R"(
    #file = #llvm.di_file<"f.c" in "/d">
    #unit = #llvm.di_compile_unit<id = distinct[0]<>, sourceLanguage = DW_LANG_C,
      file = #file, producer = "p", isOptimized = true, emissionKind = Full,
      nameTableKind = None, splitDebugFilename = "f.dwo">
    #self = #llvm.di_composite_type<recId = distinct[1]<>, isRecSelf = true>
    #next = #llvm.di_derived_type<tag = DW_TAG_pointer_type, baseType = #self>
    #list = #llvm.di_composite_type<recId = distinct[1]<>,
      tag = DW_TAG_structure_type, name = "list", file = #file, line = 2,
      elements = #next>
    #again = #llvm.di_subprogram<recId = distinct[2]<>, isRecSelf = true>
    #local = #llvm.di_local_variable<scope = #again, name = "v", type = #list>
    #one = #llvm.di_subprogram<recId = distinct[2]<>, id = distinct[3]<>,
      compileUnit = #unit, scope = #file, name = "one", linkageName = "_one",
      file = #file, line = 3, scopeLine = 4,
      subprogramFlags = "Definition|Optimized",
      type = <types = #llvm.di_null_type, #list>, retainedNodes = #local>
    #two = #llvm.di_subprogram<id = distinct[4]<>, compileUnit = #unit,
      scope = #file, name = "one", file = #file, subprogramFlags = Definition>
    "t.op"() {a = #one, b = #two, c = #one} : () -> ())");
  ASSERT_TRUE(module);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *destination));
  expectFaithful(*module, *copy);
  auto one =
      copy->getBody()->front().getAttrOfType<LLVM::DISubprogramAttr>("a");
  auto two =
      copy->getBody()->front().getAttrOfType<LLVM::DISubprogramAttr>("b");
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one.getCompileUnit(), two.getCompileUnit());
  EXPECT_EQ(one.getCompileUnit().getSplitDebugFilename(), "f.dwo");
  EXPECT_NE(one.getId(), two.getId());
}

TEST_F(CloneTest, DistinctScopesAndGroupsKeepTheirIdentity) {
  auto module = parse(*source, R"(
    #domain = #llvm.alias_scope_domain<id = distinct[0]<>>
    #group = #llvm.access_group<id = distinct[1]<>>
    "t.op"() {
      a = #llvm.alias_scope<id = distinct[2]<>, domain = #domain>,
      b = #llvm.alias_scope<id = distinct[3]<>, domain = #domain>,
      c = #group, d = #group, e = #llvm.access_group<id = distinct[4]<>>
    } : () -> ())");
  ASSERT_TRUE(module);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *destination));
  expectFaithful(*module, *copy);
  Operation *op = &copy->getBody()->front();
  auto scopeA = op->getAttrOfType<LLVM::AliasScopeAttr>("a");
  auto scopeB = op->getAttrOfType<LLVM::AliasScopeAttr>("b");
  ASSERT_TRUE(scopeA && scopeB);
  EXPECT_NE(scopeA, scopeB);
  EXPECT_EQ(scopeA.getDomain(), scopeB.getDomain());
  EXPECT_EQ(op->getAttr("c"), op->getAttr("d"));
  EXPECT_NE(op->getAttr("c"), op->getAttr("e"));
}

TEST_F(CloneTest, MissingDialectIsNamed) {
  destination = bareContext();
  for (auto [text, dialect] : {
           std::pair("func.func @f() { return }", "'func'"),
           std::pair("module attributes {a = #arith.fastmath<fast>} {}",
                     "'arith'"),
           std::pair("module attributes {a = !llvm.ptr} {}", "'llvm'"),
           std::pair("\"t.op\"() : () -> ()", "'t'"),
           std::pair("module attributes {a = #t.x} {}", "'t'"),
           std::pair("module attributes {a = !t.x} {}", "'t'"),
       }) {
    auto module = parse(*source, text);
    ASSERT_TRUE(module);
    EXPECT_THAT(cloneInto(*module, *destination),
                StatusIs(failedPrecondition, dialect));
  }
  // It stays usable.
  auto module = parse(*source, "module {}");
  EXPECT_THAT(cloneInto(*module, *destination), IsOk());
}

TEST_F(CloneTest, UnregisteredOperationOfARegisteredDialectIsRefused) {
  destination->allowUnregisteredDialects(false);
  auto module = parse(*source, "\"arith.no_such\"() : () -> ()");
  EXPECT_THAT(cloneInto(*module, *destination),
              StatusIs(failedPrecondition, "'arith.no_such'"));
}

TEST_F(CloneTest, UnregisteredOperationThatTheDestinationKnowsIsRefused) {
  source = bareContext();
  source->allowUnregisteredDialects();
  for (const char *text :
       {R"("arith.constant"() {value = 1 : i32} : () -> i32)",
        R"("arith.constant"() <{value = 1 : i32}> : () -> i32)",
        R"("func.return"() : () -> ())"}) {
    auto module = parse(*source, text);
    ASSERT_TRUE(module);
    std::string name =
        module->getBody()->front().getName().getStringRef().str();
    EXPECT_THAT(cloneInto(*module, *destination),
                StatusIs(failedPrecondition, "operation '" + name +
                                                 "' is unregistered in the "
                                                 "context of the source"));
  }
}

TEST_F(CloneTest, ArgumentLocationThatCannotBeBuiltIsRefused) {
  destination = bareContext();
  destination->allowUnregisteredDialects();
  auto module = parse(*source, R"(
    "a.b"() ({^bb0(%x: i32 loc(fused<#llvm.di_null_type>["a"])):}) : () -> ())");
  ASSERT_TRUE(module);
  Operation *op = &module->getBody()->front();
  CrossContextCloner cloner(*source, *destination);
  for (Operation *root : {module->getOperation(), op})
    EXPECT_THAT(cloner.clone(root), StatusIs(failedPrecondition, "'llvm'"));
  // Nor does it come back with a call that has nothing to do with it.
  auto other = parse(*source, "module {}");
  EXPECT_THAT(cloner.clone(*other), IsOk());
}

TEST_F(CloneTest, LoadsDialectsThatTheDestinationHasRegistered) {
  destination = std::make_unique<MLIRContext>(source->getDialectRegistry(),
                                              MLIRContext::Threading::DISABLED);
  auto module = parse(*source, R"(
    module attributes {llvm.data_layout = ""} {
      func.func @f() { return }
    })");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *destination));
  EXPECT_TRUE(verifies(*copy));
  EXPECT_TRUE(destination->getLoadedDialect("llvm"));
  EXPECT_FALSE(destination->getLoadedDialect("gpu"));
}

TEST_F(CloneTest, OperandFromOutsideIsRefused) {
  auto module = parse(*source, R"(
    func.func @f(%a: i32) -> i32 {
      %0 = arith.addi %a, %a : i32
      return %0 : i32
    })");
  Operation *last = nullptr;
  module->walk([&](Operation *op) {
    if (op->getName().getStringRef() == "func.return")
      last = op;
  });
  EXPECT_THAT(cloneInto(last, *destination),
              StatusIs(invalidArgument, "arith.addi"));
}

TEST_F(CloneTest, VerifiesOnDemand) {
  auto module = parse(*source, "\"arith.addi\"() : () -> ()");
  EXPECT_THAT(cloneInto(*module, *destination), IsOk());
  CloneOptions options;
  options.verify = true;
  EXPECT_THAT(cloneInto(*module, *destination, options),
              StatusIs(invalidArgument, "arith.addi"));
}

TEST_F(CloneTest, ClonerRefusesWhatIsNotOfItsContext) {
  auto module = parse(*destination, "module {}");
  CrossContextCloner cloner(*source, *destination);
  EXPECT_THAT(cloner.clone(*module), StatusIs(invalidArgument, "context"));
}

TEST_F(CloneTest, ClonerNoticesThatItsDestinationIsGone) {
  auto module = parse(*source, "module {}");
  CrossContextCloner cloner(*source, *destination);
  EXPECT_THAT(cloner.clone(*module), IsOk());
  destination.reset();
  EXPECT_THAT(cloner.clone(*module),
              StatusIs(failedPrecondition, "destination"));
}

TEST_F(CloneTest, ClonerNoticesThatItsDestinationWasRecycled) {
  auto module = parse(*source, "module {}");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(pool, ContextPool::create(smallTemplate()));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lease, pool->acquire());
  CrossContextCloner cloner(*source, *lease);
  EXPECT_THAT(cloner.clone(*module), IsOk());
  lease.release();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(again, pool->acquire());
  EXPECT_THAT(cloner.clone(*module),
              StatusIs(failedPrecondition, "destination"));
}

TEST_F(CloneTest, ClonerForgetsASourceThatIsGone) {
  // At one address, one after the other.
  std::optional<MLIRContext> from;
  from.emplace(MLIRContext::Threading::DISABLED);
  CrossContextCloner cloner(*from, *destination);
  for (int i = 0; i != 20; ++i) {
    if (i != 0)
      from.emplace(MLIRContext::Threading::DISABLED);
    std::string name = "value" + std::to_string(i);
    {
      auto module = parse(*from, "module attributes {a = \"" + name + "\"} {}");
      CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloner.clone(*module));
      expectFaithful(*module, *copy);
    }
    from.reset();
  }
}

TEST_F(CloneTest, ClonerForgetsASourceThatWasRecycled) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(pool, ContextPool::create(smallTemplate()));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lease, pool->acquire());
  MLIRContext *recycled = lease.get();
  CrossContextCloner cloner(*recycled, *destination);
  for (const char *data : {"01020304", "05060708", "090a0b0c"}) {
    {
      auto module = parse(*lease, std::string(R"(
        module attributes {builtin.w = dense_resource<w> : tensor<4xi8>} {}
        {-# dialect_resources: { builtin: { w: "0x40000000)") +
                                      data + "\" } } #-}");
      ASSERT_TRUE(module);
      CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloner.clone(*module));
      EXPECT_TRUE(isEquivalent(*module, *copy));
    }
    lease.release();
    CTXPOOL_ASSERT_OK_AND_ASSIGN(again, pool->acquire());
    lease = std::move(again);
    ASSERT_EQ(lease.get(), recycled);
  }
}

TEST_F(CloneTest, ClonerMayOutliveBothContexts) {
  CrossContextCloner cloner(*source, *destination);
  auto module = parse(*source, "module {}");
  EXPECT_THAT(cloner.clone(*module), IsOk());
  module = nullptr;
  source.reset();
  destination.reset();
}

TEST_F(CloneTest, DiagnosticsReachNobody) {
  destination = bareContext();
  unsigned seen = 0;
  destination->getDiagEngine().registerHandler([&](Diagnostic &) {
    ++seen;
    return success();
  });
  auto module = parse(*source, "func.func @f() { return }");
  CrossContextCloner cloner(*source, *destination);
  EXPECT_FALSE(cloner.clone(*module).ok());
  EXPECT_EQ(seen, 0u);
}

/// A module of operations in operations, and the innermost.
std::pair<OwningOpRef<ModuleOp>, Operation *> makeDeep(MLIRContext &context,
                                                       int depth) {
  OpBuilder builder(&context);
  Location location = builder.getUnknownLoc();
  OwningOpRef<ModuleOp> module = ModuleOp::create(location);
  Operation *innermost = *module;
  for (int i = 0; i != depth; ++i) {
    builder.setInsertionPointToStart(&innermost->getRegion(0).front());
    OperationState state(location, "t.nest");
    state.addRegion()->emplaceBlock();
    innermost = builder.create(state);
  }
  return {std::move(module), innermost};
}

TEST_F(CloneTest, DeepNestingNeedsNoStack) {
  // MLIR itself recurses where it destroys.
  constexpr int depth = 10000;
  bool isFaithful = false;
  auto outer = Thread::start(512 << 20, [&] {
    auto [module, innermost] = makeDeep(*source, depth);
    absl::StatusOr<OwningOpRef<ModuleOp>> copy = absl::UnknownError("");
    auto inner = Thread::start(128 << 10, [&, &from = module] {
      copy = cloneInto(*from, *destination);
    });
    ASSERT_TRUE(inner.ok());
    inner->join();
    ASSERT_THAT(copy, IsOk());
    isFaithful = isEquivalent(*module, **copy);
  });
  ASSERT_TRUE(outer.ok());
  outer->join();
  EXPECT_TRUE(isFaithful);
}

TEST_F(CloneTest, WhatIsWrongInDeepNestingNeedsNoStack) {
  auto outer = Thread::start(512 << 20, [&] {
    auto made = makeDeep(*source, 3000);
    Operation *inner = made.second;
    auto outside = parse(*source, "%0 = \"t.value\"() : () -> i32");
    CloneOptions verified;
    verified.verify = true;
    auto cloneOnSmallStack = [&] {
      absl::Status status;
      auto thread = Thread::start(256 << 10, [&] {
        status = cloneInto(*made.first, *destination, verified).status();
      });
      EXPECT_TRUE(thread.ok());
      thread->join();
      return status;
    };
    // An error before all is copied, and one of the verifier.
    inner->insertOperands(0, outside->getBody()->front().getResults());
    EXPECT_THAT(cloneOnSmallStack(),
                StatusIs(invalidArgument, "defined outside of it"));
    inner->eraseOperand(0);
    OpBuilder builder = OpBuilder::atBlockBegin(&inner->getRegion(0).front());
    builder.create(OperationState(builder.getUnknownLoc(), "arith.addi"));
    EXPECT_THAT(cloneOnSmallStack(), StatusIs(invalidArgument, "arith.addi"));
  });
  ASSERT_TRUE(outer.ok());
  outer->join();
}

TEST_F(CloneTest, TypesThatAreBuiltFromTheirTextNeedNoStack) {
  Type deep = IntegerType::get(source.get(), 32), shared = deep;
  for (int i = 0; i != 1000; ++i) {
    deep = spirv::StructType::get({deep});
    shared = spirv::StructType::get({shared, shared});
  }
  Type copy;
  auto thread =
      Thread::start(256 << 10, [&] { copy = cloneType(deep, *destination); });
  ASSERT_TRUE(thread.ok());
  thread->join();
  EXPECT_TRUE(copy);

  // The text of this one has 2^1000 parts.
  OwningOpRef<ModuleOp> module =
      ModuleOp::create(UnknownLoc::get(source.get()));
  module->getOperation()->setAttr("t.type", TypeAttr::get(shared));
  EXPECT_THAT(cloneInto(*module, *destination),
              StatusIs(failedPrecondition, "a large spirv.struct"));
}

TEST_F(CloneTest, DeepAttributesNeedNoStack) {
  auto module = parse(*source, "module {}");
  Builder builder(source.get());
  Attribute nested = builder.getUnitAttr();
  Location chain = builder.getUnknownLoc();
  StringAttr name = builder.getStringAttr("n");
  for (int i = 0; i != 20000; ++i) {
    nested = builder.getArrayAttr({nested, builder.getI64IntegerAttr(i)});
    chain = NameLoc::get(name, chain);
  }
  module->getOperation()->setAttr("t.deep", nested);
  module->getOperation()->setLoc(chain);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *destination));
  EXPECT_TRUE(isEquivalent(*module, *copy));
}

TEST_F(CloneTest, ManyOperations) {
  OpBuilder builder(source.get());
  OwningOpRef<ModuleOp> module = ModuleOp::create(builder.getUnknownLoc());
  builder.setInsertionPointToEnd(module->getBody());
  Value first, last;
  const int count = isSanitized ? 50000 : 1000000;
  for (int i = 0; i != count; ++i) {
    OperationState state(builder.getUnknownLoc(), "t.op");
    if (first)
      state.addOperands({first, last});
    state.addTypes(builder.getI32Type());
    last = builder.create(state)->getResult(0);
    first = first ? first : last;
  }
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *destination));
  EXPECT_TRUE(isEquivalent(*module, *copy));
}

TEST_F(CloneTest, SeveralThreadsCopyOutOfOneSource) {
  auto module = parse(*source, sampleText());
  auto withResource = parse(*source, R"(
    module attributes {a = dense_resource<w> : tensor<4xi8>} {}
    {-# dialect_resources: { builtin: { w: "0x0400000001020304" } } #-})");
  ASSERT_TRUE(module && withResource);
  Fingerprint digest = digestOf(*module), other = digestOf(*withResource);
  std::vector<std::thread> threads;
  for (int thread = 0; thread != 4; ++thread)
    threads.emplace_back([&] {
      for (int i = 0; i != 3; ++i) {
        auto own = makeContext();
        CrossContextCloner cloner(*source, *own);
        for (int round = 0; round != 4; ++round) {
          auto copy = cloner.clone(*module);
          auto resource = cloneInto(*withResource, *own);
          ASSERT_TRUE(copy.ok() && resource.ok());
          EXPECT_EQ(digestOf(**copy), digest);
          EXPECT_EQ(digestOf(**resource), other);
        }
      }
    });
  for (std::thread &thread : threads)
    thread.join();
}

} // namespace

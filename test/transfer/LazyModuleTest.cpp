//===- LazyModuleTest.cpp - Rules of reading parts of a module -----------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ModuleTransfer.h"
#include "test/ir/IrTestSupport.h"
#include "test/support/StatusMatchers.h"
#include "test/transfer/TransferTestSupport.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

using LazyModuleTest = TransferTest;

std::vector<std::string> namesOf(ModuleOp module) {
  std::vector<std::string> names;
  for (Operation &op : *module.getBody())
    if (auto name =
            op.getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName()))
      names.push_back(name.getValue().str());
  return names;
}

constexpr llvm::StringLiteral threeFunctions = R"(
  func.func @a() { return }
  func.func private @b()
  func.func @c(%x: i32) -> i32 {
    %0 = scf.execute_region -> i32 {
      %1 = arith.addi %x, %x : i32
      scf.yield %1 : i32
    }
    func.call @a() : () -> ()
    return %0 : i32
  })";

TEST_F(LazyModuleTest, ReadsWhatIsAskedFor) {
  auto module = parse(*source, threeFunctions);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lazy, LazyModule::open(bytes, *destination));
  EXPECT_THAT(lazy->getSymbols(), testing::ElementsAre("a", "b", "c"));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(function, lazy->materialize("c"));
  EXPECT_TRUE(isSame(&module->getBody()->back(), function));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(again, lazy->materialize("c"));
  EXPECT_EQ(function, again);
  for (Operation &op : *lazy->getModule().getBody())
    EXPECT_EQ(op.getRegion(0).empty(), &op != function);
  EXPECT_THAT(lazy->materialize("d"),
              StatusIs(absl::StatusCode::kNotFound, "'d'"));
}

TEST_F(LazyModuleTest, ReleasesWhatWasRead) {
  OwningOpRef<ModuleOp> released;
  {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes,
                                 serialize(*parse(*source, threeFunctions)));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(lazy, LazyModule::open(bytes, *destination));
    EXPECT_THAT(lazy->materialize("a"), IsOk());
    released = lazy->release();
  }
  EXPECT_TRUE(verifies(*released));
  auto expected = parse(*source, "func.func @a() { return }");
  EXPECT_TRUE(
      isSame(&expected->getBody()->front(), &released->getBody()->front()));
}

TEST_F(LazyModuleTest, MayReadNothing) {
  auto context = makeContext();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes,
                               serialize(*parse(*context, threeFunctions)));
  EXPECT_THAT(LazyModule::open(bytes, *context), IsOk());
  auto function = parse(*context, "func.func @a() { return }");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(other, serialize(&function->getBody()->front()));
  EXPECT_THAT(LazyModule::open(other, *context),
              StatusIs(invalidArgument, "builtin.module"));
}

TEST_F(LazyModuleTest, EverySymbolOfTheBundledModulesIsReadAndVerifies) {
  for (const auto &file : moduleFiles(sourceDir() / "bench" / "modules")) {
    SCOPED_TRACE(file.string());
    auto module = parse(*source, readFile(file));
    // Linalg's verifier notes the maps of named operations as an attribute.
    EXPECT_TRUE(verifies(*module));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(lazy, LazyModule::open(bytes, *destination));
    EXPECT_EQ(lazy->getSymbols(), namesOf(*module));
    for (const std::string &symbol : lazy->getSymbols())
      EXPECT_THAT(lazy->materialize(symbol), IsOk());
    EXPECT_TRUE(isSame(*module, *lazy->release()));
  }
}

TEST_F(LazyModuleTest, OpeningVerifiesWhatIsThereFromTheBeginning) {
  DeserializeOptions trusted;
  trusted.verify = false;
  struct Case {
    llvm::StringRef text, error;
  };
  for (Case test : {
           // A symbol without regions.
           Case{R"("memref.global"() {sym_name = "g", type = memref<2xi32>,
                    initial_value = dense<1> : tensor<3xi32>} : () -> ())",
                "memref.global"},
           // No symbol.
           Case{R"("arith.addi"() : () -> ())", "arith.addi"},
           // What is nested in one whose region is not isolated.
           Case{R"(%0 = "t.value"() : () -> i32
                  "t.op"() ({
                    "t.use"(%0) : (i32) -> ()
                    "arith.addi"() : () -> ()
                  }) {sym_name = "s"} : () -> ())",
                "arith.addi"},
           // The module itself.
           Case{R"("func.func"() ({}) {sym_name = "f", function_type = () -> (),
                    sym_visibility = "private"} : () -> ()
                  "memref.global"() {sym_name = "f", type = memref<2xi32>}
                    : () -> ())",
                "redefinition"},
           Case{R"(module attributes {dlti.dl_spec = 1 : i32} {})",
                "dlti.dl_spec"},
       }) {
    SCOPED_TRACE(test.text.str());
    auto module = parse(*source, test.text);
    ASSERT_TRUE(module);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
    EXPECT_THAT(deserialize(bytes, *destination),
                StatusIs(invalidArgument, test.error));
    EXPECT_THAT(LazyModule::open(bytes, *destination),
                StatusIs(invalidArgument, test.error));
    EXPECT_THAT(LazyModule::open(bytes, *destination, trusted), IsOk());
  }
}

constexpr llvm::StringLiteral oneIsInvalid = R"(
  func.func @a() { return }
  func.func @b() { "arith.addi"() : () -> () return }
  func.func @c() { return })";

TEST_F(LazyModuleTest, ReleaseErasesWhatDoesNotVerify) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*parse(*source, oneIsInvalid)));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lazy, LazyModule::open(bytes, *destination));
  EXPECT_THAT(lazy->materialize("a"), IsOk());
  EXPECT_THAT(lazy->materialize("b"), StatusIs(invalidArgument, "arith.addi"));
  auto released = lazy->release();
  EXPECT_THAT(namesOf(*released), testing::ElementsAre("a"));
}

TEST_F(LazyModuleTest, ReleaseErasesWhatCouldNotBeRead) {
  auto module = parse(*source, R"(
    func.func @a() { return }
    func.func @b(%t: tensor<*xf32>) -> index {
      %0 = tensor.rank %t : tensor<*xf32>
      return %0 : index
    })");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  DialectRegistry registry;
  registry.insert<func::FuncDialect>();
  MLIRContext small(registry, MLIRContext::Threading::DISABLED);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lazy, LazyModule::open(bytes, small));
  EXPECT_THAT(lazy->materialize("b"), StatusIs(invalidArgument, "'tensor'"));
  EXPECT_THAT(lazy->materialize("a"), IsOk());
  auto released = lazy->release();
  EXPECT_THAT(namesOf(*released), testing::ElementsAre("a"));
  EXPECT_TRUE(verifies(*released));
}

/// Uses that come before and after what they use, in blocks and in the order of
/// operations. The module comes from bytes without use-list orders.
OwningOpRef<ModuleOp> moduleWithForwardUses(MLIRContext &context) {
  auto module = parse(context, R"(
    func.func @f(%a: i32) -> i32 {
      cf.br ^late
    ^early:
      %1 = arith.addi %0, %a : i32
      %2 = arith.muli %0, %0 : i32
      %3 = arith.addi %1, %2 : i32
      return %3 : i32
    ^late:
      %0 = arith.addi %a, %a : i32
      %4 = arith.addi %0, %0 : i32
      %5 = arith.muli %0, %a : i32
      cf.br ^early
    })");
  return throughBytecode(*module, context, /*version=*/2);
}

TEST_F(LazyModuleTest, UsesAreInTheOrderOfDeserialize) {
  auto module = moduleWithForwardUses(*source);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(whole, deserialize(bytes, *destination));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lazy, LazyModule::open(bytes, *destination));
  EXPECT_THAT(lazy->materialize("f"), IsOk());
  EXPECT_EQ(compareUseLists(*whole, lazy->getModule()), "");
}

TEST_F(LazyModuleTest, OrdersOfUsesInTheBytesAreNotThoseOfWhatIsReadLater) {
  auto module = moduleWithForwardUses(*source);
  auto shuffled = module->clone();
  OwningOpRef<ModuleOp> owner(shuffled);
  std::mt19937_64 random(1);
  shuffleUseLists(shuffled, random);
  ASSERT_NE(compareUseLists(*module, shuffled), "");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(shuffled));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lazy, LazyModule::open(bytes, *destination));
  EXPECT_THAT(lazy->materialize("f"), IsOk());
  EXPECT_EQ(compareUseLists(*module, lazy->getModule()), "");
}

TEST_F(LazyModuleTest, OrdersOfUsesAreKeptInWhatIsThereFromTheBeginning) {
  auto module = parse(*source, R"(
    %0 = "t.value"() : () -> i32
    "t.use"(%0, %0) : (i32, i32) -> ()
    "t.op"() ({
      "t.use"(%0, %0) : (i32, i32) -> ()
      builtin.module {
        %1 = "t.value"() : () -> i32
        "t.use"(%1, %1, %1, %1) : (i32, i32, i32, i32) -> ()
      }
    }) : () -> ()
    func.func @f() { return })");
  std::mt19937_64 random(1);
  shuffleUseLists(*module, random);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lazy, LazyModule::open(bytes, *destination));
  EXPECT_THAT(lazy->materialize("f"), IsOk());
  expectFaithful(*module, lazy->getModule());
}

TEST_F(LazyModuleTest, SymbolsInSymbolsAreThereFromTheBeginning) {
  // The verifier of a function looks into the table.
  auto module = parse(*source, R"(
    llvm.comdat @c { llvm.comdat_selector @any any }
    llvm.func linkonce_odr @f() comdat(@c::@any) { llvm.return })");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lazy, LazyModule::open(bytes, *destination));
  EXPECT_THAT(lazy->materialize("f"), IsOk());
  EXPECT_THAT(lazy->materialize("c"), IsOk());
  expectFaithful(*module, *lazy->release());
}

TEST_F(LazyModuleTest, WhatADialectUpgradesIsReadWhole) {
  loadVersionedDialect(*source);
  loadVersionedDialect(*destination);
  auto module = parse(*source, R"(
    func.func @a() { "versioned.op"() : () -> () return }
    func.func @b() { "versioned.op"() : () -> () return })");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(whole, deserialize(bytes, *destination));
  ASSERT_FALSE(isSame(*module, *whole));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lazy, LazyModule::open(bytes, *destination));
  EXPECT_TRUE(isSame(*whole, lazy->getModule()));
  EXPECT_THAT(lazy->materialize("b"), IsOk());
  EXPECT_TRUE(isSame(*whole, *lazy->release()));
}

} // namespace

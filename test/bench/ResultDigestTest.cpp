//===- ResultDigestTest.cpp - Whether two compiles gave one result --------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/ResultDigest.h"
#include "bench/ModuleParser.h"
#include "test/support/StatusMatchers.h"

#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/InitAllDialects.h"
#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"

#include <set>
#include <string>

using namespace ctxpool;
using namespace ctxpool::bench;
using namespace ctxpool::test;

namespace {

/// The digest of a module in text, read into a context of its own.
Digest digest(llvm::StringRef text) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto bytes = copyAligned(text, "text");
  auto module = parseModule(*bytes, context, /*verify=*/true);
  if (!module.ok()) {
    ADD_FAILURE() << module.status() << "\n" << text.str();
    return {};
  }
  return digestModule(**module);
}

//===----------------------------------------------------------------------===//
// What it does not see
//===----------------------------------------------------------------------===//

constexpr llvm::StringLiteral twoGlobals = R"(
  memref.global "private" constant @c0 : memref<2xf32> = dense<[1.0, 2.0]>
  memref.global "private" constant @c1 : memref<2xf32> = dense<[3.0, 4.0]>
  func.func @f() -> (memref<2xf32>, memref<2xf32>) {
    %0 = memref.get_global @c0 : memref<2xf32>
    %1 = memref.get_global @c1 : memref<2xf32>
    return %0, %1 : memref<2xf32>, memref<2xf32>
  })";

TEST(ResultDigestTest, IgnoresNamesAndOrderOfPrivateGlobals) {
  EXPECT_EQ(digest(twoGlobals), digest(R"(
  memref.global "private" constant @c0 : memref<2xf32> = dense<[3.0, 4.0]>
  memref.global "private" constant @c1 : memref<2xf32> = dense<[1.0, 2.0]>
  func.func @f() -> (memref<2xf32>, memref<2xf32>) {
    %0 = memref.get_global @c1 : memref<2xf32>
    %1 = memref.get_global @c0 : memref<2xf32>
    return %0, %1 : memref<2xf32>, memref<2xf32>
  })"));
}

TEST(ResultDigestTest, IgnoresNamesAndOrderOfSymbolsWithPrivateLinkage) {
  EXPECT_EQ(digest(R"(
  llvm.mlir.global private constant @a(1 : i32) : i32
  llvm.mlir.global internal constant @b(2 : i32) : i32
  llvm.func @f() -> !llvm.ptr {
    %0 = llvm.mlir.addressof @a : !llvm.ptr
    %1 = llvm.mlir.addressof @b : !llvm.ptr
    llvm.return %1 : !llvm.ptr
  })"),
            digest(R"(
  llvm.mlir.global internal constant @y(2 : i32) : i32
  llvm.mlir.global private constant @x(1 : i32) : i32
  llvm.func @f() -> !llvm.ptr {
    %0 = llvm.mlir.addressof @x : !llvm.ptr
    %1 = llvm.mlir.addressof @y : !llvm.ptr
    llvm.return %1 : !llvm.ptr
  })"));
}

TEST(ResultDigestTest, IgnoresNamesOfPrivateFunctionsThatCallEachOther) {
  EXPECT_EQ(digest(R"(
  func.func private @even(%n: i32) { call @odd(%n) : (i32) -> () return }
  func.func private @odd(%n: i32) { call @even(%n) : (i32) -> () call @odd(%n) : (i32) -> () return }
  func.func @f(%n: i32) { call @odd(%n) : (i32) -> () return })"),
            digest(R"(
  func.func @f(%n: i32) { call @a(%n) : (i32) -> () return }
  func.func private @a(%n: i32) { call @b(%n) : (i32) -> () call @a(%n) : (i32) -> () return }
  func.func private @b(%n: i32) { call @a(%n) : (i32) -> () return })"));
}

TEST(ResultDigestTest, IgnoresNamesAndOrderOfSymbolsThatNothingRefersTo) {
  // Two circles that nothing public leads to.
  EXPECT_EQ(digest(R"(
  func.func private @a() { call @b() : () -> () return }
  func.func private @b() { call @a() : () -> () call @a() : () -> () return }
  memref.global "private" @g : memref<1xi32> = dense<1>
  memref.global "private" @h : memref<1xi32> = dense<2>)"),
            digest(R"(
  memref.global "private" @b : memref<1xi32> = dense<2>
  func.func private @h() { call @g() : () -> () call @g() : () -> () return }
  memref.global "private" @a : memref<1xi32> = dense<1>
  func.func private @g() { call @h() : () -> () return })"));
}

TEST(ResultDigestTest, IgnoresNamesInNestedSymbolTables) {
  EXPECT_EQ(digest(R"(
  module @inner {
    memref.global "private" @a : memref<1xi32> = dense<1>
    memref.global "private" @b : memref<1xi32> = dense<2>
    func.func @f() { %0 = memref.get_global @a : memref<1xi32>
                     %1 = memref.get_global @b : memref<1xi32> return }
  })"),
            digest(R"(
  module @inner {
    func.func @f() { %0 = memref.get_global @d : memref<1xi32>
                     %1 = memref.get_global @c : memref<1xi32> return }
    memref.global "private" @c : memref<1xi32> = dense<2>
    memref.global "private" @d : memref<1xi32> = dense<1>
  })"));
}

// Which of several equal constants is kept is left to chance, and so is where
// it came from.
TEST(ResultDigestTest, IgnoresLocations) {
  EXPECT_EQ(digest("func.func @f() { return loc(\"a\":1:1) }"),
            digest("func.func @f() { return loc(\"a\":2:1) }"));
}

constexpr llvm::StringLiteral resource = R"(
  func.func @f() { %0 = arith.constant dense_resource<KEY> : tensor<2xi8> return }
  {-# dialect_resources: { builtin: { KEY: "0x01000000DATA" } } #-})";

std::string withResource(llvm::StringRef key, llvm::StringRef data) {
  std::string text = resource.str();
  for (size_t at; (at = text.find("KEY")) != std::string::npos;)
    text.replace(at, 3, key.str());
  return text.replace(text.find("DATA"), 4, data.str());
}

TEST(ResultDigestTest, IgnoresKeysOfResources) {
  EXPECT_EQ(digest(withResource("blob", "0102")),
            digest(withResource("blob_1", "0102")));
}

//===----------------------------------------------------------------------===//
// What it sees
//===----------------------------------------------------------------------===//

TEST(ResultDigestTest, SeesADifferentConstant) {
  std::string text = twoGlobals.str();
  text.replace(text.find("4.0"), 3, "5.0");
  EXPECT_NE(digest(twoGlobals), digest(text));
}

TEST(ResultDigestTest, SeesWhichSymbolAReferenceMeans) {
  // The same globals, used the other way round.
  EXPECT_NE(digest(twoGlobals), digest(R"(
  memref.global "private" constant @c0 : memref<2xf32> = dense<[1.0, 2.0]>
  memref.global "private" constant @c1 : memref<2xf32> = dense<[3.0, 4.0]>
  func.func @f() -> (memref<2xf32>, memref<2xf32>) {
    %0 = memref.get_global @c1 : memref<2xf32>
    %1 = memref.get_global @c0 : memref<2xf32>
    return %0, %1 : memref<2xf32>, memref<2xf32>
  })"));
}

TEST(ResultDigestTest, TellsEqualVariablesApartByTheirUses) {
  // Two variables with one initial value. It matters whether the second
  // function reads the one that the first function wrote.
  auto make = [](llvm::StringRef read) {
    return digest((R"(
  memref.global "private" @a : memref<1xi32> = dense<0>
  memref.global "private" @b : memref<1xi32> = dense<0>
  func.func @write() -> (memref<1xi32>, memref<1xi32>) {
    %0 = memref.get_global @a : memref<1xi32>
    %1 = memref.get_global @b : memref<1xi32>
    return %0, %1 : memref<1xi32>, memref<1xi32>
  }
  func.func @read() -> memref<1xi32> {
    %0 = memref.get_global )" +
                   read + R"( : memref<1xi32>
    return %0 : memref<1xi32>
  })")
                      .str());
  };
  EXPECT_NE(make("@a"), make("@b"));
}

TEST(ResultDigestTest, SeesWhatUnreachedSymbolsReferTo) {
  auto make = [](llvm::StringRef callee) {
    return digest((R"(
  func.func private @a() { call )" +
                   callee + R"(() : () -> () return }
  func.func private @b() { return }
  func.func private @c() { call @b() : () -> () return })")
                      .str());
  };
  EXPECT_NE(make("@b"), make("@c"));
  EXPECT_NE(make("@a"), make("@b"));
}

TEST(ResultDigestTest, SeesWhichReferencesOfAnUnreachedSymbolAreTheSame) {
  auto make = [](llvm::StringRef references) {
    return digest(("func.func private @a() attributes {x = [" + references +
                   R"(]}
  memref.global "private" @b : memref<1xi32> = dense<1>
  memref.global "private" @c : memref<1xi32> = dense<2>)")
                      .str());
  };
  EXPECT_NE(make("@b, @c, @b"), make("@b, @c, @c"));
  EXPECT_NE(make("@b, @c, @b"), make("@b, @b, @c"));
}

TEST(ResultDigestTest, SeesStringsThatReadLikeTheNamesThatItGives) {
  auto make = [](llvm::StringRef text) {
    return digest(("func.func private @f() attributes {x = \"" + text +
                   R"("}
  func.func private @g()
  func.func private @h())")
                      .str());
  };
  std::set<std::string> texts = {"ctxpool.unreached.4000000000",
                                 "ctxpool.unreached.0",
                                 "ctxpool.unreached.1",
                                 "ctxpool.unreached.2",
                                 "ctxpool.self",
                                 "ctxpool.reference.0",
                                 "@ctxpool.reference.0"};
  std::set<Digest> digests;
  for (const std::string &text : texts)
    digests.insert(make(text));

  EXPECT_EQ(digests.size(), texts.size());
}

TEST(ResultDigestTest, SeesReferencesToPublicSymbolsWithNamesLikeThose) {
  auto make = [](llvm::StringRef visibility, llvm::StringRef name,
                 llvm::StringRef callees) {
    return digest(("func.func private @p() { return } func.func @" + name +
                   "() { return } func.func " + visibility +
                   " @user() attributes {x = [" + callees + "]} { return }")
                      .str());
  };
  for (const char *visibility : {"public", "private"})
    for (const char *name :
         {"ctxpool.private.0", "ctxpool.unreached.0", "ctxpool.reference.0"}) {
      std::string other = std::string("@") + name;
      EXPECT_NE(make(visibility, name, "@p, " + other),
                make(visibility, name, other + ", @p"))
          << visibility << " " << name;
    }
}

TEST(ResultDigestTest, SeesWhatIsInUnreachedSymbolTables) {
  auto make = [](int first, int second) {
    std::string text =
        "module @inner attributes {sym_visibility = \"private\"} {";
    // So many that there is any first digit among their labels.
    for (int i = 0; i != 64; ++i)
      text += " func.func private @f" + std::to_string((i + first) % 64) +
              "() attributes {x = " + std::to_string(i) + "}";
    return digest(text + " func.func private @last() attributes {x = " +
                  std::to_string(second) + "} }");
  };
  EXPECT_EQ(make(0, 64), make(7, 64));
  EXPECT_NE(make(0, 64), make(0, 65));
}

TEST(ResultDigestTest, SeesNamesAndOrderOfPublicSymbols) {
  Digest digested =
      digest("func.func @f() { return } func.func @g() { return }");
  EXPECT_NE(digested,
            digest("func.func @g() { return } func.func @f() { return }"));
  EXPECT_NE(digested,
            digest("func.func @f() { return } func.func @h() { return }"));
}

TEST(ResultDigestTest, SeesWhetherASymbolIsPrivate) {
  EXPECT_NE(digest("func.func @f() { return }"),
            digest("func.func private @f() { return }"));
}

TEST(ResultDigestTest, SeesContentsOfResources) {
  EXPECT_NE(digest(withResource("blob", "0102")),
            digest(withResource("blob", "0103")));
}

TEST(ResultDigestTest, SeesAttributesAndOperands) {
  auto make = [](llvm::StringRef result, llvm::StringRef attribute) {
    return digest(("func.func @f(%a: i32, %b: i32) -> i32 attributes {x = " +
                   attribute + "} { return " + result + " : i32 }")
                      .str());
  };
  EXPECT_NE(make("%a", "1"), make("%b", "1"));
  EXPECT_NE(make("%a", "1"), make("%a", "2"));
}

//===----------------------------------------------------------------------===//
// Bytecode
//===----------------------------------------------------------------------===//

TEST(ResultDigestTest, OfBytecodeIsThatOfTheModule) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto text = copyAligned(twoGlobals, "text");
  auto module = parseModule(*text, context, /*verify=*/true);
  ASSERT_THAT(module, IsOk());
  std::string bytecode;
  llvm::raw_string_ostream stream(bytecode);
  ASSERT_TRUE(succeeded(mlir::writeBytecodeToFile(**module, stream)));

  CTXPOOL_ASSERT_OK_AND_ASSIGN(fromBytes, digestResult(bytecode, registry));

  EXPECT_EQ(fromBytes, digestModule(**module));
}

TEST(ResultDigestTest, OfBytesThatAreNoModuleIsAnError) {
  mlir::DialectRegistry registry;
  EXPECT_THAT(digestResult("not a module", registry),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the result cannot be read back: result:1:1"));
}

} // namespace

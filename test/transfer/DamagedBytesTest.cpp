//===- DamagedBytesTest.cpp - Bytes that MLIR does not survive ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The inputs of test/fuzz, each listed in its README.md, and those collected
/// elsewhere. A test that fails may take the binary with it.
///
//===----------------------------------------------------------------------===//

#include "context_pool/ModuleTransfer.h"
#include "context_pool/support/Thread.h"
#include "test/ir/IrTestSupport.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"
#include "test/transfer/TransferTestSupport.h"

#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/Dialect/LLVMIR/LLVMAttrs.h"
#include "mlir/Dialect/LLVMIR/LLVMTypes.h"
#include "mlir/Dialect/SPIRV/IR/SPIRVTypes.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IntegerSet.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

std::vector<std::filesystem::path>
bytecodeFiles(const std::filesystem::path &folder) {
  std::vector<std::filesystem::path> files;
  for (const auto &entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".mlirbc")
      files.push_back(entry.path());
  llvm::sort(files);
  return files;
}

absl::StatusOr<SerializedModule> load(const std::filesystem::path &file) {
  return loadSerialized(llvm::MemoryBuffer::getMemBufferCopy(readFile(file)));
}

/// Reads it in every way, and finds the context usable after that.
void expectRefused(const std::filesystem::path &file) {
  SCOPED_TRACE(file.filename().string());
  auto context = makeContext();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, load(file));
  // Also what was refused before.
  for (bool verify : {true, false}) {
    DeserializeOptions options;
    options.verify = verify;
    EXPECT_THAT(deserialize(bytes, *context, options),
                StatusIs(invalidArgument, "cannot read"));
    EXPECT_THAT(LazyModule::open(bytes, *context, options),
                StatusIs(invalidArgument, "cannot read"));
  }
  EXPECT_TRUE(parse(*context, "func.func @f() { return }"));
}

TEST(DamagedBytesTest, BytesThatMlirDoesNotSurviveAreRefused) {
  size_t count = 0;
  for (const auto &file : bytecodeFiles(sourceDir() / "test/fuzz/inputs")) {
    if (llvm::StringRef(file.filename().string()).starts_with("valid"))
      continue;
    expectRefused(file);
    ++count;
  }
  EXPECT_GT(count, 30u);
}

TEST(DamagedBytesTest, WhatTheyWereMadeOfIsRead) {
  for (const char *name : {"valid", "valid-metadata", "valid-operation"}) {
    SCOPED_TRACE(name);
    auto context = makeContext();
    CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, load(sourceDir() / "test/fuzz/inputs" /
                                             (std::string(name) + ".mlirbc")));
    DeserializeOptions trusted;
    trusted.verify = false;
    EXPECT_THAT(deserialize(bytes, *context, trusted), IsOk());
    EXPECT_THAT(LazyModule::open(bytes, *context, trusted), IsOk());
  }
}

TEST(DamagedBytesTest, OnlyTheVerifierFailsOnBytesOfTheFolderVerifier) {
  auto files = bytecodeFiles(sourceDir() / "test/fuzz/verifier");
  EXPECT_FALSE(files.empty());
  for (const auto &file : files) {
    SCOPED_TRACE(file.filename().string());
    auto context = makeContext();
    CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, load(file));
    DeserializeOptions trusted;
    trusted.verify = false;
    EXPECT_THAT(deserialize(bytes, *context, trusted), IsOk());
  }
}

TEST(DamagedBytesTest, EveryInputIsListed) {
  std::string list = readFile(sourceDir() / "test/fuzz/README.md");
  for (const char *folder : {"inputs", "verifier"})
    for (const auto &file : bytecodeFiles(sourceDir() / "test/fuzz" / folder))
      EXPECT_NE(list.find("`" + file.stem().string() + "`"), std::string::npos)
          << file;
}

TEST(DamagedBytesTest, CollectedInputsAreRefused) {
  auto folder = sharedDir("cases/inputs");
  if (!folder)
    GTEST_SKIP() << "needs the folder 'cases' in CONTEXT_POOL_SHARED_DIR";
  size_t count = 0;
  for (const auto &file : bytecodeFiles(*folder)) {
    expectRefused(file);
    ++count;
  }
  EXPECT_GT(count, 0u);
}

TEST(DamagedBytesTest, EveryChangedByteIsAnErrorOrAModule) {
  auto source = makeContext(), destination = makeContext();
  auto module = parse(*source, R"(
    func.func @f(%a: i32, %b: tensor<4xf32>) -> i32 attributes {t.n = 3 : i64} {
      %0 = arith.addi %a, %a : i32
      %1 = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
      return %0 : i32
    })");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  std::string original = bytes.getBytes().str();
  for (size_t at = 4; at != original.size(); ++at)
    for (unsigned char change : {0x01, 0x02, 0x80, 0xff}) {
      std::string changed = original;
      changed[at] ^= change;
      CTXPOOL_ASSERT_OK_AND_ASSIGN(
          loaded,
          loadSerialized(llvm::MemoryBuffer::getMemBufferCopy(changed)));
      auto read = deserialize(loaded, *destination);
      if (!read.ok()) {
        EXPECT_THAT(read, StatusIs(invalidArgument, "cannot read"));
      }
    }
  CTXPOOL_ASSERT_OK_AND_ASSIGN(read, deserialize(bytes, *destination));
  EXPECT_TRUE(isSame(*module, *read));
}

TEST(DamagedBytesTest, EveryVersionOfEveryBundledModulePassesTheCheck) {
  auto context = makeContext();
  for (const auto &file : moduleFiles(sourceDir() / "bench" / "modules")) {
    auto module = parse(*context, readFile(file));
    ASSERT_TRUE(module);
    for (int version = 0; version <= 6; ++version) {
      SCOPED_TRACE(file.filename().string() + std::to_string(version));
      std::string text;
      llvm::raw_string_ostream stream(text);
      BytecodeWriterConfig config("another tool");
      config.setDesiredBytecodeVersion(version);
      ASSERT_TRUE(succeeded(writeBytecodeToFile(*module, stream, config)));
      CTXPOOL_ASSERT_OK_AND_ASSIGN(
          bytes, loadSerialized(llvm::MemoryBuffer::getMemBufferCopy(text)));
      auto destination = makeContext();
      EXPECT_THAT(deserialize(bytes, *destination), IsOk());
    }
  }
}

//===----------------------------------------------------------------------===//
// Depth
//===----------------------------------------------------------------------===//

/// Writes the bytes and reads them on a thread with a stack of 256 KiB.
void expectReadOnSmallStack(ModuleOp module, bool lazily = false) {
  auto destination = makeContext();
  absl::StatusOr<OwningOpRef<Operation *>> read = absl::UnknownError("");
  auto thread = Thread::start(256 << 10, [&] {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(module));
    if (!lazily) {
      read = deserialize(bytes, *destination);
      return;
    }
    auto lazy = LazyModule::open(bytes, *destination);
    ASSERT_THAT(lazy, IsOk());
    for (const std::string &symbol : (*lazy)->getSymbols())
      EXPECT_THAT((*lazy)->materialize(symbol), IsOk());
    read = OwningOpRef<Operation *>((*lazy)->release().release());
  });
  ASSERT_TRUE(thread.ok());
  thread->join();
  ASSERT_THAT(read, IsOk());
  EXPECT_TRUE(isEquivalent(module, read->get()));
}

TEST(DeepBytesTest, CallSitesOnASmallStack) {
  auto source = makeContext();
  Builder builder(source.get());
  auto module = parse(*source, "module {}");
  StringAttr file = builder.getStringAttr("f");
  Location chain = FileLineColLoc::get(file, 1, 1);
  for (int i = 0; i != 3000; ++i)
    chain = CallSiteLoc::get(FileLineColLoc::get(file, i, 2), chain);
  module->getOperation()->setLoc(chain);
  expectReadOnSmallStack(*module);
}

TEST(DeepBytesTest, ArraysOnASmallStack) {
  auto source = makeContext();
  Builder builder(source.get());
  auto module = parse(*source, "module {}");
  Attribute nested = builder.getUnitAttr();
  for (int i = 0; i != 3000; ++i)
    nested = builder.getArrayAttr({nested, builder.getI64IntegerAttr(i)});
  module->getOperation()->setAttr("t.deep", nested);
  expectReadOnSmallStack(*module);
}

TEST(DeepBytesTest, OptionalPartsOfDebugTypesOnASmallStack) {
  // MLIR's reader recurses for these.
  auto source = makeContext();
  Builder builder(source.get());
  auto module = parse(*source, "module {}");
  LLVM::DITypeAttr type =
      LLVM::DIBasicTypeAttr::get(source.get(), 1, "x", 8, 1);
  for (int i = 0; i != 3000; ++i)
    type = LLVM::DIDerivedTypeAttr::get(source.get(), 1,
                                        builder.getStringAttr("x"), type, i, 0,
                                        0, std::nullopt, LLVM::DINodeAttr());
  module->getOperation()->setAttr("llvm.t", type);
  expectReadOnSmallStack(*module);
}

TEST(DeepBytesTest, BracketsOfATextOnASmallStack) {
  auto source = makeContext();
  std::string text;
  for (int i = 0; i != 200; ++i)
    text += "#dlti.map<\"k\" = ";
  text += "unit";
  text.append(200, '>');
  auto module = parse(*source, "module attributes {t.m = " + text + "} {}");
  ASSERT_TRUE(module);
  expectReadOnSmallStack(*module);
}

TEST(DeepBytesTest, TypesThatAreTextOnASmallStack) {
  auto source = makeContext();
  Type array = IntegerType::get(source.get(), 32), structure = array;
  for (int i = 0; i != 1000; ++i) {
    array = LLVM::LLVMArrayType::get(array, 2);
    structure = spirv::StructType::get({structure});
  }
  for (Type type : {array, structure}) {
    auto module = parse(*source, "module {}");
    module->getOperation()->setAttr("t.t", TypeAttr::get(type));
    expectReadOnSmallStack(*module);
  }
}

TEST(DeepBytesTest, LayoutsOnASmallStack) {
  // What the writer needs most of the stack for.
  auto source = makeContext();
  Builder builder(source.get());
  auto module = parse(*source, "module {}");
  Attribute space = builder.getUnitAttr();
  for (int i = 0; i != 1000; ++i)
    space = builder.getArrayAttr(TypeAttr::get(MemRefType::get(
        {1}, builder.getI32Type(), MemRefLayoutAttrInterface(), space)));
  module->getOperation()->setAttr("t.deep", space);
  expectReadOnSmallStack(*module);
}

TEST(DeepBytesTest, AffineExpressionsOnASmallStack) {
  // MLIR itself recurses where it makes one.
  auto outer = Thread::start(256 << 20, [] {
    constexpr unsigned count = 5000;
    auto source = makeContext();
    AffineExpr sum = getAffineDimExpr(0, source.get()), quotient = sum;
    for (unsigned i = 1; i != count; ++i) {
      sum = sum + getAffineDimExpr(i, source.get());
      quotient = quotient.floorDiv(getAffineSymbolExpr(i, source.get()));
    }
    auto module = parse(*source, "module {}");
    auto map = AffineMap::get(count, count, {sum, quotient}, source.get());
    module->getOperation()->setAttr("t.map", AffineMapAttr::get(map));
    expectReadOnSmallStack(*module);
    auto set = IntegerSet::get(count, count, {sum}, {true});
    module->getOperation()->setAttr("t.map", IntegerSetAttr::get(set));
    expectReadOnSmallStack(*module);
  });
  ASSERT_TRUE(outer.ok());
  outer->join();
}

TEST(DeepBytesTest, RegionsOnASmallStack) {
  // MLIR itself recurses where it destroys.
  auto outer = Thread::start(256 << 20, [] {
    for (bool lazily : {false, true}) {
      auto source = makeContext();
      OpBuilder builder(source.get());
      OwningOpRef<ModuleOp> module =
          parse(*source, "func.func @f() { return }");
      builder.setInsertionPointToStart(
          &module->getBody()->front().getRegion(0).front());
      for (int i = 0; i != 3000; ++i) {
        OperationState state(builder.getUnknownLoc(), "t.nest");
        state.addRegion()->emplaceBlock();
        Operation *op = builder.create(state);
        builder.setInsertionPointToStart(&op->getRegion(0).front());
      }
      expectReadOnSmallStack(*module, lazily);
    }
  });
  ASSERT_TRUE(outer.ok());
  outer->join();
}

//===----------------------------------------------------------------------===//
// Lazily
//===----------------------------------------------------------------------===//

using LazyModuleTest = TransferTest;

TEST_F(LazyModuleTest, WhatNobodyCanAskForIsThereFromTheBeginning) {
  // In a region that is not isolated; without a name; and a used result.
  auto module = parse(*source, R"(
    "t.region"() ({
      func.func @nested() { return }
    }) : () -> ()
    module {}
    func.func @named() { return }
    )");
  ASSERT_TRUE(module);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lazy, LazyModule::open(bytes, *destination));
  EXPECT_THAT(lazy->getSymbols(), testing::ElementsAre("named"));
  EXPECT_THAT(lazy->materialize("named"), IsOk());
  OwningOpRef<ModuleOp> released = lazy->release();
  EXPECT_TRUE(isSame(*module, *released));
}

TEST_F(LazyModuleTest, AFailureIsRemembered) {
  auto module = parse(*source, R"(
    func.func @good() { return }
    "func.func"() ({
      "arith.addi"() : () -> ()
    }) {sym_name = "bad", function_type = () -> ()} : () -> ())");
  ASSERT_TRUE(module);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lazy, LazyModule::open(bytes, *destination));
  for (int i = 0; i != 2; ++i)
    EXPECT_THAT(lazy->materialize("bad"),
                StatusIs(invalidArgument, "arith.addi"));
  EXPECT_THAT(lazy->materialize("good"), IsOk());
}

} // namespace

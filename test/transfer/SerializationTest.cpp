//===- SerializationTest.cpp - Rules of modules as bytes ------------------===//
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

#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/Dialect/DLTI/DLTI.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMTypes.h"
#include "mlir/Dialect/SPIRV/IR/SPIRVTypes.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/Location.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include <unistd.h>

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

using SerializationTest = TransferTest;

/// Bytes at an address that is `offset` behind an aligned one.
absl::StatusOr<SerializedModule> loadAt(llvm::StringRef bytes, size_t offset) {
  if (offset == 0) {
    // This one is kept, and not copied.
    auto buffer = llvm::WritableMemoryBuffer::getNewUninitMemBuffer(
        bytes.size(), "test", llvm::Align(4096));
    std::memcpy(buffer->getBufferStart(), bytes.data(), bytes.size());
    return loadSerialized(std::move(buffer));
  }
  std::vector<char> memory(bytes.size() + offset + 8192);
  auto address = reinterpret_cast<uintptr_t>(memory.data());
  char *begin = memory.data() + (4096 - address % 4096) + offset;
  std::memcpy(begin, bytes.data(), bytes.size());
  return loadSerialized(llvm::MemoryBuffer::getMemBuffer(
      llvm::StringRef(begin, bytes.size()), "test", false));
}

TEST_F(SerializationTest, RoundTripKeepsAll) {
  auto module = parse(*source, sampleText());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(read, deserialize(bytes, *destination));
  expectFaithful(*module, *read);
}

TEST_F(SerializationTest, OperationsOtherThanModulesAreTaken) {
  auto module = parse(*source, "func.func @f() { return }");
  Operation *function = &module->getBody()->front();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(function));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(read, deserialize(bytes, *destination));
  expectFaithful(function, *read);
}

TEST_F(SerializationTest, BytesAreAlignedAndOutliveTheirContext) {
  std::optional<SerializedModule> bytes;
  bytes = *serialize(*parse(*source, sampleText()));
  source.reset();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes->getBytes().data()) % 4096, 0u);
  SerializedModule copy = *bytes;
  EXPECT_EQ(copy.getBytes().data(), bytes->getBytes().data());
  EXPECT_THAT(deserialize(copy, *destination), IsOk());
}

TEST_F(SerializationTest, BuffersOfAnyAlignmentAreTaken) {
  for (llvm::StringRef alignment :
       {"01000000", "10000000", "40000000", "00100000"}) {
    auto module = parse(
        *source, ("module attributes {t.w = dense_resource<w" + alignment +
                  "> : tensor<4xi8>} {}\n{-# dialect_resources: { builtin: "
                  "{ w" +
                  alignment + ": \"0x" + alignment + "01020304\" } } #-}")
                     .str());
    ASSERT_TRUE(module);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
    for (size_t offset : {0, 1, 4, 8, 16, 24, 40, 64, 2048}) {
      auto own = makeContext();
      CTXPOOL_ASSERT_OK_AND_ASSIGN(loaded, loadAt(bytes.getBytes(), offset));
      EXPECT_EQ(loaded.getBytes(), bytes.getBytes());
      CTXPOOL_ASSERT_OK_AND_ASSIGN(read, deserialize(loaded, *own));
      expectFaithful(*module, *read);
    }
  }
}

TEST_F(SerializationTest, ResourcesReferToTheBytesAndKeepThem) {
  auto module = parse(*source, R"(
    module attributes {t.w = dense_resource<w> : tensor<4xi8>} {}
    {-# dialect_resources: { builtin: { w: "0x4000000001020304" } } #-})");
  OwningOpRef<Operation *> read;
  const char *begin = nullptr, *end = nullptr;
  {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
    begin = bytes.getBytes().begin();
    end = bytes.getBytes().end();
    CTXPOOL_ASSERT_OK_AND_ASSIGN(made, deserialize(bytes, *destination));
    read = std::move(made);
  }
  auto data = cast<DenseResourceElementsAttr>((*read)->getAttr("t.w"))
                  .getRawHandle()
                  .getBlob()
                  ->getData();
  EXPECT_TRUE(data.data() >= begin && data.data() < end);
  EXPECT_EQ(data[3], 4);
  // And further on, without a copy.
  auto third = makeContext();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*read, *third));
  read = nullptr;
  destination.reset();
  auto shared = cast<DenseResourceElementsAttr>(copy->getAttr("t.w"))
                    .getRawHandle()
                    .getBlob()
                    ->getData();
  EXPECT_EQ(shared.data(), data.data());
  EXPECT_EQ(shared[3], 4);
}

TEST_F(SerializationTest, EveryVersionOfMlirIsRead) {
  auto module = parse(*source, R"(
    func.func @f(%a: i32) -> i32 {
      %0 = arith.addi %a, %a : i32
      return %0 : i32
    })");
  for (int version = 0; version <= 6; ++version) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    BytecodeWriterConfig config("another tool");
    config.setDesiredBytecodeVersion(version);
    ASSERT_TRUE(succeeded(writeBytecodeToFile(*module, stream, config)));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, loadAt(text, 3));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(read, deserialize(bytes, *destination));
    EXPECT_TRUE(isSame(*module, *read));
  }
}

#ifdef CTXPOOL_TEST_MLIR_OPT
/// A file that is removed at the end.
struct TemporaryFile {
  TemporaryFile() {
    EXPECT_FALSE(
        llvm::sys::fs::createTemporaryFile("context_pool", "mlirbc", path));
  }
  ~TemporaryFile() { llvm::sys::fs::remove(path); }
  TemporaryFile(const TemporaryFile &) = delete;
  TemporaryFile &operator=(const TemporaryFile &) = delete;

  llvm::SmallString<128> path;
};

TEST_F(SerializationTest, MlirOptReadsTheBytesAndItsOwnAreRead) {
  TemporaryFile input, output;
  for (const auto &file : moduleFiles(sourceDir() / "bench" / "modules")) {
    SCOPED_TRACE(file.string());
    auto module = parse(*source, readFile(file));
    // Linalg's verifier notes the maps of named operations as an attribute.
    EXPECT_TRUE(verifies(*module));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
    std::ofstream(input.path.c_str(), std::ios::binary)
        << bytes.getBytes().str();
    ASSERT_EQ(
        llvm::sys::ExecuteAndWait(CTXPOOL_TEST_MLIR_OPT,
                                  {CTXPOOL_TEST_MLIR_OPT, "--emit-bytecode",
                                   input.path, "-o", output.path}),
        0);
    auto buffer = llvm::MemoryBuffer::getFile(output.path);
    ASSERT_TRUE(bool(buffer));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(loaded, loadSerialized(std::move(*buffer)));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(read, deserialize(loaded, *destination));
    expectFaithful(*module, *read);
  }
}
#endif

TEST_F(SerializationTest, StrippedLocationsAreUnknownButInAttributes) {
  auto module = parse(*source, R"(
    module attributes {t.l = loc("kept":1:2)} {
      func.func @f(%a: i32 loc("gone":3:4)) {
        return loc("gone":5:6)
      } loc("gone":7:8)
    } loc("gone":9:9))");
  SerializeOptions options;
  options.stripLocations = true;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module, options));
  EXPECT_FALSE(bytes.getBytes().contains("gone"));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(read, deserialize(bytes, *destination));
  EXPECT_TRUE(isSame(*module, *read));
  EXPECT_TRUE(isa<FileLineColLoc>(read->getAttr("t.l")));
  read->walk([](Operation *op) {
    EXPECT_TRUE(isa<UnknownLoc>(op->getLoc()));
    for (Region &region : op->getRegions())
      for (BlockArgument argument : region.getArguments())
        EXPECT_TRUE(isa<UnknownLoc>(argument.getLoc()));
  });
  // The source has its locations still.
  EXPECT_TRUE(isa<FileLineColLoc>(module->getLoc()));
}

TEST_F(SerializationTest, WhatBytecodeLosesIsRefusedByName) {
  auto context = makeContext();
  auto shared = parse(*context, R"(
    #d = distinct[0]<unit>
    module {
      func.func private @f() attributes {t.a = #d, t.b = #dlti.map<"k" = #d>}
    })");
  EXPECT_THAT(serialize(*shared), StatusIs(failedPrecondition, "@f"));
  EXPECT_THAT(serialize(*shared), StatusIs(failedPrecondition, "t.b"));
  auto wide = parse(*context, R"(
    module attributes {t.m = #dlti.map<"k" = 0x3FFF0000000000000000000000000001 : f128>} {})");
  ASSERT_TRUE(wide);
  EXPECT_THAT(serialize(*wide), StatusIs(failedPrecondition, "t.m"));
}

TEST_F(SerializationTest, WhatBytecodeKeepsIsNotRefused) {
  for (llvm::StringRef text : {
           // One place: nothing to be confused with.
           "module attributes {t.m = #dlti.map<\"k\" = distinct[0]<unit>>} {}",
           // Native encodings are exact.
           "module attributes {t.a = 0x3FFF0000000000000000000000000001 : "
           "f128, "
           "t.d = [distinct[0]<unit>, distinct[1]<unit>, distinct[0]<unit>]} "
           "{}",
           // Wide, and not more precise than a double.
           "module attributes {t.m = #dlti.map<\"k\" = 1.5 : f128>} {}",
       }) {
    auto module = parse(*source, text);
    ASSERT_TRUE(module);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(read, deserialize(bytes, *destination));
    EXPECT_TRUE(isSame(*module, *read));
  }
}

/// A module that has the type.
OwningOpRef<ModuleOp> moduleWith(Type type) {
  OwningOpRef<ModuleOp> module =
      ModuleOp::create(UnknownLoc::get(type.getContext()));
  module->getOperation()->setAttr("t.type", TypeAttr::get(type));
  return module;
}

TEST_F(SerializationTest, TextThatRepeatsItsPartsIsRefusedByItsSize) {
  Type literal = IntegerType::get(source.get(), 32), identified = literal,
       foreign = literal;
  for (int i = 0; i != 20; ++i) {
    literal =
        LLVM::LLVMStructType::getLiteral(source.get(), {literal, literal});
    auto outer = LLVM::LLVMStructType::getIdentified(source.get(),
                                                     "s" + std::to_string(i));
    ASSERT_TRUE(succeeded(outer.setBody({identified, identified}, false)));
    identified = outer;
    foreign = spirv::StructType::get({foreign, foreign});
  }
  for (Type type : {literal, identified, foreign}) {
    EXPECT_THAT(serialize(*moduleWith(type)),
                StatusIs(failedPrecondition, "builtin.module has a large"));
    EXPECT_THAT(serialize(*moduleWith(type)),
                StatusIs(failedPrecondition, "2097151 attributes and types"));
  }
  // And where no number is large enough.
  for (int i = 0; i != 200; ++i)
    literal =
        LLVM::LLVMStructType::getLiteral(source.get(), {literal, literal});
  EXPECT_THAT(serialize(*moduleWith(literal)),
              StatusIs(failedPrecondition, "18446744073709551615"));
}

TEST_F(SerializationTest, TextOfStructsThatAllContainEachOtherIsRefused) {
  // It has every way that leads through them.
  std::vector<Type> types;
  for (int i = 0; i != 12; ++i)
    types.push_back(LLVM::LLVMStructType::getIdentified(
        source.get(), "s" + std::to_string(i)));
  for (Type type : types)
    ASSERT_TRUE(
        succeeded(cast<LLVM::LLVMStructType>(type).setBody(types, false)));
  EXPECT_THAT(serialize(*moduleWith(types.front())),
              StatusIs(failedPrecondition, "builtin.module has a large"));
}

TEST_F(SerializationTest, LongTextThatRepeatsNothingIsWritten) {
  Builder builder(source.get());
  SmallVector<Attribute> numbers(100000, builder.getI64IntegerAttr(7));
  auto module = parse(*source, "module {}");
  module->getOperation()->setAttr(
      "t.m",
      MapAttr::get(source.get(),
                   {DataLayoutEntryAttr::get(builder.getStringAttr("k"),
                                             builder.getArrayAttr(numbers))}));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(read, deserialize(bytes, *destination));
  EXPECT_TRUE(isSame(*module, *read));
}

TEST_F(SerializationTest, ValuesAndBlocksFromOutsideAreRefused) {
  // MLIR would take them for others, which it writes.
  auto module = parse(*source, R"(
    func.func @f(%a: i32) -> i32 {
      %0 = arith.addi %a, %a : i32
      cf.br ^end
    ^end:
      %1 = scf.execute_region -> i32 {
        scf.yield %0 : i32
      }
      return %1 : i32
    })");
  Block &entry = module->getBody()->front().getRegion(0).front();
  Block &end = *entry.getNextNode();
  EXPECT_THAT(serialize(&entry.front()),
              StatusIs(invalidArgument, "arith.addi uses a value"));
  EXPECT_THAT(serialize(&entry.back()),
              StatusIs(invalidArgument, "cf.br branches to a block"));
  EXPECT_THAT(serialize(&end.front()),
              StatusIs(invalidArgument, "scf.yield uses a value"));
  SerializeOptions stripped;
  stripped.stripLocations = true;
  EXPECT_THAT(serialize(&entry.front(), stripped),
              StatusIs(invalidArgument, "arith.addi uses a value"));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(read, deserialize(bytes, *destination));
  expectFaithful(*module, *read);

  // Within one that is isolated, and from within another region.
  auto isolated = parse(*source, R"(
    "t.op"() ({
      %0 = "t.value"() : () -> i32
      module { "t.use"() : () -> () }
      "t.other"() ({ "t.use"() : () -> () }) : () -> ()
      "t.use"() : () -> ()
    }) : () -> ())");
  ASSERT_TRUE(isolated);
  Block &body = isolated->getBody()->front().getRegion(0).front();
  Operation *value = &body.front(), *nested = value->getNextNode();
  Operation *use = &nested->getRegion(0).front().front();
  EXPECT_THAT(serialize(*isolated), IsOk());
  use->insertOperands(0, value->getResults());
  EXPECT_THAT(serialize(*isolated),
              StatusIs(invalidArgument, "t.use uses a value"));
  use->eraseOperand(0);
  OpBuilder builder =
      OpBuilder::atBlockBegin(&nested->getNextNode()->getRegion(0).front());
  OperationState state(builder.getUnknownLoc(), "t.inner");
  state.addTypes(builder.getI32Type());
  body.back().insertOperands(0, builder.create(state)->getResults());
  EXPECT_THAT(serialize(*isolated),
              StatusIs(invalidArgument, "t.use uses a value"));
}

TEST_F(SerializationTest, WhatIsNotBytecodeIsAnError) {
  auto context = makeContext();
  EXPECT_THAT(loadSerialized(nullptr), StatusIs(invalidArgument, "no buffer"));
  for (llvm::StringRef bytes :
       {llvm::StringRef(""), llvm::StringRef("M"), llvm::StringRef("module {}"),
        llvm::StringRef("\0\0\0\0\0\0", 6)})
    EXPECT_THAT(loadAt(bytes, 1), StatusIs(invalidArgument, "not MLIR"));
}

TEST_F(SerializationTest, TruncatedBytesAreAnError) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*parse(*source, sampleText())));
  llvm::StringRef all = bytes.getBytes();
  for (size_t size = 0; size < all.size();
       size += std::max<size_t>(1, all.size() / 200)) {
    auto loaded = loadAt(all.take_front(size), 0);
    if (size < 4) {
      EXPECT_THAT(loaded, StatusIs(invalidArgument, "not MLIR"));
      continue;
    }
    ASSERT_THAT(loaded, IsOk());
    EXPECT_THAT(deserialize(*loaded, *destination),
                StatusIs(invalidArgument, "cannot read"));
    EXPECT_THAT(LazyModule::open(*loaded, *destination),
                StatusIs(invalidArgument, "cannot read"));
  }
  EXPECT_THAT(deserialize(bytes, *destination), IsOk());
}

TEST_F(SerializationTest, OtherVersionsAreAnErrorThatNamesThem) {
  auto context = makeContext();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*parse(*context, "module {}")));
  std::string changed = bytes.getBytes().str();
  // After the mark of four bytes: the version, as 2n+1.
  ASSERT_EQ(changed[4], 13);
  changed[4] = 15;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(loaded, loadAt(changed, 0));
  EXPECT_THAT(deserialize(loaded, *context), StatusIs(invalidArgument, "7"));
}

TEST_F(SerializationTest, InvalidModulesAreFoundOnDemand) {
  auto module = parse(*source, "\"arith.addi\"() : () -> ()");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  EXPECT_THAT(deserialize(bytes, *destination),
              StatusIs(invalidArgument, "arith.addi"));
  DeserializeOptions trusted;
  trusted.verify = false;
  EXPECT_THAT(deserialize(bytes, *destination, trusted), IsOk());
}

TEST_F(SerializationTest, UnknownDialectIsAnError) {
  MLIRContext bare(MLIRContext::Threading::DISABLED);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      bytes, serialize(*parse(*source, "func.func @f() { return }")));
  EXPECT_THAT(deserialize(bytes, bare), StatusIs(invalidArgument, "func"));
}

TEST_F(SerializationTest, SeveralThreadsMayReadOneModule) {
  auto module = parse(*source, sampleText());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  Fingerprint digest = digestOf(*module);
  std::vector<std::thread> threads;
  for (int thread = 0; thread != 4; ++thread)
    threads.emplace_back([&, bytes = bytes] {
      auto own = makeContext();
      auto read = deserialize(bytes, *own);
      ASSERT_TRUE(read.ok());
      EXPECT_EQ(digestOf(**read), digest);
    });
  for (std::thread &thread : threads)
    thread.join();
}

/// What has one distinct attribute, within text, that bytecode may lose.
constexpr llvm::StringLiteral fragile =
    "module attributes {t.m = #dlti.map<\"k\" = distinct[0]<unit>>} {}";

TEST_F(SerializationTest, DialectThatCannotBeMadeAgainIsNamed) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.loadDialect<DLTIDialect>();
  auto module = parse(context, fragile);
  EXPECT_THAT(serialize(*module), StatusIs(failedPrecondition, "'dlti'"));
  EXPECT_THAT(serialize(*module), StatusIs(failedPrecondition, "registry"));
  // Where nothing could be lost, nothing is read back.
  auto other = parse(context, "module attributes {t.m = #dlti.map<\"k\" = 1 : "
                              "i32>} {}");
  EXPECT_THAT(serialize(*other), IsOk());

  DialectRegistry registry;
  registry.insert<DLTIDialect>();
  context.appendDialectRegistry(registry);
  EXPECT_THAT(serialize(*module), IsOk());
}

TEST_F(SerializationTest, DialectsThatAreNotUsedNeedNoRegistry) {
  DialectRegistry registry;
  registry.insert<DLTIDialect>();
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadDialect<LLVM::LLVMDialect>();
  EXPECT_THAT(serialize(*parse(context, fragile)), IsOk());
}

} // namespace

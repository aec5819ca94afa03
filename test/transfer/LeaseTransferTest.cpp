//===- LeaseTransferTest.cpp - Rules of bringing IR into a lease ---------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ContextPool.h"
#include "context_pool/ModuleTransfer.h"
#include "test/ir/IrTestSupport.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"
#include "test/transfer/TransferTestSupport.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/DialectResourceBlobManager.h"

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

class LeaseTransferTest : public TransferTest {
protected:
  void SetUp() override {
    auto made = ContextPool::create(smallTemplate());
    ASSERT_THAT(made, IsOk());
    pool = *std::move(made);
    auto acquired = pool->acquire();
    ASSERT_THAT(acquired, IsOk());
    lease = *std::move(acquired);
  }
  std::unique_ptr<ContextPool> pool;
  ContextLease lease;
};

TEST_F(LeaseTransferTest, BringsInModulesOfEveryForm) {
  auto module = parse(*source, "func.func @f() { return }");
  {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(cloned, lease.cloneIn(*module));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(read, lease.deserialize(bytes));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(parsed,
                                 lease.parse("func.func @f() { return }"));
    EXPECT_TRUE(isSame(*module, *cloned));
    EXPECT_TRUE(isSame(*module, *read));
    EXPECT_TRUE(isSame(*module, *parsed));
  }
  EXPECT_TRUE(lease.takeDiagnostics().empty());
}

TEST_F(LeaseTransferTest, SaysWhatIsWrong) {
  EXPECT_THAT(lease.parse("func.func @", "input.mlir"),
              StatusIs(invalidArgument, "\"input.mlir\":1:12"));
  EXPECT_EQ(lease.takeDiagnostics().size(), 1u);
  EXPECT_THAT(lease.parseFile("/no/such/file.mlir"),
              StatusIs(absl::StatusCode::kNotFound, "/no/such/file.mlir"));
  EXPECT_THAT(lease.parse(R"(
    module attributes {t.w = dense_resource<w> : tensor<4xi8>} {}
    {-# dialect_resources: { builtin: { w: "0x0000000001020304" } } #-})"),
              StatusIs(invalidArgument, "alignment"));
}

TEST_F(LeaseTransferTest, ParsesBytecodeAsDeserializeDoes) {
  auto module = parse(*source, "func.func @f() { return }");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(whole, lease.parse(bytes.getBytes()));
  EXPECT_TRUE(isSame(*module, *whole));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(function,
                               serialize(&module->getBody()->front()));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(wrapped, lease.parse(function.getBytes()));
  EXPECT_TRUE(isSame(*module, *wrapped));
  // MLIR's reader would not survive these.
  std::filesystem::path inputs = sourceDir() / "test/fuzz/inputs";
  for (const char *name : {"count-of-strings", "attribute-in-itself"}) {
    std::string file = (inputs / name).string() + ".mlirbc";
    EXPECT_THAT(lease.parseFile(file), StatusIs(invalidArgument, file));
  }
}

TEST_F(LeaseTransferTest, ChargesTheLease) {
  ContextPoolOptions options;
  options.maxBytesPerContext = 4000;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(small,
                               ContextPool::create(smallTemplate(), options));
  auto module = parse(*source, "module attributes {t.a = \"" +
                                   std::string(5000, 'x') + "\"} {}");
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  std::string text = genericText(*module);
  auto expectRetired = [&](auto bringIn) {
    uint64_t before = small->getStats().retiredByBytes;
    {
      CTXPOOL_ASSERT_OK_AND_ASSIGN(lent, small->acquire());
      EXPECT_THAT(bringIn(lent), IsOk());
    }
    EXPECT_EQ(small->getStats().retiredByBytes, before + 1);
  };
  expectRetired([&](ContextLease &lent) { return lent.cloneIn(*module); });
  expectRetired([&](ContextLease &lent) { return lent.deserialize(bytes); });
  expectRetired([&](ContextLease &lent) { return lent.parse(text); });
}

TEST_F(LeaseTransferTest, OnlyResourcesOfDialectsNeedAnAlignment) {
  std::string module =
      "module attributes {t.w = dense_resource<w> : tensor<4xi8>} {}\n";
  std::string aligned =
      "dialect_resources: { builtin: { w: \"0x0100000001020304\" } }";
  std::string zero = "\"0x00000000\"";
  for (const std::string &text :
       {"module {} {-# external_resources: { tool: { id: " + zero + " } } #-}",
        module + "{-# " + aligned + ", external_resources: { tool: { " + zero +
            ": " + zero + ", dialect_resources: " + zero + " } } #-}",
        module + "{-# external_resources: { dialect_resources: { id: " + zero +
            " } }, " + aligned + " #-}",
        // A key, not what it has.
        "module attributes {t.w = dense_resource<" + zero +
            "> : tensor<4xi8>} {} {-# dialect_resources: { builtin: { " + zero +
            ": \"0x0100000001020304\" } } #-}",
        // In strings and comments.
        "module attributes {t.s = \"{-# dialect_resources: { b: { w: "
        "\\\"\", t.z = " +
            zero + "} {}",
        "module {} // {-# dialect_resources: {\n{-# // dialect_resources: {\n"
        "external_resources: { tool: { id: " +
            zero + " } } #-}"}) {
    auto parsed = lease.parse(text);
    EXPECT_THAT(parsed, IsOk()) << text;
  }
  std::string wrong = "dialect_resources: { builtin: { w: " + zero + " } }";
  for (const std::string &text :
       {module + "{-# " + wrong + " #-}",
        module + "{-# external_resources: { t: { a: true } }, " + wrong +
            " #-}",
        module + "{-# /\n" + wrong + " #-}",
        module + "{-# // external_resources: {\"\n" + wrong + " #-}",
        module + "{-# dialect_resources: { builtin: { v: \"0x01000000\", " +
            "\"w\" : // }\n" + zero + " } } #-}",
        "module attributes {t.s = \"//{-#\\\\\"} {}\n" + module + "{-# " +
            wrong + " #-}",
        module + "{-# #-} {-# " + wrong + " #-}"})
    EXPECT_THAT(lease.parse(text), StatusIs(invalidArgument, "alignment"))
        << text;
}

TEST_F(LeaseTransferTest, ResourcesOfParsedBytecodeOutliveTheText) {
  auto module = parse(*source, R"(
    module attributes {t.w = dense_resource<w> : tensor<4xi8>} {}
    {-# dialect_resources: { builtin: { w: "0x4000000001020304" } } #-})");
  for (size_t offset : {0, 1}) {
    OwningOpRef<ModuleOp> parsed;
    {
      // Aligned, as a mapped file is, and not.
      CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
      std::vector<char> copy(offset + bytes.getBytes().size() + 4096);
      char *begin = copy.data() + offset;
      begin += (4096 + offset - reinterpret_cast<uintptr_t>(begin) % 4096);
      std::memcpy(begin, bytes.getBytes().data(), bytes.getBytes().size());
      CTXPOOL_ASSERT_OK_AND_ASSIGN(
          made, lease.parse(llvm::StringRef(begin, bytes.getBytes().size())));
      std::memset(copy.data(), 0, copy.size());
      parsed = std::move(made);
    }
    auto weights = cast<DenseResourceElementsAttr>((*parsed)->getAttr("t.w"));
    EXPECT_EQ(weights.getRawHandle().getBlob()->getData()[3], 4);
  }
}

/// A pool that replaces contexts after a megabyte.
std::unique_ptr<ContextPool> poolOfMegabytes() {
  ContextPoolOptions options;
  options.backgroundRefill = false;
  options.maxBytesPerContext = 1 << 20;
  return *ContextPool::create(smallTemplate(), options);
}

/// A module with a constant of the size, whose first byte is that one.
OwningOpRef<ModuleOp> moduleWithConstant(MLIRContext &context, size_t size,
                                         char first, bool inResource) {
  std::vector<char> data(size, 7);
  data[0] = first;
  auto type =
      RankedTensorType::get({int64_t(size)}, IntegerType::get(&context, 8));
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  Attribute constant;
  if (inResource)
    constant = DenseResourceElementsAttr::get(
        type, "w", HeapAsmResourceBlob::allocateAndCopyWithAlign(data, 16));
  else
    constant = DenseElementsAttr::getFromRawBuffer(type, data);
  module->getOperation()->setAttr("t.w", constant);
  return module;
}

TEST_F(LeaseTransferTest, BlobsThatGoWithTheLeaseAreNotCharged) {
  auto module = moduleWithConstant(*source, 4 << 20, 1, /*inResource=*/true);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bytes, serialize(*module));
  std::string text;
  llvm::raw_string_ostream(text) << *module;
  auto small = poolOfMegabytes();
  auto bringIn = [&](auto how) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(lent, small->acquire());
    EXPECT_THAT(how(lent), IsOk());
  };
  CloneOptions copied;
  copied.resources = CloneOptions::Resources::Copy;
  for (int round = 0; round != 3; ++round) {
    bringIn([&](ContextLease &lent) { return lent.cloneIn(*module); });
    bringIn([&](ContextLease &lent) { return lent.cloneIn(*module, copied); });
    bringIn([&](ContextLease &lent) { return lent.deserialize(bytes); });
    bringIn([&](ContextLease &lent) { return lent.parse(bytes.getBytes()); });
    bringIn([&](ContextLease &lent) { return lent.parse(text); });
  }
  EXPECT_EQ(small->getStats().retiredByBytes, 0u);
  EXPECT_EQ(small->getStats().clones, 1u);
}

TEST_F(LeaseTransferTest, ConstantsThatTheContextHasAreNotChargedAgain) {
  auto module = moduleWithConstant(*source, 600 << 10, 1, false);
  auto small = poolOfMegabytes();
  auto bringIn = [&](ModuleOp which) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(lent, small->acquire());
    EXPECT_THAT(lent.cloneIn(which), IsOk());
  };
  for (int round = 0; round != 5; ++round)
    bringIn(*module);
  EXPECT_EQ(small->getStats().retiredByBytes, 0u);
  bringIn(*moduleWithConstant(*source, 600 << 10, 2, false));
  EXPECT_EQ(small->getStats().retiredByBytes, 1u);
}

} // namespace

//===- ResourceTest.cpp - The data of resources, shared and copied --------===//
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

#include "mlir/IR/AsmState.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/DialectResourceBlobManager.h"

#include <atomic>
#include <cstring>

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

/// Blobs that tests made and that are not freed yet.
std::atomic<int> liveBlobs = 0;

AsmResourceBlob makeBlob(size_t size, size_t alignment, char fill) {
  char *data = static_cast<char *>(llvm::allocate_buffer(size, alignment));
  std::memset(data, fill, size);
  ++liveBlobs;
  return AsmResourceBlob(
      ArrayRef<char>(data, size), alignment,
      [](void *memory, size_t bytes, size_t align) {
        --liveBlobs;
        llvm::deallocate_buffer(memory, bytes, align);
      },
      /*dataIsMutable=*/true);
}

OwningOpRef<ModuleOp> moduleWith(MLIRContext &context, AsmResourceBlob blob,
                                 llvm::StringRef key = "w") {
  Builder builder(&context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(builder.getUnknownLoc());
  int64_t size = blob.getData().size();
  module->getOperation()->setAttr(
      "t.w", DenseResourceElementsAttr::get(
                 RankedTensorType::get({size}, builder.getI8Type()), key,
                 std::move(blob)));
  return module;
}

DenseResourceElementsHandle handleOf(ModuleOp module) {
  return cast<DenseResourceElementsAttr>(module.getOperation()->getAttr("t.w"))
      .getRawHandle();
}
ArrayRef<char> dataOf(ModuleOp module) {
  return handleOf(module).getBlob()->getData();
}

size_t countBlobs(MLIRContext &context) {
  size_t count = 0;
  DenseResourceElementsHandle::getManagerInterface(&context)
      .getBlobManager()
      .getBlobMap([&](const auto &blobs) { count = blobs.size(); });
  return count;
}

CloneOptions copying() {
  CloneOptions options;
  options.resources = CloneOptions::Resources::Copy;
  return options;
}

TEST(ResourceTest, SharedDataIsNotCopied) {
  auto source = makeContext(), destination = makeContext();
  auto module = moduleWith(*source, makeBlob(100, 64, 1));
  const char *data = dataOf(*module).data();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *destination));
  EXPECT_EQ(dataOf(*copy).data(), data);
  EXPECT_EQ(dataOf(*module).data(), data);
  EXPECT_EQ(handleOf(*copy).getBlob()->getDataAlignment(), 64u);
  EXPECT_FALSE(handleOf(*copy).getBlob()->isMutable());
  EXPECT_TRUE(handleOf(*module).getBlob()->isMutable());
  expectFaithful(*module, *copy);
}

TEST(ResourceTest, SharedDataLivesAsLongAsAnyContextHasIt) {
  ASSERT_EQ(liveBlobs, 0);
  auto source = makeContext();
  auto first = makeContext(), second = makeContext();
  auto module = moduleWith(*source, makeBlob(5000, 16, 7));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *first));
  // From the copy as well as from the first source.
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copyOfCopy, cloneInto(*copy, *second));
  module = nullptr;
  source.reset();
  EXPECT_EQ(liveBlobs, 1);
  EXPECT_EQ(dataOf(*copy).back(), 7);
  copy = nullptr;
  first.reset();
  EXPECT_EQ(liveBlobs, 1);
  EXPECT_EQ(dataOf(*copyOfCopy).back(), 7);
  copyOfCopy = nullptr;
  second.reset();
  EXPECT_EQ(liveBlobs, 0);
}

TEST(ResourceTest, DestinationMayDieFirst) {
  auto source = makeContext();
  auto module = moduleWith(*source, makeBlob(5000, 16, 7));
  for (int i = 0; i != 100; ++i) {
    auto destination =
        std::make_unique<MLIRContext>(MLIRContext::Threading::DISABLED);
    EXPECT_THAT(cloneInto(*module, *destination), IsOk());
  }
  EXPECT_EQ(dataOf(*module).back(), 7);
  EXPECT_EQ(liveBlobs, 1);
  module = nullptr;
  source.reset();
  EXPECT_EQ(liveBlobs, 0);
}

TEST(ResourceTest, MemoryIsFreedWhenTheContextGoesBackToItsPool) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(pool, ContextPool::create(smallTemplate()));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(lease, pool->acquire());
  {
    auto source = makeContext();
    auto module = moduleWith(*source, makeBlob(5000, 16, 7));
    EXPECT_THAT(lease.cloneIn(*module), IsOk());
  }
  EXPECT_EQ(liveBlobs, 1);
  lease.release();
  EXPECT_EQ(liveBlobs, 0);
}

TEST(ResourceTest, CopiedDataIsIndependent) {
  auto source = makeContext(), destination = makeContext();
  auto module = moduleWith(*source, makeBlob(100, 4096, 1));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy,
                               cloneInto(*module, *destination, copying()));
  EXPECT_NE(dataOf(*copy).data(), dataOf(*module).data());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(dataOf(*copy).data()) % 4096, 0u);
  EXPECT_EQ(handleOf(*copy).getBlob()->getDataAlignment(), 4096u);
  module = nullptr;
  source.reset();
  EXPECT_EQ(liveBlobs, 0);
  EXPECT_EQ(dataOf(*copy).front(), 1);
}

TEST(ResourceTest, OneResourceIsOneBlob) {
  auto source = makeContext(), destination = makeContext();
  auto module = moduleWith(*source, makeBlob(100, 16, 1));
  CrossContextCloner cloner(*source, *destination);
  for (CloneOptions options : {CloneOptions(), copying()}) {
    size_t before = countBlobs(*destination);
    for (int i = 0; i != 3; ++i) {
      CTXPOOL_ASSERT_OK_AND_ASSIGN(again, cloner.clone(*module, options));
      CTXPOOL_ASSERT_OK_AND_ASSIGN(copy,
                                   cloneInto(*module, *destination, options));
      EXPECT_EQ(again->getOperation()->getAttr("t.w"),
                copy->getOperation()->getAttr("t.w"));
    }
    EXPECT_EQ(countBlobs(*destination), before + 1);
  }
}

TEST(ResourceTest, OtherContentsOfTheNameAreOtherBlobs) {
  auto source = makeContext(), other = makeContext(),
       destination = makeContext();
  auto module = moduleWith(*source, makeBlob(100, 16, 1));
  auto same = moduleWith(*other, makeBlob(100, 16, 2));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(first, cloneInto(*module, *destination));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(second, cloneInto(*same, *destination));
  EXPECT_EQ(handleOf(*first).getKey(), "w");
  EXPECT_EQ(handleOf(*second).getKey(), "w_1");
  expectFaithful(*same, *second, /*sameText=*/false);
}

TEST(ResourceTest, ClonerNoticesOtherContents) {
  auto source = makeContext(), destination = makeContext();
  auto module = moduleWith(*source, makeBlob(100, 16, 1));
  CrossContextCloner cloner(*source, *destination);
  EXPECT_THAT(cloner.clone(*module), IsOk());
  DenseResourceElementsHandle::getManagerInterface(source.get())
      .update("w", makeBlob(100, 16, 2));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(shared, cloner.clone(*module));
  expectFaithful(*module, *shared, /*sameText=*/false);

  // In place, after a copy.
  auto mutableModule = moduleWith(*source, makeBlob(100, 16, 3), "v");
  EXPECT_THAT(cloner.clone(*mutableModule, copying()), IsOk());
  handleOf(*mutableModule).getBlob()->getMutableData()[5] = 9;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copied, cloner.clone(*mutableModule, copying()));
  expectFaithful(*mutableModule, *copied, /*sameText=*/false);
}

TEST(ResourceTest, DataThatNobodyOwnsIsCopied) {
  static const char data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  auto source = makeContext(), destination = makeContext();
  auto module =
      moduleWith(*source, UnmanagedAsmResourceBlob::allocateWithAlign(data, 1));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *destination));
  EXPECT_NE(dataOf(*copy).data(), data);
  expectFaithful(*module, *copy);
}

TEST(ResourceTest, MissingAndEmptyDataStaySo) {
  auto source = makeContext(), destination = makeContext();
  auto missing = parse(
      *source, "module attributes {t.w = dense_resource<m> : tensor<4xi8>} {}");
  auto empty =
      moduleWith(*source, AsmResourceBlob(ArrayRef<char>(), 8, {}, false), "e");
  ASSERT_TRUE(missing);
  CrossContextCloner cloner(*source, *destination);
  for (int i = 0; i != 3; ++i) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloner.clone(*missing));
    EXPECT_FALSE(handleOf(*copy).getBlob());
    expectFaithful(*missing, *copy);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(other, cloner.clone(*empty));
    ASSERT_TRUE(handleOf(*other).getBlob());
    expectFaithful(*empty, *other);
  }
  EXPECT_EQ(countBlobs(*destination), 2u);
}

TEST(ResourceTest, AnErrorLeavesNoData) {
  auto source = makeContext();
  MLIRContext destination(MLIRContext::Threading::DISABLED);
  auto module = moduleWith(*source, makeBlob(100, 16, 1));
  OpBuilder builder(source.get());
  builder.setInsertionPointToEnd(module->getBody());
  OperationState state(builder.getUnknownLoc(), "t.unregistered");
  builder.create(state);
  EXPECT_THAT(cloneInto(*module, destination),
              StatusIs(absl::StatusCode::kFailedPrecondition, "'t'"));
  module = nullptr;
  source.reset();
  EXPECT_EQ(liveBlobs, 0);
}

TEST(ResourceTest, SharingALargeBlobTakesNoMemory) {
  const size_t size = isSanitized ? 16 << 20 : 256 << 20;
  auto source = makeContext(), destination = makeContext();
  EXPECT_THAT(cloneInto(*parse(*source, "module {}"), *destination), IsOk());
  auto module = moduleWith(*source, makeBlob(size, 64, 1));
  size_t before = residentBytes();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *destination));
  EXPECT_LT(residentBytes(), before + (size_t(10) << 20));
  EXPECT_EQ(dataOf(*copy).data(), dataOf(*module).data());
  EXPECT_EQ(dataOf(*copy).size(), size);
}

} // namespace

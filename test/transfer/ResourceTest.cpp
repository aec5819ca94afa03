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
#include "test/support/ForkedChild.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"
#include "test/transfer/TransferTestSupport.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/DialectResourceBlobManager.h"

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <sys/mman.h>

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

/// An operation that no context without its dialect takes.
void addUnregistered(ModuleOp module) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  OperationState state(builder.getUnknownLoc(), "t.unregistered");
  builder.create(state);
}

/// A module whose distinct attribute wraps the resource of `module`.
OwningOpRef<ModuleOp> moduleWithDistinct(ModuleOp module) {
  OwningOpRef<ModuleOp> result = ModuleOp::create(module.getLoc());
  result->getOperation()->setAttr("t.d",
                                  DistinctAttr::create(module->getAttr("t.w")));
  return result;
}
DistinctAttr distinctOf(ModuleOp module) {
  return cast<DistinctAttr>(module.getOperation()->getAttr("t.d"));
}

TEST(ResourceTest, ADistinctAttributeHasItsDataAfterACallThatFailed) {
  auto source = makeContext();
  MLIRContext destination(MLIRContext::Threading::DISABLED);
  auto holder = moduleWith(*source, makeBlob(100, 16, 1));
  auto good = moduleWithDistinct(*holder);
  auto bad = OwningOpRef<ModuleOp>(good->clone());
  addUnregistered(*bad);
  CrossContextCloner cloner(*source, destination);
  ASSERT_THAT(cloner.clone(*bad), StatusIs(failedPrecondition, "'t'"));

  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloner.clone(*good));

  expectFaithful(*good, *copy, /*sameText=*/false);
}

TEST(ResourceTest, ADistinctAttributeIsAnotherOneWithAnotherBlob) {
  auto source = makeContext(), destination = makeContext();
  auto holder = moduleWith(*source, makeBlob(100, 16, 1));
  auto module = moduleWithDistinct(*holder);
  CrossContextCloner cloner(*source, *destination);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(first, cloner.clone(*module));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(same, cloner.clone(*module));
  EXPECT_EQ(distinctOf(*first), distinctOf(*same));

  DenseResourceElementsHandle::getManagerInterface(source.get())
      .update("w", makeBlob(100, 16, 2));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(other, cloner.clone(*module));
  EXPECT_NE(distinctOf(*first), distinctOf(*other));
  expectFaithful(*module, *other, /*sameText=*/false);

  CTXPOOL_ASSERT_OK_AND_ASSIGN(copied, cloner.clone(*module, copying()));
  auto resource =
      cast<DenseResourceElementsAttr>(distinctOf(*copied).getReferencedAttr());
  EXPECT_NE(resource.getRawHandle().getBlob()->getData().data(),
            dataOf(*holder).data());
}

TEST(ResourceTest, WithinOneContextACopyHasTheResourceOfTheSource) {
  auto context = makeContext();
  auto module = moduleWith(*context, makeBlob(100, 16, 1));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *context, copying()));
  EXPECT_EQ(copy->getOperation()->getAttr("t.w"),
            module->getOperation()->getAttr("t.w"));
}

TEST(ResourceTest, AFailedVerificationLeavesNoData) {
  auto source = makeContext(), destination = makeContext();
  auto module = moduleWith(*source, makeBlob(100, 16, 1));
  OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
  builder.create(OperationState(builder.getUnknownLoc(), "arith.addi"));
  CrossContextCloner cloner(*source, *destination);
  uint64_t before = cloner.getInternedBytes();
  CloneOptions options;
  options.verify = true;
  EXPECT_THAT(cloner.clone(*module, options),
              StatusIs(invalidArgument, "arith.addi"));
  // Attributes stay, data does not.
  EXPECT_LT(cloner.getInternedBytes() - before, 1000u);
  module = nullptr;
  source.reset();
  EXPECT_EQ(liveBlobs, 0);
}

class BlobDialect;
using BlobHandle = DialectResourceBlobHandle<BlobDialect>;

struct BlobStorage : AttributeStorage {
  using KeyTy = AsmDialectResourceHandle;
  explicit BlobStorage(const KeyTy &key) : handle(key) {}
  bool operator==(const KeyTy &key) const { return key == handle; }
  static llvm::hash_code hashKey(const KeyTy &key) { return hash_value(key); }
  static BlobStorage *construct(AttributeStorageAllocator &allocator,
                                const KeyTy &key) {
    return new (allocator.allocate<BlobStorage>()) BlobStorage(key);
  }
  AsmDialectResourceHandle handle;
};

class BlobAttr : public Attribute::AttrBase<BlobAttr, Attribute, BlobStorage> {
public:
  using Base::Base;
  static constexpr llvm::StringLiteral name = "blob.data";
  static BlobAttr of(MLIRContext &context, const BlobHandle &handle) {
    return Base::get(&context, handle);
  }
  BlobHandle getHandle() const { return BlobHandle(getImpl()->handle); }
};

/// A dialect with resources of its own.
class BlobDialect : public Dialect {
public:
  explicit BlobDialect(MLIRContext *context);
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(BlobDialect)
  static constexpr llvm::StringLiteral getDialectNamespace() {
    return llvm::StringLiteral("blob");
  }
  void printAttribute(Attribute attribute,
                      DialectAsmPrinter &printer) const override {
    printer << "data<";
    printer.printResourceHandle(cast<BlobAttr>(attribute).getHandle());
    printer << ">";
  }
  Attribute parseAttribute(DialectAsmParser &parser, Type) const override {
    if (parser.parseKeyword("data") || parser.parseLess())
      return {};
    FailureOr<BlobHandle> handle = parser.parseResourceHandle<BlobHandle>();
    if (failed(handle) || parser.parseGreater())
      return {};
    return BlobAttr::of(*getContext(), *handle);
  }
};

struct BlobAsmInterface : OpAsmDialectInterface {
  using OpAsmDialectInterface::OpAsmDialectInterface;
  BlobHandle::ManagerInterface &getManager() const {
    return BlobHandle::getManagerInterface(getDialect()->getContext());
  }
  FailureOr<AsmDialectResourceHandle>
  declareResource(StringRef key) const override {
    return AsmDialectResourceHandle(getManager().insert(key));
  }
  std::string
  getResourceKey(const AsmDialectResourceHandle &handle) const override {
    return cast<BlobHandle>(handle).getKey().str();
  }
  LogicalResult parseResource(AsmParsedResourceEntry &entry) const override {
    FailureOr<AsmResourceBlob> blob = entry.parseAsBlob();
    if (failed(blob))
      return failure();
    getManager().update(entry.getKey(), std::move(*blob));
    return success();
  }
  void buildResources(Operation *,
                      const SetVector<AsmDialectResourceHandle> &handles,
                      AsmResourceBuilder &builder) const override {
    getManager().buildResources(builder, handles.getArrayRef());
  }
};

BlobDialect::BlobDialect(MLIRContext *context)
    : Dialect(getDialectNamespace(), context, TypeID::get<BlobDialect>()) {
  addAttributes<BlobAttr>();
  addInterfaces<BlobAsmInterface, BlobHandle::ManagerInterface>();
}

/// The sizes of the resources of that dialect.
std::vector<size_t> sizesOf(MLIRContext &context) {
  std::vector<size_t> sizes;
  BlobHandle::getManagerInterface(&context).getBlobManager().getBlobMap(
      [&](const auto &blobs) {
        for (const auto &entry : blobs)
          if (const AsmResourceBlob *blob = entry.second.getBlob())
            sizes.push_back(blob->getData().size());
      });
  return sizes;
}

OwningOpRef<ModuleOp> moduleWithOther(MLIRContext &context) {
  context.loadDialect<BlobDialect>();
  BlobHandle handle =
      BlobHandle::getManagerInterface(&context).insert("k", makeBlob(9, 8, 3));
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  module->getOperation()->setAttr("t.b", BlobAttr::of(context, handle));
  return module;
}

TEST(ResourceTest, ResourcesOfOtherDialectsAreBroughtOverOnce) {
  auto source = makeContext(), destination = makeContext();
  auto module = moduleWithOther(*source);
  destination->loadDialect<BlobDialect>();
  CrossContextCloner cloner(*source, *destination);
  for (int i = 0; i != 3; ++i) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloner.clone(*module));
    expectFaithful(*module, *copy);
  }
  EXPECT_THAT(sizesOf(*destination), testing::ElementsAre(9));

  BlobHandle::getManagerInterface(source.get()).update("k", makeBlob(8, 8, 4));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(other, cloner.clone(*module));
  expectFaithful(*module, *other, /*sameText=*/false);
}

TEST(ResourceTest, AnErrorTakesBackTheResourcesOfOtherDialects) {
  auto source = makeContext();
  MLIRContext destination(MLIRContext::Threading::DISABLED);
  auto module = moduleWithOther(*source);
  destination.loadDialect<BlobDialect>();
  auto bad = OwningOpRef<ModuleOp>(module->clone());
  addUnregistered(*bad);
  CrossContextCloner cloner(*source, destination);

  EXPECT_THAT(cloner.clone(*bad), StatusIs(failedPrecondition, "'t'"));
  EXPECT_THAT(sizesOf(destination), testing::ElementsAre(0));

  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloner.clone(*module));
  expectFaithful(*module, *copy, /*sameText=*/false);
}

TEST(ResourceTest, DataIsComparedOnlyByCallsThatMeetIt) {
  const size_t size = 1 << 20;
  void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto source = makeContext(), destination = makeContext();
  auto module = moduleWith(
      *source,
      AsmResourceBlob(
          ArrayRef<char>(static_cast<char *>(memory), size), 16,
          [](void *data, size_t bytes, size_t) { munmap(data, bytes); },
          /*dataIsMutable=*/true));
  auto other = parse(*source, "func.func private @f()");
  CrossContextCloner cloner(*source, *destination);
  ASSERT_THAT(cloner.clone(*module, copying()), IsOk());

  // Whoever reads it crashes.
  EXPECT_EQ(runInChild([&] {
              return mprotect(memory, size, PROT_NONE) == 0 &&
                     cloner.clone(*other, copying()).ok();
            }),
            "exit 0");
}

/// A deleter that makes whoever moves it slow, on threads that ask for it: data
/// is shared by moving its deleter, under the lock of what is shared.
struct SlowDeleter {
  inline static thread_local bool isSlow = false;
  SlowDeleter() = default;
  SlowDeleter(SlowDeleter &&) noexcept {
    if (isSlow)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  void operator()(void *memory, size_t size, size_t alignment) {
    llvm::deallocate_buffer(memory, size, alignment);
  }
};

TEST(ResourceTest, AForkedChildSharesAndFreesWhateverTheParentsThreadsDo) {
  auto source = makeContext(), destination = makeContext();
  auto module = moduleWith(*source, makeBlob(100, 16, 1));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(copy, cloneInto(*module, *destination));
  std::atomic<bool> stops{false}, started{false};
  std::thread holder([&] {
    auto from = makeContext(), to = makeContext();
    while (!stops) {
      auto *data = static_cast<char *>(llvm::allocate_buffer(64, 16));
      std::memset(data, 0, 64);
      auto held = moduleWith(
          *from, AsmResourceBlob({data, 64}, 16, SlowDeleter(), false));
      SlowDeleter::isSlow = true;
      EXPECT_THAT(cloneInto(*held, *to), IsOk());
      SlowDeleter::isSlow = false;
      started = true;
    }
  });
  EXPECT_TRUE(eventually([&] { return started.load(); }));

  for (int round = 0; round != 5; ++round)
    EXPECT_EQ(runInChild([&] {
                auto own = makeContext();
                if (!cloneInto(*module, *own).ok())
                  return false;
                own.reset();
                copy = nullptr;
                destination.reset();
                return true;
              }),
              "exit 0");

  stops = true;
  holder.join();
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

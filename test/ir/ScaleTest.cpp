//===- ScaleTest.cpp - Deep, wide and many --------------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/ir/IrTestSupport.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"

#include "mlir/Dialect/LLVMIR/LLVMTypes.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"

#include <pthread.h>

#include <functional>
#include <thread>

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

/// Runs on a thread with a stack of 256 KiB: recursion that grows with the IR
/// does not fit.
void onSmallStack(std::function<void()> work) {
  // Sanitizers widen frames.
  size_t stack = (isSanitized ? 1024 : 256) * 1024;
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, stack), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void *argument) -> void * {
                  (*static_cast<std::function<void()> *>(argument))();
                  return nullptr;
                },
                &work),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

Operation *makeOperation(MLIRContext &context, llvm::StringRef name,
                         ValueRange operands = {}, unsigned results = 0,
                         unsigned regions = 0) {
  OperationState state(UnknownLoc::get(&context), name);
  state.addOperands(operands);
  for (unsigned i = 0; i != results; ++i)
    state.addTypes(IntegerType::get(&context, 32));
  for (unsigned i = 0; i != regions; ++i)
    state.addRegion();
  return Operation::create(state);
}

/// Regions in regions. Destroyed from the inside, since MLIR recurses.
class Nest {
public:
  Nest(MLIRContext &context, unsigned depth, llvm::StringRef innermost) {
    for (unsigned i = 0; i != depth; ++i) {
      Operation *op = makeOperation(context, "t.r", {}, 0, 1);
      if (!ops.empty())
        ops.back()->getRegion(0).front().push_back(op);
      op->getRegion(0).push_back(new Block());
      ops.push_back(op);
    }
    Operation *op = makeOperation(context, innermost);
    ops.back()->getRegion(0).front().push_back(op);
    ops.push_back(op);
  }
  ~Nest() {
    while (!ops.empty()) {
      Operation *op = ops.back();
      ops.pop_back();
      op->remove();
      op->destroy();
    }
  }
  Operation *get() { return ops.front(); }

private:
  std::vector<Operation *> ops;
};

TEST(ScaleTest, TenThousandNestedRegionsFitASmallStack) {
  auto context = makeContext();
  Nest lhs(*context, 10000, "t.x"), same(*context, 10000, "t.x"),
      deeper(*context, 10001, "t.x"), other(*context, 10000, "t.y");
  onSmallStack([&] {
    EXPECT_TRUE(isSame(lhs.get(), same.get()));
    EXPECT_FALSE(isSame(lhs.get(), deeper.get()));
    EXPECT_FALSE(isSame(lhs.get(), other.get()));
    absl::Status status = checkEquivalence(lhs.get(), other.get());
    EXPECT_LT(status.message().size(), 2000u);
  });
}

TEST(ScaleTest, LongCallSiteChainsFitASmallStack) {
  auto context = makeContext(), other = makeContext();
  StructuralOptions options;
  options.includeLocations = true;
  auto chain = [](MLIRContext &in, unsigned line) {
    LocationAttr location = FileLineColLoc::get(&in, "leaf", line, 1);
    for (unsigned i = 0; i != 20000; ++i)
      location =
          CallSiteLoc::get(location, FileLineColLoc::get(&in, "c", i, 1));
    return location;
  };
  auto make = [&](MLIRContext &in, unsigned line) {
    Operation *op = makeOperation(in, "t.a");
    op->setLoc(chain(in, line));
    op->setDiscardableAttr("l", chain(in, line));
    return op;
  };
  Operation *lhs = make(*context, 1), *same = make(*other, 1),
            *different = make(*other, 2);
  onSmallStack([&] {
    EXPECT_TRUE(isSame(lhs, same, options));
    EXPECT_EQ(digestOf(lhs, options) == digestOf(different, options), false);
    EXPECT_FALSE(isEquivalent(lhs, different, options));
    EXPECT_LT(checkEquivalence(lhs, different, options).message().size(),
              1000u);
  });
  for (Operation *op : {lhs, same, different})
    op->destroy();
}

TEST(ScaleTest, DeepAttributesAndTypesFitASmallStack) {
  auto context = makeContext();
  auto make = [&](Attribute leaf, Type leafType) {
    Attribute array = leaf;
    Type tuple = leafType;
    for (unsigned i = 0; i != 20000; ++i) {
      array = ArrayAttr::get(context.get(), {array, array});
      tuple = TupleType::get(context.get(), {tuple, tuple});
    }
    Operation *op = makeOperation(*context, "t.a");
    op->setDiscardableAttr("a", array);
    op->setDiscardableAttr("t", TypeAttr::get(tuple));
    return op;
  };
  Builder builder(context.get());
  Operation *lhs = make(builder.getI32IntegerAttr(1), builder.getI1Type());
  Operation *rhs = make(builder.getI32IntegerAttr(2), builder.getI1Type());
  onSmallStack([&] {
    EXPECT_NE(digestOf(lhs), digestOf(rhs));
    EXPECT_FALSE(isEquivalent(lhs, rhs));
    EXPECT_TRUE(isEquivalent(lhs, lhs));
    EXPECT_LT(checkEquivalence(lhs, rhs).message().size(), 1000u);
  });
  lhs->destroy();
  rhs->destroy();
}

TEST(ScaleTest, AffineExpressionsThatShareTheirPartsTakeLinearTime) {
  auto context = makeContext();
  // Twice itself, 60 times over: text would have 2^60 terms.
  auto make = [&](int64_t constant) {
    AffineExpr expression =
        getAffineDimExpr(0, context.get()) +
        getAffineDimExpr(1, context.get()).floorDiv(constant);
    for (int i = 0; i != 60; ++i)
      expression = getAffineBinaryOpExpr(
          AffineExprKind::Mod, expression + expression.floorDiv(3), expression);
    Operation *op = makeOperation(*context, "t.a");
    op->setDiscardableAttr(
        "m", AffineMapAttr::get(AffineMap::get(2, 0, expression)));
    return op;
  };
  Operation *lhs = make(5), *rhs = make(7);
  EXPECT_NE(digestOf(lhs), digestOf(rhs));
  EXPECT_FALSE(isEquivalent(lhs, rhs));
  lhs->destroy();
  rhs->destroy();
}

/// Whether the type takes time linear in the types that it is made of.
void expectLinear(llvm::function_ref<Type(MLIRContext &, bool)> make) {
  auto context = makeContext(), other = makeContext();
  std::vector<Operation *> ops;
  for (auto [where, changed] :
       {std::pair(context.get(), false), std::pair(other.get(), false),
        std::pair(other.get(), true)}) {
    ops.push_back(makeOperation(*where, "t.a"));
    ops.back()->setDiscardableAttr("k", TypeAttr::get(make(*where, changed)));
  }
  onSmallStack([&] {
    EXPECT_TRUE(isSame(ops[0], ops[1]));
    if (digestOf(ops[0]) != digestOf(ops[2]))
      EXPECT_FALSE(isEquivalent(ops[0], ops[2]));
    else
      ADD_FAILURE() << "the change was not seen";
    EXPECT_LT(checkEquivalence(ops[0], ops[2]).message().size(), 2048u);
  });
  for (Operation *op : ops)
    op->destroy();
}

TEST(ScaleTest, LiteralStructsThatShareTheirPartsTakeLinearTime) {
  expectLinear([](MLIRContext &context, bool changed) {
    Type type = IntegerType::get(&context, changed ? 8 : 16);
    for (int i = 0; i != 200; ++i)
      type = LLVM::LLVMStructType::getLiteral(&context, {type, type});
    return type;
  });
}

TEST(ScaleTest, NamedStructsThatShareTheirPartsTakeLinearTime) {
  expectLinear([](MLIRContext &context, bool changed) {
    Type type = IntegerType::get(&context, changed ? 8 : 16);
    for (int i = 0; i != 2000; ++i) {
      auto next = LLVM::LLVMStructType::getIdentified(
          &context, (changed ? "c" : "s") + std::to_string(i));
      EXPECT_TRUE(succeeded(next.setBody({type, type}, false)));
      type = next;
    }
    return type;
  });
}

TEST(ScaleTest, NamedStructsInACycleTakeLinearTime) {
  expectLinear([](MLIRContext &context, bool changed) {
    std::vector<LLVM::LLVMStructType> types;
    for (int i = 0; i != 2000; ++i)
      types.push_back(LLVM::LLVMStructType::getIdentified(
          &context, (changed ? "c" : "s") + std::to_string(i)));
    for (int i = 0; i != 2000; ++i)
      EXPECT_TRUE(succeeded(types[i].setBody(
          {LLVM::LLVMArrayType::get(types[(i + 1) % 2000], 2)}, false)));
    return types[0];
  });
}

TEST(ScaleTest, NestedLlvmArraysTakeLinearTime) {
  expectLinear([](MLIRContext &context, bool changed) {
    Type type = IntegerType::get(&context, changed ? 8 : 16);
    for (int i = 0; i != 20000; ++i)
      type = LLVM::LLVMArrayType::get(type, 2);
    return type;
  });
}

TEST(ScaleTest, PartsOfACycleHaveOneDigestWhereverTheWalkBegins) {
  auto context = makeContext(), other = makeDirtyContext();
  auto make = [](MLIRContext &where, bool backwards) {
    SmallVector<LLVM::LLVMStructType> types;
    for (const char *name : {"a", "b", "c"})
      types.push_back(LLVM::LLVMStructType::getIdentified(&where, name));
    for (int i = 0; i != 3; ++i) {
      Type next = LLVM::LLVMArrayType::get(types[(i + 1) % 3], 2);
      EXPECT_TRUE(succeeded(types[i].setBody({next, next}, false)));
    }
    SmallVector<Type> all;
    for (int i = 0; i != 3; ++i) {
      all.push_back(types[i]);
      all.push_back(LLVM::LLVMArrayType::get(types[i], 2));
    }
    // Another walk, before that of the operation.
    Fingerprinter fingerprinter(where);
    SmallVector<std::string> digests;
    if (backwards)
      std::reverse(all.begin(), all.end());
    for (Type type : all) {
      Operation *op = makeOperation(where, "t.a");
      op->setDiscardableAttr("k", TypeAttr::get(type));
      absl::StatusOr<Fingerprint> digest = fingerprinter.compute(op);
      EXPECT_EQ(*digest, digestOf(op));
      digests.push_back(digest->toHex());
      op->destroy();
    }
    if (backwards)
      std::reverse(digests.begin(), digests.end());
    return digests;
  };
  auto digests = make(*context, false);
  EXPECT_EQ(digests, make(*other, true));
  std::sort(digests.begin(), digests.end());
  EXPECT_EQ(std::unique(digests.begin(), digests.end()), digests.end());
}

TEST(ScaleTest, OperationWithTenThousandOperandsSeesTheLast) {
  auto context = makeContext();
  auto make = [&](bool swapped) {
    OwningOpRef<ModuleOp> module = parse(*context, "");
    Operation *definition = makeOperation(*context, "t.d", {}, 10000);
    module->getBody()->push_back(definition);
    SmallVector<Value> operands(definition->getResults());
    if (swapped)
      std::swap(operands[9998], operands[9999]);
    module->getBody()->push_back(makeOperation(*context, "t.u", operands));
    return module;
  };
  auto lhs = make(false), same = make(false), other = make(true);
  EXPECT_TRUE(isSame(*lhs, *same));
  EXPECT_FALSE(isSame(*lhs, *other));
}

TEST(ScaleTest, MillionOperations) {
  size_t count = isSanitized ? 50000 : 1000000;
  auto context = makeContext();
  auto make = [&](bool changed) {
    OwningOpRef<ModuleOp> module = parse(*context, "");
    Builder builder(context.get());
    Operation *last = nullptr;
    for (size_t i = 0; i != count; ++i) {
      Operation *op = makeOperation(
          *context, i % 3 ? "t.a" : "t.b",
          last ? ValueRange(last->getResults()) : ValueRange(), 1);
      if (i % 4 == 0)
        op->setDiscardableAttr("k", builder.getI64IntegerAttr(i % 1000));
      module->getBody()->push_back(op);
      last = op;
    }
    if (changed)
      last->setDiscardableAttr("k", builder.getI64IntegerAttr(7));
    return module;
  };
  auto lhs = make(false), same = make(false), other = make(true);
  EXPECT_TRUE(isSame(*lhs, *same));
  EXPECT_FALSE(isSame(*lhs, *other));
}

TEST(ScaleTest, ManyForwardReferences) {
  auto context = makeContext();
  auto make = [&](bool changed) {
    // Each operation uses the one after it, in a graph region.
    OwningOpRef<ModuleOp> module = parse(*context, "");
    std::vector<Operation *> ops;
    for (int i = 0; i != 20000; ++i) {
      ops.push_back(makeOperation(*context, "t.a", {}, 1));
      module->getBody()->push_back(ops.back());
    }
    for (size_t i = 0; i != ops.size(); ++i)
      ops[i]->setOperands(ops[(i + 1) % ops.size()]->getResults());
    if (changed)
      ops[10000]->setOperands(ops[10002]->getResults());
    return module;
  };
  auto lhs = make(false), same = make(false), other = make(true);
  EXPECT_TRUE(isSame(*lhs, *same));
  EXPECT_FALSE(isSame(*lhs, *other));
}

TEST(ScaleTest, ThreadsReadOneContextAtOnce) {
  auto context = makeContext(), other = makeContext();
  const char *text = R"(
    module attributes {t.w = dense_resource<w> : tensor<4xi8>,
                       t.m = #dlti.map<"k" = distinct[0]<1 : i8>>} {
      llvm.func @g() attributes {sym_visibility = "private"} { llvm.return }
      func.func @f(%a: f32, %s: memref<4xf32, strided<[2]>>) -> f32 {
        llvm.call @g() : () -> ()
        %c = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
        %0 = arith.addf %a, %a fastmath<fast> : f32
        %1 = llvm.mlir.undef : !llvm.struct<"n", (i32, array<4 x f32>)>
        return %0 : f32 } }
    {-# dialect_resources: { builtin: { w: "0x0100000001020304" } } #-})";
  auto module = parse(*context, text), same = parse(*other, text);
  StructuralOptions modes[3];
  Fingerprint digests[3];
  for (int mode = 0; mode != 3; ++mode) {
    modes[mode].symbols = static_cast<StructuralOptions::Symbols>(mode);
    digests[mode] = digestOf(*module, modes[mode]);
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i != 4; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round != 50; ++round) {
        int mode = round % 3;
        absl::StatusOr<Fingerprint> mine =
            fingerprint(i % 2 ? *module : *same, modes[mode]);
        if (!mine.ok() || *mine != digests[mode] ||
            !isEquivalent(*module, *same, modes[mode]))
          ++wrong;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

} // namespace

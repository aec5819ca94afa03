//===- Subject.cpp - What the figures of IR are about ---------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/micro/Subject.h"

#include "bench/micro/MicroContexts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectRegistry.h"

#include <string>

using namespace ctxpool;
using namespace ctxpool::bench;

std::unique_ptr<mlir::MLIRContext> bench::makeSubjectContext() {
  auto context = std::make_unique<mlir::MLIRContext>(
      allDialects(), mlir::MLIRContext::Threading::DISABLED);
  // As a clone of a template is: without locks for threads that it lacks.
  context->disableMultithreading();
  context->loadDialect<mlir::arith::ArithDialect, mlir::func::FuncDialect,
                       mlir::memref::MemRefDialect>();
  return context;
}

Subject bench::makeSubject(int operations, int first) {
  Subject subject;
  subject.context = makeSubjectContext();
  mlir::OpBuilder builder(subject.context.get());
  mlir::Location location = builder.getUnknownLoc();
  subject.module = mlir::ModuleOp::create(location);

  mlir::Type i32 = builder.getI32Type(), f32 = builder.getF32Type();
  auto memory = mlir::MemRefType::get({64}, f32);
  auto type =
      builder.getFunctionType({i32, memory, builder.getIndexType()}, {i32});
  int unique = 1000;
  auto constant = [&](mlir::TypedAttr value) {
    return mlir::arith::ConstantOp::create(builder, location, value);
  };
  for (int made = 0, function = 0; made < operations; ++function) {
    builder.setInsertionPointToEnd(subject.module->getBody());
    auto func = mlir::func::FuncOp::create(
        builder, location, "f" + std::to_string(function), type);
    mlir::Block *block = func.addEntryBlock();
    builder.setInsertionPointToStart(block);
    mlir::Value sum = block->getArgument(0), buffer = block->getArgument(1),
                index = block->getArgument(2);
    made += 2;
    for (int group = 0; group < 12 && made < operations; ++group, made += 8) {
      bool isFirst = function == 0 && group == 0;
      mlir::Value once =
          constant(builder.getI32IntegerAttr(isFirst ? first : unique++));
      mlir::Value again = constant(builder.getI32IntegerAttr(7));
      sum = mlir::arith::AddIOp::create(builder, location, sum, once);
      auto product = mlir::arith::MulIOp::create(builder, location, sum, again);
      product->setAttr("tag",
                       builder.getStringAttr("t" + std::to_string(unique++)));
      sum = product;
      mlir::Value loaded =
          mlir::memref::LoadOp::create(builder, location, buffer, index);
      mlir::Value factor = constant(builder.getF32FloatAttr(float(unique++)));
      mlir::Value scaled = mlir::arith::MulFOp::create(
          builder, location, loaded, factor, mlir::arith::FastMathFlags::fast);
      auto store = mlir::memref::StoreOp::create(builder, location, scaled,
                                                 buffer, index);
      store->setAttr("note", builder.getI64IntegerAttr(unique++));
    }
    mlir::func::ReturnOp::create(builder, location, sum);
  }
  return subject;
}

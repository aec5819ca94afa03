//===- Subject.h - What the figures of IR are about ----------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_MICRO_SUBJECT_H
#define CONTEXT_POOL_BENCH_MICRO_SUBJECT_H

#include "bench/micro/Figure.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <algorithm>
#include <memory>

namespace ctxpool::bench {

/// A module in a context of its own.
struct Subject {
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;

  mlir::Operation *get() { return module->getOperation(); }
};

/// A context without threads that has loaded what `makeSubject` uses.
std::unique_ptr<mlir::MLIRContext> makeSubjectContext();

/// A module of about `operations` operations: functions `f0`, `f1`, ... of 98
/// operations each with arithmetic and memory accesses, half of whose attributes
/// occur once. `first` is the value of the first constant.
Subject makeSubject(int operations, int first = 0);

/// Nanoseconds of one of as many calls of `body` as a hundred thousand
/// operations are worth.
template <typename Body>
double timeEach(int operations, Body &&body) {
  int calls = std::max(1, 100000 / operations);
  return nanosecondsOf([&] {
           for (int call = 0; call < calls; ++call)
             body();
         }) /
         calls;
}

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_MICRO_SUBJECT_H

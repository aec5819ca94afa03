//===- IrTestSupport.h - Contexts, modules and mutations --------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_TEST_IR_IRTESTSUPPORT_H
#define CONTEXT_POOL_TEST_IR_IRTESTSUPPORT_H

#include "test/support/TestFiles.h"

#include "context_pool/Equivalence.h"
#include "context_pool/Fingerprint.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace ctxpool::test {

/// A context with all of upstream's dialects loaded, which takes unregistered
/// ones.
std::unique_ptr<mlir::MLIRContext> makeContext();

/// The same dialects loaded in the opposite order, and the context used before:
/// attributes, types, resources and modules that have nothing to do with a
/// test.
std::unique_ptr<mlir::MLIRContext> makeDirtyContext();

/// The module that the text is, not verified; null and a test failure if it
/// does not parse.
mlir::OwningOpRef<mlir::ModuleOp> parse(mlir::MLIRContext &context,
                                        llvm::StringRef text);

/// As `parse`, null and quiet where the text does not parse.
mlir::OwningOpRef<mlir::ModuleOp> tryParse(mlir::MLIRContext &context,
                                           llvm::StringRef text);

/// The digest, a test failure where there is none.
Fingerprint digestOf(mlir::Operation *op,
                     const StructuralOptions &options = {});

/// Whether digest and comparison say that the two are the same; a test failure
/// where they do not say the same.
bool isSame(mlir::Operation *lhs, mlir::Operation *rhs,
            const StructuralOptions &options = {});

/// Generic text without locations, or with those of operations and block
/// arguments.
std::string genericText(mlir::Operation *op, bool locations = false);

/// The module after a trip through bytecode of the version, in the context.
mlir::OwningOpRef<mlir::ModuleOp>
throughBytecode(mlir::ModuleOp module, mlir::MLIRContext &context, int version);

/// Shuffles the use lists of all values.
void shuffleUseLists(mlir::Operation *op, std::mt19937_64 &random);

/// Changes one thing somewhere in the module: an operation, operand, type,
/// attribute, block argument, successor, or order. Returns what it did; nothing
/// where it found nothing to change. The result may be invalid and equal to
/// what was.
std::string mutate(mlir::ModuleOp module, std::mt19937_64 &random,
                   bool locations = false);

} // namespace ctxpool::test

#endif // CONTEXT_POOL_TEST_IR_IRTESTSUPPORT_H

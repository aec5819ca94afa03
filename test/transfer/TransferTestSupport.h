//===- TransferTestSupport.h - What a copy of a module has to be -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_TEST_TRANSFER_TRANSFERTESTSUPPORT_H
#define CONTEXT_POOL_TEST_TRANSFER_TRANSFERTESTSUPPORT_H

#include "context_pool/ModuleTransfer.h"
#include "test/ir/IrTestSupport.h"

#include "gtest/gtest.h"

#include <memory>
#include <string>

namespace ctxpool::test {

constexpr auto failedPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr auto invalidArgument = absl::StatusCode::kInvalidArgument;

/// The text of a module of some size.
std::string sampleText();

/// Two contexts that have all dialects.
class TransferTest : public testing::Test {
protected:
  std::unique_ptr<mlir::MLIRContext> source = makeContext();
  std::unique_ptr<mlir::MLIRContext> destination = makeContext();
};

/// Whether use lists of all values and the predecessors of all blocks are in
/// one order. The first difference, empty where there is none.
std::string compareUseLists(mlir::Operation *lhs, mlir::Operation *rhs);

/// Expects the properties of a copy: equivalence with locations, use lists, the
/// verifier's opinion, and, with `sameText`, the text with locations.
void expectFaithful(mlir::Operation *source, mlir::Operation *copy,
                    bool sameText = true);

/// The operation verifies; nothing is printed where it does not.
bool verifies(mlir::Operation *op);

/// Loads a dialect `versioned`, which notes its version in bytecode. Where that
/// is read, it upgrades each of its operations: gives it an attribute
/// `upgraded`.
void loadVersionedDialect(mlir::MLIRContext &context);

} // namespace ctxpool::test

#endif // CONTEXT_POOL_TEST_TRANSFER_TRANSFERTESTSUPPORT_H

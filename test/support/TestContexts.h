//===- TestContexts.h - Templates and dialects for tests ------ -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_TEST_SUPPORT_TESTCONTEXTS_H
#define CONTEXT_POOL_TEST_SUPPORT_TESTCONTEXTS_H

#include "context_pool/ContextTemplate.h"

#include "mlir/IR/Dialect.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Support/TypeID.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ctxpool::test {

/// A dialect that tells which threads destroyed contexts that had it loaded.
class WitnessDialect : public mlir::Dialect {
public:
  explicit WitnessDialect(mlir::MLIRContext *context);
  ~WitnessDialect() override;
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(WitnessDialect)
  static constexpr llvm::StringLiteral getDialectNamespace() {
    return llvm::StringLiteral("witness");
  }

  /// Contexts that have it loaded.
  static size_t countAlive();
  /// The threads on which contexts died since the last call.
  static std::vector<std::thread::id> takeDestroyers();
};

/// Options for a template of a few dialects (witness, func, arith, cf, scf and
/// what they depend on) that is quick to clone.
ContextTemplateOptions smallTemplateOptions();

/// A template from `smallTemplateOptions`.
std::shared_ptr<const ContextTemplate> smallTemplate();

/// A template of all of upstream's dialects and extensions.
std::shared_ptr<const ContextTemplate> fullTemplate();

/// Registers upstream's passes with MLIR, once.
void registerPasses();

/// The threads of this process.
size_t countThreads();

/// The resident memory of this process, in bytes.
size_t residentBytes();

/// The names of the dialects that `context` has loaded, sorted.
std::vector<std::string> loadedDialects(mlir::MLIRContext &context);

/// Whether the tests run under a sanitizer, which needs memory of its own.
constexpr bool isSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    true;
#else
    false;
#endif
#else
    false;
#endif

} // namespace ctxpool::test

#endif // CONTEXT_POOL_TEST_SUPPORT_TESTCONTEXTS_H

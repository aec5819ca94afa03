//===- FingerprintFuzzer.cpp - Digest and comparison agree ----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A libFuzzer target. The input is one text, or two with a line of `// ---`
/// between them. Where they parse, their digests must be equal exactly when
/// `isEquivalent` holds, in two contexts and in one, under all options; and
/// nothing may crash. Run it on a folder of modules:
///
///     fingerprint-fuzzer -rss_limit_mb=4096 <folder>
///
//===----------------------------------------------------------------------===//

#include "context_pool/Equivalence.h"
#include "context_pool/Fingerprint.h"
#include "test/fuzz/FuzzSupport.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::fuzz;

namespace {

/// What upstream's parser does not survive is not looked for here.
bool isDigestible(llvm::StringRef text) {
  return text.size() < 4096 && text.count('<') < 64 && text.count('[') < 64 &&
         text.count('{') < 64 && text.count('(') < 200 &&
         !text.contains("dialect_resources: { builtin: { w: \"0x00000000");
}

OwningOpRef<ModuleOp> parse(MLIRContext &context, llvm::StringRef text) {
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) {});
  return parseSourceString<ModuleOp>(
      text, ParserConfig(&context, /*verifyAfterParse=*/false));
}

void check(ModuleOp lhs, ModuleOp rhs, bool mustBeSame) {
  for (unsigned bits = 0; bits != 12; ++bits) {
    StructuralOptions options;
    options.includeLocations = bits & 1;
    options.includeDiscardableAttributes = !(bits & 2);
    options.symbols = static_cast<StructuralOptions::Symbols>(bits >> 2);
    absl::StatusOr<Fingerprint> left = fingerprint(lhs, options);
    absl::StatusOr<Fingerprint> right = fingerprint(rhs, options);
    absl::Status compared = checkEquivalence(lhs, rhs, options);
    require(compared.ok() == isEquivalent(lhs, rhs, options),
            "isEquivalent and checkEquivalence disagree");
    if (!left.ok() || !right.ok()) {
      require(!compared.ok(), "equivalent, and without a digest");
      continue;
    }
    require((*left == *right) == compared.ok(),
            "digest and comparison disagree");
    require(!mustBeSame || compared.ok(), "not the same as itself");
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  llvm::StringRef input(reinterpret_cast<const char *>(data), size);
  auto [first, second] = input.split("// ---\n");
  if (!isDigestible(first) || !isDigestible(second))
    return 0;
  std::unique_ptr<MLIRContext> context = makeContext(), other = makeContext();
  OwningOpRef<ModuleOp> lhs = parse(*context, first);
  if (!lhs)
    return 0;
  OwningOpRef<ModuleOp> lhsElsewhere = parse(*other, first);
  if (lhsElsewhere)
    check(*lhs, *lhsElsewhere, /*mustBeSame=*/true);
  if (second.empty())
    return 0;
  if (OwningOpRef<ModuleOp> rhs = parse(*context, second))
    check(*lhs, *rhs, /*mustBeSame=*/false);
  if (OwningOpRef<ModuleOp> rhs = parse(*other, second))
    check(*lhs, *rhs, /*mustBeSame=*/false);
  return 0;
}

/// Two inputs become a pair, or one the first half of the other's pair.
extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t *data1, size_t size1,
                                            const uint8_t *data2, size_t size2,
                                            uint8_t *out, size_t maxOutSize,
                                            unsigned int) {
  constexpr llvm::StringLiteral separator = "// ---\n";
  llvm::StringRef first(reinterpret_cast<const char *>(data1), size1);
  llvm::StringRef second(reinterpret_cast<const char *>(data2), size2);
  std::string joined = first.split(separator).first.str() + "\n" +
                       separator.str() + second.split(separator).first.str();
  size_t size = std::min(joined.size(), maxOutSize);
  std::memcpy(out, joined.data(), size);
  return size;
}

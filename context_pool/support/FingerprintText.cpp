//===- FingerprintText.cpp - Digests as text ------------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a `Fingerprint` can do as a value. Apart from how it is computed, which
// takes MLIR: the cache needs only the value.
//
//===----------------------------------------------------------------------===//

#include "context_pool/Fingerprint.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringExtras.h"

using namespace ctxpool;

std::string Fingerprint::toHex() const {
  return llvm::toHex(llvm::ArrayRef<uint8_t>(bytes), /*LowerCase=*/true);
}

std::optional<Fingerprint> Fingerprint::fromHex(llvm::StringRef hex) {
  Fingerprint result;
  if (hex.size() != 2 * result.bytes.size())
    return std::nullopt;
  for (size_t i = 0; i != result.bytes.size(); ++i) {
    unsigned high = llvm::hexDigitValue(hex[2 * i]);
    unsigned low = llvm::hexDigitValue(hex[2 * i + 1]);
    if (high > 15 || low > 15)
      return std::nullopt;
    result.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return result;
}

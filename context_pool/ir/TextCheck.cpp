//===- TextCheck.cpp - What MLIR's parser does not survive ----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ir/TextCheck.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <cstddef>

using namespace ctxpool;
using namespace ctxpool::detail;

/// Whether MLIR's text has a resource of a dialect whose first four bytes, which
/// are its alignment, are zero.
static bool hasResourceOfNoAlignment(llvm::StringRef text) {
  constexpr llvm::StringLiteral noAlignment("\"0x00000000");
  // Of nearly all text, this is all that is asked.
  if (!text.contains(noAlignment))
    return false;
  // `{-# dialect_resources: { dialect: { key: "0x..." } } #-}`: how deep the
  // braces nest within the marks, and whether the outermost key is that one.
  bool isMetadata = false, isResources = false, isValue = false;
  size_t depth = 0;
  while (!text.empty()) {
    size_t size = 1;
    if (text.starts_with("//")) {
      size = text.find('\n');
    } else if (text.front() == '"') {
      if (isResources && isValue && text.starts_with(noAlignment))
        return true;
      while (size < text.size() && text[size] != '"')
        size += text[size] == '\\' ? 2 : 1;
      ++size;
    } else if (!isMetadata) {
      isMetadata = text.starts_with("{-#");
      depth = 0;
      size = isMetadata ? 3 : text.find_first_of("\"/{", 1);
    } else if (text.starts_with("#-}")) {
      isMetadata = isResources = isValue = false;
      size = 3;
    } else if (text.front() == '{' || text.front() == '}') {
      depth += text.front() == '{' ? 1 : -1;
      isResources &= depth != 0;
      isValue = false;
    } else if (text.front() == ':' || text.front() == ',') {
      isValue = text.front() == ':';
    } else if (llvm::isAlpha(text.front())) {
      llvm::StringRef word = text.take_while(
          [](char c) { return llvm::isAlnum(c) || c == '_' || c == '.'; });
      if (depth == 0)
        isResources = word == "dialect_resources";
      size = word.size();
    }
    text = text.drop_front(std::min(size, text.size()));
  }
  return false;
}

absl::Status detail::checkText(llvm::StringRef text) {
  if (hasResourceOfNoAlignment(text))
    return absl::InvalidArgumentError("a resource in it has an alignment of "
                                      "zero");
  return absl::OkStatus();
}

//===- Pipeline.cpp - Pass pipelines from text ----------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/support/Pipeline.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

using namespace ctxpool;

absl::StatusOr<mlir::OpPassManager>
detail::parsePipeline(llvm::StringRef text) {
  std::string reason;
  llvm::raw_string_ostream stream(reason);
  // The overload that takes the anchor: the other one would nest a pipeline
  // with an anchor one level deeper and run nothing on the operation itself.
  mlir::FailureOr<mlir::OpPassManager> pipeline =
      mlir::parsePassPipeline(text, stream);
  if (failed(pipeline))
    return absl::InvalidArgumentError(
        absl::StrCat("pass pipeline '", text.str(),
                     "': ", llvm::StringRef(reason).trim().str()));
  return std::move(*pipeline);
}

std::vector<std::string>
detail::getAnchorDialects(const mlir::OpPassManager &pipeline) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  pipeline.printAsTextualPipeline(stream);
  // Anchors are what stands before a parenthesis, in options, too. Names of
  // passes have no dots.
  llvm::SmallVector<llvm::StringRef> pieces;
  llvm::StringRef(text).split(pieces, '(');
  pieces.pop_back();
  std::vector<std::string> dialects;
  for (llvm::StringRef piece : pieces) {
    llvm::StringRef anchor = piece.substr(piece.find_last_of(" ,(={") + 1);
    if (anchor.contains('.'))
      dialects.push_back(anchor.split('.').first.str());
  }
  return dialects;
}

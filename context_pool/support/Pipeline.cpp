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

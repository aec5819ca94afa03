//===- Pipeline.h - Pass pipelines from text --------------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_SUPPORT_PIPELINE_H
#define CONTEXT_POOL_SUPPORT_PIPELINE_H

#include "absl/status/statusor.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace ctxpool::detail {

/// The pipeline that `text`, with its anchor, stands for.
///
/// Errors: InvalidArgument - not a pipeline, or a pass that is not registered;
///                           the message has the text and MLIR's reason.
absl::StatusOr<mlir::OpPassManager> parsePipeline(llvm::StringRef text);

/// The dialects of the operations that `pipeline` nests on, some perhaps more
/// than once, and names in options that look like theirs. A context need not
/// know them.
std::vector<std::string> getAnchorDialects(const mlir::OpPassManager &pipeline);

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_SUPPORT_PIPELINE_H

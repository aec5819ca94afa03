//===- TextCheck.h - What MLIR's parser does not survive --------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A look at text before MLIR's parser sees it, as `BytecodeCheck.h` is one at
/// bytecode: what the parser ends the process on is refused here, and nothing
/// else.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_IR_TEXTCHECK_H
#define CONTEXT_POOL_IR_TEXTCHECK_H

#include "absl/status/status.h"
#include "llvm/ADT/StringRef.h"

namespace ctxpool::detail {

/// Checks the text of a module. That it passes says nothing of whether MLIR can
/// parse it.
///
/// Errors: InvalidArgument - a resource of a dialect has an alignment of zero.
absl::Status checkText(llvm::StringRef text);

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_IR_TEXTCHECK_H

//===- ServiceOptions.h - What a compile service can be told ----*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_COMPILE_SERVICEOPTIONS_H
#define CONTEXT_POOL_COMPILE_SERVICEOPTIONS_H

#include "context_pool/CompileService.h"

#include "absl/status/status.h"
#include "llvm/ADT/StringRef.h"

namespace ctxpool::detail {

/// Whether every field is in its range.
///
/// Errors: InvalidArgument - the message names the field.
absl::Status validate(const CompileServiceOptions &options);

/// Whether contexts of the pool can do what the options, which are valid, ask
/// for.
///
/// Errors: those of `CompileService::create` about the pool.
absl::Status checkTemplate(const ContextPool &pool,
                           const CompileServiceOptions &options);

/// Of the options of a recipe, what keeps the kinds of output apart.
llvm::StringLiteral nameOf(CompileServiceOptions::Output output);

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_COMPILE_SERVICEOPTIONS_H

//===- CrashGuard.h - Crashes of MLIR as a file's error ------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_CRASHGUARD_H
#define CONTEXT_POOL_BENCH_CRASHGUARD_H

#include "context_pool/compile/CrashRecovery.h"

#include "absl/status/status.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <optional>

namespace ctxpool::bench {

/// Has `runGuarded` recover from crashes as long as the result lives. Prints an
/// error and returns nothing where the system refuses that.
std::optional<detail::CrashHandlers> installCrashHandlers();

/// Runs `body`, in which MLIR may crash. What `body` owns where it does is
/// leaked; the contexts that it used from outside must be neither used nor
/// destroyed.
///
/// Errors: Internal - it crashed; the message is
///           `crashed: signal 11 (Segmentation fault)` or the like.
///         ResourceExhausted - as of `detail::runProtected`.
absl::Status runGuarded(llvm::function_ref<void()> body);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_CRASHGUARD_H

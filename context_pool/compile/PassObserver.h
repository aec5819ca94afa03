//===- PassObserver.h - Where a pipeline is, and its end -------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_COMPILE_PASSOBSERVER_H
#define CONTEXT_POOL_COMPILE_PASSOBSERVER_H

#include "context_pool/compile/Deadline.h"
#include "context_pool/support/Mutex.h"

#include "mlir/IR/Action.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

#include <atomic>
#include <string>

namespace mlir {
class MLIRContext;
} // namespace mlir

namespace ctxpool::detail {

/// Follows the passes that run in a context, to name the one at fault, and skips
/// those that would begin after a deadline: MLIR has no other way to end a
/// pipeline from outside. It is the action handler of the context while it lives.
///
/// Thread safety: passes may run on several threads.
class PassObserver {
public:
  PassObserver(mlir::MLIRContext &context, Deadline deadline);
  ~PassObserver();
  PassObserver(const PassObserver &) = delete;
  PassObserver &operator=(const PassObserver &) = delete;

  /// Whether a pass was skipped.
  bool hasStopped() const { return stopped; }

  /// `after pass 'cse'`, or `before the first pass`.
  std::string describeProgress() const;

  /// What is under way: `pass 'cse'`, or between passes, where the verifier
  /// runs, `verifier after pass 'cse'`. Of one thread.
  std::string describeCurrent() const;

  /// What failed, after the pipeline did: `pass 'cse'`, which for MLIR it is
  /// also where the verifier refuses what the pass made; or `before the first
  /// pass`. Where the context has threads, passes of other operations may have
  /// ended later: `pass 'cse' or an earlier one`.
  std::string describeFailure() const;

private:
  void observe(llvm::function_ref<void()> action,
               const mlir::tracing::Action &what);

  mlir::MLIRContext &context;
  const Deadline deadline;
  std::atomic<bool> stopped{false};
  mutable Mutex mutex;
  // Of passes, the names: they may be gone after a crash.
  std::string current ABSL_GUARDED_BY(mutex);
  std::string finished ABSL_GUARDED_BY(mutex);
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_COMPILE_PASSOBSERVER_H

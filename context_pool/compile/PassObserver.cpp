//===- PassObserver.cpp - Where a pipeline is, and its end ----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/compile/PassObserver.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/Pass.h"

#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;

PassObserver::PassObserver(mlir::MLIRContext &context, Deadline deadline)
    : context(context), deadline(deadline) {
  context.registerActionHandler(
      [this](llvm::function_ref<void()> action,
             const mlir::tracing::Action &what) { observe(action, what); });
}

PassObserver::~PassObserver() { context.registerActionHandler(nullptr); }

void PassObserver::observe(llvm::function_ref<void()> action,
                           const mlir::tracing::Action &what) {
  const auto *execution = llvm::dyn_cast<mlir::PassExecutionAction>(&what);
  if (!execution)
    return action();
  // The passes that run others have no argument.
  llvm::StringRef name = execution->getPass().getArgument();
  if (deadline.isOver()) {
    stopped = true;
    return;
  }
  if (name.empty())
    return action();

  std::string outer;
  {
    MutexLock lock(mutex);
    outer = std::exchange(current, name.str());
  }
  action();
  MutexLock lock(mutex);
  finished = std::exchange(current, std::move(outer));
}

std::string PassObserver::describeProgress() const {
  MutexLock lock(mutex);
  return finished.empty() ? std::string("before the first pass")
                          : absl::StrCat("after pass '", finished, "'");
}

std::string PassObserver::describeCurrent() const {
  {
    MutexLock lock(mutex);
    if (!current.empty())
      return absl::StrCat("pass '", current, "'");
  }
  return absl::StrCat("verifier ", describeProgress());
}

std::string PassObserver::describeFailure() const {
  MutexLock lock(mutex);
  if (finished.empty())
    return "before the first pass";
  return absl::StrCat("pass '", finished, "'",
                      context.isMultithreadingEnabled() ? " or an earlier one"
                                                        : "");
}

//===- CrashGuard.cpp - Crashes of MLIR as a file's error -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CrashGuard.h"

#include "bench/CommandLine.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include <string>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::bench;

std::optional<detail::CrashHandlers> bench::installCrashHandlers() {
  absl::StatusOr<detail::CrashHandlers> handlers =
      detail::CrashHandlers::install(/*fatalErrors=*/true);
  if (handlers.ok())
    return *std::move(handlers);
  printError(std::string(handlers.status().message()));
  return std::nullopt;
}

absl::Status bench::runGuarded(llvm::function_ref<void()> body) {
  absl::StatusOr<std::optional<std::string>> crash =
      detail::runProtected(detail::Recovery::Everything, body);
  if (!crash.ok())
    return crash.status();
  if (*crash)
    return absl::InternalError(absl::StrCat("crashed: ", **crash));
  return absl::OkStatus();
}

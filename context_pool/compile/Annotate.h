//===- Annotate.h - A status with what was being done ----------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_COMPILE_ANNOTATE_H
#define CONTEXT_POOL_COMPILE_ANNOTATE_H

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include <string>

namespace ctxpool::detail {

/// The status of a step, with `what` was being done before its message.
inline absl::Status annotate(const absl::Status &status,
                             const std::string &what) {
  return absl::Status(status.code(),
                      absl::StrCat(what, ": ", status.message()));
}

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_COMPILE_ANNOTATE_H

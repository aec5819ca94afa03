//===- RemoteTierAbsent.cpp - In place of Redis in a build without --------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/RemoteTier.h"

using namespace ctxpool;
using namespace ctxpool::detail;

absl::StatusOr<std::unique_ptr<RemoteTier>>
// NOLINTNEXTLINE(performance-unnecessary-value-param)
RemoteTier::create(RemoteTierOptions) {
  return absl::UnimplementedError(
      "remote: this library was built without Redis "
      "(CONTEXT_POOL_WITH_REDIS, which needs hiredis)");
}

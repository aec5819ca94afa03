//===- RemoteTierAbsentTest.cpp - A build without Redis -------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/RemoteTier.h"

#include "test/support/StatusMatchers.h"

using namespace ctxpool;
using namespace ctxpool::detail;
using namespace ctxpool::test;

TEST(RemoteTierAbsentTest, ARemoteCacheIsAnErrorThatSaysWhatIsMissing) {
  RemoteTierOptions options;
  options.url = "redis://host";

  EXPECT_THAT(RemoteTier::create(options),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "CONTEXT_POOL_WITH_REDIS, which needs hiredis"));
}

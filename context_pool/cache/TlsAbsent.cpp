//===- TlsAbsent.cpp - In place of TLS in a build without it --------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/Transport.h"

using namespace ctxpool;
using namespace ctxpool::detail;

absl::StatusOr<std::unique_ptr<TlsClient>>
TlsClient::create(const std::string &) {
  return absl::UnimplementedError(
      "remote: rediss needs TLS, and this library was built without it "
      "(CONTEXT_POOL_WITH_TLS, which needs OpenSSL)");
}

TlsClient::~TlsClient() = default;

absl::StatusOr<std::unique_ptr<Transport>>
TlsClient::start(std::unique_ptr<Transport>, const std::string &,
                 const TimeLimits &) const {
  return absl::InternalError("a client that cannot be created");
}

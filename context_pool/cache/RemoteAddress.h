//===- RemoteAddress.h - Where a remote cache is ----------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_REMOTEADDRESS_H
#define CONTEXT_POOL_CACHE_REMOTEADDRESS_H

#include "absl/status/statusor.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>

namespace ctxpool::detail {

/// A database of a Redis server, and what it takes to be let in.
struct RemoteAddress {
  bool tls = false;
  std::string host; ///< A name, or an address of IPv4 or IPv6, unbracketed.
  uint16_t port = 6379;
  std::string user; ///< Empty: the server's default user.
  std::string password;
  uint32_t database = 0;

  /// A file of certificates to trust in place of the system's. Empty: those.
  std::string certificates;

  /// `redis://[user:password@]host[:port][/database]`, or `rediss://` for TLS,
  /// which takes `?cacert=FILE`. User, password and file may have
  /// percent-encoded bytes, and must where a byte means something in a URL.
  ///
  /// Errors: InvalidArgument - says which part is wrong, and quotes nothing: any
  ///                           part may be a piece of a password that was not
  ///                           encoded.
  static absl::StatusOr<RemoteAddress> parse(llvm::StringRef url);

  /// `host:port/database`, with an IPv6 address in brackets: for messages.
  std::string toString() const;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_REMOTEADDRESS_H

//===- RemoteTier.h - Artifacts shared through a server ---------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_REMOTETIER_H
#define CONTEXT_POOL_CACHE_REMOTETIER_H

#include "context_pool/cache/Circuit.h"
#include "context_pool/cache/Tier.h"

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ctxpool::detail {

struct RemoteTierOptions {
  /// As `RemoteAddress::parse` takes it.
  std::string url;

  /// What those who may write to the cache share. With it every value is
  /// authenticated. Empty: who can write to the server can put anything into the
  /// programs of those who read.
  std::string secret;

  /// How long connecting may take, with the name's lookup and TLS.
  absl::Duration connectTimeout = absl::Milliseconds(50);
  /// How long the server may do nothing while it is waited for.
  absl::Duration callTimeout = absl::Milliseconds(25);
  /// How long a get or a put may take, all in all.
  absl::Duration totalTimeout = absl::Seconds(2);

  /// How long an artifact stays on the server after it was written. Infinite:
  /// until the server needs the room.
  absl::Duration expiry = absl::Hours(24 * 30);

  /// Larger artifacts are neither written nor read. At most 256 MiB, since Redis
  /// takes no value of more than twice that.
  uint64_t maxArtifactBytes = 64ull << 20;

  /// The most connections that are kept for the next call.
  size_t maxIdleConnections = 8;

  CircuitOptions circuit;
};

/// How a remote tier is, for people.
struct RemoteTierState {
  std::string server; ///< `host:port/database`
  Circuit::State circuit;
  std::string lastFailure;  ///< Of a call or a probe. Empty: none so far.
  uint64_t connections = 0; ///< Made so far.
  size_t idleConnections = 0;
  uint64_t rejected = 0; ///< Values that were damaged or not to be trusted.

  /// A line: the server, and whether it answers or rests, since when and why.
  std::string toString() const;
};

/// What a server has deleted since it started, of all its databases and whoever
/// wrote it.
struct RemoteServerCounts {
  uint64_t evicted = 0; ///< To make room.
  uint64_t expired = 0;
};

/// A database of a Redis server, shared by machines.
///
/// A server that fails is left alone for a while: get and put then fail at once,
/// without touching the network. Whether it is back is found out on a thread of
/// the tier's own, so that no caller waits for that.
///
/// What does not verify, is no string or is larger than what would have been
/// written, is a miss and counts in `rejected`; it stays where it is, and the
/// next put of its key by this tier replaces it.
///
/// Errors of all calls that give a status, whose messages name the server:
///   Unavailable        nobody listens, the connection broke, or the tier rests
///   DeadlineExceeded   a time limit has passed
///   Unauthenticated    the user, password or certificate was refused
///   NotFound           the server has no such database
///   FailedPrecondition the server refused the command, for the reason given;
///                      or this process is a forked child of the tier's
///   ResourceExhausted  the artifact is too large, or its kind too long
///   DataLoss           the other side does not speak as Redis does
///
/// A forked child must not use the parent's connections: for it, the tier fails
/// and has no statistics.
///
/// Destroying it waits for a probe that is under way, up to its time limits.
class RemoteTier : public Tier {
public:
  /// Does not connect yet.
  ///
  /// Errors: InvalidArgument - an option is out of its range; the message names
  ///                           the field, and no password or secret.
  ///         Unimplemented - this build has no Redis, or no TLS for `rediss`.
  static absl::StatusOr<std::unique_ptr<RemoteTier>>
  create(RemoteTierOptions options);

  virtual RemoteTierState getState() const = 0;

  //===--------------------------------------------------------------------===//
  // For people
  //===--------------------------------------------------------------------===//

  /// Asks the server, whose users need not be allowed to.
  virtual absl::StatusOr<RemoteServerCounts> countDeleted() = 0;

  // These go through all names of the server's database, and take at most an
  // hour. What comes or goes meanwhile may be missing.

  /// The values under this tier's names, by key, as they say that they are:
  /// `verify` finds out whether that is so. Reads the beginning of each.
  virtual absl::StatusOr<std::vector<TierEntry>> list() = 0;

  /// Reads every value and checks it as `get` does. What is damaged stays where
  /// it is, and counts nowhere.
  virtual absl::StatusOr<TierVerification> verify() = 0;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_REMOTETIER_H

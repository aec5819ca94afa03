//===- RedisConnection.h - Commands to Redis, replies of it -----*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_REDISCONNECTION_H
#define CONTEXT_POOL_CACHE_REDISCONNECTION_H

#include "context_pool/cache/RemoteAddress.h"
#include "context_pool/cache/Transport.h"

#include "absl/status/statusor.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// NOLINTBEGIN(readability-identifier-naming): hiredis's.
struct redisReader;
struct redisReply;
// NOLINTEND(readability-identifier-naming)

namespace ctxpool::detail {

struct RedisDeleter {
  void operator()(redisReader *reader) const;
  void operator()(redisReply *reply) const;
};
using RedisReply = std::unique_ptr<redisReply, RedisDeleter>;

/// The words of a command.
using RedisCommand = llvm::SmallVector<llvm::StringRef, 6>;

/// The most that a reply may consist of.
struct ReplyLimits {
  uint64_t stringBytes = 4096; ///< In one string.
  uint64_t elements = 0;       ///< In all arrays together.
};

/// A connection to a database of a Redis server.
///
/// hiredis writes the commands and takes the replies apart. By itself it would
/// allocate as many elements and wait for as many bytes as a reply announces, so
/// it gets a reply item by item, each after a look at what that announces.
///
/// Thread safety: one thread at a time.
class RedisConnection {
public:
  /// Connects. What opens the database is sent along with the first command, so
  /// that it costs no time, and is refused then. `tls` is null where the address
  /// wants none.
  ///
  /// Errors: those of `connectSocket` and of `TlsClient::start`.
  static absl::StatusOr<std::unique_ptr<RedisConnection>>
  open(const RemoteAddress &address, const TlsClient *tls,
       const TimeLimits &limits);

  /// Sends commands at once, and gives their replies in the same order, any of
  /// which may be an error of the server's. They take one journey to the server
  /// and back, whose replies have to fit what lies between. After an error of this
  /// call the connection is of no more use.
  ///
  /// Errors: those of a transport.
  ///         Unauthenticated - the server refused the user or password.
  ///         NotFound - the server refused the database.
  ///         OutOfRange - a reply announces more than `replyLimits`, and was not
  ///                      waited for.
  ///         DataLoss - the server does not speak as Redis does.
  absl::StatusOr<std::vector<RedisReply>>
  call(llvm::ArrayRef<RedisCommand> commands, const ReplyLimits &replyLimits,
       const TimeLimits &limits);

  /// What the server says in an error reply, without the password and without
  /// anything that does not print.
  std::string describeError(const redisReply &reply) const;

  /// Whether the connection is open and the next reply will be that to the next
  /// command. Does not wait.
  bool isQuiet();

private:
  RedisConnection(std::unique_ptr<Transport> transport,
                  const RemoteAddress &address);

  absl::Status checkGreeting(llvm::StringRef refused, absl::StatusCode code,
                             const TimeLimits &limits);
  absl::StatusOr<RedisReply> readReply(ReplyLimits replyLimits,
                                       const TimeLimits &limits);
  absl::StatusOr<size_t> measureItem(ReplyLimits &left);
  absl::Status receive(const TimeLimits &limits);

  std::unique_ptr<Transport> transport;
  std::unique_ptr<redisReader, RedisDeleter> reader;
  const std::string password;
  const uint32_t database;

  /// Commands that go out with the first ones. Empty once they have.
  std::string greeting;

  /// What has arrived and the reader was not given yet, in `buffer`.
  llvm::StringRef arrived;
  uint64_t stringLeft =
      0; ///< Bytes of a string whose beginning the reader has.
  std::array<char, 64 << 10> buffer;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_REDISCONNECTION_H

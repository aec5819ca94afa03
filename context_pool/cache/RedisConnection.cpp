//===- RedisConnection.cpp - Commands to Redis, replies of it -------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/RedisConnection.h"

#include "absl/strings/str_cat.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <hiredis/hiredis.h>

using namespace ctxpool;
using namespace ctxpool::detail;

void RedisDeleter::operator()(redisReader *reader) const {
  redisReaderFree(reader);
}
void RedisDeleter::operator()(redisReply *reply) const {
  freeReplyObject(reply);
}

namespace {
struct FreeCommand {
  void operator()(char *command) const { redisFreeCommand(command); }
};
} // namespace

static absl::Status notRedis(llvm::StringRef what) {
  return absl::DataLossError(
      absl::StrCat("the server does not speak as Redis does: ", what.str()));
}

/// Appends a command as it is sent.
static absl::Status appendCommand(llvm::ArrayRef<llvm::StringRef> command,
                                  std::string &text) {
  llvm::SmallVector<const char *, 8> words;
  llvm::SmallVector<size_t, 8> sizes;
  for (llvm::StringRef word : command) {
    words.push_back(word.begin());
    sizes.push_back(word.size());
  }
  char *formatted = nullptr;
  int size = redisFormatCommandArgv(&formatted, static_cast<int>(words.size()),
                                    words.data(), sizes.data());
  if (size < 0)
    return absl::ResourceExhaustedError("no memory for a command");
  std::unique_ptr<char, FreeCommand> owner(formatted);
  text.append(formatted, static_cast<size_t>(size));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RedisConnection>>
RedisConnection::open(const RemoteAddress &address, const TlsClient *tls,
                      const TimeLimits &limits) {
  absl::StatusOr<std::unique_ptr<Transport>> transport =
      connectSocket(address.host, address.port, limits.end);
  if (transport.ok() && tls)
    transport = tls->start(*std::move(transport), address.host, limits);
  if (!transport.ok())
    return transport.status();
  std::unique_ptr<RedisConnection> connection(
      new RedisConnection(*std::move(transport), address));
  if (!connection->reader)
    return absl::ResourceExhaustedError("no memory for a connection");

  std::string &greeting = connection->greeting;
  absl::Status status;
  if (!address.user.empty())
    status = appendCommand({"AUTH", address.user, address.password}, greeting);
  else if (!address.password.empty())
    status = appendCommand({"AUTH", address.password}, greeting);
  if (status.ok() && address.database)
    status =
        appendCommand({"SELECT", std::to_string(address.database)}, greeting);
  if (!status.ok())
    return status;
  return connection;
}

RedisConnection::RedisConnection(std::unique_ptr<Transport> transport,
                                 const RemoteAddress &address)
    : transport(std::move(transport)), reader(redisReaderCreate()),
      password(address.password), database(address.database) {}

absl::StatusOr<std::vector<RedisReply>>
RedisConnection::call(llvm::ArrayRef<RedisCommand> commands,
                      const ReplyLimits &replyLimits,
                      const TimeLimits &limits) {
  std::string text = std::move(greeting);
  greeting.clear();
  bool greets = !text.empty();
  for (const RedisCommand &command : commands)
    if (absl::Status status = appendCommand(command, text); !status.ok())
      return status;
  if (absl::Status status = transport->write(text, limits); !status.ok())
    return status;

  if (greets && !password.empty())
    if (absl::Status status = checkGreeting(
            "the user or password", absl::StatusCode::kUnauthenticated, limits);
        !status.ok())
      return status;
  if (greets && database)
    if (absl::Status status =
            checkGreeting(absl::StrCat("database ", database),
                          absl::StatusCode::kNotFound, limits);
        !status.ok())
      return status;

  std::vector<RedisReply> replies;
  replies.reserve(commands.size());
  while (replies.size() != commands.size()) {
    absl::StatusOr<RedisReply> reply = readReply(replyLimits, limits);
    if (!reply.ok())
      return reply.status();
    replies.push_back(*std::move(reply));
  }
  return replies;
}

absl::Status RedisConnection::checkGreeting(llvm::StringRef refused,
                                            absl::StatusCode code,
                                            const TimeLimits &limits) {
  absl::StatusOr<RedisReply> reply = readReply(ReplyLimits(), limits);
  if (!reply.ok())
    return reply.status();
  if ((*reply)->type == REDIS_REPLY_STATUS)
    return absl::OkStatus();
  if ((*reply)->type != REDIS_REPLY_ERROR)
    return notRedis("no answer to a greeting");
  // The rest may repeat what it was sent, in its own way of writing.
  std::string text = describeError(**reply);
  return absl::Status(
      code, absl::StrCat("the server refused ", refused.str(), " (",
                         llvm::StringRef(text).split(' ').first.str(), ")"));
}

absl::StatusOr<RedisReply>
RedisConnection::readReply(ReplyLimits replyLimits, const TimeLimits &limits) {
  for (;;) {
    absl::StatusOr<size_t> size = measureItem(replyLimits);
    if (!size.ok())
      return size.status();
    if (*size == 0) {
      if (absl::Status status = receive(limits); !status.ok())
        return status;
      continue;
    }
    redisReaderFeed(reader.get(), arrived.begin(), *size);
    arrived = arrived.drop_front(*size);
    void *reply = nullptr;
    if (redisReaderGetReply(reader.get(), &reply) != REDIS_OK)
      return notRedis(reader->errstr);
    if (reply)
      return RedisReply(static_cast<redisReply *>(reply));
  }
}

/// How many of the bytes that have arrived the reader may have next. 0: more
/// have to arrive.
absl::StatusOr<size_t> RedisConnection::measureItem(ReplyLimits &left) {
  constexpr size_t maxLine = 4096;
  if (stringLeft) {
    size_t size = std::min<uint64_t>(stringLeft, arrived.size());
    stringLeft -= size;
    return size;
  }
  llvm::StringRef line = arrived.take_front(maxLine);
  size_t lineEnd = line.find("\r\n");
  if (lineEnd == llvm::StringRef::npos) {
    if (line.size() == maxLine)
      return notRedis("a line without an end");
    return 0;
  }
  line = line.take_front(lineEnd);

  char type = line.empty() ? '\0' : line.front();
  if (type == '$' || type == '*') {
    int64_t announced;
    if (line.drop_front().getAsInteger(10, announced) || announced < -1)
      return notRedis("a size that is none");
    uint64_t &limit = type == '$' ? left.stringBytes : left.elements;
    if (announced > 0 && static_cast<uint64_t>(announced) > limit)
      return absl::OutOfRangeError(
          absl::StrCat("the server announces ", announced,
                       type == '$' ? " bytes" : " elements", ", where at most ",
                       limit, " are taken"));
    if (type == '*' && announced > 0)
      left.elements -= announced;
    if (type == '$' && announced >= 0)
      stringLeft = announced + 2;
  } else if (type != '+' && type != '-' && type != ':') {
    return notRedis("a reply of an unknown type");
  }
  return lineEnd + 2;
}

absl::Status RedisConnection::receive(const TimeLimits &limits) {
  // The beginning of a line waits for its end at the beginning of the buffer.
  std::copy(arrived.begin(), arrived.end(), buffer.begin());
  absl::StatusOr<size_t> size = transport->read(
      llvm::MutableArrayRef<char>(buffer).drop_front(arrived.size()), limits);
  if (!size.ok())
    return size.status();
  if (*size == 0)
    return absl::UnavailableError("the server closed the connection");
  arrived = llvm::StringRef(buffer.data(), arrived.size() + *size);
  return absl::OkStatus();
}

std::string RedisConnection::describeError(const redisReply &reply) const {
  // Servers cut what they repeat, so the beginning of a password counts as well.
  const size_t telling = std::min<size_t>(password.size(), 4);
  constexpr size_t maxDescription = 200;
  llvm::StringRef text(reply.str, reply.len);
  std::string description;
  while (!text.empty() && description.size() < maxDescription) {
    size_t common = std::mismatch(text.begin(), text.end(), password.begin(),
                                  password.end())
                        .first -
                    text.begin();
    if (telling && common >= telling) {
      description += "***";
      text = text.drop_front(common);
      continue;
    }
    description += llvm::isPrint(text.front()) ? text.front() : '?';
    text = text.drop_front();
  }
  return description;
}

bool RedisConnection::isQuiet() {
  return arrived.empty() && transport->isQuiet();
}

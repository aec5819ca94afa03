//===- RemoteTier.cpp - Artifacts shared through a server -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/RemoteTier.h"

#include "context_pool/cache/RedisConnection.h"
#include "context_pool/cache/RemoteAddress.h"
#include "context_pool/cache/RemoteValue.h"
#include "context_pool/cache/Transport.h"
#include "context_pool/support/Fork.h"
#include "context_pool/support/Mutex.h"
#include "context_pool/support/Thread.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <hiredis/hiredis.h>
#include <set>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::detail;
using Clock = TimeLimits::Clock;

namespace {

/// Servers and what is between may drop a connection that is silent for long,
/// and not say so.
constexpr std::chrono::seconds longestIdle(60);

/// Keys whose values were rejected; more are forgotten, and stay misses until
/// they expire.
constexpr size_t maxRejectedKeys = 4096;

/// What goes through all names goes on for as long as it gets on, within reason.
constexpr std::chrono::minutes longestClear(5);
constexpr std::chrono::hours longestReading(1);

/// To each command; FailedPrecondition where the server refused it.
using Replies = std::vector<absl::StatusOr<RedisReply>>;

class RedisTier final : public RemoteTier {
public:
  RedisTier(RemoteTierOptions theOptions, RemoteAddress theAddress,
            std::unique_ptr<TlsClient> theTls)
      : options(std::move(theOptions)), address(std::move(theAddress)),
        tls(std::move(theTls)),
        format(options.secret, options.maxArtifactBytes),
        circuit(options.circuit) {}

  absl::StatusOr<TierFound> find(const CacheKey &key) override;
  absl::Status put(const CacheKey &key, const Artifact &artifact,
                   bool replace) override {
    return putAll(TierWrite{key, artifact, replace}).front();
  }
  std::vector<absl::Status> putAll(llvm::ArrayRef<TierWrite> writes) override;
  uint64_t getMaxArtifactBytes() const override {
    return options.maxArtifactBytes;
  }
  size_t getMaxWrites() const override { return 64; }
  absl::Status clear() override;
  absl::Status checkReady() const override;
  CacheTierStats getStats() const override;
  RemoteTierState getState() const override;
  absl::StatusOr<RemoteServerCounts> countDeleted() override;
  absl::StatusOr<std::vector<TierEntry>> list() override;
  absl::StatusOr<TierVerification> verify() override;

private:
  struct IdleConnection {
    std::unique_ptr<RedisConnection> connection;
    Clock::time_point since;
  };

  TimeLimits startCall(Clock::duration total) const {
    return {absl::ToChronoNanoseconds(options.callTimeout),
            Clock::now() + total};
  }
  TimeLimits startCall() const {
    return startCall(absl::ToChronoNanoseconds(options.totalTimeout));
  }

  absl::Status admit();
  absl::StatusOr<Replies> exchangeAll(llvm::ArrayRef<RedisCommand> commands,
                                      const ReplyLimits &replyLimits,
                                      const TimeLimits &limits);
  absl::StatusOr<RedisReply> exchange(const RedisCommand &command,
                                      const ReplyLimits &replyLimits,
                                      const TimeLimits &limits);
  using VisitNames =
      llvm::function_ref<absl::Status(llvm::ArrayRef<llvm::StringRef> names)>;
  absl::Status forEachPage(const TimeLimits &limits, VisitNames visit);
  using VisitNew = llvm::function_ref<absl::Status(
      llvm::ArrayRef<llvm::StringRef> names, const TimeLimits &limits)>;
  absl::Status forEachNew(VisitNew visit);
  absl::StatusOr<std::vector<TierEntry>>
  describe(llvm::ArrayRef<llvm::StringRef> names, const TimeLimits &limits);
  std::unique_ptr<RedisConnection> takeIdle();
  absl::StatusOr<std::unique_ptr<RedisConnection>>
  connect(const TimeLimits &limits);
  void giveBack(std::unique_ptr<RedisConnection> connection);
  void startProbe();
  void probe();
  void reject(const CacheKey &key);

  absl::Status named(const absl::Status &status) const {
    return absl::Status(
        status.code(),
        absl::StrCat("redis at ", address.toString(), ": ", status.message()));
  }
  absl::Status leftAlone() const {
    MutexLock lock(mutex);
    return named(absl::UnavailableError(absl::StrCat(
        "left alone for a while, since it failed: ", lastFailure)));
  }
  absl::Status fail(const absl::Status &status, Clock::time_point start);
  absl::Status settle(const absl::Status &status, Clock::time_point start);
  void noteFailure(const absl::Status &status);

  const RemoteTierOptions options;
  const RemoteAddress address;
  const std::unique_ptr<const TlsClient> tls;
  const RemoteValueFormat format;
  const ForkMark mark;
  Circuit circuit;

  /// Never held while the network is touched.
  mutable Mutex mutex;
  /// The last is the one that was used last.
  std::vector<IdleConnection> idle ABSL_GUARDED_BY(mutex);
  std::set<Fingerprint> rejectedKeys ABSL_GUARDED_BY(mutex);
  std::string lastFailure ABSL_GUARDED_BY(mutex);
  uint64_t connections ABSL_GUARDED_BY(mutex) = 0;
  uint64_t rejected ABSL_GUARDED_BY(mutex) = 0;

  /// Held while a probe is started, which waits for nothing.
  Mutex probeMutex;
  /// The last member, so that it ends before anything that it uses.
  std::optional<Thread> probeThread ABSL_GUARDED_BY(probeMutex);
};

} // namespace

//===----------------------------------------------------------------------===//
// Connections
//===----------------------------------------------------------------------===//

std::unique_ptr<RedisConnection> RedisTier::takeIdle() {
  for (;;) {
    IdleConnection candidate;
    {
      MutexLock lock(mutex);
      if (idle.empty())
        return nullptr;
      candidate = std::move(idle.back());
      idle.pop_back();
    }
    // One that the server has closed, or that something came in on unasked, is
    // not for use.
    if (Clock::now() - candidate.since < longestIdle &&
        candidate.connection->isQuiet())
      return std::move(candidate.connection);
  }
}

absl::StatusOr<std::unique_ptr<RedisConnection>>
RedisTier::connect(const TimeLimits &limits) {
  TimeLimits connecting = limits;
  connecting.end = std::min(
      limits.end,
      Clock::now() + absl::ToChronoNanoseconds(options.connectTimeout));
  absl::StatusOr<std::unique_ptr<RedisConnection>> connection =
      RedisConnection::open(address, tls.get(), connecting);
  if (connection.ok()) {
    MutexLock lock(mutex);
    ++connections;
  }
  return connection;
}

void RedisTier::giveBack(std::unique_ptr<RedisConnection> connection) {
  MutexLock lock(mutex);
  if (idle.size() < options.maxIdleConnections)
    idle.push_back({std::move(connection), Clock::now()});
}

static absl::StatusOr<Replies> ask(RedisConnection &connection,
                                   llvm::ArrayRef<RedisCommand> commands,
                                   const ReplyLimits &replyLimits,
                                   const TimeLimits &limits) {
  absl::StatusOr<std::vector<RedisReply>> replies =
      connection.call(commands, replyLimits, limits);
  if (!replies.ok())
    return replies.status();
  Replies results;
  for (auto [command, reply] : llvm::zip_equal(commands, *replies)) {
    if (reply->type == REDIS_REPLY_ERROR)
      results.emplace_back(absl::FailedPreconditionError(
          absl::StrCat("the server refused ", command.front().str(), ": ",
                       connection.describeError(*reply))));
    else
      results.emplace_back(std::move(reply));
  }
  return results;
}

/// Commands and their replies, on any connection.
absl::StatusOr<Replies>
RedisTier::exchangeAll(llvm::ArrayRef<RedisCommand> commands,
                       const ReplyLimits &replyLimits,
                       const TimeLimits &limits) {
  std::unique_ptr<RedisConnection> connection = takeIdle();
  bool wasIdle = connection != nullptr;
  for (;;) {
    if (!connection) {
      absl::StatusOr<std::unique_ptr<RedisConnection>> fresh = connect(limits);
      if (!fresh.ok())
        return fresh.status();
      connection = *std::move(fresh);
    }
    absl::StatusOr<Replies> replies =
        ask(*connection, commands, replyLimits, limits);
    if (replies.ok()) {
      giveBack(std::move(connection));
      return replies;
    }
    connection.reset();
    if (!wasIdle || !absl::IsUnavailable(replies.status()))
      return replies;
    // The server has been restarted since. The other idle connections are of as
    // little use, so this is tried again on a fresh one, from the beginning.
    std::vector<IdleConnection> stale;
    MutexLock lock(mutex);
    stale.swap(idle);
    lock.unlock();
    wasIdle = false;
  }
}

absl::StatusOr<RedisReply> RedisTier::exchange(const RedisCommand &command,
                                               const ReplyLimits &replyLimits,
                                               const TimeLimits &limits) {
  absl::StatusOr<Replies> replies = exchangeAll(command, replyLimits, limits);
  if (!replies.ok())
    return replies.status();
  return std::move(replies->front());
}

//===----------------------------------------------------------------------===//
// Failures
//===----------------------------------------------------------------------===//

void RedisTier::noteFailure(const absl::Status &status) {
  MutexLock lock(mutex);
  lastFailure = std::string(status.message());
}

absl::Status RedisTier::fail(const absl::Status &status,
                             Clock::time_point start) {
  // In this order: who finds it resting is told why.
  noteFailure(status);
  circuit.failed(Clock::now() - start);
  return named(status);
}

/// Ends a call that only looks after the server, or is only for people: who may
/// not make it may still use the tier.
absl::Status RedisTier::settle(const absl::Status &status,
                               Clock::time_point start) {
  if (absl::IsFailedPrecondition(status))
    return named(status);
  if (!status.ok())
    return fail(status, start);
  circuit.succeeded();
  return absl::OkStatus();
}

/// Whether the server is to be asked.
absl::Status RedisTier::admit() {
  if (mark.isInherited())
    return named(absl::FailedPreconditionError(
        "connected by the process that this one was forked from"));
  switch (circuit.ask()) {
  case Circuit::Answer::Go:
    return absl::OkStatus();
  case Circuit::Answer::Probe:
    startProbe();
    break;
  case Circuit::Answer::Rest:
    break;
  }
  return leftAlone();
}

absl::Status RedisTier::checkReady() const {
  // A rest that is over is for `put` to notice.
  return circuit.getState().restLeft > Clock::duration::zero()
             ? leftAlone()
             : absl::OkStatus();
}

void RedisTier::startProbe() {
  MutexLock lock(probeMutex);
  // The one before has called `probed`, and does nothing after that.
  probeThread.reset();
  absl::StatusOr<Thread> thread =
      Thread::start(Thread::compilerStackBytes, [this] { probe(); });
  if (!thread.ok()) {
    noteFailure(thread.status());
    circuit.probed(false);
    return;
  }
  probeThread = *std::move(thread);
}

void RedisTier::probe() {
  TimeLimits limits = startCall();
  absl::StatusOr<std::unique_ptr<RedisConnection>> connection = connect(limits);
  absl::Status status = connection.status();
  if (status.ok()) {
    absl::StatusOr<Replies> replies =
        ask(**connection, RedisCommand{"PING"}, ReplyLimits(), limits);
    status = replies.ok() ? replies->front().status() : replies.status();
  }
  if (status.ok())
    giveBack(*std::move(connection));
  else
    noteFailure(status);
  circuit.probed(status.ok());
}

void RedisTier::reject(const CacheKey &key) {
  MutexLock lock(mutex);
  ++rejected;
  if (rejectedKeys.size() < maxRejectedKeys)
    rejectedKeys.insert(key.digest);
}

//===----------------------------------------------------------------------===//
// The tier
//===----------------------------------------------------------------------===//

/// Whether the server says that a name holds something else than a string.
static bool isWrongType(const absl::Status &status) {
  return absl::IsFailedPrecondition(status) &&
         absl::StrContains(status.message(), ": WRONGTYPE ");
}

absl::StatusOr<TierFound> RedisTier::find(const CacheKey &key) {
  if (absl::Status status = admit(); !status.ok())
    return status;
  std::string name = format.makeName(key);
  ReplyLimits replyLimits;
  replyLimits.stringBytes = format.getMaxValueBytes();
  Clock::time_point start = Clock::now();
  absl::StatusOr<RedisReply> reply =
      exchange({"GET", name}, replyLimits, startCall());
  // One that is too large, or no string, says nothing about how the server is.
  if (absl::IsOutOfRange(reply.status()) || isWrongType(reply.status())) {
    reject(key);
    return TierFound();
  }
  if (reply.ok() && (*reply)->type != REDIS_REPLY_STRING &&
      (*reply)->type != REDIS_REPLY_NIL)
    reply = absl::DataLossError("the reply to GET is not a value");
  if (!reply.ok())
    return fail(reply.status(), start);
  circuit.succeeded();
  if ((*reply)->type == REDIS_REPLY_NIL)
    return TierFound();

  absl::StatusOr<Artifact> artifact =
      format.decode(name, llvm::StringRef((*reply)->str, (*reply)->len));
  if (!artifact.ok()) {
    reject(key);
    return TierFound();
  }
  return TierFound{*std::move(artifact)};
}

std::vector<absl::Status> RedisTier::putAll(llvm::ArrayRef<TierWrite> writes) {
  if (absl::Status status = admit(); !status.ok())
    return std::vector<absl::Status>(writes.size(), status);
  std::vector<absl::Status> results(writes.size());

  /// One that is not too large.
  struct Set {
    size_t index;
    std::string name;
    std::string value;
  };
  std::vector<Set> sets;
  for (auto [index, write] : llvm::enumerate(writes)) {
    std::string name = format.makeName(write.key);
    absl::StatusOr<std::string> value = format.encode(name, write.artifact);
    if (value.ok()) {
      sets.push_back({index, std::move(name), *std::move(value)});
      continue;
    }
    results[index] = named(absl::ResourceExhaustedError(absl::StrCat(
        "key ", write.key.digest.toHex(), ": ", value.status().message())));
  }
  if (sets.empty())
    return results;

  std::string seconds = std::to_string(absl::ToInt64Seconds(options.expiry));
  std::vector<RedisCommand> commands;
  for (const Set &set : sets) {
    const TierWrite &write = writes[set.index];
    commands.push_back({"SET", set.name, set.value});
    MutexLock lock(mutex);
    if (!write.replace && rejectedKeys.count(write.key.digest) == 0)
      commands.back().push_back("NX");
    if (options.expiry != absl::InfiniteDuration())
      commands.back().append({"EX", seconds});
  }

  Clock::time_point start = Clock::now();
  absl::StatusOr<Replies> replies =
      exchangeAll(commands, ReplyLimits(), startCall());
  if (!replies.ok()) {
    absl::Status failure = fail(replies.status(), start);
    for (const Set &set : sets)
      results[set.index] = failure;
    return results;
  }
  bool answers = false, answersOdd = false;
  for (auto [set, reply] : llvm::zip_equal(sets, *replies)) {
    absl::Status &result = results[set.index];
    // A server that is full, or read only, can still be read from.
    if (!reply.ok()) {
      noteFailure(reply.status());
      result = named(reply.status());
      continue;
    }
    // Nil: something is there already.
    if ((*reply)->type != REDIS_REPLY_STATUS &&
        (*reply)->type != REDIS_REPLY_NIL) {
      answersOdd = true;
      result = fail(
          absl::DataLossError("the reply to SET is neither yes nor no"), start);
      continue;
    }
    answers = true;
    MutexLock lock(mutex);
    rejectedKeys.erase(writes[set.index].key.digest);
  }
  if (answers && !answersOdd)
    circuit.succeeded();
  return results;
}

/// Calls `visit` with names of exactly our form, some at a time and perhaps more
/// than once.
absl::Status RedisTier::forEachPage(const TimeLimits &limits,
                                    VisitNames visit) {
  // They are of a known length.
  std::string pattern =
      format.getPrefix() + std::string(2 * sizeof(Fingerprint::bytes), '?');
  ReplyLimits replyLimits;
  replyLimits.elements = 1 << 16;
  std::string cursor = "0";
  do {
    absl::StatusOr<RedisReply> scanned =
        exchange({"SCAN", cursor, "MATCH", pattern, "COUNT", "1000"},
                 replyLimits, limits);
    if (!scanned.ok())
      return scanned.status();
    const redisReply &page = **scanned;
    if (page.type != REDIS_REPLY_ARRAY || page.elements != 2 ||
        page.element[0]->type != REDIS_REPLY_STRING ||
        page.element[1]->type != REDIS_REPLY_ARRAY)
      return absl::DataLossError("the reply to SCAN is not a page");
    cursor.assign(page.element[0]->str, page.element[0]->len);

    llvm::SmallVector<llvm::StringRef, 0> names;
    for (const redisReply *name : llvm::ArrayRef<redisReply *>(
             page.element[1]->element, page.element[1]->elements)) {
      if (name->type != REDIS_REPLY_STRING)
        continue;
      // A server that lies must not make anybody touch other names.
      llvm::StringRef text(name->str, name->len);
      if (format.parseName(text))
        names.push_back(text);
    }
    if (names.empty())
      continue;
    if (absl::Status status = visit(names); !status.ok())
      return status;
  } while (cursor != "0");
  return absl::OkStatus();
}

absl::Status RedisTier::clear() {
  if (absl::Status status = admit(); !status.ok())
    return status;
  Clock::time_point start = Clock::now();
  TimeLimits limits = startCall(longestClear);
  absl::Status status =
      forEachPage(limits, [&](llvm::ArrayRef<llvm::StringRef> names) {
        RedisCommand command = {"UNLINK"};
        command.append(names.begin(), names.end());
        return exchange(command, ReplyLimits(), limits).status();
      });
  return settle(status, start);
}

//===----------------------------------------------------------------------===//
// For people
//===----------------------------------------------------------------------===//

absl::StatusOr<RemoteServerCounts> RedisTier::countDeleted() {
  if (absl::Status status = admit(); !status.ok())
    return status;
  ReplyLimits replyLimits;
  replyLimits.stringBytes = 1 << 20;
  Clock::time_point start = Clock::now();
  absl::StatusOr<RedisReply> reply =
      exchange({"INFO", "stats"}, replyLimits, startCall());
  if (absl::Status status = settle(reply.status(), start); !status.ok())
    return status;
  RemoteServerCounts counts;
  bool isKnown = (*reply)->type == REDIS_REPLY_STRING;
  for (auto [field, count] : {std::pair("\nevicted_keys:", &counts.evicted),
                              {"\nexpired_keys:", &counts.expired}}) {
    if (!isKnown)
      break;
    llvm::StringRef text = llvm::StringRef((*reply)->str, (*reply)->len);
    text = text.split(field).second;
    isKnown = !text.consumeInteger(10, *count);
  }
  if (!isKnown)
    return named(absl::DataLossError("the reply to INFO lacks the counts"));
  return counts;
}

/// Calls `visit` with all of our names, each once, some at a time.
absl::Status RedisTier::forEachNew(VisitNew visit) {
  if (absl::Status status = admit(); !status.ok())
    return status;
  Clock::time_point start = Clock::now();
  TimeLimits limits = startCall(longestReading);
  std::set<Fingerprint> visited;
  absl::Status status =
      forEachPage(limits, [&](llvm::ArrayRef<llvm::StringRef> names) {
        llvm::SmallVector<llvm::StringRef, 0> fresh;
        for (llvm::StringRef name : names)
          if (visited.insert(format.parseName(name)->digest).second)
            fresh.push_back(name);
        return visit(fresh, limits);
      });
  return settle(status, start);
}

/// What names hold, but for those that have gone.
absl::StatusOr<std::vector<TierEntry>>
RedisTier::describe(llvm::ArrayRef<llvm::StringRef> names,
                    const TimeLimits &limits) {
  std::string last = std::to_string(RemoteValueFormat::peekedBytes - 1);
  std::vector<TierEntry> entries;
  while (!names.empty()) {
    llvm::ArrayRef<llvm::StringRef> some =
        names.take_front(std::min(names.size(), getMaxWrites()));
    names = names.drop_front(some.size());
    std::vector<RedisCommand> commands;
    for (llvm::StringRef name : some) {
      commands.push_back({"PTTL", name});
      commands.push_back({"GETRANGE", name, "0", last});
    }
    absl::StatusOr<Replies> replies =
        exchangeAll(commands, ReplyLimits(), limits);
    if (!replies.ok())
      return replies.status();
    for (auto [index, name] : llvm::enumerate(some)) {
      const absl::StatusOr<RedisReply> &left = (*replies)[2 * index];
      const absl::StatusOr<RedisReply> &value = (*replies)[2 * index + 1];
      if (!left.ok())
        return left.status();
      // -1: it does not expire; -2: it is not there.
      if ((*left)->type != REDIS_REPLY_INTEGER || (*left)->integer < -2)
        return absl::DataLossError("the reply to PTTL is not a time");
      if ((*left)->integer == -2)
        continue;
      TierEntry &entry = entries.emplace_back();
      entry.key = format.parseName(name);
      if ((*left)->integer >= 0)
        entry.expiresIn = absl::Milliseconds((*left)->integer);
      if (isWrongType(value.status()))
        continue;
      if (!value.ok())
        return value.status();
      if ((*value)->type != REDIS_REPLY_STRING)
        return absl::DataLossError("the reply to GETRANGE is not a string");
      if (std::optional<RemoteValueSummary> summary =
              format.peek(llvm::StringRef((*value)->str, (*value)->len))) {
        entry.kind = std::move(summary->kind);
        entry.bytes = summary->bytes;
        entry.compileCost = summary->compileCost;
      }
    }
  }
  return entries;
}

static void sortByKey(std::vector<TierEntry> &entries) {
  llvm::sort(entries, [](const TierEntry &lhs, const TierEntry &rhs) {
    return lhs.key->digest < rhs.key->digest;
  });
}

absl::StatusOr<std::vector<TierEntry>> RedisTier::list() {
  std::vector<TierEntry> entries;
  absl::Status status =
      forEachNew([&](llvm::ArrayRef<llvm::StringRef> names,
                     const TimeLimits &limits) -> absl::Status {
        absl::StatusOr<std::vector<TierEntry>> some = describe(names, limits);
        if (!some.ok())
          return some.status();
        llvm::append_range(entries, *std::move(some));
        return absl::OkStatus();
      });
  if (!status.ok())
    return status;
  sortByKey(entries);
  return entries;
}

absl::StatusOr<TierVerification> RedisTier::verify() {
  TierVerification verification;
  ReplyLimits replyLimits;
  replyLimits.stringBytes = format.getMaxValueBytes();
  absl::Status status =
      forEachNew([&](llvm::ArrayRef<llvm::StringRef> names,
                     const TimeLimits &limits) -> absl::Status {
        llvm::SmallVector<llvm::StringRef, 0> damaged;
        for (llvm::StringRef name : names) {
          // One at a time: a value may be large.
          absl::StatusOr<RedisReply> reply =
              exchange({"GET", name}, replyLimits, limits);
          bool isDamaged =
              absl::IsOutOfRange(reply.status()) || isWrongType(reply.status());
          if (!reply.ok() && !isDamaged)
            return reply.status();
          if (reply.ok() && (*reply)->type == REDIS_REPLY_NIL)
            continue;
          ++verification.entries;
          if (isDamaged || (*reply)->type != REDIS_REPLY_STRING ||
              !format
                   .decode(name, llvm::StringRef((*reply)->str, (*reply)->len))
                   .ok())
            damaged.push_back(name);
        }
        absl::StatusOr<std::vector<TierEntry>> entries =
            describe(damaged, limits);
        if (!entries.ok())
          return entries.status();
        llvm::append_range(verification.damaged, *std::move(entries));
        return absl::OkStatus();
      });
  if (!status.ok())
    return status;
  sortByKey(verification.damaged);
  return verification;
}

//===----------------------------------------------------------------------===//
// Statistics
//===----------------------------------------------------------------------===//

CacheTierStats RedisTier::getStats() const {
  CacheTierStats stats;
  if (mark.isInherited())
    return stats;
  MutexLock lock(mutex);
  stats.rejected = rejected;
  return stats;
}

RemoteTierState RedisTier::getState() const {
  RemoteTierState state;
  state.server = address.toString();
  if (mark.isInherited())
    return state;
  state.circuit = circuit.getState();
  MutexLock lock(mutex);
  state.lastFailure = lastFailure;
  state.connections = connections;
  state.idleConnections = idle.size();
  state.rejected = rejected;
  return state;
}

std::string RemoteTierState::toString() const {
  std::string text = absl::StrCat("redis at ", server, ": ");
  if (circuit.resting)
    absl::StrAppend(
        &text, "left alone for ",
        absl::FormatDuration(absl::FromChrono(
            std::chrono::ceil<std::chrono::milliseconds>(circuit.restLeft))),
        " more, after ", circuit.failures, " failures");
  else if (circuit.failures)
    absl::StrAppend(&text, circuit.failures, " failures in a row");
  else
    absl::StrAppend(&text, "no failure since the last success");
  absl::StrAppend(&text, "; ", circuit.rests, " rests, ", connections,
                  " connections made, ", rejected, " values rejected");
  if (!lastFailure.empty())
    absl::StrAppend(&text, "; last failure: ", lastFailure);
  return text;
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

static absl::Status checkTimeout(llvm::StringRef field,
                                 absl::Duration timeout) {
  if (timeout >= absl::Milliseconds(1) && timeout <= absl::Hours(1))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field.str(), ": ",
                                                 absl::FormatDuration(timeout),
                                                 ", expected 1ms to 1h"));
}

absl::StatusOr<std::unique_ptr<RemoteTier>>
RemoteTier::create(RemoteTierOptions options) {
  constexpr uint64_t mostArtifactBytes = 256ull << 20;
  absl::StatusOr<RemoteAddress> address = RemoteAddress::parse(options.url);
  if (!address.ok())
    return address.status();
  // Kept in the address alone.
  options.url.clear();
  for (auto [field, timeout] :
       {std::pair("remoteConnectTimeout", options.connectTimeout),
        std::pair("remoteCallTimeout", options.callTimeout),
        std::pair("remoteTotalTimeout", options.totalTimeout)})
    if (absl::Status status = checkTimeout(field, timeout); !status.ok())
      return status;
  // Redis refuses times that end later than it can count.
  if (options.expiry < absl::Seconds(1) ||
      (options.expiry > absl::Hours(24 * 36500) &&
       options.expiry != absl::InfiniteDuration()))
    return absl::InvalidArgumentError(
        absl::StrCat("remoteExpiry: ", absl::FormatDuration(options.expiry),
                     ", expected 1s to 100 years, or infinite"));
  if (options.maxArtifactBytes == 0 ||
      options.maxArtifactBytes > mostArtifactBytes)
    return absl::InvalidArgumentError(
        absl::StrCat("remoteMaxArtifactBytes: ", options.maxArtifactBytes,
                     ", expected 1 to ", mostArtifactBytes));
  std::unique_ptr<TlsClient> tls;
  if (address->tls) {
    absl::StatusOr<std::unique_ptr<TlsClient>> client =
        TlsClient::create(address->certificates);
    if (!client.ok())
      return client.status();
    tls = *std::move(client);
  }
  return std::make_unique<RedisTier>(std::move(options), *std::move(address),
                                     std::move(tls));
}

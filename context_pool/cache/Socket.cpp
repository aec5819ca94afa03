//===- Socket.cpp - TCP with time limits ----------------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/Transport.h"

#include "context_pool/support/Mutex.h"
#include "context_pool/support/Thread.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include <cerrno>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

using namespace ctxpool;
using namespace ctxpool::detail;
using Clock = TimeLimits::Clock;

static absl::Status brokenConnection(llvm::StringRef doing, int error) {
  return absl::UnavailableError(
      absl::StrCat(doing.str(), ": ", std::generic_category().message(error)));
}

/// Whether one of `events`, or an error, came before `end`.
static bool waitForEvents(int descriptor, short events, Clock::time_point end) {
  for (;;) {
    auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    pollfd entry = {descriptor, events, 0};
    // An overdue wait still looks: what has come in time counts.
    int count =
        poll(&entry, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (count > 0)
      return true;
    bool interrupted = count < 0 && errno == EINTR;
    if (left.count() <= 0 && !interrupted)
      return false;
  }
}

namespace {

class Socket final : public Transport {
public:
  explicit Socket(int descriptor) : descriptor(descriptor) {}
  ~Socket() override { close(descriptor); }
  Socket(const Socket &) = delete;
  Socket &operator=(const Socket &) = delete;

  absl::StatusOr<size_t> read(llvm::MutableArrayRef<char> into,
                              const TimeLimits &limits) override {
    for (;;) {
      if (absl::Status status = checkTime("reading", limits); !status.ok())
        return status;
      ssize_t count = recv(descriptor, into.data(), into.size(), 0);
      if (count >= 0)
        return static_cast<size_t>(count);
      if (absl::Status status = afterFailure("reading", POLLIN, limits);
          !status.ok())
        return status;
    }
  }

  absl::Status write(llvm::StringRef bytes, const TimeLimits &limits) override {
    while (!bytes.empty()) {
      if (absl::Status status = checkTime("writing", limits); !status.ok())
        return status;
      ssize_t count =
          send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count >= 0)
        bytes = bytes.drop_front(count);
      else if (absl::Status status = afterFailure("writing", POLLOUT, limits);
               !status.ok())
        return status;
    }
    return absl::OkStatus();
  }

  bool isQuiet() override {
    char byte;
    return recv(descriptor, &byte, 1, MSG_PEEK) < 0 &&
           (errno == EAGAIN || errno == EWOULDBLOCK);
  }

private:
  /// Also where the other side always has a byte more, or takes one.
  static absl::Status checkTime(llvm::StringRef doing,
                                const TimeLimits &limits) {
    if (Clock::now() < limits.end)
      return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat(
        doing.str(), ": not done within the time for the whole call"));
  }

  /// Waits until a call that failed with `errno` is worth another try.
  absl::Status afterFailure(llvm::StringRef doing, short events,
                            const TimeLimits &limits) const {
    if (errno == EINTR)
      return absl::OkStatus();
    if (errno != EAGAIN && errno != EWOULDBLOCK)
      return brokenConnection(doing, errno);
    Clock::time_point silenceEnd = Clock::now() + limits.silence;
    if (waitForEvents(descriptor, events, std::min(silenceEnd, limits.end)))
      return absl::OkStatus();
    if (silenceEnd < limits.end)
      return absl::DeadlineExceededError(
          absl::StrCat(doing.str(), ": the server did nothing for ",
                       absl::FormatDuration(absl::FromChrono(limits.silence))));
    return checkTime(doing, limits);
  }

  const int descriptor;
};

/// A question to the resolver, shared with the thread that asks it.
struct Lookup {
  ~Lookup() {
    if (addresses)
      freeaddrinfo(addresses);
  }

  Mutex mutex;
  CondVar changed;
  bool finished ABSL_GUARDED_BY(mutex) = false;
  int error = 0; ///< This and the next: written before `finished`.
  addrinfo *addresses = nullptr;
};

} // namespace

/// What `host` stands for.
static absl::StatusOr<std::shared_ptr<Lookup>> lookUp(const std::string &host,
                                                      uint16_t port,
                                                      Clock::time_point end,
                                                      ResolveFunction resolve) {
  auto lookup = std::make_shared<Lookup>();
  std::string service = std::to_string(port);
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  if (getaddrinfo(host.c_str(), service.c_str(), &hints, &lookup->addresses) ==
      0)
    return lookup;

  hints.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV;
  constexpr size_t resolverStackBytes = size_t(256) << 10;
  absl::StatusOr<Thread> thread =
      Thread::start(resolverStackBytes, [lookup, host, service, hints,
                                         resolve = std::move(resolve)] {
        lookup->error =
            resolve(host.c_str(), service.c_str(), &hints, &lookup->addresses);
        MutexLock lock(lookup->mutex);
        lookup->finished = true;
        lookup->changed.notifyOne();
      });
  if (!thread.ok())
    return thread.status();
  thread->detach();

  MutexLock lock(lookup->mutex);
  while (!lookup->finished)
    if (!lookup->changed.waitUntil(lookup->mutex, end) && !lookup->finished)
      return absl::DeadlineExceededError(
          absl::StrCat("looking up ", host, ": no answer in time"));
  if (lookup->error)
    return absl::UnavailableError(
        absl::StrCat("looking up ", host, ": ", gai_strerror(lookup->error)));
  return lookup;
}

static absl::StatusOr<std::unique_ptr<Transport>>
connectTo(const addrinfo &address, Clock::time_point end) {
  constexpr llvm::StringLiteral doing("connecting");
  int descriptor =
      socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0)
    return brokenConnection(doing, errno);
  auto transport = std::make_unique<Socket>(descriptor);

  // Commands are written whole; waiting for more would only cost time. A peer
  // that went away without a word is found out while the connection is idle.
  int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));

  if (connect(descriptor, address.ai_addr, address.ai_addrlen) == 0)
    return transport;
  // Interrupted, it goes on in the background as well.
  if (errno != EINPROGRESS && errno != EINTR)
    return brokenConnection(doing, errno);
  if (!waitForEvents(descriptor, POLLOUT, end))
    return absl::DeadlineExceededError("connecting: no answer in time");
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
    error = errno;
  if (error)
    return brokenConnection(doing, error);
  return transport;
}

absl::StatusOr<std::unique_ptr<Transport>>
detail::connectSocket(const std::string &host, uint16_t port,
                      Clock::time_point end) {
  return connectSocket(host, port, end, getaddrinfo);
}

absl::StatusOr<std::unique_ptr<Transport>>
detail::connectSocket(const std::string &host, uint16_t port,
                      Clock::time_point end, ResolveFunction resolve) {
  absl::StatusOr<std::shared_ptr<Lookup>> lookup =
      lookUp(host, port, end, std::move(resolve));
  if (!lookup.ok())
    return lookup.status();

  int addressesLeft = 0;
  for (addrinfo *at = (*lookup)->addresses; at; at = at->ai_next)
    ++addressesLeft;
  absl::Status failure = absl::UnavailableError("connecting: no address");
  for (addrinfo *at = (*lookup)->addresses; at; at = at->ai_next) {
    // An address that does not answer leaves time for the others.
    Clock::time_point now = Clock::now();
    Clock::time_point share = now + (end - now) / addressesLeft--;
    absl::StatusOr<std::unique_ptr<Transport>> transport =
        connectTo(*at, share);
    if (transport.ok())
      return transport;
    failure = transport.status();
  }
  return failure;
}

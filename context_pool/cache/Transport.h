//===- Transport.h - Bytes to and from a server, in time --------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_TRANSPORT_H
#define CONTEXT_POOL_CACHE_TRANSPORT_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

// NOLINTBEGIN(readability-identifier-naming): the system's and OpenSSL's.
struct addrinfo;
struct ssl_ctx_st;
// NOLINTEND(readability-identifier-naming)

namespace ctxpool::detail {

/// How long an exchange with a server may take. The first limit finds a server
/// that hangs, soon; the second one that gives a byte now and then.
struct TimeLimits {
  using Clock = std::chrono::steady_clock;

  Clock::duration silence; ///< The longest wait in which no byte moves.
  Clock::time_point end;   ///< When all has to be done.
};

/// A connection. Nothing that happens to it raises SIGPIPE.
///
/// Thread safety: one thread at a time.
///
/// Errors: DeadlineExceeded - a limit has passed.
///         Unavailable - the connection is broken.
/// After an error the connection is of no more use.
class Transport {
public:
  virtual ~Transport() = default;

  /// Waits for bytes, and gives as many as there are, up to the size of `into`.
  /// 0: the other side has closed.
  virtual absl::StatusOr<size_t> read(llvm::MutableArrayRef<char> into,
                                      const TimeLimits &limits) = 0;

  virtual absl::Status write(llvm::StringRef bytes,
                             const TimeLimits &limits) = 0;

  /// Whether the connection is open and there is nothing to read, as far as is
  /// known here: the state between two exchanges. Does not wait.
  virtual bool isQuiet() = 0;
};

/// As `getaddrinfo`.
using ResolveFunction = std::function<int(const char *host, const char *service,
                                          const addrinfo *, addrinfo **)>;

/// A TCP connection. The system's resolver knows no time limit; it is asked on a
/// thread of its own, which is left behind where it does not answer in time.
/// Addresses need no resolver.
///
/// Errors: Unavailable - no such host, nobody listens, no way there.
///         DeadlineExceeded - not connected by `end`.
absl::StatusOr<std::unique_ptr<Transport>>
connectSocket(const std::string &host, uint16_t port,
              TimeLimits::Clock::time_point end);

/// That, with a resolver that tests can hold up.
absl::StatusOr<std::unique_ptr<Transport>>
connectSocket(const std::string &host, uint16_t port,
              TimeLimits::Clock::time_point end, ResolveFunction resolve);

/// Makes connections secret, and sure of who is at the other end: that one has
/// to have a certificate for its host name or address, from an authority that
/// is trusted.
///
/// Thread safety: `start` may be called from several threads at once.
class TlsClient {
public:
  /// Trusts the certificates in that file, or those of the system where it is
  /// empty.
  ///
  /// Errors: InvalidArgument - the file cannot be read, or has no certificates.
  ///         Unimplemented - this build has no TLS.
  static absl::StatusOr<std::unique_ptr<TlsClient>>
  create(const std::string &certificates);

  // Trivial in a build without TLS alone.
  ~TlsClient(); // NOLINT(performance-trivially-destructible)
  TlsClient(const TlsClient &) = delete;
  TlsClient &operator=(const TlsClient &) = delete;

  /// Errors: Unauthenticated - the certificate does not verify.
  ///         those of a transport.
  absl::StatusOr<std::unique_ptr<Transport>>
  start(std::unique_ptr<Transport> socket, const std::string &host,
        const TimeLimits &limits) const;

private:
  explicit TlsClient(ssl_ctx_st *context) : context(context) {}
  [[maybe_unused]] ssl_ctx_st *context; ///< Unused in a build without TLS.
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_TRANSPORT_H

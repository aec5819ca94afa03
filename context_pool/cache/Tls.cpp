//===- Tls.cpp - TLS by OpenSSL, with time limits -------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/Transport.h"

#include "absl/strings/str_cat.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <climits>

using namespace ctxpool;
using namespace ctxpool::detail;

/// OpenSSL's reason for the last failure of this thread.
static std::string lastReason() {
  unsigned long code = ERR_peek_last_error();
  const char *reason = code ? ERR_reason_error_string(code) : nullptr;
  return reason ? reason : "no reason given";
}

namespace {

/// OpenSSL works on two buffers in memory, and never sees the socket: that keeps
/// its time limits and is written to without SIGPIPE.
class TlsTransport final : public Transport {
public:
  /// Takes over `session`, which has the buffers.
  TlsTransport(std::unique_ptr<Transport> socket, SSL *session)
      : socket(std::move(socket)), session(session) {}
  ~TlsTransport() override { SSL_free(session); }
  TlsTransport(const TlsTransport &) = delete;
  TlsTransport &operator=(const TlsTransport &) = delete;

  absl::Status shakeHands(const TimeLimits &limits) {
    absl::StatusOr<size_t> done =
        run([&] { return SSL_connect(session); }, limits);
    if (!done.ok())
      return done.status();
    return *done ? absl::OkStatus()
                 : absl::UnavailableError(
                       "TLS: the server closed during the handshake");
  }

  absl::StatusOr<size_t> read(llvm::MutableArrayRef<char> into,
                              const TimeLimits &limits) override {
    int size = static_cast<int>(std::min<size_t>(into.size(), INT_MAX));
    return run([&] { return SSL_read(session, into.data(), size); }, limits);
  }

  absl::Status write(llvm::StringRef bytes, const TimeLimits &limits) override {
    while (!bytes.empty()) {
      // A piece at a time, so that the buffer stays small.
      int size = static_cast<int>(std::min<size_t>(bytes.size(), 64 << 10));
      absl::StatusOr<size_t> count =
          run([&] { return SSL_write(session, bytes.data(), size); }, limits);
      if (!count.ok())
        return count.status();
      if (*count == 0)
        return absl::UnavailableError("TLS: the server closed");
      bytes = bytes.drop_front(*count);
    }
    return absl::OkStatus();
  }

  bool isQuiet() override {
    return SSL_pending(session) == 0 &&
           BIO_pending(SSL_get_rbio(session)) == 0 && socket->isQuiet();
  }

private:
  /// Calls `step` until it is done, moving bytes between the buffers and the
  /// socket. Gives what it gives; 0 where the other side closed.
  template <typename Step>
  absl::StatusOr<size_t> run(Step step, const TimeLimits &limits) {
    for (;;) {
      ERR_clear_error();
      int result = step();
      int error = SSL_get_error(session, result);
      std::string reason = error == SSL_ERROR_SSL ? lastReason() : "";
      // An alert that says why is in the buffer also after a failure.
      absl::Status sent = send(limits);
      if (result > 0 || error == SSL_ERROR_WANT_READ) {
        if (!sent.ok())
          return sent;
        if (result > 0)
          return static_cast<size_t>(result);
        absl::StatusOr<size_t> received = socket->read(incoming, limits);
        if (!received.ok() || *received == 0)
          return received;
        BIO_write(SSL_get_rbio(session), incoming.data(),
                  static_cast<int>(*received));
        continue;
      }
      if (error == SSL_ERROR_ZERO_RETURN)
        return 0;
      if (long verdict = SSL_get_verify_result(session); verdict != X509_V_OK)
        return absl::UnauthenticatedError(
            absl::StrCat("TLS: the server's certificate does not verify: ",
                         X509_verify_cert_error_string(verdict)));
      return absl::UnavailableError(absl::StrCat("TLS: ", reason));
    }
  }

  absl::Status send(const TimeLimits &limits) {
    BIO *outgoing = SSL_get_wbio(session);
    char *bytes;
    long size = BIO_get_mem_data(outgoing, &bytes);
    if (size <= 0)
      return absl::OkStatus();
    absl::Status status = socket->write(
        llvm::StringRef(bytes, static_cast<size_t>(size)), limits);
    (void)BIO_reset(outgoing);
    return status;
  }

  std::unique_ptr<Transport> socket;
  SSL *session;
  std::array<char, 16 << 10> incoming;
};

} // namespace

absl::StatusOr<std::unique_ptr<TlsClient>>
TlsClient::create(const std::string &certificates) {
  SSL_CTX *context = SSL_CTX_new(TLS_client_method());
  if (!context)
    return absl::ResourceExhaustedError(
        absl::StrCat("remote: starting TLS: ", lastReason()));
  std::unique_ptr<TlsClient> client(new TlsClient(context));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  ERR_clear_error();
  if (certificates.empty()) {
    if (SSL_CTX_set_default_verify_paths(context) != 1)
      return absl::InvalidArgumentError(absl::StrCat(
          "remote: the system's certificates cannot be read: ", lastReason()));
  } else if (SSL_CTX_load_verify_locations(context, certificates.c_str(),
                                           nullptr) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("remote: the certificates in ", certificates,
                     " cannot be read: ", lastReason()));
  }
  return client;
}

TlsClient::~TlsClient() { SSL_CTX_free(context); }

absl::StatusOr<std::unique_ptr<Transport>>
TlsClient::start(std::unique_ptr<Transport> socket, const std::string &host,
                 const TimeLimits &limits) const {
  SSL *session = SSL_new(context);
  BIO *incoming = BIO_new(BIO_s_mem());
  BIO *outgoing = BIO_new(BIO_s_mem());
  if (!session || !incoming || !outgoing) {
    SSL_free(session);
    BIO_free(incoming);
    BIO_free(outgoing);
    return absl::ResourceExhaustedError("TLS: no memory for a connection");
  }
  SSL_set_bio(session, incoming, outgoing);
  auto transport = std::make_unique<TlsTransport>(std::move(socket), session);

  // A certificate names hosts or addresses; only a host is told to the server.
  in6_addr unused;
  bool isAddress = inet_pton(AF_INET, host.c_str(), &unused) == 1 ||
                   inet_pton(AF_INET6, host.c_str(), &unused) == 1;
  bool expected =
      isAddress ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session),
                                                host.c_str()) == 1
                : SSL_set1_host(session, host.c_str()) == 1 &&
                      SSL_set_tlsext_host_name(session, host.c_str()) == 1;
  if (!expected)
    return absl::InvalidArgumentError(
        "TLS: the host is not one that a certificate can name");
  if (absl::Status status = transport->shakeHands(limits); !status.ok())
    return status;
  return transport;
}

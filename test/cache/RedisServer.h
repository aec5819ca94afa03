//===- RedisServer.h - Redis servers, real and false, for tests -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_TEST_CACHE_REDISSERVER_H
#define CONTEXT_POOL_TEST_CACHE_REDISSERVER_H

#include "context_pool/cache/RedisConnection.h"
#include "test/support/TestFiles.h"

#include "llvm/ADT/StringRef.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

namespace ctxpool::test {

/// A loopback port that nobody listens at but a server that is told to, and that
/// no other socket is given as long as this lives.
class ReservedPort {
public:
  ReservedPort();
  ~ReservedPort();
  ReservedPort(const ReservedPort &) = delete;
  ReservedPort &operator=(const ReservedPort &) = delete;

  uint16_t get() const { return port; }
  std::string getUrl() const {
    return "redis://127.0.0.1:" + std::to_string(port);
  }

private:
  const int descriptor;
  uint16_t port;
};

/// A `redis-server` of the test's own on a loopback port, without persistence.
/// It ends with the test, also where that is killed.
class RedisServer {
public:
  /// Whether there is such a program. Tests are skipped where there is not.
  static bool isInstalled();

  /// Starts with further arguments, as on the command line. With TLS where these
  /// have `--tls-cert-file`.
  explicit RedisServer(std::vector<std::string> arguments = {});
  ~RedisServer() { kill(); }
  RedisServer(const RedisServer &) = delete;
  RedisServer &operator=(const RedisServer &) = delete;

  /// As a power failure. What it held is gone.
  void kill();
  /// Again, at the same port.
  void start();

  /// Holds it up: the system goes on taking connections in its place.
  void pause();
  void resume();

  /// Does something on the server past everything that the tests are about, as
  /// an administrator or an attacker. Gives the reply as text, `nil` for none.
  std::string run(const detail::RedisCommand &command) const;

  /// The URL with what goes before the host, such as `:password@`.
  std::string getUrl(llvm::StringRef user = "",
                     llvm::StringRef behind = "") const {
    return (tls ? "rediss://" : "redis://") + user.str() +
           "127.0.0.1:" + std::to_string(getPort()) + behind.str();
  }
  uint16_t getPort() const { return port.get(); }

private:
  bool isUp() const;

  std::vector<std::string> arguments;
  bool tls = false;
  TemporaryFolder folder;
  ReservedPort port;
  pid_t process = 0;
};

/// Says to clients what a test wants.
class FalseServer {
public:
  /// One connection of a client. After the test, every call fails.
  class Client {
  public:
    explicit Client(int descriptor) : descriptor(descriptor) {}

    /// Waits for bytes. Empty where the client has closed.
    std::string read();
    bool write(llvm::StringRef bytes);
    /// Until the client's system has all that was written.
    void awaitDelivery() const;
    /// Until the client closes.
    void awaitClose();

  private:
    int descriptor;
  };

  /// `serve` is called for each connection, on a thread of its own, with the
  /// number of connections before. The connection ends with the call.
  explicit FalseServer(std::function<void(Client &, unsigned)> serve);
  ~FalseServer();
  FalseServer(const FalseServer &) = delete;
  FalseServer &operator=(const FalseServer &) = delete;

  std::string getUrl() const {
    return "redis://127.0.0.1:" + std::to_string(port);
  }
  unsigned getConnections() const { return connections; }

private:
  void accept();

  std::function<void(Client &, unsigned)> serve;
  int listener;
  uint16_t port;
  std::atomic<unsigned> connections{0};
  std::mutex mutex;
  bool closing = false;
  std::vector<int> open;
  std::vector<std::thread> threads;
  std::thread acceptor;
};

} // namespace ctxpool::test

#endif // CONTEXT_POOL_TEST_CACHE_REDISSERVER_H

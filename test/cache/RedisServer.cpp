//===- RedisServer.cpp - Redis servers, real and false --------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/cache/RedisServer.h"

#include "context_pool/cache/RedisConnection.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestFiles.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Program.h"
#include "gtest/gtest.h"

#include <arpa/inet.h>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::test;

/// Binds a socket to a free loopback port, which it gives.
static uint16_t bindSomewhere(int descriptor) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(descriptor, reinterpret_cast<sockaddr *>(&address), size), 0);
  EXPECT_EQ(
      getsockname(descriptor, reinterpret_cast<sockaddr *>(&address), &size),
      0);
  return ntohs(address.sin_port);
}

ReservedPort::ReservedPort()
    : descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  // Where both have this option and this one does not listen, a server that is
  // told the port binds to it as well. The system gives it to nobody else.
  int yes = 1;
  EXPECT_EQ(setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)),
            0);
  port = bindSomewhere(descriptor);
}

ReservedPort::~ReservedPort() { close(descriptor); }

//===----------------------------------------------------------------------===//
// RedisServer
//===----------------------------------------------------------------------===//

bool RedisServer::isInstalled() {
  return static_cast<bool>(llvm::sys::findProgramByName("redis-server"));
}

RedisServer::RedisServer(std::vector<std::string> theArguments)
    : arguments(std::move(theArguments)),
      tls(llvm::is_contained(arguments, "--tls-cert-file")) {
  start();
}

void RedisServer::start() {
  ASSERT_EQ(process, 0) << "a server runs already";
  auto program = llvm::sys::findProgramByName("redis-server");
  ASSERT_TRUE(program);
  std::string number = std::to_string(getPort());
  std::vector<std::string> words = {*program,
                                    "--bind",
                                    "127.0.0.1",
                                    "--save",
                                    "",
                                    "--appendonly",
                                    "no",
                                    "--dir",
                                    folder.get().string(),
                                    "--port",
                                    tls ? "0" : number};
  if (tls)
    words.insert(words.end(), {"--tls-port", number});
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char *> pointers;
  for (std::string &word : words)
    pointers.push_back(word.data());
  pointers.push_back(nullptr);
  std::string log = folder.get() / "log";

  process = fork();
  ASSERT_GE(process, 0);
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int output = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  bool ended = false;
  ASSERT_TRUE(eventually([&] {
    ended = waitpid(process, nullptr, WNOHANG) == process;
    return ended || isUp();
  })) << "no server at "
      << getPort();
  ASSERT_FALSE(ended) << readFile(log);
}

/// Whether it greets. What it says does not matter: it may want a password.
bool RedisServer::isUp() const {
  detail::RemoteAddress address;
  address.host = "127.0.0.1";
  address.port = getPort();
  detail::TimeLimits limits = {std::chrono::seconds(1),
                               std::chrono::steady_clock::now() +
                                   std::chrono::seconds(1)};
  auto connection = detail::RedisConnection::open(address, nullptr, limits);
  // With TLS, that it listens has to do.
  return connection.ok() &&
         (tls ||
          (*connection)->call(detail::RedisCommand{"PING"}, {}, limits).ok());
}

std::string RedisServer::run(const detail::RedisCommand &command) const {
  detail::RemoteAddress address;
  address.host = "127.0.0.1";
  address.port = getPort();
  detail::TimeLimits limits = {deadline,
                               std::chrono::steady_clock::now() + deadline};
  detail::ReplyLimits replyLimits;
  replyLimits.stringBytes = 1 << 30;
  auto connection = detail::RedisConnection::open(address, nullptr, limits);
  EXPECT_THAT(connection, IsOk());
  if (!connection.ok())
    return "";
  auto replies = (*connection)->call(command, replyLimits, limits);
  EXPECT_THAT(replies, IsOk());
  if (!replies.ok() || replies->front()->type == REDIS_REPLY_NIL)
    return "nil";
  const redisReply &reply = *replies->front();
  return reply.type == REDIS_REPLY_INTEGER ? std::to_string(reply.integer)
                                           : std::string(reply.str, reply.len);
}

void RedisServer::kill() {
  if (process == 0)
    return;
  ::kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
  process = 0;
}

void RedisServer::pause() {
  ASSERT_NE(process, 0);
  ::kill(process, SIGSTOP);
  // The signal is on its way; this is until it has arrived.
  int status = 0;
  ASSERT_EQ(waitpid(process, &status, WUNTRACED), process);
  ASSERT_TRUE(WIFSTOPPED(status));
}

void RedisServer::resume() { ::kill(process, SIGCONT); }

//===----------------------------------------------------------------------===//
// FalseServer
//===----------------------------------------------------------------------===//

std::string FalseServer::Client::read() {
  char bytes[4096];
  ssize_t size = recv(descriptor, bytes, sizeof(bytes), 0);
  return std::string(bytes, std::max<ssize_t>(size, 0));
}

bool FalseServer::Client::write(llvm::StringRef bytes) {
  while (!bytes.empty()) {
    ssize_t size = send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (size < 0)
      return false;
    bytes = bytes.drop_front(size);
  }
  return true;
}

void FalseServer::Client::awaitDelivery() const {
  EXPECT_TRUE(eventually([&] {
    int unacknowledged = 0;
    EXPECT_EQ(ioctl(descriptor, SIOCOUTQ, &unacknowledged), 0);
    return unacknowledged == 0;
  }));
}

void FalseServer::Client::awaitClose() {
  while (!read().empty())
    ;
}

FalseServer::FalseServer(std::function<void(Client &, unsigned)> serve)
    : serve(std::move(serve)),
      listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      port(bindSomewhere(listener)) {
  EXPECT_EQ(listen(listener, 64), 0);
  acceptor = std::thread([this] { accept(); });
}

FalseServer::~FalseServer() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    closing = true;
    for (int descriptor : open)
      shutdown(descriptor, SHUT_RDWR);
  }
  shutdown(listener, SHUT_RDWR);
  acceptor.join();
  for (std::thread &thread : threads)
    thread.join();
  close(listener);
}

void FalseServer::accept() {
  for (;;) {
    int descriptor = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor < 0)
      return;
    std::lock_guard<std::mutex> lock(mutex);
    if (closing) {
      close(descriptor);
      return;
    }
    open.push_back(descriptor);
    unsigned number = connections++;
    threads.emplace_back([this, descriptor, number] {
      Client client(descriptor);
      serve(client, number);
      std::lock_guard<std::mutex> lock(mutex);
      open.erase(llvm::find(open, descriptor));
      close(descriptor);
    });
  }
}

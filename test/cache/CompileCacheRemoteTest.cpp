//===- CompileCacheRemoteTest.cpp - A cache that machines share -----------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/CompileCache.h"

#include "context_pool/cache/CacheAccess.h"
#include "context_pool/cache/RemoteTier.h"
#include "test/cache/CacheTestSupport.h"
#include "test/cache/RedisServer.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"

using namespace ctxpool;
using namespace ctxpool::detail;
using namespace ctxpool::test;

namespace {

/// A cache of a process of its own, on that server.
absl::StatusOr<std::unique_ptr<CompileCache>>
createCache(const RemoteTierOptions &options) {
  absl::StatusOr<std::unique_ptr<RemoteTier>> tier =
      RemoteTier::create(options);
  if (!tier.ok())
    return tier.status();
  Tiers tiers;
  tiers.remote = *std::move(tier);
  return CacheAccess::createCache(CompileCacheOptions(), std::move(tiers));
}

/// Compiles, or finds, `count` keys. Fails the test where that fails.
void compileAll(CompileCache &cache, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    absl::StatusOr<Artifact> artifact =
        cache.getOrCompile(keyOf(i), [&]() -> absl::StatusOr<Artifact> {
          return Artifact::copyOf("object", "artifact " + std::to_string(i))
              .withCompileCost(absl::Milliseconds(1));
        });
    ASSERT_THAT(artifact, IsOk());
    EXPECT_EQ(artifact->getBytes(), "artifact " + std::to_string(i));
  }
}

RemoteTierOptions makePatient(std::string url) {
  RemoteTierOptions options;
  options.url = std::move(url);
  options.connectTimeout = options.callTimeout = options.totalTimeout =
      absl::FromChrono(deadline);
  return options;
}

} // namespace

TEST(CompileCacheRemoteTest, WhatOneMachineCompiledAnotherFinds) {
  if (!RedisServer::isInstalled())
    GTEST_SKIP() << "redis-server is not installed (package redis-server)";
  RedisServer server;
  RemoteTierOptions options = makePatient(server.getUrl());
  options.secret = "secret";
  CTXPOOL_ASSERT_OK_AND_ASSIGN(first, createCache(options));
  compileAll(*first, 100);
  ASSERT_THAT(first->flush(), IsOk());

  CTXPOOL_ASSERT_OK_AND_ASSIGN(second, createCache(options));
  compileAll(*second, 100);

  EXPECT_EQ(first->getStats().compiles, 100u);
  EXPECT_EQ(first->getStats().remote.writes, 100u);
  EXPECT_EQ(second->getStats().compiles, 0u);
  EXPECT_EQ(second->getStats().remote.hits, 100u);
  EXPECT_EQ(second->getStats().remote.errors, 0u);
  EXPECT_EQ(second->getStats().timeSaved, absl::Milliseconds(100));
}

TEST(CompileCacheRemoteTest, ADeadServerFailsNoCompile) {
  ReservedPort port;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(cache, createCache(makePatient(port.getUrl())));

  compileAll(*cache, 1000);

  EXPECT_EQ(cache->getStats().compiles, 1000u);
  EXPECT_GT(cache->getStats().remote.errors, 0u);
}

TEST(CompileCacheRemoteTest, AHangingServerIsAskedOnceAndFailsNoCompile) {
  FalseServer server(
      [](FalseServer::Client &client, unsigned) { client.awaitClose(); });
  RemoteTierOptions options = makePatient(server.getUrl());
  // As they are by default: one call without an answer is enough.
  options.callTimeout = RemoteTierOptions().callTimeout;
  options.circuit.patience = CircuitOptions().patience;
  options.circuit.now = [] { return CircuitOptions::Clock::time_point(); };
  CTXPOOL_ASSERT_OK_AND_ASSIGN(cache, createCache(options));

  compileAll(*cache, 1000);

  EXPECT_EQ(cache->getStats().compiles, 1000u);
  EXPECT_EQ(server.getConnections(), 1u);
}

TEST(CompileCacheRemoteTest, AServerKilledInTheMiddleFailsNoCompile) {
  if (!RedisServer::isInstalled())
    GTEST_SKIP() << "redis-server is not installed (package redis-server)";
  RedisServer server;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(cache,
                               createCache(makePatient(server.getUrl())));
  std::thread other([&] { compileAll(*cache, 2000); });

  EXPECT_TRUE(eventually([&] { return cache->getStats().compiles > 100; }));
  server.kill();
  other.join();

  EXPECT_EQ(cache->getStats().compiles, 2000u);
}

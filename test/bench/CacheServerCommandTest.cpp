//===- CacheServerCommandTest.cpp - Caches on a real server ---------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/bench/ToolRunner.h"
#include "test/cache/RedisServer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <string>
#include <vector>

using namespace ctxpool::test;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

namespace json = llvm::json;

namespace {

class CacheServerTest : public testing::Test {
protected:
  void SetUp() override {
    if (!RedisServer::isInstalled())
      GTEST_SKIP() << "there is no redis-server";
  }

private:
  // No test depends on how quick the server is.
  ScopedVariable timeout{"CTXPOOL_REMOTE_TIMEOUT", "60s"};
};

TEST_F(CacheServerTest, StatsTellsThatAServerAnswersAndNotItsPassword) {
  RedisServer server({"--requirepass", "sEcret"});
  std::string remote = "--remote=" + server.getUrl(":sEcret@", "/0");

  ToolRun text = runTool({"cache", "stats", remote});
  ToolRun run = runTool({"cache", "stats", remote, "--json"});
  ToolRun wrong = runTool(
      {"cache", "stats", "--remote=" + server.getUrl(":sEcretly@", "/0")});

  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out,
              AllOf(ContainsRegex("server +redis://\\*\\*\\*@127\\.0\\.0\\.1:"),
                    ContainsRegex("answers +in [0-9.]+ ms")));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(parseReport(run).getObject("remote")->getBoolean("answers"), true);
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.out, ContainsRegex("answers +no: "));
  for (const ToolRun &shown : {text, run, wrong})
    EXPECT_THAT(shown.out + shown.err, Not(HasSubstr("sEcret")));
}

TEST_F(CacheServerTest, WhatIsWarmIsAHitOfAnotherProcessUntilItIsCleared) {
  RedisServer server;
  std::string remote = "--remote=" + server.getUrl("", "/0");
  auto getHits = [&] {
    ToolRun run = runTool({"compile", "-", "--modes=service", "--requests=1",
                           "--warmup=0", "--threads=1", "--json", remote,
                           "--cache-mode=read-only"},
                          goodModule);
    EXPECT_EQ(run.status, 0) << run.err;
    json::Object mode = getMode(parseReport(run), "service");
    EXPECT_EQ(mode.getBoolean("results_match"), true);
    const json::Object *stats = mode.getObject("cache");
    return stats ? stats->getInteger("remote_hits").value_or(-1) : -1;
  };

  EXPECT_EQ(getHits(), 0);
  ToolRun warm = runTool({"cache", "warm", "-", remote}, goodModule);
  EXPECT_EQ(warm.status, 0) << warm.err;
  EXPECT_THAT(warm.out, HasSubstr("1 compiled"));
  EXPECT_EQ(getHits(), 1);
  ToolRun clear = runTool({"cache", "clear", remote});
  EXPECT_EQ(clear.status, 0) << clear.err;
  EXPECT_THAT(clear.out, HasSubstr("cleared redis://127.0.0.1:"));
  EXPECT_EQ(getHits(), 0);
}

} // namespace

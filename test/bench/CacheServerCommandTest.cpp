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
                    ContainsRegex("answers +in [0-9.]+ ms"),
                    ContainsRegex("evicted +0, and 0 expired")));
  EXPECT_EQ(run.status, 0) << run.err;
  json::Object report = parseReport(run);
  EXPECT_EQ(report.getObject("remote")->getBoolean("answers"), true);
  EXPECT_EQ(report.getObject("remote")->getInteger("server_evicted"), 0);
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

/// What a command said, as JSON.
json::Object report(std::vector<std::string> arguments,
                    llvm::StringRef input = "") {
  arguments.emplace_back("--json");
  return parseReport(runTool(arguments, input));
}

TEST_F(CacheServerTest, TheServerOfTheEnvironmentIsUsedOnlyWhereAskedFor) {
  RedisServer server({"--requirepass", "sEcret"});
  ScopedVariable remote("CTXPOOL_REMOTE", server.getUrl(":sEcret@", "/0"));

  TemporaryFolder folder;
  EXPECT_FALSE(
      report({"cache", "stats", "--directory=" + folder.getPath("cache")})
          .get("remote"));
  json::Object asked = report({"cache", "stats", "--remote="});
  const json::Object *state = asked.getObject("remote");
  ASSERT_TRUE(state);
  EXPECT_EQ(state->getBoolean("answers"), true);
  EXPECT_FALSE(asked.get("directory"));
}

TEST_F(CacheServerTest, WarmFailsWhereAnArtifactIsTooLargeToBeKept) {
  RedisServer server;
  std::string remote = "--remote=" + server.getUrl("", "/0");
  TemporaryFolder folder;
  std::string directory = "--directory=" + folder.getPath("cache");
  ScopedVariable most("CTXPOOL_REMOTE_MAX_BYTES", "10");

  // Compiled, without and with a folder, and found in the folder.
  for (const std::vector<std::string> &stores :
       {std::vector<std::string>{remote},
        {remote, directory},
        {remote, directory}}) {
    std::vector<std::string> arguments = {"cache", "warm", "-"};
    arguments.insert(arguments.end(), stores.begin(), stores.end());
    ToolRun run = runTool(arguments, goodModule);
    EXPECT_EQ(run.status, 1);
    EXPECT_THAT(run.err, ContainsRegex("could be kept: .*at most 10 are"));
  }
}

TEST_F(CacheServerTest, ListNamesTheValuesAndWhenTheyExpire) {
  RedisServer server;
  std::string remote = "--remote=" + server.getUrl("", "/0");
  ASSERT_EQ(runTool({"cache", "warm", "-", remote}, goodModule).status, 0);

  ToolRun text = runTool({"cache", "list", remote});
  json::Object listed = report({"cache", "list", remote});

  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, ContainsRegex("expires in\n-+\n[0-9a-f]{64}  "
                                      "mlir-bytecode +[0-9]+ +[0-9.]+ +7[0-9]+h"
                                      "[0-9m]+s\n$"));
  EXPECT_FALSE(listed.get("entries"));
  const json::Array *entries = listed.getArray("remote_entries");
  ASSERT_TRUE(entries);
  ASSERT_EQ(entries->size(), 1u);
  const json::Object &entry = *entries->front().getAsObject();
  EXPECT_EQ(entry.getString("kind"), "mlir-bytecode");
  EXPECT_GT(entry.getInteger("bytes"), 0);
  EXPECT_GT(entry.getNumber("compile_seconds"), 0);
  EXPECT_GT(entry.getNumber("expires_in_seconds"), 29 * 24 * 3600.0);
}

TEST_F(CacheServerTest, VerifyExitsWithOneAndLeavesWhatItRejects) {
  RedisServer server;
  std::string remote = "--remote=" + server.getUrl("", "/0");
  ASSERT_EQ(runTool({"cache", "warm", "-", remote}, goodModule).status, 0);
  ToolRun good = runTool({"cache", "verify", remote});
  const json::Array entries =
      *report({"cache", "list", remote}).getArray("remote_entries");
  std::string key =
      entries.front().getAsObject()->getString("key").value_or("").str();
  server.run({"SETRANGE", "ctxpool:v1:" + key, "200", "damage"});

  ToolRun text = runTool({"cache", "verify", remote});
  json::Object verified = report({"cache", "verify", remote});

  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_THAT(good.out, HasSubstr(": 1 entry read, 0 rejected\n"));
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.out, AllOf(HasSubstr(key + "  mlir-bytecode"),
                              HasSubstr(": 1 entry read, 1 rejected\n")));
  EXPECT_EQ(verified.getInteger("remote_entries"), 1);
  ASSERT_EQ(verified.getArray("remote_rejected")->size(), 1u);
  EXPECT_EQ(server.run({"DBSIZE"}), "1");
}

TEST_F(CacheServerTest, BothFolderAndServerAreListedAndVerified) {
  RedisServer server;
  TemporaryFolder folder;
  std::string remote = "--remote=" + server.getUrl("", "/0");
  std::string directory = "--directory=" + folder.getPath("cache");
  ASSERT_EQ(
      runTool({"cache", "warm", "-", remote, directory}, goodModule).status, 0);

  json::Object listed = report({"cache", "list", remote, directory});
  json::Object verified = report({"cache", "verify", remote, directory});

  ASSERT_EQ(listed.getArray("entries")->size(), 1u);
  ASSERT_EQ(listed.getArray("remote_entries")->size(), 1u);
  EXPECT_EQ(listed.getArray("entries")->front().getAsObject()->getString("key"),
            listed.getArray("remote_entries")
                ->front()
                .getAsObject()
                ->getString("key"));
  EXPECT_EQ(verified.getInteger("entries"), 1);
  EXPECT_EQ(verified.getInteger("remote_entries"), 1);
}

TEST_F(CacheServerTest, WarmSendsTheServerWhatTheFolderHas) {
  RedisServer server;
  TemporaryFolder folder;
  std::string remote = "--remote=" + server.getUrl("", "/0");
  std::string directory = "--directory=" + folder.getPath("cache");
  ASSERT_EQ(runTool({"cache", "warm", "-", directory}, goodModule).status, 0);
  ASSERT_EQ(server.run({"DBSIZE"}), "0");

  ToolRun both = runTool({"cache", "warm", "-", directory, remote}, goodModule);

  EXPECT_EQ(both.status, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("0 compiled, 1 were there"));
  EXPECT_EQ(server.run({"DBSIZE"}), "1");
  EXPECT_THAT(runTool({"cache", "warm", "-", remote}, goodModule).out,
              HasSubstr("0 compiled, 1 were there"));
  // Also in place of what is damaged.
  std::string name = server.run({"RANDOMKEY"});
  server.run({"SET", name, "junk"});
  ASSERT_EQ(
      runTool({"cache", "warm", "-", directory, remote}, goodModule).status, 0);
  EXPECT_EQ(runTool({"cache", "verify", remote}).status, 0);
  // And the folder what the server has.
  ASSERT_EQ(runTool({"cache", "clear", directory}).status, 0);
  ASSERT_EQ(
      runTool({"cache", "warm", "-", directory, remote}, goodModule).status, 0);
  EXPECT_THAT(runTool({"cache", "warm", "-", directory}, goodModule).out,
              HasSubstr("0 compiled, 1 were there"));
}

TEST_F(CacheServerTest,
       WarmSaysWhatIsTooLargeForTheFolderAndKeepsItOnTheServer) {
  TemporaryFolder folder;
  RedisServer server;
  ScopedVariable bytes("CTXPOOL_DIR_BYTES", "4M");
  std::string remote = "--remote=" + server.getUrl("", "/0");
  // Three MiB of data.
  const char *large = "// PIPELINE: builtin.module()\n"
                      "llvm.mlir.global external @g(dense<1> : "
                      "tensor<3145728xi8>) : !llvm.array<3145728 x i8>";

  ToolRun run = runTool({"cache", "warm", "-", "--output=object", remote,
                         "--directory=" + folder.getPath("cache")},
                        large);

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("an artifact of 31"),
                             HasSubstr("at most 2097152 are kept")));
  json::Object listed = report({"cache", "list", remote});
  ASSERT_TRUE(listed.getArray("remote_entries"));
  EXPECT_EQ(listed.getArray("remote_entries")->size(), 1u);
}

TEST_F(CacheServerTest, WarmExitsWithOneWhereTheServerTakesNothing) {
  TemporaryFolder folder;
  ReservedPort port;
  std::string remote = "--remote=" + port.getUrl();
  std::string directory = "--directory=" + folder.getPath("cache");
  ASSERT_EQ(runTool({"cache", "warm", "-", directory}, goodModule).status, 0);

  ToolRun run = runTool({"cache", "warm", "-", directory, remote}, goodModule);

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("not all could be kept"),
                             HasSubstr("127.0.0.1")));
}

TEST_F(CacheServerTest, JitTellsThatTheServerHadTheObject) {
  RedisServer server;
  const char *const module = "llvm.func @f() -> i32 {\n"
                             "  %x = llvm.mlir.constant(42 : i32) : i32\n"
                             "  llvm.return %x : i32\n}\n";
  std::vector<std::string> arguments = {"jit", "-", "--entry=f",
                                        "--remote=" + server.getUrl("", "/0")};
  ASSERT_EQ(runTool(arguments, module).status, 0);

  ToolRun text = runTool(arguments, module);
  json::Object hit = report(arguments, module);

  EXPECT_THAT(
      text.out,
      ContainsRegex("\n1 +[0-9.]+ +[0-9.]+ +remote hit +[0-9.]+ +load"));
  const json::Object &run = *hit.getArray("runs")->front().getAsObject();
  EXPECT_EQ(run.getString("object"), "hit");
  EXPECT_EQ(run.getString("tier"), "remote");
}

} // namespace

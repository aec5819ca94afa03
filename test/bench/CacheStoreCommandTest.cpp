//===- CacheStoreCommandTest.cpp - Caches that outlive the tool -----------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/DiskTier.h"
#include "test/bench/ToolRunner.h"
#include "test/support/StatusMatchers.h"

#include "llvm/ADT/StringRef.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::test;
using ctxpool::detail::DiskTier;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

namespace json = llvm::json;
namespace fs = std::filesystem;

namespace {

ToolRun cache(std::vector<std::string> arguments, llvm::StringRef input = "") {
  arguments.insert(arguments.begin(), "cache");
  return runTool(arguments, input);
}

CacheKey makeKey(unsigned char number) {
  CacheKey key;
  key.digest.bytes.fill(number);
  return key;
}

constexpr size_t artifactBytes = 100000;

/// Puts artifacts with the keys 1 to `count` into the folder: bytes that LLVM
/// gives a file of its own.
void fill(const std::string &directory, unsigned char count) {
  detail::DiskTierOptions options;
  options.directory = directory;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, DiskTier::create(options));
  for (unsigned char number = 1; number <= count; ++number)
    ASSERT_THAT(
        tier->put(makeKey(number),
                  Artifact::copyOf(number == 1 ? "llvm-bitcode" : "object",
                                   std::string(artifactBytes, char(number)))
                      .withCompileCost(absl::Milliseconds(500)),
                  /*replace=*/false),
        IsOk());
}

/// Changes a byte of the artifact with that key.
void damage(const std::string &directory, unsigned char number) {
  unsigned found = 0;
  for (const fs::directory_entry &entry :
       fs::recursive_directory_iterator(directory)) {
    // LLVM may end the file with a zero.
    if (!entry.is_regular_file() || entry.file_size() < artifactBytes ||
        entry.file_size() > artifactBytes + 1)
      continue;
    std::fstream file(entry.path(),
                      std::ios::in | std::ios::out | std::ios::binary);
    if (file.get() != number)
      continue;
    file.seekp(5000);
    file.put('!');
    ++found;
  }
  ASSERT_EQ(found, 1u);
}

const char *const folderCommands[] = {"stats", "verify", "list", "gc", "clear"};

//===----------------------------------------------------------------------===//
// cache stats, list, verify, gc, clear
//===----------------------------------------------------------------------===//

TEST(CacheStoreTest, HelpOfEachSubcommandListsItsOptions) {
  for (const char *name : folderCommands) {
    ToolRun run = cache({name, "--help"});
    EXPECT_EQ(run.status, 0) << name;
    EXPECT_THAT(run.out, AllOf(HasSubstr(std::string("cache ") + name),
                               HasSubstr("--directory"), HasSubstr("--json")));
  }
}

TEST(CacheStoreTest, AFileInTheFoldersPlaceIsAnErrorThatNamesIt) {
  TemporaryFolder folder;
  std::string file = folder.write("file", "no cache");
  for (const char *name : folderCommands) {
    ToolRun run = cache({name, "--directory=" + file});
    EXPECT_EQ(run.status, 1) << name;
    EXPECT_THAT(run.out, IsEmpty()) << name;
    EXPECT_THAT(run.err, HasSubstr("error: '" + file + "' is not a folder\n"));
  }
  EXPECT_EQ(readFile(file), "no cache");
}

TEST(CacheStoreTest, StatsTellsWhatAFolderHoldsAndMayHold) {
  TemporaryFolder folder;
  std::string directory = folder.getPath("cache");
  ASSERT_NO_FATAL_FAILURE(fill(directory, 3));

  ToolRun text = cache({"stats", "--directory=" + directory});
  ScopedVariable limit("CTXPOOL_DIR_BYTES", "20G");
  ToolRun run = cache({"stats", "--directory=" + directory, "--json"});

  EXPECT_EQ(text.status, 0) << text.err;
  for (const char *line :
       {"entries +3\n", "llvm-bitcode +1, 97\\.7 KiB\n",
        "object +2, 195\\.3 KiB\n", "artifacts +293\\.0 KiB\n",
        "stored +.* of at most 10\\.0 GiB\n", "compiled in +1\\.50 s\n"})
    EXPECT_THAT(text.out, ContainsRegex(line));
  EXPECT_EQ(run.status, 0) << run.err;
  json::Object report = parseReport(run);
  EXPECT_EQ(report.getString("command"), "cache stats");
  const json::Object *stats = report.getObject("directory");
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->getString("path"), directory);
  EXPECT_EQ(stats->getInteger("entries"), 3);
  EXPECT_EQ(stats->getInteger("artifact_bytes"), 3 * int64_t(artifactBytes));
  EXPECT_GE(stats->getInteger("stored_bytes"), 3 * int64_t(artifactBytes));
  EXPECT_EQ(stats->getInteger("limit_bytes"), int64_t(20) << 30);
  EXPECT_EQ(stats->getNumber("compile_seconds"), 1.5);
  EXPECT_EQ(stats->getArray("kinds")->size(), 2u);
  EXPECT_FALSE(report.getObject("remote"));
}

TEST(CacheStoreTest, ListNamesKeyKindBytesAndCostOfEachEntry) {
  TemporaryFolder folder;
  std::string directory = folder.getPath("cache");
  ASSERT_NO_FATAL_FAILURE(fill(directory, 2));

  ToolRun text = cache({"list", "--directory=" + directory});
  json::Object report =
      parseReport(cache({"list", "--directory=" + directory, "--json"}));

  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, ContainsRegex("0101[01]+ +llvm-bitcode +100000 +500\n"
                                      "0202[02]+ +object +100000 +500\n$"));
  ASSERT_TRUE(report.getArray("entries"));
  ASSERT_EQ(report.getArray("entries")->size(), 2u);
  const json::Object &second = *(*report.getArray("entries"))[1].getAsObject();
  EXPECT_EQ(second.getString("key"), makeKey(2).digest.toHex());
  EXPECT_EQ(second.getString("kind"), "object");
  EXPECT_EQ(second.getInteger("bytes"), int64_t(artifactBytes));
  EXPECT_EQ(second.getNumber("compile_seconds"), 0.5);
}

TEST(CacheStoreTest, VerifyExitsWithOneAndListsWhatIsDamaged) {
  TemporaryFolder folder;
  std::string directory = folder.getPath("cache");
  ASSERT_NO_FATAL_FAILURE(fill(directory, 3));

  ToolRun whole = cache({"verify", "--directory=" + directory});
  ASSERT_NO_FATAL_FAILURE(damage(directory, 2));
  ToolRun text = cache({"verify", "--directory=" + directory});
  ToolRun run = cache({"verify", "--directory=" + directory, "--json"});

  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(whole.out, directory + ": 3 entries read, 0 damaged\n");
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.out, AllOf(HasSubstr(makeKey(2).digest.toHex()),
                              Not(HasSubstr(makeKey(1).digest.toHex())),
                              HasSubstr("3 entries read, 1 damaged\n")));
  EXPECT_EQ(run.status, 1);
  json::Object report = parseReport(run);
  EXPECT_EQ(report.getInteger("entries"), 3);
  ASSERT_EQ(report.getArray("damaged")->size(), 1u);
  EXPECT_EQ(report.getArray("damaged")->front().getAsObject()->getString("key"),
            makeKey(2).digest.toHex());
}

TEST(CacheStoreTest, GcDeletesStoresThatWereReplacedAndKeepsTheEntries) {
  TemporaryFolder folder;
  std::string directory = folder.getPath("cache");
  ASSERT_NO_FATAL_FAILURE(fill(directory, 1));
  ASSERT_EQ(cache({"clear", "--directory=" + directory}).status, 0);
  ASSERT_NO_FATAL_FAILURE(fill(directory, 3));
  // The first one, of a process that ended before it could delete it.
  std::string old =
      folder.write("cache/gen.1/cas/data", std::string(1 << 20, 'x'));

  ToolRun run = cache({"gc", "--directory=" + directory, "--json"});

  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_FALSE(fs::exists(old));
  json::Object report = parseReport(run);
  EXPECT_GE(report.getInteger("freed_bytes"), 1 << 20);
  EXPECT_GE(report.getInteger("left_bytes"), 3 * int64_t(artifactBytes));
  EXPECT_THAT(cache({"verify", "--directory=" + directory}).out,
              HasSubstr("3 entries read, 0 damaged"));
  EXPECT_THAT(cache({"gc", "--directory=" + directory}).out,
              HasSubstr("0 bytes freed"));
}

TEST(CacheStoreTest, ClearLeavesNoEntry) {
  TemporaryFolder folder;
  std::string directory = folder.getPath("cache");
  ASSERT_NO_FATAL_FAILURE(fill(directory, 3));

  ToolRun run = cache({"clear", "--directory=" + directory});

  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, "cleared " + directory + "\n");
  EXPECT_THAT(cache({"verify", "--directory=" + directory}).out,
              HasSubstr("0 entries read"));
}

TEST(CacheStoreTest, AFolderThatIsNoCacheIsAnEmptyOneAndStaysAsItIs) {
  TemporaryFolder folder;
  std::string none = folder.getPath("none");
  std::string file = folder.write("other/file", "mine");

  for (const std::string &directory : {none, folder.getPath("other")})
    for (const char *name : folderCommands) {
      ToolRun run = cache({name, "--directory=" + directory});
      EXPECT_EQ(run.status, 0) << name << run.err;
      EXPECT_THAT(run.out, ContainsRegex("no cache")) << name;
    }

  EXPECT_FALSE(fs::exists(none));
  std::vector<std::string> left;
  for (const fs::directory_entry &entry :
       fs::recursive_directory_iterator(folder.getPath("other")))
    left.push_back(entry.path().string());
  EXPECT_THAT(left, ElementsAre(file));
}

TEST(CacheStoreTest, WithoutOptionsItIsTheDefaultFolder) {
  TemporaryFolder folder;
  std::string directory = folder.getPath("cache");
  ASSERT_NO_FATAL_FAILURE(fill(directory, 2));
  ScopedVariable variable("CTXPOOL_DIR", directory);

  EXPECT_THAT(cache({"verify"}).out, HasSubstr(directory + ": 2 entries read"));
  EXPECT_EQ(cache({"clear"}).out, "cleared " + directory + "\n");
}

TEST(CacheStoreTest, AFolderThatOthersMayWriteToIsRefused) {
  TemporaryFolder folder;
  std::string directory = folder.getPath("cache");
  ASSERT_NO_FATAL_FAILURE(fill(directory, 1));
  fs::permissions(directory, fs::perms::all);

  for (const char *name : folderCommands) {
    ToolRun run = cache({name, "--directory=" + directory});
    EXPECT_EQ(run.status, 2) << name;
    EXPECT_THAT(run.out, IsEmpty()) << name;
    EXPECT_THAT(run.err, HasSubstr("can be written to by others")) << name;
  }
  ToolRun run =
      runTool({"compile", "-", "--modes=service", "--cache-dir=" + directory},
              goodModule);
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, HasSubstr("can be written to by others"));
}

//===----------------------------------------------------------------------===//
// What is not understood
//===----------------------------------------------------------------------===//

struct BadValue {
  std::vector<std::string> options;
  const char *message;
};

TEST(CacheFlagsTest, ABadValueIsAUsageErrorThatNamesWhatWasExpected) {
  for (const BadValue &bad : std::vector<BadValue>{
           {{"--cache-dir=x", "--cache-size=5X"},
            "--cache-size: '5X' is not a number of bytes; expected one such "
            "as"},
           {{"--cache-dir=x", "--cache-size=1M"},
            "--cache-size: 1048576 bytes; expected at least 4.0 MiB"},
           {{"--cache-size=1G"}, "which --cache-dir names"},
           {{"--cache-mode=maybe"},
            "--cache-mode: 'maybe' is not a mode; expected read-write"},
           {{"--remote=http://host"}, "remote"},
           {{"--cache-dir=x", "--modes=fresh,pool"},
            "which --modes leaves out"}}) {
    std::vector<std::string> arguments = {"compile", "-"};
    arguments.insert(arguments.end(), bad.options.begin(), bad.options.end());
    ToolRun run = runTool(arguments, goodModule);
    EXPECT_EQ(run.status, 2) << bad.message;
    EXPECT_THAT(run.out, IsEmpty()) << bad.message;
    EXPECT_THAT(run.err, HasSubstr(bad.message));
  }
  for (const BadValue &bad : std::vector<BadValue>{
           {{"--directory="}, "--directory= names no folder"},
           {{"--remote="},
            "--remote= names no server, nor does "
            "CTXPOOL_REMOTE"},
           {{"--remote=redis://"}, "expected redis://[user:password@]host"},
           {{"--remote=http://host"}, "remote"}}) {
    ToolRun run = cache({"stats", bad.options.front()});
    EXPECT_EQ(run.status, 2) << bad.message;
    EXPECT_THAT(run.err, HasSubstr(bad.message));
  }
}

TEST(CacheFlagsTest, AServerNeedsNoGc) {
  ToolRun run = cache({"gc", "--remote=redis://127.0.0.1:1/0"});
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("a server deletes by itself what has "
                                       "expired"),
                             HasSubstr("'cache clear' deletes everything")));
}

TEST(CacheFlagsTest, BadCodeOptionsAreUsageErrors) {
  TemporaryFolder folder;
  for (auto [option, message] :
       {std::pair("--target=nonsense", "its architecture is unknown"),
        {"--target=wasm48-unknown-unknown", "its architecture is unknown"},
        {"--cpu=abacus", "has no 'abacus'"},
        {"--features=avx", "expected + or - and a name"},
        {"--features=+abacus", "has no 'abacus'"},
        {"--code-model=vast", "vast"},
        {"--opt-level=4", "4"}}) {
    ToolRun run = cache({"warm", "-", "--output=object", option,
                         "--directory=" + folder.getPath("cache")},
                        goodModule);
    EXPECT_EQ(run.status, 2) << option;
    EXPECT_THAT(run.err, HasSubstr(message));
  }
  EXPECT_FALSE(fs::exists(folder.getPath("cache")));
}

TEST(CacheFlagsTest, ABadVariableIsAUsageErrorThatNamesIt) {
  TemporaryFolder folder;
  for (auto [name, value, message] :
       {std::tuple("CTXPOOL_MODE", "maybe", "expected read-write, read-only"),
        {"CTXPOOL_DIR_BYTES", "lots", "is not a number of bytes"},
        {"CTXPOOL_MEMORY_BYTES", "-1", "is not a number of bytes"},
        {"CTXPOOL_CROSS_PROCESS_WAIT", "soon", "is not a duration"},
        {"CTXPOOL_REMOTE_TIMEOUT", "2", "is not a duration"},
        {"CTXPOOL_REMOTE_EXPIRY", "1", "is not a duration"},
        {"CTXPOOL_REMOTE_MAX_BYTES", "1X", "is not a number of bytes"}}) {
    ScopedVariable variable(name, value);
    for (const ToolRun &run :
         {runTool({"compile", "-", "--modes=service"}, goodModule),
          cache({"stats", "--directory=" + folder.getPath("none")})}) {
      EXPECT_EQ(run.status, 2) << name;
      EXPECT_THAT(run.err, AllOf(HasSubstr(std::string("variable ") + name),
                                 HasSubstr(message)));
    }
  }
}

TEST(CacheFlagsTest, WhereTheModeLetsNothingChangeCommandsThatWouldRefuse) {
  TemporaryFolder folder;
  std::string directory = folder.getPath("cache");
  ASSERT_NO_FATAL_FAILURE(fill(directory, 2));
  for (const char *value : {"read-only", "off"}) {
    ScopedVariable mode("CTXPOOL_MODE", value);
    for (const std::vector<std::string> &arguments :
         std::vector<std::vector<std::string>>{
             {"clear"}, {"gc"}, {"warm", "-"}}) {
      std::vector<std::string> words = arguments;
      words.push_back("--directory=" + directory);
      ToolRun run = cache(words, goodModule);
      EXPECT_EQ(run.status, 2) << arguments[0];
      EXPECT_THAT(run.out, IsEmpty()) << arguments[0];
      EXPECT_THAT(run.err, HasSubstr(std::string("CTXPOOL_MODE: '") + value +
                                     "' lets no cache be changed"));
    }
    // Those that only look do, and nothing went or came.
    json::Object report =
        parseReport(cache({"stats", "--directory=" + directory, "--json"}));
    const json::Object *stats = report.getObject("directory");
    ASSERT_TRUE(stats);
    EXPECT_EQ(stats->getInteger("entries"), 2);
  }
}

TEST(CacheFlagsTest, WarmReplacesWhatIsThereWhereTheModeIsRecompute) {
  TemporaryFolder folder;
  std::vector<std::string> arguments = {
      "warm", "-", "--json", "--directory=" + folder.getPath("cache")};
  for (auto [value, compiled] :
       {std::pair("read-write", 1), {"read-write", 0}, {"recompute", 1}}) {
    ScopedVariable mode("CTXPOOL_MODE", value);
    json::Object report = parseReport(cache(arguments, goodModule));
    EXPECT_EQ(report.getInteger("compiled"), compiled) << value;
    EXPECT_EQ(report.getInteger("known"), 1 - compiled) << value;
    EXPECT_EQ(report.getBoolean("kept"), true) << value;
  }
}

TEST(CacheFlagsTest, OptionsCountOverVariables) {
  TemporaryFolder folder;
  ScopedVariable directory("CTXPOOL_DIR", folder.getPath("variable"));
  ScopedVariable mode("CTXPOOL_MODE", "off");

  json::Object report =
      parseReport(runTool({"compile", "-", "--modes=service", "--requests=1",
                           "--json", "--cache-dir=" + folder.getPath("option"),
                           "--cache-size=1G", "--cache-mode=read-write"},
                          goodModule));

  EXPECT_EQ(report.getString("cache_directory"), folder.getPath("option"));
  EXPECT_EQ(report.getInteger("cache_directory_bytes"), 1 << 30);
  EXPECT_EQ(report.getString("cache_mode"), "read-write");
  EXPECT_FALSE(fs::exists(folder.getPath("variable")));
  EXPECT_TRUE(DiskTier::isCache(folder.getPath("option")));
}

TEST(CacheFlagsTest, PasswordsAreNeverShown) {
  // Nobody listens at the port, or speaks Redis there.
  std::string url = "redis://user:sEcret@127.0.0.1:1/0";
  for (const std::vector<std::string> &arguments :
       std::vector<std::vector<std::string>>{
           {"cache", "stats", "--remote=" + url},
           {"cache", "stats", "--remote=" + url, "--json"},
           {"cache", "clear", "--remote=" + url},
           {"cache", "list", "--remote=" + url},
           {"cache", "verify", "--remote=" + url},
           {"cache", "gc", "--remote=" + url},
           {"cache", "warm", "-", "--remote=" + url},
           {"cache", "stats", "--remote=redis://user:sEcret@@host:x"},
           {"cache", "stats", "--remotes=" + url},
           {"compile", "-", "--modes=service", "--requests=1",
            "--remote=" + url},
           {"compile", "-", "--modes=service", "--requests=1",
            "--remote=" + url, "--json"}}) {
    ToolRun run = runTool(arguments, goodModule);
    EXPECT_THAT(run.out + run.err,
                AllOf(Not(HasSubstr("sEcret")), Not(IsEmpty())))
        << arguments[1];
  }
}

TEST(CacheFlagsTest, HidingAPasswordLeavesTheRestOfTheSentence) {
  ToolRun run = cache({"stats", "--remot=redis://user:s Ecr'et@host:1/0"});

  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("'--remot=redis://***@host:1/0'. Did you mean "
                              "'--remote=redis://***@host:1/0'?"),
                    Not(HasSubstr("Ecr")), Not(HasSubstr("et@"))));
}

TEST(CacheStoreTest, WhatDoesNotAnswerIsNeitherListedNorVerified) {
  for (const char *name : {"list", "verify"}) {
    ToolRun run = cache({name, "--remote=redis://127.0.0.1:1/0"});
    if (run.status == 2)
      GTEST_SKIP() << "built without Redis: " << run.err;
    EXPECT_EQ(run.status, 1) << name;
    EXPECT_THAT(run.err, HasSubstr("127.0.0.1:1"));
    EXPECT_THAT(run.out, IsEmpty()) << name;
  }
}

TEST(CacheStoreTest, StatsOfAServerThatDoesNotAnswerExitsWithOne) {
  ToolRun text = cache({"stats", "--remote=redis://127.0.0.1:1/0"});
  ToolRun run = cache({"stats", "--remote=redis://127.0.0.1:1/0", "--json"});
  if (text.status == 2)
    GTEST_SKIP() << "built without Redis: " << text.err;

  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.out,
              AllOf(ContainsRegex("answers +no: .*127\\.0\\.0\\.1:1"),
                    HasSubstr("not authenticated"), Not(HasSubstr("folder"))));
  EXPECT_EQ(run.status, 1);
  json::Object report = parseReport(run);
  const json::Object *remote = report.getObject("remote");
  ASSERT_TRUE(remote);
  EXPECT_EQ(remote->getBoolean("answers"), false);
  EXPECT_TRUE(remote->getString("error"));
}

//===----------------------------------------------------------------------===//
// cache warm, and compile
//===----------------------------------------------------------------------===//

/// What `compile` said of the cache of the mode `service`, for one request.
json::Object compileOnce(std::vector<std::string> arguments,
                         llvm::StringRef input = goodModule) {
  arguments.insert(arguments.begin(),
                   {"compile", "-", "--modes=service", "--requests=1",
                    "--warmup=0", "--threads=1", "--json"});
  ToolRun run = runTool(arguments, input);
  EXPECT_EQ(run.status, 0) << run.err;
  json::Object mode = getMode(parseReport(run), "service");
  EXPECT_EQ(mode.getBoolean("results_match"), true);
  const json::Object *stats = mode.getObject("cache");
  EXPECT_TRUE(stats);
  return stats ? *stats : json::Object();
}

TEST(CacheWarmTest, WhatIsWarmIsAHitOnDiskInAnotherProcess) {
  TemporaryFolder folder;
  std::string directory = folder.getPath("cache");
  std::string module = folder.write("module.mlir", goodModule);
  std::vector<std::string> warm = {"warm", module, "--directory=" + directory,
                                   "--output=object"};

  ToolRun first = cache(warm);
  ToolRun second = cache(warm);
  json::Object hit =
      compileOnce({"--output=object", "--cache-dir=" + directory});
  // Another output is another key.
  json::Object miss = compileOnce({"--cache-dir=" + directory});

  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.out,
              HasSubstr("1 module: 1 compiled, 0 were there, 0 failed"));
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_THAT(second.out,
              HasSubstr("1 module: 0 compiled, 1 were there, 0 failed"));
  EXPECT_EQ(hit.getInteger("disk_hits"), 1);
  EXPECT_EQ(hit.getInteger("compiles"), 0);
  EXPECT_EQ(miss.getInteger("disk_hits"), 0);
  EXPECT_EQ(miss.getInteger("compiles"), 1);
}

TEST(CacheWarmTest, TheRecipeIsPartOfWhatIsThere) {
  TemporaryFolder folder;
  std::vector<std::string> warm = {
      "warm", "-", "--directory=" + folder.getPath("cache"), "--json"};
  ASSERT_EQ(cache(warm, goodModule).status, 0);
  for (const char *option : {"--options=fast", "--opt-level=0",
                             "--pass-pipeline=builtin.module(cse)"}) {
    std::vector<std::string> other = warm;
    other.emplace_back(option);
    EXPECT_EQ(parseReport(cache(other, goodModule)).getInteger("compiled"), 1)
        << option;
    EXPECT_EQ(parseReport(cache(other, goodModule)).getInteger("known"), 1)
        << option;
  }
}

TEST(CacheWarmTest, AFileThatFailsIsNamedAndTheOthersAreKept) {
  TemporaryFolder folder;
  std::string good = folder.write("good.mlir", goodModule);
  std::string bad = folder.write("bad.mlir", "func.func @f() {\n  return 7\n}");
  std::string absent = folder.getPath("absent.mlir");

  ToolRun run = cache({"warm", good, bad, absent, "--json",
                       "--directory=" + folder.getPath("cache")});

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err,
              AllOf(HasSubstr(bad + "\":2:9: error"), HasSubstr(absent)));
  json::Object report = parseReport(run);
  EXPECT_EQ(report.getInteger("modules"), 3);
  EXPECT_EQ(report.getInteger("compiled"), 1);
  EXPECT_EQ(report.getInteger("failed"), 2);
  EXPECT_EQ(report.getBoolean("kept"), true);
  EXPECT_EQ(report.getArray("failures")->size(), 2u);
}

TEST(CacheWarmTest, WhatCannotBeKeptExitsWithOne) {
  TemporaryFolder folder;
  std::string file = folder.write("file", "no folder");

  ToolRun run = cache({"warm", "-", "--directory=" + file}, goodModule);

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("not all could be kept"));
  EXPECT_EQ(cache({"warm"}).status, 2);
}

TEST(CompileCacheFlagsTest, AFaultOfAFolderIsAWarningAndFailsNoRequest) {
  TemporaryFolder folder;
  std::string file = folder.write("file", "no folder");

  ToolRun run = runTool({"compile", "-", "--modes=service", "--requests=2",
                         "--cache-dir=" + file},
                        goodModule);

  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, ContainsRegex("warning: the cache of service had [0-9]+ "
                                     "faults, the last: .*file"));
}

/// Memory is measured by a process that serves the requests before they are
/// measured.
TEST(CompileCacheFlagsTest, WhatMeasuresMemoryFillsNoFolder) {
  TemporaryFolder folder;
  std::string directory = "--cache-dir=" + folder.getPath("cache");

  json::Object first = compileOnce({directory});
  json::Object second = compileOnce({directory});

  EXPECT_EQ(first.getInteger("compiles"), 1);
  EXPECT_EQ(first.getInteger("disk_hits"), 0);
  EXPECT_EQ(second.getInteger("compiles"), 0);
  EXPECT_EQ(second.getInteger("disk_hits"), 1);
}

TEST(CompileCacheFlagsTest, ModesSayWhatIsUsedAndKept) {
  TemporaryFolder folder;
  std::string directory = "--cache-dir=" + folder.getPath("cache");

  for (auto [mode, hits] : {std::pair("read-only", 0), // Nothing is there,
                            {"off", 0},                // and nothing is kept,
                            {"read-write", 0},         // but by this one.
                            {"recompute", 0},
                            {"off", 0},
                            {"read-only", 1},
                            {"read-write", 1}}) {
    json::Object stats =
        compileOnce({directory, std::string("--cache-mode=") + mode});
    EXPECT_EQ(stats.getInteger("disk_hits"), hits) << mode;
    EXPECT_EQ(stats.getInteger("compiles"), 1 - hits) << mode;
  }
}

/// Nothing outlives the tool unless it is told to.
TEST(CompileCacheFlagsTest, WithoutOptionsNoFolderIsUsed) {
  TemporaryFolder folder;
  ScopedVariable home("HOME", folder.getPath("home"));
  ScopedVariable cacheHome("XDG_CACHE_HOME", folder.getPath("xdg"));

  json::Object stats = compileOnce({});

  EXPECT_EQ(stats.getInteger("disk_hits"), 0);
  EXPECT_FALSE(fs::exists(folder.getPath("home")));
  EXPECT_FALSE(fs::exists(folder.getPath("xdg")));
}

} // namespace

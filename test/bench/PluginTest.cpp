//===- PluginTest.cpp - Dialects and passes from plugins ------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/bench/ToolRunner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <string>
#include <vector>

using namespace ctxpool::test;
using testing::HasSubstr;

namespace json = llvm::json;

namespace {

const std::string dialectPlugin =
    "--load-dialect-plugin=" CTXPOOL_TEST_DIALECT_PLUGIN;
const std::string passPlugin = "--load-pass-plugin=" CTXPOOL_TEST_PASS_PLUGIN;

/// Runs a module with a pass of the plugin's.
ToolRun runWithPass(const std::string &pass, llvm::StringRef module,
                    const std::string &modes = "fresh,fresh-lazy,pool") {
  return runTool({"compile", "-", passPlugin, "--json=-", "--threads=2",
                  "--warmup=4", "--requests=12", "--modes=" + modes,
                  "--pass-pipeline=builtin.module(" + pass + ")"},
                 module);
}

TEST(PluginTest, DialectOfAPluginIsParsedInEveryMode) {
  const char *module = "tiny.answer {value = 42}\n";
  std::vector<std::string> arguments = {"compile", "-", "--json=-",
                                        "--requests=4",
                                        "--pass-pipeline=builtin.module(cse)"};
  EXPECT_EQ(runTool(arguments, module).status, 1);

  arguments.push_back(dialectPlugin);
  ToolRun run = runTool(arguments, module);

  EXPECT_EQ(run.status, 0) << run.err;
  for (const char *mode : {"fresh", "fresh-lazy", "pool"})
    EXPECT_EQ(getMode(parseReport(run), mode).getInteger("failed"), 0) << mode;
}

TEST(PluginTest, DialectOfAPluginCanBePreloaded) {
  ToolRun run =
      runTool({"compile", "-", dialectPlugin, "--preload=tiny", "--requests=4",
               "--json=-", "--pass-pipeline=builtin.module(cse)"},
              "tiny.answer\n");

  EXPECT_EQ(run.status, 0) << run.err;
}

TEST(PluginTest, DialectOfAPluginIsMeasured) {
  json::Object report =
      parseReport(runTool({"dialects", "--json=-", dialectPlugin}));

  bool found = false;
  for (const json::Value &entry : *report.getArray("dialects"))
    if (entry.getAsObject()->getString("name") == "tiny") {
      found = true;
      EXPECT_EQ(entry.getAsObject()->getInteger("operations"), 1);
    }
  EXPECT_TRUE(found);
}

TEST(PluginTest, PluginThatCannotBeLoadedExitsWithOne) {
  for (const char *option : {"--load-dialect-plugin=", "--load-pass-plugin="}) {
    ToolRun run = runTool({"compile", std::string(option) + "missing.so"});

    EXPECT_EQ(run.status, 1);
    EXPECT_THAT(run.err, HasSubstr("'missing.so'"));
  }
}

TEST(PluginTest, PluginOfTheOtherKindExitsWithOne) {
  ToolRun run =
      runTool({"compile", "--load-pass-plugin=" CTXPOOL_TEST_DIALECT_PLUGIN});

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("cannot load the pass plugin"));
}

TEST(ResultsMatchTest, IsFalseAndTheStatusOneWhereResultsDiffer) {
  ToolRun run =
      runWithPass("test-change-constants", "func.func @f() -> i32 {\n"
                                           "  %0 = arith.constant 1 : i32\n"
                                           "  return %0 : i32\n"
                                           "}\n");

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err,
              HasSubstr("<stdin>: the result is not that of a fresh context"));
  json::Object report = parseReport(run);
  for (const char *name : {"fresh", "fresh-lazy", "pool"}) {
    json::Object mode = getMode(report, name);
    EXPECT_EQ(mode.getBoolean("results_match"), false) << name;
    // Every one of them, those of warm-up included.
    EXPECT_EQ(mode.getInteger("mismatches"), 16) << name;
    EXPECT_EQ(mode.getInteger("failed"), 0) << name;
  }
  EXPECT_EQ(report.getArray("mismatches")->size(), 3u);
}

TEST(ResultsMatchTest, IsTrueWherePrivateSymbolsChangeNamesAndOrder) {
  ToolRun run = runWithPass("test-rename-private", R"(
    memref.global "private" constant @a : memref<1xi32> = dense<1>
    memref.global "private" constant @b : memref<1xi32> = dense<2>
    memref.global "private" constant @c : memref<1xi32> = dense<3>
    func.func @f() -> (memref<1xi32>, memref<1xi32>) {
      %0 = memref.get_global @a : memref<1xi32>
      %1 = memref.get_global @c : memref<1xi32>
      return %0, %1 : memref<1xi32>, memref<1xi32>
    })");

  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(getMode(parseReport(run), "pool").getBoolean("results_match"),
            true);
}

TEST(ResultsMatchTest, IsFalseWhereOneFailsAndTheOtherDoesNot) {
  ToolRun run =
      runWithPass("test-fail-sometimes", "func.func @f() { return }\n", "pool");

  EXPECT_EQ(run.status, 1);
  json::Object mode = getMode(parseReport(run), "pool");
  EXPECT_GT(mode.getInteger("failed").value_or(0), 0);
  EXPECT_EQ(mode.getBoolean("results_match"), false);
}

TEST(ResultsMatchTest, CompilerThatCrashesIsReportedWithTheMode) {
  ToolRun run = runWithPass("test-crash", "func.func @f() { return }\n");

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("mode 'fresh'"));
  EXPECT_THAT(run.err, HasSubstr("died of signal 9"));
  EXPECT_THAT(run.err, HasSubstr("while it served "));
}

} // namespace

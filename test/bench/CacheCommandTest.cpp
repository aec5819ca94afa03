//===- CacheCommandTest.cpp - What ctxpool-bench cache does ---------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/bench/ToolRunner.h"

#include "llvm/ADT/StringRef.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <string>
#include <utility>
#include <vector>

using namespace ctxpool::test;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

namespace json = llvm::json;

namespace {

ToolRun explain(std::vector<std::string> arguments,
                llvm::StringRef input = "") {
  arguments.insert(arguments.begin(), {"cache", "explain"});
  return runTool(arguments, input);
}

/// The names of the parts that the report says to differ.
std::vector<std::string> getDifferences(const json::Object &report) {
  std::vector<std::string> names;
  if (const json::Array *differences = report.getArray("differences"))
    for (const json::Value &difference : *differences)
      names.push_back(
          difference.getAsObject()->getString("part").value_or("?").str());
  return names;
}

TEST(CacheCommandTest, HelpListsTheSubcommands) {
  ToolRun run = runTool({"cache", "--help"});

  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, IsEmpty());
  EXPECT_THAT(run.out, AllOf(HasSubstr("SUBCOMMANDS:"), HasSubstr("explain")));
}

TEST(CacheCommandTest, HelpOfASubcommandListsItsOptions) {
  ToolRun run = explain({"--help"});

  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.out, HasSubstr("USAGE: ctxpool-bench cache explain"));
  for (const char *option :
       {"--pass-pipeline", "--target", "--cpu", "--features", "--code-model",
        "--opt-level", "--output", "--options", "--extra", "--symbols",
        "--json"})
    EXPECT_THAT(run.out, HasSubstr(option));
}

TEST(CacheExplainTest, OneFilePrintsThePartsOfItsKeyAndTheKey) {
  ToolRun run = explain({"-"}, goodModule);

  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, IsEmpty());
  EXPECT_THAT(run.out, StartsWith("scheme "));
  for (const char *line :
       {"\npipeline +builtin\\.module\\(convert-func-to-llvm", "\ncpu +-\n",
        "\noptimization level +2\n", "\noptions +output=module;\n",
        "\nLLVM +22\\.", "\ncode of executable +", "\nmodule +[0-9a-f]{64}\n",
        "\nkey +[0-9a-f]{64}\n$"})
    EXPECT_THAT(run.out, ContainsRegex(line));
}

TEST(CacheExplainTest, EqualKeysExitWithZeroAndUnequalOnesWithOne) {
  TemporaryFolder folder;
  std::string a = folder.write("a.mlir", goodModule);
  std::string b = folder.write("b.mlir", std::string(goodModule) +
                                             "func.func private @other()\n");

  ToolRun same = explain({a, "-"}, std::string(goodModule) + "// a comment\n");
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_THAT(same.out, ContainsRegex("^the keys are equal: [0-9a-f]{64}\n$"));

  ToolRun other = explain({a, b});
  EXPECT_EQ(other.status, 1) << other.err;
  EXPECT_THAT(other.out, StartsWith("the keys differ in 1 part\nmodule\n"));
  EXPECT_THAT(other.out, ContainsRegex("\n  .*a\\.mlir: [0-9a-f]{64}\n  "
                                       ".*b\\.mlir: [0-9a-f]{64}\n$"));
}

TEST(CacheExplainTest, SpacingAndDefaultsOfAPipelineMakeNoDifference) {
  TemporaryFolder folder;
  std::string module = "\nfunc.func private @f()\n";
  std::string a = folder.write(
      "a.mlir", "// PIPELINE: builtin.module(canonicalize,cse)" + module);
  std::string b = folder.write(
      "b.mlir", "// PIPELINE: builtin.module( canonicalize{max-iterations=10} "
                ", cse )" +
                    module);
  std::string c =
      folder.write("c.mlir", "// PIPELINE: builtin.module(cse)" + module);

  EXPECT_EQ(explain({a, b}).status, 0);
  ToolRun other = explain({a, c, "--json"});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(getDifferences(parseReport(other)), ElementsAre("pipeline"));
  // One for both.
  EXPECT_EQ(explain({a, c, "--pass-pipeline=builtin.module(cse)"}).status, 0);
}

struct RecipeOption {
  const char *name;
  const char *option;
  const char *part;
};

class RecipeOptionTest : public testing::TestWithParam<RecipeOption> {};

/// Also what a report of another machine, or of yesterday, is compared with.
TEST_P(RecipeOptionTest, ChangesItsPartOfTheKeyAgainstAnEarlierReport) {
  TemporaryFolder folder;
  std::string module = folder.write("module.mlir", goodModule);
  std::string earlier = folder.getPath("earlier.json");
  ASSERT_EQ(explain({module, "--json=" + earlier}).status, 0);

  ToolRun same = explain({earlier, module});
  EXPECT_EQ(same.status, 0) << same.out << same.err;
  ToolRun run = explain({earlier, module, "--json", GetParam().option});

  EXPECT_EQ(run.status, 1) << run.err;
  json::Object report = parseReport(run);
  EXPECT_EQ(report.getString("command"), "cache explain");
  EXPECT_EQ(report.getBoolean("equal"), false);
  EXPECT_EQ(report.getArray("keys")->size(), 2u);
  EXPECT_THAT(getDifferences(report), ElementsAre(GetParam().part));
}

INSTANTIATE_TEST_SUITE_P(
    Options, RecipeOptionTest,
    testing::Values(
        RecipeOption{"Pipeline", "--pass-pipeline=builtin.module(cse)",
                     "pipeline"},
        RecipeOption{"Target", "--target=riscv64-unknown-linux-gnu", "target"},
        RecipeOption{"Cpu", "--cpu=x86-64-v3", "cpu"},
        RecipeOption{"Features", "--features=+avx2", "features"},
        RecipeOption{"CodeModel", "--code-model=large", "code model"},
        RecipeOption{"OptimizationLevel", "--opt-level=0",
                     "optimization level"},
        RecipeOption{"Output", "--output=object", "options"},
        RecipeOption{"Options", "--options=fast", "options"},
        RecipeOption{"Extra", "--extra=libm 2.36", "extra 0"},
        RecipeOption{"Locations", "--locations", "module"}),
    [](const testing::TestParamInfo<RecipeOption> &info) {
      return info.param.name;
    });

TEST(CacheExplainTest, APartThatOneKeyLacksIsNone) {
  TemporaryFolder folder;
  std::string module = folder.write("module.mlir", goodModule);
  std::string earlier = folder.getPath("earlier.json");
  ASSERT_EQ(explain({module, "--json=" + earlier, "--extra=x"}).status, 0);

  ToolRun run = explain({module, earlier});

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.out, HasSubstr("extra 0\n  " + module + ": none\n  " +
                                 earlier + ": x\n"));
}

TEST(CacheExplainTest, APipelineThatNoServiceTakesHasNoKey) {
  for (const char *pipeline : {"func.func(cse)", "builtin.module(nope)"}) {
    ToolRun run = explain({"-"}, std::string("// PIPELINE: ") + pipeline +
                                     "\nfunc.func private @f()\n");
    EXPECT_EQ(run.status, 2) << pipeline;
    EXPECT_THAT(run.out, IsEmpty()) << pipeline;
    EXPECT_THAT(run.err, AllOf(HasSubstr("<stdin>: "), HasSubstr(pipeline)));
  }
  // One that services take.
  EXPECT_EQ(explain({"-"}, "// PIPELINE: any(cse)\nmodule {}\n").status, 0);
}

TEST(CacheExplainTest, WhatCannotBeToldExitsWithTwoAndNamesTheCause) {
  TemporaryFolder folder;
  std::string module = folder.write("module.mlir", goodModule);
  std::string bad = folder.write("bad.mlir", "func.func @f() {\n  return 7\n}");
  std::string broken = folder.write("broken.json", "{\"keys\": ");
  std::string other = folder.write("other.json", "{\"keys\": []}");
  std::string changed = folder.write("changed.json", [&] {
    ToolRun run = explain({module, "--json"});
    llvm::StringRef text(run.out);
    auto [before, after] = text.split("\"optimization level\"");
    EXPECT_TRUE(after.contains("\"2\""));
    auto [middle, rest] = after.split("\"2\"");
    return (before + "\"optimization level\"" + middle + "\"3\"" + rest).str();
  }());

  for (const auto &[file, message] :
       {std::pair(bad, bad + ":2:"),
        std::pair(broken, std::string("it is no JSON")),
        std::pair(other,
                  std::string("it is no report of 'cache explain --json'")),
        std::pair(changed, std::string("contradict each other")),
        std::pair(folder.getPath(""), std::string("it is a folder"))}) {
    ToolRun run = explain({module, file});
    EXPECT_EQ(run.status, 2);
    EXPECT_THAT(run.out, IsEmpty());
    EXPECT_THAT(run.err, HasSubstr(message));
  }
  ToolRun run = explain({module, "--cpu=native", "--opt-level=4"});
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, HasSubstr("optimizationLevel"));
}

} // namespace

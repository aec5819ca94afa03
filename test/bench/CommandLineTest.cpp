//===- CommandLineTest.cpp - How the tool is called -----------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CommandLine.h"
#include "test/bench/ToolRunner.h"

#include "llvm/ADT/StringRef.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <string>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::test;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

namespace {

struct WrongUsage {
  const char *name;
  std::vector<std::string> arguments;
  const char *message;
};

class WrongUsageTest : public testing::TestWithParam<WrongUsage> {};

TEST_P(WrongUsageTest, PrintsOneLineToStderrAndExitsWithTwo) {
  ToolRun run = runTool(GetParam().arguments);

  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.out, IsEmpty());
  EXPECT_THAT(run.err, StartsWith("ctxpool-bench: error: "));
  EXPECT_THAT(run.err, HasSubstr(GetParam().message));
  EXPECT_EQ(llvm::StringRef(run.err).count('\n'), 1u) << run.err;
}

INSTANTIATE_TEST_SUITE_P(
    Command, WrongUsageTest,
    testing::Values(
        WrongUsage{"UnknownCommand", {"frobnicate"}, "'frobnicate' is not"},
        WrongUsage{"OptionBeforeCommand",
                   {"--threads=2", "compile"},
                   "'--threads=2' is not a command"},
        WrongUsage{
            "UnknownOption", {"compile", "--frobnicate"}, "'--frobnicate'"},
        WrongUsage{"OptionOfAnotherCommand",
                   {"generate", "--threads=2"},
                   "'--threads=2'"},
        WrongUsage{"OptionOfLlvm",
                   {"compile", "--print-after-all"},
                   "'--print-after-all'"},
        WrongUsage{"NoThreads", {"compile", "--threads=0"}, "--threads=0"},
        WrongUsage{"TooManyThreads",
                   {"compile", "--threads=100000"},
                   "--threads=100000"},
        WrongUsage{"NotANumber",
                   {"compile", "--threads=many"},
                   "for the --threads option: 'many' value invalid for uint "
                   "argument. Try 'ctxpool-bench compile --help'"},
        WrongUsage{"NegativeNumber", {"compile", "--warmup=-1"}, "'-1'"},
        WrongUsage{"NoValue",
                   {"compile", "--threads"},
                   "for the --threads option: requires a value. Try "
                   "'ctxpool-bench compile --help'"},
        WrongUsage{"NotAFlag",
                   {"compile", "--per-module=foo"},
                   "'foo' is invalid value for boolean argument! Try 0 or 1. "
                   "Try 'ctxpool-bench compile --help'"},
        WrongUsage{"NotOneOfTheValues",
                   {"fingerprint", "--symbols=foo", "-"},
                   "for the --symbols option: Cannot find option named 'foo'. "
                   "Try 'ctxpool-bench fingerprint --help'"},
        WrongUsage{"MicroUnknownOption",
                   {"micro", "--bogus"},
                   "'--bogus' is not an option of micro. Try 'ctxpool-bench "
                   "micro --help'"},
        WrongUsage{"NoRequests", {"compile", "--requests=0"}, "--requests=0"},
        WrongUsage{"UnknownMode",
                   {"compile", "--modes=pool,stale"},
                   "'stale' is not a mode; the modes are fresh, fresh-lazy, "
                   "pool"},
        WrongUsage{"NoMode", {"compile", "--modes="}, "'' is not a mode"},
        WrongUsage{"ModeTwice",
                   {"compile", "--modes=pool,pool"},
                   "'pool' is given twice"},
        WrongUsage{"PreloadOfUnknownDialect",
                   {"compile", "--preload=arith,nope"},
                   "there is no dialect 'nope'"},
        WrongUsage{"PreloadOfAllAndMore",
                   {"compile", "--preload=all,arith"},
                   "'all' cannot be combined"},
        WrongUsage{"PreloadWithoutPool",
                   {"compile", "--modes=fresh,fresh-lazy", "--preload=none"},
                   "modes with a pool"},
        WrongUsage{"TooManyDuplicates",
                   {"compile", "--duplicates=101"},
                   "--duplicates=101: at most 100"},
        WrongUsage{"UnknownOutput",
                   {"compile", "--output=executable"},
                   "'executable' is not an output; the outputs are module, "
                   "llvmir, object"},
        WrongUsage{"PipelineWithoutAnchor",
                   {"compile", "--pass-pipeline=canonicalize"},
                   "builtin.module(...)"},
        WrongUsage{"PipelineWithUnknownPass",
                   {"compile", "--pass-pipeline=builtin.module(nope)"},
                   "nope"},
        WrongUsage{"PipelineOfFunctions",
                   {"compile", "--pass-pipeline=func.func(cse)"},
                   "--pass-pipeline: 'func.func' is its anchor, expected "
                   "builtin.module. Try 'ctxpool-bench compile --help'"},
        WrongUsage{"JitPipelineOfFunctions",
                   {"jit", "-", "--pass-pipeline=func.func(cse)"},
                   "expected builtin.module"},
        WrongUsage{"WarmPipelineOfFunctions",
                   {"cache", "warm", "-", "--pass-pipeline=func.func(cse)",
                    "--directory=."},
                   "expected builtin.module"},
        WrongUsage{"ExplainPipelineOfFunctions",
                   {"cache", "explain", "-", "--pass-pipeline=func.func(cse)"},
                   "expected builtin.module"},
        WrongUsage{"EmptyPipeline",
                   {"compile", "--pass-pipeline="},
                   "--pass-pipeline= is empty"},
        WrongUsage{"StandardInputTwice", {"compile", "-", "-"}, "twice"},
        WrongUsage{"JsonWithoutFile", {"compile", "--json="}, "names no file"},
        WrongUsage{"UnknownInput",
                   {"compile", "--input=live"},
                   "'live' is not an input; the inputs are files, text, "
                   "bytecode, module"},
        WrongUsage{"NoInput", {"compile", "--input="}, "'' is not an input"},
        WrongUsage{"NoCacheSubcommand", {"cache"}, "no subcommand is given"},
        WrongUsage{"UnknownCacheSubcommand",
                   {"cache", "frobnicate"},
                   "'frobnicate' is not a subcommand of cache"},
        WrongUsage{"ExplainWithoutFiles",
                   {"cache", "explain"},
                   "one or two files are needed, 0 given"},
        WrongUsage{"ExplainThreeFiles",
                   {"cache", "explain", "a", "b", "c"},
                   "one or two files are needed, 3 given"},
        WrongUsage{"ExplainStandardInputTwice",
                   {"cache", "explain", "-", "-"},
                   "twice"},
        WrongUsage{"ExplainUnknownOption",
                   {"cache", "explain", "--frobnicate"},
                   "cache explain --help"},
        WrongUsage{"ExplainUnknownOutput",
                   {"cache", "explain", "-", "--output=asm"},
                   "'asm' is not an output"},
        WrongUsage{"ExplainWrongPipeline",
                   {"cache", "explain", "-", "--pass-pipeline=nope"},
                   "--pass-pipeline"},
        WrongUsage{"ExplainMissingFile",
                   {"cache", "explain", "missing.mlir"},
                   "missing.mlir: cannot read the file"},
        WrongUsage{"TransferWithoutFiles", {"transfer"}, "no file is given"},
        WrongUsage{
            "TransferStandardInputTwice", {"transfer", "-", "-"}, "twice"},
        WrongUsage{"TransferJsonWithoutFile",
                   {"transfer", "-", "--json="},
                   "names no file"},
        WrongUsage{
            "TransferUnknownOption", {"transfer", "--verify"}, "'--verify'"},
        WrongUsage{
            "NoFunctions", {"generate", "--functions=0"}, "--functions=0"},
        WrongUsage{
            "GenerateTakesNoFiles", {"generate", "file.mlir"}, "'file.mlir'"},
        WrongUsage{"UnknownSortKey", {"dialects", "--sort=name"}, "'name'"},
        WrongUsage{"DialectsPipelineIsWrong",
                   {"dialects", "--pass-pipeline=builtin.module(nope)"},
                   "nope"}),
    [](const testing::TestParamInfo<WrongUsage> &usage) {
      return usage.param.name;
    });

TEST(CommandLineTest, NoCommandPrintsHelpToStderrAndExitsWithTwo) {
  ToolRun run = runTool({});

  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.out, IsEmpty());
  EXPECT_THAT(run.err, HasSubstr("COMMANDS:"));
}

TEST(CommandLineTest, HelpListsTheCommandsOnStdout) {
  ToolRun run = runTool({"--help"});

  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, IsEmpty());
  for (const char *command :
       {"cache", "compile", "dialects", "generate", "transfer"})
    EXPECT_THAT(run.out, HasSubstr(command));
}

TEST(CommandLineTest, HelpOfACommandListsItsOptionsAndNoneOfLlvms) {
  ToolRun run = runTool({"compile", "--help"});

  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, IsEmpty());
  for (const char *option :
       {"--pass-pipeline", "--modes", "--threads", "--requests", "--warmup",
        "--preload", "--input", "--output", "--duplicates", "--json",
        "--no-progress", "--load-dialect-plugin", "--load-pass-plugin",
        "--allow-unregistered-dialect"})
    EXPECT_THAT(run.out, HasSubstr(option));
  for (const char *option : {"--sort", "--seed", "print-after", "--mlir-"})
    EXPECT_THAT(run.out, Not(HasSubstr(option)));
}

TEST(CommandLineTest, HelpFitsInAHundredColumns) {
  for (const char *command : {"compile", "dialects", "generate", "transfer"}) {
    ToolRun run = runTool({command, "--help"});
    llvm::SmallVector<llvm::StringRef> lines;
    llvm::StringRef(run.out).split(lines, '\n');
    for (llvm::StringRef line : lines)
      EXPECT_LE(line.size(), 100u) << line.str();
  }
}

TEST(CommandLineTest, VersionNamesTheToolAndMlir) {
  for (std::vector<std::string> arguments :
       {std::vector<std::string>{"--version"}, {"compile", "--version"}}) {
    ToolRun run = runTool(arguments);

    EXPECT_EQ(run.status, 0);
    EXPECT_THAT(run.err, IsEmpty());
    EXPECT_THAT(run.out, StartsWith("ctxpool-bench "));
    EXPECT_THAT(run.out, HasSubstr("MLIR 2"));
  }
}

TEST(CommandLineTest, AFileWithoutANameIsWrongUsage) {
  for (const std::vector<std::string> &arguments :
       std::vector<std::vector<std::string>>{{"compile", ""},
                                             {"diff", "", "-"},
                                             {"transfer", "-", ""},
                                             {"fingerprint", ""},
                                             {"jit", ""},
                                             {"cache", "warm", ""},
                                             {"cache", "explain", ""}}) {
    ToolRun run = runTool(arguments);
    EXPECT_EQ(run.status, 2) << arguments.front();
    EXPECT_THAT(run.err, StartsWith("ctxpool-bench: error: '' names no file."))
        << arguments.front();
  }
}

TEST(CommandLineTest, AReportThatCannotBeWrittenIsToldBeforeTheRun) {
  TemporaryFolder folder;
  std::string input = folder.write("input.mlir", goodModule);
  std::string report = "--json=" + folder.getPath("no/such/folder/out.json");
  auto isCalled = [&](std::vector<std::string> arguments) {
    arguments.push_back(report);
    ToolRun run = runTool(arguments);
    EXPECT_THAT(run.out, IsEmpty()) << arguments.front();
    EXPECT_THAT(run.err, HasSubstr("out.json")) << arguments.front();
    EXPECT_EQ(llvm::StringRef(run.err).count('\n'), 1u)
        << arguments.front() << ": " << run.err;
    return run.status;
  };

  EXPECT_EQ(isCalled({"compile", input}), 1);
  EXPECT_EQ(isCalled({"dialects"}), 1);
  EXPECT_EQ(isCalled({"transfer", input}), 1);
  EXPECT_EQ(isCalled({"fingerprint", input}), 1);
  EXPECT_EQ(isCalled({"jit", input}), 1);
  EXPECT_EQ(isCalled({"micro", "--summary", "--only=R1"}), 1);
  EXPECT_EQ(isCalled({"cache", "explain", input}), 2);
  EXPECT_EQ(isCalled({"cache", "stats", "--directory=" + input + ".cache"}), 1);
  EXPECT_EQ(isCalled({"cache", "warm", input,
                      "--directory=" + folder.getPath("cache")}),
            1);
}

TEST(CommandLineTest, AReportDoesNotOverwriteAnInput) {
  TemporaryFolder folder;
  std::string input = folder.write("input.mlir", goodModule);
  // The same file by another name.
  std::string report = "--json=" + folder.getPath("./input.mlir");

  for (const std::vector<std::string> &command :
       {std::vector<std::string>{"compile"},
        {"transfer"},
        {"fingerprint"},
        {"jit"},
        {"cache", "warm"},
        {"cache", "explain"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {input, report});
    ToolRun run = runTool(arguments);
    EXPECT_EQ(run.status, 2) << command.back();
    EXPECT_THAT(run.err, HasSubstr("the file is also an input"))
        << command.back();
    EXPECT_EQ(readFile(input), goodModule) << command.back();
  }
}

TEST(CommandLineTest, NeitherErrorsNorWarningsTellPasswords) {
  const char *message = "redis://me:secret@host: no answer";
  for (auto *print : {bench::printError, bench::printWarning}) {
    testing::internal::CaptureStderr();
    print(message);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("redis://***@host: no answer\n"),
                      Not(HasSubstr("secret"))));
  }
}

} // namespace

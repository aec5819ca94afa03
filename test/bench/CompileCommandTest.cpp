//===- CompileCommandTest.cpp - What ctxpool-bench compile does -----------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CompileInput.h"
#include "bench/CompileMode.h"
#include "bench/Environment.h"
#include "bench/ModuleParser.h"
#include "bench/ModuleSource.h"
#include "bench/ModuleVariants.h"
#include "bench/ResultDigest.h"
#include "bench/ThreadTeam.h"
#include "context_pool/Fingerprint.h"
#include "context_pool/ModuleTransfer.h"
#include "test/bench/ToolRunner.h"
#include "test/support/StatusMatchers.h"

#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "llvm/ADT/STLExtras.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::test;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

namespace json = llvm::json;

namespace {

/// Reports to standard output, with few requests.
std::vector<std::string> compileArguments(std::vector<std::string> arguments,
                                          unsigned requests = 6) {
  std::vector<std::string> all = {"compile", "--json=-", "--threads=2",
                                  "--warmup=2",
                                  "--requests=" + std::to_string(requests)};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

const char *const unparsableModule = "func.func @f() {\n"
                                     "  return 7\n"
                                     "}\n";

// A tensor reaches a conversion that has no rule for it.
const char *const failingModule =
    "// PIPELINE: builtin.module(func.func(tosa-to-linalg))\n"
    "func.func @f(%a: tensor<*xf32>) -> tensor<*xf32> {\n"
    "  %0 = tosa.exp %a : (tensor<*xf32>) -> tensor<*xf32>\n"
    "  return %0 : tensor<*xf32>\n"
    "}\n";

const char *const allModes[] = {"fresh", "fresh-lazy", "pool", "pool+cache",
                                "service"};

const json::Object *findFailure(const json::Object &report,
                                llvm::StringRef file, llvm::StringRef mode) {
  for (const json::Value &entry : *report.getArray("failures")) {
    const json::Object *failure = entry.getAsObject();
    if (failure->getString("file") == file &&
        failure->getString("mode") == mode)
      return failure;
  }
  return nullptr;
}

//===----------------------------------------------------------------------===//
// The report
//===----------------------------------------------------------------------===//

TEST(CompileCommandTest, JsonHasTheDocumentedFields) {
  TemporaryFolder folder;
  std::string path = folder.write("good.mlir", goodModule);

  ToolRun run = runTool(compileArguments({path}, 40));

  EXPECT_EQ(run.status, 0) << run.err;
  json::Object report = parseReport(run);
  EXPECT_EQ(report.getString("command"), "compile");
  EXPECT_EQ(report.getInteger("schema"), 1);
  for (const char *field :
       {"version", "mlir_version", "compiler", "build_type", "link_mode"})
    EXPECT_TRUE(report.getString(field)) << field;
  ASSERT_TRUE(report.getObject("host"));
  EXPECT_GE(report.getObject("host")->getInteger("cpus").value_or(0), 1);
  ASSERT_TRUE(report.getArray("command_line"));
  EXPECT_EQ(report.getArray("command_line")->back().getAsString(), path);
  ASSERT_TRUE(report.getArray("modes"));
  EXPECT_EQ(report.getArray("modes")->size(), 5u);
  for (const char *name : allModes) {
    json::Object mode = getMode(report, name);
    EXPECT_EQ(mode.getInteger("requests"), 40) << name;
    EXPECT_EQ(mode.getInteger("failed"), 0) << name;
    for (const char *field :
         {"wall_seconds", "throughput_per_s", "cpu_seconds_per_request"})
      EXPECT_GT(mode.getNumber(field).value_or(0), 0) << name << field;
    EXPECT_GT(mode.getInteger("peak_rss_bytes").value_or(0), 0) << name;
    EXPECT_EQ(mode.getBoolean("results_match"), true) << name;
    const json::Object *latency = mode.getObject("latency_us");
    ASSERT_TRUE(latency) << name;
    double last = 0;
    for (const char *field : {"p50", "p90", "p99", "max"}) {
      EXPECT_GE(latency->getNumber(field).value_or(-1), last) << name << field;
      last = latency->getNumber(field).value_or(0);
    }
  }
  EXPECT_THAT(*report.getArray("failures"), IsEmpty());
}

TEST(CompileCommandTest, SpeedupHasARatioOfThroughputsForEveryPair) {
  json::Object report =
      parseReport(runTool(compileArguments({"-"}), goodModule));

  const json::Object *speedup = report.getObject("speedup");
  ASSERT_TRUE(speedup);
  EXPECT_EQ(speedup->size(), 20u);
  double pool = *getMode(report, "pool").getNumber("throughput_per_s");
  double fresh = *getMode(report, "fresh").getNumber("throughput_per_s");
  double lazy = *getMode(report, "fresh-lazy").getNumber("throughput_per_s");
  EXPECT_DOUBLE_EQ(*speedup->getNumber("pool_vs_fresh"), pool / fresh);
  EXPECT_DOUBLE_EQ(*speedup->getNumber("pool_vs_fresh_lazy"), pool / lazy);
  EXPECT_DOUBLE_EQ(*speedup->getNumber("fresh_lazy_vs_fresh"), lazy / fresh);
  double service = *getMode(report, "service").getNumber("throughput_per_s");
  EXPECT_DOUBLE_EQ(*speedup->getNumber("service_vs_fresh"), service / fresh);
  double cached = *getMode(report, "pool+cache").getNumber("throughput_per_s");
  EXPECT_DOUBLE_EQ(*speedup->getNumber("pool_cache_vs_fresh"), cached / fresh);
}

TEST(CompileCommandTest, FreshMakesAContextARequestAndPoolKeepsItsContexts) {
  json::Object report =
      parseReport(runTool(compileArguments({"-"}, 40), goodModule));

  EXPECT_EQ(getMode(report, "fresh").getInteger("contexts_created"), 40);
  EXPECT_EQ(getMode(report, "fresh-lazy").getInteger("contexts_created"), 40);
  int64_t pooled =
      getMode(report, "pool").getInteger("contexts_created").value_or(0);
  EXPECT_GE(pooled, 1);
  // Two threads, and one context that is kept ready.
  EXPECT_LE(pooled, 3);
}

TEST(CompileCommandTest, OnlyTheModesThatAreAskedForRun) {
  json::Object report =
      parseReport(runTool(compileArguments({"-", "--modes=pool"}), goodModule));

  EXPECT_EQ(report.getArray("modes")->size(), 1u);
  EXPECT_THAT(*report.getObject("speedup"), IsEmpty());
  // Compared with a fresh context that is not among the modes.
  EXPECT_EQ(getMode(report, "pool").getBoolean("results_match"), true);
}

TEST(CompileCommandTest, TableIsOnStdoutAndFitsInAHundredColumns) {
  TemporaryFolder folder;
  std::string path = folder.write("good.mlir", goodModule);

  ToolRun run = runTool({"compile", path, "--requests=4", "--per-module"});

  EXPECT_EQ(run.status, 0) << run.err;
  for (const char *text :
       {"fresh-lazy", "pool+cache", "service", "against fresh", "yes",
        "good.mlir", "hit rate", "100.0%"})
    EXPECT_THAT(run.out, HasSubstr(text));
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(run.out).split(lines, '\n');
  for (llvm::StringRef line : lines)
    EXPECT_LE(line.size(), 100u) << line.str();
}

TEST(CompileCommandTest, JsonFileIsWrittenBesideTheTable) {
  TemporaryFolder folder;
  std::string report = folder.getPath("report.json");

  ToolRun run =
      runTool({"compile", "-", "--requests=2", "--json=" + report}, goodModule);

  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("requests"));
  llvm::Expected<json::Value> parsed = json::parse(readFile(report));
  ASSERT_TRUE(bool(parsed)) << llvm::toString(parsed.takeError());
}

TEST(CompileCommandTest, ReportThatCannotBeWrittenExitsWithOne) {
  TemporaryFolder folder;

  ToolRun run = runTool({"compile", "-", "--requests=2",
                         "--json=" + folder.getPath("none/report.json")},
                        goodModule);

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("none/report.json"));
}

//===----------------------------------------------------------------------===//
// Progress
//===----------------------------------------------------------------------===//

TEST(CompileCommandTest, StderrStaysEmptyWhereItIsNoTerminal) {
  ToolRun run = runTool(compileArguments({"-"}, 40), goodModule);

  EXPECT_EQ(run.status, 0);
  // But for the warning that a build which is no good for measuring gives.
  if (bench::getEnvironment().describeHandicap().empty())
    EXPECT_THAT(run.err, IsEmpty());
  EXPECT_THAT(run.err, Not(HasSubstr("measuring")));
}

/// What the tool writes to a terminal that is its standard error.
std::string runOnTerminal(std::vector<std::string> arguments) {
  int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0)
    return "no terminal";
  std::string text;
  if (grantpt(terminal) == 0 && unlockpt(terminal) == 0) {
    // Held open, so that what was written can be read after the tool ended.
    int other = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    ToolRun run = runTool(arguments, goodModule, ptsname(terminal));
    EXPECT_EQ(run.status, 0);
    fcntl(terminal, F_SETFL, O_NONBLOCK);
    char buffer[4096];
    ssize_t count;
    while ((count = read(terminal, buffer, sizeof(buffer))) > 0)
      text.append(buffer, count);
    close(other);
  }
  close(terminal);
  return text;
}

TEST(CompileCommandTest, ProgressIsShownOnATerminalUnlessItIsSwitchedOff) {
  std::vector<std::string> arguments = {"compile", "-", "--requests=2",
                                        "--threads=1"};
  std::string shown = runOnTerminal(arguments);
  if (shown == "no terminal")
    GTEST_SKIP() << "the system has no pseudo-terminals";
  EXPECT_THAT(shown, HasSubstr("measuring"));

  arguments.push_back("--no-progress");
  EXPECT_THAT(runOnTerminal(arguments), Not(HasSubstr("measuring")));
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

TEST(CompileCommandTest, AnEmptyPipelineCommentFailsItsFileUnlessOverridden) {
  TemporaryFolder folder;
  std::string path =
      folder.write("a.mlir", "// PIPELINE:\nfunc.func @f() { return }\n");

  ToolRun run = runTool({"compile", path, "--requests=3"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("a.mlir:1: error: the PIPELINE comment is "
                                 "empty"));
  EXPECT_EQ(runTool({"compile", path, "--requests=3",
                     "--pass-pipeline=builtin.module(cse)"})
                .status,
            0);
}

TEST(CompileCommandTest, ThePoolPreloadsForThePipelineUnlessToldOtherwise) {
  json::Object report = parseReport(
      runTool({"compile", "-", "--requests=3", "--json=-"}, goodModule));

  EXPECT_EQ(report.getString("preload"), "pipeline");
}

TEST(CompileCommandTest, FailingFilesAreNamedWithLineAndCauseAndTheOthersRun) {
  TemporaryFolder folder;
  std::string bad = folder.write("bad.mlir", unparsableModule);
  std::string failing = folder.write("failing.mlir", failingModule);
  std::string pipeline = folder.write(
      "pipeline.mlir", "// PIPELINE: builtin.module(nope)\nmodule {}\n");
  std::string good = folder.write("good.mlir", goodModule);
  std::string missing = folder.getPath("missing.mlir");

  // Each of the five files five times.
  ToolRun run =
      runTool(compileArguments({bad, failing, pipeline, missing, good}, 25));

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr(bad + ":2:9: error: "));
  EXPECT_THAT(run.err, HasSubstr(failing + ":3:8: error: failed to legalize"));
  EXPECT_THAT(run.err, HasSubstr(pipeline + ":1: error: "));
  EXPECT_THAT(run.err,
              HasSubstr(missing + ": cannot read the file: No such file"));
  // Once a file, however many requests and modes it fails in, and once more
  // where the service tells it in words of its own.
  for (auto [path, times] : {std::pair(bad, 2u), std::pair(failing, 2u),
                             std::pair(pipeline, 1u), std::pair(missing, 1u)})
    EXPECT_EQ(llvm::StringRef(run.err).count("bench: error: " + path + ":"),
              times)
        << run.err;
  json::Object report = parseReport(run);
  for (const char *name : allModes) {
    json::Object mode = getMode(report, name);
    EXPECT_EQ(mode.getInteger("requests"), 25) << name;
    EXPECT_EQ(mode.getInteger("failed"), 20) << name;
    EXPECT_GT(mode.getNumber("throughput_per_s").value_or(0), 0) << name;
    // To fail where a fresh context fails is the same result.
    EXPECT_EQ(mode.getBoolean("results_match"), true) << name;
    for (const std::string &path : {bad, failing, pipeline, missing}) {
      const json::Object *failure = findFailure(report, path, name);
      ASSERT_TRUE(failure) << path << name;
      EXPECT_GE(failure->getInteger("count").value_or(0), 5);
      EXPECT_TRUE(failure->getString("message"));
    }
    EXPECT_FALSE(findFailure(report, good, name));
  }
}

TEST(CompileCommandTest, FileThatNoRequestReachesIsReported) {
  TemporaryFolder folder;
  std::string good = folder.write("good.mlir", goodModule);
  std::string missing = folder.getPath("missing.mlir");

  ToolRun run =
      runTool(compileArguments({good, missing, "--warmup=0", "--requests=1"}));

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr(missing));
  json::Object report = parseReport(run);
  EXPECT_TRUE(findFailure(report, missing, "reference"));
}

TEST(CompileCommandTest, OnlyMissingFilesExitWithOneAndAReport) {
  ToolRun run =
      runTool(compileArguments({"missing.mlir", "--preload=pipeline"}));

  EXPECT_EQ(run.status, 1);
  json::Object report = parseReport(run);
  EXPECT_EQ(getMode(report, "pool").getInteger("failed"), 6);
  EXPECT_TRUE(report.getObject("speedup")->get("pool_vs_fresh")->getAsNull());
}

TEST(CompileCommandTest, FoldersAreSearchedRecursively) {
  TemporaryFolder folder;
  folder.write("b.mlir", goodModule);
  folder.write("sub/deep/a.mlir", goodModule);
  folder.write("sub/notes.txt", "not a module");

  ToolRun run = runTool(compileArguments({folder.getPath("")}));

  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(parseReport(run).getArray("modules")->size(), 2u);
}

TEST(CompileCommandTest, FolderWithoutModulesExitsWithOne) {
  TemporaryFolder folder;
  folder.write("sub/notes.txt", "not a module");

  ToolRun run = runTool(compileArguments({folder.getPath("sub")}));

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("ends in .mlir or .mlirbc"));
}

TEST(CompileCommandTest, DashReadsStandardInput) {
  ToolRun run = runTool(compileArguments({"-"}), unparsableModule);

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("<stdin>:2:9: error: "));
}

//===----------------------------------------------------------------------===//
// What requests bring
//===----------------------------------------------------------------------===//

/// A file read as the tool does, from text.
bench::ModuleSource makeSource(llvm::StringRef text) {
  bench::ModuleSource source;
  source.name = "source";
  source.bytes = bench::copyAligned(text, source.name);
  return source;
}

/// All dialects and passes, registered once.
const mlir::DialectRegistry &everything() {
  static const mlir::DialectRegistry registry = [] {
    mlir::DialectRegistry all;
    mlir::registerAllDialects(all);
    mlir::registerAllExtensions(all);
    mlir::registerAllPasses();
    mlir::registerAllToLLVMIRTranslations(all);
    return all;
  }();
  return registry;
}

void convert(bench::ModuleSource &source, bench::CompileInput input) {
  bench::convertSources(llvm::MutableArrayRef(source), input, everything(),
                        /*allowUnregisteredDialects=*/false);
}

bool hasBytecode(const bench::ModuleSource &source) {
  return mlir::isBytecode(source.bytes->getMemBufferRef());
}

TEST(CompileInputTest, ConvertsWhatIsNotAsItIsAskedFor) {
  bench::ModuleSource source = makeSource(goodModule);
  const llvm::MemoryBuffer *text = source.bytes.get();

  convert(source, bench::CompileInput::Files);
  convert(source, bench::CompileInput::Text);
  EXPECT_EQ(source.bytes.get(), text);

  convert(source, bench::CompileInput::Bytecode);
  EXPECT_TRUE(hasBytecode(source));
  const llvm::MemoryBuffer *bytecode = source.bytes.get();
  convert(source, bench::CompileInput::Bytecode);
  convert(source, bench::CompileInput::Files);
  EXPECT_EQ(source.bytes.get(), bytecode);

  convert(source, bench::CompileInput::Text);
  EXPECT_FALSE(hasBytecode(source));
  // With locations: those of the first text.
  EXPECT_THAT(source.bytes->getBuffer().str(),
              AllOf(HasSubstr("func.func @f"), HasSubstr("\"source\":2:1")));

  EXPECT_FALSE(source.live);
  convert(source, bench::CompileInput::Module);
  EXPECT_TRUE(source.live);
  EXPECT_THAT(source.error, IsEmpty());
}

TEST(CompileInputTest, AFileThatCannotBeConvertedGetsAnError) {
  for (bench::CompileInput input :
       {bench::CompileInput::Bytecode, bench::CompileInput::Module}) {
    bench::ModuleSource source = makeSource(unparsableModule);
    convert(source, input);
    EXPECT_THAT(source.error, HasSubstr("source:2:9: error: "));
    EXPECT_FALSE(source.live);
  }
}

TEST(CompileInputTest, BundledModulesGiveTheSameResultsFromEveryInput) {
  bench::CompileSetup setup;
  setup.registry = &everything();
  std::vector<bench::Digest> expected;
  for (const bench::ModuleSource &file : bench::readBundledModules()) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        result, bench::createReferenceMode(setup)->serve(file));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        digest, bench::digestResult(result.getBytes(), everything()));
    expected.push_back(digest);
  }

  for (llvm::StringRef input : bench::getCompileInputNames()) {
    std::vector<bench::ModuleSource> sources = bench::readBundledModules();
    bench::convertSources(sources, *bench::findCompileInput(input),
                          everything(), /*allowUnregisteredDialects=*/false);
    for (llvm::StringRef name : bench::getCompileModeNames()) {
      CTXPOOL_ASSERT_OK_AND_ASSIGN(mode, bench::createCompileMode(name, setup));
      for (auto [source, wanted] : llvm::zip(sources, expected)) {
        SCOPED_TRACE((input + " " + name + " " + source.name).str());
        CTXPOOL_ASSERT_OK_AND_ASSIGN(result, mode->serve(source));
        CTXPOOL_ASSERT_OK_AND_ASSIGN(
            digest, bench::digestResult(result.getBytes(), everything()));
        EXPECT_EQ(digest, wanted);
      }
    }
  }
}

TEST(CompileModeTest, ALiveModuleIsServedAndTheReferenceIsOfTheBytes) {
  bench::CompileSetup setup;
  setup.registry = &everything();
  bench::ModuleSource source = makeSource("func.func private @live()");
  convert(source, bench::CompileInput::Module);
  source.bytes = bench::copyAligned("func.func private @bytes()", "other");

  for (llvm::StringRef name : bench::getCompileModeNames()) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(mode, bench::createCompileMode(name, setup));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(result, mode->serve(source));
    EXPECT_THAT(result.getBytes().str(),
                AllOf(HasSubstr("live"), Not(HasSubstr("bytes"))));
  }
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      expected, bench::createReferenceMode(setup)->serve(source));
  EXPECT_THAT(expected.getBytes().str(),
              AllOf(HasSubstr("bytes"), Not(HasSubstr("live"))));
}

TEST(CompileModeTest, WhatCannotBeClonedIsAFailureThatNamesTheCause) {
  bench::ModuleSource source = makeSource("func.func private @f()");
  convert(source, bench::CompileInput::Module);
  mlir::DialectRegistry empty;
  bench::CompileSetup setup;
  setup.registry = &empty;

  for (llvm::StringRef name : bench::getCompileModeNames()) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(mode, bench::createCompileMode(name, setup));
    absl::Status status = mode->serve(source).status();
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         name == "service" ? "copy: " : "cloning failed: "));
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kFailedPrecondition, "func"));
  }
}

TEST(CompileCommandTest, FailedRequestsAreCountedByModeAndHaveNoResults) {
  std::vector<std::string> arguments = {"compile",
                                        "-",
                                        "--modes=fresh,fresh-lazy",
                                        "--threads=1",
                                        "--warmup=0",
                                        "--requests=3",
                                        "--pass-pipeline=builtin.module(cse)"};
  ToolRun run = runTool(arguments, unparsableModule);

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("\n  3 requests failed in every mode\n"));
  EXPECT_THAT(run.out, ContainsRegex("fresh-lazy .* -\n"));
  arguments.push_back("--json");
  json::Object report = parseReport(runTool(arguments, unparsableModule));
  const json::Object mode = getMode(report, "fresh");
  ASSERT_TRUE(mode.get("results_match"));
  EXPECT_TRUE(mode.get("results_match")->getAsNull());
}

TEST(DamagedBytecodeTest, IsRefusedByEveryCommandAsTheLibraryRefusesIt) {
  TemporaryFolder folder;
  bench::ModuleSource source = makeSource(goodModule);
  convert(source, bench::CompileInput::Bytecode);
  llvm::StringRef whole = source.bytes->getBuffer();
  std::string damaged =
      folder.write("damaged.mlirbc", whole.drop_back(whole.size() / 2));
  auto loaded = loadSerialized(
      std::move(*llvm::MemoryBuffer::getFile(damaged, /*IsText=*/false)));
  ASSERT_THAT(loaded, IsOk());
  mlir::MLIRContext context;
  absl::Status expected = deserialize(*loaded, context).status();
  ASSERT_THAT(expected, StatusIs(absl::StatusCode::kInvalidArgument, ""));

  for (const ToolRun &run :
       {runTool({"transfer", damaged}), runTool({"fingerprint", damaged}),
        runTool(compileArguments(
            {damaged, "--pass-pipeline=builtin.module(cse)"}))}) {
    EXPECT_EQ(run.status, 1);
    EXPECT_THAT(run.err, HasSubstr(std::string(expected.message())));
  }
  ToolRun diff = runTool({"diff", damaged, damaged});
  EXPECT_EQ(diff.status, 2);
  EXPECT_THAT(diff.err, HasSubstr(std::string(expected.message())));
}

class InputTest : public testing::TestWithParam<const char *> {};

TEST_P(InputTest, ServesTextAndBytecodeWithResultsOfAFreshContext) {
  TemporaryFolder folder;
  std::string text = folder.write("text.mlir", goodModule);
  bench::ModuleSource source = makeSource(goodModule);
  convert(source, bench::CompileInput::Bytecode);
  std::string bytecode =
      folder.write("bytecode.mlirbc", source.bytes->getBuffer());

  ToolRun run = runTool(compileArguments(
      {text, bytecode, std::string("--input=") + GetParam(),
       "--pass-pipeline=builtin.module(convert-func-to-llvm)"}));

  EXPECT_EQ(run.status, 0) << run.err;
  json::Object report = parseReport(run);
  EXPECT_EQ(report.getString("input"), GetParam());
  for (const char *name : allModes) {
    EXPECT_EQ(getMode(report, name).getInteger("failed"), 0) << name;
    EXPECT_EQ(getMode(report, name).getBoolean("results_match"), true) << name;
  }
}

TEST_P(InputTest, AFileThatCannotBeReadIsNamedWithLineAndCause) {
  ToolRun run =
      runTool(compileArguments({"-", std::string("--input=") + GetParam(),
                                "--pass-pipeline=builtin.module(cse)"}),
              unparsableModule);

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("<stdin>:2:9: error: "));
  json::Object report = parseReport(run);
  EXPECT_EQ(getMode(report, "pool").getInteger("failed"), 6);
  EXPECT_TRUE(getMode(report, "pool").getNull("results_match"))
      << "there was none to match";
}

INSTANTIATE_TEST_SUITE_P(Inputs, InputTest,
                         testing::Values("files", "text", "bytecode",
                                         "module"));

TEST(CompileCommandTest, RequestsBringTheFilesUnlessToldOtherwise) {
  json::Object report =
      parseReport(runTool(compileArguments({"-"}), goodModule));

  EXPECT_EQ(report.getString("input"), "files");
}

//===----------------------------------------------------------------------===//
// Pipelines
//===----------------------------------------------------------------------===//

TEST(CompileCommandTest, PipelineComesFromTheFirstLineUnlessItIsGiven) {
  ToolRun own = runTool(compileArguments({"-"}), failingModule);
  EXPECT_EQ(own.status, 1);
  EXPECT_THAT(own.err, HasSubstr("tosa.exp"));

  ToolRun given =
      runTool(compileArguments({"-", "--pass-pipeline=builtin.module(cse)"}),
              failingModule);
  EXPECT_EQ(given.status, 0) << given.err;
  json::Object report = parseReport(given);
  const json::Object *module =
      report.getArray("modules")->front().getAsObject();
  EXPECT_EQ(module->getString("pipeline"), "builtin.module(cse)");
}

TEST(CompileCommandTest, ModuleWithoutPipelineIsWarnedAboutAndOnlyParsed) {
  ToolRun run = runTool(compileArguments({"-"}), "func.func @f() { return }\n");

  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, HasSubstr("warning: some modules have no pipeline"));
}

TEST(CompileCommandTest, UnregisteredDialectsAreAllowedOnDemand) {
  const char *module = "\"nope.op\"() : () -> ()\n";
  std::string pipeline = "--pass-pipeline=builtin.module(cse)";

  EXPECT_EQ(runTool(compileArguments({"-", pipeline}), module).status, 1);
  EXPECT_EQ(
      runTool(compileArguments({"-", pipeline, "--allow-unregistered-dialect"}),
              module)
          .status,
      0);
}

class PreloadTest : public testing::TestWithParam<const char *> {};

TEST_P(PreloadTest, GivesTheSameResults) {
  TemporaryFolder folder;
  std::string first = folder.write("first.mlir", goodModule);
  std::string second =
      folder.write("second.mlir", "// PIPELINE: any(canonicalize)\n"
                                  "func.func @g() { return }\n");

  ToolRun run = runTool(compileArguments(
      {first, second, std::string("--preload=") + GetParam()}, 12));

  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(parseReport(run).getString("preload"), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Dialects, PreloadTest,
                         testing::Values("all", "pipeline", "none",
                                         "llvm,func"));

//===----------------------------------------------------------------------===//
// The bundled modules
//===----------------------------------------------------------------------===//

TEST(CompileCommandTest, WithoutFilesTheBundledModulesRun) {
  size_t count = bench::readBundledModules().size();

  ToolRun run = runTool(compileArguments({}, static_cast<unsigned>(count)));

  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_GE(count, 12u);
  EXPECT_EQ(parseReport(run).getArray("modules")->size(), count);
}

TEST(CompileModeTest, BundledModulesLowerInEveryModeWithoutUnrealizedCasts) {
  bench::CompileSetup setup;
  setup.registry = &everything();
  std::vector<bench::ModuleSource> sources = bench::readBundledModules();

  for (llvm::StringRef name : bench::getCompileModeNames()) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(mode, bench::createCompileMode(name, setup));
    EXPECT_EQ(mode->getName(), name);
    for (const bench::ModuleSource &source : sources) {
      SCOPED_TRACE(name.str() + " " + source.name);
      EXPECT_FALSE(source.pipeline.empty());
      CTXPOOL_ASSERT_OK_AND_ASSIGN(result, mode->serve(source));
      mlir::MLIRContext context(everything(),
                                mlir::MLIRContext::Threading::DISABLED);
      auto bytes = bench::copyAligned(result.getBytes(), "result");
      auto lowered = bench::parseModule(*bytes, context, /*verify=*/true);
      ASSERT_THAT(lowered, IsOk());
      (*lowered)->walk([](mlir::Operation *op) {
        EXPECT_NE(op->getName().getStringRef(),
                  "builtin.unrealized_conversion_cast");
      });
    }
  }
}

//===----------------------------------------------------------------------===//
// Duplicates
//===----------------------------------------------------------------------===//

const json::Object &getCache(const json::Object &mode) {
  static const json::Object none;
  const json::Object *cache = mode.getObject("cache");
  EXPECT_TRUE(cache);
  return cache ? *cache : none;
}

TEST(ModuleVariantTest, NumbersGiveModulesOfDifferentFingerprintsAndOneLength) {
  bench::ModuleSource text = makeSource(goodModule);
  bench::ModuleSource bytecode = makeSource(goodModule);
  convert(bytecode, bench::CompileInput::Bytecode);
  for (bench::ModuleSource *source : {&text, &bytecode}) {
    bool isBytecode = hasBytecode(*source);
    bench::numberSources(llvm::MutableArrayRef(source, 1), everything(), false);
    ASSERT_THAT(source->error, IsEmpty());
    EXPECT_EQ(hasBytecode(*source), isBytecode);
    std::vector<Fingerprint> seen;
    for (uint64_t number : {uint64_t(0), uint64_t(1), ~uint64_t(0)}) {
      bench::ModuleSource variant = bench::makeVariant(*source, number);
      EXPECT_EQ(variant.bytes->getBufferSize(), source->bytes->getBufferSize());
      CTXPOOL_ASSERT_OK_AND_ASSIGN(
          loaded, bench::loadModule(variant, everything(), false));
      CTXPOOL_ASSERT_OK_AND_ASSIGN(digest,
                                   fingerprint(loaded.module->getOperation()));
      EXPECT_THAT(seen, Not(testing::Contains(digest)));
      seen.push_back(digest);
    }
  }
}

TEST(ModuleVariantTest, LocationsOfTheTextAreKeptWhereItHasSome) {
  for (const char *text :
       {"func.func private @f() loc(\"here\")", "func.func private @f()"}) {
    bench::ModuleSource source = makeSource(text);
    bench::numberSources(llvm::MutableArrayRef(source), everything(), false);
    EXPECT_EQ(source.bytes->getBuffer().contains("loc("),
              llvm::StringRef(text).contains("here"));
  }
}

TEST(ModuleVariantTest, AFileThatCannotBeParsedGetsAnError) {
  bench::ModuleSource source = makeSource(unparsableModule);
  bench::numberSources(llvm::MutableArrayRef(source), everything(), false);
  EXPECT_THAT(source.error, HasSubstr("source:2:9: error: "));
}

TEST(ModuleVariantTest, RenumberReplacesEveryNumberAndMissesOthers) {
  bench::ModuleSource source = makeSource("");
  bench::numberSources(llvm::MutableArrayRef(source), everything(), false);
  std::string zero = source.bytes->getBuffer().str();

  std::optional<std::string> seven = bench::renumber(zero + zero, 0, 7);

  ASSERT_TRUE(seven);
  EXPECT_EQ(bench::renumber(*seven, 7, 0), zero + zero);
  EXPECT_EQ(bench::renumber(*seven, 0, 7), std::nullopt);
}

class ModeOutputTest : public testing::TestWithParam<bench::CompileOutput> {};

TEST_P(ModeOutputTest, EveryModeGivesTheOutputWithTheNumberOfItsModule) {
  bench::CompileSetup setup;
  setup.registry = &everything();
  setup.output = GetParam();
  bench::ModuleSource source = makeSource(goodModule);
  source.pipeline = "builtin.module(convert-func-to-llvm)";
  bench::numberSources(llvm::MutableArrayRef(source), everything(), false);
  bench::ModuleSource first = bench::makeVariant(source, 1);

  for (llvm::StringRef name : bench::getCompileModeNames()) {
    SCOPED_TRACE(name.str());
    CTXPOOL_ASSERT_OK_AND_ASSIGN(mode, bench::createCompileMode(name, setup));
    for (int round = 0; round < 2; ++round) {
      CTXPOOL_ASSERT_OK_AND_ASSIGN(zero, mode->serve(source));
      CTXPOOL_ASSERT_OK_AND_ASSIGN(one, mode->serve(first));
      EXPECT_EQ(zero.getKind(),
                GetParam() == bench::CompileOutput::Module   ? "mlir-bytecode"
                : GetParam() == bench::CompileOutput::LLVMIR ? "llvm-bitcode"
                                                             : "object");
      EXPECT_EQ(bench::renumber(one.getBytes(), 1, 0), zero.getBytes().str());
    }
    if (std::optional<CompileCacheStats> stats = mode->getCacheStats()) {
      EXPECT_EQ(stats->compiles, 2u);
      EXPECT_EQ(stats->memory.hits, 2u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Outputs, ModeOutputTest,
                         testing::Values(bench::CompileOutput::Module,
                                         bench::CompileOutput::LLVMIR,
                                         bench::CompileOutput::Object));

struct DuplicateCase {
  unsigned percent;
  const char *input;
};

class DuplicatesTest : public testing::TestWithParam<DuplicateCase> {};

TEST_P(DuplicatesTest, ThatShareOfTheRequestsHitsAndTheRestCompiles) {
  TemporaryFolder folder;
  std::string first = folder.write("first.mlir", goodModule);
  std::string second =
      folder.write("second.mlir", "// PIPELINE: builtin.module(canonicalize)\n"
                                  "func.func @g() { return }\n");
  auto [percent, input] = GetParam();

  ToolRun run = runTool(compileArguments(
      {first, second, "--warmup=4", "--duplicates=" + std::to_string(percent),
       std::string("--input=") + input},
      40));

  EXPECT_EQ(run.status, 0) << run.err;
  json::Object report = parseReport(run);
  EXPECT_EQ(report.getInteger("duplicates_percent"), percent);
  for (const char *name : allModes) {
    json::Object mode = getMode(report, name);
    EXPECT_EQ(mode.getBoolean("results_match"), true) << name;
    if (!llvm::is_contained({"pool+cache", "service"}, llvm::StringRef(name))) {
      EXPECT_TRUE(mode.get("cache")->getAsNull()) << name;
      continue;
    }
    const json::Object &cache = getCache(mode);
    EXPECT_EQ(cache.getInteger("requests"), 40) << name;
    EXPECT_EQ(cache.getInteger("hits"), 40 * percent / 100) << name;
    EXPECT_EQ(cache.getNumber("hit_rate"), percent / 100.0) << name;
    EXPECT_EQ(cache.getInteger("compiles"), 40 * (100 - percent) / 100) << name;
    EXPECT_EQ(cache.getInteger("waits_joined"), 0) << name;
    EXPECT_EQ(cache.getInteger("failures"), 0) << name;
    EXPECT_EQ(*cache.getNumber("time_saved_seconds") > 0, percent > 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shares, DuplicatesTest,
    testing::Values(DuplicateCase{0, "files"}, DuplicateCase{90, "files"},
                    DuplicateCase{50, "bytecode"}, DuplicateCase{75, "module"},
                    DuplicateCase{100, "text"}),
    [](const testing::TestParamInfo<DuplicateCase> &info) {
      return std::to_string(info.param.percent) + info.param.input;
    });

TEST(CompileCommandTest, NewModulesAreUnknownToTheFolderOfAnEarlierRun) {
  TemporaryFolder folder;
  for (int64_t round : {0, 1}) {
    json::Object report = parseReport(
        runTool({"compile", "-", "--modes=service", "--threads=1", "--warmup=1",
                 "--requests=20", "--duplicates=50", "--json",
                 "--cache-dir=" + folder.getPath("cache")},
                goodModule));
    json::Object mode = getMode(report, "service");
    EXPECT_EQ(mode.getBoolean("results_match"), true) << round;
    const json::Object &cache = getCache(mode);
    EXPECT_EQ(cache.getInteger("hits"), 10) << round;
    EXPECT_EQ(cache.getInteger("compiles"), 10) << round;
  }
}

TEST(CompileCommandTest, WithCrashRecoveryACrashFailsItsFileAndTheOthersRun) {
  // Deeper than the stack of a compile thread.
  TemporaryFolder folder;
  std::string crashing = folder.write(
      "crashing.mlir", "module attributes {t.a = " + std::string(1 << 20, '['));
  std::string good = folder.write("good.mlir", goodModule);

  ToolRun run =
      runTool({"compile", crashing, good, "--modes=fresh,service",
               "--crash-recovery", "--requests=8", "--threads=1", "--json"});

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("crashing.mlir"),
                             HasSubstr("crashed: signal 11")));
  json::Object report = parseReport(run);
  EXPECT_TRUE(report.getArray("mismatches")->empty());
  for (const char *name : {"fresh", "service"}) {
    json::Object mode = getMode(report, name);
    EXPECT_EQ(mode.getInteger("requests"), 8);
    EXPECT_EQ(mode.getInteger("failed"), 4);
    EXPECT_EQ(mode.getBoolean("results_match"), true);
  }
}

TEST(CompileCommandTest, CrashRecoveryIsForModesThatCanGoOnAfterACrash) {
  for (const char *modes :
       {"--modes=service,pool", "--modes=pool+cache", "--requests=1"}) {
    ToolRun run =
        runTool({"compile", "-", "--crash-recovery", modes}, goodModule);
    EXPECT_EQ(run.status, 2);
    EXPECT_THAT(run.err,
                HasSubstr("--crash-recovery: a crash in the modes pool "
                          "and pool+cache ends the process"));
  }
}

TEST(CompileCommandTest, ModulesThatCrashUpstreamAreErrorsOfTheirFile) {
  auto folder = sharedDir("cases/inputs/crash");
  if (!folder)
    GTEST_SKIP() << "no folder of collected cases";
  std::vector<std::string> arguments = {"compile",
                                        "--modes=service",
                                        "--crash-recovery",
                                        "--json=-",
                                        "-",
                                        "--allow-unregistered-dialect"};
  const size_t options = arguments.size();
  for (const std::filesystem::path &file : moduleFiles(*folder))
    arguments.push_back(file.string());

  ToolRun run = runTool(arguments, goodModule);

  EXPECT_EQ(run.status, 1);
  json::Object report = parseReport(run);
  // Some have a reason that differs from time to time.
  std::set<std::string> failed;
  for (const json::Value &failure : *report.getArray("failures")) {
    const json::Object &entry = *failure.getAsObject();
    failed.insert(entry.getString("file").value_or("").str());
    EXPECT_THAT(entry.getString("message").value_or("").str(),
                HasSubstr("crashed: "));
  }
  EXPECT_EQ(failed, std::set<std::string>(arguments.begin() + options,
                                          arguments.end()));
  EXPECT_TRUE(report.getArray("mismatches")->empty());
}

TEST(CompileCommandTest, WhatTheCacheEvictedIsCounted) {
  ScopedVariable bytes("CTXPOOL_MEMORY_BYTES", "4K");
  std::vector<std::string> arguments = {
      "compile",     "-",          "--modes=service", "--duplicates=0",
      "--threads=1", "--warmup=0", "--requests=50"};
  ToolRun text = runTool(arguments, goodModule);
  arguments.emplace_back("--json");
  json::Object mode =
      getMode(parseReport(runTool(arguments, goodModule)), "service");

  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, ContainsRegex("saved s +evicted\n"));
  ASSERT_TRUE(mode.getObject("cache"));
  EXPECT_GT(mode.getObject("cache")->getInteger("memory_evictions"), 40);
  EXPECT_EQ(mode.getObject("cache")->getInteger("disk_evictions"), 0);
}

TEST(CompileCommandTest, EveryRequestRepeatsAModuleUnlessToldOtherwise) {
  json::Object report =
      parseReport(runTool(compileArguments({"-"}), goodModule));

  EXPECT_EQ(report.getInteger("duplicates_percent"), 100);
  EXPECT_EQ(getCache(getMode(report, "service")).getInteger("hits"), 6);
}

TEST(CompileCommandTest, ObjectsComeOutOfBundledModulesButOfTheKernels) {
  size_t count = bench::readBundledModules().size() - 1;

  // Some are worth seconds of code generation.
  ToolRun run = runTool(
      compileArguments({"--output=object", "--modes=service", "--warmup=0"},
                       static_cast<unsigned>(count)));

  EXPECT_EQ(run.status, 0) << run.err;
  json::Object report = parseReport(run);
  EXPECT_EQ(report.getString("output"), "object");
  EXPECT_EQ(report.getArray("modules")->size(), count);
  EXPECT_EQ(*report.getArray("left_out"), json::Array{"gpu_kernel.mlir"});
}

TEST(CompileCommandTest, CodeOfWhatIsNotLoweredFailsAlikeAndNamesTheCause) {
  ToolRun run = runTool(compileArguments({"-", "--output=object"}),
                        "// PIPELINE: builtin.module(cse)\n"
                        "func.func @f() { return }\n");

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("func.func"));
  json::Object report = parseReport(run);
  for (const char *name : allModes) {
    EXPECT_EQ(getMode(report, name).getInteger("failed"), 6) << name;
    EXPECT_EQ(getMode(report, name).get("results_match")->kind(),
              json::Value::Null)
        << name;
  }
}

TEST(CompileModeTest, UnknownModeIsNotFound) {
  EXPECT_THAT(bench::createCompileMode("stale", {}),
              StatusIs(absl::StatusCode::kNotFound, "'stale'"));
}

TEST(ThreadTeamTest, RunsEveryThreadOnceARound) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(team, bench::ThreadTeam::create(4));
  std::vector<int> rounds(4);
  for (int round = 0; round < 100; ++round)
    team->run([&](unsigned thread) { ++rounds[thread]; });
  EXPECT_THAT(rounds, testing::Each(100));
}

} // namespace

//===- TransferCommandTest.cpp - What ctxpool-bench transfer does ---------===//
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

#include <filesystem>
#include <string>
#include <vector>

using namespace ctxpool::test;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

namespace json = llvm::json;

namespace {

const char *const ways[] = {
    "clone_cold",       "clone_known", "bytecode_verified",
    "bytecode_trusted", "text",        "in_context_clone"};

/// Bytecode holds one distinct attribute twice within text, where MLIR makes two
/// of it. Its text keeps it.
const char *const lostInBytecode = R"mlir(
#d = distinct[0]<unit>
func.func private @f() attributes {t.a = #d, t.b = #dlti.map<"k" = #d>}
)mlir";

const json::Object &getFile(const json::Object &report, size_t number) {
  return *(*report.getArray("files"))[number].getAsObject();
}

TEST(TransferCommandTest, PrintsARowForEachFileAndTheTotal) {
  TemporaryFolder folder;
  std::string a = folder.write("a.mlir", goodModule);
  std::string b = folder.write("b.mlir", "func.func private @other()");

  ToolRun run = runTool({"transfer", a, b});

  EXPECT_EQ(run.status, 0) << run.err;
  // A module, a function and its return; a module and a declaration.
  EXPECT_THAT(run.out, ContainsRegex("a\\.mlir +3 .* yes\n"));
  EXPECT_THAT(run.out, ContainsRegex("b\\.mlir +2 .* yes\n"));
  EXPECT_THAT(run.out, ContainsRegex("total +5 .* yes\n"));
  EXPECT_THAT(run.out, ContainsRegex("over bytecode verified .* 1\\.00 x"));
}

TEST(TransferCommandTest, JsonHasTheDocumentedFields) {
  TemporaryFolder folder;
  std::string path = folder.write("a.mlir", goodModule);

  json::Object report = parseReport(runTool({"transfer", path, "--json=-"}));

  EXPECT_EQ(report.getString("command"), "transfer");
  EXPECT_EQ(report.getInteger("schema"), 1);
  ASSERT_EQ(report.getArray("files")->size(), 1u);
  const json::Object &file = getFile(report, 0);
  EXPECT_EQ(file.getString("file"), path);
  EXPECT_EQ(file.getInteger("operations"), 3);
  EXPECT_EQ(file.getInteger("bytes"),
            int64_t(llvm::StringRef(goodModule).size()));
  EXPECT_EQ(file.getBoolean("equivalent"), true);
  ASSERT_TRUE(file.getObject("microseconds"));
  EXPECT_EQ(file.getObject("microseconds")->size(), std::size(ways));
  for (const char *way : ways)
    EXPECT_GT(file.getObject("microseconds")->getNumber(way).value_or(0), 0)
        << way;
}

TEST(TransferCommandTest, TotalSumsUpTheFiles) {
  TemporaryFolder folder;
  std::string a = folder.write("a.mlir", goodModule);
  std::string b = folder.write("b.mlir", "func.func private @other()");

  json::Object report = parseReport(runTool({"transfer", a, b, "--json=-"}));

  const json::Object &first = getFile(report, 0), &second = getFile(report, 1),
                     &total = *report.getObject("total");
  EXPECT_EQ(total.getInteger("operations"), 5);
  EXPECT_EQ(total.getInteger("bytes"),
            *first.getInteger("bytes") + *second.getInteger("bytes"));
  EXPECT_EQ(total.getBoolean("equivalent"), true);
  for (const char *way : ways)
    EXPECT_DOUBLE_EQ(*total.getObject("microseconds")->getNumber(way),
                     *first.getObject("microseconds")->getNumber(way) +
                         *second.getObject("microseconds")->getNumber(way))
        << way;
}

TEST(TransferCommandTest, JsonWithoutAFileGoesToStandardOutput) {
  json::Object report =
      parseReport(runTool({"transfer", "-", "--json"}, goodModule));

  EXPECT_EQ(getFile(report, 0).getString("file"), "<stdin>");
}

TEST(TransferCommandTest, JsonFileIsWrittenBesideTheTable) {
  TemporaryFolder folder;

  ToolRun run = runTool(
      {"transfer", "-", "--json=" + folder.getPath("out.json")}, goodModule);

  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("<stdin>"));
  llvm::Expected<json::Value> report =
      json::parse(readFile(folder.getPath("out.json")));
  ASSERT_TRUE(bool(report)) << llvm::toString(report.takeError());
  EXPECT_EQ(report->getAsObject()->getArray("files")->size(), 1u);
}

TEST(TransferCommandTest, ReportThatCannotBeWrittenExitsWithOne) {
  TemporaryFolder folder;

  ToolRun run =
      runTool({"transfer", "-", "--json=" + folder.getPath("none/out.json")},
              goodModule);

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("none/out.json"));
}

TEST(TransferCommandTest, AFileThatFailsIsNamedAndTheOthersAreMeasured) {
  TemporaryFolder folder;
  std::string bad = folder.write("bad.mlir", "func.func @f( {");
  std::string missing = folder.getPath("missing.mlir");
  std::string good = folder.write("good.mlir", goodModule);

  ToolRun run = runTool({"transfer", bad, missing, good, "--json=-"});

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("bad.mlir:1:14: error: "));
  EXPECT_THAT(run.err, HasSubstr("missing.mlir: cannot read the file"));
  json::Object report = parseReport(run);
  ASSERT_EQ(report.getArray("files")->size(), 3u);
  for (size_t number : {0, 1}) {
    EXPECT_TRUE(getFile(report, number).getString("error"));
    EXPECT_EQ(getFile(report, number).getBoolean("equivalent"), false);
    EXPECT_FALSE(getFile(report, number).get("microseconds"));
  }
  EXPECT_EQ(getFile(report, 2).getBoolean("equivalent"), true);
  EXPECT_EQ(report.getObject("total")->getInteger("operations"), 3);
  EXPECT_EQ(report.getObject("total")->getBoolean("equivalent"), false);
}

TEST(TransferCommandTest,
     AWayThatRefusesAModuleIsNamedAndTheOthersAreMeasured) {
  TemporaryFolder folder;
  std::string refused = folder.write("refused.mlir", lostInBytecode);
  std::string good = folder.write("good.mlir", goodModule);

  ToolRun run = runTool({"transfer", refused, good, "--json=-"});

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("refused.mlir: "), HasSubstr("'t.b'"),
                    ContainsRegex("ways '(bytecode_trusted', "
                                  "'bytecode_verified|bytecode_verified', "
                                  "'bytecode_trusted)': ")));
  // Both for one cause, which is told once.
  EXPECT_EQ(llvm::StringRef(run.err).count("'t.b'"), 1u) << run.err;
  json::Object report = parseReport(run);
  const json::Object &file = getFile(report, 0);
  EXPECT_EQ(file.getBoolean("equivalent"), false);
  EXPECT_THAT(file.getString("error").value_or("").str(), HasSubstr("'t.b'"));
  const json::Object &times = *file.getObject("microseconds");
  for (const char *way : {"bytecode_verified", "bytecode_trusted"})
    EXPECT_TRUE(times.get(way)->getAsNull()) << way;
  for (const char *way :
       {"clone_cold", "clone_known", "text", "in_context_clone"})
    EXPECT_GT(times.getNumber(way).value_or(0), 0) << way;
  // The ways are compared on what all of them carry.
  const json::Object &total = *report.getObject("total");
  EXPECT_EQ(total.getInteger("operations"), 3);
  EXPECT_EQ(total.getBoolean("equivalent"), false);
}

TEST(TransferCommandTest, ATotalOfNoReadableFileAnswersNothing) {
  ToolRun table = runTool({"transfer", "-"}, "func.func @f( {");
  EXPECT_EQ(table.status, 1);
  EXPECT_THAT(table.out, ContainsRegex("total +0 .* -\n"));

  json::Object report =
      parseReport(runTool({"transfer", "-", "--json"}, "func.func @f( {"));
  const json::Value *equivalent = report.getObject("total")->get("equivalent");
  ASSERT_TRUE(equivalent);
  EXPECT_TRUE(equivalent->getAsNull());
}

TEST(TransferCommandTest, AFileThatCrashesTheParserIsNamedAndOthersMeasured) {
  // Deeper than the stack that files are parsed on.
  std::string deep(1 << 20, '[');
  TemporaryFolder folder;
  std::string crashing =
      folder.write("crashing.mlir", "module attributes {t.a = " + deep);
  std::string good = folder.write("good.mlir", goodModule);

  ToolRun run = runTool({"transfer", crashing, good, "--json=-"});

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("crashing.mlir: crashed: signal 11 "
                                 "(Segmentation fault)"));
  json::Object report = parseReport(run);
  EXPECT_EQ(getFile(report, 0).getBoolean("equivalent"), false);
  EXPECT_EQ(getFile(report, 1).getBoolean("equivalent"), true);
}

TEST(TransferCommandTest, ModulesThatCrashUpstreamAreErrorsOfTheirFile) {
  auto folder = sharedDir("cases/inputs/crash");
  if (!folder)
    GTEST_SKIP() << "no folder of collected cases";
  std::vector<std::string> arguments = {
      "transfer", "--allow-unregistered-dialect", "--json=-", "-"};
  for (const std::filesystem::path &file : moduleFiles(*folder))
    arguments.push_back(file.string());

  ToolRun run = runTool(arguments, goodModule);

  EXPECT_EQ(run.status, 1);
  json::Object report = parseReport(run);
  ASSERT_EQ(report.getArray("files")->size(), arguments.size() - 3);
  EXPECT_EQ(getFile(report, 0).getBoolean("equivalent"), true);
  for (size_t number = 1; number < arguments.size() - 3; ++number)
    EXPECT_THAT(getFile(report, number).getString("error").value_or("").str(),
                HasSubstr("crashed: "))
        << arguments[number + 3];
}

TEST(TransferCommandTest, TableMarksWhatWasRefused) {
  ToolRun run = runTool({"transfer", "-"}, lostInBytecode);

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.out, ContainsRegex("<stdin> .* -  +-  .* NO\n"));
  EXPECT_THAT(run.out, ContainsRegex("total .* NO\n"));
  EXPECT_THAT(run.out, Not(HasSubstr("over bytecode verified")));
}

TEST(TransferCommandTest, TextMayLoseTheLocationsOfWhatItLeavesOut) {
  const char *located = R"mlir(
    func.func @f(%n: index) {
      "scf.for"(%n, %n, %n) ({
      ^bb0(%i: index):
        "scf.yield"() : () -> () loc("terminator")
      }) : (index, index, index) -> () loc("loop")
      return
    })mlir";

  EXPECT_EQ(runTool({"transfer", "-"}, located).status, 0);
}

TEST(TransferCommandTest, UnregisteredDialectsAreReadWhenAllowed) {
  const char *source = "\"some.op\"() {a = #other.attr<1>} : () -> ()";

  ToolRun run = runTool({"transfer", "-"}, source);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("<stdin>:1:10: error: "));
  EXPECT_EQ(
      runTool({"transfer", "--allow-unregistered-dialect", "-"}, source).status,
      0);
}

TEST(TransferCommandTest, FoldersAreSearchedRecursively) {
  TemporaryFolder folder;
  folder.write("b.mlir", goodModule);
  folder.write("sub/deep/a.mlir", goodModule);

  json::Object report =
      parseReport(runTool({"transfer", folder.getPath(""), "--json=-"}));

  EXPECT_EQ(report.getArray("files")->size(), 2u);
}

} // namespace

//===- DialectsCommandTest.cpp - What ctxpool-bench dialects does ---------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/bench/ToolRunner.h"

#include "llvm/ADT/STLExtras.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <string>
#include <vector>

using namespace ctxpool::test;
using testing::HasSubstr;

namespace json = llvm::json;

namespace {

const json::Object *findDialect(const json::Object &report,
                                llvm::StringRef name) {
  for (const json::Value &entry : *report.getArray("dialects"))
    if (entry.getAsObject()->getString("name") == name)
      return entry.getAsObject();
  return nullptr;
}

TEST(DialectsCommandTest, JsonHasTheFiguresOfEveryDialect) {
  ToolRun run = runTool({"dialects", "--json=-"});

  EXPECT_EQ(run.status, 0) << run.err;
  json::Object report = parseReport(run);
  EXPECT_EQ(report.getString("command"), "dialects");
  ASSERT_TRUE(report.getArray("dialects"));
  EXPECT_GT(report.getArray("dialects")->size(), 40u);
  for (const json::Value &entry : *report.getArray("dialects")) {
    const json::Object &dialect = *entry.getAsObject();
    SCOPED_TRACE(dialect.getString("name")->str());
    for (const char *field : {"load_us", "total_us", "operations", "types",
                              "attributes", "heap_bytes", "extension_share"})
      EXPECT_GE(dialect.getNumber(field).value_or(-1), 0) << field;
    EXPECT_LE(*dialect.getNumber("extension_share"), 1);
    EXPECT_TRUE(dialect.getArray("pulled_in_by"));
    EXPECT_TRUE(dialect.getBoolean("via_dependency").has_value());
  }
  const json::Object *llvmDialect = findDialect(report, "llvm");
  ASSERT_TRUE(llvmDialect);
  EXPECT_GT(*llvmDialect->getInteger("operations"), 200);
  EXPECT_GT(*report.getObject("total")->getInteger("operations"), 2000);
}

TEST(DialectsCommandTest, TellsWhoPulledADialectIn) {
  json::Object report = parseReport(runTool({"dialects", "--json=-"}));

  // Linear algebra is made of arithmetic.
  const json::Object *arith = findDialect(report, "arith");
  ASSERT_TRUE(arith);
  EXPECT_TRUE(llvm::any_of(
      *arith->getArray("pulled_in_by"),
      [](const json::Value &name) { return name.getAsString() == "linalg"; }));
}

TEST(DialectsCommandTest, TellsWhatATemplateForThePipelineLoads) {
  json::Object report = parseReport(
      runTool({"dialects", "--json=-",
               "--pass-pipeline=builtin.module(convert-func-to-llvm)"}));

  const json::Object *pipeline = report.getObject("pipeline");
  ASSERT_TRUE(pipeline);
  EXPECT_TRUE(
      llvm::is_contained(*pipeline->getArray("dialects"), json::Value("llvm")));
  EXPECT_FALSE(
      llvm::is_contained(*pipeline->getArray("dialects"), json::Value("tosa")));
  for (const char *field :
       {"clone_us", "full_clone_us", "clone_heap_bytes",
        "full_clone_heap_bytes", "saved_us", "saved_heap_bytes"})
    EXPECT_TRUE(pipeline->getNumber(field)) << field;
}

class SortTest
    : public testing::TestWithParam<std::pair<const char *, const char *>> {};

TEST_P(SortTest, PutsTheLargestFirst) {
  auto [key, field] = GetParam();
  json::Object report = parseReport(
      runTool({"dialects", "--json=-", std::string("--sort=") + key}));

  std::vector<double> values;
  for (const json::Value &entry : *report.getArray("dialects"))
    values.push_back(*entry.getAsObject()->getNumber(field));
  EXPECT_TRUE(llvm::is_sorted(llvm::reverse(values)));
}

INSTANTIATE_TEST_SUITE_P(Keys, SortTest,
                         testing::Values(std::pair("time", "load_us"),
                                         std::pair("bytes", "heap_bytes"),
                                         std::pair("ops", "operations")));

TEST(DialectsCommandTest, TableFitsInAHundredColumns) {
  ToolRun run =
      runTool({"dialects", "--pass-pipeline=builtin.module(sparsifier)"});

  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("The pipeline's template loads:"));
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(run.out).split(lines, '\n');
  for (llvm::StringRef line : lines)
    EXPECT_LE(line.size(), 100u) << line.str();
}

} // namespace

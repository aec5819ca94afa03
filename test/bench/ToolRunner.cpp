//===- ToolRunner.cpp - Runs ctxpool-bench in tests -----------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/bench/ToolRunner.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"

#include <optional>
#include <system_error>

using namespace ctxpool;
using namespace ctxpool::test;

const char *const test::goodModule =
    "// PIPELINE: builtin.module(convert-func-to-llvm)\n"
    "func.func @f(%a: i32) -> i32 { return %a : i32 }\n";

ToolRun test::runTool(llvm::ArrayRef<std::string> arguments,
                      llvm::StringRef input, llvm::StringRef errorPath) {
  TemporaryFolder folder;
  std::string in = folder.write("in", input);
  std::string out = folder.getPath("out");
  std::string err = errorPath.empty() ? folder.getPath("err") : errorPath.str();
  std::vector<llvm::StringRef> words = {CTXPOOL_TEST_TOOL};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::string message;
  ToolRun run;
  run.status = llvm::sys::ExecuteAndWait(
      CTXPOOL_TEST_TOOL, words, /*Env=*/std::nullopt,
      {llvm::StringRef(in), llvm::StringRef(out), llvm::StringRef(err)},
      /*SecondsToWait=*/300, /*MemoryLimit=*/0, &message);
  EXPECT_GE(run.status, 0) << message;
  run.out = readFile(out);
  if (errorPath.empty())
    run.err = readFile(err);
  return run;
}

llvm::json::Object test::parseReport(const ToolRun &run) {
  llvm::Expected<llvm::json::Value> report = llvm::json::parse(run.out);
  if (!report) {
    ADD_FAILURE() << llvm::toString(report.takeError()) << "\n"
                  << run.out << run.err;
    return {};
  }
  llvm::json::Object *object = report->getAsObject();
  EXPECT_TRUE(object) << run.out;
  return object ? std::move(*object) : llvm::json::Object();
}

llvm::json::Object test::getMode(const llvm::json::Object &report,
                                 llvm::StringRef mode) {
  if (const llvm::json::Array *modes = report.getArray("modes"))
    for (const llvm::json::Value &entry : *modes)
      if (const llvm::json::Object *object = entry.getAsObject())
        if (object->getString("mode") == mode)
          return *object;
  return {};
}

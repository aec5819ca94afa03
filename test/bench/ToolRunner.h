//===- ToolRunner.h - Runs ctxpool-bench in tests ------------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_TEST_BENCH_TOOLRUNNER_H
#define CONTEXT_POOL_TEST_BENCH_TOOLRUNNER_H

#include "test/support/Environment.h"
#include "test/support/TestFiles.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"

#include <string>
#include <vector>

namespace ctxpool::test {

/// What the tool did.
struct ToolRun {
  int status = -1;
  std::string out, err;
};

/// Runs the tool that this build made and waits for it. Its standard error is
/// captured, or goes to `errorPath` where one is given.
ToolRun runTool(llvm::ArrayRef<std::string> arguments,
                llvm::StringRef input = "", llvm::StringRef errorPath = "");

/// The report that the tool wrote to its standard output; fails the test and
/// returns an empty one where that is not a JSON object.
llvm::json::Object parseReport(const ToolRun &run);

/// The entry of a mode in a report of `compile`; empty where there is none.
llvm::json::Object getMode(const llvm::json::Object &report,
                           llvm::StringRef mode);

/// A module that lowers quickly, with its pipeline.
extern const char *const goodModule;

} // namespace ctxpool::test

#endif // CONTEXT_POOL_TEST_BENCH_TOOLRUNNER_H

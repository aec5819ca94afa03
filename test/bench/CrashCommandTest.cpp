//===- CrashCommandTest.cpp - Files on which MLIR crashes -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/bench/ToolRunner.h"

#include "context_pool/ModuleTransfer.h"
#include "test/support/StatusMatchers.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <string>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::test;
using testing::ContainsRegex;
using testing::HasSubstr;

namespace {

/// Bytecode that MLIR's verifier crashes on: the position is out of range.
/// Beside that, attributes nest so deep that the tool's threads do not have the
/// stack to read them.
std::string makeCrashingBytecode() {
  mlir::MLIRContext context;
  context.loadDialect<mlir::LLVM::LLVMDialect>();
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceString<mlir::ModuleOp>(
          R"mlir(
"llvm.func"() <{function_type = !llvm.func<void (i32)>,
                linkage = #llvm.linkage<external>, sym_name = "f"}> ({
^bb0(%a: i32):
  %u = "llvm.mlir.undef"() : () -> !llvm.struct<(struct<(i32, i32)>, i32)>
  %v = "llvm.insertvalue"(%u, %a) <{position = array<i64: 0, 214748364800>}>
      : (!llvm.struct<(struct<(i32, i32)>, i32)>, i32)
      -> !llvm.struct<(struct<(i32, i32)>, i32)>
  "llvm.return"() : () -> ()
}) : () -> ()
)mlir",
          mlir::ParserConfig(&context, /*verifyAfterParse=*/false));
  EXPECT_TRUE(module);
  mlir::Attribute nested = mlir::UnitAttr::get(&context);
  for (int depth = 0; depth < 9000; ++depth)
    nested = mlir::ArrayAttr::get(&context, nested);
  (*module)->setAttr("test.nested", nested);
  absl::StatusOr<SerializedModule> bytes = serialize(module->getOperation());
  EXPECT_THAT(bytes, IsOk());
  return bytes->getBytes().str();
}

class CrashCommandTest : public testing::Test {
protected:
  CrashCommandTest()
      : crashing(folder.write("crashing.mlirbc", makeCrashingBytecode())),
        good(folder.write("good.mlir", goodModule)) {}

  TemporaryFolder folder;
  const std::string crashing, good;
};

TEST_F(CrashCommandTest, ACrashOnALargerStackIsAnErrorOfTheFile) {
  struct Call {
    std::vector<std::string> arguments;
    const char *goodOnes; ///< What tells that they were served.
  };
  for (const Call &call : std::vector<Call>{
           {{"fingerprint", crashing, good}, "good\\.mlir\n"},
           {{"transfer", crashing, good}, "good\\.mlir .* yes\n"},
           {{"compile", crashing, good, "--modes=fresh,service",
             "--crash-recovery", "--requests=4", "--threads=1"},
            "fresh +4 +2 .*yes\nservice +4 +2 .*yes\n"},
           {{"jit", crashing, "--entry=f", "--crash-recovery"}, ""}}) {
    const std::string &command = call.arguments.front();
    ToolRun run = runTool(call.arguments);
    EXPECT_EQ(run.status, 1) << command << ": " << run.err;
    EXPECT_THAT(run.err, HasSubstr("crashing.mlirbc: ")) << command;
    EXPECT_THAT(run.err, HasSubstr("crashed: signal 11 (Segmentation fault)"))
        << command;
    EXPECT_THAT(run.out, ContainsRegex(call.goodOnes)) << command;
  }
  ToolRun diff = runTool({"diff", crashing, good});
  EXPECT_EQ(diff.status, 2);
  EXPECT_THAT(diff.err, HasSubstr("crashing.mlirbc: crashed: signal 11 "));
  ToolRun explain = runTool({"cache", "explain", crashing});
  EXPECT_EQ(explain.status, 2);
  EXPECT_THAT(explain.err, HasSubstr("crashing.mlirbc: crashed: signal 11 "));
}

TEST_F(CrashCommandTest, ATextsResourceOfNoAlignmentIsAnErrorOfTheFile) {
  // MLIR's parser would end the process, guarded or not.
  std::string file = folder.write(
      "zero.mlir",
      "module attributes {t.w = dense_resource<w> : tensor<4xi8>} {}\n"
      "{-# dialect_resources: { builtin: { w: \"0x0000000001020304\" } } "
      "#-}\n");
  const std::string pipeline = "--pass-pipeline=builtin.module(cse)";
  for (const auto &[arguments, status] :
       std::vector<std::pair<std::vector<std::string>, int>>{
           {{"fingerprint", file}, 1},
           {{"transfer", file}, 1},
           {{"diff", file, good}, 2},
           {{"cache", "explain", file, pipeline}, 2},
           {{"cache", "warm", file, pipeline,
             "--directory=" + folder.getPath("cache")},
            1},
           {{"compile", file, pipeline, "--requests=1", "--threads=1"}, 1},
           {{"jit", file, pipeline, "--entry=main"}, 1}}) {
    ToolRun run = runTool(arguments);
    EXPECT_EQ(run.status, status) << arguments.front() << ": " << run.err;
    EXPECT_THAT(run.err, HasSubstr("a resource in it has an alignment of zero"))
        << arguments.front();
    EXPECT_THAT(run.err, HasSubstr("zero.mlir")) << arguments.front();
  }
}

} // namespace

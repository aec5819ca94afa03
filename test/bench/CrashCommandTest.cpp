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
}

} // namespace

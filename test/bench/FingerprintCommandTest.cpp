//===- FingerprintCommandTest.cpp - ctxpool-bench fingerprint and diff ----===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ModuleTransfer.h"
#include "test/bench/ToolRunner.h"
#include "test/support/StatusMatchers.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>
#include <vector>

using namespace ctxpool::test;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;

namespace json = llvm::json;

namespace {

const char *const twoFunctions = R"mlir(
module @m {
  func.func @f(%a: i32) -> i32 {
    %b = arith.addi %a, %a : i32
    return %b : i32
  }
  module @inner {
    func.func private @g()
  }
}
)mlir";

/// A module with a resource of these bytes, as bytecode.
std::string makeBytecodeWithResource(llvm::ArrayRef<char> bytes) {
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  auto type = mlir::RankedTensorType::get({static_cast<int64_t>(bytes.size())},
                                          mlir::IntegerType::get(&context, 8));
  (*module)->setAttr("test.weights",
                     mlir::DenseResourceElementsAttr::get(
                         type, "weights",
                         mlir::HeapAsmResourceBlob::allocateAndCopyWithAlign(
                             bytes, alignof(uint64_t))));
  absl::StatusOr<ctxpool::SerializedModule> serialized =
      ctxpool::serialize(module->getOperation());
  EXPECT_THAT(serialized, IsOk());
  return serialized->getBytes().str();
}

/// The first word of a line.
std::string digestOf(const ToolRun &run) {
  return llvm::StringRef(run.out).split(' ').first.str();
}

//===----------------------------------------------------------------------===//
// fingerprint
//===----------------------------------------------------------------------===//

TEST(FingerprintCommandTest, PrintsDigestAndFileAsSha256sumDoes) {
  TemporaryFolder folder;
  std::string a = folder.write("a.mlir", twoFunctions);
  std::string b = folder.write("b.mlir", "func.func private @other()");

  ToolRun run = runTool({"fingerprint", a, b});

  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, IsEmpty());
  EXPECT_THAT(run.out, ContainsRegex("^[0-9a-f]{64}  .*a\\.mlir\n[0-9a-f]{64}  "
                                     ".*b\\.mlir\n$"));
}

TEST(FingerprintCommandTest, TextGenericTextAndStandardInputHaveOneDigest) {
  TemporaryFolder folder;
  std::string renamed = folder.write("renamed.mlir", R"mlir(
    "builtin.module"() <{sym_name = "m"}> ({
      func.func @f(%x: i32) -> i32 { %y = arith.addi %x, %x : i32 return %y : i32 }
      module @inner { func.func private @g() }
    }) : () -> ()
  )mlir");

  ToolRun fromInput = runTool({"fingerprint", "-"}, twoFunctions);
  ToolRun fromFile = runTool({"fingerprint", renamed});

  EXPECT_THAT(fromInput.out, HasSubstr("  <stdin>\n"));
  EXPECT_EQ(digestOf(fromInput), digestOf(fromFile));
}

TEST(FingerprintCommandTest,
     AFileThatCrashesTheParserIsNamedAndOthersDigested) {
  // Deeper than the stack that files are parsed on.
  std::string deep(1 << 20, '[');
  TemporaryFolder folder;
  std::string crashing =
      folder.write("crashing.mlir", "module attributes {t.a = " + deep);
  std::string good = folder.write("good.mlir", twoFunctions);

  ToolRun run = runTool({"fingerprint", crashing, good});

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("crashing.mlir: crashed: signal 11 "
                                 "(Segmentation fault)"));
  EXPECT_THAT(run.out, ContainsRegex("^[0-9a-f]{64}  .*good\\.mlir\n$"));
  ToolRun diff = runTool({"diff", crashing, good});
  EXPECT_EQ(diff.status, 2);
  EXPECT_THAT(diff.err, HasSubstr("crashing.mlir: crashed: signal 11 "));
}

TEST(FingerprintCommandTest, FunctionsHaveALineEachWithTheirPath) {
  ToolRun run = runTool({"fingerprint", "--functions", "-"}, twoFunctions);

  EXPECT_THAT(run.out, ContainsRegex("^[0-9a-f]{64}  <stdin>:@f\n[0-9a-f]{64}"
                                     "  <stdin>:@inner::@g\n$"));
}

TEST(FingerprintCommandTest, LocationsAndNamesCountAsAskedFor) {
  const char *source = "func.func private @f() { return } loc(\"x\")\n"
                       "func.func @main() { return }";
  const char *relocated = "func.func private @f() { return } loc(\"y\")\n"
                          "func.func @main() { return }";
  const char *renamed = "func.func private @g() { return } loc(\"x\")\n"
                        "func.func @main() { return }";
  auto digest = [](std::vector<std::string> options, const char *text) {
    options.insert(options.begin(), "fingerprint");
    options.push_back("-");
    return digestOf(runTool(options, text));
  };

  EXPECT_EQ(digest({}, source), digest({}, relocated));
  EXPECT_NE(digest({"--locations"}, source),
            digest({"--locations"}, relocated));
  EXPECT_NE(digest({}, source), digest({}, renamed));
  EXPECT_EQ(digest({"--symbols=normalize-private"}, source),
            digest({"--symbols=normalize-private"}, renamed));
}

TEST(FingerprintCommandTest, AFileThatFailsIsNamedAndTheOthersArePrinted) {
  TemporaryFolder folder;
  std::string good = folder.write("good.mlir", twoFunctions);
  std::string bad = folder.write("bad.mlir", "func.func @f( {");

  ToolRun run = runTool({"fingerprint", "--json=" + folder.getPath("out.json"),
                         bad, folder.getPath("missing.mlir"), good});

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("bad.mlir:1:14: error: "));
  EXPECT_THAT(run.err, HasSubstr("missing.mlir: cannot read the file"));
  EXPECT_THAT(run.out, ContainsRegex("^[0-9a-f]{64}  .*good\\.mlir\n$"));

  llvm::Expected<json::Value> report =
      json::parse(readFile(folder.getPath("out.json")));
  ASSERT_TRUE(bool(report));
  const json::Array &files = *report->getAsObject()->getArray("files");
  ASSERT_EQ(files.size(), 3u);
  EXPECT_TRUE(files[0].getAsObject()->getString("error"));
  EXPECT_TRUE(files[1].getAsObject()->getString("error"));
  EXPECT_EQ(files[2].getAsObject()->getString("digest"),
            llvm::StringRef(digestOf(run)));
}

TEST(FingerprintCommandTest, JsonOnStandardOutputTakesThePlaceOfTheLines) {
  json::Object report = parseReport(
      runTool({"fingerprint", "--functions", "--json=-", "-"}, twoFunctions));

  EXPECT_EQ(report.getString("command"), "fingerprint");
  const json::Object &file = *report.getArray("files")->front().getAsObject();
  EXPECT_EQ(file.getString("file"), "<stdin>");
  const json::Array &functions = *file.getArray("functions");
  ASSERT_EQ(functions.size(), 2u);
  EXPECT_EQ(functions[1].getAsObject()->getString("name"), "@inner::@g");
  EXPECT_EQ(functions[1].getAsObject()->getString("digest")->size(), 64u);
}

TEST(FingerprintCommandTest, UnregisteredDialectsAreReadWhenAllowed) {
  const char *source = "\"some.op\"() {a = #other.attr<1>} : () -> ()";

  EXPECT_EQ(runTool({"fingerprint", "-"}, source).status, 1);
  EXPECT_EQ(
      runTool({"fingerprint", "--allow-unregistered-dialect", "-"}, source)
          .status,
      0);
}

//===----------------------------------------------------------------------===//
// diff
//===----------------------------------------------------------------------===//

TEST(DiffCommandTest, ResourcesOfBytecodeAreComparedByTheirBytes) {
  TemporaryFolder folder;
  std::string first(1 << 20, '\1'), second(1 << 20, '\2');
  std::string a = folder.write("a.mlirbc", makeBytecodeWithResource(first));
  std::string same =
      folder.write("same.mlirbc", makeBytecodeWithResource(first));
  std::string b = folder.write("b.mlirbc", makeBytecodeWithResource(second));

  ToolRun equal = runTool({"diff", a, same});
  EXPECT_EQ(equal.status, 0) << equal.err;
  EXPECT_THAT(equal.out, IsEmpty());
  ToolRun different = runTool({"diff", a, b});
  EXPECT_EQ(different.status, 1) << different.err;
}

TEST(DiffCommandTest, PrintsNothingAndExitsWithZeroForEquivalentModules) {
  TemporaryFolder folder;
  std::string a = folder.write("a.mlir", twoFunctions);

  ToolRun run = runTool({"diff", a, "-"}, twoFunctions);

  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, IsEmpty());
  EXPECT_THAT(run.err, IsEmpty());
}

TEST(DiffCommandTest, PrintsTheFirstDifferenceAndExitsWithOne) {
  TemporaryFolder folder;
  std::string a = folder.write("a.mlir", twoFunctions);
  std::string changed = twoFunctions;
  changed.replace(changed.find("arith.addi"), 10, "arith.muli");

  ToolRun run = runTool({"diff", a, "-"}, changed);

  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, IsEmpty());
  EXPECT_THAT(run.out, HasSubstr("func.func @f"));
  EXPECT_THAT(run.out, HasSubstr("arith.addi"));
  EXPECT_THAT(run.out, HasSubstr("arith.muli"));
  EXPECT_EQ(llvm::StringRef(run.out).count('\n'), 1u);
}

TEST(DiffCommandTest, TroubleExitsWithTwo) {
  TemporaryFolder folder;
  std::string good = folder.write("good.mlir", twoFunctions);
  std::string bad = folder.write("bad.mlir", "func.func @f( {");

  for (const std::vector<std::string> &arguments :
       std::vector<std::vector<std::string>>{
           {"diff", good, bad},
           {"diff", good, folder.getPath("missing.mlir")},
           {"diff", good, folder.getPath("")},
           {"diff", good},
           {"diff", "-", "-"}}) {
    ToolRun run = runTool(arguments);
    EXPECT_EQ(run.status, 2) << run.out << run.err;
    EXPECT_THAT(run.out, IsEmpty());
    EXPECT_THAT(run.err, HasSubstr("ctxpool-bench: error: "));
  }
}

} // namespace

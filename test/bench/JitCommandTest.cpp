//===- JitCommandTest.cpp - What ctxpool-bench jit does -------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/bench/ToolRunner.h"
#include "test/support/TestContexts.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/Regex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <string>
#include <utility>
#include <vector>

using namespace ctxpool::test;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

namespace json = llvm::json;

namespace {

const char *const lowering =
    "// PIPELINE: builtin.module(one-shot-bufferize{"
    "bufferize-function-boundaries=true function-boundary-type-conversion="
    "identity-layout-map},func.func(convert-linalg-to-loops),"
    "convert-scf-to-cf,convert-arith-to-llvm,finalize-memref-to-llvm,"
    "convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)\n";

/// A folder with a file that holds such functions, and what runs it.
class JitCommandTest : public testing::Test {
protected:
  ToolRun run(llvm::StringRef text, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"jit", write(text)});
    return runTool(arguments);
  }
  json::Object report(llvm::StringRef text,
                      std::vector<std::string> arguments) {
    arguments.push_back("--json");
    return parseReport(run(text, std::move(arguments)));
  }
  std::string write(llvm::StringRef text) {
    return folder.write("module.mlir", lowering + text.str());
  }

  TemporaryFolder folder;
};

/// A run of a report; fails the test and is empty where there is none.
const json::Object &getRun(const json::Object &report, size_t number) {
  static const json::Object none;
  const json::Array *runs = report.getArray("runs");
  if (runs && number < runs->size())
    return *(*runs)[number].getAsObject();
  ADD_FAILURE() << "there is no run " << number;
  return none;
}

/// The entry of a result of a run, by the name of the list that it is in.
const json::Object &getEntry(const json::Object &report, size_t run,
                             size_t number, llvm::StringRef list = "results") {
  static const json::Object none;
  const json::Array *entries = getRun(report, run).getArray(list);
  if (entries && number < entries->size())
    return *(*entries)[number].getAsObject();
  ADD_FAILURE() << "there is no entry " << number << " of " << list.str();
  return none;
}

/// The values of a run, each as JSON text.
std::vector<std::string> getResults(const json::Object &report, size_t run,
                                    llvm::StringRef list = "results") {
  std::vector<std::string> texts;
  if (const json::Array *entries = getRun(report, run).getArray(list))
    for (const json::Value &entry : *entries)
      texts.push_back(llvm::formatv("{0}", *entry.getAsObject()->get("value")));
  return texts;
}

using Texts = std::vector<std::string>;

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

const char *const sum = R"mlir(
func.func @f(%a: i32, %b: i32) -> i32 {
  %c = arith.addi %a, %b : i32
  return %c : i32
}
)mlir";

TEST_F(JitCommandTest, SecondRunHitsFromAnotherContext) {
  json::Object result = report(sum, {"--entry=f", "--arg=40", "--arg=2"});

  EXPECT_EQ(result.getString("command"), "jit");
  EXPECT_EQ(result.getString("entry"), "f");
  ASSERT_TRUE(result.getArray("runs"));
  ASSERT_EQ(result.getArray("runs")->size(), 2u);
  EXPECT_EQ(getRun(result, 0).getString("object"), "compile");
  EXPECT_EQ(getRun(result, 0).getString("code"), "load");
  EXPECT_EQ(getRun(result, 1).getString("object"), "hit");
  EXPECT_EQ(getRun(result, 1).getString("code"), "hit");
  EXPECT_EQ(getRun(result, 0).getString("key"),
            getRun(result, 1).getString("key"));
  for (size_t number : {0, 1}) {
    EXPECT_EQ(getResults(result, number), Texts({"42"}));
    for (const char *stage :
         {"parse_us", "key_us", "object_us", "code_us", "call_us"})
      EXPECT_GT(getRun(result, number).getNumber(stage).value_or(0), 0)
          << stage;
  }
}

TEST_F(JitCommandTest, PrintsStagesAndResults) {
  ToolRun tool = run(sum, {"--entry=f", "--arg=40", "--arg=2", "--runs=3"});

  EXPECT_EQ(tool.status, 0) << tool.err;
  EXPECT_THAT(tool.out, testing::ContainsRegex("\n1 +[0-9.]+ +[0-9.]+ +compile "
                                               "+[0-9.]+ +load +[0-9.]+ +"));
  EXPECT_THAT(tool.out, testing::ContainsRegex("\n3 +[0-9.]+ +[0-9.]+ +hit "
                                               "+[0-9.]+ +hit +[0-9.]+ +"));
  EXPECT_THAT(tool.out, HasSubstr("result 0: i32 = 42\n"));
  EXPECT_THAT(tool.out, Not(HasSubstr("run 2:")));
}

TEST_F(JitCommandTest, RunsThatGiveOtherResultsAreAllPrinted) {
  ToolRun tool = run(R"mlir(
memref.global @calls : memref<i32> = dense<0>
func.func @f() -> i32 {
  %calls = memref.get_global @calls : memref<i32>
  %before = memref.load %calls[] : memref<i32>
  %one = arith.constant 1 : i32
  %now = arith.addi %before, %one : i32
  memref.store %now, %calls[] : memref<i32>
  return %now : i32
}
)mlir",
                     {"--entry=f"});

  EXPECT_EQ(tool.status, 0) << tool.err;
  EXPECT_THAT(tool.out, HasSubstr("run 1:\nresult 0: i32 = 1\n"
                                  "run 2:\nresult 0: i32 = 2\n"));
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

TEST_F(JitCommandTest, PassesNumbersOfEveryType) {
  json::Object result =
      report(R"mlir(
func.func @f(%a: i1, %b: i8, %c: i16, %d: i32, %e: i64, %f: index, %g: f16,
             %h: bf16, %i: f32, %j: f64)
    -> (i1, i8, i16, i32, i64, index, f16, bf16, f32, f64) {
  return %a, %b, %c, %d, %e, %f, %g, %h, %i, %j
      : i1, i8, i16, i32, i64, index, f16, bf16, f32, f64
}
)mlir",
             {"--entry=f", "--arg=true", "--arg=-128", "--arg=-2", "--arg=0x10",
              "--arg=-9223372036854775808", "--arg=7", "--arg=-1.5",
              "--arg=2.5", "--arg=1e10", "--arg=0.1"});

  EXPECT_EQ(getResults(result, 0),
            Texts({"1", "-128", "-2", "16", "-9223372036854775808", "7", "-1.5",
                   "2.5", "10000000000", "0.10000000000000001"}));
}

TEST_F(JitCommandTest, IntegersAreDecimalOrHexadecimalAfter0x) {
  const char *identity = R"mlir(
func.func @f(%a: i8, %b: i8, %c: i32, %d: i64) -> (i8, i8, i32, i64) {
  return %a, %b, %c, %d : i8, i8, i32, i64
}
)mlir";
  json::Object result =
      report(identity, {"--entry=f", "--arg=010", "--arg=-0x80", "--arg=+09",
                        "--arg=0xFFFFFFFFFFFFFFFF"});
  EXPECT_EQ(getResults(result, 0), Texts({"10", "-128", "9", "-1"}));

  for (const char *wrong : {"0b1", "0o7", "0x", "x1", "--1", "-+1", "-", "256",
                            "-129", "0x100", "-0x81", "1e2", ""}) {
    ToolRun tool = run(identity, {"--entry=f", std::string("--arg=") + wrong,
                                  "--arg=0", "--arg=0", "--arg=0"});
    EXPECT_EQ(tool.status, 2) << wrong;
    EXPECT_THAT(tool.err, HasSubstr("is not a number of type i8")) << wrong;
  }
}

TEST_F(JitCommandTest, NumbersThatJsonLacksAreText) {
  json::Object result = report(R"mlir(
func.func @f(%a: f32, %b: f64) -> (f32, f64) {
  return %a, %b : f32, f64
}
)mlir",
                               {"--entry=f", "--arg=inf", "--arg=nan"});

  EXPECT_EQ(getResults(result, 0), Texts({"\"+Inf\"", "\"NaN\""}));
}

const char *const scale = R"mlir(
func.func @f(%x: tensor<2x3xf32>, %by: f32) -> (tensor<2x3xf32>, i32) {
  %empty = tensor.empty() : tensor<2x3xf32>
  %filled = linalg.fill ins(%by : f32) outs(%empty : tensor<2x3xf32>)
      -> tensor<2x3xf32>
  %scaled = linalg.mul ins(%x, %filled : tensor<2x3xf32>, tensor<2x3xf32>)
      outs(%empty : tensor<2x3xf32>) -> tensor<2x3xf32>
  %done = arith.constant 7 : i32
  return %scaled, %done : tensor<2x3xf32>, i32
}
)mlir";

TEST_F(JitCommandTest, PassesAndReturnsArrays) {
  for (auto [argument, expected] :
       {std::pair("iota", "[0,0.5,1,1.5,2,2.5]"),
        std::pair("3", "[1.5,1.5,1.5,1.5,1.5,1.5]"),
        std::pair("2x3xf32=1,2,3, 4,5,-6", "[0.5,1,1.5,2,2.5,-3]")}) {
    json::Object result = report(
        scale, {"--entry=f", std::string("--arg=") + argument, "--arg=0.5"});

    EXPECT_EQ(getResults(result, 0), Texts({expected, "7"})) << argument;
    EXPECT_EQ(getResults(result, 1), Texts({expected, "7"})) << argument;
  }
}

TEST_F(JitCommandTest, PrintsArraysByRows) {
  ToolRun tool = run(scale, {"--entry=f", "--arg=iota", "--arg=1"});

  EXPECT_THAT(tool.out, HasSubstr("result 0: tensor<2x3xf32> =\n"
                                  "  [[0, 1, 2],\n"
                                  "   [3, 4, 5]]\n"
                                  "result 1: i32 = 7\n"));
}

TEST_F(JitCommandTest, ShowsMemrefsThatTheCallWroteTo) {
  json::Object result =
      report(R"mlir(
func.func @f(%from: memref<?xi16>, %to: memref<?xi16>) {
  memref.copy %from, %to : memref<?xi16> to memref<?xi16>
  return
}
)mlir",
             {"--entry=f", "--arg=4xi16=iota", "--arg=4xi16=9"});

  EXPECT_EQ(getResults(result, 0), Texts());
  EXPECT_EQ(getResults(result, 0, "written"), Texts({"[0,1,2,3]"}));
  EXPECT_EQ(getEntry(result, 0, 0, "written").getInteger("argument"), 1);
}

TEST_F(JitCommandTest, FreesNeitherArgumentsNorGlobalsNorAnythingTwice) {
  json::Object result = report(R"mlir(
memref.global constant @c : memref<2xi32> = dense<[5, 6]>
func.func @f(%x: memref<2xi32>)
    -> (memref<2xi32>, memref<2xi32>, memref<i32>, memref<i32>) {
  %c = memref.get_global @c : memref<2xi32>
  %new = memref.alloc() : memref<i32>
  %eight = arith.constant 8 : i32
  memref.store %eight, %new[] : memref<i32>
  return %x, %c, %new, %new
      : memref<2xi32>, memref<2xi32>, memref<i32>, memref<i32>
}
)mlir",
                               {"--entry=f", "--arg=iota", "--runs=3"});

  for (size_t number : {0, 1, 2})
    EXPECT_EQ(getResults(result, number),
              Texts({"[0,1]", "[5,6]", "[8]", "[8]"}));
}

TEST_F(JitCommandTest, ReadsWhatIsReturnedWithItsStrides) {
  json::Object result = report(R"mlir(
func.func @f(%x: memref<2x3xi8>) -> memref<3x2xi8, strided<[1, 3]>> {
  %t = memref.transpose %x (i, j) -> (j, i)
      : memref<2x3xi8> to memref<3x2xi8, strided<[1, 3]>>
  return %t : memref<3x2xi8, strided<[1, 3]>>
}
)mlir",
                               {"--entry=f", "--arg=iota"});

  EXPECT_EQ(getResults(result, 0), Texts({"[0,3,1,4,2,5]"}));
}

TEST_F(JitCommandTest, ResultsThatThePipelineMakesParametersAreResults) {
  std::string path =
      (sourceDir() / "bench/modules/batch_matmul_bias_relu.mlir").string();
  json::Object result =
      parseReport(runTool({"jit", path, "--entry=batch_matmul_bias_relu",
                           "--arg=0.5", "--arg=0.25", "--json"}));

  const json::Object &product = getEntry(result, 0, 0);
  EXPECT_EQ(product.getString("type"), "tensor<8x32x16xf32>");
  ASSERT_TRUE(product.getArray("value"));
  const json::Array &values = *product.getArray("value");
  ASSERT_EQ(values.size(), 8u * 32 * 16);
  // 64 products of 1/8, and the bias.
  EXPECT_EQ(values[0].getAsNumber(), 8.125);
  EXPECT_EQ(values[1].getAsNumber(), 7.75);
  EXPECT_EQ(values.back().getAsNumber(), 7);
}

TEST_F(JitCommandTest, CallsFunctionsOfTheLLVMDialect) {
  std::string path = folder.write("llvm.mlir", R"mlir(
llvm.func @f(%a: f64, %b: f64) -> f64 {
  %c = llvm.fmul %a, %b : f64
  llvm.return %c : f64
}
)mlir");
  json::Object result = parseReport(
      runTool({"jit", path, "--entry=f", "--arg=1.5", "--arg=3", "--json"}));

  EXPECT_EQ(getResults(result, 0), Texts({"4.5"}));
}

TEST_F(JitCommandTest, CompilesAtEveryLevelAndForTheGenericCpu) {
  std::vector<std::string> keys;
  for (const char *flag :
       {"--opt=0", "--opt=1", "--opt=2", "--opt=3", "--cpu=generic"}) {
    json::Object result =
        report(sum, {"--entry=f", "--arg=1", "--arg=2", flag});
    EXPECT_EQ(getResults(result, 0), Texts({"3"})) << flag;
    keys.push_back(getRun(result, 0).getString("key")->str());
  }
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), 5u);
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

TEST_F(JitCommandTest, EntryHasToBeDefined) {
  ToolRun tool =
      run(std::string(sum) + "func.func private @g()", {"--entry=nobody"});
  EXPECT_EQ(tool.status, 2);
  EXPECT_THAT(tool.err,
              HasSubstr("@nobody is not defined; what can be called is @f\n"));

  tool = run(std::string(sum) + "func.func private @g()", {"--entry=g"});
  EXPECT_EQ(tool.status, 2);
  EXPECT_THAT(tool.err,
              HasSubstr("@g has no body; what can be called is @f\n"));

  tool = run("func.func private @g()", {});
  EXPECT_EQ(tool.status, 2);
  EXPECT_THAT(tool.err,
              HasSubstr("@main is not defined; no function can be called\n"));
}

TEST_F(JitCommandTest, FunctionsThatAreLocalToTheModuleAreNotOffered) {
  std::string path = folder.write("llvm.mlir", R"mlir(
llvm.func internal @hidden() {
  llvm.return
}
llvm.func private @own() {
  llvm.return
}
llvm.func @open() {
  llvm.return
}
)mlir");
  for (const char *name : {"hidden", "own"}) {
    ToolRun tool = runTool({"jit", path, std::string("--entry=") + name});
    EXPECT_EQ(tool.status, 2);
    EXPECT_THAT(tool.err,
                HasSubstr(std::string("@") + name +
                          " is local to the module; what can be called is "
                          "@open\n"));
  }
  EXPECT_EQ(runTool({"jit", path, "--entry=open"}).status, 0);
}

TEST_F(JitCommandTest, OfManyFunctionsTheFirstAreNamed) {
  std::string functions;
  for (int number = 0; number < 13; ++number)
    functions += "func.func @f" + std::to_string(number) + "() { return }\n";
  EXPECT_THAT(
      run(functions, {"--entry=g"}).err,
      AllOf(HasSubstr("@f8, @f9 and 3 more\n"), Not(HasSubstr("@f10"))));
}

TEST_F(JitCommandTest, ArgumentsHaveToFit) {
  struct Case {
    const char *type;
    std::vector<std::string> arguments;
    const char *message;
  };
  for (const Case &wrong : std::vector<Case>{
           {"i32", {}, "@f takes 1 argument, (i32), and 0 are given"},
           {"i32", {"1", "2"}, "@f takes 1 argument, (i32), and 2 are given"},
           {"i32",
            {"1.5"},
            "argument 0 of @f: '1.5' is not a number of type i32"},
           {"i8", {"256"}, "'256' is not a number of type i8"},
           {"i1", {"2"}, "'2' is not a number of type i1"},
           {"f32", {"one"}, "'one' is not a number of type f32"},
           {"f32", {""}, "'' is not a number of type f32"},
           {"memref<2xf32>", {"1,2,3"}, "memref<2xf32> takes 2 values"},
           {"memref<2xf32>", {"1,x"}, "'x' is not an element of memref<2xf32>"},
           {"memref<2xf32>", {"3xf32=1"}, "'3xf32' is not a shape and type of"},
           {"memref<2xf32>", {"2xf64=1"}, "'2xf64' is not a shape and type of"},
           {"memref<2xf32>", {"2x2xf32=1"}, "'2x2xf32' is not a shape and"},
           {"memref<?x3xf16>",
            {"1"},
            "'1' does not say the shape of memref<?x3xf16>, as 4x3xf16=1 "
            "does"},
           {"memref<?xf32>",
            {"99999999999xf32=1"},
            "'99999999999xf32=1' has too many elements"}}) {
    std::vector<std::string> arguments = {"--entry=f"};
    for (const std::string &argument : wrong.arguments)
      arguments.push_back("--arg=" + argument);
    ToolRun tool = run("func.func @f(%a: " + std::string(wrong.type) +
                           ") {\n  return\n}\n",
                       arguments);
    EXPECT_EQ(tool.status, 2);
    EXPECT_THAT(tool.err, HasSubstr(wrong.message));
    EXPECT_EQ(tool.out, "");
  }
}

TEST_F(JitCommandTest, TypesHaveToBeOnesThatCanBePassed) {
  for (const char *type :
       {"vector<4xf32>", "memref<*xf32>", "memref<4xf32, 1>", "complex<f32>",
        "memref<4xi3>", "f80", "memref<4xf32, strided<[2]>>", "!llvm.ptr"}) {
    ToolRun tool =
        run("func.func @f(%a: " + std::string(type) + ") {\n  return\n}\n",
            {"--entry=f", "--arg=1"});
    EXPECT_EQ(tool.status, 2) << type;
    EXPECT_THAT(tool.err,
                HasSubstr("cannot be called with " + std::string(type)));
  }
}

TEST_F(JitCommandTest, CallingConventionHasToBeThatOfC) {
  std::string path = folder.write("conventions.mlir", R"mlir(
llvm.func cc_10 @f(%a: i64) -> i64 {
  llvm.return %a : i64
}
llvm.func ccc @g(%a: i64) -> i64 {
  llvm.return %a : i64
}
)mlir");
  ToolRun tool = runTool({"jit", path, "--entry=f", "--arg=5"});
  EXPECT_EQ(tool.status, 2);
  EXPECT_THAT(tool.err, HasSubstr("@f has the calling convention cc_10, and "
                                  "can be called with ccc only"));
  EXPECT_EQ(runTool({"jit", path, "--entry=g", "--arg=5"}).status, 0);
}

TEST_F(JitCommandTest, PipelineHasToLowerTheFunction) {
  std::string path = folder.write("none.mlir", sum);
  ToolRun tool = runTool({"jit", path, "--entry=f", "--arg=1", "--arg=2"});
  EXPECT_EQ(tool.status, 1);
  EXPECT_THAT(tool.err, HasSubstr("func.func"));
}

TEST_F(JitCommandTest, PipelineHasToMakeACInterface) {
  ToolRun tool =
      run(sum, {"--entry=f", "--arg=1", "--arg=2",
                "--pass-pipeline=builtin.module(convert-arith-to-llvm,"
                "convert-func-to-llvm{use-bare-ptr-memref-call-conv=true})"});
  EXPECT_EQ(tool.status, 1);
  EXPECT_THAT(tool.err, HasSubstr("the pipeline made no C interface of @f: "
                                  "@_mlir_ciface_f is missing"));
}

TEST_F(JitCommandTest, PipelineHasToKeepTheSignature) {
  ToolRun tool = run(R"mlir(
func.func @f(%a: index) -> index {
  return %a : index
}
)mlir",
                     {"--entry=f", "--arg=1",
                      "--pass-pipeline=builtin.module("
                      "convert-func-to-llvm{index-bitwidth=32})"});
  EXPECT_EQ(tool.status, 1);
  EXPECT_THAT(tool.err,
              AllOf(HasSubstr("the pipeline changes the signature of @f"),
                    HasSubstr("i32 (i32)"), HasSubstr("i64 (i64)")));
}

TEST_F(JitCommandTest, ResultsHaveToBeArrays) {
  ToolRun made = run("func.func @make(%n: index) -> memref<?xi32> {"
                     "  %a = memref.alloc(%n) : memref<?xi32>"
                     "  return %a : memref<?xi32>"
                     "}",
                     {"--entry=make", "--arg=-1"});
  EXPECT_EQ(made.status, 1);
  EXPECT_THAT(made.err, HasSubstr("has dimension -1, expected 0 or more"));
}

TEST_F(JitCommandTest, SymbolsHaveToBeDefined) {
  ToolRun tool = run(R"mlir(
func.func private @nowhere()
func.func @f() {
  call @nowhere() : () -> ()
  return
}
)mlir",
                     {"--entry=f"});
  EXPECT_EQ(tool.status, 1);
  EXPECT_THAT(tool.err, HasSubstr("nowhere"));
}

TEST_F(JitCommandTest, CommandLineHasToBeRight) {
  std::string path = write(sum);
  for (auto [arguments, message] :
       {std::pair(std::vector<std::string>{"jit"}, "no file is given"),
        std::pair(std::vector<std::string>{"jit", path, path},
                  "more than one file is given"),
        std::pair(std::vector<std::string>{"jit", path, "--runs=0"},
                  "--runs=0 serves nothing"),
        std::pair(std::vector<std::string>{"jit", path, "--opt=4"},
                  "--opt=4 is no level; there are 0 to 3"),
        std::pair(std::vector<std::string>{"jit", path, "--cpu=abacus"},
                  "has no 'abacus'"),
        std::pair(std::vector<std::string>{"jit", path, "--cache-mode=maybe"},
                  "--cache-mode: 'maybe' is not a mode"),
        std::pair(std::vector<std::string>{"jit", path, "--cache-size=1G"},
                  "which --cache-dir names")}) {
    ToolRun tool = runTool(arguments);
    EXPECT_EQ(tool.status, 2);
    EXPECT_THAT(tool.out, "");
    EXPECT_THAT(tool.err, HasSubstr(message));
  }
}

//===----------------------------------------------------------------------===//
// Caches that outlive the process
//===----------------------------------------------------------------------===//

TEST_F(JitCommandTest, FirstRunOfAnotherProcessHitsOnDisk) {
  std::vector<std::string> arguments = {
      "--entry=f", "--arg=40", "--arg=2",
      "--cache-dir=" + folder.getPath("cache"), "--cache-size=1G"};
  ToolRun first = run(sum, arguments);
  ToolRun second = run(sum, arguments);
  json::Object result = report(sum, arguments);

  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.out,
              testing::ContainsRegex("\n1 +[0-9.]+ +[0-9.]+ +compile "
                                     "+[0-9.]+ +load +"));
  EXPECT_THAT(first.out,
              HasSubstr(folder.getPath("cache") + " (1.0 GiB), read-write\n"));
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_THAT(second.out, testing::ContainsRegex(
                              "\n1 +[0-9.]+ +[0-9.]+ +disk hit +[0-9.]+ "
                              "+load +[^\n]*\n2 +[0-9.]+ +[0-9.]+ +hit +"));
  EXPECT_THAT(second.out, HasSubstr("result 0: i32 = 42\n"));
  EXPECT_EQ(result.getString("cache_directory"), folder.getPath("cache"));
  EXPECT_EQ(getRun(result, 0).getString("object"), "hit");
  EXPECT_EQ(getRun(result, 0).getString("tier"), "disk");
  EXPECT_EQ(getRun(result, 1).getString("tier"), "memory");
  EXPECT_EQ(getResults(result, 0), Texts({"42"}));
}

TEST_F(JitCommandTest, ModesSayWhatIsUsedAndKept) {
  for (auto [mode, object] : {std::pair("read-only", "compile"),
                              {"off", "compile"},
                              {"read-write", "compile"},
                              {"recompute", "compile"},
                              {"read-only", "hit"}}) {
    json::Object result = report(sum, {"--entry=f", "--arg=1", "--arg=2",
                                       "--cache-dir=" + folder.getPath("cache"),
                                       std::string("--cache-mode=") + mode});
    EXPECT_EQ(getRun(result, 0).getString("object"), object) << mode;
    EXPECT_EQ(result.getString("cache_mode"), mode);
    if (llvm::StringRef(object) == "compile")
      EXPECT_TRUE(getRun(result, 0).get("tier")->getAsNull()) << mode;
  }
}

TEST_F(JitCommandTest, AFaultOfTheFolderIsAWarning) {
  std::string file = folder.write("file", "no folder");
  ToolRun tool =
      run(sum, {"--entry=f", "--arg=1", "--arg=2", "--cache-dir=" + file});

  EXPECT_EQ(tool.status, 0);
  EXPECT_THAT(tool.out, HasSubstr("result 0: i32 = 3\n"));
  EXPECT_THAT(tool.err, testing::ContainsRegex("warning: the cache had [0-9]+ "
                                               "faults?, the last: .*file"));
}

//===----------------------------------------------------------------------===//
// Crashes
//===----------------------------------------------------------------------===//

TEST_F(JitCommandTest, WithCrashRecoveryACrashOfTheCodeIsAnErrorOfTheFile) {
  ToolRun tool = run(R"mlir(
llvm.func @f() -> i32 {
  %zero = llvm.mlir.constant(64 : i64) : i64
  %null = llvm.inttoptr %zero : i64 to !llvm.ptr
  %x = llvm.load volatile %null : !llvm.ptr -> i32
  llvm.return %x : i32
}
)mlir",
                     {"--entry=f", "--crash-recovery"});

  EXPECT_EQ(tool.status, 1);
  EXPECT_THAT(tool.err, AllOf(HasSubstr("module.mlir: crashed: signal 11 "
                                        "(Segmentation fault)"),
                              Not(HasSubstr("Stack dump"))));
}

TEST_F(JitCommandTest, WithCrashRecoveryACrashOfTheParserIsAnErrorOfTheFile) {
  // Deeper than the stack that files are parsed on.
  std::string path = folder.write("deep.mlir", "module attributes {t.a = " +
                                                   std::string(1 << 20, '['));
  ToolRun tool = runTool({"jit", path, "--crash-recovery"});

  EXPECT_EQ(tool.status, 1);
  EXPECT_THAT(tool.err, HasSubstr("deep.mlir: crashed: signal 11 "));
}

//===----------------------------------------------------------------------===//
// MLIR's own runner
//===----------------------------------------------------------------------===//

class RunnerTest : public JitCommandTest {
protected:
  void SetUp() override {
    if (llvm::StringRef(CTXPOOL_TEST_MLIR_RUNNER).ends_with("NOTFOUND"))
      GTEST_SKIP() << "there is no mlir-runner";
  }

  /// The module in the LLVM dialect, which mlir-runner wants.
  std::string lower(llvm::StringRef text) {
    registerPasses();
    auto context = fullTemplate()->clone();
    EXPECT_TRUE(context.ok());
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text, context->get());
    llvm::StringRef pipeline = llvm::StringRef(lowering).trim();
    pipeline.consume_front("// PIPELINE: ");
    auto parsed = mlir::parsePassPipeline(pipeline);
    EXPECT_TRUE(module && succeeded(parsed));
    mlir::PassManager passes(context->get(), parsed->getOpAnchorName());
    static_cast<mlir::OpPassManager &>(passes) = *std::move(parsed);
    EXPECT_TRUE(succeeded(passes.run(*module)));
    std::string lowered;
    llvm::raw_string_ostream stream(lowered);
    module->print(stream);
    return lowered;
  }

  /// What mlir-runner prints for @main.
  std::string runWithRunner(llvm::StringRef lowered, llvm::StringRef type) {
    std::string in = folder.write("lowered.mlir", lowered),
                out = folder.getPath("runner.out"),
                result = ("--entry-point-result=" + type).str();
    std::string message;
    int status = llvm::sys::ExecuteAndWait(
        CTXPOOL_TEST_MLIR_RUNNER,
        {CTXPOOL_TEST_MLIR_RUNNER, in, result,
         "--shared-libs=" CTXPOOL_TEST_RUNNER_LIBRARIES},
        /*Env=*/std::nullopt,
        {llvm::StringRef(), llvm::StringRef(out), llvm::StringRef()},
        /*SecondsToWait=*/300, /*MemoryLimit=*/0, &message);
    EXPECT_EQ(status, 0) << message;
    return readFile(out);
  }
};

TEST_F(RunnerTest, GivesTheSameNumber) {
  for (auto [type, value] :
       {std::pair("i32", "-123456"), std::pair("i64", "1234567890123"),
        std::pair("f32", "-0.375")}) {
    std::string text = llvm::formatv(
        "func.func @main() -> {0} {{\n  %x = arith.constant {1} : {0}\n"
        "  %y = arith.add{2} %x, %x : {0}\n  return %y : {0}\n}\n",
        type, value, type[0]);
    double expected = 0;
    std::string printed = runWithRunner(lower(text), type);
    ASSERT_FALSE(llvm::StringRef(printed).trim().getAsDouble(expected))
        << printed;

    json::Object result = report(text, {});
    EXPECT_EQ(getEntry(result, 0, 0).getNumber("value"), expected);
  }
}

TEST_F(RunnerTest, PrintsTheSameText) {
  const char *const text = R"mlir(
func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
func.func private @printF64(f64)
func.func private @printNewline()
func.func @main() {
  %a = memref.alloc() : memref<2x3xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  scf.for %i = %c0 to %c2 step %c1 {
    scf.for %j = %c0 to %c3 step %c1 {
      %ij = arith.muli %i, %j : index
      %n = arith.index_cast %ij : index to i32
      %f = arith.sitofp %n : i32 to f32
      %third = arith.constant 0.333333 : f32
      %x = arith.mulf %f, %third : f32
      memref.store %x, %a[%i, %j] : memref<2x3xf32>
    }
  }
  %u = memref.cast %a : memref<2x3xf32> to memref<*xf32>
  call @printMemrefF32(%u) : (memref<*xf32>) -> ()
  %d = arith.constant 2.718281828 : f64
  call @printF64(%d) : (f64) -> ()
  call @printNewline() : () -> ()
  memref.dealloc %a : memref<2x3xf32>
  return
}
)mlir";
  // Where the memory is differs from run to run.
  auto withoutAddress = [](llvm::StringRef printed) {
    return llvm::Regex("base@ = 0x[0-9a-f]+").sub("base@", printed);
  };
  std::string lowered = lower(text);
  std::string expected = withoutAddress(runWithRunner(lowered, "void"));
  ASSERT_THAT(expected, HasSubstr("0.333333,   0.666666"));

  for (const std::string &path :
       {write(text), folder.write("same.mlir", lowered)}) {
    ToolRun tool = runTool({"jit", path, "--runs=1"});
    EXPECT_EQ(tool.status, 0) << tool.err;
    EXPECT_THAT(withoutAddress(tool.out), StartsWith(expected));
  }
}

} // namespace

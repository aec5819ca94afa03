//===- GenerateCommandTest.cpp - What ctxpool-bench generate prints -------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/ModuleGenerator.h"
#include "bench/ResultDigest.h"
#include "test/bench/ToolRunner.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <string>

using namespace ctxpool;
using namespace ctxpool::test;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

std::string generate(unsigned functions, uint64_t seed, unsigned kib = 0) {
  bench::GeneratorOptions options;
  options.functions = functions;
  options.seed = seed;
  options.constantsKib = kib;
  std::string text;
  llvm::raw_string_ostream stream(text);
  bench::generateModule(options, stream);
  return text;
}

TEST(GenerateCommandTest, PrintsTheSameForTheSameSeed) {
  ToolRun run = runTool({"generate", "--functions=7", "--seed=42"});

  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, generate(7, 42));
  EXPECT_NE(run.out, generate(7, 43));
}

// The text must not change with the standard library or the machine: reports of
// different builds are compared.
TEST(GenerateCommandTest, TextOfASeedIsFixed) {
  EXPECT_EQ(llvm::toHex(bench::digestBytes(generate(12, 1, 3)),
                        /*LowerCase=*/true),
            "be0bdaec3e3f68a6ad5b91023b04b8a49bd520d88ace9e64ad9c9e3c5afa750a");
}

TEST(GenerateCommandTest, HasAsManyFunctionsAsAskedFor) {
  for (unsigned functions : {1u, 5u, 64u})
    EXPECT_EQ(
        llvm::StringRef(generate(functions, 3, 200)).count("func.func @f"),
        functions);
}

TEST(GenerateCommandTest, ConstantsHaveTheSizeThatIsAskedFor) {
  // Every byte is two digits of a `dense<"0x...">`.
  size_t without = generate(16, 5).size();
  size_t with = generate(16, 5, 300).size();
  EXPECT_NEAR(double(with - without), 2.0 * 300 * 1024, 20000);
  EXPECT_THAT(generate(1, 0, 1), HasSubstr("tensor<256xf32>"));
}

class GeneratedModuleTest : public testing::TestWithParam<unsigned> {};

TEST_P(GeneratedModuleTest, LowersInEveryModeWithThePipelineThatItCarries) {
  std::string text = generate(30, GetParam(), GetParam() % 2 * 100);
  EXPECT_THAT(text, StartsWith("// PIPELINE: builtin.module("));

  ToolRun run = runTool(
      {"compile", "-", "--json=-", "--requests=2", "--warmup=0", "--threads=2"},
      text);

  EXPECT_EQ(run.status, 0) << run.err;
}

INSTANTIATE_TEST_SUITE_P(Seeds, GeneratedModuleTest, testing::Range(0u, 6u));

} // namespace

//===- GenerateCommand.cpp - ctxpool-bench generate -----------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CommandLine.h"
#include "bench/Commands.h"
#include "bench/ModuleGenerator.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

using namespace ctxpool;
using namespace ctxpool::bench;
namespace cl = llvm::cl;

static constexpr unsigned maxFunctions = 1000000;
static constexpr unsigned maxConstantsKib = 4u << 20;

static cl::SubCommand generateCommand("generate",
                                      "print a module of a given size");
static cl::OptionCategory category("Options of generate");

static cl::opt<unsigned> functionCount("functions", cl::sub(generateCommand),
                                       cl::cat(category), cl::value_desc("n"),
                                       cl::init(10),
                                       cl::desc("Functions (default: 10)"));
static cl::opt<unsigned long long>
    seed("seed", cl::sub(generateCommand), cl::cat(category),
         cl::value_desc("s"), cl::init(0),
         cl::desc("Which of the modules of that size (default: 0)"));
static cl::opt<unsigned> constantsKib(
    "constants-kib", cl::sub(generateCommand), cl::cat(category),
    cl::value_desc("k"), cl::init(0),
    cl::desc("Total size of the dense constants in KiB, which are\n"
             "spread over the functions (default: 0)"));
static constexpr llvm::StringLiteral explanation = R"(
The text is the same for the same options on every machine. Its first line names
the pipeline that lowers it.
)";

int bench::runGenerate(int argc, char **argv) {
  if (!parseCommandLine(argc, argv, generateCommand, category, explanation))
    return exitUsage;
  if (functionCount == 0 || functionCount > maxFunctions)
    return usageError("--functions=" + std::to_string(functionCount) +
                          ": between 1 and " + std::to_string(maxFunctions),
                      "generate");
  if (constantsKib > maxConstantsKib)
    return usageError("--constants-kib=" + std::to_string(constantsKib) +
                          ": at most " + std::to_string(maxConstantsKib),
                      "generate");
  GeneratorOptions options;
  options.functions = functionCount;
  options.seed = seed;
  options.constantsKib = constantsKib;
  generateModule(options, llvm::outs());
  return exitSuccess;
}

//===- MicroCommand.cpp - Measures the parts of the library ---------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CommandLine.h"
#include "bench/Commands.h"
#include "bench/Environment.h"
#include "bench/Statistics.h"
#include "bench/micro/Benchmarks.h"
#include "bench/micro/Figure.h"

#include "benchmark/benchmark.h"
#include "mlir/InitAllPasses.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;

namespace cl = llvm::cl;

static cl::SubCommand microCommand("micro", "Measure the parts of the library");
static cl::OptionCategory microCategory("Options of ctxpool-bench micro");

static cl::opt<bool>
    summary("summary",
            cl::desc("Print a line for each figure that is asked for"),
            cl::sub(microCommand), cl::cat(microCategory));
static cl::list<std::string>
    only("only", cl::CommaSeparated, cl::value_desc("id,..."),
         cl::desc("Take these figures only; R1 takes R1-own and the\n"
                  "like as well"),
         cl::sub(microCommand), cl::cat(microCategory));
static cl::opt<std::string> jsonFile("json", cl::value_desc("file"),
                                     cl::desc("Write the figures as JSON; "
                                              "'-': to standard output"),
                                     cl::sub(microCommand),
                                     cl::cat(microCategory));

/// A value with three significant digits, and none after the point where it is
/// a whole number.
static std::string format(double value) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (value == std::floor(value) && std::abs(value) < 1e6)
    stream << static_cast<long long>(value);
  else
    stream << llvm::format("%.3g", value);
  return text;
}

static std::vector<Figure> makeFigures() {
  std::vector<Figure> figures = makeContextFigures();
  for (auto *make :
       {makeIrFigures, makeTransferFigures, makeCacheFigures, makeTierFigures})
    for (Figure &figure : make())
      figures.push_back(std::move(figure));
  return figures;
}

/// Whether `--only=name` takes the figure: its own name, or what stands before
/// its `-` or `/`.
static bool isNamed(const Figure &figure, llvm::StringRef name) {
  llvm::StringRef id = figure.id;
  return id == name ||
         id.take_until([](char c) { return c == '-' || c == '/'; }) == name;
}

static int runSummary(int argc, char **argv) {
  std::vector<Figure> figures = makeFigures();
  for (const std::string &name : only) {
    if (llvm::any_of(figures, [&](const Figure &figure) {
          return isNamed(figure, name);
        }))
      continue;
    std::vector<std::string> known;
    for (const Figure &figure : figures)
      known.push_back(figure.id);
    return usageError("--only: there is no figure '" + name + "'; there are " +
                          llvm::join(known, ", "),
                      "micro");
  }
  llvm::erase_if(figures, [](const Figure &figure) {
    return !only.empty() && llvm::none_of(only, [&](const std::string &name) {
      return isNamed(figure, name);
    });
  });

  if (!jsonFile.empty() && !canWriteReport(jsonFile))
    return exitFailure;
  warnOfHandicap();
  mlir::registerAllPasses();
  bool allReached = true;
  llvm::json::Array entries;
  for (const Figure &figure : figures) {
    absl::StatusOr<std::vector<double>> samples = figure.measure();
    llvm::json::Object entry{{"id", figure.id},
                             {"what", figure.what},
                             {"bound", figure.bound == Figure::Bound::AtMost
                                           ? "at_most"
                                           : "at_least"},
                             {"asked", figure.asked},
                             {"unit", figure.unit}};
    llvm::raw_ostream &out = llvm::outs();
    out << llvm::left_justify(figure.id, 12);
    if (absl::IsUnimplemented(samples.status())) {
      out << "skipped " << figure.what << ": "
          << std::string(samples.status().message()) << "\n";
      entry["skipped"] = std::string(samples.status().message());
    } else if (!samples.ok()) {
      out << "FAILED  " << figure.what << ": " << samples.status().ToString()
          << "\n";
      entry["error"] = samples.status().ToString();
      entry["reached"] = false;
      allReached = false;
    } else {
      auto [lowest, highest] =
          std::minmax_element(samples->begin(), samples->end());
      double middle = median(*samples);
      bool reached = figure.isReachedBy(middle);
      allReached &= reached;
      std::string asked =
          (figure.bound == Figure::Bound::AtMost ? "<= " : ">= ") +
          format(figure.asked) + " " + figure.unit;
      out << (reached ? "ok      " : "SHORT   ")
          << llvm::left_justify(asked, 12)
          << llvm::left_justify(format(middle) + " (" + format(*lowest) +
                                    " to " + format(*highest) + ")",
                                28)
          << figure.what << "\n";
      entry["median"] = middle;
      entry["min"] = *lowest;
      entry["max"] = *highest;
      entry["samples"] = llvm::json::Array(*samples);
      entry["reached"] = reached;
    }
    out.flush();
    entries.push_back(std::move(entry));
  }
  llvm::json::Object report = makeReport("micro", llvm::ArrayRef(argv, argc));
  report["figures"] = std::move(entries);
  if (!jsonFile.empty() && !writeReport(std::move(report), jsonFile))
    return exitFailure;
  return allReached ? exitSuccess : exitFailure;
}

/// All arguments but the command's name are Google Benchmark's.
static int runBenchmarks(int argc, char **argv) {
  std::vector<char *> arguments(argv, argv + argc);
  arguments.erase(arguments.begin() + 1);
  int count = arguments.size();
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data());
  // Those that it knows are gone.
  if (count > 1)
    return usageError("'" + llvm::Twine(arguments[1]) +
                          "' is not an option of micro",
                      "micro");
  mlir::registerAllPasses();
  warnOfHandicap();
  benchmark::AddCustomContext("mlir_version", getEnvironment().mlirVersion);
  benchmark::AddCustomContext("link_mode", getEnvironment().linkMode);
  registerContextBenchmarks();
  if (benchmark::RunSpecifiedBenchmarks() == 0)
    return exitFailure;
  benchmark::Shutdown();
  return exitSuccess;
}

int bench::runMicro(int argc, char **argv) {
  // Google Benchmark prints its own help. Everything belongs to it unless the
  // summary is asked for.
  bool isSummary = llvm::any_of(
      llvm::ArrayRef(argv, argc).drop_front(2), [](llvm::StringRef argument) {
        return argument.ltrim('-').starts_with("summary");
      });
  if (!isSummary)
    return runBenchmarks(argc, argv);
  if (!parseCommandLine(argc, argv, microCommand, microCategory))
    return exitUsage;
  return runSummary(argc, argv);
}

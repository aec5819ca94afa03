//===- DialectsCommand.cpp - ctxpool-bench dialects -----------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CommandLine.h"
#include "bench/Commands.h"
#include "bench/Environment.h"
#include "bench/PipelineFlags.h"
#include "bench/ProcessInfo.h"
#include "bench/ReportFlag.h"
#include "bench/Statistics.h"
#include "bench/TextTable.h"

#include "context_pool/ContextTemplate.h"

#include "absl/status/statusor.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;
namespace cl = llvm::cl;

static cl::SubCommand
    dialectsCommand("dialects",
                    "tell what loading each dialect costs a context");
static cl::OptionCategory category("Options of dialects");

static PipelineFlags
    pipelineFlags(dialectsCommand, category,
                  "tell as well what a template for it loads and saves",
                  PipelineFlags::Use::IsLookedAt);
static cl::opt<std::string>
    sortKey("sort", cl::sub(dialectsCommand), cl::cat(category),
            cl::value_desc("key"),
            cl::desc("Largest first by time (own load time), bytes or ops\n"
                     "(default: as they are loaded)"));
static ReportFlag reportFlag(dialectsCommand, category);
static constexpr llvm::StringLiteral explanation = R"(
Times are medians in microseconds, of loading a dialect where what it depends on
is loaded (load), and of loading it with all that into an empty context (with all).
)";

namespace {
/// What making a context of a template costs: medians.
struct CloneCost {
  double microseconds = 0;
  double bytes = 0;
};

/// A template for the pipeline next to one with every dialect.
struct PipelineCost {
  std::vector<std::string> dialects;
  CloneCost all, needed;
};
} // namespace

static absl::StatusOr<std::shared_ptr<const ContextTemplate>>
createTemplate(const mlir::DialectRegistry &registry, std::string pipeline) {
  ContextTemplateOptions options;
  options.name = pipeline.empty() ? "all dialects" : "pipeline";
  options.populate = [&](mlir::DialectRegistry &populated) {
    registry.appendTo(populated);
  };
  if (!pipeline.empty())
    options.preload.emplace();
  options.preloadForPipeline = std::move(pipeline);
  return ContextTemplate::create(std::move(options));
}

/// Clones the templates in turns, so that a slow moment hits all of them.
static absl::StatusOr<std::vector<CloneCost>>
measureClones(llvm::ArrayRef<const ContextTemplate *> templates) {
  constexpr unsigned repetitions = 15;
  std::vector<std::vector<double>> times(templates.size());
  std::vector<std::vector<double>> bytes(templates.size());
  for (unsigned repetition = 0; repetition <= repetitions; ++repetition)
    for (auto [number, contextTemplate] : llvm::enumerate(templates)) {
      size_t heapBefore = getHeapBytes();
      double begin = getWallSeconds();
      absl::StatusOr<std::unique_ptr<mlir::MLIRContext>> context =
          contextTemplate->clone();
      double end = getWallSeconds();
      if (!context.ok())
        return context.status();
      // The first round pays for what the process does once.
      if (repetition == 0)
        continue;
      times[number].push_back((end - begin) * 1e6);
      bytes[number].push_back(double(getHeapBytes()) - double(heapBefore));
    }
  std::vector<CloneCost> costs;
  for (auto [time, size] : llvm::zip(times, bytes))
    costs.push_back({median(time), median(size)});
  return costs;
}

static void sortCosts(std::vector<DialectCost> &costs) {
  auto sortBy = [&](auto key) {
    llvm::sort(costs, [&](const DialectCost &a, const DialectCost &b) {
      return key(a) != key(b) ? key(a) > key(b) : a.name < b.name;
    });
  };
  if (sortKey == "time")
    sortBy([](const DialectCost &cost) { return cost.loadMicroseconds; });
  else if (sortKey == "bytes")
    sortBy([](const DialectCost &cost) { return cost.bytes; });
  else if (sortKey == "ops")
    sortBy([](const DialectCost &cost) { return cost.operations; });
}

/// As many of the names as fit in a line, and how many are left.
static std::string abbreviate(llvm::ArrayRef<std::string> names, size_t width) {
  std::string text;
  for (auto [number, name] : llvm::enumerate(names)) {
    std::string left = llvm::formatv(" +{0}", names.size() - number);
    if (text.size() + name.size() + 1 + left.size() > width && number)
      return text + left;
    text += (number ? " " : "") + name;
  }
  return text;
}

static std::string formatKib(double bytes) {
  return llvm::formatv("{0:F1}", bytes / 1024);
}

static DialectCost sum(llvm::ArrayRef<DialectCost> costs) {
  DialectCost total;
  double extensions = 0;
  for (const DialectCost &cost : costs) {
    total.loadMicroseconds += cost.loadMicroseconds;
    total.operations += cost.operations;
    total.types += cost.types;
    total.attributes += cost.attributes;
    total.bytes += cost.bytes;
    extensions += cost.loadMicroseconds * cost.extensionShare;
  }
  if (total.loadMicroseconds > 0)
    total.extensionShare = extensions / total.loadMicroseconds;
  return total;
}

static void printTable(llvm::ArrayRef<DialectCost> costs) {
  constexpr size_t pulledWidth = 26;
  TextTable table({0, 8});
  table.addRow({"", "load", "with all", "", "", "", "heap", "of load in",
                "pulled in by"});
  table.addRow({"dialect", "us", "us", "ops", "types", "attrs", "KiB",
                "extensions", ""});
  table.addRule();
  for (const DialectCost &cost : costs)
    table.addRow({cost.name, llvm::formatv("{0:F1}", cost.loadMicroseconds),
                  llvm::formatv("{0:F1}", cost.totalMicroseconds),
                  std::to_string(cost.operations), std::to_string(cost.types),
                  std::to_string(cost.attributes),
                  formatKib(double(cost.bytes)),
                  llvm::formatv("{0:F0}%", cost.extensionShare * 100),
                  abbreviate(cost.pulledInBy, pulledWidth)});
  table.addRule();
  DialectCost total = sum(costs);
  table.addRow({std::to_string(costs.size()) + " dialects",
                llvm::formatv("{0:F1}", total.loadMicroseconds), "",
                std::to_string(total.operations), std::to_string(total.types),
                std::to_string(total.attributes),
                formatKib(double(total.bytes)),
                llvm::formatv("{0:F0}%", total.extensionShare * 100)});
  table.print(llvm::outs());
}

static void printPipeline(const PipelineCost &cost) {
  auto share = [](double part, double whole) -> std::string {
    return whole > 0 ? llvm::formatv("{0:F0}%", part / whole * 100).str() : "?";
  };
  TextTable table;
  table.addRow({"a context of a template", "dialects", "us", "KiB"});
  table.addRule();
  table.addRow({"with every dialect", "all",
                llvm::formatv("{0:F0}", cost.all.microseconds),
                formatKib(cost.all.bytes)});
  table.addRow({"for the pipeline", std::to_string(cost.dialects.size()),
                llvm::formatv("{0:F0}", cost.needed.microseconds),
                formatKib(cost.needed.bytes)});
  table.addRow({"saved", "",
                share(cost.all.microseconds - cost.needed.microseconds,
                      cost.all.microseconds),
                share(cost.all.bytes - cost.needed.bytes, cost.all.bytes)});
  llvm::outs() << "\n";
  table.print(llvm::outs());

  std::string line = "The pipeline's template loads:";
  for (const std::string &name : cost.dialects) {
    if (line.size() + 1 + name.size() > 98) {
      llvm::outs() << line << "\n";
      line = " ";
    }
    line += " " + name;
  }
  llvm::outs() << line << "\n";
}

static llvm::json::Object makeJson(llvm::ArrayRef<DialectCost> costs,
                                   const std::optional<PipelineCost> &pipeline,
                                   llvm::ArrayRef<char *> commandLine) {
  auto figures = [](const DialectCost &cost) {
    return llvm::json::Object{{"load_us", cost.loadMicroseconds},
                              {"operations", cost.operations},
                              {"types", cost.types},
                              {"attributes", cost.attributes},
                              {"heap_bytes", cost.bytes},
                              {"extension_share", cost.extensionShare}};
  };
  llvm::json::Object report = makeReport("dialects", commandLine);
  llvm::json::Array dialects;
  for (const DialectCost &cost : costs) {
    llvm::json::Object entry = figures(cost);
    entry["name"] = cost.name;
    entry["total_us"] = cost.totalMicroseconds;
    entry["via_dependency"] = cost.viaDependency;
    entry["pulled_in_by"] = llvm::json::Array(cost.pulledInBy);
    dialects.push_back(std::move(entry));
  }
  report["dialects"] = std::move(dialects);
  report["total"] = figures(sum(costs));
  if (pipeline) {
    const CloneCost &all = pipeline->all, &needed = pipeline->needed;
    report["pipeline"] = llvm::json::Object{
        {"text", llvm::json::fixUTF8(pipelineFlags.getPipeline())},
        {"dialects", llvm::json::Array(pipeline->dialects)},
        {"clone_us", needed.microseconds},
        {"clone_heap_bytes", needed.bytes},
        {"full_clone_us", all.microseconds},
        {"full_clone_heap_bytes", all.bytes},
        {"saved_us", all.microseconds - needed.microseconds},
        {"saved_heap_bytes", all.bytes - needed.bytes}};
  }
  return report;
}

int bench::runDialects(int argc, char **argv) {
  if (!parseCommandLine(argc, argv, dialectsCommand, category, explanation))
    return exitUsage;
  if (sortKey.getNumOccurrences() && sortKey != "time" && sortKey != "bytes" &&
      sortKey != "ops")
    return usageError("--sort: '" + sortKey +
                          "' is not one of time, bytes and ops",
                      "dialects");
  if (std::string complaint = reportFlag.check(); !complaint.empty())
    return usageError(complaint, "dialects");

  mlir::DialectRegistry registry;
  if (int status = pipelineFlags.setUp(registry, "dialects"))
    return status;
  if (!reportFlag.canWrite())
    return exitFailure;
  warnOfHandicap();

  auto fail = [](const absl::Status &status) {
    printError(std::string(status.message()));
    return exitFailure;
  };
  absl::StatusOr<std::shared_ptr<const ContextTemplate>> all =
      createTemplate(registry, "");
  if (!all.ok())
    return fail(all.status());
  std::vector<DialectCost> costs = (*all)->measureDialectCosts();
  sortCosts(costs);

  std::optional<PipelineCost> pipelineCost;
  if (!pipelineFlags.getPipeline().empty()) {
    absl::StatusOr<std::shared_ptr<const ContextTemplate>> needed =
        createTemplate(registry, pipelineFlags.getPipeline());
    if (!needed.ok())
      return fail(needed.status());
    absl::StatusOr<std::vector<CloneCost>> clones =
        measureClones({all->get(), needed->get()});
    if (!clones.ok())
      return fail(clones.status());
    pipelineCost = {(*needed)->getPreloadedDialects().vec(), (*clones)[0],
                    (*clones)[1]};
  }

  if (reportFlag.leavesStandardOutput()) {
    llvm::outs() << "ctxpool-bench " << getEnvironment().version
                 << " dialects: medians of repetitions in turns\n"
                 << getEnvironment().describeBuild() << "\n\n";
    printTable(costs);
    if (pipelineCost)
      printPipeline(*pipelineCost);
    llvm::outs().flush();
  }
  bool written = reportFlag.write([&] {
    return makeJson(costs, pipelineCost, llvm::ArrayRef(argv, argc));
  });
  return written ? exitSuccess : exitFailure;
}

//===- CompileCommand.cpp - ctxpool-bench compile -------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CacheFlags.h"
#include "bench/CommandLine.h"
#include "bench/Commands.h"
#include "bench/CompileInput.h"
#include "bench/CompileMode.h"
#include "bench/CompileRun.h"
#include "bench/CrashGuard.h"
#include "bench/Environment.h"
#include "bench/ModuleSource.h"
#include "bench/ModuleVariants.h"
#include "bench/PipelineFlags.h"
#include "bench/ProgressLine.h"
#include "bench/ReportFlag.h"
#include "bench/Statistics.h"
#include "bench/TextTable.h"
#include "bench/ThreadTeam.h"

#include "context_pool/support/Pipeline.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;
namespace cl = llvm::cl;

static constexpr unsigned maxThreads = 1024;
static constexpr unsigned maxRequests = 100000000;

static cl::SubCommand
    compileCommand("compile",
                   "serve the same requests in several ways, and compare");
static cl::OptionCategory category("Options of compile");

static cl::list<std::string> files(cl::Positional, cl::sub(compileCommand),
                                   cl::cat(category), cl::desc("[FILES...]"));
static PipelineFlags
    pipelineFlags(compileCommand, category,
                  "overrides the one that a file names in its first\n"
                  "line, // PIPELINE: <text>");
static cl::list<std::string>
    modeNames("modes", cl::sub(compileCommand), cl::cat(category),
              cl::CommaSeparated, cl::value_desc("a,b,..."),
              cl::desc("Ways to serve a request (default: all of these):\n"
                       "fresh: a new context with every dialect loaded\n"
                       "fresh-lazy: a new context, dialects on demand\n"
                       "pool: a lease of a context pool\n"
                       "pool+cache: the same behind a compile cache\n"
                       "service: a compile service for each pipeline, on one\n"
                       "pool and one cache"));
static cl::opt<std::string>
    inputName("input", cl::sub(compileCommand), cl::cat(category),
              cl::value_desc("what"), cl::init("files"),
              cl::desc("What a request brings:\n"
                       "files: the bytes of the file (default)\n"
                       "text: text; bytecode is printed beforehand\n"
                       "bytecode: bytecode; text is written beforehand\n"
                       "module: a module that is live in a context of a\n"
                       "front end, and is cloned from there"));
static cl::opt<std::string>
    outputName("output", cl::sub(compileCommand), cl::cat(category),
               cl::value_desc("what"), cl::init("module"),
               cl::desc("What a request gets:\n"
                        "module: the module after its pipeline, as bytecode\n"
                        "(default)\n"
                        "llvmir: optimised LLVM IR, as bitcode\n"
                        "object: an object file for this machine"));
static cl::opt<unsigned> duplicatePercent(
    "duplicates", cl::sub(compileCommand), cl::cat(category),
    cl::value_desc("percent"), cl::init(100),
    cl::desc("How many of the measured requests repeat a module\n"
             "of warm-up (default: 100); the others bring one that\n"
             "nobody saw before. Where it is given, live modules\n"
             "come each from a context of its own"));
static cl::opt<unsigned>
    threadCount("threads", cl::sub(compileCommand), cl::cat(category),
                cl::value_desc("n"),
                cl::desc("Compile threads (default: one a processor)"));
static cl::opt<unsigned> requestCount(
    "requests", cl::sub(compileCommand), cl::cat(category), cl::value_desc("k"),
    cl::init(512),
    cl::desc("Measured requests of each mode (default: 512, or one\n"
             "a module if that is more)"));
static cl::opt<unsigned>
    warmupCount("warmup", cl::sub(compileCommand), cl::cat(category),
                cl::value_desc("n"),
                cl::desc("Requests of each mode before those, checked and not\n"
                         "measured (default: each module once on each thread,\n"
                         "at most 512)"));
static cl::list<std::string> preloadNames(
    "preload", cl::sub(compileCommand), cl::cat(category), cl::CommaSeparated,
    cl::value_desc("what"),
    cl::desc("Dialects that the pool's contexts begin with: pipeline\n"
             "(default: what the pipelines' passes depend on), all,\n"
             "none, or names a,b,c"));
static CacheFlags cacheFlags(compileCommand, category);
static cl::opt<bool> crashRecovery(
    "crash-recovery", cl::sub(compileCommand), cl::cat(category),
    cl::desc("Have a crash of the compiler be an error of its\n"
             "request, in service, fresh and fresh-lazy: the modes\n"
             "that can go on after one"));
static ReportFlag reportFlag(compileCommand, category);
static cl::opt<bool>
    perModule("per-module", cl::sub(compileCommand), cl::cat(category),
              cl::desc("Add a table of the median latency of each module"));
static ProgressFlag progressFlag(compileCommand, category);
static cl::opt<bool> allowUnregistered(
    "allow-unregistered-dialect", cl::sub(compileCommand), cl::cat(category),
    cl::desc("Allow operations of dialects that are not registered"));
static constexpr llvm::StringLiteral explanation = R"(
FILES are .mlir text or .mlirbc bytecode, folders of them (searched recursively),
or - for standard input; none: the bundled modules.

A request parses and verifies a module (or clones a live one, which was verified),
runs its pipeline, writes the result as bytecode and destroys what it made. The
modes take turns in blocks of the same requests; no context has threads of its own.
Every result is compared with that of a fresh context which parsed the module.
Throughput and latency are of requests that did not fail; peak is the memory of a
process of its own that serves one mode's requests, live modules included.

A fresh mode makes everything anew for each request, the code generator too. With
fewer than 100 % duplicates, requests bring the modules of FILES with a number in
their attribute llvm.ident, which no compiler minds and all results hold: 0 for
those that repeat, and each other number once; where a folder or a server keeps
results, from another number on in each run. With --output=llvmir or object, the
pipelines have to end in the LLVM dialect; of the bundled modules, the GPU kernels,
which no code for this machine can be made of, are left out.

With --cache-dir or --remote, the caches of pool+cache and service outlive the run,
and share all but their memory: one finds what the other has compiled, so give
--modes one of them to see what a second process gains. What was compiled before
counts as a hit. CTXPOOL_* variables stand for options that are not given.
)";

//===----------------------------------------------------------------------===//
// From options to a run
//===----------------------------------------------------------------------===//

/// Whether contexts of the mode are those of a template.
static bool usesPool(llvm::StringRef mode) {
  return mode != "fresh" && mode != "fresh-lazy";
}

static bool usesCache(llvm::StringRef mode) {
  return mode == "pool+cache" || mode == "service";
}

static bool recoversFromCrashes(llvm::StringRef mode) {
  return mode == "service" || !usesPool(mode);
}

/// Why an option of the command line is wrong; empty where none is. Looks at
/// what can be judged without dialects and files.
static std::string checkOptions() {
  if (threadCount.getNumOccurrences() && threadCount == 0)
    return "--threads=0: at least one thread is needed";
  if (threadCount > maxThreads)
    return llvm::formatv("--threads={0}: at most {1} threads",
                         threadCount.getValue(), maxThreads);
  if (requestCount == 0)
    return "--requests=0: at least one request is needed";
  if (requestCount > maxRequests || warmupCount > maxRequests)
    return llvm::formatv("--requests={0} --warmup={1}: at most {2} of each",
                         requestCount.getValue(), warmupCount.getValue(),
                         maxRequests);
  if (std::string complaint = reportFlag.check(files); !complaint.empty())
    return complaint;
  if (std::string complaint = checkFiles(files); !complaint.empty())
    return complaint;

  if (duplicatePercent > 100)
    return llvm::formatv("--duplicates={0}: at most 100 percent",
                         duplicatePercent.getValue());
  if (!findCompileOutput(outputName))
    return "--output: '" + outputName + "' is not an output; the outputs are " +
           llvm::join(getCompileOutputNames(), ", ");
  if (!findCompileInput(inputName))
    return "--input: '" + inputName + "' is not an input; the inputs are " +
           llvm::join(getCompileInputNames(), ", ");

  llvm::StringSet<> seen;
  for (const std::string &mode : modeNames) {
    if (!llvm::is_contained(getCompileModeNames(), mode))
      return "--modes: '" + mode + "' is not a mode; the modes are " +
             llvm::join(getCompileModeNames(), ", ");
    if (!seen.insert(mode).second)
      return "--modes: '" + mode + "' is given twice";
  }
  if (preloadNames.getNumOccurrences() && !modeNames.empty() &&
      llvm::none_of(modeNames, usesPool))
    return "--preload is about modes with a pool, which --modes leaves out";
  if (cacheFlags.areGiven() && !modeNames.empty() &&
      llvm::none_of(modeNames, usesCache))
    return "--cache-dir and the like are about modes with a cache, which "
           "--modes leaves out";
  if (crashRecovery &&
      (modeNames.empty() || !llvm::all_of(modeNames, recoversFromCrashes)))
    return "--crash-recovery: a crash in the modes pool and pool+cache ends "
           "the process; give --modes=service, say";
  for (const std::string &name : preloadNames)
    if ((name == "all" || name == "none" || name == "pipeline") &&
        preloadNames.size() > 1)
      return "--preload: '" + name + "' cannot be combined with other names";
  return "";
}

/// Sets what the pool's template preloads. Returns why that is impossible, or
/// an empty string.
static std::string choosePreload(CompileSetup &setup,
                                 llvm::ArrayRef<ModuleSource> sources) {
  llvm::StringRef first =
      preloadNames.empty() ? llvm::StringRef("pipeline") : preloadNames.front();
  if (first == "all")
    return "";
  setup.preload.emplace();
  if (first == "none")
    return "";
  if (first != "pipeline") {
    for (const std::string &name : preloadNames) {
      if (!llvm::is_contained(setup.registry->getDialectNames(), name))
        return "--preload: there is no dialect '" + name + "'";
      setup.preload->push_back(name);
    }
    return "";
  }
  // One pool serves all modules, so its contexts have what any of the pipelines
  // needs: these are put behind each other, each with its anchor, in one that
  // is never run.
  std::vector<std::string> pipelines;
  for (const ModuleSource &source : sources)
    if (source.error.empty() && !source.pipeline.empty() &&
        !llvm::is_contained(pipelines, source.pipeline))
      pipelines.push_back(source.pipeline);
  if (pipelines.empty()) {
    // Files that cannot be read are reported by the run.
    if (llvm::all_of(sources,
                     [](auto &source) { return !source.error.empty(); }))
      return "";
    return preloadNames.empty()
               ? ""
               : "--preload=pipeline: no module has a pipeline";
  }
  setup.preloadForPipeline =
      pipelines.size() == 1
          ? pipelines.front()
          : "builtin.module(" + llvm::join(pipelines, ",") + ")";
  return "";
}

/// Leaves out what `output` cannot be made of, of the bundled modules: kernels
/// of a GPU. Returns the names. A file of the user's fails, and is reported.
static std::vector<std::string>
dropForeignKernels(std::vector<ModuleSource> &bundled, CompileOutput output) {
  std::vector<std::string> names;
  if (output == CompileOutput::Module)
    return names;
  llvm::erase_if(bundled, [&](const ModuleSource &source) {
    if (!source.bytes->getBuffer().contains("gpu.launch"))
      return false;
    names.push_back(source.name);
    return true;
  });
  return names;
}

/// Gives the sources the pipeline of the command line, and finds wrong ones.
/// Returns whether any module has none.
static bool choosePipelines(std::vector<ModuleSource> &sources) {
  bool anyWithout = false;
  for (ModuleSource &source : sources) {
    if (!source.error.empty())
      continue;
    if (!pipelineFlags.getPipeline().empty()) {
      source.pipeline = pipelineFlags.getPipeline();
      continue;
    }
    if (source.pipeline.empty()) {
      if (findPipelineComment(source.bytes->getBuffer()))
        source.error = source.name + ":1: error: the PIPELINE comment is empty";
      else
        anyWithout = true;
      continue;
    }
    absl::StatusOr<mlir::OpPassManager> parsed =
        detail::parsePipeline(source.pipeline);
    if (!parsed.ok())
      source.error = source.name +
                     ":1: error: the PIPELINE comment is wrong: " +
                     std::string(parsed.status().message());
  }
  return anyWithout;
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

static std::string describeProblems(uint64_t count, llvm::StringRef verb,
                                    const std::string &where) {
  return llvm::formatv("{0} request{1} {2} in {3}", count,
                       count == 1 ? "" : "s", verb, where);
}

/// Prints what failed or differed: every message once, with the modes in which
/// it came up and how often it did in each.
template <typename Entry>
static void printProblems(llvm::ArrayRef<Entry> entries,
                          llvm::ArrayRef<ModuleSource> sources,
                          size_t modeCount, llvm::StringRef verb) {
  std::vector<bool> printed(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    if (printed[i])
      continue;
    std::vector<uint64_t> counts;
    std::vector<std::string> modes;
    for (size_t j = i; j < entries.size(); ++j) {
      if (entries[j].module != entries[i].module ||
          entries[j].message != entries[i].message)
        continue;
      printed[j] = true;
      counts.push_back(entries[j].count);
      modes.push_back(entries[j].mode);
    }
    std::string line;
    if (modes.size() == modeCount && llvm::all_equal(counts)) {
      line = describeProblems(counts[0], verb, "every mode");
    } else {
      llvm::ListSeparator separator;
      for (auto [count, mode] : llvm::zip_equal(counts, modes))
        line += llvm::StringRef(separator).str() +
                describeProblems(count, verb, "mode " + mode);
    }
    printError(nameFile(sources[entries[i].module].name, entries[i].message) +
               "\n  " + line);
  }
}

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

static std::string formatMillis(double microseconds) {
  return formatNumber(microseconds / 1000);
}

/// `-` where no request succeeded.
static std::string formatLatency(const std::vector<double> &latencies,
                                 double percent) {
  return latencies.empty() ? "-" : formatMillis(percentile(latencies, percent));
}

static void printHeader(llvm::ArrayRef<ModuleSource> sources,
                        const CompileRunOptions &options,
                        llvm::ArrayRef<std::string> leftOut) {
  const Environment &environment = getEnvironment();
  llvm::outs() << "ctxpool-bench " << environment.version
               << " compile: " << sources.size()
               << (sources.size() == 1 ? " module, " : " modules, ")
               << options.requests << " requests a mode after "
               << options.warmup << " of warm-up, " << options.setup.threads
               << (options.setup.threads == 1 ? " thread" : " threads")
               << (inputName.getNumOccurrences() ? ", input: " + inputName : "")
               << "\n"
               << "output: " << outputName << ", " << duplicatePercent
               << " % of the requests repeat a module"
               << (leftOut.empty() ? ""
                                   : ", left out: " + llvm::join(leftOut, ", "))
               << "\n";
  if (cacheFlags.isOfInterest(options.setup.cache))
    llvm::outs() << "cache: " << describeCache(options.setup.cache) << "\n";
  llvm::outs() << environment.describeBuild() << "\n"
               << environment.cpuCount << " x " << environment.cpu << ", "
               << environment.operatingSystem << "\n\n";
}

/// Whether the results are those of the reference; nothing where there are none.
static std::optional<bool> doResultsMatch(const ModeOutcome &mode) {
  if (mode.mismatches)
    return false;
  if (mode.failed == mode.requests)
    return std::nullopt;
  return true;
}

static void printModes(const CompileRunOutcome &outcome) {
  TextTable table;
  table.addRow({"", "", "", "requests", "p50", "p90", "p99", "max", "CPU ms",
                "peak", "contexts", "results"});
  table.addRow({"mode", "requests", "failed", "per s", "ms", "ms", "ms", "ms",
                "each", "MiB", "made", "match"});
  table.addRule();
  for (const ModeOutcome &mode : outcome.modes) {
    std::vector<double> latencies = mode.getAllLatencies();
    table.addRow(
        {mode.mode, std::to_string(mode.requests), std::to_string(mode.failed),
         formatNumber(mode.getThroughput()), formatLatency(latencies, 50),
         formatLatency(latencies, 90), formatLatency(latencies, 99),
         formatLatency(latencies, 100),
         formatNumber(mode.cpuSeconds * 1000 / double(mode.requests)),
         mode.peakResidentBytes
             ? llvm::formatv("{0:F0}",
                             double(*mode.peakResidentBytes) / (1 << 20))
                   .str()
             : "?",
         std::to_string(mode.contextsCreated),
         formatAnswer(doResultsMatch(mode))});
  }
  table.print(llvm::outs());
}

static void printCaches(const CompileRunOutcome &outcome) {
  if (llvm::none_of(outcome.modes, [](auto &mode) { return bool(mode.cache); }))
    return;
  // Only where folder or server had a part in it.
  bool showsTiers = llvm::any_of(outcome.modes, [](const ModeOutcome &mode) {
    return mode.cache && (mode.cache->diskHits || mode.cache->remoteHits ||
                          mode.cache->tierErrors);
  });
  bool showsEvictions = llvm::any_of(outcome.modes, [](const auto &mode) {
    return mode.cache &&
           (mode.cache->memoryEvictions || mode.cache->diskEvictions);
  });
  TextTable table;
  std::vector<std::string> header = {"cache of",     "asked",    "hits",
                                     "hit rate",     "compiles", "failed",
                                     "waits joined", "saved s"};
  if (showsEvictions)
    header.emplace_back("evicted");
  if (showsTiers)
    header.insert(header.end(), {"disk", "remote", "faults"});
  table.addRow(std::move(header));
  table.addRule();
  for (const ModeOutcome &mode : outcome.modes) {
    const std::optional<CacheOutcome> &cache = mode.cache;
    if (!cache)
      continue;
    std::vector<std::string> row = {
        mode.mode,
        std::to_string(cache->requests),
        std::to_string(cache->hits),
        llvm::formatv("{0:P1}", cache->getHitRate()).str(),
        std::to_string(cache->compiles),
        std::to_string(cache->failures),
        std::to_string(cache->joined),
        formatNumber(cache->secondsSaved)};
    if (showsEvictions)
      row.push_back(
          std::to_string(cache->memoryEvictions + cache->diskEvictions));
    if (showsTiers)
      row.insert(row.end(), {std::to_string(cache->diskHits),
                             std::to_string(cache->remoteHits),
                             std::to_string(cache->tierErrors)});
    table.addRow(std::move(row));
  }
  llvm::outs() << "\n";
  table.print(llvm::outs());
}

/// The ratio of two throughputs; nothing where the second is none.
static std::optional<double> getSpeedup(const ModeOutcome &mode,
                                        const ModeOutcome &baseline) {
  if (baseline.getThroughput() <= 0)
    return std::nullopt;
  return mode.getThroughput() / baseline.getThroughput();
}

static void printSpeedups(const CompileRunOutcome &outcome) {
  if (outcome.modes.size() < 2)
    return;
  TextTable table;
  std::vector<std::string> header = {"speed-up of"};
  for (const ModeOutcome &baseline : outcome.modes)
    header.push_back("against " + baseline.mode);
  table.addRow(std::move(header));
  table.addRule();
  for (const ModeOutcome &mode : outcome.modes) {
    std::vector<std::string> row = {mode.mode};
    for (const ModeOutcome &baseline : outcome.modes) {
      std::optional<double> speedup = getSpeedup(mode, baseline);
      row.push_back(speedup ? llvm::formatv("{0:F2} x", *speedup).str() : "?");
    }
    table.addRow(std::move(row));
  }
  llvm::outs() << "\n";
  table.print(llvm::outs());
}

static void printPerModule(const CompileRunOutcome &outcome,
                           llvm::ArrayRef<ModuleSource> sources) {
  TextTable table;
  std::vector<std::string> header = {"", ""}, units = {"module", "bytes"};
  for (const ModeOutcome &mode : outcome.modes) {
    header.push_back(mode.mode);
    units.push_back("p50 ms");
  }
  table.addRow(std::move(header));
  table.addRow(std::move(units));
  table.addRule();
  for (auto [number, source] : llvm::enumerate(sources)) {
    std::vector<std::string> row = {
        shortenPath(source.name, 40),
        source.bytes ? std::to_string(source.bytes->getBufferSize()) : "-"};
    for (const ModeOutcome &mode : outcome.modes) {
      const std::vector<double> &latencies = mode.latenciesUs[number];
      row.push_back(
          latencies.empty() ? "-" : formatMillis(percentile(latencies, 50)));
    }
    table.addRow(std::move(row));
  }
  llvm::outs() << "\n";
  table.print(llvm::outs());
}

/// Null where no request succeeded.
static llvm::json::Object makeLatency(const std::vector<double> &latencies) {
  auto at = [&](double percent) -> llvm::json::Value {
    if (latencies.empty())
      return nullptr;
    return percentile(latencies, percent);
  };
  return llvm::json::Object{
      {"p50", at(50)}, {"p90", at(90)}, {"p99", at(99)}, {"max", at(100)}};
}

template <typename Entry>
static llvm::json::Array makeProblems(llvm::ArrayRef<Entry> entries,
                                      llvm::ArrayRef<ModuleSource> sources) {
  llvm::json::Array array;
  for (const Entry &entry : entries)
    array.push_back(llvm::json::Object{
        {"file", llvm::json::fixUTF8(sources[entry.module].name)},
        {"mode", entry.mode},
        {"message", llvm::json::fixUTF8(entry.message)},
        {"count", entry.count}});
  return array;
}

static std::string getSpeedupName(const ModeOutcome &mode,
                                  const ModeOutcome &baseline) {
  std::string name = mode.mode + "_vs_" + baseline.mode;
  for (char &character : name)
    if (!llvm::isAlnum(character))
      character = '_';
  return name;
}

/// Null where the mode has no cache.
static llvm::json::Value makeCache(const std::optional<CacheOutcome> &cache) {
  if (!cache)
    return nullptr;
  return llvm::json::Object{
      {"requests", cache->requests},
      {"hits", cache->hits},
      {"hit_rate", cache->getHitRate()},
      {"disk_hits", cache->diskHits},
      {"remote_hits", cache->remoteHits},
      {"compiles", cache->compiles},
      {"failures", cache->failures},
      {"waits_joined", cache->joined},
      {"time_saved_seconds", cache->secondsSaved},
      {"memory_evictions", cache->memoryEvictions},
      {"disk_evictions", cache->diskEvictions},
      {"tier_errors", cache->tierErrors},
      {"last_tier_error",
       llvm::json::fixUTF8(hidePasswords(cache->lastTierError))}};
}

static llvm::json::Object makeJson(const CompileRunOutcome &outcome,
                                   llvm::ArrayRef<ModuleSource> sources,
                                   const CompileRunOptions &options,
                                   llvm::ArrayRef<std::string> leftOut,
                                   llvm::ArrayRef<char *> commandLine) {
  llvm::json::Object report = makeReport("compile", commandLine);
  report["threads"] = options.setup.threads;
  report["input"] = inputName;
  report["output"] = outputName;
  report["duplicates_percent"] = duplicatePercent.getValue();
  addCache(report, options.setup.cache);
  report["left_out"] = llvm::json::Array(leftOut);
  report["requests"] = options.requests;
  report["warmup"] = options.warmup;
  report["preload"] =
      preloadNames.empty() ? "pipeline" : llvm::join(preloadNames, ",");
  report["baseline_rss_bytes"] =
      outcome.baselineResidentBytes
          ? llvm::json::Value(*outcome.baselineResidentBytes)
          : llvm::json::Value(nullptr);

  llvm::json::Array modes;
  llvm::json::Object speedups;
  for (const ModeOutcome &mode : outcome.modes) {
    modes.push_back(llvm::json::Object{
        {"mode", mode.mode},
        {"requests", mode.requests},
        {"failed", mode.failed},
        {"wall_seconds", mode.wallSeconds},
        {"throughput_per_s", mode.getThroughput()},
        {"latency_us", makeLatency(mode.getAllLatencies())},
        {"cpu_seconds_per_request", mode.cpuSeconds / double(mode.requests)},
        {"contexts_created", mode.contextsCreated},
        {"peak_rss_bytes", mode.peakResidentBytes
                               ? llvm::json::Value(*mode.peakResidentBytes)
                               : llvm::json::Value(nullptr)},
        {"results_match", makeOptional(doResultsMatch(mode))},
        {"mismatches", mode.mismatches},
        {"cache", makeCache(mode.cache)}});
    for (const ModeOutcome &baseline : outcome.modes)
      if (&mode != &baseline)
        speedups[getSpeedupName(mode, baseline)] =
            makeOptional(getSpeedup(mode, baseline));
  }
  report["modes"] = std::move(modes);
  report["speedup"] = std::move(speedups);
  report["failures"] = makeProblems(llvm::ArrayRef(outcome.failures), sources);
  report["mismatches"] =
      makeProblems(llvm::ArrayRef(outcome.mismatches), sources);

  llvm::json::Array modules;
  for (auto [number, source] : llvm::enumerate(sources)) {
    llvm::json::Object latencies;
    for (const ModeOutcome &mode : outcome.modes)
      if (!mode.latenciesUs[number].empty())
        latencies[mode.mode] = makeLatency(mode.latenciesUs[number]);
    modules.push_back(llvm::json::Object{
        {"file", llvm::json::fixUTF8(source.name)},
        {"bytes", source.bytes
                      ? llvm::json::Value(source.bytes->getBufferSize())
                      : llvm::json::Value(nullptr)},
        {"pipeline", llvm::json::fixUTF8(source.pipeline)},
        {"latency_us", std::move(latencies)}});
  }
  report["modules"] = std::move(modules);
  return report;
}

//===----------------------------------------------------------------------===//
// The command
//===----------------------------------------------------------------------===//

/// Where the numbers of new modules begin. What outlives the process knows those
/// of earlier ones; without it, a run is to be like any other.
static uint64_t chooseVariantsBegin(const CompileCacheOptions &cache) {
  if (cache.directory.empty() && cache.remote.empty())
    return 0;
  std::random_device random;
  std::uniform_int_distribution<uint64_t> numbers(0, UINT64_MAX / 2);
  return numbers(random);
}

static CompileRunOptions makeRunOptions(const mlir::DialectRegistry &registry,
                                        CompileCacheOptions cache,
                                        size_t moduleCount) {
  CompileRunOptions options;
  options.setup.registry = &registry;
  options.setup.allowUnregisteredDialects = allowUnregistered;
  options.setup.output = *findCompileOutput(outputName);
  options.setup.cache = std::move(cache);
  options.setup.crashRecovery = crashRecovery;
  options.setup.threads = threadCount.getNumOccurrences()
                              ? threadCount.getValue()
                              : std::min(getEnvironment().cpuCount, maxThreads);
  options.modes = modeNames;
  if (options.modes.empty())
    for (llvm::StringRef name : getCompileModeNames())
      options.modes.push_back(name.str());
  if (duplicatePercent.getNumOccurrences()) {
    options.duplicates = duplicatePercent;
    options.variantsBegin = chooseVariantsBegin(options.setup.cache);
    options.bringLive = findCompileInput(inputName) == CompileInput::Module;
  }
  options.requests = requestCount;
  if (!requestCount.getNumOccurrences())
    options.requests =
        std::max(options.requests, static_cast<unsigned>(moduleCount));
  options.warmup = warmupCount.getNumOccurrences()
                       ? warmupCount.getValue()
                       : static_cast<unsigned>(std::min<size_t>(
                             moduleCount * options.setup.threads, 512));
  return options;
}

/// Makes of the files what requests bring. Returns the exit status.
static int prepareSources(std::vector<ModuleSource> &sources,
                          const CompileRunOptions &options) {
  return runOnLargeStack(
      [&] {
        const mlir::DialectRegistry &registry = *options.setup.registry;
        // Live modules of a run with variants are made for each request.
        if (!options.bringLive)
          convertSources(sources, *findCompileInput(inputName), registry,
                         allowUnregistered);
        if (options.duplicates)
          numberSources(sources, registry, allowUnregistered);
        return exitSuccess;
      },
      exitFailure);
}

/// Prints what went wrong, to standard error. Returns whether nothing did that
/// matters.
static bool reportProblems(const CompileRunOutcome &outcome,
                           llvm::ArrayRef<ModuleSource> sources) {
  printProblems(llvm::ArrayRef(outcome.failures), sources, outcome.modes.size(),
                "failed");
  printProblems(llvm::ArrayRef(outcome.mismatches), sources,
                outcome.modes.size(), "differed");
  // They fail no request.
  for (const ModeOutcome &mode : outcome.modes)
    if (mode.cache)
      warnOfFaults("the cache of " + mode.mode, mode.cache->tierErrors,
                   mode.cache->lastTierError);
  return outcome.failures.empty() && outcome.mismatches.empty();
}

static void printText(const CompileRunOutcome &outcome,
                      llvm::ArrayRef<ModuleSource> sources,
                      const CompileRunOptions &options,
                      llvm::ArrayRef<std::string> leftOut) {
  printHeader(sources, options, leftOut);
  printModes(outcome);
  printCaches(outcome);
  printSpeedups(outcome);
  if (perModule)
    printPerModule(outcome, sources);
  llvm::outs().flush();
}

int bench::runCompile(int argc, char **argv) {
  if (!parseCommandLine(argc, argv, compileCommand, category, explanation))
    return exitUsage;
  if (std::string complaint = checkOptions(); !complaint.empty())
    return usageError(complaint, "compile");
  absl::StatusOr<CompileCacheOptions> cache = cacheFlags.getOptions();
  if (!cache.ok())
    return usageError(std::string(cache.status().message()), "compile");
  mlir::DialectRegistry registry;
  if (int status = pipelineFlags.setUp(registry, "compile"))
    return status;
  CompileOutput output = *findCompileOutput(outputName);
  if (output != CompileOutput::Module)
    mlir::registerAllToLLVMIRTranslations(registry);

  std::vector<ModuleSource> sources =
      files.empty() ? readBundledModules() : readModules(files);
  std::vector<std::string> leftOut;
  if (files.empty())
    leftOut = dropForeignKernels(sources, output);
  bool anyWithoutPipeline = choosePipelines(sources);
  CompileRunOptions options =
      makeRunOptions(registry, *std::move(cache), sources.size());
  if (std::string complaint = choosePreload(options.setup, sources);
      !complaint.empty())
    return usageError(complaint, "compile");
  if (!reportFlag.canWrite())
    return exitFailure;
  std::optional<detail::CrashHandlers> handlers =
      crashRecovery ? installCrashHandlers() : std::nullopt;
  if (crashRecovery && !handlers)
    return exitFailure;

  warnOfHandicap();
  if (anyWithoutPipeline)
    printWarning("some modules have no pipeline and --pass-pipeline is not "
                 "given: they are parsed, verified and written only");
  if (int status = prepareSources(sources, options); status != exitSuccess)
    return status;
  if (options.requests < sources.size())
    printWarning(llvm::formatv("{0} requests do not reach all {1} modules",
                               options.requests, sources.size()));
  absl::StatusOr<CompileRunOutcome> outcome = [&] {
    ProgressLine progress(progressFlag);
    options.onProgress = [&](llvm::StringRef activity, double done) {
      progress.show(activity, done);
    };
    return measureModes(sources, options);
  }();
  if (!outcome.ok()) {
    printError(llvm::StringRef(outcome.status().message().data(),
                               outcome.status().message().size()));
    return exitFailure;
  }

  bool isWell = reportProblems(*outcome, sources);
  if (reportFlag.leavesStandardOutput())
    printText(*outcome, sources, options, leftOut);
  bool written = reportFlag.write([&] {
    return makeJson(*outcome, sources, options, leftOut,
                    llvm::ArrayRef(argv, argc));
  });
  return isWell && written ? exitSuccess : exitFailure;
}

//===- JitCommand.cpp - ctxpool-bench jit ---------------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CacheFlags.h"
#include "bench/CommandLine.h"
#include "bench/Commands.h"
#include "bench/CompileMode.h"
#include "bench/CrashGuard.h"
#include "bench/EntryCall.h"
#include "bench/Environment.h"
#include "bench/ModuleParser.h"
#include "bench/ModuleSource.h"
#include "bench/PipelineFlags.h"
#include "bench/ProcessInfo.h"
#include "bench/RecipeFlags.h"
#include "bench/ReportFlag.h"
#include "bench/TextTable.h"
#include "bench/ThreadTeam.h"
#include "context_pool/CompileCache.h"
#include "context_pool/CompileService.h"
#include "context_pool/ContextPool.h"
#include "context_pool/Executable.h"
#include "context_pool/ObjectCache.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;
namespace cl = llvm::cl;

static cl::SubCommand
    jitCommand("jit", "compile a module, call a function of it, and again");
static cl::OptionCategory category("Options of jit");

static cl::list<std::string> files(cl::Positional, cl::sub(jitCommand),
                                   cl::cat(category), cl::desc("FILE"));
static cl::opt<std::string> entryName("entry", cl::sub(jitCommand),
                                      cl::cat(category), cl::value_desc("name"),
                                      cl::init("main"),
                                      cl::desc("The function to call (main)"));
static cl::list<std::string>
    argumentTexts("arg", cl::sub(jitCommand), cl::cat(category),
                  cl::value_desc("value"),
                  cl::desc("An argument of it; give one for each, in order"));
static cl::opt<unsigned> runs("runs", cl::sub(jitCommand), cl::cat(category),
                              cl::init(2), cl::value_desc("n"),
                              cl::desc("How often to serve the request (2)"));
static cl::opt<unsigned>
    optimizationLevel("opt", cl::sub(jitCommand), cl::cat(category),
                      cl::init(2), cl::value_desc("level"),
                      cl::desc("Optimisation by LLVM, 0 to 3 (2)"));
static cl::opt<std::string>
    cpu("cpu", cl::sub(jitCommand), cl::cat(category), cl::init("native"),
        cl::value_desc("name"),
        cl::desc("The CPU to compile for, which this machine has to\n"
                 "be a kind of (native)"));
static cl::list<std::string>
    libraries("shared-libs", cl::CommaSeparated, cl::sub(jitCommand),
              cl::cat(category), cl::value_desc("so,..."),
              cl::desc("Libraries that the code may call, besides MLIR's\n"
                       "runner utilities"));
static PipelineFlags pipelineFlags(
    jitCommand, category,
    "what lowers the module to the LLVM dialect. Without it, that\n"
    "of the file's first line, // PIPELINE: ...");
static CacheFlags cacheFlags(jitCommand, category);
static cl::opt<bool>
    crashRecovery("crash-recovery", cl::sub(jitCommand), cl::cat(category),
                  cl::desc("Have a crash of the compiler or of the code be an\n"
                           "error, exit status 1"));
static ReportFlag reportFlag(jitCommand, category);
static constexpr llvm::StringLiteral explanation = R"(
FILE is .mlir text or .mlirbc bytecode, or - for standard input. Every run parses
it in a context of its own, asks the cache for the object file, which is compiled
where nobody has compiled it, asks for the loaded executable in the same way, and
calls the function. Results are printed, and memrefs among the arguments that the
function wrote to.

--arg=VALUE gives a number: an integer or index, decimal or hexadecimal after 0x, a
float, true or false. For a memref or tensor VALUE is as many numbers as it has
elements, separated by commas in row-major order; one number for all; or iota, for
0, 1, 2, .... A shape goes in front where the type leaves it open:
--arg=2x3xf32=1,2,3,4,5,6. Elements and numbers are i1, i8, i16, i32, i64, index, f16,
bf16, f32 or f64.

The function is called by the type that it has in FILE: a func.func through its C
interface, which need not be asked for there; an llvm.func, of numbers only, as it is.
Memory that it allocates and returns is freed. Code may print, and that goes to
standard output as well: give --json a file then.

With --cache-dir or --remote, the object file is there for the first run of another
process, where the column object then has "disk hit" or "remote hit". Without them the
cache is in memory, and ends with the process. Each process loads the code for itself.
CTXPOOL_* variables stand for options that are not given.
)";

//===----------------------------------------------------------------------===//
// A request
//===----------------------------------------------------------------------===//

namespace {

/// One request, from bytes to results.
struct Run {
  double parse = 0, key = 0, compile = 0, load = 0; ///< Seconds.
  bool hasCompiled = false, hasLoaded = false;
  const char *tier = "memory"; ///< Of the object, where that was a hit.
  std::string keyText;
  EntryOutcome outcome;
};

/// A status that says whether the command line is to blame.
struct Failure {
  int exitStatus;
  std::string message;
};

/// What serves the requests.
class Server {
public:
  static absl::StatusOr<std::unique_ptr<Server>>
  create(const mlir::DialectRegistry &registry, const CompileRecipe &recipe,
         CompileCacheOptions cacheOptions);

  /// Serves all runs; the ones that were served before a failure count.
  std::optional<Failure> serve(const ModuleSource &source,
                               std::vector<Run> &served);

  /// What the cache did, once all of it is where it is kept.
  CompileCacheStats finishCache() {
    // What could not be written is among the faults.
    cache->flush().IgnoreError();
    return cache->getStats();
  }

private:
  explicit Server(ResolvedRecipe theRecipe) : recipe(std::move(theRecipe)) {}

  absl::StatusOr<mlir::OwningOpRef<mlir::ModuleOp>>
  parse(const ModuleSource &source, ContextLease &lease);
  absl::Status finish(mlir::ModuleOp module, Run &run);
  const char *findTier();
  absl::StatusOr<EntryCaller> makeCaller(mlir::ModuleOp module);

  std::unique_ptr<ContextPool> pool;
  std::unique_ptr<CompileCache> cache;
  CompileCacheStats known; ///< Of the cache, after the last hit.
  /// Compiles what the cache, which is asked first, does not have. The key is
  /// needed for the executable as well.
  std::unique_ptr<CompileService> service;
  ObjectCache<Executable> executables{/*memoryBytes=*/uint64_t(256) << 20};
  const ResolvedRecipe recipe;

  std::optional<EntrySignature> signature;
  std::vector<EntryValue> arguments;
  std::optional<EntryCaller> caller;
};

} // namespace

absl::StatusOr<std::unique_ptr<Server>>
Server::create(const mlir::DialectRegistry &registry,
               const CompileRecipe &recipe, CompileCacheOptions cacheOptions) {
  mlir::DialectRegistry compiling;
  registry.appendTo(compiling);
  mlir::registerAllToLLVMIRTranslations(compiling);
  CompileSetup setup;
  setup.registry = &compiling;
  absl::StatusOr<std::unique_ptr<ContextPool>> pool = createPool(setup);
  if (!pool.ok())
    return pool.status();
  absl::StatusOr<std::unique_ptr<CompileCache>> cache =
      CompileCache::create(std::move(cacheOptions));
  if (!cache.ok())
    return cache.status();

  CompileServiceOptions serviceOptions;
  serviceOptions.threads = 1;
  serviceOptions.output = CompileServiceOptions::Output::Object;
  serviceOptions.recipe = recipe;
  serviceOptions.crashRecovery = crashRecovery;
  absl::StatusOr<std::unique_ptr<CompileService>> service =
      CompileService::create(**pool, /*cache=*/nullptr, serviceOptions);
  if (!service.ok())
    return service.status();

  std::unique_ptr<Server> server(new Server((*service)->getResolvedRecipe()));
  server->pool = *std::move(pool);
  server->cache = *std::move(cache);
  server->service = *std::move(service);
  return server;
}

absl::StatusOr<mlir::OwningOpRef<mlir::ModuleOp>>
Server::parse(const ModuleSource &source, ContextLease &lease) {
  return parseModule(*source.bytes, *lease, /*verify=*/true);
}

/// Lowers a copy, to see what the pipeline makes of the function.
absl::StatusOr<EntryCaller> Server::makeCaller(mlir::ModuleOp module) {
  absl::StatusOr<ContextLease> lease = pool->acquire();
  if (!lease.ok())
    return lease.status();
  absl::StatusOr<mlir::OwningOpRef<mlir::Operation *>> copy =
      lease->cloneIn(module);
  if (!copy.ok())
    return copy.status();
  absl::StatusOr<mlir::PassManager *> passes =
      lease->getPassManager(recipe.get().pipeline);
  if (!passes.ok())
    return passes.status();
  if (failed((*passes)->run(**copy)))
    return absl::InternalError(
        "the pipeline failed, which it did not before: " +
        formatDiagnostics(lease->takeDiagnostics()));
  return EntryCaller::create(*signature, mlir::cast<mlir::ModuleOp>(**copy),
                             *pool);
}

/// Who answered the last request, which was a hit.
const char *Server::findTier() {
  // Costs reading the folder's tables.
  CompileCacheStats stats = cache->getStats();
  const char *tier = stats.disk.hits > known.disk.hits       ? "disk"
                     : stats.remote.hits > known.remote.hits ? "remote"
                                                             : "memory";
  known = std::move(stats);
  return tier;
}

/// All but parsing.
absl::Status Server::finish(mlir::ModuleOp module, Run &run) {
  double begin = getWallSeconds();
  absl::StatusOr<Fingerprint> digest = fingerprint(module);
  if (!digest.ok())
    return digest.status();
  CacheKey key = recipe.makeKey(*digest);
  double keyed = getWallSeconds();
  absl::StatusOr<Artifact> object = cache->getOrCompile(key, [&] {
    run.hasCompiled = true;
    return service->compile(module);
  });
  double compiled = getWallSeconds();
  if (!object.ok())
    return object.status();
  absl::StatusOr<std::shared_ptr<Executable>> executable =
      executables.getOrCreate(
          key,
          [&] {
            run.hasLoaded = true;
            ExecutableOptions options;
            options.libraries.assign(libraries.begin(), libraries.end());
            return Executable::load(*object, options);
          },
          [&](const Executable &) { return object->getBytes().size(); });
  double loaded = getWallSeconds();
  if (!executable.ok())
    return executable.status();
  run.key = keyed - begin;
  run.compile = compiled - keyed;
  run.load = loaded - compiled;
  run.keyText = key.digest.toHex();
  if (!run.hasCompiled)
    run.tier = findTier();

  if (!caller) {
    absl::StatusOr<EntryCaller> made = makeCaller(module);
    if (!made.ok())
      return made.status();
    caller = *std::move(made);
  }
  // What the function prints comes in its place.
  llvm::outs().flush();
  absl::StatusOr<EntryOutcome> outcome = caller->call(**executable, arguments);
  std::fflush(stdout);
  if (!outcome.ok())
    return outcome.status();
  run.outcome = *std::move(outcome);
  return absl::OkStatus();
}

std::optional<Failure> Server::serve(const ModuleSource &source,
                                     std::vector<Run> &served) {
  auto fail = [](const absl::Status &status, int exitStatus = exitFailure) {
    return Failure{exitStatus, std::string(status.message())};
  };
  // Kept, so that every run has a context that knows nothing of the others.
  std::vector<ContextLease> leases;
  for (unsigned number = 0; number < runs; ++number) {
    absl::StatusOr<ContextLease> lease = pool->acquire();
    if (!lease.ok())
      return fail(lease.status());
    leases.push_back(*std::move(lease));
    Run run;
    double begin = getWallSeconds();
    absl::StatusOr<mlir::OwningOpRef<mlir::ModuleOp>> module =
        parse(source, leases.back());
    run.parse = getWallSeconds() - begin;
    if (!module.ok())
      return fail(module.status());
    if (!signature) {
      absl::StatusOr<EntrySignature> described =
          describeEntry(**module, entryName);
      if (!described.ok())
        return fail(described.status(), exitUsage);
      signature = *std::move(described);
      absl::StatusOr<std::vector<EntryValue>> parsed =
          parseArguments(*signature, argumentTexts);
      if (!parsed.ok())
        return fail(parsed.status(), exitUsage);
      arguments = *std::move(parsed);
    }
    requestCInterface(**module, *signature);
    if (absl::Status status = finish(**module, run); !status.ok())
      return fail(status);
    served.push_back(std::move(run));
  }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

static llvm::StringRef describe(bool isNew, llvm::StringLiteral what) {
  return isNew ? llvm::StringRef(what) : llvm::StringRef("hit");
}

/// `compile`, `hit`, or `disk hit` and the like.
static std::string describeObject(const Run &run) {
  std::string text = describe(run.hasCompiled, "compile").str();
  if (run.hasCompiled || run.tier == llvm::StringRef("memory"))
    return text;
  return std::string(run.tier) + " " + text;
}

static void printRuns(llvm::ArrayRef<Run> served) {
  TextTable table({0, 3, 5});
  table.addRow(
      {"run", "parse us", "key us", "object", "us", "code", "us", "call us"});
  table.addRule();
  for (auto [number, run] : llvm::enumerate(served))
    table.addRow({std::to_string(number + 1), formatNumber(run.parse * 1e6),
                  formatNumber(run.key * 1e6), describeObject(run),
                  formatNumber(run.compile * 1e6),
                  describe(run.hasLoaded, "load").str(),
                  formatNumber(run.load * 1e6),
                  formatNumber(run.outcome.seconds * 1e6)});
  table.print(llvm::outs());
}

static void printValue(const llvm::Twine &name, const EntryValue &value) {
  llvm::raw_ostream &out = llvm::outs();
  out << name << ": " << value.type.text << " =";
  if (value.sizes.size() > 1)
    out << "\n  ";
  else
    out << " ";
  value.print(out, 2);
  out << "\n";
}

static void printOutcome(const EntryOutcome &outcome) {
  for (auto [number, value] : llvm::enumerate(outcome.results))
    printValue("result " + llvm::Twine(number), value);
  for (const auto &[number, value] : outcome.written)
    printValue("argument " + llvm::Twine(number) + " after the call", value);
}

static bool agree(const EntryOutcome &lhs, const EntryOutcome &rhs) {
  auto areEqual = [](const EntryValue &a, const EntryValue &b) {
    return a.sizes == b.sizes && a.elements == b.elements;
  };
  return std::equal(lhs.results.begin(), lhs.results.end(), rhs.results.begin(),
                    rhs.results.end(), areEqual) &&
         std::equal(lhs.written.begin(), lhs.written.end(), rhs.written.begin(),
                    rhs.written.end(), [&](const auto &a, const auto &b) {
                      return a.first == b.first && areEqual(a.second, b.second);
                    });
}

/// What the runs gave, once where that is the same.
static void printOutcomes(llvm::ArrayRef<Run> served) {
  bool allAgree = llvm::all_of(served, [&](const Run &run) {
    return agree(run.outcome, served.front().outcome);
  });
  for (auto [number, run] : llvm::enumerate(served)) {
    if (!allAgree)
      llvm::outs() << "run " << number + 1 << ":\n";
    printOutcome(run.outcome);
    if (allAgree)
      break;
  }
}

static llvm::json::Object makeEntry(const EntryValue &value) {
  llvm::json::Object entry{{"type", value.type.text},
                           {"value", value.toJson()}};
  if (value.type.shape)
    entry["shape"] = llvm::json::Array(value.sizes);
  return entry;
}

static llvm::json::Object makeEntry(const Run &run) {
  llvm::json::Array results, written;
  for (const EntryValue &value : run.outcome.results)
    results.push_back(makeEntry(value));
  for (const auto &[number, value] : run.outcome.written) {
    llvm::json::Object entry = makeEntry(value);
    entry["argument"] = int64_t(number);
    written.push_back(std::move(entry));
  }
  return llvm::json::Object{{"key", run.keyText},
                            {"object", describe(run.hasCompiled, "compile")},
                            {"tier", run.hasCompiled
                                         ? llvm::json::Value(nullptr)
                                         : llvm::json::Value(run.tier)},
                            {"code", describe(run.hasLoaded, "load")},
                            {"parse_us", run.parse * 1e6},
                            {"key_us", run.key * 1e6},
                            {"object_us", run.compile * 1e6},
                            {"code_us", run.load * 1e6},
                            {"call_us", run.outcome.seconds * 1e6},
                            {"results", std::move(results)},
                            {"written", std::move(written)}};
}

//===----------------------------------------------------------------------===//
// The command
//===----------------------------------------------------------------------===//

/// Why the command line is wrong; empty where it is not.
static std::string checkFlags() {
  if (files.empty())
    return "no file is given";
  if (files.size() > 1)
    return "more than one file is given";
  if (runs == 0)
    return "--runs=0 serves nothing";
  if (optimizationLevel > 3)
    return "--opt=" + std::to_string(optimizationLevel) +
           " is no level; there are 0 to 3";
  if (std::string complaint = checkFiles(files); !complaint.empty())
    return complaint;
  return reportFlag.check(files);
}

/// Serves all runs, on this thread. Returns the exit status, after an error was
/// printed where that is one.
static int serveRuns(const mlir::DialectRegistry &registry,
                     const CompileRecipe &recipe,
                     const CompileCacheOptions &cache,
                     const ModuleSource &source, std::vector<Run> &served,
                     CompileCacheStats &cacheStats) {
  absl::StatusOr<std::unique_ptr<Server>> server =
      Server::create(registry, recipe, cache);
  if (!server.ok()) {
    printError(nameFile(source.name, std::string(server.status().message())));
    return exitFailure;
  }
  std::optional<Failure> failure;
  absl::Status crash;
  if (crashRecovery)
    crash = runGuarded([&] { failure = (*server)->serve(source, served); });
  else
    failure = (*server)->serve(source, served);
  if (!crash.ok()) {
    // Its contexts are neither used nor destroyed.
    (void)server->release(); // NOLINT(bugprone-unused-return-value)
    failure = Failure{exitFailure, std::string(crash.message())};
  } else {
    cacheStats = (*server)->finishCache();
  }
  if (!failure)
    return exitSuccess;
  printError(nameFile(source.name, failure->message));
  return failure->exitStatus;
}

static void printText(const ModuleSource &source,
                      const CompileCacheOptions &cache,
                      llvm::ArrayRef<Run> served) {
  llvm::outs() << "ctxpool-bench " << getEnvironment().version << " jit: @"
               << entryName << " of " << shortenPath(source.name)
               << ", every run from a context of its own\n"
               << getEnvironment().describeBuild() << "\n";
  if (cacheFlags.isOfInterest(cache))
    llvm::outs() << "cache: " << describeCache(cache) << "\n";
  llvm::outs() << "\n";
  printRuns(served);
  llvm::outs() << "\n";
  printOutcomes(served);
}

static llvm::json::Object makeJson(const ModuleSource &source,
                                   const CompileRecipe &recipe,
                                   const CompileCacheOptions &cache,
                                   llvm::ArrayRef<Run> served,
                                   llvm::ArrayRef<char *> commandLine) {
  llvm::json::Object report = makeReport("jit", commandLine);
  report["file"] = llvm::json::fixUTF8(source.name);
  report["entry"] = llvm::json::fixUTF8(entryName);
  report["pipeline"] = llvm::json::fixUTF8(recipe.pipeline);
  addCache(report, cache);
  llvm::json::Array entries;
  for (const Run &run : served)
    entries.push_back(makeEntry(run));
  report["runs"] = std::move(entries);
  return report;
}

int bench::runJit(int argc, char **argv) {
  if (!parseCommandLine(argc, argv, jitCommand, category, explanation))
    return exitUsage;
  if (std::string complaint = checkFlags(); !complaint.empty())
    return usageError(complaint, "jit");
  CompileRecipe recipe;
  recipe.cpu = cpu;
  recipe.optimizationLevel = optimizationLevel;
  if (std::string complaint = checkCodeOptions(recipe, CompileOutput::Object);
      !complaint.empty())
    return usageError(complaint, "jit");
  absl::StatusOr<CompileCacheOptions> cache = cacheFlags.getOptions();
  if (!cache.ok())
    return usageError(std::string(cache.status().message()), "jit");
  mlir::DialectRegistry registry;
  if (int status = pipelineFlags.setUp(registry, "jit"); status != exitSuccess)
    return status;
  if (!reportFlag.canWrite())
    return exitFailure;
  warnOfHandicap();

  std::vector<ModuleSource> sources = readModules(files);
  if (sources.size() > 1)
    return usageError("'" + files.front() + "' is more than one file", "jit");
  const ModuleSource &source = sources.front();
  if (!source.error.empty()) {
    printError(nameFile(source.name, source.error));
    return exitFailure;
  }
  // Without one the module is in the LLVM dialect, or compiling it tells what is
  // not.
  recipe.pipeline = pipelineFlags.getPipeline().empty()
                        ? source.getPipeline()
                        : pipelineFlags.getPipeline();

  std::optional<detail::CrashHandlers> handlers =
      crashRecovery ? installCrashHandlers() : std::nullopt;
  if (crashRecovery && !handlers)
    return exitFailure;
  std::vector<Run> served;
  CompileCacheStats cacheStats;
  // Parsers and passes recurse.
  int status = runOnLargeStack(
      [&] {
        return serveRuns(registry, recipe, *cache, source, served, cacheStats);
      },
      exitFailure);
  warnOfFaults("the cache", cacheStats.disk.errors + cacheStats.remote.errors,
               cacheStats.disk.errors ? cacheStats.disk.lastError
                                      : cacheStats.remote.lastError);
  if (status != exitSuccess)
    return status;

  if (reportFlag.leavesStandardOutput())
    printText(source, *cache, served);
  bool written = reportFlag.write([&] {
    return makeJson(source, recipe, *cache, served, llvm::ArrayRef(argv, argc));
  });
  return written ? exitSuccess : exitFailure;
}

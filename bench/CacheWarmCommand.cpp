//===- CacheWarmCommand.cpp - ctxpool-bench cache warm --------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CacheFlags.h"
#include "bench/CacheSubcommands.h"
#include "bench/CommandLine.h"
#include "bench/CompileMode.h"
#include "bench/Environment.h"
#include "bench/ModuleSource.h"
#include "bench/PipelineFlags.h"
#include "bench/RecipeFlags.h"
#include "bench/ReportFlag.h"
#include "bench/ThreadTeam.h"
#include "context_pool/CompileCache.h"
#include "context_pool/CompileService.h"
#include "context_pool/ContextPool.h"
#include "context_pool/cache/CacheAccess.h"
#include "context_pool/support/Mutex.h"

#include "absl/status/status.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;
namespace cl = llvm::cl;

static cl::SubCommand warmCommand("cache warm", "compile modules into a cache");
static cl::OptionCategory category("Options of cache warm");
static cl::list<std::string> files(cl::Positional, cl::sub(warmCommand),
                                   cl::cat(category), cl::desc("FILES..."));
static CacheStoreFlags storeFlags(warmCommand, category,
                                  CacheStoreFlags::Stores::DirectoryAndRemote,
                                  CacheStoreFlags::Access::Changes);
static PipelineFlags
    pipelineFlags(warmCommand, category,
                  "overrides the one that a file names in its first\n"
                  "line, // PIPELINE: <text>");
static RecipeFlags recipeFlags(warmCommand, category);
static cl::opt<unsigned>
    threadCount("threads", cl::sub(warmCommand), cl::cat(category),
                cl::value_desc("n"),
                cl::desc("Compile threads (default: one a processor)"));
static cl::opt<bool> allowUnregistered(
    "allow-unregistered-dialect", cl::sub(warmCommand), cl::cat(category),
    cl::desc("Allow operations of dialects that are not registered"));
static ReportFlag reportFlag(warmCommand, category);
static constexpr llvm::StringLiteral explanation = R"(
FILES are .mlir text or .mlirbc bytecode, folders of them (searched recursively), or -
for standard input. Each is compiled as a compile service with this recipe does it,
unless the cache has it already, and kept where --directory and --remote say: where
both are given in both, whichever had it. Where CTXPOOL_MODE is recompute, all are
compiled and replace what is there; read-only and off are refused.

Exits with 1 where a file was not compiled or could not be kept.
)";

static constexpr unsigned maxThreads = 1024;

namespace {
/// The first fault of what was sent to the server, from any thread.
class FaultLog {
public:
  void note(const absl::Status &status) {
    MutexLock lock(mutex);
    first.Update(status);
  }
  absl::Status get() const {
    MutexLock lock(mutex);
    return first;
  }

private:
  mutable Mutex mutex;
  absl::Status first ABSL_GUARDED_BY(mutex);
};

/// A folder that has a server take in what it finds, as `CompileCache` does not:
/// who compiles does not want to wait for that.
class ForwardingTier final : public detail::Tier {
public:
  ForwardingTier(std::unique_ptr<detail::Tier> theFolder,
                 std::unique_ptr<detail::Tier> theServer, FaultLog &theFaults)
      : folder(std::move(theFolder)), server(std::move(theServer)),
        faults(theFaults) {}

  absl::StatusOr<detail::TierFound> find(const CacheKey &key) override {
    absl::StatusOr<detail::TierFound> found = folder->find(key);
    if (found.ok() && found->artifact)
      faults.note(forward(key, *found->artifact));
    return found;
  }
  absl::Status put(const CacheKey &key, const Artifact &artifact,
                   bool replace) override {
    return folder->put(key, artifact, replace);
  }
  uint64_t getMaxArtifactBytes() const override {
    return folder->getMaxArtifactBytes();
  }
  absl::Status checkReady() const override { return folder->checkReady(); }
  absl::Status clear() override { return folder->clear(); }
  absl::StatusOr<std::unique_ptr<detail::CompileClaim>>
  claim(const CacheKey &key, absl::Duration limit) override {
    return folder->claim(key, limit);
  }
  CacheTierStats getStats() const override { return folder->getStats(); }

private:
  absl::Status forward(const CacheKey &key, const Artifact &artifact) {
    // What is there and damaged is replaced after it was looked at.
    absl::StatusOr<std::optional<Artifact>> known = server->get(key);
    if (!known.ok() || *known)
      return known.status();
    return server->put(key, artifact, /*replace=*/false);
  }

  const std::unique_ptr<detail::Tier> folder, server;
  FaultLog &faults;
};

/// What became of the files, in their order.
struct WarmOutcome {
  std::vector<absl::Status> results;
  CompileCacheStats stats;
  absl::Status flushed;
};
} // namespace

/// A cache that fills both folder and server.
static absl::StatusOr<std::unique_ptr<CompileCache>>
createCache(const CompileCacheOptions &options, FaultLog &faults) {
  if (options.directory.empty() || options.remote.empty())
    return CompileCache::create(options);
  absl::StatusOr<std::unique_ptr<detail::DiskTier>> folder =
      detail::DiskTier::create(detail::getDiskTierOptions(options));
  if (!folder.ok())
    return folder.status();
  std::unique_ptr<detail::RemoteTier> servers[2];
  for (std::unique_ptr<detail::RemoteTier> &server : servers) {
    absl::StatusOr<std::unique_ptr<detail::RemoteTier>> created =
        detail::RemoteTier::create(detail::getRemoteTierOptions(options));
    if (!created.ok())
      return created.status();
    server = *std::move(created);
  }
  detail::Tiers tiers;
  tiers.disk = std::make_unique<ForwardingTier>(*std::move(folder),
                                                std::move(servers[0]), faults);
  tiers.remote = std::move(servers[1]);
  return detail::CacheAccess::createCache(options, std::move(tiers));
}

/// A service for each pipeline, all on one pool.
static absl::StatusOr<llvm::StringMap<std::unique_ptr<CompileService>>>
createServices(llvm::ArrayRef<ModuleSource> sources, ContextPool &pool,
               CompileCache &cache) {
  llvm::StringMap<std::unique_ptr<CompileService>> services;
  for (const ModuleSource &source : sources) {
    std::unique_ptr<CompileService> &service = services[source.getPipeline()];
    if (!source.error.empty() || service)
      continue;
    CompileServiceOptions options;
    // Requests are served on the threads of the team.
    options.threads = 1;
    options.output = recipeFlags.getOutput();
    options.recipe.pipeline = source.getPipeline().str();
    recipeFlags.apply(options.recipe);
    absl::StatusOr<std::unique_ptr<CompileService>> created =
        CompileService::create(pool, &cache, std::move(options));
    if (!created.ok())
      return absl::Status(
          created.status().code(),
          nameFile(source.name, std::string(created.status().message())));
    service = *std::move(created);
  }
  return services;
}

static absl::StatusOr<WarmOutcome> warm(llvm::ArrayRef<ModuleSource> sources,
                                        const CompileSetup &setup) {
  absl::StatusOr<std::unique_ptr<ContextPool>> pool = createPool(setup);
  if (!pool.ok())
    return pool.status();
  FaultLog faults;
  absl::StatusOr<std::unique_ptr<CompileCache>> cache =
      createCache(setup.cache, faults);
  if (!cache.ok())
    return cache.status();
  auto services = createServices(sources, **pool, **cache);
  if (!services.ok())
    return services.status();
  absl::StatusOr<std::unique_ptr<ThreadTeam>> team =
      ThreadTeam::create(setup.threads);
  if (!team.ok())
    return team.status();

  WarmOutcome outcome;
  outcome.results.resize(sources.size());
  std::atomic<size_t> next{0};
  (*team)->run([&](unsigned) {
    size_t i;
    while ((i = next.fetch_add(1, std::memory_order_relaxed)) <
           sources.size()) {
      const ModuleSource &source = sources[i];
      if (!source.error.empty())
        outcome.results[i] = absl::NotFoundError(source.error);
      else
        outcome.results[i] =
            services->find(source.getPipeline())
                ->second->compileSource(source.bytes->getBuffer(), source.name)
                .status();
    }
  });
  outcome.flushed = (*cache)->flush();
  outcome.flushed.Update(faults.get());
  outcome.stats = (*cache)->getStats();
  return outcome;
}

static llvm::json::Object makeJson(llvm::ArrayRef<ModuleSource> sources,
                                   const WarmOutcome &outcome, uint64_t known,
                                   uint64_t failed, llvm::StringRef where,
                                   llvm::ArrayRef<char *> commandLine) {
  llvm::json::Object report = makeReport("cache warm", commandLine);
  report["cache"] = llvm::json::fixUTF8(where);
  report["modules"] = sources.size();
  report["compiled"] = outcome.stats.compiles - outcome.stats.failures;
  report["known"] = known;
  report["failed"] = failed;
  report["kept"] = outcome.flushed.ok();
  llvm::json::Array failures;
  for (auto [source, result] : llvm::zip(sources, outcome.results))
    if (!result.ok())
      failures.push_back(llvm::json::Object{
          {"file", llvm::json::fixUTF8(source.name)},
          {"error", llvm::json::fixUTF8(std::string(result.message()))}});
  report["failures"] = std::move(failures);
  return report;
}

int bench::runCacheWarm(int argc, char **argv) {
  if (!parseSubcommandLine(argc, argv, warmCommand, category, explanation))
    return exitUsage;
  if (files.empty())
    return usageError("no file is given", "cache warm");
  for (const std::string &complaint :
       {checkFiles(files), reportFlag.check(files), recipeFlags.check()})
    if (!complaint.empty())
      return usageError(complaint, "cache warm");
  if (threadCount.getNumOccurrences() &&
      (threadCount == 0 || threadCount > maxThreads))
    return usageError(llvm::formatv("--threads={0}: expected 1 to {1}",
                                    threadCount.getValue(), maxThreads),
                      "cache warm");
  absl::StatusOr<CompileCacheOptions> cache = storeFlags.getOptions();
  if (!cache.ok())
    return usageError(std::string(cache.status().message()), "cache warm");
  mlir::DialectRegistry registry;
  if (int status = pipelineFlags.setUp(registry, "cache warm"))
    return status;
  if (!reportFlag.canWrite())
    return exitFailure;

  CompileSetup setup;
  setup.registry = &registry;
  setup.output = recipeFlags.getOutput();
  if (setup.output != CompileOutput::Module)
    mlir::registerAllToLLVMIRTranslations(registry);
  setup.allowUnregisteredDialects = allowUnregistered;
  // On demand: what is compiled once gains little from what is preloaded.
  setup.preload.emplace();
  setup.threads = threadCount.getNumOccurrences()
                      ? threadCount.getValue()
                      : std::min(getEnvironment().cpuCount, maxThreads);
  setup.cache = *std::move(cache);
  std::vector<ModuleSource> sources = readModules(files);
  if (!pipelineFlags.getPipeline().empty())
    for (ModuleSource &source : sources)
      source.pipeline = pipelineFlags.getPipeline();

  absl::StatusOr<WarmOutcome> outcome = warm(sources, setup);
  if (!outcome.ok()) {
    printError(std::string(outcome.status().message()));
    return exitFailure;
  }
  uint64_t failed = 0;
  for (auto [source, result] : llvm::zip(sources, outcome->results))
    if (!result.ok()) {
      ++failed;
      // The service names the module, and the parser the line.
      llvm::StringRef message(result.message().data(), result.message().size());
      printError(message.contains(source.name)
                     ? message.str()
                     : nameFile(source.name, message));
    }
  const uint64_t compiled = outcome->stats.compiles - outcome->stats.failures;
  const uint64_t known = sources.size() - failed - compiled;
  if (!outcome->flushed.ok())
    printError("not all could be kept: " +
               std::string(outcome->flushed.message()));
  std::string where = describeCache(setup.cache);
  if (reportFlag.leavesStandardOutput())
    llvm::outs() << sources.size()
                 << (sources.size() == 1 ? " module: " : " modules: ")
                 << compiled << " compiled, " << known << " were there, "
                 << failed << " failed\n"
                 << "cache: " << where << "\n";
  bool written = reportFlag.write([&] {
    return makeJson(sources, *outcome, known, failed, where,
                    llvm::ArrayRef(argv, argc));
  });
  return failed == 0 && outcome->flushed.ok() && written ? exitSuccess
                                                         : exitFailure;
}

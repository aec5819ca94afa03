//===- CompileRun.cpp - Modes measured against each other -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CompileRun.h"

#include "bench/ModuleParser.h"
#include "bench/ModuleVariants.h"
#include "bench/ProcessInfo.h"
#include "bench/ResultDigest.h"
#include "bench/ThreadTeam.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "mlir/IR/DialectRegistry.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;

std::vector<double> ModeOutcome::getAllLatencies() const {
  std::vector<double> all;
  for (const std::vector<double> &latencies : latenciesUs)
    all.insert(all.end(), latencies.begin(), latencies.end());
  return all;
}

/// A cache that does the same for its process, and leaves what others share as it
/// is.
static CompileCacheOptions withoutWrites(CompileCacheOptions options) {
  using Mode = CompileCacheOptions::Mode;
  if (options.mode == Mode::ReadWrite) {
    options.mode = Mode::ReadOnly;
  } else if (options.mode == Mode::Recompute) {
    options.directory.clear();
    options.remote.clear();
  }
  return options;
}

static CacheOutcome getDifference(const CompileCacheStats &end,
                                  const CompileCacheStats &begin) {
  CacheOutcome outcome;
  // No request has a deadline: who gave up does not wait with a context in hand,
  // and asks again without one.
  uint64_t askedAgain = end.abandoned - begin.abandoned;
  outcome.requests = end.requests - begin.requests - askedAgain;
  outcome.diskHits = end.disk.hits - begin.disk.hits;
  outcome.remoteHits = end.remote.hits - begin.remote.hits;
  outcome.hits = end.memory.hits - begin.memory.hits + outcome.diskHits +
                 outcome.remoteHits;
  outcome.joined = end.joined - begin.joined - askedAgain;
  outcome.compiles = end.compiles - begin.compiles;
  outcome.failures = end.failures - begin.failures;
  outcome.secondsSaved = absl::ToDoubleSeconds(end.timeSaved - begin.timeSaved);
  outcome.memoryEvictions = end.memory.evictions - begin.memory.evictions;
  outcome.diskEvictions = end.disk.evictions - begin.disk.evictions;
  outcome.tierErrors = end.disk.errors + end.remote.errors;
  outcome.lastTierError =
      end.disk.errors ? end.disk.lastError : end.remote.lastError;
  return outcome;
}

namespace {

using Result = absl::StatusOr<Artifact>;

/// What a request is for.
struct Request {
  size_t module = 0;
  uint64_t variant = 0; ///< 0: the one of warm-up.
};

/// Requests from `begin` on.
struct Block {
  size_t begin = 0;
  size_t size = 0;
};

/// What became of the requests of a block.
struct BlockOutcome {
  double wallSeconds = 0, cpuSeconds = 0;
  std::vector<Result> results;
  std::vector<double> latenciesUs;
};

/// Tells the modules' results from wrong ones. Keeps the bytes of the
/// references, and of other results only their digests.
class ResultChecker {
public:
  /// `references`: of variant 0 of each module. `recompile` makes another.
  ResultChecker(const CompileRunOptions &options,
                std::vector<Result> references,
                std::function<Result(size_t module)> recompile)
      : options(options), recompile(std::move(recompile)) {
    for (Result &reference : references) {
      Module &known = modules.emplace_back();
      known.reference = std::move(reference);
      known.isNumbered = options.duplicates && known.reference.ok() &&
                         renumber(known.reference->getBytes(), 0, 0);
      if (known.reference.ok())
        known.codes.insert(digestBytes(known.reference->getBytes()));
    }
  }

  /// Why `result` is not what the reference is. Empty: it is.
  std::string check(const Request &request, const Result &result) {
    Module &known = modules[request.module];
    if (!result.ok() || !known.reference.ok()) {
      if (result.ok() == known.reference.ok())
        return "";
      return result.ok() ? "it gives a result, and a fresh context fails"
                         : "it fails, and a fresh context gives a result";
    }
    if (request.variant == 0 &&
        result->getBytes() == known.reference->getBytes())
      return "";
    auto [entry, isNew] = known.verdicts.try_emplace(
        {request.variant, result->getDigest().bytes});
    if (isNew)
      entry->second = compare(request, result->getBytes());
    return entry->second;
  }

private:
  struct Module {
    Result reference = Artifact();
    /// Whether a result tells of which variant it is.
    bool isNumbered = false;
    /// Of the reference, once a result was not the same bytes.
    std::optional<absl::StatusOr<Digest>> referenceDigest;
    /// Code that fresh contexts gave.
    std::set<Digest> codes;
    /// What `check` says, by variant and bytes.
    std::map<std::pair<uint64_t, Digest>, std::string> verdicts;
  };

  std::string compare(const Request &request, llvm::StringRef bytes) {
    Module &known = modules[request.module];
    std::optional<std::string> renumbered;
    if (known.isNumbered) {
      renumbered = renumber(bytes, request.variant, 0);
      if (!renumbered)
        return "the result is that of another module";
      bytes = *renumbered;
    }
    bool equal = bytes == known.reference->getBytes();
    if (!equal && options.setup.output != CompileOutput::Module)
      equal = isCodeOfFreshContext(request.module, bytes);
    else if (!equal) {
      if (!known.referenceDigest)
        known.referenceDigest =
            digestResult(known.reference->getBytes(), *options.setup.registry);
      const absl::StatusOr<Digest> &expected = *known.referenceDigest;
      if (!expected.ok())
        return std::string(expected.status().message());
      absl::StatusOr<Digest> actual =
          digestResult(bytes, *options.setup.registry);
      if (!actual.ok())
        return std::string(actual.status().message());
      equal = *expected == *actual;
    }
    return equal ? "" : "the result is not that of a fresh context";
  }

  /// Upstream's passes leave the order of private constants to chance, and a
  /// file of code does not show what is left to it. So fresh contexts compile
  /// until one gives the very bytes, or has had its chances.
  bool isCodeOfFreshContext(size_t module, llvm::StringRef bytes) {
    constexpr unsigned chances = 64;
    std::set<Digest> &codes = modules[module].codes;
    Digest wanted = digestBytes(bytes);
    for (unsigned i = 0; i < chances && !codes.count(wanted); ++i)
      if (Result again = recompile(module); again.ok())
        codes.insert(digestBytes(again->getBytes()));
    return codes.count(wanted) != 0;
  }

  const CompileRunOptions &options;
  const std::function<Result(size_t)> recompile;
  std::vector<Module> modules;
};

/// How many requests of each module are being served, seen by this process and
/// by one that it forks: so that the death of a child can be laid to a module.
class ServedModules {
public:
  explicit ServedModules(size_t moduleCount) : size(moduleCount) {
    void *memory = mmap(nullptr, getBytes(), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    // Without it the message names no module.
    if (memory != MAP_FAILED)
      counts = static_cast<std::atomic<uint32_t> *>(memory);
  }
  ~ServedModules() {
    if (counts)
      munmap(counts, getBytes());
  }
  ServedModules(const ServedModules &) = delete;
  ServedModules &operator=(const ServedModules &) = delete;

  void begin(size_t module) {
    if (counts)
      ++counts[module];
  }
  void end(size_t module) {
    if (counts)
      --counts[module];
  }
  void clear() {
    for (size_t module = 0; counts && module < size; ++module)
      counts[module] = 0;
  }

  /// The names of those that are being served.
  std::string describe(llvm::ArrayRef<ModuleSource> sources) const {
    std::string names;
    for (size_t module = 0; counts && module < size; ++module)
      if (counts[module] != 0)
        names += (names.empty() ? " while it served " : " or ") +
                 sources[module].name;
    return names;
  }

private:
  size_t getBytes() const { return size * sizeof(std::atomic<uint32_t>); }

  const size_t size;
  std::atomic<uint32_t> *counts = nullptr;
};

class Measurement {
public:
  Measurement(llvm::ArrayRef<ModuleSource> modules,
              const CompileRunOptions &runOptions)
      : sources(modules), options(runOptions), inFlight(modules.size()) {}

  absl::StatusOr<CompileRunOutcome> run();

private:
  /// Serves a request, or says why there are no bytes to serve it from.
  Result serve(CompileMode &mode, size_t module,
               const ModuleSource &source) const {
    if (!source.error.empty())
      return absl::NotFoundError(source.error);
    inFlight.begin(module);
    Result result = mode.serve(source);
    inFlight.end(module);
    return result;
  }

  /// The share of requests that bring a module which no cache can know.
  size_t getNewPercent() const {
    return 100 - options.duplicates.value_or(100);
  }
  Request getRequest(size_t number) const;

  /// Warm-up goes round the modules on every thread, so that what a thread
  /// keeps for a pipeline is made before it is measured.
  Request getWarmupRequest(size_t number) const {
    return {number / options.setup.threads % sources.size(), 0};
  }

  using GetRequest = llvm::function_ref<Request(size_t number)>;

  /// What the requests of a block bring.
  using Cargo = std::vector<std::shared_ptr<const ModuleSource>>;
  Cargo makeCargo(ThreadTeam &team, Block block, GetRequest get) const;
  std::shared_ptr<const ModuleSource> makeCargo(const Request &request) const;

  /// Calls `check` with the request and the result of each, between the rounds
  /// and on one thread. It may be null.
  void warmUp(
      CompileMode &mode, ThreadTeam &team,
      const std::function<void(const Request &, const Result &)> &check) const;
  void serveBlock(CompileMode &mode, ThreadTeam &team, Block block,
                  const Cargo &cargo, BlockOutcome &outcome) const;
  std::vector<Block> makeBlocks(size_t requests) const;

  absl::Status measureMemory(CompileRunOutcome &outcome) const;
  std::vector<Result> makeReferences(CompileMode &mode, ThreadTeam &team) const;
  void record(CompileRunOutcome &outcome, ModeOutcome &mode,
              const Request &request, const Result &result,
              ResultChecker &checker) const;
  void reportProgress(llvm::StringRef activity, double done) const {
    if (options.onProgress)
      options.onProgress(activity, done);
  }

  const llvm::ArrayRef<ModuleSource> sources;
  const CompileRunOptions &options;
  mutable ServedModules inFlight;
};

} // namespace

/// New modules are spread evenly over the requests. They and the others go round
/// the files, each on their own.
Request Measurement::getRequest(size_t number) const {
  const size_t newPercent = getNewPercent();
  size_t newBefore = number * newPercent / 100;
  if ((number + 1) * newPercent / 100 > newBefore)
    return {newBefore % sources.size(), options.variantsBegin + newBefore + 1};
  return {(number - newBefore) % sources.size(), 0};
}

std::shared_ptr<const ModuleSource>
Measurement::makeCargo(const Request &request) const {
  const ModuleSource &source = sources[request.module];
  // Not owned: it outlives the run.
  std::shared_ptr<const ModuleSource> shared(std::shared_ptr<void>(), &source);
  if (!options.duplicates || !source.error.empty() ||
      (request.variant == 0 && !options.bringLive))
    return shared;
  auto variant =
      std::make_shared<ModuleSource>(makeVariant(source, request.variant));
  if (options.bringLive) {
    absl::StatusOr<LoadedModule> loaded =
        loadModule(*variant, *options.setup.registry,
                   options.setup.allowUnregisteredDialects);
    if (loaded.ok())
      variant->live = std::make_shared<const LoadedModule>(*std::move(loaded));
    else
      variant->error = std::string(loaded.status().message());
  }
  return variant;
}

Measurement::Cargo Measurement::makeCargo(ThreadTeam &team, Block block,
                                          GetRequest get) const {
  Cargo cargo(block.size);
  team.run([&](unsigned thread) {
    for (size_t i = thread; i < block.size; i += team.size())
      cargo[i] = makeCargo(get(block.begin + i));
  });
  return cargo;
}

void Measurement::warmUp(
    CompileMode &mode, ThreadTeam &team,
    const std::function<void(const Request &, const Result &)> &check) const {
  auto get = [this](size_t number) { return getWarmupRequest(number); };
  for (Block block : makeBlocks(options.warmup)) {
    Cargo cargo = makeCargo(team, block, get);
    std::vector<Result> results(block.size, Result(Artifact()));
    team.run([&](unsigned thread) {
      // Each thread takes those requests whose turn is its own.
      for (size_t i = 0; i < block.size; ++i)
        if ((block.begin + i) % team.size() == thread) {
          Result result = serve(mode, get(block.begin + i).module, *cargo[i]);
          // Results that nobody looks at are not to count as memory.
          if (check)
            results[i] = std::move(result);
        }
    });
    if (check)
      // On a compile thread, whose stack is large enough for what it compiled.
      team.runOnOne([&] {
        for (size_t i = 0; i < block.size; ++i)
          check(get(block.begin + i), results[i]);
      });
  }
}

void Measurement::serveBlock(CompileMode &mode, ThreadTeam &team, Block block,
                             const Cargo &cargo, BlockOutcome &outcome) const {
  outcome.results.assign(block.size, Result(Artifact()));
  outcome.latenciesUs.assign(block.size, 0);
  std::atomic<size_t> next{0};
  double cpuBegin = getCpuSeconds();
  outcome.wallSeconds = team.run([&](unsigned) {
    size_t i;
    while ((i = next.fetch_add(1, std::memory_order_relaxed)) < block.size) {
      double begin = getWallSeconds();
      outcome.results[i] =
          serve(mode, getRequest(block.begin + i).module, *cargo[i]);
      outcome.latenciesUs[i] = (getWallSeconds() - begin) * 1e6;
    }
  });
  outcome.cpuSeconds = getCpuSeconds() - cpuBegin;
}

std::vector<Block> Measurement::makeBlocks(size_t requests) const {
  // Enough for every thread to have a few that have to be compiled, so that the
  // end of a block, where threads wait for the last one, does not weigh much; few
  // enough for the modes to alternate in short turns and for the results of a
  // block to fit in memory.
  const size_t newPercent = getNewPercent();
  const size_t minBlock =
      newPercent ? size_t(32) * 100 / std::max<size_t>(newPercent, 10) : 32;
  constexpr size_t maxBlockBytes = size_t(32) << 20;
  size_t largest = 1;
  for (const ModuleSource &source : sources)
    if (source.bytes)
      largest = std::max(largest, source.bytes->getBufferSize());
  size_t size = std::max<size_t>(minBlock, 4 * size_t(options.setup.threads));
  size = std::min(
      size, std::max<size_t>(maxBlockBytes / largest, options.setup.threads));
  // All about as large, and less than twice that: a last one of a few requests
  // would be all end.
  const size_t count = std::max<size_t>(1, requests / size);
  std::vector<Block> blocks;
  for (size_t number = 0; number < count && requests; ++number) {
    size_t begin = requests * number / count;
    blocks.push_back({begin, requests * (number + 1) / count - begin});
  }
  return blocks;
}

absl::Status Measurement::measureMemory(CompileRunOutcome &outcome) const {
  if (absl::StatusOr<uint64_t> peak = measurePeakResident([] { return true; });
      peak.ok())
    outcome.baselineResidentBytes = *peak;
  for (auto [number, mode] : llvm::enumerate(outcome.modes)) {
    reportProgress("memory of mode " + mode.mode,
                   double(number) / double(outcome.modes.size()));
    absl::StatusOr<uint64_t> peak =
        measurePeakResident([this, name = mode.mode] {
          CompileSetup setup = options.setup;
          setup.cache = withoutWrites(setup.cache);
          absl::StatusOr<std::unique_ptr<CompileMode>> served =
              createCompileMode(name, setup);
          absl::StatusOr<std::unique_ptr<ThreadTeam>> team =
              ThreadTeam::create(setup.threads);
          if (!served.ok() || !team.ok())
            return false;
          warmUp(**served, **team, nullptr);
          for (Block block : makeBlocks(options.requests)) {
            Cargo cargo = makeCargo(**team, block, [this](size_t number) {
              return getRequest(number);
            });
            std::atomic<size_t> next{0};
            (*team)->run([&](unsigned) {
              size_t i;
              while ((i = next.fetch_add(1, std::memory_order_relaxed)) <
                     block.size)
                (void)serve(**served, getRequest(block.begin + i).module,
                            *cargo[i]);
            });
          }
          return true;
        });
    if (peak.ok())
      mode.peakResidentBytes = *peak;
    else if (absl::IsInternal(peak.status()))
      return absl::InternalError(absl::StrCat(
          "the process that serves mode '", mode.mode, "' to learn its memory ",
          peak.status().message(), inFlight.describe(sources)));
    inFlight.clear();
  }
  return absl::OkStatus();
}

std::vector<Result> Measurement::makeReferences(CompileMode &mode,
                                                ThreadTeam &team) const {
  reportProgress("references", 0);
  std::vector<Result> references(sources.size(), Result(Artifact()));
  std::atomic<size_t> next{0};
  team.run([&](unsigned) {
    size_t i;
    while ((i = next.fetch_add(1, std::memory_order_relaxed)) < sources.size())
      references[i] = serve(mode, i, sources[i]);
  });
  return references;
}

void Measurement::record(CompileRunOutcome &outcome, ModeOutcome &mode,
                         const Request &request, const Result &result,
                         ResultChecker &checker) const {
  size_t module = request.module;
  auto count = [&](auto &entries, std::string message) {
    auto entry = llvm::find_if(entries, [&](const auto &known) {
      return known.module == module && known.mode == mode.mode &&
             known.message == message;
    });
    if (entry == entries.end())
      entries.push_back({module, mode.mode, std::move(message), 1});
    else
      ++entry->count;
  };
  if (!result.ok())
    count(outcome.failures, std::string(result.status().message()));
  std::string difference = checker.check(request, result);
  if (!difference.empty()) {
    ++mode.mismatches;
    count(outcome.mismatches, std::move(difference));
  }
}

absl::StatusOr<CompileRunOutcome> Measurement::run() {
  CompileRunOutcome outcome;
  for (const std::string &name : options.modes) {
    outcome.modes.emplace_back().mode = name;
    outcome.modes.back().latenciesUs.resize(sources.size());
  }
  // First of all, while this process has no thread but this one.
  if (options.measureMemory)
    if (absl::Status status = measureMemory(outcome); !status.ok())
      return status;

  absl::StatusOr<std::unique_ptr<ThreadTeam>> team =
      ThreadTeam::create(options.setup.threads);
  if (!team.ok())
    return team.status();
  std::vector<std::unique_ptr<CompileMode>> modes;
  for (const std::string &name : options.modes) {
    absl::StatusOr<std::unique_ptr<CompileMode>> mode =
        createCompileMode(name, options.setup);
    if (!mode.ok())
      return mode.status();
    modes.push_back(*std::move(mode));
  }
  std::unique_ptr<CompileMode> reference = createReferenceMode(options.setup);
  std::vector<Result> references = makeReferences(*reference, **team);
  std::vector<std::string> referenceFailures;
  for (const Result &result : references)
    referenceFailures.emplace_back(
        result.ok() ? "" : std::string(result.status().message()));
  ResultChecker checker(options, std::move(references), [&](size_t module) {
    return serve(*reference, module, sources[module]);
  });

  std::vector<uint64_t> contextsOfWarmup;
  std::vector<std::optional<CompileCacheStats>> cacheAfterWarmup;
  for (auto [number, mode] : llvm::enumerate(modes)) {
    reportProgress("warm-up", double(number) / double(modes.size()));
    warmUp(*mode, **team,
           [&, &outcomeOfMode = outcome.modes[number]](const Request &request,
                                                       const Result &result) {
             record(outcome, outcomeOfMode, request, result, checker);
           });
    contextsOfWarmup.push_back(mode->getContextsCreated());
    cacheAfterWarmup.push_back(mode->getCacheStats());
  }

  std::vector<Block> blocks = makeBlocks(options.requests);
  for (auto [round, block] : llvm::enumerate(blocks)) {
    reportProgress("measuring", double(round) / double(blocks.size()));
    Cargo cargo = makeCargo(
        **team, block, [this](size_t request) { return getRequest(request); });
    for (size_t turn = 0; turn < modes.size(); ++turn) {
      size_t number = (round + turn) % modes.size();
      BlockOutcome served;
      serveBlock(*modes[number], **team, block, cargo, served);

      ModeOutcome &mode = outcome.modes[number];
      mode.wallSeconds += served.wallSeconds;
      mode.cpuSeconds += served.cpuSeconds;
      mode.requests += block.size;
      (*team)->runOnOne([&, begin = block.begin] {
        for (auto [i, result] : llvm::enumerate(served.results)) {
          Request request = getRequest(begin + i);
          if (result.ok())
            mode.latenciesUs[request.module].push_back(served.latenciesUs[i]);
          else
            ++mode.failed;
          record(outcome, mode, request, result, checker);
        }
      });
    }
  }

  // A module that no request reached is not lost from the report.
  for (auto [module, message] : llvm::enumerate(referenceFailures))
    if (!message.empty() &&
        llvm::none_of(outcome.failures,
                      [reached = module](const RequestFailure &failure) {
                        return failure.module == reached;
                      }))
      outcome.failures.push_back({module, "reference", message, 1});

  for (auto [number, mode] : llvm::enumerate(modes)) {
    uint64_t contexts = mode->getContextsCreated();
    outcome.modes[number].contextsCreated =
        mode->keepsContexts() ? contexts : contexts - contextsOfWarmup[number];
    if (std::optional<CompileCacheStats> stats = mode->getCacheStats())
      outcome.modes[number].cache =
          getDifference(*stats, *cacheAfterWarmup[number]);
  }
  return outcome;
}

absl::StatusOr<CompileRunOutcome>
bench::measureModes(llvm::ArrayRef<ModuleSource> sources,
                    const CompileRunOptions &options) {
  assert(!sources.empty() && "no module to compile");
  return Measurement(sources, options).run();
}

//===- CompileRun.cpp - Modes measured against each other -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CompileRun.h"

#include "bench/ProcessInfo.h"
#include "bench/ResultDigest.h"
#include "bench/ThreadTeam.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mlir/IR/DialectRegistry.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::bench;

std::vector<double> ModeOutcome::getAllLatencies() const {
  std::vector<double> all;
  for (const std::vector<double> &latencies : latenciesUs)
    all.insert(all.end(), latencies.begin(), latencies.end());
  return all;
}

namespace {

using Result = absl::StatusOr<std::string>;

/// Requests of one mode from `begin` on.
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
  ResultChecker(const mlir::DialectRegistry &dialects,
                std::vector<Result> references)
      : registry(dialects) {
    for (Result &reference : references)
      modules.push_back({std::move(reference), std::nullopt, {}});
  }

  /// Why `result` is not what the reference is. Empty: it is.
  std::string check(size_t module, const Result &result) {
    Module &known = modules[module];
    if (!result.ok() || !known.reference.ok()) {
      if (result.ok() == known.reference.ok())
        return "";
      return result.ok() ? "it gives a result, and a fresh context fails"
                         : "it fails, and a fresh context gives a result";
    }
    if (*result == *known.reference)
      return "";
    auto [entry, isNew] = known.differences.try_emplace(digestBytes(*result));
    if (isNew)
      entry->second = compare(known, *result);
    return entry->second;
  }

private:
  struct Module {
    Result reference;
    /// Of the reference, once a result was not the same bytes.
    std::optional<absl::StatusOr<Digest>> referenceDigest;
    /// What `check` says to other bytes than those of the reference.
    std::map<Digest, std::string> differences;
  };

  std::string compare(Module &known, const std::string &result) {
    if (!known.referenceDigest)
      known.referenceDigest = digestResult(*known.reference, registry);
    const absl::StatusOr<Digest> &expected = *known.referenceDigest;
    if (!expected.ok())
      return std::string(expected.status().message());
    absl::StatusOr<Digest> actual = digestResult(result, registry);
    if (!actual.ok())
      return std::string(actual.status().message());
    return *expected == *actual ? ""
                                : "the result is not that of a fresh context";
  }

  const mlir::DialectRegistry &registry;
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
  Result serve(CompileMode &mode, size_t module) const {
    const ModuleSource &source = sources[module];
    if (!source.error.empty())
      return absl::NotFoundError(source.error);
    inFlight.begin(module);
    Result result = mode.serve(source);
    inFlight.end(module);
    return result;
  }

  size_t getModule(size_t request) const { return request % sources.size(); }

  /// Warm-up goes round the modules on every thread, so that what a thread
  /// keeps for a pipeline is made before it is measured.
  size_t getWarmupModule(size_t request) const {
    return request / options.setup.threads % sources.size();
  }

  /// Calls `check` with the request and the result of each, between the rounds
  /// and on one thread. It may be null.
  void warmUp(
      CompileMode &mode, ThreadTeam &team,
      const std::function<void(size_t request, const Result &)> &check) const;
  void serveBlock(CompileMode &mode, ThreadTeam &team, Block block,
                  BlockOutcome &outcome) const;
  std::vector<Block> makeBlocks(size_t requests) const;

  absl::Status measureMemory(CompileRunOutcome &outcome) const;
  std::vector<Result> makeReferences(ThreadTeam &team) const;
  void record(CompileRunOutcome &outcome, ModeOutcome &mode, size_t module,
              const Result &result, ResultChecker &checker) const;
  void reportProgress(llvm::StringRef activity, double done) const {
    if (options.onProgress)
      options.onProgress(activity, done);
  }

  const llvm::ArrayRef<ModuleSource> sources;
  const CompileRunOptions &options;
  mutable ServedModules inFlight;
};

} // namespace

void Measurement::warmUp(
    CompileMode &mode, ThreadTeam &team,
    const std::function<void(size_t request, const Result &)> &check) const {
  for (Block block : makeBlocks(options.warmup)) {
    std::vector<Result> results(block.size, Result(std::string()));
    team.run([&](unsigned thread) {
      // Each thread takes those requests whose turn is its own.
      for (size_t i = 0; i < block.size; ++i)
        if ((block.begin + i) % team.size() == thread) {
          Result result = serve(mode, getWarmupModule(block.begin + i));
          // Results that nobody looks at are not to count as memory.
          if (check)
            results[i] = std::move(result);
        }
    });
    if (check)
      // On a compile thread, whose stack is large enough for what it compiled.
      team.runOnOne([&] {
        for (size_t i = 0; i < block.size; ++i)
          check(block.begin + i, results[i]);
      });
  }
}

void Measurement::serveBlock(CompileMode &mode, ThreadTeam &team, Block block,
                             BlockOutcome &outcome) const {
  outcome.results.assign(block.size, Result(std::string()));
  outcome.latenciesUs.assign(block.size, 0);
  std::atomic<size_t> next{0};
  double cpuBegin = getCpuSeconds();
  outcome.wallSeconds = team.run([&](unsigned) {
    size_t i;
    while ((i = next.fetch_add(1, std::memory_order_relaxed)) < block.size) {
      double begin = getWallSeconds();
      outcome.results[i] = serve(mode, getModule(block.begin + i));
      outcome.latenciesUs[i] = (getWallSeconds() - begin) * 1e6;
    }
  });
  outcome.cpuSeconds = getCpuSeconds() - cpuBegin;
}

std::vector<Block> Measurement::makeBlocks(size_t requests) const {
  // Enough for every thread to have a few, so that the end of a block, where
  // threads wait for the last one, does not weigh much; few enough for the
  // modes to alternate in short turns and for the results of a block to fit in
  // memory.
  constexpr size_t minBlock = 32;
  constexpr size_t maxBlockBytes = size_t(64) << 20;
  size_t largest = 1;
  for (const ModuleSource &source : sources)
    if (source.bytes)
      largest = std::max(largest, source.bytes->getBufferSize());
  size_t size = std::max<size_t>(minBlock, 4 * size_t(options.setup.threads));
  size = std::min(
      size, std::max<size_t>(maxBlockBytes / largest, options.setup.threads));
  std::vector<Block> blocks;
  for (size_t begin = 0; begin < requests; begin += size)
    blocks.push_back({begin, std::min(size, requests - begin)});
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
          absl::StatusOr<std::unique_ptr<CompileMode>> served =
              createCompileMode(name, options.setup);
          absl::StatusOr<std::unique_ptr<ThreadTeam>> team =
              ThreadTeam::create(options.setup.threads);
          if (!served.ok() || !team.ok())
            return false;
          warmUp(**served, **team, nullptr);
          std::atomic<size_t> next{0};
          (*team)->run([&](unsigned) {
            size_t i;
            while ((i = next.fetch_add(1, std::memory_order_relaxed)) <
                   options.requests)
              (void)serve(**served, getModule(i));
          });
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

std::vector<Result> Measurement::makeReferences(ThreadTeam &team) const {
  std::unique_ptr<CompileMode> mode = createReferenceMode(options.setup);
  reportProgress("references", 0);
  std::vector<Result> references(sources.size(), Result(std::string()));
  std::atomic<size_t> next{0};
  team.run([&](unsigned) {
    size_t i;
    while ((i = next.fetch_add(1, std::memory_order_relaxed)) < sources.size())
      references[i] = serve(*mode, i);
  });
  return references;
}

void Measurement::record(CompileRunOutcome &outcome, ModeOutcome &mode,
                         size_t module, const Result &result,
                         ResultChecker &checker) const {
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
  std::string difference = checker.check(module, result);
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
  std::vector<Result> references = makeReferences(**team);
  std::vector<std::string> referenceFailures;
  for (const Result &reference : references)
    referenceFailures.emplace_back(
        reference.ok() ? "" : std::string(reference.status().message()));
  ResultChecker checker(*options.setup.registry, std::move(references));

  std::vector<uint64_t> contextsOfWarmup;
  for (auto [number, mode] : llvm::enumerate(modes)) {
    reportProgress("warm-up", double(number) / double(modes.size()));
    warmUp(*mode, **team,
           [&, &outcomeOfMode = outcome.modes[number]](size_t request,
                                                       const Result &result) {
             record(outcome, outcomeOfMode, getWarmupModule(request), result,
                    checker);
           });
    contextsOfWarmup.push_back(mode->getContextsCreated());
  }

  std::vector<Block> blocks = makeBlocks(options.requests);
  for (auto [round, block] : llvm::enumerate(blocks)) {
    reportProgress("measuring", double(round) / double(blocks.size()));
    for (size_t turn = 0; turn < modes.size(); ++turn) {
      size_t number = (round + turn) % modes.size();
      BlockOutcome served;
      serveBlock(*modes[number], **team, block, served);

      ModeOutcome &mode = outcome.modes[number];
      mode.wallSeconds += served.wallSeconds;
      mode.cpuSeconds += served.cpuSeconds;
      mode.requests += block.size;
      (*team)->runOnOne([&, begin = block.begin] {
        for (auto [i, result] : llvm::enumerate(served.results)) {
          size_t module = getModule(begin + i);
          if (result.ok())
            mode.latenciesUs[module].push_back(served.latenciesUs[i]);
          else
            ++mode.failed;
          record(outcome, mode, module, result, checker);
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
  }
  return outcome;
}

absl::StatusOr<CompileRunOutcome>
bench::measureModes(llvm::ArrayRef<ModuleSource> sources,
                    const CompileRunOptions &options) {
  assert(!sources.empty() && "no module to compile");
  return Measurement(sources, options).run();
}

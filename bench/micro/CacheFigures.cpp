//===- CacheFigures.cpp - Figures of the cache and the service ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CompileMode.h"
#include "bench/CompileRun.h"
#include "bench/ModuleSource.h"
#include "bench/ModuleVariants.h"
#include "bench/ThreadTeam.h"
#include "bench/micro/Figure.h"
#include "bench/micro/MicroContexts.h"
#include "bench/micro/Subject.h"
#include "context_pool/CompileCache.h"
#include "context_pool/CompileService.h"
#include "context_pool/ContextPool.h"
#include "context_pool/Fingerprint.h"
#include "context_pool/support/Mutex.h"

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;

using Samples = absl::StatusOr<std::vector<double>>;

//===----------------------------------------------------------------------===//
// Hits in memory
//===----------------------------------------------------------------------===//

static CacheKey makeKey(uint64_t number) {
  CacheKey key;
  llvm::BLAKE3 hash;
  hash.update(llvm::ArrayRef(reinterpret_cast<const uint8_t *>(&number),
                             sizeof(number)));
  hash.final(key.digest.bytes);
  return key;
}

namespace {

/// A cache that holds some objects, all of which are asked for in turn.
class Hits {
public:
  static absl::StatusOr<std::unique_ptr<Hits>> create() {
    absl::StatusOr<std::unique_ptr<CompileCache>> cache =
        CompileCache::create();
    if (!cache.ok())
      return cache.status();
    std::unique_ptr<Hits> hits(new Hits(*std::move(cache)));
    for (uint64_t number = 0; number < keyCount; ++number) {
      hits->keys.push_back(makeKey(number));
      // Its own: copies of one count their owners in one place.
      Artifact artifact = Artifact::copyOf("object", std::string(4096, 'x'));
      if (absl::Status status =
              hits->cache->insert(hits->keys.back(), artifact);
          !status.ok())
        return status;
    }
    return hits;
  }

  /// Asks `count` times, beginning at the key with the number `first`.
  void ask(size_t first, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      absl::StatusOr<Artifact> artifact = cache->getOrCompile(
          keys[(first + i) % keyCount], []() -> absl::StatusOr<Artifact> {
            return absl::NotFoundError("a miss");
          });
      if (!artifact.ok())
        misses.fetch_add(1);
    }
  }

  Samples finish(std::vector<double> samples) const {
    if (misses)
      return absl::InternalError(
          absl::StrCat(misses.load(), " requests were no hits"));
    return samples;
  }

  static constexpr size_t keyCount = 256;

private:
  explicit Hits(std::unique_ptr<CompileCache> theCache)
      : cache(std::move(theCache)) {}

  const std::unique_ptr<CompileCache> cache;
  std::vector<CacheKey> keys;
  std::atomic<uint64_t> misses{0};
};

} // namespace

/// Nanoseconds of a hit on one thread of a process that has others, where counts
/// of owners are atomic. In many short samples, of which what interrupts the
/// thread spoils a few.
static Samples measureHit() {
  constexpr int samplesWanted = 101, requests = 4000;
  absl::StatusOr<std::unique_ptr<Hits>> hits = Hits::create();
  if (!hits.ok())
    return hits.status();
  absl::StatusOr<std::unique_ptr<ThreadTeam>> team = ThreadTeam::create(1);
  if (!team.ok())
    return team.status();
  std::vector<double> samples;
  (*team)->runOnOne([&] {
    (*hits)->ask(0, requests);
    for (int sample = 0; sample < samplesWanted; ++sample)
      samples.push_back(nanosecondsOf([&] { (*hits)->ask(0, requests); }) /
                        requests);
  });
  return (*hits)->finish(std::move(samples));
}

/// Hits a second of two threads, both of which ask for all keys, over those of
/// one. In many short samples, as `measureHit`.
static Samples compareThreads() {
  constexpr int samplesWanted = 101, requests = 20000;
  absl::StatusOr<std::unique_ptr<Hits>> hits = Hits::create();
  if (!hits.ok())
    return hits.status();
  absl::StatusOr<std::unique_ptr<ThreadTeam>> team = ThreadTeam::create(2);
  if (!team.ok())
    return team.status();
  auto measure = [&](unsigned threads) {
    std::atomic<unsigned> missing{threads};
    std::array<double, 2> times = {};
    (*team)->run([&](unsigned thread) {
      if (thread >= threads)
        return;
      // Both at once: waking up takes as long as some hundred hits.
      --missing;
      while (missing)
        std::this_thread::yield();
      times[thread] = nanosecondsOf(
          [&] { (*hits)->ask(thread * Hits::keyCount / 2, requests); });
    });
    return threads * double(requests) / std::max(times[0], times[1]);
  };
  std::vector<double> samples;
  measure(2);
  for (int sample = 0; sample < samplesWanted; ++sample) {
    double two = measure(2);
    samples.push_back(two / measure(1));
  }
  return (*hits)->finish(std::move(samples));
}

//===----------------------------------------------------------------------===//
// The service
//===----------------------------------------------------------------------===//

/// All dialects, with their translations to LLVM IR.
static const mlir::DialectRegistry &compilingDialects() {
  static const mlir::DialectRegistry registry = [] {
    mlir::DialectRegistry all;
    registerAll(all);
    mlir::registerAllToLLVMIRTranslations(all);
    return all;
  }();
  return registry;
}

namespace {

/// The same service with a cache and without, and a module that it compiles to
/// an object file.
class Services {
public:
  static absl::StatusOr<std::unique_ptr<Services>> create(int operations) {
    std::unique_ptr<Services> services(new Services(operations));
    CompileSetup setup;
    setup.registry = &compilingDialects();
    absl::StatusOr<std::unique_ptr<ContextPool>> pool = createPool(setup);
    if (!pool.ok())
      return pool.status();
    services->pool = *std::move(pool);
    absl::StatusOr<std::unique_ptr<CompileCache>> cache =
        CompileCache::create();
    if (!cache.ok())
      return cache.status();
    services->cache = *std::move(cache);

    CompileServiceOptions serviceOptions;
    serviceOptions.threads = 1;
    serviceOptions.output = CompileServiceOptions::Output::Object;
    serviceOptions.recipe.pipeline =
        "builtin.module(convert-arith-to-llvm,finalize-memref-to-llvm,"
        "convert-func-to-llvm,reconcile-unrealized-casts)";
    for (auto [service, itsCache] :
         {std::pair(&services->cached, services->cache.get()),
          std::pair(&services->uncached,
                    static_cast<CompileCache *>(nullptr))}) {
      absl::StatusOr<std::unique_ptr<CompileService>> created =
          CompileService::create(*services->pool, itsCache, serviceOptions);
      if (!created.ok())
        return created.status();
      *service = *std::move(created);
    }
    // From now on this is a hit.
    services->hit();
    if (!services->failure.ok())
      return services->failure;
    return services;
  }

  /// A request that the cache answers.
  void hit() { (void)check(cached->compile(*subject.module)); }
  /// One that has to be compiled.
  absl::StatusOr<Artifact> compile() {
    return check(uncached->compile(*subject.module));
  }
  void digest() {
    if (absl::StatusOr<Fingerprint> digest = fingerprint(subject.get());
        !digest.ok())
      failure = digest.status();
  }

  Samples finish(std::vector<double> samples) const {
    if (!failure.ok())
      return failure;
    if (uint64_t compiles = cache->getStats().compiles; compiles != 1)
      return absl::InternalError(
          absl::StrCat(compiles, " compiles of one module"));
    return samples;
  }

private:
  explicit Services(int operations) : subject(makeSubject(operations)) {}

  absl::StatusOr<Artifact> check(absl::StatusOr<Artifact> artifact) {
    if (!artifact.ok())
      failure = artifact.status();
    return artifact;
  }

  Subject subject;
  std::unique_ptr<ContextPool> pool;
  std::unique_ptr<CompileCache> cache;
  std::unique_ptr<CompileService> cached, uncached;
  absl::Status failure;
};

} // namespace

/// Fingerprint, key and hit over a compile.
static Samples compareWithCompile() {
  constexpr int operations = 1000, calls = 50;
  absl::StatusOr<std::unique_ptr<Services>> services =
      Services::create(operations);
  if (!services.ok())
    return services.status();
  return (*services)->finish(ratios(
      [&] {
        return nanosecondsOf([&] {
                 for (int call = 0; call < calls; ++call)
                   (*services)->hit();
               }) /
               calls;
      },
      [&] { return nanosecondsOf([&] { (void)(*services)->compile(); }); }));
}

/// Microseconds of a request that hits, without those of its fingerprint.
static Samples measureService() {
  // Few operations, so that the difference is not lost in the fingerprint.
  constexpr int operations = 10, calls = 20000;
  absl::StatusOr<std::unique_ptr<Services>> services =
      Services::create(operations);
  if (!services.ok())
    return services.status();
  auto time = [&](void (Services::*request)()) {
    return nanosecondsOf([&] {
             for (int call = 0; call < calls; ++call)
               ((**services).*request)();
           }) /
           calls;
  };
  return (*services)->finish(interleave(
      [&] { return time(&Services::hit); },
      [&] { return time(&Services::digest); },
      [](double hit, double digest) { return (hit - digest) / 1e3; }));
}

//===----------------------------------------------------------------------===//
// Single flight
//===----------------------------------------------------------------------===//

namespace {

/// What the threads wait for where there is no cache: the least that has to
/// happen for all of them to go on.
class Latch {
public:
  void open() {
    MutexLock lock(mutex);
    isOpen = true;
    opened.notifyAll();
  }
  void wait() {
    MutexLock lock(mutex);
    while (!isOpen)
      opened.wait(mutex);
  }

private:
  Mutex mutex;
  CondVar opened;
  bool isOpen ABSL_GUARDED_BY(mutex) = false;
};

} // namespace

/// 64 threads that ask for one key, which one of them compiles, over 64 threads
/// of which one compiles the same and the others wait for it at a latch: a
/// compile and the scheduling of that many threads, without a cache.
static Samples compareFlight() {
  constexpr unsigned threads = 64;
  absl::StatusOr<std::unique_ptr<Services>> services = Services::create(1000);
  if (!services.ok())
    return services.status();
  absl::StatusOr<std::unique_ptr<CompileCache>> cache = CompileCache::create();
  if (!cache.ok())
    return cache.status();
  absl::StatusOr<std::unique_ptr<ThreadTeam>> team =
      ThreadTeam::create(threads);
  if (!team.ok())
    return team.status();
  absl::Status failure;
  uint64_t flights = 0;
  auto fly = [&] {
    CacheKey key = makeKey(flights++);
    std::atomic<unsigned> compiles{0};
    std::vector<Artifact> artifacts(threads);
    double seconds = (*team)->run([&](unsigned thread) {
      absl::StatusOr<Artifact> artifact = (*cache)->getOrCompile(key, [&] {
        ++compiles;
        return (*services)->compile();
      });
      if (artifact.ok())
        artifacts[thread] = *artifact;
    });
    if (compiles != 1)
      failure = absl::InternalError(
          absl::StrCat(compiles.load(), " compiles, expected one"));
    for (const Artifact &artifact : artifacts)
      if (artifact.getBytes().empty() ||
          artifact.getBytes().data() != artifacts[0].getBytes().data())
        failure = absl::InternalError("a thread did not get the artifact");
    return seconds;
  };
  auto waitAtLatch = [&] {
    Latch latch;
    std::atomic<bool> taken{false};
    return (*team)->run([&](unsigned) {
      if (taken.exchange(true))
        return latch.wait();
      (void)(*services)->compile();
      latch.open();
    });
  };
  std::vector<double> samples = ratios(fly, waitAtLatch);
  if (!failure.ok())
    return failure;
  return (*services)->finish(std::move(samples));
}

//===----------------------------------------------------------------------===//
// Serving
//===----------------------------------------------------------------------===//

/// Requests a second of a service over those of a server that makes a new
/// context for each, on two threads, which give object files. So many percent of
/// the requests bring a module that came before.
static Samples compareServing(std::vector<ModuleSource> sources,
                              unsigned duplicates, unsigned requestsOfEach,
                              int times) {
  CompileRunOptions options;
  options.setup.registry = &compilingDialects();
  options.setup.threads = 2;
  options.setup.output = CompileOutput::Object;
  // One pool serves all, so its contexts have what any of the pipelines wants.
  std::vector<std::string> pipelines;
  for (const ModuleSource &source : sources)
    pipelines.push_back(source.pipeline);
  options.setup.preload.emplace();
  options.setup.preloadForPipeline =
      "builtin.module(" + llvm::join(pipelines, ",") + ")";
  options.modes = {"fresh", "service"};
  options.requests = static_cast<unsigned>(sources.size()) * requestsOfEach;
  options.warmup = static_cast<unsigned>(sources.size()) * 2;
  options.duplicates = duplicates;
  options.measureMemory = false;

  absl::StatusOr<std::unique_ptr<ThreadTeam>> team = ThreadTeam::create(1);
  if (!team.ok())
    return team.status();
  (*team)->runOnOne([&] {
    numberSources(sources, compilingDialects(),
                  /*allowUnregisteredDialects=*/false);
  });

  std::vector<double> samples;
  for (int repetition = 0; repetition < times; ++repetition) {
    absl::StatusOr<CompileRunOutcome> outcome = measureModes(sources, options);
    if (!outcome.ok())
      return outcome.status();
    for (const RequestFailure &failure : outcome->failures)
      return absl::InternalError(
          absl::StrCat(sources[failure.module].name, ": ", failure.message));
    for (const ResultMismatch &mismatch : outcome->mismatches)
      return absl::InternalError(absl::StrCat(sources[mismatch.module].name,
                                              ", ", mismatch.mode, ": ",
                                              mismatch.message));
    samples.push_back(outcome->modes[1].getThroughput() /
                      outcome->modes[0].getThroughput());
  }
  return samples;
}

/// The bundled modules of so many bytes, but for the one that has no code for
/// the host.
static std::vector<ModuleSource> getBundled(size_t least, size_t most) {
  std::vector<ModuleSource> sources = readBundledModules();
  llvm::erase_if(sources, [&](const ModuleSource &source) {
    size_t bytes = source.bytes->getBufferSize();
    return bytes < least || bytes > most || source.name == "gpu_kernel.mlir";
  });
  return sources;
}

std::vector<Figure> bench::makeCacheFigures() {
  constexpr auto atMost = Figure::Bound::AtMost;
  return {
      {"R14", "a hit in memory, key known, one thread", atMost, 150, "ns",
       measureHit},
      {"R14b", "hits of two threads over those of one", Figure::Bound::AtLeast,
       1.8, "x", compareThreads},
      {"R14c",
       "fingerprint, key and hit over compiling to an object, 1,000 operations",
       atMost, 0.02, "x", compareWithCompile},
      {"R15",
       "64 threads that ask for one key over one compile awaited at a latch",
       atMost, 1.1, "x", compareFlight},
      {"R16", "a service over fresh contexts, objects, 90 % duplicates",
       Figure::Bound::AtLeast, 8, "x",
       // Twenty requests for each module, two of which are new. It takes long.
       [] { return compareServing(getBundled(0, SIZE_MAX), 90, 20, 3); }},
      {"R16b", "the same without duplicates, modules of less than 2 kB",
       Figure::Bound::AtLeast, 1.3, "x",
       [] { return compareServing(getBundled(0, 1999), 0, 20, repetitions); }},
      {"R16b-large", "the same without duplicates, modules of 6 kB or more",
       Figure::Bound::AtLeast, 0.97, "x",
       [] {
         return compareServing(getBundled(6000, SIZE_MAX), 0, 4, repetitions);
       }},
      {"R17", "the service around a compile that hits, without the fingerprint",
       atMost, 2, "us", measureService},
  };
}

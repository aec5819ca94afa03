//===- CompileRun.h - Modes measured against each other ------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_COMPILERUN_H
#define CONTEXT_POOL_BENCH_COMPILERUN_H

#include "bench/CompileMode.h"
#include "bench/ModuleSource.h"

#include "absl/status/statusor.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ctxpool::bench {

struct CompileRunOptions {
  CompileSetup setup;
  std::vector<std::string> modes;
  unsigned requests = 1; ///< Measured requests of each mode.
  unsigned warmup = 0;   ///< Requests of each mode before those.

  /// How many percent of the measured requests repeat a module of warm-up, 0 to
  /// 100. The others bring modules that nobody saw before: variants of the
  /// sources, to which `numberSources` gave a number. Nothing: requests bring the
  /// sources as they are, over and over.
  std::optional<unsigned> duplicates;

  /// The number behind which those of the new modules begin. It has to differ
  /// from run to run where a cache outlives one, which would know them.
  uint64_t variantsBegin = 0;

  /// With `duplicates`: whether requests bring live modules, each in a context of
  /// its own, made before it is measured.
  bool bringLive = false;

  /// Whether the peak memory of the modes is measured: by processes that are
  /// forked, so only while this one has a single thread.
  bool measureMemory = true;

  /// Called now and then with what is going on and how much of it is done,
  /// between 0 and 1. May be empty.
  std::function<void(llvm::StringRef activity, double done)> onProgress;
};

/// What a mode's cache did in its measured requests.
struct CacheOutcome {
  uint64_t requests = 0;   ///< That came as far as the cache.
  uint64_t hits = 0;       ///< ... that were answered at once.
  uint64_t diskHits = 0;   ///< ... from the folder.
  uint64_t remoteHits = 0; ///< ... from the server.
  uint64_t joined = 0;     ///< ... that waited for another's compile.
  uint64_t compiles = 0;   ///< ... that compiled.
  uint64_t failures = 0;   ///< Compiles that failed.
  double secondsSaved = 0; ///< What the compiles of all hits had cost.

  /// What went to make room, as of `CacheTierStats::evictions`.
  uint64_t memoryEvictions = 0, diskEvictions = 0;

  /// Faults of folder and server since the mode was set up, and the last one.
  uint64_t tierErrors = 0;
  std::string lastTierError;

  /// Share of the requests that were hits; 0 where there were none.
  double getHitRate() const {
    return requests ? static_cast<double>(hits) / static_cast<double>(requests)
                    : 0;
  }
};

/// What one mode did in its measured requests.
struct ModeOutcome {
  std::string mode;
  uint64_t requests = 0; ///< Those that failed included.
  uint64_t failed = 0;

  /// Time in which the mode's blocks ran.
  double wallSeconds = 0;

  /// Processor time of the whole process in these blocks, so that of the pool's
  /// own thread as well.
  double cpuSeconds = 0;

  /// Of the requests that did not fail, by module.
  std::vector<std::vector<double>> latenciesUs;

  /// Contexts made for the requests. Those that the pool made before, in
  /// warm-up, are included: they serve the measured requests.
  uint64_t contextsCreated = 0;

  /// Peak resident memory of a process that serves the mode's requests, warm-up
  /// included, and nothing else. Unknown where such a process could not be
  /// made.
  std::optional<uint64_t> peakResidentBytes;

  /// Requests, of warm-up as well, whose result is not that of the reference.
  uint64_t mismatches = 0;

  /// Nothing where the mode has no cache.
  std::optional<CacheOutcome> cache;

  double getThroughput() const {
    return wallSeconds > 0
               ? static_cast<double>(requests - failed) / wallSeconds
               : 0;
  }
  std::vector<double> getAllLatencies() const;
};

/// Requests that failed for one reason.
struct RequestFailure {
  size_t module = 0;
  std::string mode; ///< `reference`: no request of a mode reached the module.
  std::string message;
  uint64_t count = 0; ///< In warm-up as well.
};

/// A result that is not what a fresh context gives.
struct ResultMismatch {
  size_t module = 0;
  std::string mode;
  std::string message;
  uint64_t count = 0;
};

struct CompileRunOutcome {
  std::vector<ModeOutcome> modes;
  std::vector<RequestFailure> failures;
  std::vector<ResultMismatch> mismatches;

  /// Peak resident memory of such a process that serves no request.
  std::optional<uint64_t> baselineResidentBytes;
};

/// Measures the modes with the same requests, which go round the modules.
///
/// The requests are split in blocks of some tens. Each block is served by every
/// mode, one after the other, in an order that rotates from block to block, so
/// that a slow moment of the machine hits all of them. Within a block the
/// threads take the next request as they become free.
///
/// Every result, those of warm-up too, is compared with a reference: what a
/// fresh context with all dialects loaded gives for the bytes of the module, made
/// once per module before measuring. That happens between the blocks and is in no
/// figure. Modules are compared by what they are (`digestModule`), and code by
/// its bytes; where these differ, by those that further fresh contexts give, as
/// upstream's passes leave the order of private constants to chance. What is made
/// of a variant must hold the number of that variant, and is compared with the
/// number of the reference in its place. A request that fails where the reference
/// did not, or the other way round, is a mismatch.
///
/// What such a process compiles goes into no folder and to no server: the
/// measured requests find there what was there before.
///
/// Call it while the process has a single thread; see `measurePeakResident`.
///
/// Errors: what a mode could not be set up for; or a process that measured a
///         mode's memory died, which tells that the compiler crashes.
absl::StatusOr<CompileRunOutcome>
measureModes(llvm::ArrayRef<ModuleSource> sources,
             const CompileRunOptions &options);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_COMPILERUN_H

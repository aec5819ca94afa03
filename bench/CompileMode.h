//===- CompileMode.h - Ways to serve a compile request -------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_COMPILEMODE_H
#define CONTEXT_POOL_BENCH_COMPILEMODE_H

#include "bench/ModuleSource.h"
#include "context_pool/CompileCache.h"
#include "context_pool/CompileService.h"

#include "absl/status/statusor.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace ctxpool {
class ContextLease;
class ContextPool;
} // namespace ctxpool

namespace ctxpool::bench {

using CompileOutput = CompileServiceOptions::Output;

/// The names of all of them, in their order: module, llvmir, object.
llvm::ArrayRef<llvm::StringRef> getCompileOutputNames();

/// The one of that name.
std::optional<CompileOutput> findCompileOutput(llvm::StringRef name);

/// The recipe that a `CompileService` with this output has for a pipeline: its
/// key of a module is `ResolvedRecipe`'s of this one.
CompileRecipe makeRecipe(llvm::StringRef pipeline, CompileOutput output);

/// What all modes are set up with.
struct CompileSetup {
  /// Dialects and extensions; translations to LLVM IR too where `output` is no
  /// module. Has to outlive the mode.
  const mlir::DialectRegistry *registry = nullptr;
  bool allowUnregisteredDialects = false;

  /// What the pool's template preloads; see `ContextTemplateOptions`.
  std::optional<std::vector<std::string>> preload;
  std::string preloadForPipeline;

  /// Threads that call `serve` at one time.
  unsigned threads = 1;

  /// What a request gets. Code is for this machine's target and its generic CPU,
  /// at optimisation level 2.
  CompileOutput output = CompileOutput::Module;

  /// Whether a crash is an error of its request, in the modes `fresh`,
  /// `fresh-lazy` and `service`, while `installCrashHandlers`'s result lives.
  bool crashRecovery = false;

  /// The caches of the modes that have one: each has its own, and what is behind
  /// memory in common.
  CompileCacheOptions cache;
};

/// A compile server in one way of dealing with contexts.
///
/// A request is: the bytes of a module arrive on a compile thread; parse and
/// verify, run the pipeline, write the result as bytecode or generate code. Where
/// the module is live in a front end's context, it is cloned from there in place
/// of parsed, and not verified again but by the service. The latency of a request
/// covers what the thread is busy with, so the destruction of what it made as
/// well. No mode lets a context have threads: a server that compiles on many
/// threads has enough of them, and contexts that start threads of their own are
/// slower.
///
/// Thread safety: every member may be called from several threads at once.
class CompileMode {
public:
  virtual ~CompileMode() = default;

  virtual llvm::StringRef getName() const = 0;

  /// Compiles `source`, which has bytes.
  ///
  /// Errors: any code; the message says which step failed and has MLIR's
  ///         diagnostics.
  virtual absl::StatusOr<Artifact> serve(const ModuleSource &source) = 0;

  /// Contexts that were made so far.
  virtual uint64_t getContextsCreated() const = 0;

  /// Whether a request is served by contexts that were made before it.
  virtual bool keepsContexts() const { return false; }

  /// What its cache did so far, once what waits to be written is; nothing where
  /// it has none.
  virtual std::optional<CompileCacheStats> getCacheStats() const {
    return std::nullopt;
  }
};

/// The names of all modes, in the order in which reports list them:
///   fresh       a new context with every dialect loaded, a new pass manager and
///               a new code generator for each request, all destroyed after it:
///               what a naive compile server does
///   fresh-lazy  the same with dialects loaded on demand: the strongest thing
///               that upstream offers
///   pool        a lease of a `ContextPool`, its pass manager, and target
///               machines that are kept
///   pool+cache  the same behind a `CompileCache`: what a request brings is
///               parsed and digested, and compiled where the cache does not have
///               it
///   service     a `CompileService` for each pipeline, all on one pool and one
///               cache, called on the threads of the requests
llvm::ArrayRef<llvm::StringRef> getCompileModeNames();

/// A pool of contexts as the setup wants them, for its threads.
///
/// Errors: what the template's or the pool's `create` returned.
absl::StatusOr<std::unique_ptr<ContextPool>>
createPool(const CompileSetup &setup);

/// What the mode `pool` does with its lease where a module comes out.
absl::StatusOr<Artifact> serveInLease(ContextLease &lease,
                                      const ModuleSource &source);

/// What results are compared with: `fresh`, from the bytes even where the module
/// is live.
std::unique_ptr<CompileMode> createReferenceMode(const CompileSetup &setup);

/// Errors: NotFound - there is no mode of that name.
///         What the template's, the pool's or the cache's `create` returned.
absl::StatusOr<std::unique_ptr<CompileMode>>
createCompileMode(llvm::StringRef name, const CompileSetup &setup);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_COMPILEMODE_H

//===- CompileService.h - Modules in, artifacts out -------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Compiles modules by one recipe, on contexts of a pool and through a cache, and
/// survives what a compiler does to a server.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_COMPILESERVICE_H
#define CONTEXT_POOL_COMPILESERVICE_H

#include "context_pool/CompileCache.h"
#include "context_pool/Fingerprint.h"

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "llvm/ADT/StringRef.h"

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>

namespace mlir {
class ModuleOp;
} // namespace mlir

namespace ctxpool {

class ContextPool;

struct CompileServiceOptions {
  /// Threads that serve what is submitted. 0: as many as the machine runs at
  /// one time.
  unsigned threads = 0;

  /// What is done to every module. The pipeline is anchored on `builtin.module`;
  /// target, CPU, features, code model and level matter to `LLVMIR` and `Object`.
  CompileRecipe recipe;

  /// What comes out.
  enum class Output {
    Module, ///< The module after the pipeline: artifact `mlir-bytecode`.
    LLVMIR, ///< Optimised LLVM IR: artifact `llvm-bitcode`.
    Object  ///< A relocatable object file: artifact `object`.
  } output = Output::Module;

  /// Whether a crash of a request is an Internal error of that request, and not
  /// the end of the process. A crash is a fault, an overflow of the stack, an
  /// abort, or a fatal error of LLVM's, in the parser, the verifier, a pass or
  /// code generation, on a thread that serves the request. What else runs of
  /// the host's, such as the template's `onClone`, is not part of it, also where
  /// a pass compiles.
  ///
  /// As long as such a service lives, the process has handlers of SIGSEGV,
  /// SIGBUS, SIGILL, SIGFPE, SIGTRAP and SIGABRT. Signals that are not of a
  /// request go to those that were there before, which are back after the last
  /// such service. What the crash left behind is leaked: the context, the memory
  /// that was being used, and locks of LLVM's, MLIR's or the allocator's that
  /// were held, which a later request may wait for in vain. Contexts have no
  /// threads meanwhile, also where the template has.
  bool crashRecovery = false;

  /// With `crashRecovery`: whether LLVM's fatal error handler is left alone, of
  /// which a process has one, for the host has installed its own. If not, the
  /// service installs one, so that LLVM prints nothing, the reason is in the
  /// status, and errors that end in `exit` are recovered from; those of others
  /// than a request are reported as LLVM does.
  bool keepFatalErrorHandler = false;

  /// From when a thread begins to serve a request. Bounds the wait for another
  /// compile of the same module and for a context, and stops the pipeline before
  /// the next pass. At least 0. A pass, parsing and code generation are not
  /// interrupted.
  absl::Duration timeout = absl::InfiniteDuration();

  /// Which differences between modules matter: modules that are equal by these
  /// options share an artifact.
  StructuralOptions structural;

  /// Requests that wait for a thread. At least 1.
  size_t queueCapacity = 256;

  /// The stack of a thread, in bytes. At least 8 MiB: MLIR's parser and verifier
  /// are recursive, and 1,000 nested regions take 1 MiB of it.
  size_t stackBytes = size_t(8) << 20;

  /// What the destructor does with requests that no thread has begun.
  enum class OnDestroy {
    Finish, ///< Serves them.
    Cancel  ///< Answers them with Cancelled.
  } onDestroy = OnDestroy::Finish;
};

/// Counts since the service was created, and, for the last two, of the moment.
struct CompileServiceStats {
  uint64_t requests = 0; ///< Requests that were answered.
  uint64_t failures = 0; ///< ... with an error.
  uint64_t crashes = 0;  ///< Compiles that crashed or threw.
  uint64_t timeouts = 0; ///< Pipelines that `timeout` stopped.
  size_t queued = 0;     ///< Requests that wait for a thread.
  size_t running = 0;    ///< Requests that a thread of the service serves.
};

/// A compile server: one recipe, any number of modules.
///
/// A request looks its module up by fingerprint and recipe. Where the cache does
/// not have it, one thread takes a context from the pool, copies the module into
/// it, verifies it, runs the pipeline, generates code and publishes the artifact;
/// others that ask for the same meanwhile wait for that. Pass managers and target
/// machines are reused. `compile` around a module that the cache has in memory
/// costs a fingerprint and less than 1 us.
///
/// Where the cache verifies hits, artifacts have a meaning that does not see the
/// names and the order of private symbols, which upstream's passes leave to
/// chance.
///
/// Errors of a request, by all members that compile:
///   InvalidArgument    - the module does not parse, verify, go through the
///                        pipeline or through code generation; the message says
///                        which, has the diagnostics, and names the pass.
///   FailedPrecondition - the module uses a dialect that the pool's contexts do
///                        not have, or holds what cannot be digested, copied or
///                        written without loss; it is what it itself waits for;
///                        or the service was made before a fork.
///   DeadlineExceeded   - `timeout` is over; the message says after which pass.
///   ResourceExhausted  - a compile out of a compile finds no context, see below;
///                        all threads of the service ended in passes, and no
///                        other could be had; or, with `crashRecovery`, there is
///                        no memory for the stack on which crashes are handled.
///   Internal           - a pass threw an exception or, with `crashRecovery`, the
///                        request crashed; the message names the stage and pass.
///                        The context is never used again, nor destroyed. Or the
///                        system refuses that stack.
///   Aborted            - the thread that compiled ended in a pass
///                        (`pthread_exit`, `pthread_cancel`). For those who
///                        waited, and for futures; a thread of the service is
///                        replaced, and the context is as after a crash.
///   Cancelled          - the service was destroyed before a thread began the
///                        request, see `OnDestroy`. For futures.
///   What the pool's `onClone` returned.
/// Errors go to all who wait for the same compile, and are not cached. Passes are
/// not named where contexts have an action handler of the template's. Where
/// contexts have threads, an exception on one of these ends the process.
///
/// Counts of the cache: a request that is still bytes has a context in hand when
/// it asks; where another thread compiles the same, it gives up (`abandoned`),
/// lets go of the context, and asks again. Where another process does, with which
/// the cache shares a folder, it lets go of the context as well.
///
/// Ownership:     pool and cache must outlive the service.
/// Thread safety: every member may be called from several threads at once, but
///                for the destructor, which no other call may overlap.
/// Nesting:       a pass may compile by a service, its own included. Where that
///                one's pool, or one whose contexts the thread holds, has a
///                `maxLive`, such a compile waits for no context and for nobody
///                else's compile, so that none waits for itself. What a thread of
///                a service or in a compile submits, it serves itself at once.
/// Keys:          are made with `getResolvedRecipe`, which tells outputs apart,
///                and not with `recipe` alone. They say nothing of the pool's
///                template: services that share a cache and whose contexts differ
///                in what matters to the pipeline, such as dialects and the
///                interfaces that extensions bring, need to differ in
///                `recipe.extra`.
/// Fork:          a child may destroy the service and make its own of a pool and
///                a cache of its own; futures of the parent are never answered
///                there.
class CompileService {
public:
  using Future = std::future<absl::StatusOr<Artifact>>;

  /// `cache` may be null: every request compiles.
  ///
  /// Errors: InvalidArgument    - an option is out of its range; the message
  ///                              names the field.
  ///         FailedPrecondition - contexts of the pool lack the translation to
  ///                              LLVM IR that the output needs, or have an
  ///                              action handler of their own, which `timeout`
  ///                              and `crashRecovery` need.
  ///         ResourceExhausted  - the threads could not be started.
  ///         Internal           - the system refuses a signal handler, which
  ///                              `crashRecovery` needs.
  ///         What the template's `onClone` returned.
  static absl::StatusOr<std::unique_ptr<CompileService>>
  create(ContextPool &pool, CompileCache *cache, CompileServiceOptions options);

  /// Ends the threads when they have served what they have begun; see
  /// `OnDestroy` for the rest. Every future has its answer then.
  ~CompileService();
  CompileService(const CompileService &) = delete;
  CompileService &operator=(const CompileService &) = delete;

  /// Compiles on the calling thread, and its stack.
  ///
  /// Contexts: any. The module is read and left as it is; other threads may read
  ///           it and its context meanwhile.
  absl::StatusOr<Artifact> compile(mlir::ModuleOp module);

  /// Compiles on a thread of the service. The module is read before `submit`
  /// returns. Waits where the queue is full. What the cache has is answered at
  /// once; a module that MLIR's bytecode cannot carry to another thread without
  /// loss is compiled before `submit` returns.
  Future submit(mlir::ModuleOp module);

  /// The same for a module that is still MLIR's text or bytecode; `name` is that
  /// of locations and messages. The module is parsed in a context of the pool,
  /// under `crashRecovery`, before the cache is asked: for modules of strangers.
  /// Parsing has no limit of time.
  absl::StatusOr<Artifact> compileSource(llvm::StringRef source,
                                         llvm::StringRef name = "<source>");

  /// ... on a thread of the service. The bytes are copied. Waits where the queue
  /// is full.
  Future submitSource(llvm::StringRef source,
                      llvm::StringRef name = "<source>");

  CompileServiceStats getStats() const;

  /// With every field settled: the number of threads, the recipe as
  /// `ResolvedRecipe` has it. A service that is made of them has the same keys.
  const CompileServiceOptions &getOptions() const;

  /// What the keys of the service are made with: the recipe of `getOptions()`,
  /// whose `options` have the output in front of them (`output=module;`,
  /// `output=llvmir;` or `output=object;`). The cache has what the service makes
  /// of a module under
  /// \code
  ///   service.getResolvedRecipe().makeKey(
  ///       *fingerprint(module, service.getOptions().structural))
  /// \endcode
  const ResolvedRecipe &getResolvedRecipe() const;

private:
  class Impl;
  explicit CompileService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace ctxpool

#endif // CONTEXT_POOL_COMPILESERVICE_H

//===- CompileService.cpp - Modules in, artifacts out ---------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiled with exceptions: a thread that ends in a pass unwinds through here.
//
//===----------------------------------------------------------------------===//

#include "context_pool/CompileService.h"

#include "context_pool/ContextPool.h"
#include "context_pool/ModuleTransfer.h"
#include "context_pool/cache/CacheAccess.h"
#include "context_pool/compile/Annotate.h"
#include "context_pool/compile/CodeGenerator.h"
#include "context_pool/compile/Compilation.h"
#include "context_pool/compile/CrashRecovery.h"
#include "context_pool/compile/Deadline.h"
#include "context_pool/compile/RequestQueue.h"
#include "context_pool/compile/ServiceOptions.h"
#include "context_pool/support/Fork.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Threading.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;

using Output = CompileServiceOptions::Output;
using OnDestroy = CompileServiceOptions::OnDestroy;
using Result = absl::StatusOr<Artifact>;
using Module = Compilation::OwningModule;

namespace {

/// Bytes of a module that a request brings along, aligned as MLIR's reader wants
/// them.
struct Source {
  static Source copyOf(llvm::StringRef bytes, llvm::StringRef name) {
    std::unique_ptr<llvm::WritableMemoryBuffer> copy =
        llvm::WritableMemoryBuffer::getNewUninitMemBuffer(bytes.size(), name,
                                                          llvm::Align(64));
    std::copy(bytes.begin(), bytes.end(), copy->getBufferStart());
    return {std::move(copy), name.str()};
  }

  std::unique_ptr<llvm::MemoryBuffer> bytes;
  std::string name;
};

/// A module that was submitted.
struct SubmittedModule {
  SerializedModule bytes;
  std::optional<CacheKey> key;
  std::string name;
};

std::string nameOf(mlir::ModuleOp module) {
  std::optional<llvm::StringRef> name = module.getName();
  return name ? absl::StrCat("@", name->str()) : "a module";
}

} // namespace

//===----------------------------------------------------------------------===//
// The service
//===----------------------------------------------------------------------===//

class CompileService::Impl {
public:
  Impl(ContextPool &pool, CompileCache *cache, CompileServiceOptions options,
       ResolvedRecipe recipe, std::unique_ptr<CodeGenerator> generator)
      : pool(pool), cache(cache), recipe(std::move(recipe)),
        setup{std::move(options), std::move(generator),
              cache && cache->getOptions().verifyHits},
        queue(setup.options.queueCapacity,
              [this](const Result &result) { count(result); }) {}

  absl::Status start();
  void stop();

  Result compile(mlir::ModuleOp module);
  Result compileSource(const Source &source);
  Future submit(mlir::ModuleOp module);
  Future submitSource(Source source);
  CompileServiceStats getStats() const;
  const CompileServiceOptions &getOptions() const { return setup.options; }
  const ResolvedRecipe &getResolvedRecipe() const { return recipe; }

  bool isInherited() const { return mark.isInherited(); }
  /// In a forked child: gives the child its signal handlers back.
  void removeHandlers() { handlers.reset(); }

  static Future answer(Result result);

private:
  /// Whether the calling thread must not wait for others: it may hold a context
  /// that they are waiting for, or be waited for with one.
  bool mustNotWait() const;
  /// Whether the calling thread serves itself what it submits: where it waited
  /// for room, or for the answer, it could wait for itself.
  static bool mustServeItself();
  absl::StatusOr<ContextLease> acquire(Deadline deadline);

  absl::StatusOr<CacheKey> makeKey(mlir::ModuleOp module) const;
  // In a compile out of a compile, the outer one's recovery must not skip what
  // these hold: leases, and compiles that others wait for.

  /// The artifact of `key`, or what `build` makes where nobody has it.
  Result getOrBuild(const CacheKey &key, llvm::function_ref<Result()> build,
                    Deadline deadline);
  /// Compiles what `load` brings into a context; `how` names that step.
  Result build(const std::string &name, Compilation::Load load,
               llvm::StringLiteral how, Deadline deadline);
  /// `CacheAccess::ReadMeaning`, in a context of its own.
  std::optional<Fingerprint> readMeaning(const Artifact &artifact,
                                         Deadline deadline);
  Result buildFromSource(const Source &source, Deadline deadline);
  Result serveSource(const Source &source, Deadline deadline);
  Result serveModule(const SubmittedModule &module, Deadline deadline);

  void count(const Result &result);
  Result counted(Result result) {
    count(result);
    return result;
  }

  const ForkMark mark;
  ContextPool &pool;
  CompileCache *const cache;
  const ResolvedRecipe recipe;
  CompilationSetup setup;
  std::optional<CrashHandlers> handlers;
  std::atomic<uint64_t> requests{0}, failures{0};
  RequestQueue queue;
};

//===----------------------------------------------------------------------===//
// Requests
//===----------------------------------------------------------------------===//

bool CompileService::Impl::mustNotWait() const {
  return Compilation::holdsLimitedContext() ||
         (pool.getOptions().maxLive != 0 && Compilation::isUnderWay());
}

bool CompileService::Impl::mustServeItself() {
  return Compilation::isUnderWay() || RequestQueue::isOnThreadOfQueue();
}

absl::StatusOr<ContextLease> CompileService::Impl::acquire(Deadline deadline) {
  if (!mustNotWait())
    return pool.acquire(deadline.getRemaining());
  absl::StatusOr<ContextLease> lease = pool.acquire(absl::ZeroDuration());
  if (absl::IsDeadlineExceeded(lease.status()))
    return absl::ResourceExhaustedError(
        absl::StrCat("a compile out of a compile does not wait: ",
                     lease.status().message()));
  return lease;
}

absl::StatusOr<CacheKey>
CompileService::Impl::makeKey(mlir::ModuleOp module) const {
  absl::StatusOr<Fingerprint> digest =
      fingerprint(module, setup.options.structural);
  if (!digest.ok())
    return digest.status();
  return recipe.makeKey(*digest);
}

Result CompileService::Impl::getOrBuild(const CacheKey &key,
                                        llvm::function_ref<Result()> build,
                                        Deadline deadline) {
  RecoveryBarrier barrier;
  auto readMeaningOf = [&](const Artifact &artifact) {
    return readMeaning(artifact, deadline);
  };
  CacheAccess::Caller caller;
  caller.readMeaning = readMeaningOf;
  if (!mustNotWait())
    return CacheAccess::getOrCompile(*cache, key, build,
                                     deadline.getRemaining(), caller);
  bool built = false;
  Result result = CacheAccess::getOrCompile(
      *cache, key,
      [&] {
        built = true;
        return build();
      },
      absl::ZeroDuration(), caller);
  // Somebody else is at it.
  if (!built && absl::IsDeadlineExceeded(result.status()))
    return build();
  return result;
}

std::optional<Fingerprint>
CompileService::Impl::readMeaning(const Artifact &artifact, Deadline deadline) {
  absl::StatusOr<ContextLease> lease = acquire(deadline);
  if (!lease.ok())
    return std::nullopt;
  Compilation reading(setup, pool, *std::move(lease), "a cached artifact",
                      deadline);
  return reading.readMeaning(artifact);
}

Result CompileService::Impl::build(const std::string &name,
                                   Compilation::Load load,
                                   llvm::StringLiteral how, Deadline deadline) {
  RecoveryBarrier barrier;
  absl::StatusOr<ContextLease> lease = acquire(deadline);
  if (!lease.ok())
    return annotate(lease.status(), absl::StrCat("compiling ", name));
  Compilation compilation(setup, pool, *std::move(lease), name, deadline);
  if (absl::Status status = compilation.load(load, how); !status.ok())
    return status;
  return compilation.finish();
}

Result CompileService::Impl::compile(mlir::ModuleOp module) {
  Deadline deadline(setup.options.timeout);
  auto buildIt = [&] {
    return build(
        nameOf(module),
        [&](ContextLease &lease) -> absl::StatusOr<Module> {
          auto copy = lease.cloneIn(module);
          if (!copy.ok())
            return copy.status();
          return Module(llvm::cast<mlir::ModuleOp>(copy->release()));
        },
        "copy", deadline);
  };
  if (!cache)
    return counted(buildIt());
  absl::StatusOr<CacheKey> key = makeKey(module);
  if (!key.ok())
    return counted(
        annotate(key.status(),
                 absl::StrCat("compiling ", nameOf(module), ": fingerprint")));
  return counted(getOrBuild(*key, buildIt, deadline));
}

static absl::StatusOr<Module> parse(ContextLease &lease, const Source &source) {
  return lease.parse(source.bytes->getBuffer(), source.name,
                     /*verify=*/false);
}

Result CompileService::Impl::buildFromSource(const Source &source,
                                             Deadline deadline) {
  return build(
      source.name, [&](ContextLease &lease) { return parse(lease, source); },
      "parser", deadline);
}

Result CompileService::Impl::serveSource(const Source &source,
                                         Deadline deadline) {
  if (!cache)
    return buildFromSource(source, deadline);

  RecoveryBarrier barrier;
  // Asked before the thread holds a context of this request.
  const bool mayWait = !mustNotWait();
  std::optional<CacheKey> key;
  bool built = false;
  {
    absl::StatusOr<ContextLease> lease = acquire(deadline);
    if (!lease.ok())
      return annotate(lease.status(), absl::StrCat("compiling ", source.name));
    std::optional<Compilation> compilation(
        std::in_place, setup, pool, *std::move(lease), source.name, deadline);
    if (absl::Status status = compilation->load(
            [&](ContextLease &context) { return parse(context, source); },
            "parser");
        !status.ok())
      return status;
    absl::StatusOr<CacheKey> made = compilation->makeKey(
        [&](mlir::ModuleOp module) { return makeKey(module); });
    if (!made.ok())
      return made.status();
    key = *made;

    auto readMeaningOf = [&](const Artifact &artifact) {
      return compilation ? compilation->readMeaning(artifact)
                         : readMeaning(artifact, deadline);
    };
    auto letGo = [&] { compilation.reset(); };
    CacheAccess::Caller caller;
    caller.readMeaning = readMeaningOf;
    if (mayWait) {
      caller.beforeProcess = letGo;
      caller.processTimeout = deadline.getRemaining();
    }
    Result result = CacheAccess::getOrCompile(
        *cache, *key,
        [&] {
          built = true;
          return compilation ? compilation->finish()
                             : buildFromSource(source, deadline);
        },
        absl::ZeroDuration(), caller);
    if (built || !absl::IsDeadlineExceeded(result.status()))
      return result;
  }
  // Another thread is at it. It may need the context to get on, so that nobody
  // waits with one.
  return getOrBuild(
      *key, [&] { return buildFromSource(source, deadline); }, deadline);
}

Result CompileService::Impl::compileSource(const Source &source) {
  return counted(serveSource(source, Deadline(setup.options.timeout)));
}

Result CompileService::Impl::serveModule(const SubmittedModule &module,
                                         Deadline deadline) {
  auto buildIt = [&] {
    return build(
        module.name,
        [&](ContextLease &lease) -> absl::StatusOr<Module> {
          // Verified by the step that follows.
          DeserializeOptions read;
          read.verify = false;
          auto copy = lease.deserialize(module.bytes, read);
          // It was written just now: what it is read into lacks something.
          if (!copy.ok())
            return absl::FailedPreconditionError(copy.status().message());
          return Module(llvm::cast<mlir::ModuleOp>(copy->release()));
        },
        "copy", deadline);
  };
  return module.key ? getOrBuild(*module.key, buildIt, deadline) : buildIt();
}

void CompileService::Impl::count(const Result &result) {
  requests.fetch_add(1, std::memory_order_relaxed);
  if (!result.ok())
    failures.fetch_add(1, std::memory_order_relaxed);
}

CompileService::Future CompileService::Impl::answer(Result result) {
  std::promise<Result> promise;
  promise.set_value(std::move(result));
  return promise.get_future();
}

CompileService::Future CompileService::Impl::submit(mlir::ModuleOp module) {
  if (mustServeItself())
    return answer(compile(module));

  std::optional<CacheKey> key;
  if (cache) {
    absl::StatusOr<CacheKey> made = makeKey(module);
    if (!made.ok())
      return answer(counted(
          annotate(made.status(), absl::StrCat("compiling ", nameOf(module),
                                               ": fingerprint"))));
    key = *made;
    absl::StatusOr<std::optional<Artifact>> known = cache->lookup(*key);
    if (known.ok() && *known)
      return answer(counted(**known));
  }
  absl::StatusOr<SerializedModule> bytes = serialize(module);
  if (!bytes.ok())
    return answer(compile(module));
  return queue.add([this, submitted = SubmittedModule{*std::move(bytes), key,
                                                      nameOf(module)}] {
    return serveModule(submitted, Deadline(setup.options.timeout));
  });
}

CompileService::Future CompileService::Impl::submitSource(Source source) {
  if (mustServeItself())
    return answer(compileSource(source));
  return queue.add([this, submitted = std::move(source)] {
    return serveSource(submitted, Deadline(setup.options.timeout));
  });
}

absl::Status CompileService::Impl::start() {
  if (setup.options.crashRecovery) {
    absl::StatusOr<CrashHandlers> installed =
        CrashHandlers::install(!setup.options.keepFatalErrorHandler);
    if (!installed.ok())
      return installed.status();
    handlers.emplace(*std::move(installed));
  }
  absl::Status status =
      queue.start(setup.options.threads, setup.options.stackBytes);
  if (status.ok())
    return status;
  stop();
  return annotate(status, "compile service");
}

void CompileService::Impl::stop() {
  queue.stop(setup.options.onDestroy == OnDestroy::Cancel
                 ? RequestQueue::Waiting::Cancel
                 : RequestQueue::Waiting::Finish);
}

CompileServiceStats CompileService::Impl::getStats() const {
  CompileServiceStats stats;
  stats.requests = requests;
  stats.failures = failures;
  stats.crashes = setup.crashes;
  stats.timeouts = setup.timeouts;
  stats.queued = queue.countWaiting();
  stats.running = queue.countRunning();
  return stats;
}

//===----------------------------------------------------------------------===//
// CompileService
//===----------------------------------------------------------------------===//

absl::StatusOr<std::unique_ptr<CompileService>>
CompileService::create(ContextPool &pool, CompileCache *cache,
                       CompileServiceOptions options) {
  if (absl::Status status = validate(options); !status.ok())
    return status;
  // Keys tell outputs apart; the user's options stay what they are.
  std::string given = options.recipe.options;
  options.recipe.options.insert(0, nameOf(options.output).str());
  absl::StatusOr<ResolvedRecipe> recipe =
      ResolvedRecipe::create(options.recipe);
  if (!recipe.ok())
    return annotate(recipe.status(), "compile service");
  options.recipe = recipe->get();
  options.recipe.options = std::move(given);
  if (absl::Status status = checkTemplate(pool, options); !status.ok())
    return status;
  if (options.threads == 0)
    options.threads =
        std::max(1u, llvm::hardware_concurrency().compute_thread_count());

  std::unique_ptr<CodeGenerator> generator;
  if (options.output != Output::Module) {
    absl::StatusOr<std::unique_ptr<CodeGenerator>> made =
        CodeGenerator::create(options.recipe);
    if (!made.ok())
      return annotate(made.status(), "compile service");
    generator = *std::move(made);
  }
  auto impl = std::make_unique<Impl>(pool, cache, std::move(options),
                                     *std::move(recipe), std::move(generator));
  if (absl::Status status = impl->start(); !status.ok())
    return status;
  return std::unique_ptr<CompileService>(new CompileService(std::move(impl)));
}

CompileService::CompileService(std::unique_ptr<Impl> impl)
    : impl(std::move(impl)) {}

CompileService::~CompileService() {
  if (!impl->isInherited()) {
    impl->stop();
    return;
  }
  impl->removeHandlers();
  (void)impl.release(); // NOLINT(bugprone-unused-return-value)
}

static absl::Status inheritedError() {
  return absl::FailedPreconditionError(
      "compile service: made before a fork, expected one of this process");
}

Result CompileService::compile(mlir::ModuleOp module) {
  if (impl->isInherited())
    return inheritedError();
  return impl->compile(module);
}

CompileService::Future CompileService::submit(mlir::ModuleOp module) {
  if (impl->isInherited())
    return Impl::answer(inheritedError());
  return impl->submit(module);
}

Result CompileService::compileSource(llvm::StringRef source,
                                     llvm::StringRef name) {
  if (impl->isInherited())
    return inheritedError();
  return impl->compileSource(Source::copyOf(source, name));
}

CompileService::Future CompileService::submitSource(llvm::StringRef source,
                                                    llvm::StringRef name) {
  if (impl->isInherited())
    return Impl::answer(inheritedError());
  return impl->submitSource(Source::copyOf(source, name));
}

CompileServiceStats CompileService::getStats() const {
  return impl->isInherited() ? CompileServiceStats() : impl->getStats();
}

const CompileServiceOptions &CompileService::getOptions() const {
  return impl->getOptions();
}

const ResolvedRecipe &CompileService::getResolvedRecipe() const {
  return impl->getResolvedRecipe();
}

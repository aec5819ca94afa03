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
#include "context_pool/compile/CodeGenerator.h"
#include "context_pool/compile/CrashRecovery.h"
#include "context_pool/compile/Deadline.h"
#include "context_pool/compile/PassObserver.h"
#include "context_pool/compile/ResultDigest.h"
#include "context_pool/support/Fork.h"
#include "context_pool/support/Mutex.h"
#include "context_pool/support/Pipeline.h"
#include "context_pool/support/Thread.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Threading.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::detail;

using Output = CompileServiceOptions::Output;
using OnDestroy = CompileServiceOptions::OnDestroy;
using Result = absl::StatusOr<Artifact>;
using Module = mlir::OwningOpRef<mlir::ModuleOp>;

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

/// What waits for a thread: one of the two, and who waits for it.
struct Request {
  std::optional<SubmittedModule> module;
  std::optional<Source> source;
  std::promise<Result> promise;
};

/// The contexts that a thread has on loan, innermost first.
struct ActiveLease {
  const ContextPool *pool;
  const ActiveLease *outer;
};
thread_local const ActiveLease *activeLeases = nullptr;

/// Raises a count for a scope.
class CountedScope {
public:
  explicit CountedScope(std::atomic<size_t> &count) : count(count) { ++count; }
  ~CountedScope() { --count; }
  CountedScope(const CountedScope &) = delete;
  CountedScope &operator=(const CountedScope &) = delete;

private:
  std::atomic<size_t> &count;
};

/// A status of one step, with what was being done.
absl::Status annotate(const absl::Status &status, const std::string &what) {
  return absl::Status(status.code(),
                      absl::StrCat(what, ": ", status.message()));
}

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
       ResolvedRecipe recipe)
      : pool(pool), cache(cache), options(std::move(options)),
        recipe(std::move(recipe)),
        givesMeaning(cache && cache->getOptions().verifyHits) {}

  absl::Status start();
  void stop();

  Result compile(mlir::ModuleOp module);
  Result compileSource(const Source &source);
  Future submit(mlir::ModuleOp module);
  Future submitSource(Source source);
  CompileServiceStats getStats() const;

  bool isInherited() const { return mark.isInherited(); }
  /// In a forked child: gives the child its signal handlers back.
  void removeHandlers() { handlers.reset(); }

  ContextPool &pool;
  CompileCache *const cache;
  const CompileServiceOptions options;
  const ResolvedRecipe recipe;
  /// Null where the output is a module.
  std::unique_ptr<CodeGenerator> generator;
  /// Whether artifacts say what they mean. It costs a print of the module, and
  /// matters only to a cache that compares.
  const bool givesMeaning;

  static Future answer(Result result);

private:
  class Compilation;
  using Load = llvm::function_ref<absl::StatusOr<Module>(ContextLease &)>;

  /// Whether the calling thread must not wait for others: it holds a context
  /// that they may be waiting for.
  bool mustNotWait() const;
  absl::StatusOr<ContextLease> acquire(Deadline deadline);

  absl::StatusOr<CacheKey> makeKey(mlir::ModuleOp module) const;
  /// The artifact of `key`, or what `build` makes where nobody has it.
  Result getOrBuild(const CacheKey &key, llvm::function_ref<Result()> build,
                    Deadline deadline);
  /// Compiles what `load` brings into a context; `how` names that step.
  Result build(const std::string &name, Load load, llvm::StringLiteral how,
               Deadline deadline);
  Result buildFromSource(const Source &source, Deadline deadline);
  Result serveSource(const Source &source, Deadline deadline);
  Result serveModule(const SubmittedModule &module, Deadline deadline);
  Result serve(const Request &request);

  Result count(Result result);
  Future enqueue(Request request);
  void work();

  const ForkMark mark;
  std::optional<CrashHandlers> handlers;
  std::atomic<uint64_t> requests{0}, failures{0}, crashes{0}, timeouts{0};
  std::atomic<size_t> running{0};

  mutable Mutex mutex;
  std::deque<Request> queue ABSL_GUARDED_BY(mutex);
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  CondVar hasWork;
  CondVar hasRoom;
  std::vector<Thread> threads;
};

/// The service whose thread the calling one is.
static thread_local const void *serviceOfThread = nullptr;

//===----------------------------------------------------------------------===//
// One compile
//===----------------------------------------------------------------------===//

/// A module in a leased context, step by step. What crashes takes the module and
/// the context with it.
class CompileService::Impl::Compilation {
public:
  Compilation(Impl &service, ContextLease lease, std::string name,
              Deadline deadline)
      : service(service), lease(std::move(lease)), name(std::move(name)),
        deadline(deadline), active{&service.pool, activeLeases} {
    activeLeases = &active;
    if (recovers())
      this->lease->disableMultithreading();
  }

  ~Compilation() {
    // A destructor of MLIR's is as good as a pass.
    if (module)
      (void)protect([&] {
        enter("destruction");
        module = nullptr;
        return absl::OkStatus();
      });
    activeLeases = active.outer;
  }
  Compilation(const Compilation &) = delete;
  Compilation &operator=(const Compilation &) = delete;

  absl::Status load(Load bringIn, llvm::StringLiteral how) {
    return protect([&]() -> absl::Status {
      enter(how);
      absl::StatusOr<Module> brought = bringIn(lease);
      if (!brought.ok())
        return fail(brought.status());
      module = *std::move(brought);
      enter("verifier");
      if (mlir::failed(mlir::verify(*module)))
        return failWithDiagnostics();
      return absl::OkStatus();
    });
  }

  absl::StatusOr<CacheKey>
  makeKey(llvm::function_ref<absl::StatusOr<CacheKey>(mlir::ModuleOp)> make) {
    std::optional<CacheKey> key;
    absl::Status status = protect([&]() -> absl::Status {
      enter("fingerprint");
      absl::StatusOr<CacheKey> made = make(*module);
      if (!made.ok())
        return fail(made.status());
      key = *made;
      return absl::OkStatus();
    });
    if (!status.ok())
      return status;
    return *key;
  }

  /// The rest, from the loaded module to its artifact.
  Result finish() {
    std::optional<Artifact> artifact;
    absl::Status status = protect([&]() -> absl::Status {
      if (absl::Status passes = runPipeline(); !passes.ok())
        return passes;
      std::optional<Fingerprint> meaning;
      if (service.givesMeaning)
        meaning = digestResult();
      Result emitted = emit();
      if (!emitted.ok())
        return fail(emitted.status());
      artifact = meaning ? emitted->withMeaning(*meaning) : *emitted;
      enter("destruction");
      module = nullptr;
      return absl::OkStatus();
    });
    if (!status.ok())
      return status;
    return *std::move(artifact);
  }

private:
  bool recovers() const { return service.options.crashRecovery; }

  void enter(llvm::StringRef newStage) { stage = newStage; }
  std::string describe() const {
    return absl::StrCat("compiling ", name, ": ", stage.str());
  }
  absl::Status fail(const absl::Status &status) const {
    return annotate(status, describe());
  }
  absl::Status failWithDiagnostics() {
    std::vector<CapturedDiagnostic> diagnostics = lease.takeDiagnostics();
    llvm::erase_if(diagnostics, [](const CapturedDiagnostic &diagnostic) {
      return diagnostic.severity != mlir::DiagnosticSeverity::Error;
    });
    return fail(absl::InvalidArgumentError(
        diagnostics.empty() ? "MLIR does not say why" : toString(diagnostics)));
  }

  /// Runs a step, during which the module may crash.
  absl::Status protect(llvm::function_ref<absl::Status()> step) {
    absl::Status status;
    absl::StatusOr<std::optional<std::string>> crash =
        runProtected(recovers() ? Recovery::Everything : Recovery::Exceptions,
                     [&] { status = step(); });
    if (!crash.ok())
      return crash.status();
    if (!*crash)
      return status;
    ++service.crashes;
    absl::Status crashed = absl::InternalError(
        absl::StrCat("compiling ", name, ": ",
                     observer ? observer->describeCurrent() : stage.str(),
                     ": crashed: ", **crash));
    // Neither is to be trusted any more. The observer is the context's.
    (void)module.release();   // NOLINT(bugprone-unused-return-value)
    (void)observer.release(); // NOLINT(bugprone-unused-return-value)
    lease.abandon();
    return crashed;
  }

  absl::Status runPipeline() {
    enter("pipeline");
    absl::StatusOr<mlir::PassManager *> passes =
        lease.getPassManager(service.recipe.get().pipeline);
    if (!passes.ok())
      return fail(passes.status());
    if (recovers() || service.options.timeout != absl::InfiniteDuration())
      observer = std::make_unique<PassObserver>(*lease, deadline);
    bool failed = mlir::failed((*passes)->run(*module));
    bool stopped = observer && observer->hasStopped();
    std::string progress = stopped ? observer->describeProgress() : "";
    observer.reset();
    if (stopped) {
      ++service.timeouts;
      return fail(absl::DeadlineExceededError(absl::StrCat(
          "not done within ", absl::FormatDuration(service.options.timeout),
          ", stopped ", progress)));
    }
    return failed ? failWithDiagnostics() : absl::OkStatus();
  }

  /// A digest of the lowered module that does not see what upstream's passes
  /// leave to chance.
  Fingerprint digestResult() {
    enter("digest");
    // Which changes the module, and code has the names of private symbols.
    mlir::OwningOpRef<mlir::ModuleOp> copy = module->clone();
    Fingerprint meaning;
    meaning.bytes = digestModule(*copy);
    return meaning;
  }

  Result emit() {
    auto onStage = [&](llvm::StringLiteral newStage) { enter(newStage); };
    if (service.options.output == Output::Module) {
      enter("writing bytecode");
      absl::StatusOr<SerializedModule> bytes = serialize(*module);
      if (!bytes.ok())
        return bytes.status();
      return Artifact::adopt("mlir-bytecode", bytes->getBytes(),
                             std::make_shared<SerializedModule>(*bytes));
    }
    bool isObject = service.options.output == Output::Object;
    absl::StatusOr<CodeGenerator::Bytes> bytes =
        isObject ? service.generator->emitObject(*module, onStage)
                 : service.generator->emitLLVMIR(*module, onStage);
    if (!bytes.ok())
      return bytes.status();
    return Artifact::copyOf(isObject ? "object" : "llvm-bitcode",
                            {bytes->data(), bytes->size()});
  }

  Impl &service;
  ContextLease lease;
  Module module;
  const std::string name;
  const Deadline deadline;
  llvm::StringRef stage;
  std::unique_ptr<PassObserver> observer;
  const ActiveLease active;
};

//===----------------------------------------------------------------------===//
// Requests
//===----------------------------------------------------------------------===//

bool CompileService::Impl::mustNotWait() const {
  if (pool.getOptions().maxLive == 0)
    return false;
  for (const ActiveLease *lease = activeLeases; lease; lease = lease->outer)
    if (lease->pool == &pool)
      return true;
  return false;
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
  absl::StatusOr<Fingerprint> digest = fingerprint(module, options.structural);
  if (!digest.ok())
    return digest.status();
  return recipe.makeKey(*digest);
}

Result CompileService::Impl::getOrBuild(const CacheKey &key,
                                        llvm::function_ref<Result()> build,
                                        Deadline deadline) {
  if (!mustNotWait())
    return cache->getOrCompile(key, build, deadline.getRemaining());
  bool built = false;
  Result result = cache->getOrCompile(
      key,
      [&] {
        built = true;
        return build();
      },
      absl::ZeroDuration());
  // Somebody else is at it.
  if (!built && absl::IsDeadlineExceeded(result.status()))
    return build();
  return result;
}

Result CompileService::Impl::build(const std::string &name, Load load,
                                   llvm::StringLiteral how, Deadline deadline) {
  absl::StatusOr<ContextLease> lease = acquire(deadline);
  if (!lease.ok())
    return annotate(lease.status(), absl::StrCat("compiling ", name));
  Compilation compilation(*this, *std::move(lease), name, deadline);
  if (absl::Status status = compilation.load(load, how); !status.ok())
    return status;
  return compilation.finish();
}

Result CompileService::Impl::compile(mlir::ModuleOp module) {
  Deadline deadline(options.timeout);
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
    return count(buildIt());
  absl::StatusOr<CacheKey> key = makeKey(module);
  if (!key.ok())
    return count(
        annotate(key.status(),
                 absl::StrCat("compiling ", nameOf(module), ": fingerprint")));
  return count(getOrBuild(*key, buildIt, deadline));
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

  std::optional<CacheKey> key;
  bool built = false;
  {
    absl::StatusOr<ContextLease> lease = acquire(deadline);
    if (!lease.ok())
      return annotate(lease.status(), absl::StrCat("compiling ", source.name));
    Compilation compilation(*this, *std::move(lease), source.name, deadline);
    if (absl::Status status = compilation.load(
            [&](ContextLease &context) { return parse(context, source); },
            "parser");
        !status.ok())
      return status;
    absl::StatusOr<CacheKey> made = compilation.makeKey(
        [&](mlir::ModuleOp module) { return makeKey(module); });
    if (!made.ok())
      return made.status();
    key = *made;
    Result result = cache->getOrCompile(
        *key,
        [&] {
          built = true;
          return compilation.finish();
        },
        absl::ZeroDuration());
    if (built || !absl::IsDeadlineExceeded(result.status()))
      return result;
  }
  // Another thread is at it. It may need the context to get on, so that nobody
  // waits with one.
  return getOrBuild(
      *key, [&] { return buildFromSource(source, deadline); }, deadline);
}

Result CompileService::Impl::compileSource(const Source &source) {
  return count(serveSource(source, Deadline(options.timeout)));
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

Result CompileService::Impl::serve(const Request &request) {
  Deadline deadline(options.timeout);
  return request.module ? serveModule(*request.module, deadline)
                        : serveSource(*request.source, deadline);
}

Result CompileService::Impl::count(Result result) {
  requests.fetch_add(1, std::memory_order_relaxed);
  if (!result.ok())
    failures.fetch_add(1, std::memory_order_relaxed);
  return result;
}

//===----------------------------------------------------------------------===//
// Threads and their queue
//===----------------------------------------------------------------------===//

CompileService::Future CompileService::Impl::answer(Result result) {
  std::promise<Result> promise;
  promise.set_value(std::move(result));
  return promise.get_future();
}

CompileService::Future CompileService::Impl::enqueue(Request request) {
  Future future = request.promise.get_future();
  MutexLock lock(mutex);
  while (queue.size() >= options.queueCapacity)
    hasRoom.wait(mutex);
  queue.push_back(std::move(request));
  hasWork.notifyOne();
  return future;
}

CompileService::Future CompileService::Impl::submit(mlir::ModuleOp module) {
  // A thread of the service that waited for room, or for the answer, could wait
  // for itself.
  if (serviceOfThread == this)
    return answer(compile(module));

  std::optional<CacheKey> key;
  if (cache) {
    absl::StatusOr<CacheKey> made = makeKey(module);
    if (!made.ok())
      return answer(count(
          annotate(made.status(), absl::StrCat("compiling ", nameOf(module),
                                               ": fingerprint"))));
    key = *made;
    absl::StatusOr<std::optional<Artifact>> known = cache->lookup(*key);
    if (known.ok() && *known)
      return answer(count(**known));
  }
  absl::StatusOr<SerializedModule> bytes = serialize(module);
  if (!bytes.ok())
    return answer(compile(module));
  Request request;
  request.module = SubmittedModule{*std::move(bytes), key, nameOf(module)};
  return enqueue(std::move(request));
}

CompileService::Future CompileService::Impl::submitSource(Source source) {
  if (serviceOfThread == this)
    return answer(compileSource(source));
  Request request;
  request.source = std::move(source);
  return enqueue(std::move(request));
}

void CompileService::Impl::work() {
  serviceOfThread = this;
  MutexLock lock(mutex);
  while (true) {
    if (queue.empty()) {
      if (stopping)
        return;
      hasWork.wait(mutex);
      continue;
    }
    Request request = std::move(queue.front());
    queue.pop_front();
    hasRoom.notifyOne();
    lock.unlock();
    {
      CountedScope scope(running);
      Result result = count(serve(request));
      request.promise.set_value(std::move(result));
    }
    lock.lock();
  }
}

absl::Status CompileService::Impl::start() {
  if (options.crashRecovery) {
    absl::StatusOr<CrashHandlers> installed =
        CrashHandlers::install(!options.keepFatalErrorHandler);
    if (!installed.ok())
      return installed.status();
    handlers.emplace(*std::move(installed));
  }
  for (unsigned number = 0; number < options.threads; ++number) {
    absl::StatusOr<Thread> thread =
        Thread::start(options.stackBytes, [this] { work(); });
    if (!thread.ok()) {
      stop();
      return annotate(thread.status(), "compile service");
    }
    threads.push_back(*std::move(thread));
  }
  return absl::OkStatus();
}

void CompileService::Impl::stop() {
  std::deque<Request> dropped;
  {
    MutexLock lock(mutex);
    stopping = true;
    if (options.onDestroy == OnDestroy::Cancel)
      dropped.swap(queue);
    hasWork.notifyAll();
  }
  for (Request &request : dropped)
    request.promise.set_value(absl::CancelledError(
        "compile service: destroyed before the request was begun"));
  threads.clear();
}

CompileServiceStats CompileService::Impl::getStats() const {
  CompileServiceStats stats;
  stats.requests = requests;
  stats.failures = failures;
  stats.crashes = crashes;
  stats.timeouts = timeouts;
  stats.running = running;
  MutexLock lock(mutex);
  stats.queued = queue.size();
  return stats;
}

//===----------------------------------------------------------------------===//
// CompileService
//===----------------------------------------------------------------------===//

static absl::Status validate(const CompileServiceOptions &options) {
  auto invalid = [](llvm::StringRef field, const std::string &value,
                    const std::string &expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("compile service: ", field.str(), " = ", value,
                     ", expected ", expected));
  };
  if (options.output != Output::Module && options.output != Output::LLVMIR &&
      options.output != Output::Object)
    return invalid("output", absl::StrCat(int(options.output)),
                   "Module, LLVMIR or Object");
  if (options.onDestroy != OnDestroy::Finish &&
      options.onDestroy != OnDestroy::Cancel)
    return invalid("onDestroy", absl::StrCat(int(options.onDestroy)),
                   "Finish or Cancel");
  if (options.timeout < absl::ZeroDuration())
    return invalid("timeout", absl::FormatDuration(options.timeout),
                   "at least 0");
  if (options.queueCapacity == 0)
    return invalid("queueCapacity", "0", "at least 1");
  if (options.stackBytes < Thread::compilerStackBytes)
    return invalid("stackBytes", absl::StrCat(options.stackBytes),
                   absl::StrCat("at least ", Thread::compilerStackBytes));
  absl::StatusOr<mlir::OpPassManager> pipeline =
      parsePipeline(options.recipe.pipeline);
  if (!pipeline.ok())
    return annotate(pipeline.status(), "compile service: recipe.pipeline");
  llvm::StringRef anchor = pipeline->getOpAnchorName();
  if (anchor != mlir::ModuleOp::getOperationName() &&
      anchor != mlir::OpPassManager::getAnyOpAnchorName())
    return invalid("recipe.pipeline", options.recipe.pipeline,
                   "builtin.module as its anchor");
  return absl::OkStatus();
}

/// Whether contexts of the pool can do what the options ask for.
static absl::Status checkTemplate(const ContextPool &pool,
                                  const CompileServiceOptions &options) {
  bool needsActions =
      options.crashRecovery || options.timeout != absl::InfiniteDuration();
  if (options.output == Output::Module && !needsActions)
    return absl::OkStatus();
  // Not of the pool, whose contexts may have to stay as they are.
  absl::StatusOr<std::unique_ptr<mlir::MLIRContext>> context =
      pool.getTemplate().clone();
  if (!context.ok())
    return context.status();
  if (needsActions && (*context)->hasActionHandler())
    return absl::FailedPreconditionError(absl::StrCat(
        "compile service: timeout and crashRecovery need the action handler of "
        "contexts, and template '",
        pool.getTemplate().getName().str(), "' sets one"));
  if (options.output == Output::Module)
    return absl::OkStatus();
  if (absl::Status status = CodeGenerator::checkContext(**context);
      !status.ok())
    return annotate(status, "compile service: output");
  return absl::OkStatus();
}

/// Of the recipe's options, what keeps the kinds of output apart.
static llvm::StringLiteral nameOf(Output output) {
  switch (output) {
  case Output::Module:
    return "output=module;";
  case Output::LLVMIR:
    return "output=llvmir;";
  case Output::Object:
    return "output=object;";
  }
  llvm_unreachable("validated");
}

absl::StatusOr<std::unique_ptr<CompileService>>
CompileService::create(ContextPool &pool, CompileCache *cache,
                       CompileServiceOptions options) {
  if (absl::Status status = validate(options); !status.ok())
    return status;
  options.recipe.options.insert(0, nameOf(options.output).str());
  absl::StatusOr<ResolvedRecipe> recipe =
      ResolvedRecipe::create(options.recipe);
  if (!recipe.ok())
    return annotate(recipe.status(), "compile service");
  options.recipe = recipe->get();
  if (absl::Status status = checkTemplate(pool, options); !status.ok())
    return status;
  if (options.threads == 0)
    options.threads =
        std::max(1u, llvm::hardware_concurrency().compute_thread_count());

  bool emitsCode = options.output != Output::Module;
  auto impl = std::make_unique<Impl>(pool, cache, std::move(options),
                                     *std::move(recipe));
  if (emitsCode) {
    absl::StatusOr<std::unique_ptr<CodeGenerator>> generator =
        CodeGenerator::create(impl->recipe.get());
    if (!generator.ok())
      return annotate(generator.status(), "compile service");
    impl->generator = *std::move(generator);
  }
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
  return impl->options;
}

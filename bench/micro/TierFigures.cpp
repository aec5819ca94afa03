//===- TierFigures.cpp - Figures of what is behind memory -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CompileMode.h"
#include "bench/ModuleSource.h"
#include "bench/ModuleVariants.h"
#include "bench/ThreadTeam.h"
#include "bench/micro/Figure.h"
#include "bench/micro/MicroContexts.h"
#include "context_pool/CompileCache.h"
#include "context_pool/CompileService.h"
#include "context_pool/ContextPool.h"
#include "context_pool/cache/DiskTier.h"
#include "context_pool/cache/RemoteTier.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/CAS/ActionCache.h"
#include "llvm/CAS/BuiltinCASContext.h"
#include "llvm/CAS/BuiltinUnifiedCASDatabases.h"
#include "llvm/CAS/ObjectStore.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <arpa/inet.h>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <random>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;
using detail::DiskTier;
using detail::RemoteTier;
namespace cas = llvm::cas;

using Samples = absl::StatusOr<std::vector<double>>;

static absl::Status toStatus(llvm::Error error) {
  return absl::InternalError(llvm::toString(std::move(error)));
}

namespace {

/// Removed with all that is in it.
class TemporaryFolder {
public:
  static absl::StatusOr<std::unique_ptr<TemporaryFolder>> create() {
    llvm::SmallString<128> path;
    if (std::error_code error =
            llvm::sys::fs::createUniqueDirectory("ctxpool-bench", path))
      return absl::InternalError("making a folder: " + error.message());
    return std::unique_ptr<TemporaryFolder>(
        new TemporaryFolder(path.str().str()));
  }
  ~TemporaryFolder() {
    // What cannot be deleted is of no consequence to the figures.
    [[maybe_unused]] std::error_code error =
        llvm::sys::fs::remove_directories(path);
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;

  std::string get(llvm::StringRef name) const {
    llvm::SmallString<128> full(path);
    llvm::sys::path::append(full, name);
    return full.str().str();
  }

private:
  explicit TemporaryFolder(std::string thePath) : path(std::move(thePath)) {}
  const std::string path;
};

} // namespace

static CacheKey makeKey(uint64_t number) {
  CacheKey key;
  llvm::BLAKE3 hash;
  hash.update(llvm::ArrayRef(reinterpret_cast<const uint8_t *>(&number),
                             sizeof(number)));
  hash.final(key.digest.bytes);
  return key;
}

constexpr size_t artifactBytes = 100000;

/// Bytes that occur once; of every 64 of them 32 are zeros, since artifacts can
/// be compressed.
static std::string makeBytes(uint64_t number) {
  std::mt19937_64 random(number);
  std::string bytes(artifactBytes, '\0');
  for (size_t begin = 0; begin + 32 <= artifactBytes; begin += 64)
    for (size_t i = begin; i < begin + 32; i += 8) {
      uint64_t word = random();
      std::memcpy(&bytes[i], &word, sizeof(word));
    }
  return bytes;
}

//===----------------------------------------------------------------------===//
// R18: a folder
//===----------------------------------------------------------------------===//

namespace {

/// LLVM's store, as somebody would use it who wants no more of it than to find
/// bytes by a key.
class BareStore {
public:
  absl::Status open(const std::string &folder) {
    auto databases = cas::createOnDiskUnifiedCASDatabases(folder);
    if (!databases)
      return toStatus(databases.takeError());
    std::tie(objects, actions) = std::move(*databases);
    return absl::OkStatus();
  }

  absl::Status put(const CacheKey &key, llvm::StringRef bytes) {
    llvm::Expected<cas::ObjectRef> object =
        objects->storeFromString(/*Refs=*/{}, bytes);
    if (!object)
      return toStatus(object.takeError());
    if (llvm::Error error =
            actions->put(toCacheKey(key), objects->getID(*object)))
      return toStatus(std::move(error));
    return absl::OkStatus();
  }

  /// Whether the bytes are there and have that digest.
  absl::StatusOr<bool> check(const CacheKey &key, const Fingerprint &digest) {
    llvm::Expected<std::optional<cas::CASID>> id =
        actions->get(toCacheKey(key));
    if (!id)
      return toStatus(id.takeError());
    if (!*id)
      return false;
    std::optional<cas::ObjectRef> reference = objects->getReference(**id);
    if (!reference)
      return false;
    llvm::Expected<cas::ObjectProxy> object = objects->getProxy(*reference);
    if (!object)
      return toStatus(object.takeError());
    llvm::StringRef bytes = object->getData();
    return Fingerprint{llvm::BLAKE3::hash(
               llvm::arrayRefFromStringRef(bytes))} == digest;
  }

private:
  static cas::CacheKey toCacheKey(const CacheKey &key) {
    return cas::CacheKey(cas::CASID::create(
        &cas::builtin::BuiltinCASContext::getDefaultContext(),
        llvm::toStringRef(key.digest.bytes)));
  }

  // The second refers to what the first owns.
  std::unique_ptr<cas::ObjectStore> objects;
  std::unique_ptr<cas::ActionCache> actions;
};

/// The same artifacts in a folder of the disk tier and in one of LLVM's alone.
class DiskTimer {
public:
  static absl::StatusOr<std::unique_ptr<DiskTimer>> create() {
    absl::StatusOr<std::unique_ptr<TemporaryFolder>> folder =
        TemporaryFolder::create();
    if (!folder.ok())
      return folder.status();
    std::unique_ptr<DiskTimer> timer(new DiskTimer(*std::move(folder)));
    timer->openTier();
    timer->openBare();
    if (!timer->failure.ok())
      return timer->failure;
    return timer;
  }

  // Nanoseconds of one artifact, of `count` that are new every time.
  double putTier() {
    std::vector<Artifact> artifacts;
    for (uint64_t i = 0; i < count; ++i)
      artifacts.push_back(
          Artifact::copyOf("object", makeBytes(tierArtifacts + i)));
    double time = timeEach([&](uint64_t i) {
      return tier->put(makeKey(tierArtifacts + i), artifacts[i],
                       /*replace=*/false);
    });
    tierArtifacts += count;
    return time;
  }
  double putBare() {
    std::vector<std::string> artifacts;
    for (uint64_t i = 0; i < count; ++i)
      artifacts.push_back(makeBytes(bareArtifacts + i));
    double time = timeEach([&](uint64_t i) {
      return bare->put(makeKey(bareArtifacts + i), artifacts[i]);
    });
    bareArtifacts += count;
    return time;
  }

  // Of `count` that are there.
  double getTier() {
    return timeEach([&](uint64_t i) {
      absl::StatusOr<std::optional<Artifact>> artifact = tier->get(makeKey(i));
      if (!artifact.ok())
        return artifact.status();
      return *artifact ? absl::OkStatus() : absl::NotFoundError("a miss");
    });
  }
  double getBare() {
    return timeEach([&](uint64_t i) {
      absl::StatusOr<bool> found = bare->check(makeKey(i), digests[i]);
      if (!found.ok())
        return found.status();
      return *found ? absl::OkStatus() : absl::NotFoundError("a miss");
    });
  }

  /// Puts what the others get.
  void fill() {
    putTier();
    putBare();
    for (uint64_t i = 0; i < count; ++i)
      digests.push_back(Fingerprint{
          llvm::BLAKE3::hash(llvm::arrayRefFromStringRef(makeBytes(i)))});
  }

  // Opening what is there, and the first answer. Closing is not timed.
  double openTier() {
    tier.reset();
    return nanosecondsOf([&] {
      detail::DiskTierOptions options;
      options.directory = folder->get("tier");
      absl::StatusOr<std::unique_ptr<DiskTier>> opened =
          DiskTier::create(std::move(options));
      if (opened.ok()) {
        tier = *std::move(opened);
        failure.Update(tier->get(makeKey(0)).status());
      } else {
        failure.Update(opened.status());
      }
    });
  }
  double openBare() {
    bare.emplace();
    return nanosecondsOf([&] {
      failure.Update(bare->open(folder->get("bare")));
      if (failure.ok())
        failure.Update(bare->check(makeKey(0), Fingerprint()).status());
    });
  }

  Samples finish(std::vector<double> samples) const {
    if (!failure.ok())
      return failure;
    return samples;
  }

private:
  explicit DiskTimer(std::unique_ptr<TemporaryFolder> theFolder)
      : folder(std::move(theFolder)) {}

  double timeEach(llvm::function_ref<absl::Status(uint64_t)> call) {
    return nanosecondsOf([&] {
             for (uint64_t i = 0; i < count; ++i)
               failure.Update(call(i));
           }) /
           count;
  }

  static constexpr uint64_t count = 100;

  const std::unique_ptr<TemporaryFolder> folder;
  std::unique_ptr<DiskTier> tier;
  std::optional<BareStore> bare;
  uint64_t tierArtifacts = 0, bareArtifacts = 0;
  std::vector<Fingerprint> digests;
  absl::Status failure;
};

} // namespace

static Samples compareGet() {
  absl::StatusOr<std::unique_ptr<DiskTimer>> timer = DiskTimer::create();
  if (!timer.ok())
    return timer.status();
  (*timer)->fill();
  return (*timer)->finish(ratios([&] { return (*timer)->getTier(); },
                                 [&] { return (*timer)->getBare(); }));
}

static Samples comparePut() {
  absl::StatusOr<std::unique_ptr<DiskTimer>> timer = DiskTimer::create();
  if (!timer.ok())
    return timer.status();
  return (*timer)->finish(ratios([&] { return (*timer)->putTier(); },
                                 [&] { return (*timer)->putBare(); }));
}

/// Milliseconds.
static Samples compareOpen() {
  absl::StatusOr<std::unique_ptr<DiskTimer>> timer = DiskTimer::create();
  if (!timer.ok())
    return timer.status();
  (*timer)->fill();
  return (*timer)->finish(
      interleave([&] { return (*timer)->openTier(); },
                 [&] { return (*timer)->openBare(); },
                 [](double tier, double bare) { return (tier - bare) / 1e6; }));
}

//===----------------------------------------------------------------------===//
// R19: a second process
//===----------------------------------------------------------------------===//

/// Runs this tool, without what steers caches in the environment.
static absl::Status runSelf(std::vector<std::string> arguments) {
  static int anchor;
  std::string program = llvm::sys::fs::getMainExecutable(nullptr, &anchor);
  arguments.insert(arguments.begin(), program);
  std::vector<llvm::StringRef> words(arguments.begin(), arguments.end());
  std::vector<llvm::StringRef> environment;
  for (char **variable = environ; *variable; ++variable)
    if (!llvm::StringRef(*variable).starts_with("CTXPOOL_"))
      environment.emplace_back(*variable);
  std::string message;
  int status = llvm::sys::ExecuteAndWait(
      program, words, environment, {std::nullopt, "", std::nullopt},
      /*SecondsToWait=*/0, /*MemoryLimit=*/0, &message);
  if (status != 0)
    return absl::InternalError(absl::StrCat("'", arguments[1], "' exited with ",
                                            status, " ", message));
  return absl::OkStatus();
}

/// Writes ten variants of some bundled modules. Returns the files; of each ten,
/// the last one is what the first process does not compile.
static absl::StatusOr<std::vector<std::string>>
writeVariants(const TemporaryFolder &folder) {
  std::vector<ModuleSource> sources = readBundledModules();
  llvm::erase_if(sources, [](const ModuleSource &source) {
    return source.bytes->getBuffer().contains("gpu.launch");
  });
  if (runOnLargeStack(
          [&] {
            numberSources(sources, allDialects(),
                          /*allowUnregisteredDialects=*/false);
            return 0;
          },
          /*otherwise=*/1))
    return absl::ResourceExhaustedError("no thread");
  std::vector<std::string> files;
  // Every fifth one: what compiles for long and for short is among them.
  for (size_t number = 0; number < sources.size(); number += 5)
    for (uint64_t variant = 1; variant <= 10; ++variant) {
      const ModuleSource &source = sources[number];
      if (!source.error.empty())
        return absl::InternalError(source.error);
      std::string path =
          folder.get(absl::StrCat(number, "-", variant, ".mlir"));
      std::error_code error;
      llvm::raw_fd_ostream stream(path, error);
      if (error)
        return absl::InternalError(path + ": " + error.message());
      stream << "// PIPELINE: " << source.getPipeline() << "\n"
             << makeVariant(source, variant).bytes->getBuffer();
      files.push_back(std::move(path));
    }
  return files;
}

static absl::StatusOr<double> readSpeedup(const std::string &path) {
  auto text = llvm::MemoryBuffer::getFile(path);
  if (!text)
    return absl::InternalError("no report: " + text.getError().message());
  llvm::Expected<llvm::json::Value> report =
      llvm::json::parse((*text)->getBuffer());
  if (!report)
    return toStatus(report.takeError());
  const llvm::json::Object *object = report->getAsObject();
  const llvm::json::Object *speedups =
      object ? object->getObject("speedup") : nullptr;
  std::optional<double> speedup;
  if (speedups)
    speedup = speedups->getNumber("service_vs_fresh");
  if (!speedup)
    return absl::InternalError("the report has no speed-up");
  return *speedup;
}

/// Throughput of a process that finds nine modules of ten in the folder where
/// another process left them, over that of fresh contexts.
static Samples compareSecondProcess() {
  std::vector<double> samples;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    absl::StatusOr<std::unique_ptr<TemporaryFolder>> folder =
        TemporaryFolder::create();
    if (!folder.ok())
      return folder.status();
    absl::StatusOr<std::vector<std::string>> files = writeVariants(**folder);
    if (!files.ok())
      return files.status();
    std::string cache = (*folder)->get("cache");
    std::string report = (*folder)->get("report.json");

    std::vector<std::string> first = {"cache", "warm", "--output=object",
                                      "--directory=" + cache};
    std::vector<std::string> second = {
        "compile",
        "--modes=fresh,service",
        "--output=object",
        "--cache-dir=" + cache,
        "--threads=1",
        "--warmup=0",
        absl::StrCat("--requests=", files->size()),
        "--no-progress",
        "--json=" + report};
    for (auto [number, file] : llvm::enumerate(*files)) {
      if (number % 10 != 9)
        first.push_back(file);
      second.push_back(file);
    }
    for (const std::vector<std::string> &arguments : {first, second})
      if (absl::Status status = runSelf(arguments); !status.ok())
        return status;
    absl::StatusOr<double> speedup = readSpeedup(report);
    if (!speedup.ok())
      return speedup.status();
    samples.push_back(*speedup);
  }
  return samples;
}

//===----------------------------------------------------------------------===//
// R19b, R20: a server
//===----------------------------------------------------------------------===//

namespace {

/// A socket at a free loopback port. It takes connections and never answers.
class SilentServer {
public:
  SilentServer() : descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (descriptor >= 0 &&
        bind(descriptor, reinterpret_cast<sockaddr *>(&address), size) == 0 &&
        listen(descriptor, /*backlog=*/64) == 0 &&
        getsockname(descriptor, reinterpret_cast<sockaddr *>(&address),
                    &size) == 0)
      port = ntohs(address.sin_port);
  }
  ~SilentServer() { close(); }
  SilentServer(const SilentServer &) = delete;
  SilentServer &operator=(const SilentServer &) = delete;

  /// Nobody listens at the port any more.
  void close() {
    if (descriptor >= 0)
      ::close(std::exchange(descriptor, -1));
  }

  /// 0: there is none.
  uint16_t getPort() const { return port; }

private:
  int descriptor;
  uint16_t port = 0;
};

/// A `redis-server` of our own, without persistence.
class RedisServer {
public:
  /// Errors: Unimplemented - there is no such program, or the library was built
  ///                         without Redis.
  static absl::StatusOr<std::unique_ptr<RedisServer>> start() {
    llvm::ErrorOr<std::string> program =
        llvm::sys::findProgramByName("redis-server");
    if (!program)
      return absl::UnimplementedError("there is no redis-server");
    absl::StatusOr<std::unique_ptr<TemporaryFolder>> folder =
        TemporaryFolder::create();
    if (!folder.ok())
      return folder.status();
    SilentServer reserved;
    const uint16_t port = reserved.getPort();
    reserved.close();
    std::string portText = std::to_string(port);
    std::string path = (*folder)->get("");
    std::string message;
    llvm::sys::ProcessInfo process = llvm::sys::ExecuteNoWait(
        *program,
        {*program, "--bind", "127.0.0.1", "--port", portText, "--save", "",
         "--appendonly", "no", "--dir", path},
        /*Env=*/std::nullopt, {"", "", ""}, /*MemoryLimit=*/0, &message);
    if (process.Pid == llvm::sys::ProcessInfo::InvalidPid)
      return absl::InternalError("starting redis-server: " + message);
    std::unique_ptr<RedisServer> server(
        new RedisServer(*std::move(folder), process, port));
    // A tier that has failed rests, so each attempt is by another one.
    absl::Status status;
    for (int attempt = 0; attempt < 500; ++attempt) {
      absl::StatusOr<std::unique_ptr<RemoteTier>> tier = server->connect();
      if (!tier.ok())
        return tier.status();
      status = (*tier)->get(makeKey(0)).status();
      if (status.ok())
        return server;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return status;
  }
  ~RedisServer() {
    kill(process.Pid, SIGKILL);
    (void)llvm::sys::Wait(process, /*SecondsToWait=*/std::nullopt);
  }
  RedisServer(const RedisServer &) = delete;
  RedisServer &operator=(const RedisServer &) = delete;

  absl::StatusOr<std::unique_ptr<RemoteTier>> connect() const {
    detail::RemoteTierOptions options;
    options.url = absl::StrCat("redis://127.0.0.1:", port);
    return RemoteTier::create(std::move(options));
  }

private:
  RedisServer(std::unique_ptr<TemporaryFolder> theFolder,
              llvm::sys::ProcessInfo theProcess, uint16_t thePort)
      : folder(std::move(theFolder)), process(theProcess), port(thePort) {}

  const std::unique_ptr<TemporaryFolder> folder;
  const llvm::sys::ProcessInfo process;
  const uint16_t port;
};

} // namespace

/// Microseconds.
static Samples measureRemoteHit() {
  constexpr int calls = 200;
  absl::StatusOr<std::unique_ptr<RedisServer>> server = RedisServer::start();
  if (!server.ok())
    return server.status();
  absl::StatusOr<std::unique_ptr<RemoteTier>> tier = (*server)->connect();
  if (!tier.ok())
    return tier.status();
  for (int number = 0; number < calls; ++number)
    if (absl::Status status = (*tier)->put(
            makeKey(number), Artifact::copyOf("object", makeBytes(number)),
            /*replace=*/false);
        !status.ok())
      return status;
  std::vector<double> samples;
  // The first one to warm up.
  for (int repetition = -1; repetition < repetitions; ++repetition) {
    absl::Status failure;
    double time = nanosecondsOf([&] {
      for (int number = 0; number < calls; ++number) {
        auto artifact = (*tier)->get(makeKey(number));
        failure.Update(artifact.status());
        if (artifact.ok() && !*artifact)
          failure.Update(absl::NotFoundError("a miss"));
      }
    });
    if (!failure.ok())
      return failure;
    if (repetition >= 0)
      samples.push_back(time / calls / 1e3);
  }
  return samples;
}

/// What a thousand requests take beside the compiles, in percent of these, where
/// the server at `port` does not answer. Another cache each time: it has to find
/// out anew.
static Samples measureBadServer(uint16_t port) {
  constexpr uint64_t compiles = 1000;
  if (port == 0)
    return absl::InternalError("no port to listen at");
  absl::StatusOr<const ModuleSource *> source = smallestModule();
  if (!source.ok())
    return source.status();
  mlir::DialectRegistry registry;
  registerAll(registry);
  mlir::registerAllToLLVMIRTranslations(registry);
  CompileSetup setup;
  setup.registry = &registry;
  setup.preload.emplace();
  setup.preloadForPipeline = (*source)->getPipeline().str();
  absl::StatusOr<std::unique_ptr<ContextPool>> pool = createPool(setup);
  if (!pool.ok())
    return pool.status();
  CompileServiceOptions serviceOptions;
  serviceOptions.threads = 1;
  serviceOptions.output = CompileServiceOptions::Output::Object;
  serviceOptions.recipe.pipeline = (*source)->getPipeline().str();
  absl::StatusOr<std::unique_ptr<CompileService>> service =
      CompileService::create(**pool, /*cache=*/nullptr,
                             std::move(serviceOptions));
  if (!service.ok())
    return service.status();

  std::vector<double> samples;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    CompileCacheOptions cacheOptions;
    cacheOptions.remote = absl::StrCat("redis://127.0.0.1:", port);
    absl::StatusOr<std::unique_ptr<CompileCache>> cache =
        CompileCache::create(std::move(cacheOptions));
    if (!cache.ok())
      return cache.status();
    absl::Status failure;
    double inCompiles = 0;
    double all = nanosecondsOf([&] {
      for (uint64_t number = 0; number < compiles; ++number)
        failure.Update(
            (*cache)
                ->getOrCompile(makeKey(number),
                               [&] {
                                 absl::StatusOr<Artifact> artifact =
                                     absl::InternalError("not compiled");
                                 inCompiles += nanosecondsOf([&] {
                                   artifact = (*service)->compileSource(
                                       (*source)->bytes->getBuffer());
                                 });
                                 return artifact;
                               })
                .status());
    });
    if (!failure.ok())
      return failure;
    if ((*cache)->getStats().remote.errors == 0)
      return absl::InternalError("the server answers");
    samples.push_back((all - inCompiles) / inCompiles * 100);
  }
  return samples;
}

static Samples measureDeadServer() {
  SilentServer server;
  server.close();
  return measureBadServer(server.getPort());
}

static Samples measureHangingServer() {
  SilentServer server;
  return measureBadServer(server.getPort());
}

std::vector<Figure> bench::makeTierFigures() {
  constexpr auto atMost = Figure::Bound::AtMost;
  return {
      {"R18",
       "a hit on disk, 100 kB, over LLVM's store and checking the digest",
       atMost, 1.5, "x", compareGet},
      {"R18b", "putting 100 kB on disk over LLVM's store", atMost, 1.5, "x",
       comparePut},
      {"R18c", "opening a folder that is there, beyond LLVM's store", atMost, 2,
       "ms", compareOpen},
      {"R19",
       "objects/s of a second process that knows 90 % of them, over fresh",
       Figure::Bound::AtLeast, 5, "x", compareSecondProcess},
      {"R19b", "a hit in Redis on loopback, 100 kB", atMost, 300, "us",
       measureRemoteHit},
      {"R20-dead",
       "time of 1,000 requests beside their compiles to objects, no server",
       atMost, 3, "%", measureDeadServer},
      {"R20-hanging", "the same, a server that never answers", atMost, 3, "%",
       measureHangingServer},
  };
}

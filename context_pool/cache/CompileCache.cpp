//===- CompileCache.cpp - Compiled once, used by everybody ----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiled with exceptions: a thread that ends in a compile unwinds through
// here, and lets go of what it holds.
//
//===----------------------------------------------------------------------===//

#include "context_pool/CompileCache.h"

#include "context_pool/cache/CacheAccess.h"
#include "context_pool/cache/FlightCache.h"
#include "context_pool/cache/TierFront.h"

#include "absl/strings/str_cat.h"

#include <array>
#include <atomic>
#include <chrono>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;

namespace {

using Mode = CompileCacheOptions::Mode;
using Compile = llvm::function_ref<absl::StatusOr<Artifact>()>;
using Caller = CacheAccess::Caller;
using ReadMeaning = CacheAccess::ReadMeaning;

absl::Status validate(const CompileCacheOptions &options) {
  switch (options.mode) {
  case Mode::ReadWrite:
  case Mode::ReadOnly:
  case Mode::Recompute:
  case Mode::Off:
    break;
  default:
    return absl::InvalidArgumentError(
        absl::StrCat("compile cache: mode is ", static_cast<int>(options.mode),
                     ", which is none"));
  }
  if (options.verifyHits && options.verifyInterval == 0)
    return absl::InvalidArgumentError(
        "compile cache: verifyInterval is 0; expected at least 1");
  return absl::OkStatus();
}

FlightCache::Policy policyOf(Mode mode) {
  FlightCache::Policy policy;
  policy.use = mode == Mode::ReadWrite || mode == Mode::ReadOnly;
  policy.keep = mode != Mode::Off;
  policy.replace = mode == Mode::Recompute;
  return policy;
}

/// An artifact says what it is, wherever it comes from.
absl::Status checkKind(const CacheKey &key, const Artifact &artifact) {
  if (!artifact.getKind().empty())
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("key ", key.digest.toHex(), ": the artifact has no kind"));
}

/// Whether the producer vouches for more than the bytes.
bool hasOwnMeaning(const Artifact &artifact) {
  return artifact.getMeaning() != artifact.getDigest();
}

/// Whether an error is one of the circumstances of a compile, and says nothing
/// of what it would have given.
bool isOfCircumstances(const absl::Status &status) {
  return absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status) || absl::IsCancelled(status) ||
         absl::IsAborted(status) || absl::IsUnavailable(status);
}

/// Whether this thread compiles in order to verify a hit. What such a compile
/// asks for is not verified in turn: it may be the same key.
thread_local bool isVerifying = false;

} // namespace

class CompileCache::Impl {
public:
  Impl(CompileCacheOptions theOptions, Tiers tiers)
      : options(std::move(theOptions)),
        memory(options.memoryBytes, policyOf(options.mode)) {
    if (tiers.disk)
      disk = std::make_unique<TierFront>(std::move(tiers.disk));
    if (tiers.remote)
      remote = std::make_unique<TierFront>(std::move(tiers.remote));
    for (TierFront *front : {disk.get(), remote.get()})
      if (front)
        fronts.push_back(front);
  }

  absl::StatusOr<Artifact> getOrCompile(const CacheKey &key, Compile compile,
                                        absl::Duration timeout,
                                        const Caller &caller);
  absl::StatusOr<std::optional<Artifact>> lookup(const CacheKey &key);
  absl::Status insert(const CacheKey &key, const Artifact &artifact);
  void clear();
  absl::Status flush();
  CompileCacheStats getStats() const;
  const CompileCacheOptions &getOptions() const { return options; }

  /// Not where it was made before a fork, after which nothing is certain.
  absl::Status checkUsable() const {
    if (LLVM_LIKELY(!memory.isInherited()))
      return absl::OkStatus();
    return absl::FailedPreconditionError(
        "compile cache: made before a fork, expected one of this process");
  }
  bool isInherited() const { return memory.isInherited(); }

private:
  /// Where a flight began: what the tiers are to be told is valid as long as
  /// they were not cleared since.
  using Epochs = llvm::SmallVector<uint64_t, 2>;
  Epochs getEpochs() const;

  bool readsTiers() const {
    return options.mode == Mode::ReadWrite || options.mode == Mode::ReadOnly;
  }
  bool writesTiers() const {
    return options.mode == Mode::ReadWrite || options.mode == Mode::Recompute;
  }

  /// A place in `fronts`, and what it holds.
  struct TierHit {
    size_t index;
    Artifact artifact;
  };
  std::optional<TierHit> askTiers(const CacheKey &key, const Epochs &epochs);

  /// By the tiers, in the order of `fronts`.
  using Claims = std::array<std::unique_ptr<CompileClaim>, 2>;
  /// Asks for the right to compile among processes, where `claims` has none yet,
  /// and whether somebody who had it has left a `hit`. Returns whether others
  /// are compiling. Not for who only reads: that keeps nobody from compiling.
  bool claim(const CacheKey &key, absl::Duration limit, const Epochs &epochs,
             Claims &claims, std::optional<TierHit> &hit);

  absl::StatusOr<Artifact> runCompile(const CacheKey &key, Compile compile);
  void verify(const CacheKey &key, const Artifact &cached, Compile compile,
              ReadMeaning readMeaning);

  const CompileCacheOptions options;
  FlightCache memory;
  std::unique_ptr<TierFront> disk, remote;
  llvm::SmallVector<TierFront *, 2> fronts;

  std::atomic<uint64_t> compiles{0}, lookupHitsOfTiers{0}, verified{0},
      mismatches{0}, incomparable{0}, hitsToVerify{0};
  std::atomic<int64_t> savedByTiersNanoseconds{0};
};

CompileCache::Impl::Epochs CompileCache::Impl::getEpochs() const {
  Epochs epochs;
  for (TierFront *front : fronts)
    epochs.push_back(front->getEpoch());
  return epochs;
}

std::optional<CompileCache::Impl::TierHit>
CompileCache::Impl::askTiers(const CacheKey &key, const Epochs &epochs) {
  for (size_t i = 0; i != fronts.size(); ++i) {
    std::optional<Artifact> artifact =
        fronts[i]->get(key, /*mayPut=*/writesTiers());
    if (!artifact)
      continue;
    if (writesTiers())
      for (size_t earlier = 0; earlier != i; ++earlier)
        fronts[earlier]->put(key, *artifact, /*replace=*/false,
                             /*claim=*/nullptr, epochs[earlier]);
    int64_t cost = absl::ToInt64Nanoseconds(artifact->getCompileCost());
    int64_t saved = savedByTiersNanoseconds.load();
    while (!savedByTiersNanoseconds.compare_exchange_weak(
        saved, addSaturated(saved, cost))) {
    }
    return TierHit{i, *std::move(artifact)};
  }
  return std::nullopt;
}

absl::StatusOr<Artifact> CompileCache::Impl::runCompile(const CacheKey &key,
                                                        Compile compile) {
  auto begin = std::chrono::steady_clock::now();
  std::optional<Artifact> artifact;
  absl::Status status =
      FlightCache::runGuarded("the compile", [&]() -> absl::Status {
        absl::StatusOr<Artifact> compiled = compile();
        if (!compiled.ok())
          return compiled.status();
        artifact = *std::move(compiled);
        return checkKind(key, *artifact);
      });
  if (!status.ok())
    return status;
  if (artifact->getCompileCost() != absl::ZeroDuration())
    return *std::move(artifact);
  return artifact->withCompileCost(
      absl::FromChrono(std::chrono::steady_clock::now() - begin));
}

void CompileCache::Impl::verify(const CacheKey &key, const Artifact &cached,
                                Compile compile, ReadMeaning readMeaning) {
  verified.fetch_add(1);
  absl::StatusOr<Fingerprint> compiledMeaning = Fingerprint();
  std::optional<Fingerprint> cachedMeaning;
  {
    struct Verifying {
      Verifying() { isVerifying = true; }
      ~Verifying() { isVerifying = false; }
    } verifying;
    absl::StatusOr<Artifact> compiled = runCompile(key, compile);
    if (compiled.ok() && compiled->getDigest() == cached.getDigest())
      return;
    if (!compiled.ok()) {
      compiledMeaning = compiled.status();
      if (!isOfCircumstances(compiled.status()))
        cachedMeaning = cached.getMeaning();
    } else {
      compiledMeaning = compiled->getMeaning();
      if (hasOwnMeaning(*compiled) == hasOwnMeaning(cached))
        cachedMeaning = cached.getMeaning();
      else if (hasOwnMeaning(*compiled) && readMeaning)
        cachedMeaning = readMeaning(cached);
    }
  }
  if (!cachedMeaning) {
    incomparable.fetch_add(1);
    return;
  }
  if (compiledMeaning.ok() && *compiledMeaning == *cachedMeaning)
    return;
  mismatches.fetch_add(1);
  if (options.onMismatch)
    options.onMismatch({key, *cachedMeaning, std::move(compiledMeaning)});
}

bool CompileCache::Impl::claim(const CacheKey &key, absl::Duration limit,
                               const Epochs &epochs, Claims &claims,
                               std::optional<TierHit> &hit) {
  bool isOthers = false, lookAgain = false;
  for (size_t i = 0; i != fronts.size(); ++i) {
    if (claims[i])
      continue;
    TierFront::Claimed claimed = fronts[i]->claim(key, limit);
    claims[i] = std::move(claimed.claim);
    lookAgain |= claimed.lookAgain;
    isOthers |= claimed.lookAgain && !claims[i];
  }
  if (lookAgain)
    hit = askTiers(key, epochs);
  return isOthers && !hit;
}

absl::StatusOr<Artifact>
CompileCache::Impl::getOrCompile(const CacheKey &key, Compile compile,
                                 absl::Duration timeout, const Caller &caller) {
  bool isTierHit = false;
  FlightCache::Answer answer = memory.getOrMake(
      key,
      [&]() -> absl::StatusOr<FlightCache::Value> {
        // Not read for a hit in memory: it would cost a third of it.
        using Clock = std::chrono::steady_clock;
        const Clock::time_point begin = Clock::now();
        Epochs epochs = getEpochs();
        Claims claims;
        if (readsTiers()) {
          std::optional<TierHit> hit = askTiers(key, epochs);
          if (!hit && writesTiers()) {
            absl::Duration limit =
                caller.beforeProcess ? caller.processTimeout : timeout;
            auto getLeft = [&] {
              return limit - absl::FromChrono(Clock::now() - begin);
            };
            bool isOthers = claim(
                key, caller.beforeProcess ? absl::ZeroDuration() : getLeft(),
                epochs, claims, hit);
            if (isOthers && caller.beforeProcess) {
              caller.beforeProcess();
              claim(key, getLeft(), epochs, claims, hit);
            }
          }
          if (hit) {
            isTierHit = true;
            fronts[hit->index]->countHit();
            return CacheAccess::toValue(hit->artifact);
          }
        }

        compiles.fetch_add(1);
        absl::StatusOr<Artifact> artifact = runCompile(key, compile);
        if (!artifact.ok())
          return artifact.status();
        // Before anybody gets it, so that `flush` waits for what a caller has
        // seen. A `clear` that comes now finds it among the writes.
        if (writesTiers())
          for (size_t i = 0; i != fronts.size(); ++i)
            fronts[i]->put(key, *artifact, options.mode == Mode::Recompute,
                           std::move(claims[i]), epochs[i]);
        return CacheAccess::toValue(*artifact);
      },
      timeout);
  if (!answer.value.ok())
    return answer.value.status();
  Artifact artifact = CacheAccess::toArtifact(*answer.value);

  bool isHit = isTierHit || answer.source == FlightCache::Source::Kept;
  if (options.verifyHits && isHit && !isVerifying &&
      (hitsToVerify.fetch_add(1) + 1) % options.verifyInterval == 0)
    verify(key, artifact, compile, caller.readMeaning);
  return artifact;
}

absl::StatusOr<std::optional<Artifact>>
CompileCache::Impl::lookup(const CacheKey &key) {
  FlightCache::Found found = memory.find(key);
  if (found.value)
    return CacheAccess::toArtifact(found.value);
  if (!readsTiers())
    return std::nullopt;
  std::optional<TierHit> hit = askTiers(key, getEpochs());
  if (!hit)
    return std::nullopt;
  lookupHitsOfTiers.fetch_add(1);
  memory.insert(key, CacheAccess::toValue(hit->artifact), found.generation);
  return std::move(hit->artifact);
}

absl::Status CompileCache::Impl::insert(const CacheKey &key,
                                        const Artifact &artifact) {
  if (absl::Status status = checkKind(key, artifact); !status.ok())
    return status;
  if (writesTiers()) {
    Epochs epochs = getEpochs();
    for (size_t i = 0; i != fronts.size(); ++i)
      fronts[i]->put(key, artifact, options.mode == Mode::Recompute,
                     /*claim=*/nullptr, epochs[i]);
  }
  memory.insert(key, CacheAccess::toValue(artifact));
  return absl::OkStatus();
}

void CompileCache::Impl::clear() {
  // The tiers first: what is begun when memory has been cleared finds nothing
  // in them.
  if (writesTiers())
    for (TierFront *front : fronts)
      front->beginClear();
  memory.clear();
  if (writesTiers())
    for (TierFront *front : fronts)
      front->endClear();
}

absl::Status CompileCache::Impl::flush() {
  absl::Status status;
  for (TierFront *front : fronts)
    status.Update(front->flush());
  return status;
}

CompileCacheStats CompileCache::Impl::getStats() const {
  CompileCacheStats stats;
  // In this order: a hit is counted after its lookup.
  stats.lookupHits = lookupHitsOfTiers.load();
  FlightCache::Stats kept = memory.getStats();
  stats.lookupHits += kept.lookupHits;
  stats.lookups = kept.lookups;
  stats.lookupMisses = stats.lookups - stats.lookupHits;
  stats.requests = kept.requests;
  stats.joined = kept.joined;
  stats.compiles = compiles.load();
  stats.refused = kept.refused;
  stats.failures = kept.failures;
  stats.abandoned = kept.abandoned;
  stats.verified = verified.load();
  stats.mismatches = mismatches.load();
  stats.incomparable = incomparable.load();
  stats.timeSaved =
      kept.timeSaved + absl::Nanoseconds(savedByTiersNanoseconds.load());
  stats.memory.hits = kept.kept;
  stats.memory.writes = kept.inserted;
  stats.memory.evictions = kept.evictions;
  stats.memory.entries = kept.entries;
  stats.memory.bytes = kept.bytes;
  if (disk)
    stats.disk = disk->getStats();
  if (remote)
    stats.remote = remote->getStats();
  return stats;
}

absl::StatusOr<std::unique_ptr<CompileCache>>
CacheAccess::createCache(CompileCacheOptions options, Tiers tiers) {
  if (absl::Status status = validate(options); !status.ok())
    return status;
  return std::unique_ptr<CompileCache>(
      new CompileCache(std::make_unique<CompileCache::Impl>(std::move(options),
                                                            std::move(tiers))));
}

static absl::Status addOwner(const absl::Status &status) {
  return absl::Status(status.code(),
                      absl::StrCat("compile cache: ", status.message()));
}

DiskTierOptions detail::getDiskTierOptions(const CompileCacheOptions &options) {
  DiskTierOptions disk;
  disk.directory = options.directory;
  disk.directoryBytes = options.directoryBytes;
  disk.readOnly = options.mode == Mode::ReadOnly;
  disk.allowForeignDirectory = options.allowForeignDirectory;
  disk.crossProcessWait = options.crossProcessWait;
  return disk;
}

RemoteTierOptions
detail::getRemoteTierOptions(const CompileCacheOptions &options) {
  RemoteTierOptions remote;
  remote.url = options.remote;
  remote.secret = options.remoteSecret;
  remote.connectTimeout = options.remoteConnectTimeout;
  remote.callTimeout = options.remoteCallTimeout;
  remote.totalTimeout = options.remoteTotalTimeout;
  remote.expiry = options.remoteExpiry;
  remote.maxArtifactBytes = options.remoteMaxArtifactBytes;
  return remote;
}

absl::StatusOr<std::unique_ptr<CompileCache>>
CompileCache::create(CompileCacheOptions options) {
  Tiers tiers;
  bool usesTiers = options.mode != Mode::Off;
  if (usesTiers && !options.directory.empty()) {
    absl::StatusOr<std::unique_ptr<DiskTier>> tier =
        DiskTier::create(getDiskTierOptions(options));
    if (!tier.ok())
      return addOwner(tier.status());
    tiers.disk = *std::move(tier);
  }
  if (usesTiers && !options.remote.empty()) {
    absl::StatusOr<std::unique_ptr<RemoteTier>> tier =
        RemoteTier::create(getRemoteTierOptions(options));
    if (!tier.ok())
      return addOwner(tier.status());
    tiers.remote = *std::move(tier);
  }
  return CacheAccess::createCache(std::move(options), std::move(tiers));
}

CompileCache::CompileCache(std::unique_ptr<Impl> impl)
    : impl(std::move(impl)) {}

CompileCache::~CompileCache() {
  // Its threads are not there to be joined, and its locks may be held for ever.
  if (impl->isInherited())
    (void)impl.release(); // NOLINT(bugprone-unused-return-value)
}

absl::StatusOr<Artifact> CompileCache::getOrCompile(const CacheKey &key,
                                                    Compile compile,
                                                    absl::Duration timeout) {
  return CacheAccess::getOrCompile(*this, key, compile, timeout, {});
}

absl::StatusOr<Artifact> CacheAccess::getOrCompile(CompileCache &cache,
                                                   const CacheKey &key,
                                                   Compile compile,
                                                   absl::Duration timeout,
                                                   const Caller &caller) {
  CompileCache::Impl &impl = *cache.impl;
  if (absl::Status status = impl.checkUsable(); !status.ok())
    return status;
  return impl.getOrCompile(key, compile, timeout, caller);
}

absl::StatusOr<std::optional<Artifact>>
CompileCache::lookup(const CacheKey &key) {
  if (absl::Status status = impl->checkUsable(); !status.ok())
    return status;
  return impl->lookup(key);
}

absl::Status CompileCache::insert(const CacheKey &key,
                                  const Artifact &artifact) {
  if (absl::Status status = impl->checkUsable(); !status.ok())
    return status;
  return impl->insert(key, artifact);
}

void CompileCache::clear() {
  if (!impl->isInherited())
    impl->clear();
}

absl::Status CompileCache::flush() {
  if (absl::Status status = impl->checkUsable(); !status.ok())
    return status;
  return impl->flush();
}

const CompileCacheOptions &CompileCache::getOptions() const {
  return impl->getOptions();
}

CompileCacheStats CompileCache::getStats() const {
  return impl->isInherited() ? CompileCacheStats() : impl->getStats();
}

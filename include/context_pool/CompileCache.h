//===- CompileCache.h - Compiled once, used by everybody --------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// What a compiler made of a module, kept under a key that names everything that
/// went into it: keys, artifacts, and a cache that compiles each key once.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_COMPILECACHE_H
#define CONTEXT_POOL_COMPILECACHE_H

#include "context_pool/Fingerprint.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ctxpool {

namespace detail {
struct CacheAccess;
} // namespace detail

//===----------------------------------------------------------------------===//
// Artifacts
//===----------------------------------------------------------------------===//

/// Immutable bytes that a compiler made. Cheap to copy: copies share the bytes,
/// which live as long as the last of them.
///
/// Thread safety: any number of threads may use copies, and one, at once.
class Artifact {
public:
  /// No kind and no bytes.
  Artifact();

  /// A copy of `bytes`, 64-byte aligned. `kind` says what they are, such as
  /// `object`.
  static Artifact copyOf(llvm::StringRef kind, llvm::StringRef bytes);

  /// `bytes` in place, which live as long as `owner`. Copies them where they are
  /// not 64-byte aligned.
  static Artifact adopt(llvm::StringRef kind, llvm::StringRef bytes,
                        std::shared_ptr<const void> owner);

  llvm::StringRef getKind() const;

  /// 64-byte aligned.
  llvm::StringRef getBytes() const;

  /// BLAKE3 of the bytes; computed by the first call.
  const Fingerprint &getDigest() const;

  /// What a compile that gives equal results every time would give again: a
  /// digest that the producer vouches for, else `getDigest()`. Upstream's passes
  /// leave the names and the order of private symbols to chance, so two right
  /// compiles of one module can differ in bytes, and agree in this.
  const Fingerprint &getMeaning() const;

  /// How long the compiler worked for it; zero where nobody said.
  absl::Duration getCompileCost() const;

  /// The same bytes, shared, with that meaning or cost.
  Artifact withMeaning(const Fingerprint &meaning) const;
  Artifact withCompileCost(absl::Duration cost) const;

private:
  friend struct detail::CacheAccess;
  struct Storage;
  explicit Artifact(std::shared_ptr<const Storage> theStorage);
  std::shared_ptr<const Storage> storage;
};

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

/// What is done to a module.
struct CompileRecipe {
  /// The pass pipeline, with its anchor: `builtin.module(canonicalize)`.
  std::string pipeline;

  /// The target triple. Empty: this machine's.
  std::string target;

  /// Whatever else the compile function was told, as text.
  std::string options;

  /// Further inputs that change the result: digests of files that passes read,
  /// versions of libraries that are linked, values of environment variables.
  std::vector<std::string> extra;

  /// As LLVM's `-mcpu`. Empty: the target's generic one; `native`: that of this
  /// machine, by name, with its features.
  std::string cpu;

  /// As LLVM's `-mattr`, `+avx2,-sse4a`: in any order, of one feature the last
  /// counts.
  std::string features;

  /// `tiny`, `small`, `kernel`, `medium` or `large`. Empty: the target's own.
  std::string codeModel;

  /// 0 to 3, for LLVM's passes and for code generation.
  unsigned optimizationLevel = 2;
};

/// The name of a result of compiling.
struct CacheKey {
  Fingerprint digest;

  friend bool operator==(const CacheKey &lhs, const CacheKey &rhs) {
    return lhs.digest == rhs.digest;
  }
  friend bool operator!=(const CacheKey &lhs, const CacheKey &rhs) {
    return lhs.digest != rhs.digest;
  }
};

/// One of the things that a key names.
struct KeyPart {
  std::string name;
  std::string value;
};

/// A recipe of which everything is settled: the pipeline parsed and printed, so
/// that spacing and options with their default value do not matter; `native` and
/// the empty target replaced by what they mean on this machine; features sorted;
/// the identity of the compiler added. Makes keys fast.
class ResolvedRecipe {
public:
  /// Errors: InvalidArgument - the pipeline, the target, the code model or the
  ///                           optimisation level; the message names the field.
  static absl::StatusOr<ResolvedRecipe> create(const CompileRecipe &recipe);

  /// Each field in its settled form.
  const CompileRecipe &get() const { return recipe; }

  CacheKey makeKey(const Fingerprint &module) const;

  /// Everything that goes into `makeKey(module)`, in order.
  std::vector<KeyPart> explainKey(const Fingerprint &module) const;

private:
  ResolvedRecipe() = default;
  CompileRecipe recipe;
  std::vector<KeyPart> parts;
  Fingerprint digest;
};

/// The key of what `recipe` makes of the module with that fingerprint. Which of
/// `StructuralOptions` the fingerprint was made with is part of it.
///
/// Errors: those of `ResolvedRecipe::create`, which is better called once for
/// many keys.
absl::StatusOr<CacheKey> makeCacheKey(const Fingerprint &module,
                                      const CompileRecipe &recipe);

/// The parts of that key, for people: which part tells two keys apart?
///
/// Errors: those of `ResolvedRecipe::create`.
absl::StatusOr<std::vector<KeyPart>> explainKey(const Fingerprint &module,
                                                const CompileRecipe &recipe);

//===----------------------------------------------------------------------===//
// The cache
//===----------------------------------------------------------------------===//

/// A compile that gave something else than the cache holds.
struct HitMismatch {
  CacheKey key;
  Fingerprint cached; ///< `Artifact::getMeaning` of what was cached.
  absl::StatusOr<Fingerprint> compiled; ///< ... of the compile, or its error.
};

struct CompileCacheOptions {
  /// The most that is kept in memory, in bytes of artifacts. 0: nothing is kept.
  uint64_t memoryBytes = 256ull << 20;

  /// A folder that threads, processes and runs share. Empty: none.
  std::string directory;
  uint64_t directoryBytes = 10ull << 30;

  /// A server that machines share: `redis://[user:password@]host:port/db`.
  /// Empty: none.
  std::string remote;

  enum class Mode {
    ReadWrite,
    ReadOnly,  ///< Directory and remote are read and not written to.
    Recompute, ///< What is cached is not used, and replaced.
    Off        ///< Nothing is kept or used. Callers of one key still share a
               ///< compile.
  } mode = Mode::ReadWrite;

  /// Whether every `verifyInterval`th hit compiles again and compares. The
  /// caller gets what was cached; a difference is counted and reported.
  bool verifyHits = false;
  uint64_t verifyInterval = 100;

  /// Called with every difference, on the thread that found it, without a lock.
  std::function<void(const HitMismatch &)> onMismatch;
};

/// What one tier did.
struct CacheTierStats {
  uint64_t hits = 0;
  uint64_t writes = 0;
  uint64_t errors = 0;   ///< Faults: each was a miss, or a write that was lost.
  uint64_t rejected = 0; ///< Entries that were damaged or not to be trusted.
  uint64_t dropped = 0;  ///< Writes given up since too many were waiting.
  uint64_t evictions = 0;
  uint64_t entries = 0;  ///< At the moment.
  uint64_t bytes = 0;    ///< At the moment.
  std::string lastError; ///< Of the last fault; empty before the first.
};

/// Counts since the cache was created. Where no call is under way,
/// `requests == memory.hits + disk.hits + remote.hits + joined + compiles +
/// refused`, and `lookups == lookupHits + lookupMisses`.
struct CompileCacheStats {
  uint64_t requests = 0;  ///< Calls of getOrCompile.
  uint64_t joined = 0;    ///< ... that waited for another's compile.
  uint64_t compiles = 0;  ///< ... that compiled.
  uint64_t refused = 0;   ///< ... that asked for what they were making.
  uint64_t failures = 0;  ///< Compiles that failed.
  uint64_t abandoned = 0; ///< Waiters that gave up at their deadline.
  uint64_t lookups = 0, lookupHits = 0, lookupMisses = 0;
  uint64_t verified = 0;    ///< Hits that were compiled again.
  uint64_t mismatches = 0;  ///< ... and came out different.
  absl::Duration timeSaved; ///< What the compiles of all hits had cost.
  CacheTierStats memory, disk, remote;
};

/// The cache.
class CompileCache {
public:
  /// Errors: InvalidArgument - an option is out of its range; the message names
  ///                           the field.
  static absl::StatusOr<std::unique_ptr<CompileCache>>
  create(CompileCacheOptions options = {});

  ~CompileCache();
  CompileCache(const CompileCache &) = delete;
  CompileCache &operator=(const CompileCache &) = delete;

  absl::StatusOr<Artifact>
  getOrCompile(const CacheKey &key,
               llvm::function_ref<absl::StatusOr<Artifact>()> compile,
               absl::Duration timeout = absl::InfiniteDuration());

  absl::StatusOr<std::optional<Artifact>> lookup(const CacheKey &key);

  absl::Status insert(const CacheKey &key, const Artifact &artifact);

  void clear();

  /// Waits until everything that was published is in every tier.
  absl::Status flush();

  CompileCacheStats getStats() const;

private:
  friend struct detail::CacheAccess;
  class Impl;
  explicit CompileCache(std::unique_ptr<Impl> theImpl);
  const std::unique_ptr<Impl> impl;
};

} // namespace ctxpool

#endif // CONTEXT_POOL_COMPILECACHE_H

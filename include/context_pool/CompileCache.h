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
/// which live as long as the last of them, whatever becomes of the cache that
/// they came from.
///
/// Thread safety: any number of threads may use copies, and one, at once.
class Artifact {
public:
  /// No kind and no bytes.
  Artifact();

  /// A copy of `bytes`, 64-byte aligned. `kind` says what they are, such as
  /// `object`.
  static Artifact copyOf(llvm::StringRef kind, llvm::StringRef bytes);

  /// `bytes` in place, which live as long as `owner`. Where they are not 64-byte
  /// aligned, a copy of them.
  static Artifact adopt(llvm::StringRef kind, llvm::StringRef bytes,
                        std::shared_ptr<const void> owner);

  llvm::StringRef getKind() const;

  /// 64-byte aligned, also where there are none.
  llvm::StringRef getBytes() const;

  /// BLAKE3 of the bytes; computed by the first call, on this or another copy.
  const Fingerprint &getDigest() const;

  /// What a compile that gives equal results every time would give again: a
  /// digest that the producer vouches for, else `getDigest()`. Upstream's passes
  /// leave the names and the order of private symbols to chance, so two right
  /// compiles of one module can differ in bytes, and agree in this.
  const Fingerprint &getMeaning() const;

  /// How long the compiler worked for it; zero where nobody said.
  absl::Duration getCompileCost() const;

  /// The same bytes, shared, with that meaning or cost. A cost below zero is
  /// none.
  Artifact withMeaning(const Fingerprint &meaning) const;
  Artifact withCompileCost(absl::Duration cost) const;

private:
  friend struct detail::CacheAccess;
  struct Storage;
  explicit Artifact(std::shared_ptr<const Storage> storage);
  std::shared_ptr<const Storage> storage;
};

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

/// What is done to a module.
struct CompileRecipe {
  /// The pass pipeline, with its anchor: `builtin.module(canonicalize)`. Its
  /// passes have to be registered.
  std::string pipeline;

  /// The target triple. Empty: that of this process.
  std::string target;

  /// Whatever else the compile function was told, as text: what is produced, for
  /// one.
  std::string options;

  /// Further inputs that change the result, in an order of the user's: digests
  /// of files that passes read, versions of libraries that are linked, values of
  /// environment variables.
  std::vector<std::string> extra;

  /// As LLVM's `-mcpu`. Empty: the target's generic one; `native`: that of this
  /// machine, by name, with its features.
  std::string cpu;

  /// As LLVM's `-mattr`, `+avx2,-sse4a`: in any order, of one feature the last
  /// counts, and any of them counts over what `native` brings. For LLVM the
  /// order may matter: hand it `ResolvedRecipe::get().features`, which have one.
  std::string features;

  /// `tiny`, `small`, `kernel`, `medium` or `large`. Empty: the target's own.
  std::string codeModel;

  /// 0 to 3, for LLVM's passes and for code generation.
  unsigned optimizationLevel = 2;
};

/// The name of a result of compiling: 256 bits of BLAKE3. Two results that
/// differ have different names for all that can be done about it on this planet:
/// nothing else is compared.
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

  friend bool operator==(const KeyPart &lhs, const KeyPart &rhs) {
    return lhs.name == rhs.name && lhs.value == rhs.value;
  }
  friend bool operator!=(const KeyPart &lhs, const KeyPart &rhs) {
    return !(lhs == rhs);
  }
};

/// A recipe of which everything is settled, so that what means the same is the
/// same, and compiles and keys go by one text:
///   - the pipeline, parsed and printed: neither spacing nor the order of a
///     pass's options matters, nor whether a default is spelled out;
///   - the target, normalised (`x86_64-linux-gnu` is
///     `x86_64-unknown-linux-gnu`); the empty one, replaced by this process's;
///   - the CPU `native`, replaced by this machine's and its features: the same
///     machine has the same key in a new process, and another CPU another;
///   - features, sorted by name, each once.
///
/// What goes into a key besides: `codeModel`, `optimizationLevel`, `options` and
/// `extra` as they are, and the identity of the compiler at the time of
/// `create`:
///   - the version of the way in which keys are made;
///   - the version of LLVM, and its revision where that is known;
///   - the code of the executable, of all that is loaded and names MLIR or LLVM
///     among its dynamic symbols (their libraries and plugins), and of what these
///     need, directly or not: by its build id, or without one by its contents.
///     What else is loaded counts for nothing, and neither does what `Executable`
///     loads for compiled code. A plugin that is loaded later has other keys:
///     create anew.
/// Everything that goes in is framed: no two lists of parts run into one text.
///
/// What does not go in, and has to be in `options` or `extra` where it matters:
/// the environment, files that passes read, LLVM's command line options, passes
/// that are set up by code, what a context has besides the module (dialects,
/// interfaces that extensions attach, flags).
///
/// A value. Thread safety: any number of threads may use one at once.
class ResolvedRecipe {
public:
  /// Costs: some ms for what parsing a pipeline costs, and tens of ms, once a
  ///        process, for each large object without a build id.
  ///
  /// Errors: InvalidArgument - the pipeline, target, features, code model or
  ///                           optimisation level; the message names the field.
  ///                           Whether the target has such a CPU and features is
  ///                           for who generates code to say.
  static absl::StatusOr<ResolvedRecipe> create(const CompileRecipe &recipe);

  /// Each field in its settled form: what to compile with. Settled once more, it
  /// stays as it is.
  const CompileRecipe &get() const { return recipe; }

  /// The key of what the recipe makes of the module with that fingerprint. Which
  /// `StructuralOptions` the fingerprint was made with is part of it. Takes some
  /// hundred nanoseconds.
  CacheKey makeKey(const Fingerprint &module) const;

  /// Everything that goes into `makeKey(module)`, in order. Two keys are equal
  /// exactly when these are: which part tells two keys apart?
  std::vector<KeyPart> explainKey(const Fingerprint &module) const;

private:
  ResolvedRecipe() = default;
  CompileRecipe recipe;
  std::vector<KeyPart> parts;
  Fingerprint digest; ///< Of `parts`.
};

/// `ResolvedRecipe::makeKey` of `recipe`, which is better resolved once for many
/// keys.
///
/// Errors: those of `ResolvedRecipe::create`.
absl::StatusOr<CacheKey> makeCacheKey(const Fingerprint &module,
                                      const CompileRecipe &recipe);

/// `ResolvedRecipe::explainKey` of `recipe`.
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
  /// The most that is kept in memory, in bytes: of artifacts and their kinds,
  /// and 256 for each. What is evicted and still in use is not counted, nor are
  /// some 200 bytes for each thread that uses an artifact, of 16 at most. 0:
  /// nothing is kept.
  uint64_t memoryBytes = 256ull << 20;

  /// A folder that threads, processes and runs share: a store of LLVM's CAS.
  /// Empty: none; `getDefaultCacheDirectory` is where caches usually are. It is
  /// created when it is first used, for its owner only, and is a folder of its
  /// own: `gen.<n>` in it are deleted when they are not in use, but for folders
  /// that hold something and nothing of a cache. One that has such a `gen.<n>`,
  /// or a file of that name, or a `generations` that no cache wrote, is not used,
  /// unless it has a valid `generations`: a damaged one is replaced where each
  /// `gen.<n>` is a cache's. A relative path starts where the process is when it
  /// makes the cache. Not for network file systems.
  std::string directory;

  /// What the folder may hold, but for what processes write at the same moment.
  /// What was used last survives longest; hits in memory do not reach the folder,
  /// and are no uses of it. The disk may hold as much again for a process, of
  /// what made room and is still in use through artifacts. At least 4 MiB.
  uint64_t directoryBytes = 10ull << 30;

  /// Whether the folder may belong to somebody else, or be writable by others,
  /// who can then put any code into the programs of those who read.
  bool allowForeignDirectory = false;

  /// How long a compile waits for another process, with which it shares the
  /// folder, that compiles the same key, unless its `timeout` is shorter. Then it
  /// compiles itself. Two caches of one process that share a folder are as two
  /// processes in this: a compile that asks the other cache for the very key that
  /// it compiles waits that long for itself.
  absl::Duration crossProcessWait = absl::Seconds(60);

  /// A Redis server that machines share: `redis://[user:password@]host:port/db`,
  /// or `rediss://` for TLS. Empty: none.
  std::string remote;

  /// What those who may write to the server's cache share. With it every value is
  /// authenticated. Empty: values are checked for damage only, and who can write
  /// to the server can put any code into the programs of those who read.
  std::string remoteSecret;

  /// How long connecting to the server may take, with the name's lookup and TLS;
  /// how long the server may do nothing while it is waited for; and how long a
  /// call may take, all in all. Each 1 ms to 1 h. A server that fails is left
  /// alone for a while. A compile waits that long to find out, so that the
  /// defaults are for a server nearby; one far away wants more.
  absl::Duration remoteConnectTimeout = absl::Milliseconds(50);
  absl::Duration remoteCallTimeout = absl::Milliseconds(25);
  absl::Duration remoteTotalTimeout = absl::Seconds(2);

  /// How long an artifact stays on the server after it was written. Infinite:
  /// until the server needs the room.
  absl::Duration remoteExpiry = absl::Hours(24 * 30);

  /// Larger artifacts are neither written to the server nor read. At most
  /// 256 MiB.
  uint64_t remoteMaxArtifactBytes = 64ull << 20;

  enum class Mode {
    ReadWrite,
    /// Directory and remote are read and not written to, nor cleared. In the
    /// directory nothing is made, published, replaced or deleted; but LLVM opens
    /// a store for writing only, so that this needs the right to write, the times
    /// of its files change, and the notes of whether it was closed are kept.
    ReadOnly,
    Recompute, ///< What is cached is not used, and replaced: every call
               ///< compiles, but for those that wait for another's.
    Off        ///< Nothing is kept or used. Callers of one key still share a
               ///< compile.
  } mode = Mode::ReadWrite;

  /// Whether every `verifyInterval`th hit of `getOrCompile` compiles again, on
  /// the thread that hit, and compares: equal bytes are no difference, and others
  /// are none where `Artifact::getMeaning` is equal. The caller gets what was
  /// cached; a difference, or an error of the compile, is counted and reported. A
  /// hit within such a compile is not verified in turn.
  ///
  /// Counted as `incomparable`, and not reported: other bytes where only one of
  /// the two says more than its digest, for instance since the cached one was
  /// written to a tier by a cache that does not verify; and a compile that had no
  /// time or room (DeadlineExceeded, ResourceExhausted, Cancelled, Aborted,
  /// Unavailable), which says nothing of its result.
  bool verifyHits = false;
  uint64_t verifyInterval = 100; ///< At least 1.

  /// Called with every difference, on the thread that found it, without a lock.
  /// Must not throw.
  std::function<void(const HitMismatch &)> onMismatch;
};

/// `$CTXPOOL_DIR`, else `$XDG_CACHE_HOME/context_pool`, else
/// `~/.cache/context_pool`.
///
/// Thread safety: reads the environment, which nobody may change meanwhile.
/// Errors: FailedPrecondition - none of `CTXPOOL_DIR`, `XDG_CACHE_HOME` and
///                              `HOME` is set.
absl::StatusOr<std::string> getDefaultCacheDirectory();

/// `options` with what the environment says in their place. `create` does not
/// look at the environment: a program that wants to be steered by it calls this.
///
///   | variable                     | field                    | for example   |
///   |------------------------------|--------------------------|---------------|
///   | `CTXPOOL_MODE`               | `mode`                   | `read-write`, |
///   |                              |                          | `read-only`,  |
///   |                              |                          | `recompute`,  |
///   |                              |                          | `off`         |
///   | `CTXPOOL_MEMORY_BYTES`       | `memoryBytes`            | `512M`        |
///   | `CTXPOOL_DIR`                | `directory`              | `/var/cache/x`|
///   | `CTXPOOL_DIR_BYTES`          | `directoryBytes`         | `20G`         |
///   | `CTXPOOL_CROSS_PROCESS_WAIT` | `crossProcessWait`       | `90s`         |
///   | `CTXPOOL_REMOTE`             | `remote`                 | `redis://h:1` |
///   | `CTXPOOL_REMOTE_SECRET`      | `remoteSecret`           |               |
///   | `CTXPOOL_REMOTE_TIMEOUT`     | `remoteConnectTimeout`,  | `500ms`       |
///   |                              | `remoteCallTimeout`, and |               |
///   |                              | `remoteTotalTimeout`     |               |
///   |                              | where that is less       |               |
///   | `CTXPOOL_REMOTE_EXPIRY`      | `remoteExpiry`           | `24h`, `inf`  |
///   | `CTXPOOL_REMOTE_MAX_BYTES`   | `remoteMaxArtifactBytes` | `16M`         |
///
/// Bytes are a number, or one with `K`, `M`, `G` or `T` for powers of 1,024. A
/// variable that is empty counts as not set.
///
/// Thread safety: as `getDefaultCacheDirectory`.
/// Errors: InvalidArgument - a value that is not understood; the message names
///                           the variable, what it is and what was expected.
absl::StatusOr<CompileCacheOptions>
readCacheEnvironment(CompileCacheOptions options = {});

/// What one tier did.
struct CacheTierStats {
  uint64_t hits = 0;   ///< Calls of getOrCompile that it answered.
  uint64_t writes = 0; ///< Artifacts that it took in.
  uint64_t errors = 0; ///< Faults: each was a miss, a write that was lost, a
                       ///< clear, or a compile that other processes may repeat.
  uint64_t rejected = 0; ///< Entries that were damaged or not to be trusted.
  uint64_t dropped = 0;  ///< Writes given up since too many were waiting, the
                         ///< artifact was too large, or there was no thread.
  /// What went to make room. Of memory: each artifact. Of the directory: keys
  /// that nobody had used since the store before was replaced, when this cache
  /// replaced the store again; what caches of other processes replace counts
  /// there. Of a server: none, for what it tells is of all who use it together.
  uint64_t evictions = 0;
  uint64_t entries = 0; ///< At the moment; none of a server.
  uint64_t bytes = 0;   ///< At the moment; none of a server.
  /// The last fault, or why a write was dropped last, for people; empty before.
  std::string lastError;
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
  uint64_t verified = 0;     ///< Hits that were compiled again.
  uint64_t mismatches = 0;   ///< ... and came out different.
  uint64_t incomparable = 0; ///< ... of which nobody can say; see `verifyHits`.
  absl::Duration timeSaved;  ///< What the compiles of all hits had cost.
  CacheTierStats memory, disk, remote;
};

/// Artifacts, each compiled once: kept in memory as long as there is room, and
/// in the tiers behind it, a directory and a server, which are asked in that
/// order.
///
/// Guarantees:
///   - One compile of a key at a time: callers that come meanwhile wait for it
///     and get its artifact, or its error. Callers of different keys never wait
///     for each other.
///   - An error is not kept: the next caller compiles again.
///   - What is kept in memory never exceeds `memoryBytes`; what goes to make
///     room was used longest ago. An artifact that is larger is not kept, and
///     handed out.
///   - A hit in memory copies no bytes and takes one lock, which other threads
///     rarely want: one of 16 that threads have in turn, all of which are taken
///     where something is stored or dropped.
///   - A cache that is broken slows a compile, and never fails it: a fault of a
///     tier is counted and is a miss.
///   - A cache does not slow a compile: tiers are written to by threads of the
///     cache, and a write is dropped, and counted, where 1,024 writes or 256 MiB
///     are waiting for its tier. Only `flush` and destruction wait for them.
///   - No lock is held while code of the user's runs.
///
/// Ownership:     artifacts that were handed out stay valid when they are
///                evicted and when the cache is gone. The destructor finishes
///                the writes that wait.
/// Thread safety: every member may be called from several threads at once, but
///                for the destructor, which no other call may overlap.
/// Fork:          in a forked child, calls of an inherited cache that can fail
///                give FailedPrecondition and its counts are zero; destroying it
///                leaks what it holds. A cache that the child makes works, and
///                artifacts that were handed out stay valid.
/// Global state:  which thread waits for which compile, over all caches of the
///                process, to see those that wait for one another.
class CompileCache {
public:
  /// Does not connect, and leaves the directory to the first use: what is wrong
  /// with them then is a fault of a tier, and over when its cause is.
  ///
  /// Errors: InvalidArgument    - an option is out of its range; the message
  ///                              names the field, and no password.
  ///         FailedPrecondition - the directory is there, and belongs to somebody
  ///                              else or is writable by others.
  ///         Unimplemented      - this build has no Redis, or no TLS.
  ///         ResourceExhausted  - no thread for the directory, or TLS cannot be
  ///                              set up.
  static absl::StatusOr<std::unique_ptr<CompileCache>>
  create(CompileCacheOptions options = {});

  ~CompileCache();
  CompileCache(const CompileCache &) = delete;
  CompileCache &operator=(const CompileCache &) = delete;

  /// The artifact of `key`: what is kept; else what another thread is compiling,
  /// for which it waits up to `timeout`; else what a tier has, which fills
  /// memory and the tiers before it; else what `compile` gives, which fills all.
  /// What `insert` published meanwhile is handed out in place of that.
  ///
  /// `compile` runs on the calling thread, and may use this and other caches. The
  /// time that it takes is the artifact's compile cost, unless it says another.
  /// A `timeout` of zero or less does not wait; a thread that gives up leaves the
  /// compile and the others that wait alone. Where it is a process that shares the
  /// directory which compiles, the call waits up to `timeout` and
  /// `crossProcessWait`, and then compiles as well.
  ///
  /// Errors: what `compile` gave, for everybody who waited for it.
  ///         Internal           - `compile` threw; the message says what. Thus
  ///                              for everybody who waited.
  ///         InvalidArgument    - the artifact that `compile` gave has no kind.
  ///                              Thus for everybody who waited.
  ///         Aborted            - the thread that compiled ended in `compile`
  ///                              (`pthread_exit`, `pthread_cancel`). For those
  ///                              who waited.
  ///         DeadlineExceeded   - another thread was still compiling after
  ///                              `timeout`.
  ///         FailedPrecondition - the call comes from the compile that it would
  ///                              wait for, at once or through threads that wait
  ///                              for one another, in whatever caches. For the
  ///                              call that would close the circle. One that goes
  ///                              through a thread which a compile starts and
  ///                              joins cannot be seen: `timeout` ends it. Or the
  ///                              cache was made before a fork.
  ///
  /// `compile` must not be left by `longjmp`.
  absl::StatusOr<Artifact>
  getOrCompile(const CacheKey &key,
               llvm::function_ref<absl::StatusOr<Artifact>()> compile,
               absl::Duration timeout = absl::InfiniteDuration());

  /// The artifact of `key`, which counts as a use, from memory or else from a
  /// tier, which fills memory and the tiers before it; nothing on a miss. Does
  /// not wait for a compile.
  ///
  /// Errors: FailedPrecondition - the cache was made before a fork. A fault of a
  ///                              tier is none, but a miss.
  absl::StatusOr<std::optional<Artifact>> lookup(const CacheKey &key);

  /// Publishes an artifact to memory and the tiers, as a compile does. Where one
  /// is published already, that one stays, and a compile of the key that is under
  /// way gives everybody what was inserted; in mode Recompute, each takes the
  /// place of the one before.
  ///
  /// Errors: InvalidArgument    - the artifact has no kind.
  ///         FailedPrecondition - the cache was made before a fork.
  absl::Status insert(const CacheKey &key, const Artifact &artifact);

  /// Forgets everything: in memory, what waits to be written, and, unless the
  /// mode keeps it from writing, in the tiers. A compile that is under way goes
  /// to those who wait for it, and its artifact is published nowhere; who asks
  /// after that compiles anew. A directory that cannot be cleared now is not read
  /// by this cache until it was; a server that does not answer, or refuses, keeps
  /// what it holds. Either is counted in `errors`.
  void clear();

  /// Waits until everything that was published before the call is in every tier.
  ///
  /// Errors: the first fault of a write since the last call, or
  ///         ResourceExhausted for one that was dropped.
  ///         FailedPrecondition - the cache was made before a fork.
  absl::Status flush();

  /// The counts. Other calls may be under way, which are counted in part. Opens
  /// nothing: a directory that was not used yet has no entries. To count those of
  /// one that was, its tables are read, which takes about 2 us for each.
  CompileCacheStats getStats() const;

  const CompileCacheOptions &getOptions() const;

private:
  friend struct detail::CacheAccess;
  class Impl;
  explicit CompileCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace ctxpool

#endif // CONTEXT_POOL_COMPILECACHE_H

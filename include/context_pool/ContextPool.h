//===- ContextPool.h - Warm contexts for compiler threads -------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A pool that lends clones of a `ContextTemplate` to compiler threads, resets
/// them when they come back, and replaces them before they grow too large.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CONTEXTPOOL_H
#define CONTEXT_POOL_CONTEXTPOOL_H

#include "context_pool/ContextTemplate.h"
#include "context_pool/Diagnostics.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace mlir {
class MLIRContext;
class ModuleOp;
class Operation;
class PassManager;
} // namespace mlir

namespace ctxpool {

// Of ModuleTransfer.h, which is to be included for the members that take them.
struct CloneOptions;
struct DeserializeOptions;
class SerializedModule;

namespace detail {
class PooledContext;
class PoolState;
} // namespace detail

struct ContextPoolOptions {
  /// Contexts that the refill thread keeps ready for any thread, besides those
  /// that threads keep for themselves. At most `maxIdle`, and at most
  /// `maxLive`.
  size_t minIdle = 1;

  /// Idle contexts that the pool keeps, those of the threads' own slots
  /// included; more are destroyed as they come back. `maxIdle - minIdle`
  /// threads have a slot of their own: set it above the number of compiler
  /// threads.
  size_t maxIdle = 64;

  /// Contexts that exist at one time, those waiting to be destroyed included.
  /// 0: no limit.
  size_t maxLive = 0;

  /// A context is replaced after that many leases. At least 1.
  uint64_t maxLeasesPerContext = 4096;

  /// A context is replaced after its leases were charged with that many bytes.
  /// At least 1.
  uint64_t maxBytesPerContext = 256ull << 20;

  /// What becomes of a context in which a lease loaded dialects (or registered
  /// operations, types or attributes) that the template does not have.
  enum class Drift {
    Keep,  ///< The context keeps them.
    Retire ///< The context is replaced.
  } drift = Drift::Keep;

  /// Whether a thread of the pool's own clones and destroys contexts. If not,
  /// the threads that acquire and release do.
  bool backgroundRefill = true;

  /// Destroy every context when it is returned, on the returning thread, so
  /// that AddressSanitizer sees uses after return.
  bool destroyOnReturn = false;
};

/// Counts since the pool was created, but for the last three, which are of the
/// moment. `live == idle + leased`,
/// `leases == threadLocalHits + sharedHits + foregroundClones`, and
/// `clones == foregroundClones + backgroundClones`.
struct ContextPoolStats {
  uint64_t leases = 0;          ///< Leases handed out.
  uint64_t threadLocalHits = 0; ///< ... from the thread's own slot.
  uint64_t sharedHits = 0;      ///< ... from another place of the pool.
  uint64_t clones = 0;          ///< Contexts made.
  uint64_t waits = 0;           ///< Calls of acquire that waited at maxLive.
  /// Contexts replaced after `maxLeasesPerContext` ...
  uint64_t retiredByLeases = 0;
  uint64_t retiredByBytes = 0; ///< ... after maxBytesPerContext.
  uint64_t retiredByDrift = 0; ///< ... since a lease changed them for good.
  uint64_t discarded = 0;      ///< ... since a lease called retire().
  uint64_t abandoned = 0;      ///< Contexts given up by abandon().

  uint64_t foregroundClones = 0; ///< Contexts made by `acquire`.
  uint64_t backgroundClones = 0; ///< ... by the refill thread or `prewarm`.
  /// Contexts destroyed by threads that returned them, exited or ran `prewarm`.
  uint64_t foregroundDestroyed = 0;
  uint64_t lockAcquisitions = 0; ///< Times that a lease took the pool's lock.

  size_t live = 0;   ///< Contexts that can be used.
  size_t idle = 0;   ///< ... and wait for a lease.
  size_t leased = 0; ///< ... and are on loan.
};

/// The right to use one context until the lease is destroyed or released.
///
/// A lease is confined to one thread at a time, and may be moved to, and
/// returned on, another. While it is held no other thread uses the context, but
/// those of the template's thread pool on its behalf. All that was made in the
/// context has to be destroyed before the lease is: the next lease finds the
/// context as the template made it, but for uniqued attributes and types.
///
/// Diagnostics that reach no handler of the lease's own are captured: none is
/// printed. A handler that the lease registered and forgot is removed on
/// return.
///
/// Members but for the destructor, `release` and `operator bool` need a lease
/// that holds a context: one that was not moved from or released.
class ContextLease {
public:
  /// A lease that holds no context.
  ContextLease() = default;
  ContextLease(ContextLease &&other) noexcept
      : pooled(std::exchange(other.pooled, nullptr)) {}
  ContextLease &operator=(ContextLease &&other) noexcept {
    if (this != &other) {
      release();
      pooled = std::exchange(other.pooled, nullptr);
    }
    return *this;
  }
  ~ContextLease() { release(); }

  /// Whether the lease holds a context.
  explicit operator bool() const { return pooled != nullptr; }

  mlir::MLIRContext &operator*() const { return *get(); }
  mlir::MLIRContext *operator->() const { return get(); }
  mlir::MLIRContext *get() const;

  /// A pass manager for `pipeline`, a text with its anchor such as
  /// `builtin.module(canonicalize,cse)`. It is built on the context's first use
  /// of that text and reused as long as the context lives: one for each text,
  /// some 80 KiB for a pipeline of fifteen passes. The dialects of operations
  /// that it nests on, such as `func.func`, are loaded with it. A pipeline that is
  /// used once is better parsed by `mlir::parsePassPipeline`.
  ///
  /// Ownership: the context's; valid until the lease ends. Run it, and leave its
  ///            passes and settings as they are: later leases get the same one.
  /// Errors:    InvalidArgument - not a pipeline, or a pass is not registered;
  ///                              the message has the text and MLIR's reason.
  absl::StatusOr<mlir::PassManager *> getPassManager(llvm::StringRef pipeline);

  /// Brings IR into the context, as the functions of ModuleTransfer.h do, and
  /// charges the lease with what stays there when it ends: not with the data of
  /// resource blobs, which is dropped. Which thread may use the source is said
  /// there.
  ///
  /// The charge may be too high where the context knows the IR from earlier
  /// leases: `cloneIn` charges attributes of half a kilobyte and more once in the
  /// life of a context, and smaller ones in each call; `deserialize` charges
  /// the size of the bytes in each.
  absl::StatusOr<mlir::OwningOpRef<mlir::Operation *>>
  cloneIn(mlir::Operation *source);
  absl::StatusOr<mlir::OwningOpRef<mlir::Operation *>>
  cloneIn(mlir::Operation *source, const CloneOptions &options);
  absl::StatusOr<mlir::OwningOpRef<mlir::Operation *>>
  deserialize(const SerializedModule &bytes);
  absl::StatusOr<mlir::OwningOpRef<mlir::Operation *>>
  deserialize(const SerializedModule &bytes, const DeserializeOptions &options);

  /// Parses a module from MLIR's text or bytecode, verifies it unless told not
  /// to, and charges the lease with the size of the text, without that of
  /// resource blobs. `name` is that of locations. What was diagnosed is in the
  /// status, and among `takeDiagnostics`.
  ///
  /// Bytecode is read as by `deserialize`: what is diagnosed is in the status
  /// alone. MLIR's parser is not made for hostile text: some ends the process.
  ///
  /// Errors: InvalidArgument   - not a valid module; the message has MLIR's. Also
  ///                             where the text has a resource of a dialect,
  ///                             used or not, whose alignment is zero: MLIR
  ///                             would end the process for one that is used.
  ///         NotFound          - (parseFile) the file cannot be read.
  ///         ResourceExhausted - no thread with the stack that bytecode needs.
  absl::StatusOr<mlir::OwningOpRef<mlir::ModuleOp>>
  parse(llvm::StringRef text, llvm::StringRef name = "<text>",
        bool verify = true);
  absl::StatusOr<mlir::OwningOpRef<mlir::ModuleOp>>
  parseFile(llvm::StringRef path);

  /// The diagnostics that were captured since the lease began or since the last
  /// call, in the order in which they were emitted.
  std::vector<CapturedDiagnostic> takeDiagnostics();

  /// Tells the pool that the lease brought that many bytes into the context
  /// which stay there, such as constants: MLIR does not tell. See
  /// `ContextPoolOptions::maxBytesPerContext`.
  void charge(uint64_t bytes);

  /// Has the context replaced when the lease ends. For a context that may be
  /// damaged, or that was changed in a way that a reset does not undo.
  void retire();

  /// Ends the lease, and never uses or destroys the context again: for one that
  /// something broke off in the middle of, such as a signal, so that even its
  /// destructor cannot be trusted. Its memory is lost. The pool makes another in
  /// its place, and all that refers to the context has to be leaked as well.
  void abandon();

  /// Ends the lease now. Does nothing where it holds no context.
  void release() {
    if (pooled)
      returnContext(*std::exchange(pooled, nullptr));
  }

private:
  friend class ContextPool;
  explicit ContextLease(detail::PooledContext &pooled) : pooled(&pooled) {}
  static void returnContext(detail::PooledContext &pooled);

  detail::PooledContext *pooled = nullptr;
};

/// Lends contexts that are all clones of one template.
///
/// A context is in one of these states:
///
///   | state     | where                              | next                       |
///   |-----------|------------------------------------|----------------------------|
///   | idle      | a thread's slot or the shared list | leased, destroyed          |
///   | leased    | a lease                            | idle, retired, abandoned   |
///   | retired   | a list of the refill thread        | destroyed                  |
///   | abandoned | nowhere                            | never used nor destroyed   |
///
/// `acquire` looks in the calling thread's own slot, then in the shared list,
/// and clones where both are empty. The first takes no lock and writes to no
/// memory that other threads write to. A returned context goes to the slot of
/// the thread that returns it, or to the shared list where that slot is taken
/// or the thread has never acquired. Contexts of a thread that exits go to the
/// shared list.
///
/// Guarantees:
///   - A returned context is set back to what it was after `onClone`:
///     unregistered dialects, threads, operations and stack traces in
///     diagnostics, diagnostic handlers that the lease registered, action
///     handler, remark engine, resource blobs, the library of the transform
///     dialect. Where that cannot be done (an action handler, remark engine or
///     threads that `onClone` set were removed, blobs or a library that it made
///     were changed or added to), the context is replaced, and counted in
///     `retiredByDrift`.
///   - No lock is held while code of the user's runs.
///   - Waiting threads are served in the order in which they came.
///
/// Not guaranteed: it goes unnoticed that a lease replaces an action handler or
/// erases a diagnostic handler of `onClone`'s, adds to the context's registry
/// (running a pass does, too), attaches interfaces, changes a pooled pass
/// manager, or leaves state in a dialect of the user's. Call `retire`.
///
/// Ownership:     the pool shares its template. A pool may be destroyed while
///                leases are out: they stay valid, and their contexts are
///                destroyed as they come back. A thread pool of the template's
///                must outlive the last lease.
/// Thread safety: every member may be called from several threads at once, but
///                for the destructor, which no other call may overlap.
/// Fork:          a child of `fork` leaks what it inherits: there, destroying the
///                pool or a lease does nothing and never waits, `acquire` and
///                `prewarm` return FailedPrecondition, `trim` does nothing and
///                `getStats` gives zeros. A new pool works, of the same
///                template, too, unless that has a thread pool: its threads are
///                not in the child.
class ContextPool {
public:
  /// Errors: InvalidArgument   - the template is null, or an option is out of
  ///                             its range; the message names the field.
  ///         ResourceExhausted - the refill thread could not be started.
  static absl::StatusOr<std::unique_ptr<ContextPool>>
  create(std::shared_ptr<const ContextTemplate> contextTemplate,
         ContextPoolOptions options = {});

  ~ContextPool();
  ContextPool(const ContextPool &) = delete;
  ContextPool &operator=(const ContextPool &) = delete;

  /// A lease on a context that nobody else uses. Where `maxLive` contexts exist
  /// and none is idle, waits for one, up to `timeout`; a context that is being
  /// made or destroyed counts. The time of a clone is not part of `timeout`.
  ///
  /// Errors: DeadlineExceeded   - no context came free within `timeout`.
  ///         FailedPrecondition - the pool is of a parent process, see above.
  ///         What the template's `onClone` returned, where a clone was needed.
  absl::StatusOr<ContextLease>
  acquire(absl::Duration timeout = absl::InfiniteDuration());

  /// Makes contexts, on the calling thread, until that many are idle. Where
  /// `maxLive` is reached by contexts that other threads are making or
  /// destroying, it waits for these, so `onClone` is not to call it.
  ///
  /// Errors: InvalidArgument   - `contexts` is above `maxIdle`.
  ///         ResourceExhausted - `maxLive` or `maxIdle` is reached, for
  ///                             contexts are on loan.
  ///         FailedPrecondition - the pool is of a parent process, see above.
  ///         What the template's `onClone` returned.
  ///         In each case the contexts made so far stay.
  absl::Status prewarm(size_t contexts);

  /// Destroys idle contexts, on the calling thread, until at most `keepIdle`
  /// are left: the shared ones first, then those of threads' slots. The refill
  /// thread makes new ones after the next lease that does not come from a slot;
  /// one that it is making already it destroys, unless that lease comes first or
  /// fewer than `keepIdle` are left.
  void trim(size_t keepIdle = 0);

  /// The counts, consistent with one another when no thread uses the pool.
  ContextPoolStats getStats() const;

  const ContextTemplate &getTemplate() const;
  const ContextPoolOptions &getOptions() const;

private:
  explicit ContextPool(std::shared_ptr<detail::PoolState> state);

  const std::shared_ptr<detail::PoolState> state;
};

} // namespace ctxpool

#endif // CONTEXT_POOL_CONTEXTPOOL_H

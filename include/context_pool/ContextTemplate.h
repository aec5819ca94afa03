//===- ContextTemplate.h - What a warm MLIRContext is made of ---*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A recipe for contexts: which dialects and extensions are registered, which
/// dialects are loaded beforehand, and how the context is set.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CONTEXTTEMPLATE_H
#define CONTEXT_POOL_CONTEXTTEMPLATE_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/StringRef.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace llvm {
class ThreadPoolInterface;
} // namespace llvm

namespace mlir {
class DialectRegistry;
class MLIRContext;
} // namespace mlir

namespace ctxpool {

namespace detail {
class PoolState;
} // namespace detail

/// What a template is made from. None of its functions may throw.
struct ContextTemplateOptions {
  /// Names the template in messages.
  std::string name = "default";

  /// Registers dialects and extensions. Called once, by `create`, on the
  /// calling thread. Unset: nothing but the builtin dialect is registered.
  std::function<void(mlir::DialectRegistry &)> populate;

  /// The dialects that every clone has loaded, besides those that they depend
  /// on. Unset: every registered dialect. Empty: none.
  std::optional<std::vector<std::string>> preload;

  /// A pass pipeline with its anchor, such as `builtin.module(canonicalize)`.
  /// The dialects that its passes depend on are registered and preloaded as
  /// well, and those that it nests on are preloaded where they are registered.
  /// Empty: none. Its passes have to be registered with MLIR before.
  std::string preloadForPipeline;

  /// As `MLIRContext::allowUnregisteredDialects`.
  bool allowUnregisteredDialects = false;

  /// The threads on which clones verify and run passes. Not owned; must outlive
  /// every clone. Null: a clone uses no thread but its caller's.
  llvm::ThreadPoolInterface *threadPool = nullptr;

  /// Runs on every new clone, after its dialects are loaded, on the thread that
  /// clones and under no lock. An error fails the clone, and its message is
  /// followed by the diagnostics that were emitted; without an error they are
  /// dropped. Has to be callable from several threads at once.
  std::function<absl::Status(mlir::MLIRContext &)> onClone;
};

/// What one dialect costs a context. Times are medians of interleaved
/// repetitions, in microseconds of processor time.
struct DialectCost {
  std::string name;

  /// Time that the dialect itself takes, its extensions included, without those
  /// that it loads.
  double loadMicroseconds = 0;

  /// What the dialect itself registers.
  size_t operations = 0, types = 0, attributes = 0;

  /// Heap that the dialect itself takes, its extensions included. 0 where the
  /// allocator does not tell (glibc's does).
  size_t bytes = 0;

  /// Whether the template loads it only because another dialect depends on it.
  bool viaDependency = false;

  /// Time to load the dialect, with all that it depends on, into an empty
  /// context. 0 for a dialect that is not registered, only depended on.
  double totalMicroseconds = 0;

  /// The part of `loadMicroseconds` that the registry's extensions take,
  /// between 0 and 1.
  double extensionShare = 0;

  /// The other preloaded dialects that load it, directly or not, as they depend
  /// on it or have extensions that do. In load order.
  std::vector<std::string> pulledInBy;
};

/// Makes contexts that are all alike.
///
/// Upstream has no clone of an `MLIRContext`. This one keeps what a context can
/// be rebuilt from, and rebuilds: a clone shares no memory with the template or
/// with another clone.
///
/// Ownership:     shared and immutable; clones belong to the caller and may
///                outlive the template.
/// Thread safety: every member may be called from several threads at once.
/// Costs:         a clone costs what loading its dialects costs: 3 to 8 ms for
///                all of upstream's, below 1 ms for a typical subset.
///
/// \code
///   ContextTemplateOptions options;
///   options.populate = [](mlir::DialectRegistry &registry) {
///     mlir::registerAllDialects(registry);
///     mlir::registerAllExtensions(registry);
///   };
///   auto contextTemplate = ContextTemplate::create(std::move(options));
/// \endcode
class ContextTemplate {
public:
  /// Builds a template, and loads its dialects once to learn their order.
  ///
  /// Errors: InvalidArgument - `preload` names a dialect that is not registered,
  ///                           or `preloadForPipeline` is not a pipeline; the
  ///                           message has MLIR's.
  static absl::StatusOr<std::shared_ptr<const ContextTemplate>>
  create(ContextTemplateOptions options);

  /// Builds a template whose clones are as `source` is now: its registry with
  /// all extensions, its loaded dialects, and its settings (unregistered
  /// dialects, operations and stack traces in diagnostics).
  ///
  /// Not taken over: handlers of diagnostics and actions, the remark engine,
  /// interfaces that were attached to a loaded dialect by hand and not by an
  /// extension, attributes and types that `source` has uniqued, and its
  /// threads, which may die with it: clones use `threadPool`, or none where it
  /// is null.
  ///
  /// Contexts: `source` is read and left as it was; nobody may change it
  ///           meanwhile. The template does not need it afterwards.
  /// Errors:   FailedPrecondition - a loaded dialect is not registered and no
  ///                                registered one depends on it, so that it
  ///                                cannot be made again, or something was
  ///                                added to a dialect by hand; the message
  ///                                names the dialects.
  static absl::StatusOr<std::shared_ptr<const ContextTemplate>>
  capture(mlir::MLIRContext &source, std::string name = "captured",
          llvm::ThreadPoolInterface *threadPool = nullptr);

  ~ContextTemplate();
  ContextTemplate(const ContextTemplate &) = delete;
  ContextTemplate &operator=(const ContextTemplate &) = delete;

  /// A new context with the template's registry, loaded dialects, flags and
  /// registry hash.
  ///
  /// Errors: what `onClone` returned, with its code, after the template's name.
  absl::StatusOr<std::unique_ptr<mlir::MLIRContext>> clone() const;

  llvm::StringRef getName() const;

  /// The dialects that a clone has loaded, in the order in which they were
  /// loaded: a dialect comes after those that it depends on, but before those
  /// that its extensions load. The builtin dialect, which every context has, is
  /// not among them, nor is what `onClone` loads.
  llvm::ArrayRef<std::string> getPreloadedDialects() const;

  /// `MLIRContext::getRegistryHash` of a clone that `onClone` did not change:
  /// equal for clones of one template in one process.
  llvm::hash_code getRegistryHash() const;

  /// Loads the preloaded dialects one by one, a few times over, and tells what
  /// each takes, in load order. Takes some hundred times as long as a clone,
  /// and counts heap bytes wrongly while other threads allocate.
  std::vector<DialectCost> measureDialectCosts() const;

private:
  friend class detail::PoolState;
  struct Impl;
  explicit ContextTemplate(std::unique_ptr<Impl> impl);

  /// Whether clones are as `source` is, which has `loaded` loaded: for
  /// `capture`.
  absl::Status compareWith(mlir::MLIRContext &source,
                           llvm::ArrayRef<std::string> loaded) const;

  /// `clone` with `prepare` called on the new context before anything else is.
  absl::StatusOr<std::unique_ptr<mlir::MLIRContext>>
  clone(const std::function<void(mlir::MLIRContext &)> &prepare) const;

  const std::unique_ptr<Impl> impl;
};

} // namespace ctxpool

#endif // CONTEXT_POOL_CONTEXTTEMPLATE_H

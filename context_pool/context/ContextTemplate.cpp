//===- ContextTemplate.cpp - What a warm MLIRContext is made of -----------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ContextTemplate.h"

#include "context_pool/Diagnostics.h"
#include "context_pool/context/LoadTrace.h"
#include "context_pool/context/TemplateImpl.h"
#include "context_pool/support/Pipeline.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OperationSupport.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <utility>

using namespace ctxpool;

void ContextTemplate::Impl::learnLoadOrder() {
  preloaded.clear();
  auto writeDown = [this](mlir::MLIRContext &, llvm::StringRef dialect,
                          detail::LoadPhase phase) {
    if (phase == detail::LoadPhase::Constructed)
      preloaded.push_back(dialect.str());
  };
  mlir::MLIRContext context(detail::traceLoading(registry, writeDown),
                            mlir::MLIRContext::Threading::DISABLED);
  for (const std::string &dialect : requested)
    context.getOrLoadDialect(dialect);
  registryHash = context.getRegistryHash();
}

ContextTemplate::ContextTemplate(std::unique_ptr<Impl> impl)
    : impl(std::move(impl)) {}
ContextTemplate::~ContextTemplate() = default;

/// `name` is not among `known`.
static absl::Status unknownDialect(llvm::StringRef templateName,
                                   llvm::StringRef name,
                                   const std::vector<llvm::StringRef> &known) {
  std::string message =
      absl::StrCat("context template '", templateName.str(), "': preload: '",
                   name.str(), "' is not a registered dialect");
  // A misspelt name is at most a third off.
  auto distance = [&](llvm::StringRef other) -> size_t {
    return name.edit_distance(other);
  };
  const auto *nearest =
      known.empty() ? nullptr : &*llvm::min_element(known, [&](auto a, auto b) {
        return distance(a) < distance(b);
      });
  if (nearest && distance(*nearest) <= name.size() / 3)
    absl::StrAppend(&message, "; did you mean '", nearest->str(), "'?");
  else
    absl::StrAppend(&message, "; registered are: ",
                    known.empty() ? "none" : llvm::join(known, ", "));
  return absl::InvalidArgumentError(message);
}

absl::StatusOr<std::shared_ptr<const ContextTemplate>>
ContextTemplate::create(ContextTemplateOptions options) {
  auto impl = std::make_unique<Impl>();
  impl->name = std::move(options.name);
  impl->allowsUnregisteredDialects = options.allowUnregisteredDialects;
  impl->threadPool = options.threadPool;
  impl->onClone = std::move(options.onClone);
  if (options.populate)
    options.populate(impl->registry);

  auto registeredRange = impl->registry.getDialectNames();
  std::vector<llvm::StringRef> registered(registeredRange.begin(),
                                          registeredRange.end());
  if (!options.preload) {
    impl->requested.assign(registered.begin(), registered.end());
  } else {
    for (const std::string &dialect : *options.preload) {
      if (dialect != "builtin" && !llvm::is_contained(registered, dialect))
        return unknownDialect(impl->name, dialect, registered);
      impl->requested.push_back(dialect);
    }
  }

  if (!options.preloadForPipeline.empty()) {
    absl::StatusOr<mlir::OpPassManager> pipeline =
        detail::parsePipeline(options.preloadForPipeline);
    if (!pipeline.ok())
      return absl::Status(
          pipeline.status().code(),
          absl::StrCat("context template '", impl->name,
                       "': preloadForPipeline: ", pipeline.status().message()));
    // As `PassManager::run` would: the passes bring their registrations along.
    mlir::DialectRegistry dependent;
    pipeline->getDependentDialects(dependent);
    for (llvm::StringRef dialect : dependent.getDialectNames())
      impl->requested.push_back(dialect.str());
    dependent.appendTo(impl->registry);
    // As a lease's pass manager would, for which loading them is a drift.
    for (std::string &dialect : detail::getAnchorDialects(*pipeline))
      if (impl->registry.getDialectAllocator(dialect))
        impl->requested.push_back(std::move(dialect));
  }

  impl->learnLoadOrder();
  return std::shared_ptr<const ContextTemplate>(
      new ContextTemplate(std::move(impl)));
}

/// The operations that `dialect` has registered. Not by
/// `MLIRContext::getRegisteredOperationsByDialect`, whose search takes a
/// three-way comparison for a less-than, and finds nothing (MLIR 22).
static size_t countOperations(mlir::MLIRContext &context,
                              llvm::StringRef dialect) {
  return llvm::count_if(context.getRegisteredOperations(),
                        [&](mlir::RegisteredOperationName name) {
                          return name.getDialectNamespace() == dialect;
                        });
}

absl::StatusOr<std::shared_ptr<const ContextTemplate>>
ContextTemplate::capture(mlir::MLIRContext &source, std::string name,
                         llvm::ThreadPoolInterface *threadPool) {
  auto impl = std::make_unique<Impl>();
  impl->name = std::move(name);
  impl->threadPool = threadPool;
  impl->allowsUnregisteredDialects = source.allowsUnregisteredDialects();
  impl->printsOpOnDiagnostic = source.shouldPrintOpOnDiagnostic();
  impl->printsStackTraceOnDiagnostic =
      source.shouldPrintStackTraceOnDiagnostic();
  source.getDialectRegistry().appendTo(impl->registry);

  std::vector<std::string> loaded;
  for (mlir::Dialect *dialect : source.getLoadedDialects())
    if (dialect->getNamespace() != "builtin")
      loaded.push_back(dialect->getNamespace().str());
  llvm::sort(loaded);
  for (const std::string &dialect : loaded)
    if (impl->registry.getDialectAllocator(dialect))
      impl->requested.push_back(dialect);

  impl->learnLoadOrder();
  std::shared_ptr<const ContextTemplate> captured(
      new ContextTemplate(std::move(impl)));
  if (absl::Status status = captured->compareWith(source, loaded); !status.ok())
    return status;
  return captured;
}

absl::Status
ContextTemplate::compareWith(mlir::MLIRContext &source,
                             llvm::ArrayRef<std::string> loaded) const {
  auto failure = [&](llvm::StringRef what, llvm::ArrayRef<std::string> names) {
    return absl::FailedPreconditionError(
        absl::StrCat("capturing a context as template '", impl->name,
                     "': ", what.str(), llvm::join(names, ", ")));
  };

  std::vector<std::string> lost;
  llvm::copy_if(loaded, std::back_inserter(lost), [&](const std::string &name) {
    return !llvm::is_contained(impl->preloaded, name);
  });
  if (!lost.empty())
    return failure("these dialects are loaded but not registered, so that a "
                   "clone cannot load them: ",
                   lost);
  if (impl->registryHash == source.getRegistryHash())
    return absl::OkStatus();

  absl::StatusOr<std::unique_ptr<mlir::MLIRContext>> probe = clone();
  if (!probe.ok())
    return probe.status();
  std::vector<std::string> changed;
  llvm::copy_if(impl->preloaded, std::back_inserter(changed),
                [&](const std::string &name) {
                  return !llvm::is_contained(loaded, name) ||
                         countOperations(source, name) !=
                             countOperations(**probe, name);
                });
  // MLIR counts types and attributes, and does not tell whose they are.
  if (changed.empty())
    changed.push_back("types or attributes of unknown dialects");
  return failure("registering its dialects again does not make the same "
                 "operations, types and attributes; these differ: ",
                 changed);
}

absl::StatusOr<std::unique_ptr<mlir::MLIRContext>>
ContextTemplate::clone() const {
  return clone([](mlir::MLIRContext &) {});
}

absl::StatusOr<std::unique_ptr<mlir::MLIRContext>> ContextTemplate::clone(
    const std::function<void(mlir::MLIRContext &)> &prepare) const {
  // With threading disabled a context starts no threads of its own; those of
  // the template are given to it once its dialects are loaded.
  auto context = std::make_unique<mlir::MLIRContext>(
      impl->registry, mlir::MLIRContext::Threading::DISABLED);
  // The constructor's setting alone leaves the uniquers of attributes and types
  // taking locks, for threads that there are none of.
  context->disableMultithreading();
  prepare(*context);
  for (const std::string &dialect : impl->requested)
    context->getOrLoadDialect(dialect);
  context->allowUnregisteredDialects(impl->allowsUnregisteredDialects);
  if (impl->printsOpOnDiagnostic)
    context->printOpOnDiagnostic(*impl->printsOpOnDiagnostic);
  if (impl->printsStackTraceOnDiagnostic)
    context->printStackTraceOnDiagnostic(*impl->printsStackTraceOnDiagnostic);
  if (impl->threadPool)
    context->setThreadPool(*impl->threadPool);
  if (!impl->onClone)
    return context;

  std::vector<CapturedDiagnostic> diagnostics;
  absl::Status status;
  {
    mlir::ScopedDiagnosticHandler capture(
        context.get(), [&](mlir::Diagnostic &diagnostic) {
          diagnostics.push_back(CapturedDiagnostic::capture(diagnostic));
          return mlir::success();
        });
    status = impl->onClone(*context);
  }
  if (status.ok())
    return context;
  std::string message = absl::StrCat("context template '", impl->name,
                                     "': onClone: ", status.message());
  if (!diagnostics.empty())
    absl::StrAppend(&message, "\n", toString(diagnostics));
  return absl::Status(status.code(), message);
}

llvm::StringRef ContextTemplate::getName() const { return impl->name; }

llvm::ArrayRef<std::string> ContextTemplate::getPreloadedDialects() const {
  return impl->preloaded;
}

llvm::hash_code ContextTemplate::getRegistryHash() const {
  return impl->registryHash;
}

//===- ContextReset.cpp - Setting a used context back ---------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/context/ContextReset.h"

#include "mlir/Dialect/Transform/IR/TransformDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/ThreadPool.h"

#include <memory>

using namespace ctxpool::detail;

/// Identifiers of diagnostic handlers increase: the newest one tells which were
/// handed out so far.
static mlir::DiagnosticEngine::HandlerID
newestHandler(mlir::DiagnosticEngine &engine) {
  mlir::DiagnosticEngine::HandlerID probe = engine.registerHandler(
      [](mlir::Diagnostic &) { return mlir::failure(); });
  engine.eraseHandler(probe);
  return probe;
}

/// The operations in the library module of the transform dialect, which lives
/// as long as the context and is usually empty.
static size_t
countTransformLibrary(mlir::transform::TransformDialect *transformDialect) {
  mlir::ModuleOp library =
      transformDialect ? transformDialect->getLibraryModule() : nullptr;
  return library ? llvm::range_size(*library.getBody()) : 0;
}

ContextBaseline::ContextBaseline(mlir::MLIRContext &context,
                                 llvm::ThreadPoolInterface *threadPool)
    : allowsUnregisteredDialects(context.allowsUnregisteredDialects()),
      printsOpOnDiagnostic(context.shouldPrintOpOnDiagnostic()),
      printsStackTraceOnDiagnostic(context.shouldPrintStackTraceOnDiagnostic()),
      hasActionHandler(context.hasActionHandler()),
      remarkEngine(context.getRemarkEngine()),
      threads(context.isMultithreadingEnabled() ? &context.getThreadPool()
                                                : nullptr),
      lastingThreads(threadPool),
      lastHandler(newestHandler(context.getDiagEngine())),
      registryHash(context.getRegistryHash()) {
  findDialectState(context);
  transformLibrarySize = countTransformLibrary(transformDialect);
  for (BlobManager &manager : blobManagers)
    manager.interface->getBlobManager().getBlobMap([&](const auto &blobs) {
      for (const auto &entry : blobs) {
        const mlir::AsmResourceBlob *blob = entry.second.getBlob();
        manager.blobs.push_back({entry.getKey().str(),
                                 blob ? blob->getData().data() : nullptr,
                                 blob ? blob->getData().size() : 0});
      }
    });
}

/// Calls `visit` with what holds the resource blobs of each loaded dialect.
static void forEachBlobManager(
    mlir::MLIRContext &context,
    llvm::function_ref<void(mlir::ResourceBlobManagerDialectInterface &)>
        visit) {
  for (mlir::Dialect *dialect : context.getLoadedDialects())
    if (auto *interface = dialect->getRegisteredInterface<
                          mlir::ResourceBlobManagerDialectInterface>())
      visit(*interface);
}

/// Adds what dialects that were loaded since the last call hold.
void ContextBaseline::findDialectState(mlir::MLIRContext &context) {
  transformDialect =
      context.getLoadedDialect<mlir::transform::TransformDialect>();
  forEachBlobManager(
      context, [&](mlir::ResourceBlobManagerDialectInterface &interface) {
        if (llvm::none_of(blobManagers, [&](const BlobManager &manager) {
              return manager.interface == &interface;
            }))
          blobManagers.push_back({&interface, {}});
      });
}

uint64_t ContextBaseline::countBlobBytes(mlir::MLIRContext &context) {
  uint64_t bytes = 0;
  forEachBlobManager(
      context, [&](mlir::ResourceBlobManagerDialectInterface &interface) {
        interface.getBlobManager().getBlobMap([&](const auto &blobs) {
          for (const auto &entry : blobs)
            if (const mlir::AsmResourceBlob *blob = entry.second.getBlob())
              bytes += blob->getData().size();
        });
      });
  return bytes;
}

bool ContextBaseline::resetThreads(mlir::MLIRContext &context) const {
  llvm::ThreadPoolInterface *now =
      context.isMultithreadingEnabled() ? &context.getThreadPool() : nullptr;
  if (now == threads)
    return true;
  // Threads that the context owned are gone by now.
  if (threads && threads != lastingThreads)
    return false;
  context.disableMultithreading();
  if (threads)
    context.setThreadPool(*threads);
  return true;
}

void ContextBaseline::eraseDiagnosticHandlers(mlir::MLIRContext &context) {
  mlir::DiagnosticEngine &engine = context.getDiagEngine();
  mlir::DiagnosticEngine::HandlerID newest = newestHandler(engine);
  // Most were erased by whoever registered them; erasing again does nothing.
  for (auto handler = lastHandler + 1; handler < newest; ++handler)
    engine.eraseHandler(handler);
  lastHandler = newest;
}

bool ContextBaseline::resetTransformLibrary() {
  if (countTransformLibrary(transformDialect) == transformLibrarySize)
    return true;
  // What a lease added to a library of the template's cannot be told from it.
  if (transformLibrarySize != 0)
    return false;
  transformDialect->getLibraryModule().getBody()->clear();
  return true;
}

/// Drops the blobs that came since. MLIR keeps a blob until its context dies,
/// and has no way to erase one, so the manager is replaced as a whole.
/// Attributes that refer to the dropped blobs stay uniqued, and are never
/// looked at again: a new blob whose entry has the address of an old one finds
/// an attribute that says just that.
bool ContextBaseline::resetBlobs() {
  for (const BlobManager &manager : blobManagers) {
    size_t count = 0;
    bool same = true;
    manager.interface->getBlobManager().getBlobMap([&](const auto &blobs) {
      count = blobs.size();
      for (const Blob &blob : manager.blobs) {
        auto entry = blobs.find(blob.key);
        const mlir::AsmResourceBlob *now =
            entry == blobs.end() ? nullptr : entry->second.getBlob();
        same &= now ? now->getData().data() == blob.data &&
                          now->getData().size() == blob.bytes
                    : entry != blobs.end() && !blob.data;
      }
    });
    if (!same)
      return false;
    if (count == manager.blobs.size())
      continue;
    // A manager cannot be replaced while attributes that are in use refer to
    // it.
    if (!manager.blobs.empty())
      return false;
    manager.interface->setBlobManager(
        std::make_shared<mlir::DialectResourceBlobManager>());
  }
  return true;
}

ContextBaseline::Outcome ContextBaseline::reset(mlir::MLIRContext &context) {
  if (!resetThreads(context))
    return Outcome::Damaged;

  if (context.allowsUnregisteredDialects() != allowsUnregisteredDialects)
    context.allowUnregisteredDialects(allowsUnregisteredDialects);
  if (context.shouldPrintOpOnDiagnostic() != printsOpOnDiagnostic)
    context.printOpOnDiagnostic(printsOpOnDiagnostic);
  if (context.shouldPrintStackTraceOnDiagnostic() !=
      printsStackTraceOnDiagnostic)
    context.printStackTraceOnDiagnostic(printsStackTraceOnDiagnostic);

  eraseDiagnosticHandlers(context);

  if (context.hasActionHandler() != hasActionHandler) {
    if (hasActionHandler)
      return Outcome::Damaged;
    context.registerActionHandler(nullptr);
  }
  if (context.getRemarkEngine() != remarkEngine) {
    if (remarkEngine)
      return Outcome::Damaged;
    context.setRemarkEngine(nullptr);
  }

  llvm::hash_code hashNow = context.getRegistryHash();
  bool drifted = hashNow != registryHash;
  if (drifted) {
    registryHash = hashNow;
    findDialectState(context);
  }
  // The library goes first: it may refer to blobs.
  if (!resetTransformLibrary() || !resetBlobs())
    return Outcome::Damaged;
  return drifted ? Outcome::Drifted : Outcome::Restored;
}

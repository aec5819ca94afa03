//===- DialectCosts.cpp - What each dialect of a template takes -----------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/context/TemplateImpl.h"

#include "mlir/IR/Dialect.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OperationSupport.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringSet.h"

#include <chrono>

#ifdef __GLIBC__
#include <malloc.h>
#endif

using namespace ctxpool;

static constexpr size_t repetitions = 5;

/// Bytes that are allocated from the heap; 0 where the allocator does not tell.
static size_t heapBytes() {
#ifdef __GLIBC__
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
#else
  return 0;
#endif
}

namespace {

/// What a context has registered.
///
/// MLIR enumerates dialects and operations. Of types and attributes it only
/// mixes their numbers into `MLIRContext::getRegistryHash`, from which they are
/// found again: the hash is of four small numbers, two of which are known.
struct RegistryCounts {
  size_t dialects = 0, operations = 0, types = 0, attributes = 0;

  /// As `MLIRContext::getRegistryHash` mixes them.
  llvm::hash_code hash() const {
    llvm::hash_code hash(0);
    for (size_t count : {dialects, attributes, operations, types})
      hash = llvm::hash_combine(hash, count);
    return hash;
  }

  /// The counts of `context`, which was `*this` before a dialect was loaded.
  /// Types and attributes stay as they were where the search finds none that
  /// make the hash, which an MLIR that mixes otherwise would lead to.
  RegistryCounts after(mlir::MLIRContext &context) const {
    RegistryCounts now = *this;
    now.dialects = context.getLoadedDialects().size();
    now.operations = context.getRegisteredOperations().size();
    llvm::hash_code wanted = context.getRegistryHash();
    constexpr size_t mostOfOneDialect = 512;
    for (size_t added = 0; added <= mostOfOneDialect; ++added)
      for (size_t addedTypes = 0; addedTypes <= added; ++addedTypes) {
        RegistryCounts guess = now;
        guess.types += addedTypes;
        guess.attributes += added - addedTypes;
        if (guess.hash() == wanted)
          return guess;
      }
    return now;
  }
};

/// The measurements of one dialect.
struct Samples {
  llvm::SmallVector<double, repetitions> own, bare, total;
  llvm::SmallVector<size_t, repetitions> bytes;
};

} // namespace

template <typename T, unsigned N>
static T median(llvm::SmallVector<T, N> &values) {
  llvm::sort(values);
  return values[values.size() / 2];
}

static double microsecondsToLoad(mlir::MLIRContext &context,
                                 llvm::StringRef dialect) {
  auto begin = std::chrono::steady_clock::now();
  context.getOrLoadDialect(dialect);
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now() - begin)
      .count();
}

std::vector<DialectCost> ContextTemplate::measureDialectCosts() const {
  const std::vector<std::string> &dialects = impl->preloaded;
  std::vector<DialectCost> costs(dialects.size());
  std::vector<Samples> samples(dialects.size());
  constexpr auto singleThreaded = mlir::MLIRContext::Threading::DISABLED;

  // The same dialects without the extensions, to tell these apart.
  mlir::DialectRegistry bare;
  // What each dialect loads.
  std::vector<llvm::StringSet<>> closures(dialects.size());
  {
    mlir::MLIRContext context(impl->registry, singleThreaded);
    RegistryCounts counts = RegistryCounts().after(context);
    for (auto [index, name] : llvm::enumerate(dialects)) {
      DialectCost &cost = costs[index];
      cost.name = name;
      cost.viaDependency = !llvm::is_contained(impl->requested, name);
      mlir::Dialect *dialect = context.getOrLoadDialect(name);
      if (!dialect)
        continue; // Not registered: loaded by a later one that depends on it.
      bare.insert(dialect->getTypeID(), name,
                  impl->registry.getDialectAllocator(name));
      RegistryCounts now = counts.after(context);
      cost.operations = now.operations - counts.operations;
      cost.types = now.types - counts.types;
      cost.attributes = now.attributes - counts.attributes;
      counts = now;

      mlir::MLIRContext alone(impl->registry, singleThreaded);
      alone.getOrLoadDialect(name);
      for (mlir::Dialect *loaded : alone.getLoadedDialects())
        closures[index].insert(loaded->getNamespace());
    }
  }

  // Interleaved, so that a slow moment of the machine hits all of them.
  for (size_t repetition = 0; repetition < repetitions; ++repetition) {
    mlir::MLIRContext full(impl->registry, singleThreaded);
    mlir::MLIRContext withoutExtensions(bare, singleThreaded);
    for (auto [index, name] : llvm::enumerate(dialects)) {
      size_t before = heapBytes();
      samples[index].own.push_back(microsecondsToLoad(full, name));
      size_t after = heapBytes();
      samples[index].bytes.push_back(after > before ? after - before : 0);
      samples[index].bare.push_back(
          microsecondsToLoad(withoutExtensions, name));
      mlir::MLIRContext alone(impl->registry, singleThreaded);
      samples[index].total.push_back(microsecondsToLoad(alone, name));
    }
  }

  for (auto [index, cost] : llvm::enumerate(costs)) {
    Samples &sample = samples[index];
    cost.loadMicroseconds = median(sample.own);
    cost.totalMicroseconds = median(sample.total);
    cost.bytes = median(sample.bytes);
    double bareMicroseconds = median(sample.bare);
    if (bareMicroseconds < cost.loadMicroseconds)
      cost.extensionShare = 1 - bareMicroseconds / cost.loadMicroseconds;
    for (auto [other, closure] : llvm::enumerate(closures))
      if (other != index && closure.contains(cost.name))
        cost.pulledInBy.push_back(dialects[other]);
  }
  return costs;
}

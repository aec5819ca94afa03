//===- DialectCosts.cpp - What each dialect of a template takes -----------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/context/LoadTrace.h"
#include "context_pool/context/TemplateImpl.h"

#include "mlir/IR/Dialect.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OperationSupport.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

#include <algorithm>
#include <ctime>

#ifdef __GLIBC__
#include <malloc.h>
#endif

using namespace ctxpool;
using namespace ctxpool::detail;

static constexpr size_t repetitions = 9;
static constexpr auto singleThreaded = mlir::MLIRContext::Threading::DISABLED;

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
/// MLIR enumerates operations. Dialects (while one is being loaded), types and
/// attributes it only mixes, as numbers, into `MLIRContext::getRegistryHash`.
/// They are found again by trying: loading a dialect adds few.
struct RegistryCounts {
  // Of the type that `DenseMap::size` has: a hash is of bytes.
  unsigned dialects = 0, operations = 0, types = 0, attributes = 0;

  /// As `MLIRContext::getRegistryHash` mixes them.
  llvm::hash_code hash() const {
    llvm::hash_code hash(0);
    for (unsigned count : {dialects, attributes, operations, types})
      hash = llvm::hash_combine(hash, count);
    return hash;
  }

  /// The counts of `context`, which was `*this` before. Types and attributes
  /// stay as they were where no numbers are found that make the hash, which an
  /// MLIR that mixes otherwise would lead to.
  RegistryCounts after(mlir::MLIRContext &context) const {
    constexpr unsigned mostEntities = 512, mostDialects = 16;
    RegistryCounts now = *this;
    now.operations = context.getRegisteredOperations().size();
    llvm::hash_code wanted = context.getRegistryHash();
    for (unsigned added = 0; added <= mostEntities; ++added)
      for (unsigned addedTypes = 0; addedTypes <= added; ++addedTypes)
        for (unsigned loading = 0; loading <= mostDialects; ++loading) {
          RegistryCounts guess = now;
          guess.dialects += loading;
          guess.types += addedTypes;
          guess.attributes += added - addedTypes;
          if (guess.hash() == wanted)
            return guess;
        }
    return now;
  }
};

/// What happened to one dialect while its phases lasted, repetition by
/// repetition. In microseconds and bytes.
struct Samples {
  llvm::SmallVector<double, repetitions> constructed, extended, total;
  llvm::SmallVector<size_t, repetitions> bytes;
};

/// Listens to a context that loads its dialects. What passes until a phase of a
/// dialect is over, and since the one before it was, is that dialect's.
class CostMeter {
public:
  CostMeter(llvm::StringMap<Samples> &samples) : samples(samples) { resume(); }

  void operator()(mlir::MLIRContext &, llvm::StringRef dialect,
                  LoadPhase phase) {
    double microseconds = getMicroseconds() - begin;
    size_t bytes = heapBytes();
    bytes -= std::min(bytes, heapAtBegin);
    Samples &ofDialect = samples[dialect];
    if (phase == LoadPhase::Constructed) {
      ofDialect.constructed.push_back(microseconds);
      ofDialect.bytes.push_back(bytes);
    } else {
      ofDialect.extended.push_back(microseconds);
      ofDialect.bytes.back() += bytes;
    }
    resume();
  }

  /// What passed since the last call is nobody's.
  void resume() {
    heapAtBegin = heapBytes();
    begin = getMicroseconds();
  }

  /// Processor time of this thread: others may keep it waiting.
  static double getMicroseconds() {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) * 1e6 + double(time.tv_nsec) * 1e-3;
  }

private:
  llvm::StringMap<Samples> &samples;
  size_t heapAtBegin;
  double begin;
};

} // namespace

template <typename T, unsigned N>
static T median(llvm::SmallVector<T, N> values) {
  if (values.empty())
    return 0;
  llvm::sort(values);
  return values[values.size() / 2];
}

/// The dialects of a template in an order in which, loaded one by one, each
/// finds what it loads itself already there. Unlike load order, this takes what
/// extensions load into account. Two dialects that load each other are the
/// exception: one comes with the other.
static std::vector<std::string>
orderByNeed(const mlir::DialectRegistry &registry,
            llvm::ArrayRef<std::string> requested) {
  std::vector<std::string> order;
  auto append = [&](mlir::MLIRContext &, llvm::StringRef dialect,
                    LoadPhase phase) {
    if (phase == LoadPhase::Extended)
      order.push_back(dialect.str());
  };
  mlir::MLIRContext context(traceLoading(registry, append), singleThreaded);
  for (const std::string &dialect : requested)
    context.getOrLoadDialect(dialect);
  return order;
}

/// Fills in what dialects register, which is the same every time.
static void countEntities(const mlir::DialectRegistry &registry,
                          llvm::ArrayRef<std::string> order,
                          llvm::ArrayRef<std::string> requested,
                          const llvm::StringMap<DialectCost *> &costs) {
  RegistryCounts counts;
  auto count = [&](mlir::MLIRContext &context, llvm::StringRef dialect,
                   LoadPhase) {
    RegistryCounts now = counts.after(context);
    DialectCost &cost = *costs.lookup(dialect);
    cost.types += now.types - counts.types;
    cost.attributes += now.attributes - counts.attributes;
    counts = now;
  };
  mlir::MLIRContext context(traceLoading(registry, count), singleThreaded);
  counts = counts.after(context);
  for (const auto &names : {order, requested})
    for (const std::string &dialect : names)
      context.getOrLoadDialect(dialect);
  for (mlir::RegisteredOperationName operation :
       context.getRegisteredOperations())
    if (DialectCost *cost = costs.lookup(operation.getDialectNamespace()))
      ++cost->operations;
}

std::vector<DialectCost> ContextTemplate::measureDialectCosts() const {
  std::vector<DialectCost> costs(impl->preloaded.size());
  llvm::StringMap<DialectCost *> costOf;
  for (auto [cost, name] : llvm::zip_equal(costs, impl->preloaded)) {
    cost.name = name;
    cost.viaDependency = !llvm::is_contained(impl->requested, name);
    costOf[name] = &cost;
  }
  std::vector<std::string> order = orderByNeed(impl->registry, impl->requested);
  countEntities(impl->registry, order, impl->requested, costOf);

  // Interleaved, so that a slow moment of the machine hits all of them.
  llvm::StringMap<Samples> samples;
  for (size_t repetition = 0; repetition < repetitions; ++repetition) {
    CostMeter meter(samples);
    mlir::MLIRContext context(traceLoading(impl->registry, meter),
                              singleThreaded);
    // A dialect that is not registered comes with one that depends on it.
    for (const auto &names : {order, impl->requested})
      for (const std::string &name : names) {
        meter.resume();
        context.getOrLoadDialect(name);
      }
    for (const std::string &name : impl->preloaded) {
      mlir::MLIRContext alone(impl->registry, singleThreaded);
      double begin = CostMeter::getMicroseconds();
      bool isRegistered = alone.getOrLoadDialect(name);
      if (isRegistered)
        samples[name].total.push_back(CostMeter::getMicroseconds() - begin);
      if (repetition != 0)
        continue;
      for (mlir::Dialect *loaded : alone.getLoadedDialects())
        if (DialectCost *cost = costOf.lookup(loaded->getNamespace());
            cost && cost->name != name)
          cost->pulledInBy.push_back(name);
    }
  }

  for (DialectCost &cost : costs) {
    const Samples &sample = samples[cost.name];
    double extended = median(sample.extended);
    cost.loadMicroseconds = median(sample.constructed) + extended;
    cost.bytes = median(sample.bytes);
    cost.totalMicroseconds = median(sample.total);
    if (cost.loadMicroseconds > 0)
      cost.extensionShare = extended / cost.loadMicroseconds;
  }
  return costs;
}

//===- TransferFigures.cpp - Figures of modules that move -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/ProcessInfo.h"
#include "bench/Statistics.h"
#include "bench/micro/Figure.h"
#include "bench/micro/Subject.h"
#include "context_pool/ModuleTransfer.h"

#include "absl/status/status.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;

using Samples = absl::StatusOr<std::vector<double>>;
using Copy = absl::StatusOr<mlir::OwningOpRef<mlir::Operation *>>;

//===----------------------------------------------------------------------===//
// R10 to R12: time
//===----------------------------------------------------------------------===//

/// Writes bytecode and reads it with verification: what there is without the
/// library.
static Copy copyAsBytecode(mlir::Operation *source,
                           mlir::MLIRContext &destination) {
  std::string bytes;
  llvm::raw_string_ostream stream(bytes);
  if (failed(mlir::writeBytecodeToFile(source, stream)))
    return absl::InternalError("writing bytecode failed");
  mlir::Block block;
  if (failed(mlir::readBytecodeFile(llvm::MemoryBufferRef(bytes, "module"),
                                    &block, mlir::ParserConfig(&destination))))
    return absl::InternalError("reading bytecode failed");
  mlir::Operation *module = &block.front();
  module->remove();
  return mlir::OwningOpRef<mlir::Operation *>(module);
}

namespace {

/// Times what brings a subject into another context and must not fail.
class TransferTimer {
public:
  explicit TransferTimer(int operations)
      : calls(std::clamp(20000 / operations, 1, 100)),
        subject(makeSubject(operations)), clones(makeSubjectContext()),
        reads(makeSubjectContext()), cloner(*subject.context, *clones) {
    if (absl::StatusOr<SerializedModule> written = serialize(subject.get());
        written.ok())
      bytes.emplace(*std::move(written));
    else
      failure = written.status();
  }

  // Into a context that has seen none of the attributes.
  double cloneCold() {
    return timeInFresh([&](mlir::MLIRContext &destination) {
      return cloneInto(subject.get(), destination);
    });
  }
  double bytecodeCold() {
    return timeInFresh([&](mlir::MLIRContext &destination) {
      return copyAsBytecode(subject.get(), destination);
    });
  }
  double readVerified() { return read(/*verify=*/true); }
  double readTrusted() { return read(/*verify=*/false); }

  // Into one that has seen all of them.
  double cloneKnown() {
    return time([&] { return cloner.clone(subject.get()); });
  }
  double bytecodeKnown() {
    return time([&] { return copyAsBytecode(subject.get(), *reads); });
  }
  double inContext() {
    return time([&]() -> Copy {
      return mlir::OwningOpRef<mlir::Operation *>(subject.get()->clone());
    });
  }

  /// Into a fresh context; the destruction of the module is not timed.
  double readOneFunction(llvm::StringRef name) {
    return timeEach([&](mlir::MLIRContext &destination) {
      std::unique_ptr<LazyModule> module;
      return nanosecondsOf([&] {
        if (!bytes)
          return;
        absl::StatusOr<std::unique_ptr<LazyModule>> opened =
            LazyModule::open(*bytes, destination);
        if (!opened.ok()) {
          failure = opened.status();
          return;
        }
        module = *std::move(opened);
        if (auto symbol = module->materialize(name); !symbol.ok())
          failure = symbol.status();
      });
    });
  }

  /// The samples, unless a copy failed.
  Samples finish(std::vector<double> samples) const {
    if (!failure.ok())
      return failure;
    return samples;
  }

private:
  double read(bool verify) {
    return timeInFresh([&](mlir::MLIRContext &destination) -> Copy {
      if (!bytes)
        return failure;
      DeserializeOptions options;
      options.verify = verify;
      return deserialize(*bytes, destination, options);
    });
  }

  /// The copy's destruction is not timed.
  double timeOne(llvm::function_ref<Copy()> make) {
    mlir::OwningOpRef<mlir::Operation *> copy;
    return nanosecondsOf([&] {
      Copy made = make();
      if (made.ok())
        copy = *std::move(made);
      else
        failure = made.status();
    });
  }

  /// The median of `measure`, which is given a context of its own.
  double timeEach(llvm::function_ref<double(mlir::MLIRContext &)> measure) {
    std::vector<double> times;
    for (int call = 0; call < calls; ++call) {
      std::unique_ptr<mlir::MLIRContext> destination = makeSubjectContext();
      times.push_back(measure(*destination));
    }
    return median(std::move(times));
  }

  double timeInFresh(llvm::function_ref<Copy(mlir::MLIRContext &)> make) {
    return timeEach([&](mlir::MLIRContext &destination) {
      return timeOne([&] { return make(destination); });
    });
  }

  double time(llvm::function_ref<Copy()> make) {
    std::vector<double> times;
    for (int call = 0; call < calls; ++call)
      times.push_back(timeOne(make));
    return median(std::move(times));
  }

  const int calls;
  Subject subject;
  std::unique_ptr<mlir::MLIRContext> clones, reads;
  CrossContextCloner cloner;
  std::optional<SerializedModule> bytes;
  absl::Status failure;
};

} // namespace

//===----------------------------------------------------------------------===//
// R13: memory
//===----------------------------------------------------------------------===//

/// The resident memory, in bytes, that `body` takes at its peak, in a process of
/// its own.
static absl::StatusOr<double> measureGrowth(const std::function<bool()> &body) {
  // What earlier figures freed would hide what the body takes.
  releaseFreeMemory();
  absl::StatusOr<uint64_t> with = measurePeakResident(body);
  if (!with.ok())
    return with.status();
  absl::StatusOr<uint64_t> without = measurePeakResident([] { return true; });
  if (!without.ok())
    return without.status();
  return double(*with) - double(*without);
}

/// What a clone takes at its peak beyond what stays, over the heap that the
/// module's operations take.
static Samples compareTransientMemory() {
  Subject subject = makeSubject(100000);
  std::vector<double> samples;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    std::unique_ptr<mlir::MLIRContext> destination = makeSubjectContext();
    absl::StatusOr<double> peak = measureGrowth(
        [&] { return cloneInto(subject.get(), *destination).ok(); });
    if (!peak.ok())
      return peak.status();

    size_t before = getHeapBytes();
    Copy copy = cloneInto(subject.get(), *destination);
    if (!copy.ok())
      return copy.status();
    size_t after = getHeapBytes();
    mlir::OwningOpRef<mlir::Operation *> limit(subject.get()->clone());
    double own = double(getHeapBytes() - after);
    if (own <= 0)
      return absl::UnavailableError("the allocator does not tell what it has");
    samples.push_back((*peak - double(after - before)) / own);
  }
  return samples;
}

constexpr size_t blobBytes = size_t(256) << 20;

/// A module that refers to one resource of that many bytes.
static Subject makeBlob() {
  Subject subject;
  subject.context = makeSubjectContext();
  mlir::Builder builder(subject.context.get());
  subject.module = mlir::ModuleOp::create(builder.getUnknownLoc());
  mlir::AsmResourceBlob blob = mlir::HeapAsmResourceBlob::allocate(
      blobBytes, /*align=*/64, /*dataIsMutable=*/true);
  // Resident from the beginning.
  std::memset(blob.getMutableData().data(), 1, blobBytes);
  auto type =
      mlir::RankedTensorType::get({blobBytes}, builder.getIntegerType(8));
  subject.get()->setAttr("t.blob", mlir::DenseResourceElementsAttr::get(
                                       type, "blob", std::move(blob)));
  return subject;
}

/// Milliseconds of a clone that shares a large blob.
static Samples measureSharedBlob() {
  Subject subject = makeBlob();
  std::vector<double> samples;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    std::unique_ptr<mlir::MLIRContext> destination = makeSubjectContext();
    absl::Status failure;
    samples.push_back(nanosecondsOf([&] {
                        failure =
                            cloneInto(subject.get(), *destination).status();
                      }) /
                      1e6);
    if (!failure.ok())
      return failure;
  }
  return samples;
}

/// The memory, in MiB, that it takes at its peak.
static Samples measureSharedBlobMemory() {
  Subject subject = makeBlob();
  std::vector<double> samples;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    std::unique_ptr<mlir::MLIRContext> destination = makeSubjectContext();
    absl::StatusOr<double> peak = measureGrowth(
        [&] { return cloneInto(subject.get(), *destination).ok(); });
    if (!peak.ok())
      return peak.status();
    samples.push_back(*peak / (1 << 20));
  }
  return samples;
}

std::vector<Figure> bench::makeTransferFigures() {
  using Timed = double (TransferTimer::*)();
  std::vector<Figure> figures;
  auto add = [&](std::string id, std::string what, double asked, int operations,
                 Timed timed, Timed other) {
    figures.push_back({std::move(id), std::move(what), Figure::Bound::AtMost,
                       asked, "x", [=] {
                         TransferTimer timer(operations);
                         return timer.finish(
                             ratios([&] { return (timer.*timed)(); },
                                    [&] { return (timer.*other)(); }));
                       }});
  };
  for (auto [operations, size] :
       {std::pair(100, "/100"), std::pair(1000, "/1k"),
        std::pair(100000, "/100k")}) {
    add(std::string("R10") + size,
        "clone, attributes new, over writing and reading bytecode, verified",
        0.4, operations, &TransferTimer::cloneCold,
        &TransferTimer::bytecodeCold);
    add(std::string("R10b") + size, "the same, attributes known to both", 0.25,
        operations, &TransferTimer::cloneKnown, &TransferTimer::bytecodeKnown);
    add(std::string("R10c") + size,
        "clone, attributes known, over clone() in the context", 1.2, operations,
        &TransferTimer::cloneKnown, &TransferTimer::inContext);
    add(std::string("R12") + size, "deserialize, trusted over verified", 0.7,
        operations, &TransferTimer::readTrusted, &TransferTimer::readVerified);
  }
  // As many as two groups of `makeSubject` are.
  constexpr int few = 18;
  add("R11", "as R10, a module of twenty operations", 0.5, few,
      &TransferTimer::cloneCold, &TransferTimer::bytecodeCold);
  add("R11-known", "as R10b, a module of twenty operations", 0.12, few,
      &TransferTimer::cloneKnown, &TransferTimer::bytecodeKnown);
  figures.push_back({"R12b",
                     "LazyModule, one of 1,000 functions, over reading all",
                     Figure::Bound::AtMost, 0.05, "x", [] {
                       TransferTimer timer(98 * 1000);
                       return timer.finish(
                           ratios([&] { return timer.readOneFunction("f500"); },
                                  [&] { return timer.readVerified(); }));
                     }});
  figures.push_back(
      {"R13",
       "transient memory of a clone over the module's, 100,000 operations",
       Figure::Bound::AtMost, 2, "x", compareTransientMemory});
  figures.push_back({"R13b", "clone that shares a blob of 256 MiB",
                     Figure::Bound::AtMost, 5, "ms", measureSharedBlob});
  figures.push_back({"R13b-memory", "the same, memory at its peak",
                     Figure::Bound::AtMost, 10, "MiB",
                     measureSharedBlobMemory});
  return figures;
}

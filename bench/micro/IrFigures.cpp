//===- IrFigures.cpp - Figures of digests and comparisons -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/micro/Figure.h"
#include "bench/micro/Subject.h"
#include "context_pool/Equivalence.h"
#include "context_pool/Fingerprint.h"

#include "absl/status/status.h"
#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OperationSupport.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;

using Samples = absl::StatusOr<std::vector<double>>;

/// Keeps the compiler from dropping what computes `value`.
template <typename T>
static void keep(const T &value) {
  asm volatile("" : : "r"(&value) : "memory");
}

namespace {

/// What computes a digest of a subject and must not fail.
class DigestTimer {
public:
  explicit DigestTimer(int operations)
      : operations(operations), subject(makeSubject(operations)),
        fingerprinter(*subject.context) {
    known();
  }

  double known() {
    return timeEach(operations,
                    [&] { check(fingerprinter.compute(subject.get())); });
  }
  double unknown() {
    return timeEach(operations, [&] { check(fingerprint(subject.get())); });
  }
  double computeHash() {
    using mlir::OperationEquivalence;
    return timeEach(operations, [&] {
      llvm::hash_code hash = 0;
      subject.get()->walk([&](mlir::Operation *op) {
        hash = llvm::hash_combine(hash,
                                  OperationEquivalence::computeHash(
                                      op, OperationEquivalence::ignoreHashValue,
                                      OperationEquivalence::ignoreHashValue,
                                      OperationEquivalence::IgnoreLocations));
      });
      keep(hash);
    });
  }
  double bytecodeAndBlake3() {
    return timeEach(operations, [&] {
      std::string bytes;
      llvm::raw_string_ostream stream(bytes);
      if (failed(mlir::writeBytecodeToFile(subject.get(), stream)))
        failure = absl::InternalError("writing bytecode failed");
      keep(llvm::BLAKE3::hash(llvm::ArrayRef<uint8_t>(
          reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size())));
    });
  }
  double genericTextAndSha256() {
    return timeEach(operations, [&] {
      std::string text;
      llvm::raw_string_ostream stream(text);
      subject.get()->print(stream,
                           mlir::OpPrintingFlags().printGenericOpForm());
      keep(llvm::SHA256::hash(llvm::ArrayRef<uint8_t>(
          reinterpret_cast<const uint8_t *>(text.data()), text.size())));
    });
  }

  /// The samples, unless a digest failed.
  Samples finish(std::vector<double> samples) const {
    if (!failure.ok())
      return failure;
    return samples;
  }

private:
  void check(const absl::StatusOr<Fingerprint> &digest) {
    if (!digest.ok())
      failure = digest.status();
  }

  const int operations;
  Subject subject;
  Fingerprinter fingerprinter;
  absl::Status failure;
};

} // namespace

/// Equivalence of equal modules in two contexts over two digests of known
/// attributes.
static Samples compareEquivalence(int operations) {
  Subject lhs = makeSubject(operations), rhs = makeSubject(operations);
  Fingerprinter ofLhs(*lhs.context), ofRhs(*rhs.context);
  bool right = true;
  auto digests = [&] {
    absl::StatusOr<Fingerprint> a = ofLhs.compute(lhs.get());
    absl::StatusOr<Fingerprint> b = ofRhs.compute(rhs.get());
    right &= a.ok() && b.ok() && *a == *b;
  };
  digests();
  std::vector<double> samples = ratios(
      [&] {
        return timeEach(operations,
                        [&] { right &= isEquivalent(lhs.get(), rhs.get()); });
      },
      [&] { return timeEach(operations, digests); });
  if (!right)
    return absl::InternalError("equal modules were told apart");
  return samples;
}

/// Finding a difference in the first operation, in a large module over a small
/// one.
static Samples compareFirstDifference() {
  constexpr int small = 1000, large = 100000, calls = 200;
  Subject smallLhs = makeSubject(small), smallRhs = makeSubject(small, 1),
          largeLhs = makeSubject(large), largeRhs = makeSubject(large, 1);
  bool wrong = false;
  auto time = [&](Subject &lhs, Subject &rhs) {
    return nanosecondsOf([&] {
      for (int call = 0; call < calls; ++call)
        wrong |= isEquivalent(lhs.get(), rhs.get());
    });
  };
  std::vector<double> samples =
      ratios([&] { return time(largeLhs, largeRhs); },
             [&] { return time(smallLhs, smallRhs); });
  if (wrong)
    return absl::InternalError("different modules were taken for equal");
  return samples;
}

/// A module that holds one constant of that many bytes.
static Subject makeConstant(size_t bytes) {
  Subject subject;
  subject.context = std::make_unique<mlir::MLIRContext>(
      mlir::MLIRContext::Threading::DISABLED);
  mlir::Builder builder(subject.context.get());
  subject.module = mlir::ModuleOp::create(builder.getUnknownLoc());
  std::vector<int32_t> data(bytes / sizeof(int32_t));
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = int32_t(i * 2654435761u);
  auto type =
      mlir::RankedTensorType::get({int64_t(data.size())}, builder.getI32Type());
  subject.get()->setAttr(
      "t.constant",
      mlir::DenseElementsAttr::get(type, llvm::ArrayRef<int32_t>(data)));
  return subject;
}

constexpr size_t constantBytes = size_t(64) << 20;

/// The first digest of a large constant over BLAKE3 of its bytes.
static Samples compareConstant() {
  Subject subject = makeConstant(constantBytes);
  auto attribute =
      subject.get()->getAttrOfType<mlir::DenseElementsAttr>("t.constant");
  absl::Status failure;
  std::vector<double> samples = ratios(
      [&] {
        return nanosecondsOf([&] {
          Fingerprinter fingerprinter(*subject.context);
          if (auto digest = fingerprinter.compute(subject.get()); !digest.ok())
            failure = digest.status();
        });
      },
      [&] {
        llvm::ArrayRef<char> raw = attribute.getRawData();
        return nanosecondsOf([&] {
          keep(llvm::BLAKE3::hash(llvm::ArrayRef<uint8_t>(
              reinterpret_cast<const uint8_t *>(raw.data()), raw.size())));
        });
      });
  if (!failure.ok())
    return failure;
  return samples;
}

/// Further digests of a large constant over those of a small one.
static Samples compareKnownConstant() {
  Subject large = makeConstant(constantBytes), small = makeConstant(4096);
  Fingerprinter ofLarge(*large.context), ofSmall(*small.context);
  absl::Status failure;
  auto time = [&](Fingerprinter &fingerprinter, Subject &subject) {
    return nanosecondsOf([&] {
      for (int call = 0; call < 1000; ++call)
        if (auto digest = fingerprinter.compute(subject.get()); !digest.ok())
          failure = digest.status();
    });
  };
  std::vector<double> samples = ratios([&] { return time(ofLarge, large); },
                                       [&] { return time(ofSmall, small); });
  if (!failure.ok())
    return failure;
  return samples;
}

std::vector<Figure> bench::makeIrFigures() {
  constexpr auto atMost = Figure::Bound::AtMost;
  std::vector<Figure> figures;
  for (auto [operations, size] :
       {std::pair(1000, "1k"), std::pair(100000, "100k")}) {
    auto add = [&, operations = operations, suffix = std::string("/") + size](
                   const std::string &id, std::string what, double asked,
                   double (DigestTimer::*digest)(),
                   double (DigestTimer::*other)()) {
      figures.push_back({id + suffix, std::move(what), atMost, asked, "x", [=] {
                           DigestTimer timer(operations);
                           return timer.finish(
                               ratios([&] { return (timer.*digest)(); },
                                      [&] { return (timer.*other)(); }));
                         }});
    };
    add("R6", "digest, attributes known, over computeHash of every operation",
        1.25, &DigestTimer::known, &DigestTimer::computeHash);
    add("R7", "digest, nothing known, over writing bytecode and BLAKE3", 0.35,
        &DigestTimer::unknown, &DigestTimer::bytecodeAndBlake3);
    add("R7b", "digest, nothing known, over printing generic text and SHA-256",
        0.1, &DigestTimer::unknown, &DigestTimer::genericTextAndSha256);
    figures.push_back(
        {std::string("R8/") + size,
         "isEquivalent in two contexts over two digests of known attributes",
         atMost, 1.3, "x",
         [operations = operations] { return compareEquivalence(operations); }});
  }
  figures.push_back(
      {"R8b",
       "finding a difference at the beginning, 100,000 operations "
       "over 1,000",
       atMost, 1.5, "x", compareFirstDifference});
  figures.push_back({"R9", "first digest of a 64 MiB constant over BLAKE3",
                     atMost, 1.2, "x", compareConstant});
  figures.push_back({"R9-known", "further digests of it over those of 4 KiB",
                     atMost, 1.5, "x", compareKnownConstant});
  return figures;
}

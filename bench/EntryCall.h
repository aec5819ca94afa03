//===- EntryCall.h - Calls a compiled function by its type ---- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Calls a function whose type is known when the tool runs: values in and out as
/// text, and a bridge of machine code made for the type in between.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_ENTRYCALL_H
#define CONTEXT_POOL_BENCH_ENTRYCALL_H

#include "context_pool/ContextPool.h"
#include "context_pool/Executable.h"

#include "absl/status/statusor.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace llvm {
struct fltSemantics;
} // namespace llvm

namespace ctxpool::bench {

/// A number, as memory has it. Its value is kept as bits, the lowest first.
struct NumberType {
  std::string name;     ///< As MLIR prints it.
  std::string llvmName; ///< In the LLVM dialect: `i64` for an index.
  unsigned bits = 0;
  bool isUnsigned = false;
  const llvm::fltSemantics *semantics = nullptr; ///< Null for an integer.
};

/// The type of an argument or a result, without a context.
struct EntryType {
  std::string text; ///< As MLIR prints it.
  NumberType element;
  bool isTensor = false;
  /// Whether memory in row-major order without gaps is such an array. What is
  /// returned need not be.
  bool isRowMajor = true;
  /// Nothing for a scalar. Sizes may be `mlir::ShapedType::kDynamic`.
  std::optional<std::vector<int64_t>> shape;
};

/// A value of such a type: one number, or an array in row-major order.
struct EntryValue {
  EntryType type;
  std::vector<int64_t> sizes;
  std::vector<uint64_t> elements;

  /// As `printMemref` of MLIR's runner utilities nests arrays; `indent` goes
  /// before every line but the first.
  void print(llvm::raw_ostream &stream, unsigned indent) const;
  /// A number or a flat array of numbers, which are text where JSON has none.
  llvm::json::Value toJson() const;
};

/// What a function takes and gives, by the module as it was written.
struct EntrySignature {
  std::string name;
  bool isLowered = false; ///< An `llvm.func`: called as it is.
  std::vector<EntryType> arguments, results;
};

/// The signature of `name`.
///
/// Errors: NotFound        - there is no such function, it has no body, or it is
///                           an `llvm.func` of internal or private linkage; the
///                           message names those that can be called.
///         InvalidArgument - a type that cannot be passed.
absl::StatusOr<EntrySignature> describeEntry(mlir::ModuleOp module,
                                             llvm::StringRef name);

/// Has the lowering of functions make a C interface of that one.
void requestCInterface(mlir::ModuleOp module, const EntrySignature &signature);

/// The arguments that the texts describe; see the help of `jit`.
///
/// Errors: InvalidArgument - another number of them than the function takes, or
///                           a text that is no value of its type.
absl::StatusOr<std::vector<EntryValue>>
parseArguments(const EntrySignature &signature,
               llvm::ArrayRef<std::string> texts);

/// What a call gave.
struct EntryOutcome {
  double seconds = 0; ///< Of the call itself.
  std::vector<EntryValue> results;
  /// The memrefs among the arguments that the call changed, with their numbers.
  std::vector<std::pair<size_t, EntryValue>> written;
};

/// Calls functions of one signature.
///
/// Thread safety: calls may run at one time where the functions may.
class EntryCaller {
public:
  /// `lowered` is the module after its pipeline: a pipeline may turn results
  /// into parameters, and whatever else it does to the signature is refused.
  ///
  /// Errors: NotFound        - the lowered module has no C interface of the
  ///                           function.
  ///         InvalidArgument - it has another signature than was written, or
  ///                           results of unknown shape became parameters.
  ///         Those of making the bridge.
  static absl::StatusOr<EntryCaller>
  create(EntrySignature signature, mlir::ModuleOp lowered, ContextPool &pool);

  /// Passes copies of the arguments. Memory that the function allocated and
  /// returned is freed.
  ///
  /// Errors: NotFound - the executable does not define the function.
  absl::StatusOr<EntryOutcome> call(const Executable &executable,
                                    llvm::ArrayRef<EntryValue> arguments) const;

private:
  EntryCaller() = default;

  EntrySignature signature;
  /// Whether results that are arrays are parameters after the arguments.
  bool hasOutParameters = false;
  std::shared_ptr<Executable> bridge;
};

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_ENTRYCALL_H

//===- DecoderDetail.h - The parts of the decoder ---------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CODEC_DECODERDETAIL_H
#define CONTEXT_POOL_CODEC_DECODERDETAIL_H

#include "context_pool/codec/Decoder.h"

#include "llvm/ADT/SmallVector.h"

#include <type_traits>

namespace ctxpool::codec::detail {

/// Looks parts up and remembers whether all were there.
class Lookup {
public:
  explicit Lookup(Parts &source) : parts(source) {}

  /// The counterpart of a part that may be absent.
  template <typename T>
  T operator()(T part) {
    if (!part)
      return T();
    if constexpr (std::is_base_of_v<mlir::Attribute, T>) {
      mlir::Attribute found = parts.find(mlir::Attribute(part));
      complete &= bool(found);
      return llvm::cast_or_null<T>(found);
    } else {
      mlir::Type found = parts.find(mlir::Type(part));
      complete &= bool(found);
      return llvm::cast_or_null<T>(found);
    }
  }

  template <typename T, typename Range>
  llvm::SmallVector<T> all(Range &&range) {
    llvm::SmallVector<T> found;
    for (auto part : range)
      found.push_back((*this)(T(part)));
    return found;
  }

  bool complete = true;

private:
  Parts &parts;
};

/// The error that `source` cannot be built, and why.
absl::Status refuse(mlir::Attribute source, const char *why);
absl::Status refuse(mlir::Type source, const char *why);

/// Null with an OK status also where the kind is unknown here: then `known` is false.
mlir::Attribute decodeBuiltin(mlir::Attribute source,
                              mlir::MLIRContext &destination, Parts &parts,
                              bool &known, absl::Status &status);
mlir::Type decodeBuiltin(mlir::Type source, mlir::MLIRContext &destination,
                         Parts &parts, bool &known, absl::Status &status);

/// The same for the LLVM dialect, and for the data layouts of the DLTI dialect.
mlir::Attribute decodeLLVM(mlir::Attribute source,
                           mlir::MLIRContext &destination, Parts &parts,
                           bool &known);
mlir::Type decodeLLVM(mlir::Type source, mlir::MLIRContext &destination,
                      Parts &parts, bool &known, absl::Status &status);

/// Gives the printed form in the record to the dialect's parser. `references`
/// and `handles` are the record's, of the new context. Null where the parser
/// fails.
mlir::Attribute
parsePrinted(const Record &record, llvm::ArrayRef<Reference> references,
             llvm::ArrayRef<mlir::AsmDialectResourceHandle> handles,
             mlir::Dialect &dialect, mlir::Type type);
mlir::Type parsePrinted(const Record &record,
                        llvm::ArrayRef<Reference> references,
                        llvm::ArrayRef<mlir::AsmDialectResourceHandle> handles,
                        mlir::Dialect &dialect);

} // namespace ctxpool::codec::detail

#endif // CONTEXT_POOL_CODEC_DECODERDETAIL_H

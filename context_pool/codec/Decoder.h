//===- Decoder.h - Attributes and types in another context ------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Builds the counterpart of an attribute or type in another context, from the
/// counterparts of its parts.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CODEC_DECODER_H
#define CONTEXT_POOL_CODEC_DECODER_H

#include "context_pool/codec/Record.h"

#include "absl/status/status.h"
#include "mlir/IR/Attributes.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/Types.h"

namespace ctxpool::codec {

/// What a decoder asks for while it builds something: counterparts, in the
/// context that is built in, of what there is in the other one.
class Parts {
public:
  virtual ~Parts();

  /// Null where there is none yet, and it could not be built at once.
  virtual mlir::Attribute find(mlir::Attribute part) = 0;
  virtual mlir::Type find(mlir::Type part) = 0;

  /// The resource with the contents of that one.
  virtual absl::Status
  findResource(const mlir::AsmDialectResourceHandle &handle,
               mlir::AsmDialectResourceHandle &result) = 0;

  /// `counterpart` is that of a type which may be a part of itself, and waits
  /// for `setBody`. Until then, it may be a part of others already.
  virtual void addBodyless(mlir::Type part, mlir::Type counterpart) = 0;
};

/// Builds `source` in `destination`. Null with an OK status: a part is missing;
/// try again when it is there. What the builtin dialect defines, and of the LLVM
/// dialect what is frequent and has no encoding of its own, is built from its
/// accessors; the rest from a record by its dialect's bytecode interface, or,
/// where the dialect has none, by its parser from what its printer printed. The
/// last is checked by encoding the result, for a parser may drop what its
/// printer prints; of a type that may be a part of itself, with all that it is
/// made of.
///
/// `destination` has to have a handler for diagnostics that keeps them from
/// being printed; they say why something could not be built.
///
/// Errors: FailedPrecondition - the destination does not have the dialect, or
///                              does not take unregistered ones; or the value
///                              cannot be encoded, or not built from what was
///                              encoded. The message names dialect and value.
mlir::Attribute decode(mlir::Attribute source, mlir::MLIRContext &destination,
                       Parts &parts, absl::Status &status);
mlir::Type decode(mlir::Type source, mlir::MLIRContext &destination,
                  Parts &parts, absl::Status &status);

/// Gives the body of `source` to its counterpart, which `Parts::addBodyless` was
/// told of. False with an OK status: a part is missing, as above.
///
/// Errors: FailedPrecondition - the destination has another type of that name.
bool setBody(mlir::Type source, mlir::Type counterpart, Parts &parts,
             absl::Status &status);

/// The dialect of that name, loaded if it is registered; null if it is not.
mlir::Dialect *loadDialect(mlir::MLIRContext &context, llvm::StringRef name);

/// The error that a dialect is not there.
absl::Status missingDialect(llvm::StringRef dialect, llvm::StringRef what,
                            llvm::StringRef name);

} // namespace ctxpool::codec

#endif // CONTEXT_POOL_CODEC_DECODER_H

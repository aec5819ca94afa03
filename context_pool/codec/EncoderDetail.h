//===- EncoderDetail.h - The parts of the encoder ---------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CODEC_ENCODERDETAIL_H
#define CONTEXT_POOL_CODEC_ENCODERDETAIL_H

#include "context_pool/codec/Encoder.h"

namespace ctxpool::codec::detail {

/// Encodes what the builtin dialect defines. False: it is unknown here, and
/// nothing is written.
bool encodeBuiltin(mlir::Attribute attribute, Record &record,
                   absl::Status &status);
bool encodeBuiltin(mlir::Type type, Record &record);

/// Encodes the types of the LLVM dialect that are made of others. False as
/// above.
bool encodeLLVM(mlir::Type type, Record &record);

/// Whether it is a struct type without a name, which never changes.
bool isLiteralStruct(mlir::Type type);

/// Encodes through the dialect's printer. With `namesErrors`, an error has the
/// value's text.
absl::Status encodePrinted(mlir::Attribute attribute, Record &record,
                           bool namesErrors);
absl::Status encodePrinted(mlir::Type type, Record &record, bool namesErrors);

/// As `encode` and `encodeStructure`, where the error does not name the value:
/// for those whose size is not known yet, without which there is no name.
absl::Status encodeUnnamed(mlir::Attribute attribute, Record &record);
absl::Status encodeUnnamed(mlir::Type type, Record &record);

} // namespace ctxpool::codec::detail

#endif // CONTEXT_POOL_CODEC_ENCODERDETAIL_H

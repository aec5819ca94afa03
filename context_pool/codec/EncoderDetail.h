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

/// Encodes through the dialect's printer.
absl::Status encodePrinted(mlir::Attribute attribute, Record &record);
absl::Status encodePrinted(mlir::Type type, Record &record);

} // namespace ctxpool::codec::detail

#endif // CONTEXT_POOL_CODEC_ENCODERDETAIL_H

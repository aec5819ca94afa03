//===- Encoder.h - Attributes and types into records ------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Encodes one attribute or type into a record, without loss and without
/// changing the context that it lives in.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CODEC_ENCODER_H
#define CONTEXT_POOL_CODEC_ENCODER_H

#include "context_pool/codec/Record.h"

#include "absl/status/status.h"
#include "mlir/IR/AsmState.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <string>

namespace ctxpool::codec {

/// The first byte of a record. Values are part of the scheme: never renumbered.
enum class Tag : uint8_t {
  // Attributes of the builtin dialect.
  Array = 1,
  Dictionary,
  Integer,
  Float,
  String,
  SymbolRef,
  Type,
  Unit,
  DenseIntOrFP,
  DenseStrings,
  DenseResource,
  DenseArray,
  Sparse,
  AffineMap,
  IntegerSet,
  StridedLayout,
  OpaqueAttribute,
  Distinct,
  UnknownLoc,
  FileLineColRange,
  NameLoc,
  CallSiteLoc,
  FusedLoc,
  // Types of the builtin dialect.
  IntegerType = 64,
  IndexType,
  FloatType,
  NoneType,
  ComplexType,
  FunctionType,
  GraphType,
  TupleType,
  VectorType,
  RankedTensorType,
  UnrankedTensorType,
  MemRefType,
  UnrankedMemRefType,
  OpaqueType,
  // Of any dialect, followed by its name: encoded by the dialect's
  // BytecodeDialectInterface, or printed by its printer.
  DialectAttribute = 128,
  DialectType,
  PrintedAttribute,
  PrintedType,
  // Of the LLVM dialect, only by `encodeStructure`.
  LLVMStruct = 160,
  LLVMArray,
  LLVMFunction,
  LLVMTargetExt,
};

/// Replaces the contents of `record` by the encoding of one attribute or type,
/// which must not be null. What it is composed of is in the record's
/// references; the encoding itself does not recurse.
///
/// - Element values count, and not how a dense constant stores them: a splat is
///   the same as its elements one by one.
/// - A resource counts by alignment and contents, or as one without data, and
///   never by its key. Its handle is in the record for a decoder.
/// - The identity of a `DistinctAttr` is left to the caller: its record has
///   what it wraps.
/// - A range location that is one point is that point, and an `OpaqueLoc` is
///   its fallback, as in MLIR's own formats.
/// - Attributes and types of other dialects are written by the dialect's
///   bytecode interface if what it writes has all of their sub-elements, or
///   else by its printer, with the attributes, types and resources that it
///   prints, and all sub-elements, as references in place of text.
///
/// Contexts:      reads that of the attribute and interns nothing in it.
/// Thread safety: several threads may encode attributes of a context that
///                nobody changes meanwhile.
/// Errors:        FailedPrecondition - the printed form hides a distinct
///                attribute or a resource, or a resource cannot be read; the
///                message names the attribute. The record is unusable.
absl::Status encode(mlir::Attribute attribute, Record &record);
absl::Status encode(mlir::Type type, Record &record);

/// As `encode`, for a record that is compared and not decoded: in time that is
/// linear in the number of immediate parts even where the dialect's printer
/// prints parts of parts, as that of LLVM types does.
absl::Status encodeStructure(mlir::Type type, Record &record);

/// Whether the type may get its body after its creation, and refer to itself.
bool isMutable(mlir::Type type);

/// What a dialect tells of a resource: bytes, of a blob, a string or one that is
/// a boolean. The bytes are gone when the call returns; `alignment` is that of a
/// blob.
using TakeResource =
    llvm::function_ref<void(mlir::AsmResourceEntryKind kind,
                            llvm::ArrayRef<char> data, uint32_t alignment)>;

/// Hands out the contents of one resource of any dialect with an interface for
/// that. False where it has none.
bool readResource(const mlir::AsmDialectResourceHandle &handle,
                  TakeResource take);

/// Writes the contents of the resource into the record.
absl::Status encodeResource(const mlir::AsmDialectResourceHandle &handle,
                            Record &record);

/// Text of the attribute or type for a message, at most `limit` characters of
/// it, large constants elided.
std::string describe(mlir::Attribute attribute, size_t limit = 120);
std::string describe(mlir::Type type, size_t limit = 120);

} // namespace ctxpool::codec

#endif // CONTEXT_POOL_CODEC_ENCODER_H

//===- RecordReader.h - A bytecode reader from memory -----------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The `mlir::DialectBytecodeReader` through which dialects decode what a
/// `SinkWriter` put into a record.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CODEC_RECORDREADER_H
#define CONTEXT_POOL_CODEC_RECORDREADER_H

#include "context_pool/codec/Record.h"

#include "mlir/Bytecode/BytecodeImplementation.h"
#include "mlir/IR/Location.h"

namespace ctxpool::codec {

/// Reads a record, with the attributes, types and resources of the context that
/// is read into in place of those that the record refers to.
///
/// `newReferences` has one for each of the record's references, in order:
/// attributes and types of the new context, and data as it is. `newHandles` has
/// one for each of its handles. Both, and the record, must outlive the reader.
///
/// Every read checks for the end and for what it expects to find, and fails
/// with a diagnostic at `where`. A record that its dialect wrote does not fail.
class RecordReader final : public mlir::DialectBytecodeReader {
public:
  RecordReader(const Record &source, llvm::ArrayRef<Reference> newReferences,
               llvm::ArrayRef<mlir::AsmDialectResourceHandle> newHandles,
               mlir::Location where)
      : record(source), references(newReferences), handles(newHandles),
        location(where) {}

  /// Whether all was read.
  bool isAtEnd() const {
    return nextByte == record.bytes.size() &&
           nextReference == references.size() && nextHandle == handles.size();
  }

  mlir::LogicalResult readByte(uint8_t &result);

  mlir::InFlightDiagnostic emitError(const llvm::Twine &message) const override;
  mlir::FailureOr<const mlir::DialectVersion *>
  getDialectVersion(llvm::StringRef) const override {
    return mlir::failure();
  }
  mlir::MLIRContext *getContext() const override;
  uint64_t getBytecodeVersion() const override;

  mlir::LogicalResult readAttribute(mlir::Attribute &result) override;
  mlir::LogicalResult readOptionalAttribute(mlir::Attribute &result) override;
  mlir::LogicalResult readType(mlir::Type &result) override;
  mlir::LogicalResult readVarInt(uint64_t &result) override;
  mlir::LogicalResult readSignedVarInt(int64_t &result) override;
  mlir::FailureOr<llvm::APInt>
  readAPIntWithKnownWidth(unsigned bitWidth) override;
  mlir::FailureOr<llvm::APFloat>
  readAPFloatWithKnownSemantics(const llvm::fltSemantics &semantics) override;
  mlir::LogicalResult readString(llvm::StringRef &result) override;
  mlir::LogicalResult readBlob(llvm::ArrayRef<char> &result) override;
  mlir::LogicalResult readBool(bool &result) override;

private:
  mlir::FailureOr<mlir::AsmDialectResourceHandle> readResourceHandle() override;
  mlir::FailureOr<Reference> readReference(Reference::Kind kind);

  const Record &record;
  llvm::ArrayRef<Reference> references;
  llvm::ArrayRef<mlir::AsmDialectResourceHandle> handles;
  mlir::Location location;
  size_t nextByte = 0;
  size_t nextReference = 0;
  size_t nextHandle = 0;
};

} // namespace ctxpool::codec

#endif // CONTEXT_POOL_CODEC_RECORDREADER_H

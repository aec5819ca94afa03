//===- RecordReader.cpp - A bytecode reader from memory -------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/codec/RecordReader.h"

#include "context_pool/codec/SinkWriter.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/DialectResourceBlobManager.h"

using namespace mlir;

namespace ctxpool::codec {

InFlightDiagnostic RecordReader::emitError(const Twine &message) const {
  return mlir::emitError(location) << message;
}

MLIRContext *RecordReader::getContext() const { return location.getContext(); }

uint64_t RecordReader::getBytecodeVersion() const {
  return dialectBytecodeVersion;
}

FailureOr<Reference> RecordReader::readReference(Reference::Kind kind) {
  if (nextReference == references.size())
    return emitError("the record has no more references");
  Reference reference = references[nextReference++];
  if (reference.kind != kind)
    return emitError("the record refers to something of another kind");
  return reference;
}

LogicalResult RecordReader::readAttribute(Attribute &result) {
  if (failed(readOptionalAttribute(result)))
    return failure();
  if (!result)
    return emitError("the record has no attribute where one is needed");
  return success();
}

LogicalResult RecordReader::readOptionalAttribute(Attribute &result) {
  FailureOr<Reference> reference = readReference(Reference::Kind::Attribute);
  if (failed(reference))
    return failure();
  result = reference->getAttribute();
  return success();
}

LogicalResult RecordReader::readType(Type &result) {
  FailureOr<Reference> reference = readReference(Reference::Kind::Type);
  if (failed(reference))
    return failure();
  result = reference->getType();
  if (!result)
    return emitError("the record has no type where one is needed");
  return success();
}

LogicalResult RecordReader::readByte(uint8_t &result) {
  if (nextByte == record.bytes.size())
    return emitError("the record has no more bytes");
  result = record.bytes[nextByte++];
  return success();
}

LogicalResult RecordReader::readVarInt(uint64_t &result) {
  result = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    uint8_t byte = 0;
    if (failed(readByte(byte)))
      return failure();
    result |= uint64_t(byte & 0x7F) << shift;
    if (!(byte & 0x80))
      return success();
  }
  return emitError("the record has a number of more than 64 bits");
}

LogicalResult RecordReader::readSignedVarInt(int64_t &result) {
  uint64_t bits = 0;
  if (failed(readVarInt(bits)))
    return failure();
  result = fromZigZag(bits);
  return success();
}

FailureOr<APInt> RecordReader::readAPIntWithKnownWidth(unsigned bitWidth) {
  uint64_t width = 0;
  if (failed(readVarInt(width)))
    return failure();
  if (width != bitWidth)
    return emitError("the record has an integer of ")
           << width << " bits where " << bitWidth << " are expected";
  SmallVector<uint64_t, 2> words(APInt::getNumWords(bitWidth));
  for (uint64_t &word : words)
    if (failed(readVarInt(word)))
      return failure();
  return APInt(bitWidth, words);
}

FailureOr<APFloat> RecordReader::readAPFloatWithKnownSemantics(
    const llvm::fltSemantics &semantics) {
  FailureOr<APInt> bits =
      readAPIntWithKnownWidth(APFloat::getSizeInBits(semantics));
  if (failed(bits))
    return failure();
  return APFloat(semantics, *bits);
}

LogicalResult RecordReader::readBlob(ArrayRef<char> &result) {
  uint64_t size = 0;
  if (failed(readVarInt(size)))
    return failure();
  if (size >= Record::largeDataSize) {
    FailureOr<Reference> reference = readReference(Reference::Kind::Bytes);
    if (failed(reference))
      return failure();
    if (reference->size != size)
      return emitError("the record refers to data of another size");
    result = reference->getBytes();
    return success();
  }
  if (record.bytes.size() - nextByte < size)
    return emitError("the record has no more bytes");
  result = {reinterpret_cast<const char *>(record.bytes.data()) + nextByte,
            size_t(size)};
  nextByte += size;
  return success();
}

LogicalResult RecordReader::readString(StringRef &result) {
  ArrayRef<char> data;
  if (failed(readBlob(data)))
    return failure();
  result = {data.data(), data.size()};
  return success();
}

LogicalResult RecordReader::readBool(bool &result) {
  uint8_t byte = 0;
  if (failed(readByte(byte)))
    return failure();
  result = byte != 0;
  return success();
}

/// The contents, which stand here as well, went into the new resource.
FailureOr<AsmDialectResourceHandle> RecordReader::readResourceHandle() {
  if (nextHandle == handles.size())
    return emitError("the record has no more resources");
  const AsmDialectResourceHandle &handle = handles[nextHandle];
  StringRef dialect;
  if (!isa<DenseResourceElementsHandle>(&record.handles[nextHandle]) &&
      failed(readString(dialect)))
    return failure();
  ++nextHandle;
  uint8_t kind = 0;
  ArrayRef<char> data;
  uint64_t alignment = 0;
  bool flag = false;
  if (failed(readByte(kind)))
    return failure();
  switch (kind) {
  case 0:
    return handle;
  case 1:
    if (failed(readVarInt(alignment)) || failed(readBlob(data)))
      return failure();
    return handle;
  case 2:
    if (failed(readBool(flag)))
      return failure();
    return handle;
  case 3:
    if (failed(readBlob(data)))
      return failure();
    return handle;
  }
  return emitError("the record has a resource of an unknown kind");
}

} // namespace ctxpool::codec

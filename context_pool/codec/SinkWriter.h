//===- SinkWriter.h - A bytecode writer into memory -------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The `mlir::DialectBytecodeWriter` through which dialects encode attributes,
/// types and properties when no bytecode file is being written.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CODEC_SINKWRITER_H
#define CONTEXT_POOL_CODEC_SINKWRITER_H

#include "context_pool/codec/Encoder.h"

#include "mlir/Bytecode/BytecodeImplementation.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/APInt.h"

namespace ctxpool::codec {

/// The bytecode version that dialects are asked to encode for: the one in which
/// properties are native. A constant of the scheme, so that an upgrade of MLIR
/// does not change what is written here without a change of this line.
inline constexpr int64_t dialectBytecodeVersion = 6;

/// Hands what a dialect writes to a `Sink`, which has
/// `writeVarInt(uint64_t)`, `writeByte(uint8_t)`,
/// `writeRaw(const void *, size_t)`, `writeData(ArrayRef<char>)`,
/// `writeAttribute(Attribute)`, `writeType(Type)` and
/// `writeResource(const AsmDialectResourceHandle &)`. Nothing is interned.
template <typename Sink>
class SinkWriter final : public mlir::DialectBytecodeWriter {
public:
  explicit SinkWriter(Sink &target) : sink(target) {}

  void writeAttribute(mlir::Attribute attribute) override {
    sink.writeAttribute(attribute);
  }
  void writeOptionalAttribute(mlir::Attribute attribute) override {
    // The sink tells an absent attribute from every other.
    sink.writeAttribute(attribute);
  }
  void writeType(mlir::Type type) override { sink.writeType(type); }
  void
  writeResourceHandle(const mlir::AsmDialectResourceHandle &handle) override {
    sink.writeResource(handle);
  }
  void writeVarInt(uint64_t value) override { sink.writeVarInt(value); }
  void writeSignedVarInt(int64_t value) override {
    sink.writeVarInt(toZigZag(value));
  }
  void writeAPIntWithKnownWidth(const llvm::APInt &value) override {
    sink.writeVarInt(value.getBitWidth());
    for (unsigned i = 0, words = value.getNumWords(); i != words; ++i)
      sink.writeVarInt(value.getRawData()[i]);
  }
  void writeAPFloatWithKnownSemantics(const llvm::APFloat &value) override {
    writeAPIntWithKnownWidth(value.bitcastToAPInt());
  }
  void writeOwnedString(llvm::StringRef string) override {
    sink.writeData({string.data(), string.size()});
  }
  void writeOwnedBlob(llvm::ArrayRef<char> blob) override {
    sink.writeData(blob);
  }
  void writeOwnedBool(bool value) override { sink.writeByte(value); }
  int64_t getBytecodeVersion() const override { return dialectBytecodeVersion; }

  /// No dialect is asked for an older encoding than its newest.
  mlir::FailureOr<const mlir::DialectVersion *>
  getDialectVersion(llvm::StringRef) const override {
    return mlir::failure();
  }

private:
  Sink &sink;
};

/// A sink that is a record.
struct RecordSink {
  explicit RecordSink(Record &target) : record(target) {}

  void writeByte(uint8_t value) { record.writeByte(value); }
  void writeVarInt(uint64_t value) { record.writeVarInt(value); }
  void writeRaw(const void *data, size_t size) { record.writeRaw(data, size); }
  void writeData(llvm::ArrayRef<char> data) { record.writeData(data); }
  void writeAttribute(mlir::Attribute attribute) {
    record.writeAttribute(attribute);
  }
  void writeType(mlir::Type type) { record.writeType(type); }
  void writeResource(const mlir::AsmDialectResourceHandle &handle) {
    if (status.ok())
      status = encodeResource(handle, record);
  }

  Record &record;
  /// The first resource that could not be read.
  absl::Status status;
};

} // namespace ctxpool::codec

#endif // CONTEXT_POOL_CODEC_SINKWRITER_H

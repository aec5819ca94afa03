//===- Record.h - One attribute or type as bytes ----------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The form in which the codec holds one attribute or type: bytes, and the
/// attributes, types and data that the bytes refer to.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CODEC_RECORD_H
#define CONTEXT_POOL_CODEC_RECORD_H

#include "mlir/IR/Attributes.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/Types.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Compiler.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace ctxpool::codec {

/// What `writeVarIntTo` writes at most.
constexpr size_t maxVarIntSize = 10;

/// Writes `value` as LEB128, seven bits a byte, the lowest first, where there is
/// room for that. The end of what was written.
inline uint8_t *writeVarIntTo(uint8_t *to, uint64_t value) {
  while (LLVM_UNLIKELY(value >= 0x80)) {
    *to++ = static_cast<uint8_t>(value) | 0x80;
    value >>= 7;
  }
  *to++ = static_cast<uint8_t>(value);
  return to;
}

/// The same at the end of a container.
template <typename Bytes>
inline void appendVarInt(Bytes &bytes, uint64_t value) {
  if (LLVM_LIKELY(value < 0x80)) {
    bytes.push_back(static_cast<uint8_t>(value));
    return;
  }
  uint8_t written[maxVarIntSize];
  bytes.append(written, writeVarIntTo(written, value));
}

/// Zigzag: small absolute values become small unsigned ones.
inline uint64_t toZigZag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^
         static_cast<uint64_t>(value >> 63);
}
inline int64_t fromZigZag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

/// What a record points at and does not contain.
struct Reference {
  enum class Kind : uint8_t {
    /// An attribute; null where an optional one is absent.
    Attribute = 1,
    Type = 2,
    /// Data too large to copy, such as that of a dense constant. It belongs to
    /// the attribute, to a resource blob, or to the record.
    Bytes = 3,
  };

  Kind kind;
  const void *pointer;
  size_t size = 0;

  static Reference to(mlir::Attribute attribute) {
    return {Kind::Attribute, attribute.getAsOpaquePointer()};
  }
  static Reference to(mlir::Type type) {
    return {Kind::Type, type.getAsOpaquePointer()};
  }
  mlir::Attribute getAttribute() const {
    return mlir::Attribute::getFromOpaquePointer(pointer);
  }
  mlir::Type getType() const {
    return mlir::Type::getFromOpaquePointer(pointer);
  }
  llvm::ArrayRef<char> getBytes() const {
    return {static_cast<const char *>(pointer), size};
  }
};

/// One attribute, type or set of properties: bytes, and a list of references in
/// the order in which the bytes meet them. A reader that takes bytes and
/// references in that order needs no further mark, so that two records are
/// equal (bytes equal, references equal one by one) exactly when what they
/// encode is.
///
/// Refers into the context that was read, and must not outlive it.
class Record {
public:
  /// Data from this size on, in bytes, is referred to and not copied.
  static constexpr size_t largeDataSize = 1024;

  void clear() {
    bytes.clear();
    references.clear();
    handles.clear();
    ownedData.clear();
    readsResource = false;
  }

  void writeByte(uint8_t value) { bytes.push_back(value); }
  void writeVarInt(uint64_t value) { appendVarInt(bytes, value); }
  void writeSignedVarInt(int64_t value) { writeVarInt(toZigZag(value)); }
  void writeRaw(const void *data, size_t size) {
    auto *begin = static_cast<const uint8_t *>(data);
    bytes.append(begin, begin + size);
  }
  void writeAttribute(mlir::Attribute attribute) {
    references.push_back(Reference::to(attribute));
  }
  void writeType(mlir::Type type) { references.push_back(Reference::to(type)); }

  /// The size and the data. `data` must live as long as the record.
  void writeData(llvm::ArrayRef<char> data) {
    writeVarInt(data.size());
    if (data.size() < largeDataSize)
      writeRaw(data.data(), data.size());
    else
      references.push_back({Reference::Kind::Bytes, data.data(), data.size()});
  }
  void writeString(llvm::StringRef string) {
    writeData({string.data(), string.size()});
  }

  /// Space that lives as long as what is in the record.
  char *allocate(size_t size) {
    return ownedData.emplace_back(new char[size]).get();
  }

  llvm::SmallVector<uint8_t, 224> bytes;
  llvm::SmallVector<Reference, 16> references;

  /// The resource handles that were met. Their contents, and not their keys,
  /// are in bytes and references; a decoder makes new ones.
  llvm::SmallVector<mlir::AsmDialectResourceHandle, 0> handles;

  /// Whether the contents of a resource are in the record: they may be replaced
  /// while attribute and handle stay.
  bool readsResource = false;

private:
  std::vector<std::unique_ptr<char[]>> ownedData;
};

} // namespace ctxpool::codec

#endif // CONTEXT_POOL_CODEC_RECORD_H

//===- Encoder.cpp - Attributes and types into records --------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/codec/Encoder.h"

#include "context_pool/codec/EncoderDetail.h"
#include "context_pool/codec/SinkWriter.h"
#include "context_pool/codec/TextSize.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/Location.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace mlir;

namespace ctxpool::codec {
namespace {

/// Whether the record refers to every immediate sub-element of the value, as
/// often as it occurs there.
template <typename AttributeOrType>
bool holdsParts(const Record &record, AttributeOrType value) {
  // Mostly in the same order, which is found out as one goes.
  auto next = record.references.begin();
  bool inOrder = true;
  SmallVector<const void *, 16> parts;
  auto add = [&](auto part) {
    if (!part)
      return;
    const void *pointer = part.getAsOpaquePointer();
    parts.push_back(pointer);
    while (next != record.references.end() && next->pointer != pointer)
      ++next;
    inOrder = inOrder && next != record.references.end();
    if (inOrder)
      ++next;
  };
  value.walkImmediateSubElements([&](Attribute part) { add(part); },
                                 [&](Type part) { add(part); });
  if (inOrder)
    return true;
  SmallVector<const void *, 16> held;
  for (const Reference &reference : record.references)
    if (reference.kind != Reference::Kind::Bytes && reference.pointer)
      held.push_back(reference.pointer);
  // For so few, faster than llvm::sort, which is qsort for these.
  std::sort(parts.begin(), parts.end());
  std::sort(held.begin(), held.end());
  return std::includes(held.begin(), held.end(), parts.begin(), parts.end());
}

template <typename AttributeOrType>
absl::Status encodeOfDialect(AttributeOrType value, Record &record,
                             bool namesErrors) {
  constexpr bool isAttribute = std::is_same_v<AttributeOrType, Attribute>;
  Dialect &dialect = value.getDialect();
  if (auto *interface =
          dialect.getRegisteredInterface<BytecodeDialectInterface>()) {
    record.writeByte(static_cast<uint8_t>(isAttribute ? Tag::DialectAttribute
                                                      : Tag::DialectType));
    record.writeString(dialect.getNamespace());
    RecordSink sink(record);
    SinkWriter<RecordSink> writer(sink);
    LogicalResult written = failure();
    if constexpr (isAttribute)
      written = interface->writeAttribute(value, writer);
    else
      written = interface->writeType(value, writer);
    // An interface may leave out a part that the printer shows, or that neither
    // knows of; then the printer's form holds every sub-element beside the text.
    if (succeeded(written) && (!sink.status.ok() || holdsParts(record, value)))
      return sink.status;
    record.clear();
  }
  return detail::encodePrinted(value, record, namesErrors);
}

/// Hands on the one resource that it is given.
class ResourceReader final : public AsmResourceBuilder {
public:
  explicit ResourceReader(TakeResource target) : take(target) {}

  void buildBool(StringRef, bool data) override {
    char byte = data;
    give(AsmResourceEntryKind::Bool, {&byte, 1});
  }
  void buildString(StringRef, StringRef data) override {
    give(AsmResourceEntryKind::String, {data.data(), data.size()});
  }
  void buildBlob(StringRef, ArrayRef<char> data, uint32_t alignment) override {
    give(AsmResourceEntryKind::Blob, data, alignment);
  }

  bool found = false;

private:
  void give(AsmResourceEntryKind kind, ArrayRef<char> data,
            uint32_t alignment = 1) {
    found = true;
    take(kind, data, alignment);
  }

  TakeResource take;
};

template <typename AttributeOrType>
std::string describeImpl(AttributeOrType value, size_t limit) {
  if (!value)
    return "none";
  // MLIR's printer recurses, and prints a part as often as it occurs.
  constexpr uint64_t maxDepth = 64, maxParts = 4096;
  TextSize size = TextMeasure().measure(Reference::to(value));
  if (size.depth > maxDepth || size.parts > maxParts) {
    StringRef kind;
    if constexpr (std::is_same_v<AttributeOrType, Attribute>)
      kind = value.getAbstractAttribute().getName();
    else
      kind = value.getAbstractType().getName();
    return absl::StrCat("a large ", kind.str());
  }
  std::string text;
  llvm::raw_string_ostream stream(text);
  if constexpr (std::is_same_v<AttributeOrType, Attribute>) {
    OpPrintingFlags flags;
    flags.elideLargeElementsAttrs(16);
    flags.elideLargeResourceString(64);
    AsmState state(value.getContext(), flags);
    value.print(stream, state);
  } else {
    value.print(stream);
  }
  if (text.size() > limit) {
    text.resize(limit);
    text += "...";
  }
  return text;
}

} // namespace

static absl::Status encodeImpl(Attribute attribute, Record &record,
                               bool namesErrors) {
  record.clear();
  // An address means nothing elsewhere: upstream's formats keep the fallback.
  while (auto opaque = dyn_cast<OpaqueLoc>(attribute))
    attribute = opaque.getFallbackLocation();
  absl::Status status;
  if (isa<BuiltinDialect>(attribute.getDialect()) &&
      detail::encodeBuiltin(attribute, record, status))
    return status;
  return encodeOfDialect(attribute, record, namesErrors);
}

static absl::Status encodeImpl(Type type, Record &record, bool namesErrors) {
  record.clear();
  if (isa<BuiltinDialect>(type.getDialect()) &&
      detail::encodeBuiltin(type, record))
    return absl::OkStatus();
  return encodeOfDialect(type, record, namesErrors);
}

absl::Status encode(Attribute attribute, Record &record) {
  return encodeImpl(attribute, record, /*namesErrors=*/true);
}

absl::Status encode(Type type, Record &record) {
  return encodeImpl(type, record, /*namesErrors=*/true);
}

absl::Status encodeStructure(Type type, Record &record) {
  record.clear();
  if (detail::encodeLLVM(type, record))
    return absl::OkStatus();
  return encode(type, record);
}

absl::Status detail::encodeUnnamed(Attribute attribute, Record &record) {
  return encodeImpl(attribute, record, /*namesErrors=*/false);
}

absl::Status detail::encodeUnnamed(Type type, Record &record) {
  record.clear();
  if (detail::encodeLLVM(type, record))
    return absl::OkStatus();
  return encodeImpl(type, record, /*namesErrors=*/false);
}

bool isMutable(Type type) {
  return type.hasTrait<TypeTrait::IsMutable>() &&
         !detail::isLiteralStruct(type);
}

bool readResource(const AsmDialectResourceHandle &handle, TakeResource take) {
  auto *interface =
      handle.getDialect()->getRegisteredInterface<OpAsmDialectInterface>();
  if (!interface)
    return false;
  SetVector<AsmDialectResourceHandle> handles;
  handles.insert(handle);
  ResourceReader reader(take);
  interface->buildResources(nullptr, handles, reader);
  return reader.found;
}

absl::Status encodeResource(const AsmDialectResourceHandle &handle,
                            Record &record) {
  record.handles.push_back(handle);
  record.readsResource = true;

  // The common kind, whose data can be referred to in place.
  if (auto *blobHandle = dyn_cast<DenseResourceElementsHandle>(&handle)) {
    const AsmResourceBlob *blob = blobHandle->getBlob();
    record.writeByte(blob ? 1 : 0);
    if (blob) {
      record.writeVarInt(blob->getDataAlignment());
      record.writeData(blob->getData());
    }
    return absl::OkStatus();
  }

  // Every other kind tells its contents only to a printer.
  Dialect *dialect = handle.getDialect();
  if (!dialect->getRegisteredInterface<OpAsmDialectInterface>())
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot read a resource of dialect '", dialect->getNamespace().str(),
        "': the dialect has no interface that tells its contents"));
  record.writeString(dialect->getNamespace());
  bool found =
      readResource(handle, [&](AsmResourceEntryKind kind, ArrayRef<char> data,
                               uint32_t alignment) {
        if (kind == AsmResourceEntryKind::Bool) {
          record.writeByte(2);
          record.writeByte(data.front());
          return;
        }
        bool isBlob = kind == AsmResourceEntryKind::Blob;
        record.writeByte(isBlob ? 1 : 3);
        if (isBlob)
          record.writeVarInt(alignment);
        char *copy = record.allocate(data.size());
        std::copy(data.begin(), data.end(), copy);
        record.writeData({copy, data.size()});
      });
  if (!found)
    record.writeByte(0);
  return absl::OkStatus();
}

std::string describe(Attribute attribute, size_t limit) {
  return describeImpl(attribute, limit);
}
std::string describe(Type type, size_t limit) {
  return describeImpl(type, limit);
}

} // namespace ctxpool::codec

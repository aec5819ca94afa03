//===- Decoder.cpp - Attributes and types in another context --------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/codec/DecoderDetail.h"

#include "context_pool/codec/Encoder.h"
#include "context_pool/codec/RecordReader.h"
#include "context_pool/codec/TextSize.h"
#include "context_pool/support/Thread.h"

#include "absl/strings/str_cat.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Bytecode/BytecodeImplementation.h"
#include "mlir/IR/BuiltinAttributeInterfaces.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>

using namespace mlir;

namespace ctxpool::codec {
namespace {

StringRef nameOf(Attribute attribute) {
  return attribute.getAbstractAttribute().getName();
}
StringRef nameOf(Type type) { return type.getAbstractType().getName(); }

template <typename AttributeOrType>
constexpr const char *kindName =
    std::is_same_v<AttributeOrType, Attribute> ? "attribute" : "type";

using detail::refuse;

/// Whether the two records are the same but for the context that they refer to.
bool isSame(const Record &record, ArrayRef<Reference> references,
            const Record &other) {
  if (record.bytes != other.bytes ||
      references.size() != other.references.size() ||
      record.handles.size() != other.handles.size())
    return false;
  for (auto [lhs, rhs] : llvm::zip_equal(references, other.references)) {
    if (lhs.kind != rhs.kind || lhs.size != rhs.size)
      return false;
    if (lhs.pointer != rhs.pointer &&
        (lhs.kind != Reference::Kind::Bytes ||
         std::memcmp(lhs.pointer, rhs.pointer, lhs.size) != 0))
      return false;
  }
  return true;
}

/// Whether all that `result` is made of is what `source` is made of. Their
/// parts are in two contexts, and may come back to them.
absl::Status checkWhole(Type source, Type result) {
  SmallVector<std::pair<Reference, Reference>> stack{
      {Reference::to(source), Reference::to(result)}};
  llvm::DenseSet<std::pair<const void *, const void *>> met;
  Record left, right;
  auto write = [](Reference value, Record &record) {
    return value.kind == Reference::Kind::Type
               ? encodeStructure(value.getType(), record)
               : encode(value.getAttribute(), record);
  };
  auto differ = [&] {
    return refuse(source, "its dialect parses what it prints as something "
                          "else");
  };
  while (!stack.empty()) {
    auto [lhs, rhs] = stack.pop_back_val();
    if (lhs.kind != rhs.kind || !lhs.pointer != !rhs.pointer)
      return differ();
    if (!lhs.pointer || !met.insert({lhs.pointer, rhs.pointer}).second)
      continue;
    for (auto [value, record] : {std::pair(lhs, &left), std::pair(rhs, &right)})
      if (absl::Status encoded = write(value, *record); !encoded.ok())
        return encoded;
    // The text has the identity of the one and the name of the other.
    if (!left.handles.empty() || (lhs.kind == Reference::Kind::Attribute &&
                                  isa<DistinctAttr>(lhs.getAttribute())))
      return refuse(source, "it has to go through its text, which loses a "
                            "distinct attribute or a resource");
    if (left.bytes != right.bytes ||
        left.references.size() != right.references.size())
      return differ();
    for (auto parts : llvm::zip_equal(left.references, right.references)) {
      auto [part, counterpart] = parts;
      // What the record owns goes with it.
      if (part.kind == Reference::Kind::Bytes &&
          counterpart.kind == Reference::Kind::Bytes) {
        if (part.getBytes() != counterpart.getBytes())
          return differ();
      } else {
        stack.push_back({part, counterpart});
      }
    }
  }
  return absl::OkStatus();
}

/// A type that may refer to itself has no order in which its parts could be
/// built. Its text ends where it comes back to itself, and its parser knows how
/// to begin with it.
Type decodeMutable(Type source, MLIRContext &destination,
                   absl::Status &status) {
  TextSize size = TextMeasure().measure(Reference::to(source));
  if (!size.isReasonable()) {
    status = refuse(source, "its text repeats its parts too often");
    return {};
  }
  Type result;
  status = ctxpool::detail::runWithStack(size.getStackBytes(), [&] {
    std::string text;
    llvm::raw_string_ostream stream(text);
    source.print(stream);
    result = parseType(text, &destination);
  });
  if (!result && status.ok())
    status = refuse(source, "its text does not parse there, where another type "
                            "may have its name");
  if (status.ok())
    status = checkWhole(source, result);
  return status.ok() ? result : Type();
}

template <typename AttributeOrType>
AttributeOrType decodeOfDialect(AttributeOrType source,
                                MLIRContext &destination, Parts &parts,
                                absl::Status &status) {
  constexpr bool isAttribute = std::is_same_v<AttributeOrType, Attribute>;
  StringRef name = source.getDialect().getNamespace();
  Dialect *dialect = loadDialect(destination, name);
  if (!dialect) {
    status = missingDialect(name, kindName<AttributeOrType>, nameOf(source));
    return {};
  }
  bool known = false;
  AttributeOrType built;
  if constexpr (isAttribute)
    built = detail::decodeLLVM(source, destination, parts, known);
  else
    built = detail::decodeLLVM(source, destination, parts, known, status);
  if (known)
    return built;

  Record record;
  status = encode(source, record);
  if (!status.ok())
    return {};
  Tag tag = static_cast<Tag>(record.bytes.front());
  bool isPrinted = tag == Tag::PrintedAttribute || tag == Tag::PrintedType;
  if constexpr (!isAttribute)
    if (isPrinted && source.template hasTrait<TypeTrait::IsMutable>())
      return decodeMutable(source, destination, status);

  bool complete = true;
  SmallVector<Reference, 16> references;
  for (Reference reference : record.references) {
    if (reference.pointer && reference.kind == Reference::Kind::Attribute) {
      Attribute found = parts.find(reference.getAttribute());
      complete &= bool(found);
      reference = Reference::to(found);
    } else if (reference.pointer && reference.kind == Reference::Kind::Type) {
      Type found = parts.find(reference.getType());
      complete &= bool(found);
      reference = Reference::to(found);
    }
    references.push_back(reference);
  }
  // The parser gets the type of a typed attribute from outside.
  Type type;
  if constexpr (isAttribute) {
    auto typed = isPrinted ? dyn_cast<TypedAttr>(source) : TypedAttr();
    if (typed && typed.getType() && !isa<NoneType>(typed.getType())) {
      type = parts.find(typed.getType());
      complete &= bool(type);
    }
  }
  if (!complete)
    return {};
  SmallVector<AsmDialectResourceHandle, 1> handles;
  for (const AsmDialectResourceHandle &handle : record.handles) {
    status = parts.findResource(handle, handles.emplace_back());
    if (!status.ok())
      return {};
  }

  AttributeOrType result;
  if (isPrinted) {
    if constexpr (isAttribute)
      result =
          detail::parsePrinted(record, references, handles, *dialect, type);
    else
      result = detail::parsePrinted(record, references, handles, *dialect);
    if (!result) {
      status = refuse(source, "its dialect does not parse what it prints");
      return {};
    }
    Record again;
    status = encode(result, again);
    if (status.ok() && !isSame(record, references, again))
      status = refuse(source, "its dialect parses what it prints as something "
                              "else");
    return status.ok() ? result : AttributeOrType();
  }

  auto *interface = dialect->getRegisteredInterface<BytecodeDialectInterface>();
  RecordReader reader(record, references, handles,
                      UnknownLoc::get(&destination));
  uint8_t tagRead = 0;
  StringRef nameRead;
  if (interface && succeeded(reader.readByte(tagRead)) &&
      succeeded(reader.readString(nameRead))) {
    if constexpr (isAttribute)
      result = interface->readAttribute(reader);
    else
      result = interface->readType(reader);
  }
  if (!result || !reader.isAtEnd()) {
    status = refuse(source, "its dialect does not read what it writes");
    return {};
  }
  return result;
}

template <typename AttributeOrType>
AttributeOrType decodeImpl(AttributeOrType source, MLIRContext &destination,
                           Parts &parts, absl::Status &status) {
  if (isa<BuiltinDialect>(source.getDialect())) {
    bool known = false;
    AttributeOrType result =
        detail::decodeBuiltin(source, destination, parts, known, status);
    if (known)
      return result;
  }
  return decodeOfDialect(source, destination, parts, status);
}

} // namespace

Parts::~Parts() = default;

template <typename AttributeOrType>
static absl::Status refuseImpl(AttributeOrType source, const char *why) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot build ", kindName<AttributeOrType>, " '",
                   describe(source), "' in the other context: ", why));
}

absl::Status detail::refuse(Attribute source, const char *why) {
  return refuseImpl(source, why);
}
absl::Status detail::refuse(Type source, const char *why) {
  return refuseImpl(source, why);
}

Dialect *loadDialect(MLIRContext &context, StringRef name) {
  return context.getOrLoadDialect(name);
}

absl::Status missingDialect(StringRef dialect, StringRef what, StringRef name) {
  return absl::FailedPreconditionError(
      absl::StrCat("dialect '", dialect.str(),
                   "' is not registered in the destination, and ", what.str(),
                   " '", name.str(), "' needs it"));
}

Attribute decode(Attribute source, MLIRContext &destination, Parts &parts,
                 absl::Status &status) {
  return decodeImpl(source, destination, parts, status);
}

Type decode(Type source, MLIRContext &destination, Parts &parts,
            absl::Status &status) {
  return decodeImpl(source, destination, parts, status);
}

} // namespace ctxpool::codec

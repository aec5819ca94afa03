//===- PrintedEncoder.cpp - Encodings through a dialect's printer ---------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/codec/EncoderDetail.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace ctxpool::codec {
namespace {

/// Lets a dialect print into a record: what it prints as text is text, and
/// every attribute, type, resource and floating point number that it hands to
/// the printer is noted with its place in that text. Upstream's text is lossy
/// just where it prints these itself (a `distinct` loses its identity, a wide
/// float its low bits, a resource its data); here they stay whole, and nothing
/// is printed twice, however deep attributes nest.
class RecordPrinter final : public DialectAsmPrinter {
public:
  explicit RecordPrinter(Record &target) : record(target), stream(text) {}

  raw_ostream &getStream() const override { return stream; }

  void printNewline() override { stream << '\n'; }
  void increaseIndent() override {}
  void decreaseIndent() override {}

  void printFloat(const APFloat &value) override {
    // Its place in the text; the bits follow the text.
    mark('f');
    floats.push_back(value);
  }
  void printType(Type type) override {
    mark('t');
    references.push_back(Reference::to(type));
  }
  void printAttribute(Attribute attribute) override {
    mark('a');
    references.push_back(Reference::to(attribute));
  }
  void printAttributeWithoutType(Attribute attribute) override {
    mark('w');
    references.push_back(Reference::to(attribute));
  }
  void printNamedAttribute(NamedAttribute attribute) override {
    printKeywordOrString(attribute.getName().strref());
    stream << " = ";
    printAttribute(attribute.getValue());
  }
  LogicalResult printAlias(Attribute) override { return failure(); }
  LogicalResult printAlias(Type) override { return failure(); }

  void printKeywordOrString(StringRef keyword) override {
    bool isKeyword = !keyword.empty() &&
                     (isAlpha(keyword.front()) || keyword.front() == '_') &&
                     llvm::all_of(keyword, [](char c) {
                       return isAlnum(c) || c == '_' || c == '$' || c == '.';
                     });
    if (isKeyword)
      stream << keyword;
    else
      printString(keyword);
  }
  void printString(StringRef string) override {
    stream << '"';
    llvm::printEscapedString(string, stream);
    stream << '"';
  }
  void printSymbolName(StringRef symbol) override {
    stream << '@';
    printKeywordOrString(symbol);
  }
  void printResourceHandle(const AsmDialectResourceHandle &handle) override {
    mark('r');
    handles.push_back(handle);
  }

  LogicalResult pushCyclicPrinting(const void *pointer) override {
    if (llvm::is_contained(printing, pointer))
      return failure();
    printing.push_back(pointer);
    return success();
  }
  void popCyclicPrinting() override { printing.pop_back(); }

  /// Writes all that was printed into the record.
  absl::Status finish() {
    record.writeVarInt(text.size());
    record.writeRaw(text.data(), text.size());
    record.writeVarInt(marks.size());
    for (size_t place : marks)
      record.writeVarInt(place);
    for (Reference reference : references)
      record.references.push_back(reference);
    for (const APFloat &value : floats) {
      record.writeByte(
          static_cast<uint8_t>(APFloat::SemanticsToEnum(value.getSemantics())));
      APInt bits = value.bitcastToAPInt();
      for (unsigned i = 0, words = bits.getNumWords(); i != words; ++i)
        record.writeVarInt(bits.getRawData()[i]);
    }
    for (const AsmDialectResourceHandle &handle : handles)
      if (absl::Status status = encodeResource(handle, record); !status.ok())
        return status;
    return absl::OkStatus();
  }

  StringRef getText() const { return text.str(); }

private:
  /// The mark keeps the text apart from text without it, and moves the stream's
  /// position, which tells printers whether anything was printed.
  void mark(char kind) {
    marks.push_back(text.size());
    stream << '\x01' << kind;
  }

  static bool isAlpha(char c) { return llvm::isAlpha(c); }
  static bool isAlnum(char c) { return llvm::isAlnum(c); }

  Record &record;
  SmallString<128> text;
  mutable llvm::raw_svector_ostream stream;
  SmallVector<size_t, 8> marks;
  SmallVector<Reference, 8> references;
  SmallVector<APFloat, 2> floats;
  SmallVector<AsmDialectResourceHandle, 1> handles;
  SmallVector<const void *, 4> printing;
};

/// How often the text, outside of quotes, has `token` at the begin of a word:
/// what a dialect printed by itself, past the printer.
unsigned countHidden(StringRef text, StringRef token) {
  // Almost always.
  if (!text.contains(token))
    return 0;
  unsigned count = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        quoted = false;
    } else if (text[i] == '"') {
      quoted = true;
    } else if (text.substr(i).starts_with(token)) {
      char before = i == 0 ? ' ' : text[i - 1];
      if (!llvm::isAlnum(before) && before != '_' && before != '.' &&
          before != '$')
        ++count;
    }
  }
  return count;
}

template <typename AttributeOrType>
absl::Status refuse(AttributeOrType value, const char *what, bool isNamed) {
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot encode ",
      std::is_same_v<AttributeOrType, Attribute> ? "attribute '" : "type '",
      isNamed ? describe(value) : std::string(),
      "' exactly: its dialect prints ", what,
      " in it as text and does not show it as a sub-element"));
}

template <typename AttributeOrType>
absl::Status encodePrintedImpl(AttributeOrType value, Record &record,
                               bool namesErrors) {
  constexpr bool isAttribute = std::is_same_v<AttributeOrType, Attribute>;
  Dialect &dialect = value.getDialect();
  record.writeByte(static_cast<uint8_t>(isAttribute ? Tag::PrintedAttribute
                                                    : Tag::PrintedType));
  record.writeString(dialect.getNamespace());
  if constexpr (isAttribute)
    record.writeString(value.getAbstractAttribute().getName());
  else
    record.writeString(value.getAbstractType().getName());

  RecordPrinter printer(record);
  if constexpr (isAttribute)
    dialect.printAttribute(value, printer);
  else
    dialect.printType(value, printer);
  if (absl::Status status = printer.finish(); !status.ok())
    return status;

  // Some keep parts in their storage that their sub-elements do not show, and
  // that their accessors do.
  if constexpr (isAttribute) {
    if (auto entry = dyn_cast<DataLayoutEntryInterface>(value)) {
      DataLayoutEntryKey key = entry.getKey();
      if (auto type = dyn_cast<Type>(key))
        record.writeType(type);
      else
        record.writeAttribute(cast<StringAttr>(key));
      record.writeAttribute(entry.getValue());
    }
  }

  // What the printer leaves out or prints by itself may still be a sub-element.
  unsigned distinctShown = 0;
  uint64_t elements = 0;
  value.walkImmediateSubElements(
      [&](Attribute attribute) {
        ++elements;
        record.writeAttribute(attribute);
        if (isa_and_nonnull<DistinctAttr>(attribute))
          ++distinctShown;
      },
      [&](Type type) {
        ++elements;
        record.writeType(type);
      });
  record.writeVarInt(elements);

  if (countHidden(printer.getText(), "distinct[") > distinctShown)
    return refuse(value, "a distinct attribute", namesErrors);
  if (countHidden(printer.getText(), "dense_resource<") != 0)
    return refuse(value, "a resource", namesErrors);
  return absl::OkStatus();
}

} // namespace

absl::Status detail::encodePrinted(Attribute attribute, Record &record,
                                   bool namesErrors) {
  return encodePrintedImpl(attribute, record, namesErrors);
}
absl::Status detail::encodePrinted(Type type, Record &record,
                                   bool namesErrors) {
  return encodePrintedImpl(type, record, namesErrors);
}

} // namespace ctxpool::codec

//===- BytecodeCheck.cpp - What MLIR's reader does not survive ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The walk follows the order in which MLIR's reader reads, so that what it
/// leaves to the reader is what the reader meets first. Every step returns
/// whether there is a next one: an error that MLIR diagnoses ends the walk and
/// is no error of it.
///
//===----------------------------------------------------------------------===//

#include "context_pool/ir/BytecodeCheck.h"

#include "context_pool/support/Thread.h"

#include "absl/strings/str_cat.h"
#include "mlir/Bytecode/Encoding.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OperationSupport.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace mlir;

namespace ctxpool::detail {
namespace {

/// A position in some of the bytes.
struct Cursor {
  const uint8_t *position = nullptr;
  const uint8_t *end = nullptr;

  uint64_t size() const { return end - position; }
  bool empty() const { return position == end; }

  bool readByte(uint8_t &value) {
    if (empty())
      return false;
    value = *position++;
    return true;
  }

  /// How many bytes of a number follow its first one, which says so by its
  /// trailing zeros.
  unsigned moreBytes() const { return llvm::countr_zero(*position | 0x100u); }

  bool readVarInt(uint64_t &value) {
    if (empty())
      return false;
    if (*position & 1) {
      value = *position++ >> 1;
      return true;
    }
    unsigned more = moreBytes();
    if (LLVM_LIKELY(size() > 8 && more != 8)) {
      value = llvm::support::endian::read64le(position);
      value = value << (56 - 8 * more) >> (57 - 7 * more);
      position += more + 1;
      return true;
    }
    if (size() <= more)
      return false;
    if (more == 8) {
      value = llvm::support::endian::read64le(position + 1);
    } else {
      value = 0;
      for (unsigned i = more + 1; i != 0; --i)
        value = value << 8 | position[i - 1];
      value >>= more + 1;
    }
    position += more + 1;
    return true;
  }

  bool readFlagged(uint64_t &value, bool &flag) {
    if (!readVarInt(value))
      return false;
    flag = value & 1;
    value >>= 1;
    return true;
  }

  bool skipVarInts(uint64_t count) {
    for (; count; --count) {
      if (empty())
        return false;
      unsigned more = moreBytes();
      if (size() <= more)
        return false;
      position += more + 1;
    }
    return true;
  }

  bool take(uint64_t length, Cursor &part) {
    if (length > size())
      return false;
    part = {position, position + length};
    position += length;
    return true;
  }
};

/// The fields of a dialect's attributes and types, by their codes. `a` an
/// attribute, `o` an optional one, `t` a type, `v` a number, `y` a byte; upper
/// case a list: `A` of attributes, `T` of types, `N` of pairs of attributes, `V`
/// of numbers, `Y` of bytes, and, where a byte says that they are there, `O` of
/// optional attributes and `W` of numbers. What follows `.` refers to nothing.
struct Encoding {
  llvm::StringLiteral dialect;
  llvm::ArrayRef<const char *> attributes;
  llvm::ArrayRef<const char *> types;
};

constexpr const char *builtinAttributes[] = {
    /*Array*/ "A",
    /*Dictionary*/ "N",
    /*String*/ ".",
    /*StringWithType*/ "vt",
    /*FlatSymbolRef*/ "a",
    /*SymbolRef*/ "aA",
    /*Type*/ "t",
    /*Unit*/ ".",
    /*Integer*/ "t.",
    /*Float*/ "t.",
    /*CallSiteLoc*/ "aa",
    /*FileLineColLoc*/ "a.",
    /*FusedLoc*/ "A",
    /*FusedLocWithMetadata*/ "Aa",
    /*NameLoc*/ "aa",
    /*UnknownLoc*/ ".",
    /*DenseResourceElements*/ "t.",
    /*DenseArray*/ "t.",
    /*DenseIntOrFPElements*/ "t.",
    /*DenseStringElements*/ "tv.",
    /*SparseElements*/ "taa",
    /*Distinct*/ "a",
    /*FileLineColRange*/ "aV"};
constexpr const char *builtinTypes[] = {
    /*Integer*/ ".",
    /*Index*/ ".",
    /*Function*/ "TT",
    /*BFloat16*/ ".",
    /*Float16*/ ".",
    /*Float32*/ ".",
    /*Float64*/ ".",
    /*Float80*/ ".",
    /*Float128*/ ".",
    /*Complex*/ "t",
    /*MemRef*/ "Vta",
    /*MemRefWithMemSpace*/ "aVta",
    /*None*/ ".",
    /*RankedTensor*/ "Vt",
    /*RankedTensorWithEncoding*/ "aVt",
    /*Tuple*/ "T",
    /*UnrankedMemRef*/ "t",
    /*UnrankedMemRefWithMemSpace*/ "at",
    /*UnrankedTensor*/ "t",
    /*Vector*/ "Vt",
    /*VectorWithScalableDims*/ "YVt"};
constexpr const char *llvmAttributes[] = {
    /*DIBasicType*/ ".",
    /*DICompileUnit*/ "avao.",
    /*DICompositeType*/ "oyvoovoovvvooooO",
    /*DIDerivedType*/ "voovvvvo",
    /*DIExpressionElem*/ "vW",
    /*DIExpression*/ "O",
    /*DIFile*/ ".",
    /*DIGlobalVariable*/ "oooava.",
    /*DIGlobalVariableExpression*/ "ao",
    /*DIImportedEntity*/ "vaaovoO",
    /*DILabel*/ "aoo.",
    /*DILexicalBlock*/ "ao.",
    /*DILexicalBlockFile*/ "ao.",
    /*DILocalVariable*/ "aoovvvo.",
    /*DINamespace*/ "oo.",
    /*DISubprogram*/ "oyoooooovvvoOO",
    /*DISubrange*/ "oooo",
    /*DISubroutineType*/ "vO",
    /*LoopAnnotation*/ "ooooooooooooooO"};
constexpr const char *quantTypes[] = {
    /*Reserved*/ ".",
    /*AnyQuantized*/ "vt.",
    /*AnyQuantizedWithExpressed*/ "vtt.",
    /*CalibratedQuantized*/ "t.",
    /*UniformQuantized*/ "vtt.",
    /*UniformQuantizedPerAxis*/ "vttvvvVV",
    /*UniformQuantizedSubChannel*/ "vttvvVVaa"};
constexpr Encoding encodings[] = {{"builtin", builtinAttributes, builtinTypes},
                                  {"llvm", llvmAttributes, {}},
                                  {"quant", {}, quantTypes}};

/// Codes of the builtin dialect that are looked at more closely.
enum AttributeCode : uint8_t {
  integerAttribute = 8,
  floatAttribute = 9,
  denseArray = 17,
  denseNumbers = 18,
  denseStrings = 19
};
enum TypeCode : uint8_t {
  integerType = 0,
  indexType = 1,
  firstFloatType = 3,
  lastFloatType = 8,
  complexType = 9,
  rankedTensor = 13,
  encodedTensor = 14,
  vector = 19,
  scalableVector = 20
};
constexpr unsigned floatBits[] = {16, 16, 32, 64, 80, 128};

/// How deep the parser of MLIR nests in the text of an attribute or type, or more:
/// the depth of brackets, and the operators of affine expressions, of which each
/// may nest in the one before.
uint64_t depthOfText(Cursor text) {
  uint64_t depth = 0, deepest = 0, operators = 0;
  llvm::StringRef whole(reinterpret_cast<const char *>(text.position),
                        text.end - text.position);
  if (whole.contains("affine_"))
    operators =
        llvm::count_if(
            whole, [](char c) { return c == '+' || c == '-' || c == '*'; }) +
        whole.count("mod") + whole.count("div");
  for (const uint8_t *at = text.position; at != text.end; ++at) {
    switch (*at) {
    case '<':
    case '(':
    case '[':
    case '{':
      deepest = std::max(deepest, ++depth);
      break;
    case '>':
      if (at != text.position && at[-1] == '-')
        break;
      [[fallthrough]];
    case ')':
    case ']':
    case '}':
      depth -= depth != 0;
      break;
    case '"':
      for (++at; at != text.end && *at != '"'; ++at)
        if (*at == '\\' && at + 1 != text.end)
          ++at;
      if (at == text.end)
        return deepest + operators;
      break;
    case '/':
      if (at + 1 != text.end && at[1] == '/')
        while (at + 1 != text.end && at[1] != '\n')
          ++at;
      break;
    default:
      break;
    }
  }
  return deepest + operators;
}

class Checker {
public:
  absl::StatusOr<BytecodeSummary> run(llvm::StringRef bytes) {
    (void)(readSections(bytes) && readStrings() && readProperties() &&
           readDialects() && readResources() && readEntries() &&
           checkContents() && checkReferences() && readOperations());
    if (!error.ok())
      return error;
    for (const Name &name : operationNames)
      if (name.hasProperties)
        summary.withProperties.push_back(name.name);
    return std::move(summary);
  }

private:
  template <typename... Parts>
  LLVM_ATTRIBUTE_NOINLINE bool refuse(const Parts &...parts) {
    error = absl::InvalidArgumentError(
        absl::StrCat("cannot read the serialized module: ", parts...));
    return false;
  }

  /// Whether there can be so many of them: each takes a byte at least, and MLIR
  /// allocates them before it reads the first.
  bool checkCount(uint64_t count, uint64_t bytes, llvm::StringRef what) {
    if (count <= bytes)
      return true;
    return refuse("it claims ", count, " ", what.str(), " in ", bytes,
                  " bytes");
  }

  //===--------------------------------------------------------------------===//
  // Sections
  //===--------------------------------------------------------------------===//

  bool readSection(Cursor &from, uint8_t &id, Cursor &contents) {
    uint64_t length, alignment;
    if (!from.readByte(id) || !from.readVarInt(length))
      return false;
    bool isAligned = id & 0x80;
    id &= 0x7f;
    if (id >= bytecode::Section::kNumSections)
      return false;
    if (isAligned) {
      if (!from.readVarInt(alignment))
        return false;
      if (!checkAlignment(alignment))
        return false;
      while (reinterpret_cast<uintptr_t>(from.position) & (alignment - 1)) {
        uint8_t padding;
        if (!from.readByte(padding) || padding != bytecode::kAlignmentByte)
          return false;
      }
    }
    return from.take(length, contents);
  }

  /// MLIR takes the low half of it.
  bool checkAlignment(uint64_t alignment) {
    if (alignment > UINT32_MAX)
      return refuse("an alignment of ", alignment, " bytes");
    return llvm::isPowerOf2_64(alignment);
  }

  bool readSections(llvm::StringRef bytes) {
    Cursor cursor{bytes.bytes_begin(), bytes.bytes_end()};
    Cursor mark, contents;
    if (!cursor.take(4, mark) || !cursor.readVarInt(version) ||
        version > bytecode::kVersion)
      return false;
    const void *zero = std::memchr(cursor.position, 0, cursor.size());
    if (!zero)
      return false;
    cursor.position = static_cast<const uint8_t *>(zero) + 1;
    while (!cursor.empty()) {
      uint8_t id;
      if (!readSection(cursor, id, contents) || sections[id])
        return false;
      sections[id] = contents;
    }
    for (auto id : {bytecode::Section::kString, bytecode::Section::kDialect,
                    bytecode::Section::kAttrType,
                    bytecode::Section::kAttrTypeOffset, bytecode::Section::kIR})
      if (!sections[id])
        return false;
    return version < bytecode::kNativePropertiesEncoding ||
           sections[bytecode::Section::kProperties];
  }

  /// The lengths come last string first; each counts the zero that ends it.
  bool readStrings() {
    Cursor cursor = *sections[bytecode::Section::kString];
    uint64_t count, length, total = 0;
    uint64_t room = cursor.size();
    if (!cursor.readVarInt(count))
      return false;
    if (!checkCount(count, cursor.size(), "strings"))
      return false;
    strings.resize(count);
    for (llvm::StringRef &string : llvm::reverse(strings)) {
      if (!cursor.readVarInt(length) || length > room - total)
        return false;
      if (length == 0)
        return refuse("a string without an end");
      total += length;
      string = llvm::StringRef(
          reinterpret_cast<const char *>(cursor.end - total), length - 1);
    }
    return cursor.size() == total;
  }

  bool readProperties() {
    if (!sections[bytecode::Section::kProperties])
      return true;
    Cursor cursor = *sections[bytecode::Section::kProperties];
    if (cursor.empty())
      return true;
    Cursor contents;
    uint64_t count, length;
    if (!cursor.readVarInt(count))
      return false;
    if (!checkCount(count, cursor.size(), "properties"))
      return false;
    for (uint64_t i = 0; i != count; ++i)
      if (!cursor.readVarInt(length) || !cursor.take(length, contents))
        return false;
    propertyCount = count;
    return cursor.empty();
  }

  bool readDialects() {
    Cursor cursor = *sections[bytecode::Section::kDialect];
    uint64_t count, index = 0, operations;
    if (!cursor.readVarInt(count))
      return false;
    if (!checkCount(count, cursor.size(), "dialects"))
      return false;
    dialects.resize(count);
    for (llvm::StringRef &dialect : dialects) {
      bool isVersioned = false;
      if (version < bytecode::kDialectVersioning
              ? !cursor.readVarInt(index)
              : !cursor.readFlagged(index, isVersioned))
        return false;
      if (index >= strings.size())
        return false;
      dialect = strings[index];
      summary.hasVersions |= isVersioned;
      uint8_t id;
      Cursor contents;
      if (isVersioned && (!readSection(cursor, id, contents) ||
                          id != bytecode::Section::kDialectVersions))
        return false;
    }
    if (version >= bytecode::kElideUnknownBlockArgLocation) {
      if (!cursor.readVarInt(operations))
        return false;
      if (!checkCount(operations, cursor.size(), "names of operations"))
        return false;
    }
    while (!cursor.empty()) {
      uint64_t dialect, names;
      if (!cursor.readVarInt(dialect) || dialect >= dialects.size() ||
          !cursor.readVarInt(names))
        return false;
      for (; names; --names) {
        bool wasRegistered = true;
        if (version >= bytecode::kNativePropertiesEncoding
                ? !cursor.readFlagged(index, wasRegistered)
                : !cursor.readVarInt(index))
          return false;
        if (index >= strings.size())
          return false;
        operationNames.push_back(
            {{dialects[dialect], strings[index], wasRegistered}, false});
      }
    }
    return true;
  }

  //===--------------------------------------------------------------------===//
  // Resources
  //===--------------------------------------------------------------------===//

  bool readResources() {
    const auto &data = sections[bytecode::Section::kResource];
    const auto &table = sections[bytecode::Section::kResourceOffset];
    if (!data || !table)
      return !data && !table;
    Cursor values = *data, cursor = *table;
    uint64_t groups, index;
    if (!cursor.readVarInt(groups))
      return false;
    for (; groups; --groups)
      if (!cursor.readVarInt(index) || index >= strings.size() ||
          !readResourceGroup(cursor, values))
        return false;
    while (!cursor.empty())
      if (!cursor.readVarInt(index) || index >= dialects.size() ||
          !readResourceGroup(cursor, values))
        return false;
    return true;
  }

  bool readResourceGroup(Cursor &cursor, Cursor &values) {
    uint64_t count, key, length, alignment;
    if (!cursor.readVarInt(count))
      return false;
    for (; count; --count) {
      uint8_t kind;
      Cursor value;
      if (!cursor.readVarInt(key) || key >= strings.size() ||
          !cursor.readVarInt(length) || !cursor.readByte(kind) ||
          !values.take(length, value))
        return false;
      // MLIR names the kind in the message, and has a name for these only.
      constexpr uint8_t blob = 0, lastKind = 2;
      if (kind > lastKind)
        return refuse("a resource of the kind ", unsigned(kind));
      if (kind == blob && !value.empty() &&
          (!value.readVarInt(alignment) || !checkAlignment(alignment)))
        return false;
    }
    return true;
  }

  //===--------------------------------------------------------------------===//
  // Attributes and types
  //===--------------------------------------------------------------------===//

  bool readEntries() {
    Cursor values = *sections[bytecode::Section::kAttrType];
    Cursor cursor = *sections[bytecode::Section::kAttrTypeOffset];
    uint64_t typeCount;
    if (!cursor.readVarInt(attributeCount) || !cursor.readVarInt(typeCount))
      return false;
    if (!checkCount(attributeCount, cursor.size(), "attributes") ||
        !checkCount(typeCount, cursor.size(), "types"))
      return false;
    entryCount = attributeCount + typeCount;
    firstReference.reserve(entryCount + 1);
    references.reserve(2 * entryCount);
    depths.reserve(entryCount);
    types.reserve(typeCount);
    builtins.reserve(attributeCount);
    return readEntryGroups(cursor, values, attributeCount) &&
           readEntryGroups(cursor, values, entryCount) && cursor.empty();
  }

  bool readEntryGroups(Cursor &cursor, Cursor &values, uint64_t last) {
    while (depths.size() != last) {
      uint64_t dialect, count, length;
      if (!cursor.readVarInt(dialect) || dialect >= dialects.size() ||
          !cursor.readVarInt(count))
        return false;
      if (count > last - depths.size())
        return refuse("more attributes or types than it has");
      const Encoding *encoding =
          llvm::find_if(encodings, [&](const Encoding &e) {
            return e.dialect == dialects[dialect];
          });
      if (encoding == std::end(encodings))
        encoding = nullptr;
      bool isBuiltin = encoding == encodings;
      for (; count; --count) {
        bool isEncoded;
        Cursor value;
        if (!cursor.readFlagged(length, isEncoded) ||
            !values.take(length, value))
          return false;
        bool isType = depths.size() >= attributeCount;
        if (isType)
          types.push_back({isBuiltin, isEncoded, value});
        else if (isBuiltin && isEncoded)
          builtins.push_back(value);
        firstReference.push_back(references.size());
        depths.push_back(isEncoded ? 0 : depthOfText(value));
        if (isEncoded && encoding &&
            !readReferences(value,
                            isType ? encoding->types : encoding->attributes))
          return false;
      }
    }
    return true;
  }

  /// Notes what an attribute or type refers to. Whatever is wrong with it, MLIR
  /// may never look at it.
  bool readReferences(Cursor value, llvm::ArrayRef<const char *> encoding) {
    uint64_t code, count, index;
    if (!value.readVarInt(code) || code >= encoding.size())
      return true;
    for (const char *field = encoding[code]; *field && *field != '.'; ++field) {
      count = 1;
      if (*field < 'a') {
        uint8_t isPresent = 1;
        if ((*field == 'O' || *field == 'W') && !value.readByte(isPresent))
          return true;
        if (!isPresent)
          continue;
        if (!value.readVarInt(count))
          return true;
        if (!checkCount(count, value.size(), "elements"))
          return false;
      }
      switch (*field) {
      case 'N':
        count *= 2;
        [[fallthrough]];
      case 'a':
      case 'A':
        for (; count; --count) {
          if (!value.readVarInt(index))
            return true;
          if (index < attributeCount)
            references.push_back(index);
        }
        break;
      case 'o':
      case 'O':
        for (; count; --count) {
          bool isPresent;
          if (!value.readFlagged(index, isPresent))
            return true;
          if (isPresent && index < attributeCount)
            references.push_back(index);
        }
        break;
      case 't':
      case 'T':
        for (; count; --count) {
          if (!value.readVarInt(index))
            return true;
          if (index < entryCount - attributeCount)
            references.push_back(attributeCount + index);
        }
        break;
      case 'y':
      case 'Y':
        if (count > value.size())
          return true;
        value.position += count;
        break;
      default:
        if (!value.skipVarInts(count))
          return true;
        break;
      }
    }
    return true;
  }

  //===--------------------------------------------------------------------===//
  // Contents of attributes
  //===--------------------------------------------------------------------===//

  /// The code of a type of the builtin dialect, and `value` behind it.
  bool readTypeCode(uint64_t index, uint64_t &code, Cursor &value) const {
    if (index >= types.size() || !types[index].isBuiltin ||
        !types[index].isEncoded)
      return false;
    value = types[index].value;
    return value.readVarInt(code);
  }

  /// Of a type that another dialect defines.
  static constexpr uint64_t unknownBits = UINT64_MAX;

  /// The bits of a number of the type, nothing where it is no number.
  std::optional<uint64_t> bitsOf(uint64_t index) const {
    if (index >= types.size() || !types[index].isBuiltin)
      return unknownBits;
    uint64_t code, part;
    Cursor value;
    if (!types[index].isEncoded) {
      // Of the builtin types without an encoding, the numbers are tf32, and
      // those of at most a byte, as f8E5M2.
      llvm::StringRef text(
          reinterpret_cast<const char *>(types[index].value.position),
          types[index].value.size());
      if (text.starts_with("f"))
        return 8;
      return text.starts_with("tf32") ? std::optional<uint64_t>(19)
                                      : std::nullopt;
    }
    if (!readTypeCode(index, code, value))
      return std::nullopt;
    if (code == integerType)
      return value.readVarInt(part) ? std::optional<uint64_t>(part >> 2)
                                    : std::nullopt;
    if (code == indexType)
      return 64;
    if (code >= firstFloatType && code <= lastFloatType)
      return floatBits[code - firstFloatType];
    // Complex numbers are no parts of another.
    uint64_t inner;
    Cursor unused;
    if (code != complexType || !value.readVarInt(part) ||
        (readTypeCode(part, inner, unused) && inner == complexType))
      return std::nullopt;
    std::optional<uint64_t> bits = bitsOf(part);
    return bits && *bits != unknownBits ? llvm::alignTo(*bits, 8) * 2 : bits;
  }

  /// The number of elements of a tensor or vector, and the type of one. Nothing
  /// where it is no such type, or none with a fixed shape.
  std::optional<uint64_t> elementsOf(uint64_t index, uint64_t &element) const {
    uint64_t code, count, size, total = 1;
    Cursor value;
    if (!readTypeCode(index, code, value))
      return std::nullopt;
    if (code == scalableVector) {
      if (!value.readVarInt(count) || count > value.size())
        return std::nullopt;
      value.position += count;
    } else if (code == encodedTensor) {
      if (!value.skipVarInts(1))
        return std::nullopt;
    } else if (code != rankedTensor && code != vector) {
      return std::nullopt;
    }
    if (!value.readVarInt(count))
      return std::nullopt;
    for (; count; --count) {
      // Its lowest bit is the sign.
      if (!value.readVarInt(size) || (size & 1))
        return std::nullopt;
      total = llvm::SaturatingMultiply(total, size >> 1);
    }
    if (!value.readVarInt(element))
      return std::nullopt;
    return total;
  }

  /// MLIR reads these as if they were whole.
  bool checkContents() {
    for (Cursor value : builtins) {
      uint64_t code, type, element, size;
      if (!value.readVarInt(code) || code < integerAttribute ||
          code > denseStrings || !value.readVarInt(type))
        continue;
      bool isBuiltin = type < types.size() && types[type].isBuiltin;
      Cursor blob;
      switch (code) {
      case integerAttribute:
      case floatAttribute: {
        std::optional<uint64_t> bits = bitsOf(type);
        if (bits == unknownBits)
          bits = 0;
        if (code == floatAttribute && isBuiltin && !bits)
          return refuse("a floating-point attribute of another type");
        if (bits && *bits > 64) {
          if (!value.readVarInt(size))
            return refuse("a number that ends early");
          if (!checkCount(size, value.size(), "words of a number") ||
              !value.skipVarInts(size))
            return error.ok() ? refuse("a number that ends early") : false;
        } else if (value.empty() ||
                   (bits && *bits > 8 && !value.skipVarInts(1))) {
          return refuse("a number that ends early");
        }
        break;
      }
      case denseArray: {
        uint64_t typeCode;
        Cursor unused;
        bool isEncoded = readTypeCode(type, typeCode, unused);
        std::optional<uint64_t> bits;
        if (!isEncoded || (typeCode != indexType && typeCode != complexType))
          bits = bitsOf(type);
        if (!value.readVarInt(size) || !value.readVarInt(element) ||
            !value.take(element, blob))
          continue;
        // Also asked for the bits of a type that has none.
        if (bits && *bits == unknownBits)
          return refuse("an array of a type that is not of the builtin "
                        "dialect");
        if (!bits || blob.size() != llvm::SaturatingMultiply(
                                        size, llvm::divideCeil(*bits, 8)))
          return refuse("an array of ", size, " numbers in ", blob.size(),
                        " bytes");
        break;
      }
      case denseNumbers: {
        if (!isBuiltin || !value.readVarInt(size) || !value.take(size, blob))
          continue;
        std::optional<uint64_t> elements = elementsOf(type, element);
        std::optional<uint64_t> bits;
        if (elements)
          bits = bitsOf(element);
        if (!bits)
          return refuse("dense elements of a type that has none");
        if (*bits == unknownBits)
          continue;
        uint64_t one = llvm::divideCeil(*bits, 8);
        uint64_t all = *bits == 1 ? llvm::divideCeil(*elements, 8)
                                  : llvm::SaturatingMultiply(*elements, one);
        // One of eight bits stands for all only where all are the same.
        bool isSplat =
            size == one && size != 0 &&
            (*bits != 1 || *blob.position == 0 || *blob.position == 0xff);
        if (!isSplat && size != all)
          return refuse(*elements, " dense elements in ", size, " bytes");
        break;
      }
      case denseStrings: {
        if (!isBuiltin || !value.readVarInt(size))
          continue;
        std::optional<uint64_t> elements = elementsOf(type, element);
        if (!elements)
          return refuse("dense elements of a type that has none");
        if (!size && !checkCount(*elements, value.size(), "strings"))
          return false;
        break;
      }
      default:
        break;
      }
    }
    return true;
  }

  /// Finds the depth of attributes and types, and those within themselves: MLIR
  /// would look for their end for ever.
  bool checkReferences() {
    firstReference.push_back(references.size());
    enum : uint8_t { isNew, isOpen, isDone };
    std::vector<uint8_t> states(entryCount, isNew);
    std::vector<std::pair<uint64_t, uint64_t>> path;
    for (uint64_t root = 0; root != entryCount; ++root) {
      if (states[root] != isNew)
        continue;
      // Most refer to nothing.
      if (firstReference[root] == firstReference[root + 1]) {
        states[root] = isDone;
        summary.attributes = std::max(summary.attributes, depths[root] + 1);
        continue;
      }
      states[root] = isOpen;
      path.push_back({root, firstReference[root]});
      while (!path.empty()) {
        auto &[entry, next] = path.back();
        if (next == firstReference[entry + 1]) {
          states[entry] = isDone;
          uint64_t done = depths[entry] + 1;
          summary.attributes = std::max(summary.attributes, done);
          path.pop_back();
          if (!path.empty()) {
            uint64_t &outer = depths[path.back().first];
            outer = std::max(outer, done);
          }
          continue;
        }
        uint64_t part = references[next++];
        if (states[part] == isOpen)
          return refuse("an attribute or type that is a part of itself");
        if (states[part] == isDone ||
            firstReference[part] == firstReference[part + 1]) {
          depths[entry] = std::max(depths[entry], depths[part] + 1);
          continue;
        }
        states[part] = isOpen;
        path.push_back({part, firstReference[part]});
      }
    }
    return true;
  }

  //===--------------------------------------------------------------------===//
  // Operations
  //===--------------------------------------------------------------------===//

  /// The regions of an operation, of which one is being read.
  struct Regions {
    uint64_t regions = 0;
    uint64_t blocks = 0;
    uint64_t operations = 0;
    /// Values of the region, and the next that is to be defined.
    uint64_t values = 0;
    uint64_t nextValue = 0;
    size_t firstOrder = 0;
    size_t outerOrders = 0;
    bool hasScope = false;
    bool hasCursor = false;
  };

  /// A stated order of a value's uses.
  struct UseOrder {
    uint64_t value;
    uint64_t largestUse;
  };

  bool readOperations() {
    cursors.push_back(*sections[bytecode::Section::kIR]);
    scopes.push_back(0);
    Regions top;
    bool hasArguments;
    if (!cursors.back().readFlagged(top.operations, hasArguments))
      return false;
    if (hasArguments)
      return refuse("arguments of the outermost block");
    top.regions = top.blocks = 1;
    stack.push_back(top);
    while (!stack.empty())
      if (!readNext() && (!error.ok() || !leaveSection()))
        return false;
    return true;
  }

  /// What MLIR finds wrong with a section it may not read at all, and what is
  /// behind it nevertheless: lazily.
  bool leaveSection() {
    for (bool isLeft = false; !stack.empty() && !isLeft; stack.pop_back()) {
      const Regions &left = stack.back();
      orders.resize(left.outerOrders);
      if (left.hasScope) {
        uses.resize(scopes.back());
        scopes.pop_back();
      }
      if (left.hasCursor)
        cursors.pop_back();
      isLeft = left.hasCursor;
    }
    return !stack.empty();
  }

  /// Reads an operation, or the head of a block or region.
  bool readNext() {
    Regions &top = stack.back();
    if (top.operations) {
      --top.operations;
      return readOperation(top);
    }
    if (top.blocks > 1) {
      --top.blocks;
      return readBlock(top);
    }
    if (top.blocks == 1) {
      top.blocks = 0;
      if (!closeRegion(top))
        return false;
      --top.regions;
    }
    if (top.regions)
      return readRegion(top);
    if (top.hasScope)
      scopes.pop_back();
    if (top.hasCursor)
      cursors.pop_back();
    stack.pop_back();
    return true;
  }

  bool readRegion(Regions &top) {
    Cursor &cursor = cursors.back();
    if (!cursor.readVarInt(top.blocks))
      return false;
    if (top.blocks == 0) {
      --top.regions;
      return true;
    }
    if (!cursor.readVarInt(top.values))
      return false;
    if (!checkCount(top.blocks, cursor.size(), "blocks") ||
        !checkCount(top.values, cursor.size(), "values"))
      return false;
    top.nextValue = uses.size();
    top.firstOrder = orders.size();
    uses.resize(uses.size() + top.values, 0);
    return readBlock(top);
  }

  /// All uses of the region's values are in it.
  bool closeRegion(const Regions &top) {
    // MLIR finds these as well, but not where it reads lazily.
    for (uint64_t value = top.nextValue; value < uses.size(); ++value)
      if (uses[value])
        return refuse("a use of a value that is not defined");
    for (size_t i = top.firstOrder; i != orders.size(); ++i) {
      uint64_t count = uses[orders[i].value];
      if (count > 1 && orders[i].largestUse >= count)
        return refuse("an order of ", count, " uses that has number ",
                      orders[i].largestUse);
    }
    orders.resize(top.firstOrder);
    uses.resize(uses.size() - top.values);
    return true;
  }

  bool readBlock(Regions &top) {
    Cursor &cursor = cursors.back();
    bool hasArguments;
    if (!cursor.readFlagged(top.operations, hasArguments))
      return false;
    if (!hasArguments)
      return true;
    uint64_t count, type;
    if (!cursor.readVarInt(count))
      return false;
    if (!checkCount(count, cursor.size(), "arguments"))
      return false;
    for (uint64_t i = 0; i != count; ++i) {
      bool hasLocation = true;
      if (version >= bytecode::kElideUnknownBlockArgLocation
              ? !cursor.readFlagged(type, hasLocation)
              : !cursor.readVarInt(type))
        return false;
      if (hasLocation && !cursor.skipVarInts(1))
        return false;
    }
    uint64_t first = top.nextValue;
    if (!defineValues(top, count))
      return false;
    uint8_t hasOrders = 0;
    if (version >= bytecode::kUseListOrdering && !cursor.readByte(hasOrders))
      return false;
    return !hasOrders || readOrders(cursor, first, count, count);
  }

  /// The next values of the region. Those that were used before get their uses
  /// in another order than others.
  bool defineValues(Regions &top, uint64_t count) {
    if (count > uses.size() - top.nextValue)
      return false;
    for (; count; --count)
      if (uses[top.nextValue++])
        summary.hasUsesInOrder = false;
    return true;
  }

  /// `defined`: of the values, those that the region has.
  bool readOrders(Cursor &cursor, uint64_t first, uint64_t values,
                  uint64_t defined) {
    summary.hasUsesInOrder = false;
    uint64_t count = 1, value = 0, indices, index;
    if (values > 1 && !cursor.readVarInt(count))
      return false;
    for (; count; --count) {
      bool isPairs;
      if ((values > 1 && !cursor.readVarInt(value)) ||
          !cursor.readFlagged(indices, isPairs))
        return false;
      if (value > 0 && value >= values)
        return refuse("an order of the uses of value ", value, " of ", values);
      uint64_t largest = 0;
      for (; indices; --indices) {
        if (!cursor.readVarInt(index))
          return false;
        largest = std::max(largest, index);
      }
      if (value < defined)
        orders.push_back({first + value, largest});
    }
    return true;
  }

  bool readOperation(Regions &top) {
    Cursor &cursor = cursors.back();
    uint64_t name, count, index;
    uint8_t mask;
    if (!cursor.readVarInt(name) || name >= operationNames.size() ||
        !cursor.readByte(mask) || !cursor.skipVarInts(1))
      return false;
    if ((mask & bytecode::OpEncodingMask::kHasAttrs) && !cursor.skipVarInts(1))
      return false;
    if ((mask & bytecode::OpEncodingMask::kHasProperties) &&
        (version < bytecode::kNativePropertiesEncoding ||
         !cursor.readVarInt(index) || index >= propertyCount))
      return false;
    if (mask & bytecode::OpEncodingMask::kHasProperties)
      operationNames[name].hasProperties = true;

    uint64_t results = 0;
    if (mask & bytecode::OpEncodingMask::kHasResults) {
      if (!cursor.readVarInt(results))
        return false;
      if (!checkCount(results, cursor.size(), "results"))
        return false;
      if (!cursor.skipVarInts(results))
        return false;
    }
    if (mask & bytecode::OpEncodingMask::kHasOperands) {
      if (!cursor.readVarInt(count))
        return false;
      if (!checkCount(count, cursor.size(), "operands"))
        return false;
      uint64_t scope = scopes.back();
      for (; count; --count) {
        if (!cursor.readVarInt(index) || index >= uses.size() - scope)
          return false;
        ++uses[scope + index];
      }
    }
    if (mask & bytecode::OpEncodingMask::kHasSuccessors) {
      if (!cursor.readVarInt(count))
        return false;
      if (!checkCount(count, cursor.size(), "successors"))
        return false;
      if (!cursor.skipVarInts(count))
        return false;
    }
    // The results of operations outside of all regions have no numbers.
    uint64_t first = top.nextValue;
    uint64_t defined = top.values ? results : 0;
    if ((mask & bytecode::OpEncodingMask::kHasUseListOrders) &&
        version >= bytecode::kUseListOrdering &&
        !readOrders(cursor, first, results,
                    std::min(defined, uses.size() - first)))
      return false;
    uint64_t regions = 0;
    bool isIsolated = false;
    if (mask & bytecode::OpEncodingMask::kHasInlineRegions) {
      if (!cursor.readFlagged(regions, isIsolated))
        return false;
      if (!checkCount(regions, cursor.size(), "regions"))
        return false;
    }
    if (!defineValues(top, defined))
      return false;
    if (regions == 0)
      return true;

    Regions nested;
    nested.regions = regions;
    nested.hasScope = isIsolated;
    nested.outerOrders = orders.size();
    if (isIsolated) {
      scopes.push_back(uses.size());
      if (version >= bytecode::kLazyLoading) {
        uint8_t id;
        Cursor contents;
        if (!readSection(cursor, id, contents) || id != bytecode::Section::kIR)
          return false;
        nested.hasCursor = true;
        cursors.push_back(contents);
      }
    }
    stack.push_back(nested);
    summary.regions = std::max<uint64_t>(summary.regions, stack.size());
    return true;
  }

  absl::Status error;
  BytecodeSummary summary;
  uint64_t version = 0;
  std::optional<Cursor> sections[bytecode::Section::kNumSections];
  std::vector<llvm::StringRef> strings;
  std::vector<llvm::StringRef> dialects;
  struct Name {
    BytecodeSummary::OperationName name;
    bool hasProperties;
  };
  std::vector<Name> operationNames;
  uint64_t propertyCount = 0;

  /// Entries are all attributes, and then all types: what each refers to, and
  /// how deep it nests.
  uint64_t attributeCount = 0;
  uint64_t entryCount = 0;
  std::vector<uint64_t> firstReference;
  std::vector<uint64_t> references;
  std::vector<uint64_t> depths;
  struct TypeEntry {
    bool isBuiltin;
    bool isEncoded;
    Cursor value;
  };
  std::vector<TypeEntry> types;
  /// The builtin dialect's attributes.
  std::vector<Cursor> builtins;

  std::vector<Cursor> cursors;
  std::vector<Regions> stack;
  /// How often each visible value is used; where each isolated scope begins.
  std::vector<uint64_t> uses;
  std::vector<uint64_t> scopes;
  std::vector<UseOrder> orders;
};

} // namespace

absl::StatusOr<BytecodeSummary> checkBytecode(llvm::StringRef bytes) {
  return Checker().run(bytes);
}

absl::Status checkOperations(const BytecodeSummary &summary,
                             MLIRContext &context) {
  for (const BytecodeSummary::OperationName &operation :
       summary.withProperties) {
    context.getOrLoadDialect(operation.dialect);
    std::string name = operation.dialect.str();
    if (!operation.name.empty())
      name += "." + operation.name.str();
    if (RegisteredOperationName::lookup(name, &context).has_value() ==
        operation.wasRegistered)
      continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot read the serialized module: the operation '", name, "' is ",
        operation.wasRegistered ? "registered" : "unregistered",
        " where it was written, and ",
        operation.wasRegistered ? "not" : "registered",
        " in this context, so that its properties cannot be read"));
  }
  return absl::OkStatus();
}

absl::Status runWithStack(const BytecodeSummary &summary,
                          const std::function<void()> &body) {
  // Measured with MLIR 22.1: 124 bytes to read a region, and 761 to verify an
  // operation in another one that is isolated; for an attribute up to 2.1 KiB,
  // where it is an optional part of the outer one.
  constexpr uint64_t bytesOfAttribute = 4096, bytesOfRegion = 2048;
  constexpr uint64_t largest = uint64_t(4) << 30;
  uint64_t bytes = llvm::SaturatingAdd(
      llvm::SaturatingMultiply(summary.attributes, bytesOfAttribute),
      llvm::SaturatingMultiply(summary.regions, bytesOfRegion));
  if (bytes > largest)
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot read the serialized module: it nests ", summary.attributes,
        " attributes and ", summary.regions, " regions"));
  return runWithStack(bytes, body);
}

} // namespace ctxpool::detail

//===- DecoderPrinted.cpp - Parsing what a dialect printed ----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/codec/DecoderDetail.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/IntegerSet.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/APInt.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Allocator.h"
#include "llvm/Support/Base64.h"
#include "llvm/Support/StringSaver.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>

using namespace mlir;

namespace ctxpool::codec {
namespace {

/// The printed form of a record: text with marks, and what the marks stand for.
struct PrintedForm {
  std::string text;
  std::vector<size_t> marks;
  SmallVector<APFloat, 2> floats;
};

/// Reads the bytes that the encoder wrote, up to the floats; what follows is
/// repeated there only for the comparison of records.
class PrintedFormReader {
public:
  explicit PrintedFormReader(ArrayRef<uint8_t> source) : bytes(source) {}

  bool read(PrintedForm &form) {
    StringRef text, skipped;
    uint64_t count = 0;
    if (bytes.empty())
      return false;
    ++next;
    if (!readString(skipped) || !readString(skipped) || !readString(text) ||
        !readVarInt(count) || count > text.size())
      return false;
    form.text = text.str();
    size_t floats = 0;
    for (uint64_t i = 0; i != count; ++i) {
      uint64_t place = 0;
      if (!readVarInt(place) || place + 1 >= text.size())
        return false;
      form.marks.push_back(place);
      floats += text[place + 1] == 'f';
    }
    for (size_t i = 0; i != floats; ++i) {
      if (next == bytes.size())
        return false;
      const llvm::fltSemantics &semantics = APFloat::EnumToSemantics(
          static_cast<APFloat::Semantics>(bytes[next++]));
      unsigned width = APFloat::getSizeInBits(semantics);
      SmallVector<uint64_t, 2> words(APInt::getNumWords(width));
      for (uint64_t &word : words)
        if (!readVarInt(word))
          return false;
      form.floats.push_back(APFloat(semantics, APInt(width, words)));
    }
    return true;
  }

private:
  bool readVarInt(uint64_t &result) {
    result = 0;
    for (unsigned shift = 0; shift < 64 && next != bytes.size(); shift += 7) {
      uint8_t byte = bytes[next++];
      result |= uint64_t(byte & 0x7F) << shift;
      if (!(byte & 0x80))
        return true;
    }
    return false;
  }
  bool readString(StringRef &result) {
    uint64_t size = 0;
    if (!readVarInt(size) || bytes.size() - next < size)
      return false;
    result = {reinterpret_cast<const char *>(bytes.data()) + next,
              size_t(size)};
    next += size;
    return true;
  }

  ArrayRef<uint8_t> bytes;
  size_t next = 0;
};

bool isLetter(char c) { return llvm::isAlpha(c) || c == '_'; }
bool isOfWord(char c) {
  return llvm::isAlnum(c) || c == '_' || c == '$' || c == '.';
}

/// Lets a dialect parse what the encoder had it print. A mark in the text is
/// the attribute, type, resource or number that stood there, exactly, and not
/// text to be parsed. Where a dialect prints something as a whole and parses it
/// piece by piece, the mark is replaced by MLIR's own text for it.
class MarkedTextParser final : public DialectAsmParser {
public:
  MarkedTextParser(PrintedForm form, ArrayRef<Reference> allReferences,
                   ArrayRef<AsmDialectResourceHandle> allHandles,
                   MLIRContext *context)
      : builder(context), location(UnknownLoc::get(context)),
        references(allReferences), handles(allHandles),
        floats(std::move(form.floats)), saver(allocator) {
    // Marks carry their number, so that text may be inserted between them.
    size_t begin = 0;
    uint32_t ofReferences = 0, ofFloats = 0, ofHandles = 0;
    for (size_t place : form.marks) {
      text.append(form.text, begin, place - begin);
      char kind = form.text[place + 1];
      uint32_t number = kind == 'f'   ? ofFloats++
                        : kind == 'r' ? ofHandles++
                                      : ofReferences++;
      text += markByte;
      text += kind;
      text.append(reinterpret_cast<const char *>(&number), sizeof(number));
      begin = place + 2;
    }
    text.append(form.text, begin, std::string::npos);
    isConsistent = ofReferences <= references.size() &&
                   ofHandles <= handles.size() && ofFloats <= floats.size();
  }

  bool isValid() const { return isConsistent; }
  bool isAtEnd() {
    skipSpace();
    return position == text.size();
  }

  Builder &getBuilder() const override { return builder; }
  SMLoc getNameLoc() const override { return SMLoc(); }
  SMLoc getCurrentLocation() override { return SMLoc(); }
  Location getEncodedSourceLoc(SMLoc) override { return location; }
  InFlightDiagnostic emitError(SMLoc, const Twine &message) override {
    return mlir::emitError(location, message);
  }
  StringRef getFullSymbolSpec() const override { return text; }

  // Punctuation.
#define CTXPOOL_PARSE_PUNCTUATION(NAME, SPELLING)                              \
  ParseResult parse##NAME() override { return parsePunctuation(SPELLING); }    \
  ParseResult parseOptional##NAME() override {                                 \
    return success(consume(SPELLING));                                         \
  }
  CTXPOOL_PARSE_PUNCTUATION(Arrow, "->")
  CTXPOOL_PARSE_PUNCTUATION(LBrace, "{")
  CTXPOOL_PARSE_PUNCTUATION(RBrace, "}")
  CTXPOOL_PARSE_PUNCTUATION(Colon, ":")
  CTXPOOL_PARSE_PUNCTUATION(Comma, ",")
  CTXPOOL_PARSE_PUNCTUATION(Equal, "=")
  CTXPOOL_PARSE_PUNCTUATION(Less, "<")
  CTXPOOL_PARSE_PUNCTUATION(Greater, ">")
  CTXPOOL_PARSE_PUNCTUATION(Question, "?")
  CTXPOOL_PARSE_PUNCTUATION(Plus, "+")
  CTXPOOL_PARSE_PUNCTUATION(Slash, "/")
  CTXPOOL_PARSE_PUNCTUATION(Minus, "-")
  CTXPOOL_PARSE_PUNCTUATION(Star, "*")
  CTXPOOL_PARSE_PUNCTUATION(VerticalBar, "|")
  CTXPOOL_PARSE_PUNCTUATION(LParen, "(")
  CTXPOOL_PARSE_PUNCTUATION(RParen, ")")
  CTXPOOL_PARSE_PUNCTUATION(LSquare, "[")
  CTXPOOL_PARSE_PUNCTUATION(RSquare, "]")
  CTXPOOL_PARSE_PUNCTUATION(Ellipsis, "...")
#undef CTXPOOL_PARSE_PUNCTUATION

  // Literals.
  ParseResult parseOptionalString(std::string *string) override {
    if (auto attribute = peekAttribute<StringAttr>()) {
      skipMark();
      if (string)
        *string = attribute.getValue().str();
      return success();
    }
    if (!isNext('"'))
      return failure();
    size_t end = position + 1;
    std::string value;
    for (; end < text.size() && text[end] != '"'; ++end) {
      char c = text[end];
      if (c != '\\') {
        value += c;
        continue;
      }
      if (++end == text.size())
        return failure();
      switch (c = text[end]) {
      case 'n':
        value += '\n';
        break;
      case 't':
        value += '\t';
        break;
      case '"':
      case '\\':
        value += c;
        break;
      default:
        if (end + 1 >= text.size() || !llvm::isHexDigit(c) ||
            !llvm::isHexDigit(text[end + 1]))
          return failure();
        value += static_cast<char>(llvm::hexFromNibbles(c, text[end + 1]));
        ++end;
      }
    }
    if (end >= text.size())
      return failure();
    position = end + 1;
    if (string)
      *string = std::move(value);
    return success();
  }
  ParseResult parseBase64Bytes(std::vector<char> *bytes) override {
    std::string encoded;
    if (parseOptionalString(&encoded))
      return emitError(SMLoc(), "expected string");
    if (llvm::errorToBool(llvm::decodeBase64(encoded, *bytes)))
      return emitError(SMLoc(), "expected base64 data");
    return success();
  }
  ParseResult parseFloat(double &result) override {
    APFloat value(0.0);
    if (parseFloat(APFloat::IEEEdouble(), value))
      return failure();
    result = value.convertToDouble();
    return success();
  }
  ParseResult parseFloat(const llvm::fltSemantics &semantics,
                         APFloat &result) override {
    if (char kind = peekMark(); kind == 'f') {
      result = floats[markNumber()];
      skipMark();
      bool losesInfo = false;
      if (&result.getSemantics() != &semantics)
        result.convert(semantics, APFloat::rmNearestTiesToEven, &losesInfo);
      return success(!losesInfo);
    }
    if (auto attribute = peekAttribute<FloatAttr>()) {
      skipMark();
      result = attribute.getValue();
      return success(&result.getSemantics() == &semantics);
    }
    expandMark();
    skipSpace();
    StringRef rest = getRest();
    size_t size = rest.starts_with("-") ? 1 : 0;
    bool isHex = rest.substr(size).starts_with_insensitive("0x");
    while (size < rest.size() &&
           (llvm::isAlnum(rest[size]) || rest[size] == '.' ||
            ((rest[size] == '+' || rest[size] == '-') && !isHex && size != 0 &&
             llvm::toLower(rest[size - 1]) == 'e')))
      ++size;
    if (isHex) {
      APInt bits;
      if (rest.substr(2, size - 2).getAsInteger(16, bits) ||
          bits.getActiveBits() > APFloat::getSizeInBits(semantics))
        return emitError(SMLoc(), "expected floating point literal");
      result = APFloat(semantics,
                       bits.zextOrTrunc(APFloat::getSizeInBits(semantics)));
    } else {
      APFloat value(semantics);
      auto status = value.convertFromString(rest.take_front(size),
                                            APFloat::rmNearestTiesToEven);
      if (!status) {
        llvm::consumeError(status.takeError());
        return emitError(SMLoc(), "expected floating point literal");
      }
      result = value;
    }
    position += size;
    return success();
  }
  OptionalParseResult parseOptionalInteger(APInt &result) override {
    return parseOptionalIntegerImpl(result, /*allowsHex=*/true);
  }
  OptionalParseResult parseOptionalDecimalInteger(APInt &result) override {
    return parseOptionalIntegerImpl(result, /*allowsHex=*/false);
  }

  ParseResult parseCommaSeparatedList(Delimiter delimiter,
                                      function_ref<ParseResult()> parseElement,
                                      StringRef) override {
    StringRef open, close;
    bool isOptional = false;
    switch (delimiter) {
    case Delimiter::None:
      break;
    case Delimiter::OptionalParen:
      isOptional = true;
      [[fallthrough]];
    case Delimiter::Paren:
      open = "(", close = ")";
      break;
    case Delimiter::OptionalSquare:
      isOptional = true;
      [[fallthrough]];
    case Delimiter::Square:
      open = "[", close = "]";
      break;
    case Delimiter::OptionalLessGreater:
      isOptional = true;
      [[fallthrough]];
    case Delimiter::LessGreater:
      open = "<", close = ">";
      break;
    case Delimiter::OptionalBraces:
      isOptional = true;
      [[fallthrough]];
    case Delimiter::Braces:
      open = "{", close = "}";
      break;
    }
    if (!open.empty()) {
      if (isOptional && !consume(open))
        return success();
      if (!isOptional && parsePunctuation(open))
        return failure();
      if (consume(close))
        return success();
    }
    do {
      if (parseElement())
        return failure();
    } while (consume(","));
    return close.empty() ? ParseResult(success()) : parsePunctuation(close);
  }

  // Words.
  using AsmParser::parseKeyword;
  ParseResult parseKeyword(StringRef keyword, const Twine &message) override {
    if (succeeded(parseOptionalKeyword(keyword)))
      return success();
    if (expandMark() && succeeded(parseOptionalKeyword(keyword)))
      return success();
    return emitError(SMLoc(), "expected '" + keyword + "'" + message);
  }
  ParseResult parseOptionalKeyword(StringRef keyword) override {
    if (peekWord() != keyword || keyword.empty())
      return failure();
    position += keyword.size();
    return success();
  }
  ParseResult parseOptionalKeyword(StringRef *keyword) override {
    StringRef word = peekWord();
    if (word.empty())
      return failure();
    position += word.size();
    *keyword = saver.save(word);
    return success();
  }
  ParseResult parseOptionalKeyword(StringRef *keyword,
                                   ArrayRef<StringRef> allowed) override {
    if (!llvm::is_contained(allowed, peekWord()))
      return failure();
    return parseOptionalKeyword(keyword);
  }
  ParseResult parseOptionalKeywordOrString(std::string *result) override {
    StringRef keyword;
    if (succeeded(parseOptionalKeyword(&keyword))) {
      *result = keyword.str();
      return success();
    }
    return parseOptionalString(result);
  }
  ParseResult parseKeywordOrCompletion(StringRef *keyword) override {
    if (succeeded(parseOptionalKeyword(keyword)) ||
        (expandMark() && succeeded(parseOptionalKeyword(keyword))))
      return success();
    return emitError(SMLoc(), "expected valid keyword");
  }
  void codeCompleteExpectedTokens(ArrayRef<StringRef>) override {}
  ParseResult parseOptionalSymbolName(StringAttr &result) override {
    if (auto attribute = peekAttribute<FlatSymbolRefAttr>()) {
      skipMark();
      result = attribute.getAttr();
      return success();
    }
    if (!isNext('@'))
      return failure();
    ++position;
    std::string name;
    if (parseOptionalKeywordOrString(&name))
      return emitError(SMLoc(), "expected a symbol name");
    result = builder.getStringAttr(name);
    return success();
  }

  // Attributes.
  using AsmParser::parseAttribute;
  ParseResult parseAttribute(Attribute &result, Type type) override {
    if (Attribute attribute = peekAttribute<Attribute>()) {
      skipMark();
      result = attribute;
      return success();
    }
    if (peekMark() == 't') {
      Type value;
      if (parseType(value))
        return failure();
      result = TypeAttr::get(value);
      return success();
    }
    result = parseEmbedded<Attribute>([&](StringRef rest, size_t *size) {
      return mlir::parseAttribute(rest, getContext(), type, size);
    });
    return success(bool(result));
  }
  ParseResult parseCustomAttributeWithFallback(
      Attribute &result, Type type,
      function_ref<ParseResult(Attribute &, Type)> parse) override {
    if (peekAttribute<Attribute>() || isNext('#'))
      return parseAttribute(result, type);
    return parse(result, type);
  }
  OptionalParseResult parseOptionalAttribute(Attribute &result,
                                             Type type) override {
    if (peekMark() == 'f' || peekMark() == 'r')
      return std::nullopt;
    if (!peekMark() && !beginsAttribute()) {
      Type value;
      OptionalParseResult parsed = parseOptionalType(value);
      if (parsed.has_value() && succeeded(*parsed))
        result = TypeAttr::get(value);
      return parsed;
    }
    return parseAttribute(result, type);
  }
  OptionalParseResult parseOptionalAttribute(ArrayAttr &result,
                                             Type type) override {
    return parseOptionalOfKind(result, type, '[');
  }
  OptionalParseResult parseOptionalAttribute(StringAttr &result,
                                             Type type) override {
    return parseOptionalOfKind(result, type, '"');
  }
  OptionalParseResult parseOptionalAttribute(SymbolRefAttr &result,
                                             Type type) override {
    return parseOptionalOfKind(result, type, '@');
  }
  ParseResult parseOptionalAttrDict(NamedAttrList &result) override {
    if (auto dictionary = peekAttribute<DictionaryAttr>()) {
      skipMark();
      for (NamedAttribute entry : dictionary)
        result.push_back(entry);
      return success();
    }
    if (!isNext('{'))
      return success();
    return parseCommaSeparatedList(
        Delimiter::Braces,
        [&]() -> ParseResult {
          std::string name;
          if (parseOptionalKeywordOrString(&name))
            return emitError(SMLoc(), "expected attribute name");
          Attribute value = builder.getUnitAttr();
          if (consume("=") && parseAttribute(value, Type()))
            return failure();
          result.push_back(builder.getNamedAttr(name, value));
          return success();
        },
        {});
  }
  ParseResult parseOptionalAttrDictWithKeyword(NamedAttrList &result) override {
    if (failed(parseOptionalKeyword("attributes")))
      return success();
    return parseOptionalAttrDict(result);
  }

  // Affine expressions.
  ParseResult parseAffineMap(AffineMap &result) override {
    if (auto attribute = peekAttribute<AffineMapAttr>()) {
      skipMark();
      result = attribute.getValue();
      return success();
    }
    SmallVector<std::pair<StringRef, AffineExpr>> names;
    unsigned dimensions = 0, symbols = 0;
    SmallVector<AffineExpr> results;
    if (parseAffineNames(names, dimensions, symbols) || parseArrow() ||
        parseCommaSeparatedList(
            Delimiter::Paren,
            [&] { return parseAffineExpr(names, results.emplace_back()); }, {}))
      return failure();
    result = AffineMap::get(dimensions, symbols, results, getContext());
    return success();
  }
  ParseResult parseIntegerSet(IntegerSet &result) override {
    if (auto attribute = peekAttribute<IntegerSetAttr>()) {
      skipMark();
      result = attribute.getValue();
      return success();
    }
    return emitError(SMLoc(), "expected an integer set");
  }
  ParseResult
  parseAffineExpr(ArrayRef<std::pair<StringRef, AffineExpr>> symbols,
                  AffineExpr &result) override {
    return parseAffineSum(symbols, result, 0);
  }

  // Types.
  using AsmParser::parseType;
  ParseResult parseType(Type &result) override {
    if (peekMark() == 't') {
      result = references[markNumber()].getType();
      skipMark();
      return success(bool(result));
    }
    if (auto attribute = peekAttribute<TypeAttr>()) {
      skipMark();
      result = attribute.getValue();
      return success();
    }
    result = parseEmbedded<Type>([&](StringRef rest, size_t *size) {
      return mlir::parseType(rest, getContext(), size);
    });
    return success(bool(result));
  }
  ParseResult parseCustomTypeWithFallback(
      Type &result, function_ref<ParseResult(Type &)> parse) override {
    if (peekMark() == 't' || isNext('!'))
      return parseType(result);
    return parse(result);
  }
  OptionalParseResult parseOptionalType(Type &result) override {
    if (peekMark() != 't' && !peekAttribute<TypeAttr>() && !beginsType())
      return std::nullopt;
    return parseType(result);
  }
  ParseResult parseArrowTypeList(SmallVectorImpl<Type> &result) override {
    if (parseArrow())
      return failure();
    return parseTypesAfterArrow(result);
  }
  ParseResult
  parseOptionalArrowTypeList(SmallVectorImpl<Type> &result) override {
    return consume("->") ? parseTypesAfterArrow(result)
                         : ParseResult(success());
  }
  using AsmParser::parseColonType;
  ParseResult parseColonType(Type &result) override {
    return failure(parseColon() || parseType(result));
  }
  ParseResult parseColonTypeList(SmallVectorImpl<Type> &result) override {
    return failure(parseColon() || parseTypes(result, Delimiter::None));
  }
  ParseResult
  parseOptionalColonTypeList(SmallVectorImpl<Type> &result) override {
    return consume(":") ? parseTypes(result, Delimiter::None)
                        : ParseResult(success());
  }
  ParseResult parseDimensionList(SmallVectorImpl<int64_t> &dimensions,
                                 bool allowDynamic,
                                 bool withTrailingX) override {
    for (;;) {
      skipSpace();
      StringRef rest = getRest();
      int64_t dimension = 0;
      if (allowDynamic && rest.starts_with("?")) {
        dimension = ShapedType::kDynamic;
        rest = rest.drop_front();
      } else if (rest.empty() || !llvm::isDigit(rest.front())) {
        return success(withTrailingX || dimensions.empty());
      } else if (rest.consumeInteger(10, dimension)) {
        return emitError(SMLoc(), "expected a dimension");
      }
      dimensions.push_back(dimension);
      position = text.size() - rest.size();
      if (!isNext('x')) {
        if (withTrailingX)
          return emitError(SMLoc(), "expected 'x' in dimension list");
        return success();
      }
      ++position;
    }
  }
  ParseResult parseXInDimensionList() override {
    if (!isNext('x'))
      return emitError(SMLoc(), "expected 'x' in dimension list");
    ++position;
    return success();
  }

private:
  static constexpr char markByte = '\x01';
  static constexpr size_t markSize = 2 + sizeof(uint32_t);

  FailureOr<AsmDialectResourceHandle>
  parseResourceHandle(Dialect *dialect) override {
    if (peekMark() != 'r')
      return emitError(SMLoc(), "expected a resource");
    const AsmDialectResourceHandle &handle = handles[markNumber()];
    skipMark();
    if (handle.getDialect() != dialect)
      return emitError(SMLoc(), "a resource of another dialect");
    return handle;
  }
  LogicalResult pushCyclicParsing(const void *pointer) override {
    if (llvm::is_contained(parsing, pointer))
      return failure();
    parsing.push_back(pointer);
    return success();
  }
  void popCyclicParsing() override { parsing.pop_back(); }

  StringRef getRest() const { return StringRef(text).substr(position); }
  void skipSpace() {
    while (position != text.size() && llvm::isSpace(text[position]))
      ++position;
  }
  bool isNext(char c) {
    skipSpace();
    return position != text.size() && text[position] == c;
  }
  bool consume(StringRef spelling) {
    skipSpace();
    StringRef rest = getRest();
    if (!rest.starts_with(spelling))
      return false;
    // These begin longer tokens.
    if ((spelling == ":" && rest.starts_with("::")) ||
        (spelling == "-" && rest.starts_with("->")))
      return false;
    position += spelling.size();
    return true;
  }
  ParseResult parsePunctuation(StringRef spelling) {
    if (consume(spelling) || (expandMark() && consume(spelling)))
      return success();
    return emitError(SMLoc(), "expected '" + spelling + "'");
  }

  /// The word at the position, empty where there is none.
  StringRef peekWord() {
    skipSpace();
    StringRef rest = getRest();
    if (rest.empty() || !isLetter(rest.front()))
      return {};
    return rest.take_while(isOfWord);
  }

  /// The kind of the mark at the position, 0 where there is none.
  char peekMark() {
    skipSpace();
    return position + markSize <= text.size() && text[position] == markByte
               ? text[position + 1]
               : 0;
  }
  uint32_t markNumber() const {
    uint32_t number = 0;
    std::memcpy(&number, text.data() + position + 2, sizeof(number));
    return number;
  }
  void skipMark() { position += markSize; }
  template <typename T>
  T peekAttribute() {
    char kind = peekMark();
    if (kind != 'a' && kind != 'w')
      return T();
    return llvm::dyn_cast_or_null<T>(references[markNumber()].getAttribute());
  }

  std::string textOfMark() {
    std::string replacement;
    llvm::raw_string_ostream stream(replacement);
    switch (peekMark()) {
    case 'a':
      references[markNumber()].getAttribute().print(stream);
      break;
    case 'w':
      references[markNumber()].getAttribute().print(stream,
                                                    /*elideType=*/true);
      break;
    case 't':
      references[markNumber()].getType().print(stream);
      break;
    case 'f': {
      SmallString<32> digits;
      floats[markNumber()].toString(digits);
      stream << digits;
      break;
    }
    case 'r':
      if (auto *blob =
              dyn_cast<DenseResourceElementsHandle>(&handles[markNumber()]))
        stream << blob->getKey();
      break;
    default:
      break;
    }
    return replacement;
  }
  /// Replaces the mark at the position by text. False: there is none.
  bool expandMark() {
    if (!peekMark())
      return false;
    text.replace(position, markSize, textOfMark());
    return true;
  }

  /// Gives the text to MLIR's parser, that ends where what it parses does.
  template <typename T, typename Parse>
  T parseEmbedded(Parse parse) {
    skipSpace();
    // Most often no mark is in what is parsed.
    size_t begin = position, size = 0;
    size_t mark = text.find(markByte, begin);
    {
      // What the first try says is of no use if the second one succeeds.
      ScopedDiagnosticHandler quiet(getContext(), [](Diagnostic &) {});
      if (T result = parse(getRest(), &size)) {
        if (mark == std::string::npos || begin + size <= mark) {
          position = begin + size;
          return result;
        }
      }
    }
    if (mark == std::string::npos)
      return parse(getRest(), &size);
    for (; mark != std::string::npos; mark = text.find(markByte, mark)) {
      position = mark;
      if (!expandMark())
        break;
    }
    position = begin;
    T result = parse(getRest(), &size);
    position += size;
    return result;
  }

  bool beginsAttribute() {
    skipSpace();
    StringRef rest = getRest();
    if (rest.empty())
      return false;
    if (llvm::isDigit(rest.front()) || StringRef("@#\"[{-").contains(rest[0]))
      return !rest.starts_with("->");
    static constexpr StringLiteral words[] = {
        "affine_map",     "affine_set", "array", "dense",
        "dense_resource", "distinct",   "false", "loc",
        "sparse",         "strided",    "true",  "unit"};
    return llvm::is_contained(words, peekWord());
  }
  bool beginsType() {
    skipSpace();
    StringRef rest = getRest();
    if (rest.starts_with("!") || rest.starts_with("("))
      return true;
    StringRef word = peekWord();
    static constexpr StringLiteral words[] = {
        "memref", "tensor", "vector", "tuple", "complex", "index", "none",
        "bf16",   "tf32",   "f16",    "f32",   "f64",     "f80",   "f128"};
    if (llvm::is_contained(words, word))
      return true;
    if (word.size() > 2 && word.starts_with("f") && word.contains('E') &&
        llvm::isDigit(word[1]))
      return true;
    word.consume_front("s") || word.consume_front("u");
    return word.size() > 1 && word.consume_front("i") &&
           llvm::all_of(word, llvm::isDigit);
  }

  OptionalParseResult parseOptionalIntegerImpl(APInt &result, bool allowsHex) {
    if (auto attribute = peekAttribute<IntegerAttr>()) {
      skipMark();
      // One bit more keeps the sign apart from the value, as in a literal.
      result = attribute.getType().isUnsignedInteger()
                   ? attribute.getValue().zext(
                         attribute.getValue().getBitWidth() + 1)
                   : attribute.getValue();
      return success();
    }
    skipSpace();
    StringRef rest = getRest();
    bool isNegative = rest.starts_with("-");
    StringRef digits = rest.drop_front(isNegative ? 1 : 0);
    if (!isNegative) {
      StringRef word = peekWord();
      if (word == "true" || word == "false") {
        position += word.size();
        result = APInt(2, word == "true");
        return success();
      }
    }
    if (digits.empty() || !llvm::isDigit(digits.front()))
      return std::nullopt;
    bool isHex = allowsHex && digits.size() > 2 && digits.starts_with("0x") &&
                 llvm::isHexDigit(digits[2]);
    size_t size = 0;
    if (isHex) {
      digits = digits.drop_front(2);
      while (size < digits.size() && llvm::isHexDigit(digits[size]))
        ++size;
    } else {
      while (size < digits.size() && llvm::isDigit(digits[size]))
        ++size;
    }
    APInt value;
    if (digits.take_front(size).getAsInteger(isHex ? 16 : 10, value))
      return emitError(SMLoc(), "integer value too large");
    value = value.zext(value.getBitWidth() + 1);
    result = isNegative ? -value : value;
    position += (digits.data() - rest.data()) + size;
    return success();
  }

  template <typename T>
  OptionalParseResult parseOptionalOfKind(T &result, Type type, char first) {
    if (T attribute = peekAttribute<T>()) {
      skipMark();
      result = attribute;
      return success();
    }
    if (!isNext(first))
      return std::nullopt;
    Attribute attribute;
    if (parseAttribute(attribute, type))
      return failure();
    result = dyn_cast<T>(attribute);
    if (!result)
      return ParseResult(
          emitError(SMLoc(), "invalid kind of attribute specified"));
    return success();
  }

  ParseResult parseTypes(SmallVectorImpl<Type> &result, Delimiter delimiter) {
    return parseCommaSeparatedList(
        delimiter, [&] { return parseType(result.emplace_back()); }, {});
  }
  ParseResult parseTypesAfterArrow(SmallVectorImpl<Type> &result) {
    if (isNext('('))
      return parseTypes(result, Delimiter::Paren);
    return parseType(result.emplace_back());
  }

  ParseResult
  parseAffineNames(SmallVectorImpl<std::pair<StringRef, AffineExpr>> &names,
                   unsigned &dimensions, unsigned &symbols) {
    auto parseName = [&](AffineExpr value) -> ParseResult {
      StringRef name;
      if (parseOptionalKeyword(&name))
        return emitError(SMLoc(), "expected a name");
      names.push_back({name, value});
      return success();
    };
    if (parseCommaSeparatedList(
            Delimiter::Paren,
            [&] { return parseName(builder.getAffineDimExpr(dimensions++)); },
            {}))
      return failure();
    return parseCommaSeparatedList(
        Delimiter::OptionalSquare,
        [&] { return parseName(builder.getAffineSymbolExpr(symbols++)); }, {});
  }
  ParseResult parseAffineSum(ArrayRef<std::pair<StringRef, AffineExpr>> symbols,
                             AffineExpr &result, unsigned depth) {
    if (parseAffineProduct(symbols, result, depth))
      return failure();
    for (;;) {
      AffineExpr rhs;
      if (consume("+")) {
        if (parseAffineProduct(symbols, rhs, depth))
          return failure();
        result = result + rhs;
      } else if (consume("-")) {
        if (parseAffineProduct(symbols, rhs, depth))
          return failure();
        result = result - rhs;
      } else {
        return success();
      }
    }
  }
  ParseResult
  parseAffineProduct(ArrayRef<std::pair<StringRef, AffineExpr>> symbols,
                     AffineExpr &result, unsigned depth) {
    if (parseAffineOperand(symbols, result, depth))
      return failure();
    for (;;) {
      AffineExprKind kind;
      if (consume("*"))
        kind = AffineExprKind::Mul;
      else if (succeeded(parseOptionalKeyword("floordiv")))
        kind = AffineExprKind::FloorDiv;
      else if (succeeded(parseOptionalKeyword("ceildiv")))
        kind = AffineExprKind::CeilDiv;
      else if (succeeded(parseOptionalKeyword("mod")))
        kind = AffineExprKind::Mod;
      else
        return success();
      AffineExpr rhs;
      if (parseAffineOperand(symbols, rhs, depth))
        return failure();
      result = getAffineBinaryOpExpr(kind, result, rhs);
    }
  }
  ParseResult
  parseAffineOperand(ArrayRef<std::pair<StringRef, AffineExpr>> symbols,
                     AffineExpr &result, unsigned depth) {
    if (depth > 256)
      return emitError(SMLoc(), "affine expression nests too deeply");
    if (consume("-")) {
      if (parseAffineOperand(symbols, result, depth + 1))
        return failure();
      result = -result;
      return success();
    }
    if (consume("("))
      return failure(parseAffineSum(symbols, result, depth + 1) ||
                     parseRParen());
    StringRef word = peekWord();
    if (!word.empty()) {
      for (auto [name, value] : symbols) {
        if (name != word)
          continue;
        position += word.size();
        result = value;
        return success();
      }
      return emitError(SMLoc(), "unknown name in an affine expression");
    }
    int64_t value = 0;
    OptionalParseResult parsed = AsmParser::parseOptionalInteger(value);
    if (!parsed.has_value() || failed(*parsed))
      return emitError(SMLoc(), "expected affine expression");
    result = builder.getAffineConstantExpr(value);
    return success();
  }

  mutable Builder builder;
  Location location;
  ArrayRef<Reference> references;
  ArrayRef<AsmDialectResourceHandle> handles;
  SmallVector<APFloat, 2> floats;
  std::string text;
  size_t position = 0;
  bool isConsistent = false;
  SmallVector<const void *, 4> parsing;
  /// Words that were handed out; the text may change.
  llvm::BumpPtrAllocator allocator;
  llvm::StringSaver saver;
};

/// Reads the record and gives it to `parse` with its parser.
template <typename T, typename Parse>
T parseImpl(const Record &record, ArrayRef<Reference> references,
            ArrayRef<AsmDialectResourceHandle> handles, Dialect &dialect,
            Parse parse) {
  PrintedForm form;
  if (!PrintedFormReader(record.bytes).read(form))
    return T();
  MarkedTextParser parser(std::move(form), references, handles,
                          dialect.getContext());
  if (!parser.isValid())
    return T();
  T result = parse(parser);
  return parser.isAtEnd() ? result : T();
}

} // namespace

Attribute detail::parsePrinted(const Record &record,
                               ArrayRef<Reference> references,
                               ArrayRef<AsmDialectResourceHandle> handles,
                               Dialect &dialect, Type type) {
  return parseImpl<Attribute>(record, references, handles, dialect,
                              [&](DialectAsmParser &parser) {
                                return dialect.parseAttribute(parser, type);
                              });
}

Type detail::parsePrinted(const Record &record, ArrayRef<Reference> references,
                          ArrayRef<AsmDialectResourceHandle> handles,
                          Dialect &dialect) {
  return parseImpl<Type>(
      record, references, handles, dialect,
      [&](DialectAsmParser &parser) { return dialect.parseType(parser); });
}

} // namespace ctxpool::codec

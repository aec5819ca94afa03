//===- EntryCall.cpp - Calls a compiled function by its type --------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/EntryCall.h"

#include "bench/ProcessInfo.h"
#include "context_pool/compile/CodeGenerator.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/APInt.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/Alignment.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

using namespace ctxpool;
using namespace ctxpool::bench;

// Descriptors are arrays of words here, and sizes are i64 for the lowering.
static_assert(sizeof(void *) == sizeof(uint64_t));

template <typename T>
static std::string printToString(const T &printable) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << printable;
  return text;
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

static std::optional<NumberType> makeNumberType(mlir::Type type) {
  NumberType number;
  number.name = printToString(type);
  if (type.isIndex()) {
    number.llvmName = "i64";
    number.bits = 64;
    return number;
  }
  if (auto integer = mlir::dyn_cast<mlir::IntegerType>(type)) {
    number.bits = integer.getWidth();
    number.isUnsigned = integer.isUnsigned() || number.bits == 1;
    number.llvmName = absl::StrCat("i", number.bits);
    if (!llvm::is_contained({1, 8, 16, 32, 64}, number.bits))
      return std::nullopt;
    return number;
  }
  if (!mlir::isa<mlir::Float16Type, mlir::BFloat16Type, mlir::Float32Type,
                 mlir::Float64Type>(type))
    return std::nullopt;
  auto floating = mlir::cast<mlir::FloatType>(type);
  number.bits = floating.getWidth();
  number.semantics = &floating.getFloatSemantics();
  number.llvmName = number.name;
  return number;
}

static size_t getBytes(const NumberType &type) {
  return llvm::divideCeil(type.bits, 8);
}

static std::string printNumber(const NumberType &type, uint64_t bits) {
  llvm::APInt integer(type.bits, bits);
  llvm::SmallString<32> text;
  if (type.semantics)
    llvm::APFloat(*type.semantics, integer).toString(text);
  else
    integer.toString(text, /*Radix=*/10, /*Signed=*/!type.isUnsigned);
  return text.str().str();
}

/// The bits of a whole number: decimal whatever it begins with, hexadecimal after
/// `0x`, either after a sign.
static std::optional<uint64_t> parseInteger(const NumberType &type,
                                            llvm::StringRef text) {
  bool isNegative = text.consume_front("-");
  if (!isNegative)
    text.consume_front("+");
  unsigned radix = text.consume_front_insensitive("0x") ? 16 : 10;
  uint64_t magnitude;
  if (text.getAsInteger(radix, magnitude))
    return std::nullopt;
  // Whatever the bits can be read as: -1 and 255 for an i8.
  if (!isNegative || magnitude == 0)
    return llvm::isUIntN(type.bits, magnitude) ? std::optional(magnitude)
                                               : std::nullopt;
  if (type.isUnsigned || magnitude > uint64_t(1) << (type.bits - 1))
    return std::nullopt;
  return -magnitude & llvm::maskTrailingOnes<uint64_t>(type.bits);
}

static std::optional<uint64_t> parseNumber(const NumberType &type,
                                           llvm::StringRef text) {
  text = text.trim();
  if (type.semantics) {
    llvm::APFloat number(*type.semantics);
    llvm::Expected<llvm::APFloat::opStatus> status =
        number.convertFromString(text, llvm::APFloat::rmNearestTiesToEven);
    if (!status) {
      llvm::consumeError(status.takeError());
      return std::nullopt;
    }
    return number.bitcastToAPInt().getZExtValue();
  }
  if (type.bits == 1 && (text == "true" || text == "false"))
    return text == "true";
  return parseInteger(type, text);
}

/// The bits of a small whole number.
static uint64_t convertNumber(const NumberType &type, uint64_t number) {
  if (!type.semantics)
    return number & llvm::maskTrailingOnes<uint64_t>(type.bits);
  llvm::APFloat converted(*type.semantics);
  converted.convertFromAPInt(llvm::APInt(64, number), /*IsSigned=*/false,
                             llvm::APFloat::rmNearestTiesToEven);
  return converted.bitcastToAPInt().getZExtValue();
}

template <typename T>
static void storeAs(char *memory, uint64_t bits) {
  T narrow = T(bits);
  std::memcpy(memory, &narrow, sizeof(T));
}

template <typename T>
static uint64_t loadAs(const char *memory) {
  T narrow;
  std::memcpy(&narrow, memory, sizeof(T));
  return narrow;
}

static void storeNumber(const NumberType &type, char *memory, uint64_t bits) {
  switch (getBytes(type)) {
  case 1:
    return storeAs<uint8_t>(memory, bits);
  case 2:
    return storeAs<uint16_t>(memory, bits);
  case 4:
    return storeAs<uint32_t>(memory, bits);
  default:
    return storeAs<uint64_t>(memory, bits);
  }
}

static uint64_t loadNumber(const NumberType &type, const char *memory) {
  switch (getBytes(type)) {
  case 1:
    return loadAs<uint8_t>(memory);
  case 2:
    return loadAs<uint16_t>(memory);
  case 4:
    return loadAs<uint32_t>(memory);
  default:
    return loadAs<uint64_t>(memory);
  }
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// How many elements an array has; nothing where that is more than a tool wants.
static std::optional<int64_t> countElements(llvm::ArrayRef<int64_t> sizes) {
  constexpr int64_t most = int64_t(1) << 28;
  int64_t count = 1;
  for (int64_t size : sizes)
    if (llvm::MulOverflow(count, size, count) || count > most)
      return std::nullopt;
  return count;
}

static void printArray(llvm::raw_ostream &stream, const NumberType &type,
                       llvm::ArrayRef<int64_t> sizes,
                       llvm::ArrayRef<uint64_t> elements, unsigned indent) {
  if (sizes.empty()) {
    stream << printNumber(type, elements.front());
    return;
  }
  size_t each = sizes.front() ? elements.size() / sizes.front() : 0;
  std::string separator = ", ";
  if (sizes.size() > 1)
    separator = ",\n" + std::string(indent + 1, ' ');
  stream << "[";
  for (int64_t i = 0; i < sizes.front(); ++i) {
    stream << (i ? separator : "");
    printArray(stream, type, sizes.drop_front(), elements.slice(i * each, each),
               indent + 1);
  }
  stream << "]";
}

void EntryValue::print(llvm::raw_ostream &stream, unsigned indent) const {
  printArray(stream, type.element, sizes, elements, indent);
}

llvm::json::Value EntryValue::toJson() const {
  auto makeNumber = [&](uint64_t bits) -> llvm::json::Value {
    llvm::APInt integer(type.element.bits, bits);
    if (!type.element.semantics)
      return type.element.isUnsigned
                 ? llvm::json::Value(integer.getZExtValue())
                 : llvm::json::Value(integer.getSExtValue());
    llvm::APFloat number(*type.element.semantics, integer);
    if (!number.isFinite())
      return printNumber(type.element, bits);
    bool losesInfo;
    number.convert(llvm::APFloat::IEEEdouble(),
                   llvm::APFloat::rmNearestTiesToEven, &losesInfo);
    return number.convertToDouble();
  };
  if (!type.shape)
    return makeNumber(elements.front());
  llvm::json::Array numbers;
  for (uint64_t element : elements)
    numbers.push_back(makeNumber(element));
  return numbers;
}

/// `4x3xf32` for a `memref<?x3xf32>`.
static std::string makeExample(const EntryType &type) {
  std::string text;
  for (int64_t size : *type.shape)
    absl::StrAppend(&text, mlir::ShapedType::isDynamic(size) ? 4 : size, "x");
  return text + type.element.name;
}

/// Reads `[SHAPExTYPE=]VALUES` for an argument of that type.
static absl::StatusOr<EntryValue> parseArgument(const EntryType &type,
                                                llvm::StringRef text) {
  EntryValue value{type, {}, {}};
  if (!type.shape) {
    std::optional<uint64_t> number = parseNumber(type.element, text);
    if (!number)
      return absl::InvalidArgumentError(absl::StrCat(
          "'", text.str(), "' is not a number of type ", type.text));
    value.elements = {*number};
    return value;
  }

  value.sizes = *type.shape;
  llvm::StringRef values = text;
  if (text.contains('=')) {
    llvm::StringRef given;
    std::tie(given, values) = text.split('=');
    // Sizes, each followed by an `x`, and the type, which may have one itself.
    llvm::SmallVector<llvm::StringRef> parts;
    given.trim().split(parts, 'x', int(type.shape->size()));
    bool fits = parts.pop_back_val() == type.element.name &&
                parts.size() == type.shape->size();
    value.sizes.assign(parts.size(), 0);
    for (size_t i = 0; fits && i < parts.size(); ++i) {
      int64_t wanted = (*type.shape)[i];
      fits = !parts[i].getAsInteger(10, value.sizes[i]) &&
             value.sizes[i] >= 0 &&
             (mlir::ShapedType::isDynamic(wanted) || value.sizes[i] == wanted);
    }
    if (!fits)
      return absl::InvalidArgumentError(absl::StrCat(
          "'", given.str(), "' is not a shape and type of ", type.text));
  } else if (llvm::any_of(value.sizes, mlir::ShapedType::isDynamic)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text.str(), "' does not say the shape of ", type.text,
                     ", as ", makeExample(type), "=", text.str(), " does"));
  }

  std::optional<int64_t> count = countElements(value.sizes);
  if (!count)
    return absl::InvalidArgumentError(
        absl::StrCat("'", text.str(), "' has too many elements"));
  if (values.trim() == "iota") {
    for (int64_t i = 0; i < *count; ++i)
      value.elements.push_back(convertNumber(type.element, i));
    return value;
  }
  llvm::SmallVector<llvm::StringRef> numbers;
  if (!values.trim().empty())
    values.split(numbers, ',');
  for (llvm::StringRef number : numbers) {
    std::optional<uint64_t> bits = parseNumber(type.element, number);
    if (!bits)
      return absl::InvalidArgumentError(absl::StrCat(
          "'", number.trim().str(), "' is not an element of ", type.text));
    value.elements.push_back(*bits);
  }
  if (value.elements.size() == 1)
    value.elements.resize(*count, value.elements.front());
  if (value.elements.size() != uint64_t(*count))
    return absl::InvalidArgumentError(absl::StrCat(
        type.text, " takes ", *count, " values or one for all, and ",
        value.elements.size(), " are given"));
  return value;
}

static std::string joinTypes(llvm::ArrayRef<EntryType> types) {
  std::vector<std::string> texts;
  for (const EntryType &type : types)
    texts.push_back(type.text);
  return "(" + llvm::join(texts, ", ") + ")";
}

absl::StatusOr<std::vector<EntryValue>>
bench::parseArguments(const EntrySignature &signature,
                      llvm::ArrayRef<std::string> texts) {
  if (texts.size() != signature.arguments.size())
    return absl::InvalidArgumentError(absl::StrCat(
        "@", signature.name, " takes ", signature.arguments.size(),
        signature.arguments.size() == 1 ? " argument, " : " arguments, ",
        joinTypes(signature.arguments), ", and ", texts.size(),
        texts.size() == 1 ? " is" : " are", " given with --arg"));
  std::vector<EntryValue> values;
  for (size_t i = 0; i < texts.size(); ++i) {
    absl::StatusOr<EntryValue> value =
        parseArgument(signature.arguments[i], texts[i]);
    if (!value.ok())
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", i, " of @", signature.name, ": ",
                       std::string(value.status().message())));
    values.push_back(*std::move(value));
  }
  return values;
}

//===----------------------------------------------------------------------===//
// Signatures
//===----------------------------------------------------------------------===//

/// Whether memory in row-major order without gaps has that layout.
static bool isRowMajor(mlir::MemRefType type, llvm::ArrayRef<int64_t> strides,
                       int64_t offset) {
  if (type.getLayout().isIdentity())
    return true;
  // Where bufferization could not tell, it left them open.
  return llvm::all_of(strides, mlir::ShapedType::isDynamic) &&
         (mlir::ShapedType::isDynamic(offset) || offset == 0);
}

static std::optional<EntryType> makeEntryType(mlir::Type type) {
  EntryType described;
  described.text = printToString(type);
  mlir::Type element = type;
  if (auto shaped = mlir::dyn_cast<mlir::ShapedType>(type)) {
    auto memref = mlir::dyn_cast<mlir::MemRefType>(type);
    auto tensor = mlir::dyn_cast<mlir::RankedTensorType>(type);
    if (memref) {
      llvm::SmallVector<int64_t> strides;
      int64_t offset;
      if (memref.getMemorySpace() ||
          failed(memref.getStridesAndOffset(strides, offset)))
        return std::nullopt;
      described.isRowMajor = isRowMajor(memref, strides, offset);
    } else if (!tensor || tensor.getEncoding()) {
      return std::nullopt;
    }
    described.isTensor = bool(tensor);
    described.shape = shaped.getShape().vec();
    element = shaped.getElementType();
  }
  std::optional<NumberType> number = makeNumberType(element);
  if (!number)
    return std::nullopt;
  described.element = *std::move(number);
  return described;
}

/// Whether code outside of the module finds the function, with a body.
static bool isCallable(mlir::FunctionOpInterface function) {
  auto lowered =
      mlir::dyn_cast<mlir::LLVM::LLVMFuncOp>(function.getOperation());
  bool isLocal =
      lowered &&
      (lowered.getLinkage() == mlir::LLVM::linkage::Linkage::Internal ||
       lowered.getLinkage() == mlir::LLVM::linkage::Linkage::Private);
  return !isLocal && !function.isExternal();
}

static std::string describeCallable(mlir::ModuleOp module) {
  constexpr size_t most = 10;
  std::vector<std::string> names;
  for (auto function : module.getOps<mlir::FunctionOpInterface>())
    if (isCallable(function))
      names.push_back("@" + function.getName().str());
  if (names.empty())
    return "no function can be called";
  std::string more = names.size() > most
                         ? absl::StrCat(" and ", names.size() - most, " more")
                         : "";
  names.resize(std::min(names.size(), most));
  return "what can be called is " + llvm::join(names, ", ") + more;
}

absl::StatusOr<EntrySignature> bench::describeEntry(mlir::ModuleOp module,
                                                    llvm::StringRef name) {
  EntrySignature signature;
  signature.name = name.str();
  auto function = mlir::dyn_cast_or_null<mlir::FunctionOpInterface>(
      module.lookupSymbol(name));
  if (!function || !isCallable(function))
    return absl::NotFoundError(absl::StrCat("@", signature.name,
                                            !function ? " is not defined"
                                            : function.isExternal()
                                                ? " has no body"
                                                : " is local to the module",
                                            "; ", describeCallable(module)));
  llvm::ArrayRef<mlir::Type> results = function.getResultTypes();
  if (auto lowered =
          mlir::dyn_cast<mlir::LLVM::LLVMFuncOp>(function.getOperation())) {
    signature.isLowered = true;
    if (lowered.getCConv() != mlir::LLVM::CConv::C)
      return absl::InvalidArgumentError(absl::StrCat(
          "@", signature.name, " has the calling convention ",
          mlir::LLVM::cconv::stringifyCConv(lowered.getCConv()).str(),
          ", and can be called with ccc only"));
    if (mlir::isa<mlir::LLVM::LLVMVoidType>(
            lowered.getFunctionType().getReturnType()))
      results = {};
  }
  auto describe = [&](mlir::Type type, bool isArgument) -> absl::Status {
    std::optional<EntryType> described = makeEntryType(type);
    if (!described || (signature.isLowered && described->shape) ||
        (isArgument && !described->isRowMajor))
      return absl::InvalidArgumentError(absl::StrCat(
          "@", signature.name, " has the type ",
          printToString(function.getFunctionType()),
          ", and cannot be called with ", printToString(type),
          signature.isLowered
              ? ": an llvm.func takes and gives numbers here"
              : ": i1 to i64, index, f16, bf16, f32, f64, and memrefs and "
                "tensors of them can be passed, arguments in row-major "
                "order"));
    (isArgument ? signature.arguments : signature.results)
        .push_back(*std::move(described));
    return absl::OkStatus();
  };
  for (mlir::Type type : function.getArgumentTypes())
    if (absl::Status status = describe(type, /*isArgument=*/true); !status.ok())
      return status;
  for (mlir::Type type : results)
    if (absl::Status status = describe(type, /*isArgument=*/false);
        !status.ok())
      return status;
  return signature;
}

void bench::requestCInterface(mlir::ModuleOp module,
                              const EntrySignature &signature) {
  if (!signature.isLowered)
    module.lookupSymbol(signature.name)
        ->setAttr(mlir::LLVM::LLVMDialect::getEmitCWrapperAttrName(),
                  mlir::UnitAttr::get(module.getContext()));
}

//===----------------------------------------------------------------------===//
// What became of a signature
//===----------------------------------------------------------------------===//

static constexpr llvm::StringLiteral cInterfacePrefix = "_mlir_ciface_";

static std::string getSymbol(const EntrySignature &signature) {
  return (signature.isLowered ? "" : cInterfacePrefix.str()) + signature.name;
}

static std::string makeDescriptorType(const EntryType &type) {
  size_t rank = type.shape->size();
  std::string sizes = absl::StrCat(", array<", rank, " x i64>");
  return absl::StrCat("!llvm.struct<(ptr, ptr, i64", rank ? sizes : "",
                      rank ? sizes : "", ")>");
}

/// What the function returns: results but for those that are out parameters.
static std::vector<std::string>
getReturnedTypes(const EntrySignature &signature, bool hasOutParameters) {
  std::vector<std::string> types;
  for (const EntryType &type : signature.results)
    if (!type.shape)
      types.push_back(type.element.llvmName);
    else if (!hasOutParameters)
      types.push_back(makeDescriptorType(type));
  return types;
}

static std::string makeStruct(llvm::ArrayRef<std::string> types) {
  return "!llvm.struct<(" + llvm::join(types, ", ") + ")>";
}

/// The type that convert-func-to-llvm gives the function itself.
static std::string makeLoweredType(const EntrySignature &signature,
                                   bool hasOutParameters) {
  std::vector<std::string> parameters;
  auto addArray = [&](const EntryType &type) {
    parameters.insert(parameters.end(), {"ptr", "ptr", "i64"});
    parameters.insert(parameters.end(), 2 * type.shape->size(), "i64");
  };
  for (const EntryType &type : signature.arguments)
    if (type.shape)
      addArray(type);
    else
      parameters.push_back(type.element.llvmName);
  for (const EntryType &type : signature.results)
    if (hasOutParameters && type.shape)
      addArray(type);
  std::vector<std::string> returned =
      getReturnedTypes(signature, hasOutParameters);
  std::string result = returned.empty()       ? "void"
                       : returned.size() == 1 ? returned.front()
                                              : makeStruct(returned);
  return absl::StrCat("!llvm.func<", result, " (", llvm::join(parameters, ", "),
                      ")>");
}

/// Whether results became parameters, if what became of the function can be
/// called at all.
static absl::StatusOr<bool> findOutParameters(const EntrySignature &signature,
                                              mlir::ModuleOp lowered) {
  auto bare = lowered.lookupSymbol<mlir::LLVM::LLVMFuncOp>(signature.name);
  if (!bare)
    return absl::NotFoundError(absl::StrCat(
        "@", signature.name,
        " is not in the LLVM dialect after the pipeline, or gone"));
  if (signature.isLowered)
    return false;
  if (!lowered.lookupSymbol<mlir::LLVM::LLVMFuncOp>(getSymbol(signature)))
    return absl::NotFoundError(
        absl::StrCat("the pipeline made no C interface of @", signature.name,
                     ": @", getSymbol(signature),
                     " is missing, which convert-func-to-llvm makes for "
                     "llvm.emit_c_interface"));
  for (bool hasOutParameters : {false, true})
    if (mlir::parseType(makeLoweredType(signature, hasOutParameters),
                        lowered.getContext()) == bare.getFunctionType()) {
      if (hasOutParameters)
        for (const EntryType &type : signature.results)
          if (type.shape &&
              (!type.isRowMajor ||
               llvm::any_of(*type.shape, mlir::ShapedType::isDynamic)))
            return absl::InvalidArgumentError(absl::StrCat(
                "the pipeline makes parameters of the results of @",
                signature.name, ", and the shape and layout of ", type.text,
                " are not known"));
      return hasOutParameters;
    }
  return absl::InvalidArgumentError(absl::StrCat(
      "the pipeline changes the signature of @", signature.name, ": it is ",
      printToString(bare.getFunctionType()), ", expected ",
      makeLoweredType(signature, /*hasOutParameters=*/false)));
}

//===----------------------------------------------------------------------===//
// The bridge
//===----------------------------------------------------------------------===//

/// A function `call(callee, slots)` in the LLVM dialect, which passes what the
/// slots point at in the way of the C interface: numbers by value, arrays by a
/// pointer to their descriptor, and more than one number as a result, or an
/// array, through a pointer in front. There is a slot for each argument, each
/// out parameter, and each result that is returned.
static std::string makeBridge(const EntrySignature &signature,
                              bool hasOutParameters) {
  std::vector<std::string> lines, values, types;
  size_t slots = 0;
  auto addSlot = [&] {
    std::string slot = absl::StrCat("%slot", slots);
    lines.push_back(absl::StrCat("%at", slots, " = llvm.getelementptr %slots[",
                                 slots,
                                 "] : (!llvm.ptr) -> !llvm.ptr, "
                                 "!llvm.ptr"));
    lines.push_back(absl::StrCat(slot, " = llvm.load %at", slots,
                                 " : !llvm.ptr -> !llvm.ptr"));
    ++slots;
    return slot;
  };
  auto addArgument = [&](std::string value, std::string type) {
    values.push_back(std::move(value));
    types.push_back(std::move(type));
  };
  for (const EntryType &type : signature.arguments) {
    std::string slot = addSlot();
    if (type.shape) {
      addArgument(slot, "!llvm.ptr");
      continue;
    }
    lines.push_back(absl::StrCat("%value", slots, " = llvm.load ", slot,
                                 " : !llvm.ptr -> ", type.element.llvmName));
    addArgument(absl::StrCat("%value", slots), type.element.llvmName);
  }
  if (hasOutParameters)
    for (const EntryType &type : signature.results)
      if (type.shape)
        addArgument(addSlot(), "!llvm.ptr");

  std::vector<std::string> returned =
      getReturnedTypes(signature, hasOutParameters);
  bool isArray = returned.size() == 1 && returned[0].front() == '!';
  std::string result = "()", whole = makeStruct(returned);
  std::vector<std::string> resultSlots;
  for (size_t i = 0; i < returned.size(); ++i)
    resultSlots.push_back(addSlot());
  if (returned.size() == 1 && !isArray) {
    result = returned.front();
  } else if (!returned.empty()) {
    lines.push_back("%one = llvm.mlir.constant(1 : i64) : i64");
    lines.push_back(absl::StrCat("%whole = llvm.alloca %one x ", whole,
                                 " : (i64) -> !llvm.ptr"));
    values.insert(values.begin(), isArray ? resultSlots.front() : "%whole");
    types.insert(types.begin(), "!llvm.ptr");
  }
  lines.push_back(
      absl::StrCat(result == "()" ? "" : "%result = ", "llvm.call %callee(",
                   llvm::join(values, ", "), ") : !llvm.ptr, (",
                   llvm::join(types, ", "), ") -> ", result));
  if (result != "()")
    lines.push_back(absl::StrCat("llvm.store %result, ", resultSlots.front(),
                                 " : ", result, ", !llvm.ptr"));
  else if (!isArray)
    for (size_t i = 0; i < returned.size(); ++i) {
      lines.push_back(absl::StrCat("%field", i,
                                   " = llvm.getelementptr %whole[0, ", i,
                                   "] : (!llvm.ptr) -> !llvm.ptr, ", whole));
      lines.push_back(absl::StrCat("%part", i, " = llvm.load %field", i,
                                   " : !llvm.ptr -> ", returned[i]));
      lines.push_back(absl::StrCat("llvm.store %part", i, ", ", resultSlots[i],
                                   " : ", returned[i], ", !llvm.ptr"));
    }
  return absl::StrCat(
      "llvm.func @call(%callee: !llvm.ptr, %slots: !llvm.ptr) {\n  ",
      llvm::join(lines, "\n  "), "\n  llvm.return\n}\n");
}

static absl::StatusOr<std::shared_ptr<Executable>>
compileBridge(const std::string &text, ContextPool &pool) {
  CompileRecipe recipe;
  recipe.pipeline = "builtin.module()";
  absl::StatusOr<ResolvedRecipe> resolved = ResolvedRecipe::create(recipe);
  if (!resolved.ok())
    return resolved.status();
  absl::StatusOr<std::unique_ptr<detail::CodeGenerator>> generator =
      detail::CodeGenerator::create(resolved->get());
  if (!generator.ok())
    return generator.status();
  absl::StatusOr<ContextLease> lease = pool.acquire();
  if (!lease.ok())
    return lease.status();
  absl::StatusOr<mlir::OwningOpRef<mlir::ModuleOp>> module =
      lease->parse(text, "<bridge>");
  if (!module.ok())
    return module.status();
  absl::StatusOr<detail::CodeGenerator::Bytes> bytes =
      (*generator)->emitObject(**module);
  if (!bytes.ok())
    return bytes.status();
  return Executable::load(
      Artifact::copyOf("object", {bytes->data(), bytes->size()}));
}

absl::StatusOr<EntryCaller> EntryCaller::create(EntrySignature signature,
                                                mlir::ModuleOp lowered,
                                                ContextPool &pool) {
  absl::StatusOr<bool> hasOutParameters = findOutParameters(signature, lowered);
  if (!hasOutParameters.ok())
    return hasOutParameters.status();
  absl::StatusOr<std::shared_ptr<Executable>> bridge =
      compileBridge(makeBridge(signature, *hasOutParameters), pool);
  if (!bridge.ok())
    return absl::Status(bridge.status().code(),
                        absl::StrCat("cannot call @", signature.name, ": ",
                                     bridge.status().message()));
  EntryCaller caller;
  caller.signature = std::move(signature);
  caller.hasOutParameters = *hasOutParameters;
  caller.bridge = *std::move(bridge);
  return caller;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

namespace {

/// What a slot points at: a number, or the descriptor of an array.
class Slot {
public:
  /// Of a value that is passed.
  explicit Slot(const EntryValue &value) : Slot(value.type) {
    size_t each = getBytes(value.type.element);
    char *memory;
    if (value.type.shape) {
      array = llvm::WritableMemoryBuffer::getNewUninitMemBuffer(
          std::max<size_t>(each * value.elements.size(), 1), "",
          llvm::Align(64));
      memory = array->getBufferStart();
      words[0] = words[1] = reinterpret_cast<uintptr_t>(memory);
      size_t rank = value.sizes.size();
      uint64_t stride = 1;
      for (size_t i = rank; i-- > 0;) {
        words[3 + i] = value.sizes[i];
        words[3 + rank + i] = stride;
        stride *= value.sizes[i];
      }
    } else {
      memory = reinterpret_cast<char *>(words.data());
    }
    for (size_t i = 0; i < value.elements.size(); ++i)
      storeNumber(value.type.element, memory + i * each, value.elements[i]);
  }

  /// Of one that is returned.
  explicit Slot(const EntryType &theType)
      : type(theType), words(type.shape ? 3 + 2 * type.shape->size() : 1) {}

  void *getPointer() { return words.data(); }

  /// What the slot holds now.
  ///
  /// Errors: InvalidArgument - a negative dimension, which is no array.
  absl::StatusOr<EntryValue> read() const {
    EntryValue value{type, {}, {}};
    if (!type.shape) {
      value.elements.push_back(loadNumber(
          type.element, reinterpret_cast<const char *>(words.data())));
      return value;
    }
    llvm::ArrayRef<uint64_t> dimensions = llvm::ArrayRef(words).drop_front(3);
    size_t rank = type.shape->size();
    value.sizes.assign(dimensions.begin(), dimensions.begin() + rank);
    for (int64_t size : value.sizes)
      if (size < 0)
        return absl::InvalidArgumentError(absl::StrCat(
            "a result has dimension ", size, ", expected 0 or more"));
    readDimension(value, dimensions.take_front(rank),
                  dimensions.drop_front(rank), int64_t(words[2]));
    return value;
  }

  /// The start of the memory that the array is in, to be freed by who owns it.
  void *getAllocation() const {
    return type.shape ? llvm::bit_cast<void *>(words[0]) : nullptr;
  }

private:
  void readDimension(EntryValue &value, llvm::ArrayRef<uint64_t> sizes,
                     llvm::ArrayRef<uint64_t> strides, int64_t at) const {
    size_t each = getBytes(type.element);
    if (sizes.empty()) {
      value.elements.push_back(
          loadNumber(type.element, llvm::bit_cast<const char *>(words[1]) +
                                       at * int64_t(each)));
      return;
    }
    for (uint64_t i = 0; i < sizes.front(); ++i)
      readDimension(value, sizes.drop_front(), strides.drop_front(),
                    at + int64_t(i * strides.front()));
  }

  EntryType type;
  /// The number; or pointers to the memory and to its aligned part, the offset,
  /// sizes and strides.
  std::vector<uint64_t> words;
  std::unique_ptr<llvm::WritableMemoryBuffer> array;
};

} // namespace

/// Not checked by -fsanitize=function, which looks for a mark that such code
/// does not have.
#if defined(__clang__)
__attribute__((no_sanitize("function")))
#endif
static void callBridge(void *bridge, void *callee, void **slots) {
  reinterpret_cast<void (*)(void *, void **)>(bridge)(callee, slots);
}

/// Zeros, for an out parameter.
static EntryValue makeZeros(const EntryType &type) {
  return {type, *type.shape,
          std::vector<uint64_t>(countElements(*type.shape).value_or(0))};
}

absl::StatusOr<EntryOutcome>
EntryCaller::call(const Executable &executable,
                  llvm::ArrayRef<EntryValue> arguments) const {
  absl::StatusOr<void *> callee = executable.lookup(getSymbol(signature));
  if (!callee.ok())
    return callee.status();
  absl::StatusOr<void *> code = bridge->lookup("call");
  if (!code.ok())
    return code.status();

  std::vector<Slot> passed, returned;
  for (const EntryValue &argument : arguments)
    passed.emplace_back(argument);
  for (const EntryType &type : signature.results)
    if (hasOutParameters && type.shape)
      passed.emplace_back(makeZeros(type));
    else
      returned.emplace_back(type);
  std::vector<void *> pointers;
  for (std::vector<Slot> *slots : {&passed, &returned})
    for (Slot &slot : *slots)
      pointers.push_back(slot.getPointer());

  EntryOutcome outcome;
  double begin = getWallSeconds();
  callBridge(*code, *callee, pointers.data());
  outcome.seconds = getWallSeconds() - begin;

  size_t nextOut = arguments.size(), nextReturned = 0;
  for (const EntryType &type : signature.results) {
    absl::StatusOr<EntryValue> result = hasOutParameters && type.shape
                                            ? passed[nextOut++].read()
                                            : returned[nextReturned++].read();
    if (!result.ok())
      return result.status();
    outcome.results.push_back(*std::move(result));
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].type.shape || arguments[i].type.isTensor)
      continue;
    absl::StatusOr<EntryValue> now = passed[i].read();
    if (!now.ok())
      return now.status();
    if (now->elements != arguments[i].elements)
      outcome.written.emplace_back(i, *std::move(now));
  }

  // What is returned may be an argument, a global, for which MLIR gives an
  // address that nobody has, or the same memory twice.
  constexpr uintptr_t global = 0xdeadbeef;
  llvm::SmallPtrSet<void *, 8> kept = {nullptr, llvm::bit_cast<void *>(global)};
  for (const Slot &slot : passed)
    kept.insert(slot.getAllocation());
  for (const Slot &slot : returned)
    if (void *allocation = slot.getAllocation(); kept.insert(allocation).second)
      std::free(allocation);
  return outcome;
}

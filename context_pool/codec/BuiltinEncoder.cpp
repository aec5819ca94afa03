//===- BuiltinEncoder.cpp - Encodings of the builtin dialect --------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/codec/EncoderDetail.h"

#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/IntegerSet.h"
#include "mlir/IR/Location.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace ctxpool::codec {
namespace {

void writeTag(Record &record, Tag tag) {
  record.writeByte(static_cast<uint8_t>(tag));
}

void writeAPInt(Record &record, const llvm::APInt &value) {
  for (unsigned i = 0, words = value.getNumWords(); i != words; ++i)
    record.writeVarInt(value.getRawData()[i]);
}

void writeShape(Record &record, ArrayRef<int64_t> shape) {
  record.writeVarInt(shape.size());
  for (int64_t dimension : shape)
    record.writeSignedVarInt(dimension);
}

/// Writes affine expressions: the parts of each before the whole, each part
/// once, and the expressions by their places in that list. Without recursion,
/// and in time linear in what is stored, not in what it expands to.
class AffineWriter {
public:
  explicit AffineWriter(Record &target) : record(target) {}

  void write(ArrayRef<AffineExpr> expressions) {
    record.writeVarInt(expressions.size());
    for (AffineExpr expression : expressions) {
      writeParts(expression);
      record.writeByte(endOfParts);
      record.writeVarInt(places.lookup(expression));
    }
  }

private:
  static constexpr uint8_t endOfParts = 0;

  void writeParts(AffineExpr root) {
    SmallVector<AffineExpr> stack{root};
    while (!stack.empty()) {
      AffineExpr expression = stack.back();
      if (places.count(expression)) {
        stack.pop_back();
        continue;
      }
      auto binary = dyn_cast<AffineBinaryOpExpr>(expression);
      if (binary) {
        // The left side comes first: it is pushed last.
        bool ready = true;
        for (AffineExpr side : {binary.getRHS(), binary.getLHS()}) {
          if (!places.count(side)) {
            stack.push_back(side);
            ready = false;
          }
        }
        if (!ready)
          continue;
      }
      switch (expression.getKind()) {
      case AffineExprKind::Add:
        record.writeByte(1);
        break;
      case AffineExprKind::Mul:
        record.writeByte(2);
        break;
      case AffineExprKind::Mod:
        record.writeByte(3);
        break;
      case AffineExprKind::FloorDiv:
        record.writeByte(4);
        break;
      case AffineExprKind::CeilDiv:
        record.writeByte(5);
        break;
      case AffineExprKind::Constant:
        record.writeByte(6);
        record.writeSignedVarInt(
            cast<AffineConstantExpr>(expression).getValue());
        break;
      case AffineExprKind::DimId:
        record.writeByte(7);
        record.writeVarInt(cast<AffineDimExpr>(expression).getPosition());
        break;
      case AffineExprKind::SymbolId:
        record.writeByte(8);
        record.writeVarInt(cast<AffineSymbolExpr>(expression).getPosition());
        break;
      }
      if (binary) {
        record.writeVarInt(places.lookup(binary.getLHS()));
        record.writeVarInt(places.lookup(binary.getRHS()));
      }
      places.try_emplace(expression, places.size());
      stack.pop_back();
    }
  }

  Record &record;
  llvm::DenseMap<AffineExpr, unsigned> places;
};

/// Elements of a width that is not a whole number of bytes leave bits of the
/// storage open, and booleans are packed. The values are what counts: other
/// bits are cleared here, and equal elements become a splat.
void writeNarrowElements(Record &record, DenseElementsAttr attribute,
                         unsigned width, unsigned parts) {
  ArrayRef<char> raw = attribute.getRawData();
  int64_t elements = attribute.getNumElements();
  bool splat = attribute.isSplat();
  bool packed = width == 1 && parts == 1;

  size_t partBytes = llvm::divideCeil(width, 8);
  size_t elementBytes = packed ? 1 : partBytes * parts;
  size_t stored = splat ? 1 : elements;
  size_t size = packed ? llvm::divideCeil(stored, 8) : stored * elementBytes;
  // Storage that is not as expected is taken as it is.
  if (raw.size() != size) {
    record.writeByte(2);
    record.writeData(raw);
    return;
  }

  char *values = record.allocate(size);
  std::copy(raw.begin(), raw.end(), values);
  bool allEqual = stored != 0;
  if (packed && splat) {
    values[0] = values[0] != 0;
  } else if (packed) {
    if (stored % 8 != 0)
      values[size - 1] &= (1 << (stored % 8)) - 1;
    auto bit = [&](size_t i) { return (values[i / 8] >> (i % 8)) & 1; };
    for (size_t i = 1; i < stored && allEqual; ++i)
      allEqual = bit(i) == bit(0);
    if (allEqual)
      values[0] = bit(0);
  } else {
    if (width % 8 != 0)
      for (size_t i = partBytes - 1; i < size; i += partBytes)
        values[i] &= (1 << (width % 8)) - 1;
    for (size_t i = 1; i < stored && allEqual; ++i)
      allEqual =
          std::equal(values, values + elementBytes, values + i * elementBytes);
  }
  record.writeByte(allEqual);
  record.writeData({values, allEqual ? elementBytes : size});
}

void writeElements(Record &record, DenseElementsAttr attribute) {
  Type type = attribute.getElementType();
  unsigned parts = 1;
  if (auto complex = dyn_cast<ComplexType>(type)) {
    type = complex.getElementType();
    parts = 2;
  }
  if (type.isIntOrFloat() && type.getIntOrFloatBitWidth() % 8 != 0)
    return writeNarrowElements(record, attribute, type.getIntOrFloatBitWidth(),
                               parts);
  record.writeByte(attribute.isSplat());
  record.writeData(attribute.getRawData());
}

} // namespace

bool detail::encodeBuiltin(Attribute attribute, Record &record,
                           absl::Status &status) {
  if (auto integer = dyn_cast<IntegerAttr>(attribute)) {
    writeTag(record, Tag::Integer);
    record.writeType(integer.getType());
    writeAPInt(record, integer.getValue());
    return true;
  }
  if (auto number = dyn_cast<FloatAttr>(attribute)) {
    writeTag(record, Tag::Float);
    record.writeType(number.getType());
    writeAPInt(record, number.getValue().bitcastToAPInt());
    return true;
  }
  if (auto string = dyn_cast<StringAttr>(attribute)) {
    writeTag(record, Tag::String);
    record.writeType(string.getType());
    record.writeString(string.getValue());
    return true;
  }
  if (auto location = dyn_cast<FileLineColRange>(attribute)) {
    writeTag(record, Tag::FileLineColRange);
    record.writeAttribute(location.getFilename());
    record.writeVarInt(location.getStartLine());
    record.writeVarInt(location.getStartColumn());
    record.writeVarInt(location.getEndLine());
    record.writeVarInt(location.getEndColumn());
    return true;
  }
  if (auto dictionary = dyn_cast<DictionaryAttr>(attribute)) {
    writeTag(record, Tag::Dictionary);
    record.writeVarInt(dictionary.size());
    for (NamedAttribute entry : dictionary) {
      record.writeString(entry.getName().strref());
      record.writeAttribute(entry.getValue());
    }
    return true;
  }
  if (auto array = dyn_cast<ArrayAttr>(attribute)) {
    writeTag(record, Tag::Array);
    record.writeVarInt(array.size());
    for (Attribute element : array)
      record.writeAttribute(element);
    return true;
  }
  if (auto dense = dyn_cast<DenseIntOrFPElementsAttr>(attribute)) {
    writeTag(record, Tag::DenseIntOrFP);
    record.writeType(dense.getType());
    writeElements(record, dense);
    return true;
  }
  if (auto array = dyn_cast<DenseArrayAttr>(attribute)) {
    writeTag(record, Tag::DenseArray);
    record.writeType(array.getElementType());
    record.writeVarInt(array.getSize());
    record.writeData(array.getRawData());
    return true;
  }
  if (auto type = dyn_cast<TypeAttr>(attribute)) {
    writeTag(record, Tag::Type);
    record.writeType(type.getValue());
    return true;
  }
  if (auto symbol = dyn_cast<SymbolRefAttr>(attribute)) {
    writeTag(record, Tag::SymbolRef);
    record.writeString(symbol.getRootReference().getValue());
    record.writeVarInt(symbol.getNestedReferences().size());
    for (FlatSymbolRefAttr nested : symbol.getNestedReferences())
      record.writeString(nested.getValue());
    return true;
  }
  if (isa<UnitAttr>(attribute)) {
    writeTag(record, Tag::Unit);
    return true;
  }
  if (auto map = dyn_cast<AffineMapAttr>(attribute)) {
    AffineMap value = map.getValue();
    writeTag(record, Tag::AffineMap);
    record.writeVarInt(value.getNumDims());
    record.writeVarInt(value.getNumSymbols());
    AffineWriter(record).write(value.getResults());
    return true;
  }
  if (auto set = dyn_cast<IntegerSetAttr>(attribute)) {
    IntegerSet value = set.getValue();
    writeTag(record, Tag::IntegerSet);
    record.writeVarInt(value.getNumDims());
    record.writeVarInt(value.getNumSymbols());
    AffineWriter(record).write(value.getConstraints());
    for (bool isEquality : value.getEqFlags())
      record.writeByte(isEquality);
    return true;
  }
  if (auto strings = dyn_cast<DenseStringElementsAttr>(attribute)) {
    writeTag(record, Tag::DenseStrings);
    record.writeType(strings.getType());
    record.writeByte(strings.isSplat());
    ArrayRef<StringRef> values = strings.getRawStringData();
    record.writeVarInt(values.size());
    for (StringRef value : values)
      record.writeString(value);
    return true;
  }
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(attribute)) {
    writeTag(record, Tag::DenseResource);
    record.writeType(resource.getType());
    status = encodeResource(resource.getRawHandle(), record);
    return true;
  }
  if (auto sparse = dyn_cast<SparseElementsAttr>(attribute)) {
    writeTag(record, Tag::Sparse);
    record.writeType(sparse.getType());
    // Into one dimension, `[i, j]` is as good as `[[i], [j]]`, and text does
    // not tell them apart.
    DenseIntElementsAttr indices = sparse.getIndices();
    ShapedType indicesType = indices.getType();
    record.writeVarInt(indicesType.getRank() ? indicesType.getDimSize(0) : 1);
    record.writeType(indices.getElementType());
    writeElements(record, indices);
    record.writeAttribute(sparse.getValues());
    return true;
  }
  if (auto layout = dyn_cast<StridedLayoutAttr>(attribute)) {
    writeTag(record, Tag::StridedLayout);
    record.writeSignedVarInt(layout.getOffset());
    writeShape(record, layout.getStrides());
    return true;
  }
  if (auto opaque = dyn_cast<OpaqueAttr>(attribute)) {
    writeTag(record, Tag::OpaqueAttribute);
    record.writeString(opaque.getDialectNamespace().getValue());
    record.writeString(opaque.getAttrData());
    record.writeType(opaque.getType());
    return true;
  }
  if (auto distinct = dyn_cast<DistinctAttr>(attribute)) {
    writeTag(record, Tag::Distinct);
    record.writeAttribute(distinct.getReferencedAttr());
    return true;
  }
  if (isa<UnknownLoc>(attribute)) {
    writeTag(record, Tag::UnknownLoc);
    return true;
  }
  if (auto location = dyn_cast<NameLoc>(attribute)) {
    writeTag(record, Tag::NameLoc);
    record.writeAttribute(location.getName());
    record.writeAttribute(location.getChildLoc());
    return true;
  }
  if (auto location = dyn_cast<CallSiteLoc>(attribute)) {
    writeTag(record, Tag::CallSiteLoc);
    record.writeAttribute(location.getCallee());
    record.writeAttribute(location.getCaller());
    return true;
  }
  if (auto location = dyn_cast<FusedLoc>(attribute)) {
    writeTag(record, Tag::FusedLoc);
    record.writeVarInt(location.getLocations().size());
    for (Location part : location.getLocations())
      record.writeAttribute(part);
    record.writeAttribute(location.getMetadata());
    return true;
  }
  return false;
}

bool detail::encodeBuiltin(Type type, Record &record) {
  if (auto integer = dyn_cast<IntegerType>(type)) {
    writeTag(record, Tag::IntegerType);
    record.writeVarInt(integer.getWidth());
    record.writeByte(integer.isSignless() ? 0 : integer.isSigned() ? 1 : 2);
    return true;
  }
  if (isa<IndexType>(type)) {
    writeTag(record, Tag::IndexType);
    return true;
  }
  if (isa<FloatType>(type)) {
    // Each format is a class of its own; `builtin.f32` and the like name them.
    writeTag(record, Tag::FloatType);
    record.writeString(type.getAbstractType().getName());
    return true;
  }
  if (auto tensor = dyn_cast<RankedTensorType>(type)) {
    writeTag(record, Tag::RankedTensorType);
    writeShape(record, tensor.getShape());
    record.writeType(tensor.getElementType());
    record.writeAttribute(tensor.getEncoding());
    return true;
  }
  if (auto memref = dyn_cast<MemRefType>(type)) {
    writeTag(record, Tag::MemRefType);
    writeShape(record, memref.getShape());
    record.writeType(memref.getElementType());
    record.writeAttribute(memref.getLayout());
    record.writeAttribute(memref.getMemorySpace());
    return true;
  }
  if (auto vector = dyn_cast<VectorType>(type)) {
    writeTag(record, Tag::VectorType);
    writeShape(record, vector.getShape());
    for (bool isScalable : vector.getScalableDims())
      record.writeByte(isScalable);
    record.writeType(vector.getElementType());
    return true;
  }
  if (auto function = dyn_cast<FunctionType>(type)) {
    writeTag(record, Tag::FunctionType);
    record.writeVarInt(function.getNumInputs());
    for (Type input : function.getInputs())
      record.writeType(input);
    record.writeVarInt(function.getNumResults());
    for (Type result : function.getResults())
      record.writeType(result);
    return true;
  }
  if (auto graph = dyn_cast<GraphType>(type)) {
    writeTag(record, Tag::GraphType);
    record.writeVarInt(graph.getNumInputs());
    for (Type input : graph.getInputs())
      record.writeType(input);
    record.writeVarInt(graph.getNumResults());
    for (Type result : graph.getResults())
      record.writeType(result);
    return true;
  }
  if (isa<NoneType>(type)) {
    writeTag(record, Tag::NoneType);
    return true;
  }
  if (auto complex = dyn_cast<ComplexType>(type)) {
    writeTag(record, Tag::ComplexType);
    record.writeType(complex.getElementType());
    return true;
  }
  if (auto tuple = dyn_cast<TupleType>(type)) {
    writeTag(record, Tag::TupleType);
    record.writeVarInt(tuple.size());
    for (Type element : tuple.getTypes())
      record.writeType(element);
    return true;
  }
  if (auto tensor = dyn_cast<UnrankedTensorType>(type)) {
    writeTag(record, Tag::UnrankedTensorType);
    record.writeType(tensor.getElementType());
    return true;
  }
  if (auto memref = dyn_cast<UnrankedMemRefType>(type)) {
    writeTag(record, Tag::UnrankedMemRefType);
    record.writeType(memref.getElementType());
    record.writeAttribute(memref.getMemorySpace());
    return true;
  }
  if (auto opaque = dyn_cast<OpaqueType>(type)) {
    writeTag(record, Tag::OpaqueType);
    record.writeString(opaque.getDialectNamespace().getValue());
    record.writeString(opaque.getTypeData());
    return true;
  }
  return false;
}

} // namespace ctxpool::codec

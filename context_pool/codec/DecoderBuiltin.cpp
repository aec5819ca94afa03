//===- DecoderBuiltin.cpp - The builtin dialect in another context --------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/codec/DecoderDetail.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/IntegerSet.h"
#include "mlir/IR/Location.h"
#include "llvm/ADT/DenseMap.h"

using namespace mlir;

namespace ctxpool::codec {
namespace {

/// Builds affine expressions, each part once and without recursion.
class AffineBuilder {
public:
  explicit AffineBuilder(MLIRContext &destination) : context(destination) {}

  AffineExpr build(AffineExpr root) {
    SmallVector<AffineExpr> stack{root};
    while (!stack.empty()) {
      AffineExpr source = stack.back();
      if (built.count(source)) {
        stack.pop_back();
        continue;
      }
      AffineExpr result;
      switch (source.getKind()) {
      case AffineExprKind::Constant:
        result = getAffineConstantExpr(
            cast<AffineConstantExpr>(source).getValue(), &context);
        break;
      case AffineExprKind::DimId:
        result = getAffineDimExpr(cast<AffineDimExpr>(source).getPosition(),
                                  &context);
        break;
      case AffineExprKind::SymbolId:
        result = getAffineSymbolExpr(
            cast<AffineSymbolExpr>(source).getPosition(), &context);
        break;
      default: {
        auto binary = cast<AffineBinaryOpExpr>(source);
        AffineExpr lhs = built.lookup(binary.getLHS());
        AffineExpr rhs = built.lookup(binary.getRHS());
        if (!lhs)
          stack.push_back(binary.getLHS());
        if (!rhs)
          stack.push_back(binary.getRHS());
        if (!lhs || !rhs)
          continue;
        // No simplification applies: the source's expression is what its own
        // left these two as.
        result = getAffineBinaryOpExpr(source.getKind(), lhs, rhs);
      }
      }
      built[source] = result;
      stack.pop_back();
    }
    return built.lookup(root);
  }

  SmallVector<AffineExpr> build(ArrayRef<AffineExpr> sources) {
    SmallVector<AffineExpr> results;
    for (AffineExpr source : sources)
      results.push_back(build(source));
    return results;
  }

private:
  MLIRContext &context;
  llvm::DenseMap<AffineExpr, AffineExpr> built;
};

template <typename... Types>
Type buildSingleton(Type source, MLIRContext &destination) {
  Type result;
  (void)((isa<Types>(source) && (result = Types::get(&destination), true)) ||
         ...);
  return result;
}

/// For a builder that checks, and whose reason goes to the handler of the
/// caller.
auto emitterOf(MLIRContext &context) {
  return [&context] { return emitError(UnknownLoc::get(&context)); };
}

absl::Status refuseOpaque(StringRef dialect, StringRef what) {
  return missingDialect(dialect, what, "of an unregistered dialect");
}

} // namespace

Attribute detail::decodeBuiltin(Attribute source, MLIRContext &destination,
                                Parts &parts, bool &known,
                                absl::Status &status) {
  known = true;
  detail::Lookup find(parts);
  // Not before all parts are there.
  auto when = [&find](auto &&build) -> Attribute {
    return find.complete ? Attribute(build()) : Attribute();
  };

  if (auto location = dyn_cast<FileLineColRange>(source)) {
    auto file = find(location.getFilename());
    return when([&]() -> Attribute {
      // A range that is one point is another attribute than that point.
      if (isStrictFileLineColLoc(location))
        return FileLineColLoc::get(file, location.getStartLine(),
                                   location.getStartColumn());
      return FileLineColRange::get(
          file, location.getStartLine(), location.getStartColumn(),
          location.getEndLine(), location.getEndColumn());
    });
  }
  if (auto integer = dyn_cast<IntegerAttr>(source)) {
    Type type = find(integer.getType());
    return when([&] { return IntegerAttr::get(type, integer.getValue()); });
  }
  if (auto string = dyn_cast<StringAttr>(source)) {
    if (isa<NoneType>(string.getType()))
      return StringAttr::get(&destination, string.getValue());
    Type type = find(string.getType());
    return when([&] { return StringAttr::get(string.getValue(), type); });
  }
  if (auto location = dyn_cast<NameLoc>(source)) {
    auto name = find(location.getName());
    auto child = find(LocationAttr(location.getChildLoc()));
    return when([&] { return NameLoc::get(name, Location(child)); });
  }
  if (auto location = dyn_cast<CallSiteLoc>(source)) {
    auto callee = find(LocationAttr(location.getCallee()));
    auto caller = find(LocationAttr(location.getCaller()));
    return when(
        [&] { return CallSiteLoc::get(Location(callee), Location(caller)); });
  }
  if (auto location = dyn_cast<FusedLoc>(source)) {
    SmallVector<LocationAttr> found =
        find.all<LocationAttr>(location.getLocations());
    Attribute metadata = find(location.getMetadata());
    return when([&] {
      SmallVector<Location> locations(found.begin(), found.end());
      // The form that folds nothing.
      return FusedLoc::get(&destination, locations, metadata);
    });
  }
  if (isa<UnknownLoc>(source))
    return UnknownLoc::get(&destination);
  if (auto number = dyn_cast<FloatAttr>(source)) {
    Type type = find(number.getType());
    return when([&] { return FloatAttr::get(type, number.getValue()); });
  }
  if (auto dictionary = dyn_cast<DictionaryAttr>(source)) {
    SmallVector<NamedAttribute> entries;
    for (NamedAttribute entry : dictionary) {
      StringAttr name = find(entry.getName());
      Attribute value = find(entry.getValue());
      if (!find.complete)
        continue;
      // As the parser does, for the verifier wants to ask the dialect.
      auto [dialect, rest] = name.strref().split('.');
      if (!rest.empty())
        loadDialect(destination, dialect);
      entries.emplace_back(name, value);
    }
    return when(
        [&] { return DictionaryAttr::getWithSorted(&destination, entries); });
  }
  if (auto array = dyn_cast<ArrayAttr>(source)) {
    SmallVector<Attribute> elements = find.all<Attribute>(array);
    return when([&] { return ArrayAttr::get(&destination, elements); });
  }
  if (auto dense = dyn_cast<DenseIntOrFPElementsAttr>(source)) {
    auto type = find(Type(dense.getType()));
    return when([&] {
      return DenseElementsAttr::getFromRawBuffer(cast<ShapedType>(type),
                                                 dense.getRawData());
    });
  }
  if (auto array = dyn_cast<DenseArrayAttr>(source)) {
    Type type = find(array.getElementType());
    return when([&] {
      return DenseArrayAttr::get(&destination, type, array.getSize(),
                                 array.getRawData());
    });
  }
  if (auto type = dyn_cast<TypeAttr>(source)) {
    Type value = find(type.getValue());
    return when([&] { return TypeAttr::get(value); });
  }
  if (auto symbol = dyn_cast<SymbolRefAttr>(source)) {
    auto root = find(symbol.getRootReference());
    SmallVector<FlatSymbolRefAttr> nested =
        find.all<FlatSymbolRefAttr>(symbol.getNestedReferences());
    return when([&] { return SymbolRefAttr::get(root, nested); });
  }
  if (isa<UnitAttr>(source))
    return UnitAttr::get(&destination);
  if (auto map = dyn_cast<AffineMapAttr>(source)) {
    AffineMap value = map.getValue();
    SmallVector<AffineExpr> results =
        AffineBuilder(destination).build(value.getResults());
    return AffineMapAttr::get(AffineMap::get(
        value.getNumDims(), value.getNumSymbols(), results, &destination));
  }
  if (auto set = dyn_cast<IntegerSetAttr>(source)) {
    IntegerSet value = set.getValue();
    SmallVector<AffineExpr> constraints =
        AffineBuilder(destination).build(value.getConstraints());
    return IntegerSetAttr::get(
        IntegerSet::get(value.getNumDims(), value.getNumSymbols(), constraints,
                        value.getEqFlags()));
  }
  if (auto strings = dyn_cast<DenseStringElementsAttr>(source)) {
    auto type = find(Type(strings.getType()));
    return when([&] {
      return DenseStringElementsAttr::get(cast<ShapedType>(type),
                                          strings.getRawStringData());
    });
  }
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(source)) {
    auto type = find(Type(resource.getType()));
    if (!find.complete)
      return {};
    AsmDialectResourceHandle handle;
    status = parts.findResource(resource.getRawHandle(), handle);
    if (!status.ok())
      return {};
    return DenseResourceElementsAttr::get(
        cast<ShapedType>(type), cast<DenseResourceElementsHandle>(handle));
  }
  if (auto sparse = dyn_cast<SparseElementsAttr>(source)) {
    auto type = find(Type(sparse.getType()));
    Attribute indices = find(Attribute(sparse.getIndices()));
    Attribute values = find(Attribute(sparse.getValues()));
    return when([&] {
      return SparseElementsAttr::getChecked(
          emitterOf(destination), cast<ShapedType>(type),
          cast<DenseElementsAttr>(indices), cast<DenseElementsAttr>(values));
    });
  }
  if (auto layout = dyn_cast<StridedLayoutAttr>(source))
    return StridedLayoutAttr::get(&destination, layout.getOffset(),
                                  layout.getStrides());
  if (auto opaque = dyn_cast<OpaqueAttr>(source)) {
    Type type = find(opaque.getType());
    if (!find.complete)
      return {};
    if (!destination.allowsUnregisteredDialects() &&
        !loadDialect(destination, opaque.getDialectNamespace())) {
      status = refuseOpaque(opaque.getDialectNamespace(), "attribute");
      return {};
    }
    return OpaqueAttr::get(
        StringAttr::get(&destination, opaque.getDialectNamespace().getValue()),
        opaque.getAttrData(), type);
  }
  // An address means nothing elsewhere: upstream's formats keep the fallback.
  if (auto opaque = dyn_cast<OpaqueLoc>(source))
    return find(LocationAttr(opaque.getFallbackLocation()));
  if (auto distinct = dyn_cast<DistinctAttr>(source)) {
    Attribute referenced = find(distinct.getReferencedAttr());
    return when([&] { return DistinctAttr::create(referenced); });
  }
  known = false;
  return {};
}

Type detail::decodeBuiltin(Type source, MLIRContext &destination, Parts &parts,
                           bool &known, absl::Status &status) {
  known = true;
  detail::Lookup find(parts);
  auto when = [&find](auto &&build) -> Type {
    return find.complete ? Type(build()) : Type();
  };

  if (auto integer = dyn_cast<IntegerType>(source))
    return IntegerType::get(&destination, integer.getWidth(),
                            integer.getSignedness());
  if (isa<IndexType>(source))
    return IndexType::get(&destination);
  if (isa<FloatType>(source)) {
    Type result =
        buildSingleton<Float32Type, Float64Type, Float16Type, BFloat16Type,
                       FloatTF32Type, Float80Type, Float128Type, Float8E5M2Type,
                       Float8E4M3Type, Float8E4M3FNType, Float8E5M2FNUZType,
                       Float8E4M3FNUZType, Float8E4M3B11FNUZType,
                       Float8E3M4Type, Float4E2M1FNType, Float6E2M3FNType,
                       Float6E3M2FNType, Float8E8M0FNUType>(source,
                                                            destination);
    known = bool(result);
    return result;
  }
  if (auto tensor = dyn_cast<RankedTensorType>(source)) {
    Type element = find(tensor.getElementType());
    Attribute encoding = find(tensor.getEncoding());
    return when([&] {
      return RankedTensorType::get(tensor.getShape(), element, encoding);
    });
  }
  if (auto memref = dyn_cast<MemRefType>(source)) {
    Type element = find(memref.getElementType());
    Attribute layout = find(Attribute(memref.getLayout()));
    Attribute space = find(memref.getMemorySpace());
    return when([&] {
      return MemRefType::get(memref.getShape(), element,
                             cast<MemRefLayoutAttrInterface>(layout), space);
    });
  }
  if (auto vector = dyn_cast<VectorType>(source)) {
    Type element = find(vector.getElementType());
    return when([&] {
      return VectorType::get(vector.getShape(), element,
                             vector.getScalableDims());
    });
  }
  if (auto function = dyn_cast<FunctionType>(source)) {
    SmallVector<Type> inputs = find.all<Type>(function.getInputs());
    SmallVector<Type> results = find.all<Type>(function.getResults());
    return when(
        [&] { return FunctionType::get(&destination, inputs, results); });
  }
  if (auto graph = dyn_cast<GraphType>(source)) {
    SmallVector<Type> inputs = find.all<Type>(graph.getInputs());
    SmallVector<Type> results = find.all<Type>(graph.getResults());
    return when([&] { return GraphType::get(&destination, inputs, results); });
  }
  if (isa<NoneType>(source))
    return NoneType::get(&destination);
  if (auto complex = dyn_cast<ComplexType>(source)) {
    Type element = find(complex.getElementType());
    return when([&] { return ComplexType::get(element); });
  }
  if (auto tuple = dyn_cast<TupleType>(source)) {
    SmallVector<Type> types = find.all<Type>(tuple.getTypes());
    return when([&] { return TupleType::get(&destination, types); });
  }
  if (auto tensor = dyn_cast<UnrankedTensorType>(source)) {
    Type element = find(tensor.getElementType());
    return when([&] { return UnrankedTensorType::get(element); });
  }
  if (auto memref = dyn_cast<UnrankedMemRefType>(source)) {
    Type element = find(memref.getElementType());
    Attribute space = find(memref.getMemorySpace());
    return when([&] { return UnrankedMemRefType::get(element, space); });
  }
  if (auto opaque = dyn_cast<OpaqueType>(source)) {
    if (!destination.allowsUnregisteredDialects() &&
        !loadDialect(destination, opaque.getDialectNamespace())) {
      status = refuseOpaque(opaque.getDialectNamespace(), "type");
      return {};
    }
    return OpaqueType::get(
        StringAttr::get(&destination, opaque.getDialectNamespace().getValue()),
        opaque.getTypeData());
  }
  known = false;
  return {};
}

} // namespace ctxpool::codec

//===- DecoderLLVM.cpp - The LLVM dialect in another context --------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// What LLVM modules have much of and the dialect has no bytecode for, built
/// from its accessors: its text takes many times longer, and that of types may
/// be exponentially large. Every kind here is its parameters and no more.
///
//===----------------------------------------------------------------------===//

#include "context_pool/codec/DecoderDetail.h"

#include "mlir/Dialect/DLTI/DLTI.h"
#include "mlir/Dialect/LLVMIR/LLVMAttrs.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMTypes.h"

using namespace mlir;

namespace ctxpool::codec {
namespace {

/// Those that are one value of an enumeration.
template <typename Kind, typename Value>
bool buildEnum(Attribute source, Value (Kind::*get)() const,
               MLIRContext &destination, Attribute &result) {
  auto attribute = dyn_cast<Kind>(source);
  if (attribute)
    result = Kind::get(&destination, (attribute.*get)());
  return bool(attribute);
}

bool buildEnum(Attribute source, MLIRContext &destination, Attribute &result) {
  auto build = [&](auto get) {
    return buildEnum(source, get, destination, result);
  };
  return build(&LLVM::LinkageAttr::getLinkage) ||
         build(&LLVM::CConvAttr::getCallingConv) ||
         build(&LLVM::TailCallKindAttr::getTailCallKind) ||
         build(&LLVM::UWTableKindAttr::getUwtableKind) ||
         build(&LLVM::FramePointerKindAttr::getFramePointerKind) ||
         build(&LLVM::FastmathFlagsAttr::getValue) ||
         build(&LLVM::IntegerOverflowFlagsAttr::getValue);
}

template <typename... Types>
bool buildSingleton(Type source, MLIRContext &destination, Type &result) {
  return ((isa<Types>(source) && (result = Types::get(&destination), true)) ||
          ...);
}

Attribute decodeDataLayout(Attribute source, MLIRContext &destination,
                           Parts &parts, bool &known) {
  known = true;
  detail::Lookup find(parts);
  if (auto entry = dyn_cast<DataLayoutEntryAttr>(source)) {
    DataLayoutEntryKey key = entry.getKey();
    if (auto type = dyn_cast<Type>(key))
      key = find(type);
    else
      key = find(cast<StringAttr>(key));
    Attribute value = find(entry.getValue());
    return find.complete ? DataLayoutEntryAttr::get(&destination, key, value)
                         : Attribute();
  }
  if (auto spec = dyn_cast<DataLayoutSpecAttr>(source)) {
    auto entries = find.all<DataLayoutEntryInterface>(spec.getEntries());
    return find.complete ? DataLayoutSpecAttr::get(&destination, entries)
                         : Attribute();
  }
  known = false;
  return {};
}

} // namespace

Attribute detail::decodeLLVM(Attribute source, MLIRContext &destination,
                             Parts &parts, bool &known) {
  if (isa<DLTIDialect>(source.getDialect()))
    return decodeDataLayout(source, destination, parts, known);
  known = isa<LLVM::LLVMDialect>(source.getDialect());
  if (!known)
    return {};
  Lookup find(parts);
  auto when = [&find](auto &&build) -> Attribute {
    return find.complete ? Attribute(build()) : Attribute();
  };

  if (auto tag = dyn_cast<LLVM::TBAATagAttr>(source)) {
    auto base = find(tag.getBaseType());
    auto access = find(tag.getAccessType());
    return when([&] {
      return LLVM::TBAATagAttr::get(&destination, base, access, tag.getOffset(),
                                    tag.getConstant());
    });
  }
  if (auto type = dyn_cast<LLVM::TBAATypeDescriptorAttr>(source)) {
    auto members = find.all<LLVM::TBAAMemberAttr>(type.getMembers());
    return when([&] {
      return LLVM::TBAATypeDescriptorAttr::get(&destination, type.getId(),
                                               members);
    });
  }
  if (auto member = dyn_cast<LLVM::TBAAMemberAttr>(source)) {
    auto type = find(member.getTypeDesc());
    return when([&] {
      return LLVM::TBAAMemberAttr::get(&destination, type, member.getOffset());
    });
  }
  if (auto root = dyn_cast<LLVM::TBAARootAttr>(source)) {
    auto id = find(root.getId());
    return when([&] { return LLVM::TBAARootAttr::get(&destination, id); });
  }
  if (auto scope = dyn_cast<LLVM::AliasScopeAttr>(source)) {
    Attribute id = find(scope.getId());
    auto domain = find(scope.getDomain());
    auto description = find(scope.getDescription());
    return when([&] {
      return LLVM::AliasScopeAttr::get(&destination, id, domain, description);
    });
  }
  if (auto domain = dyn_cast<LLVM::AliasScopeDomainAttr>(source)) {
    Attribute id = find(domain.getId());
    auto description = find(domain.getDescription());
    return when([&] {
      return LLVM::AliasScopeDomainAttr::get(&destination, id, description);
    });
  }
  if (auto group = dyn_cast<LLVM::AccessGroupAttr>(source)) {
    auto id = find(group.getId());
    return when([&] { return LLVM::AccessGroupAttr::get(&destination, id); });
  }
  if (auto effects = dyn_cast<LLVM::MemoryEffectsAttr>(source))
    return LLVM::MemoryEffectsAttr::get(
        &destination, effects.getOther(), effects.getArgMem(),
        effects.getInaccessibleMem(), effects.getErrnoMem(),
        effects.getTargetMem0(), effects.getTargetMem1());
  if (auto target = dyn_cast<LLVM::TargetFeaturesAttr>(source)) {
    auto features = find.all<StringAttr>(target.getFeatures());
    return when([&] {
      return LLVM::TargetFeaturesAttr::get(&destination,
                                           ArrayRef<StringAttr>(features));
    });
  }
  Attribute result;
  known = buildEnum(source, destination, result);
  return result;
}

Type detail::decodeLLVM(Type source, MLIRContext &destination, Parts &parts,
                        bool &known, absl::Status &status) {
  known = isa<LLVM::LLVMDialect>(source.getDialect());
  if (!known)
    return {};
  Lookup find(parts);
  auto when = [&find](auto &&build) -> Type {
    return find.complete ? Type(build()) : Type();
  };

  if (auto pointer = dyn_cast<LLVM::LLVMPointerType>(source))
    return LLVM::LLVMPointerType::get(&destination, pointer.getAddressSpace());
  if (auto array = dyn_cast<LLVM::LLVMArrayType>(source)) {
    Type element = find(array.getElementType());
    return when([&] {
      return LLVM::LLVMArrayType::get(element, array.getNumElements());
    });
  }
  if (auto function = dyn_cast<LLVM::LLVMFunctionType>(source)) {
    Type result = find(function.getReturnType());
    auto parameters = find.all<Type>(function.getParams());
    return when([&] {
      return LLVM::LLVMFunctionType::get(result, parameters,
                                         function.isVarArg());
    });
  }
  if (auto structure = dyn_cast<LLVM::LLVMStructType>(source)) {
    if (!structure.isIdentified()) {
      auto body = find.all<Type>(structure.getBody());
      return when([&] {
        return LLVM::LLVMStructType::getLiteral(&destination, body,
                                                structure.isPacked());
      });
    }
    if (structure.isOpaque()) {
      auto result =
          LLVM::LLVMStructType::getOpaque(structure.getName(), &destination);
      if (result.isOpaque())
        return result;
      status = refuse(source, "another type has its name there");
      return {};
    }
    auto result =
        LLVM::LLVMStructType::getIdentified(&destination, structure.getName());
    parts.addBodyless(source, result);
    return result;
  }
  if (auto target = dyn_cast<LLVM::LLVMTargetExtType>(source)) {
    auto types = find.all<Type>(target.getTypeParams());
    return when([&] {
      return LLVM::LLVMTargetExtType::get(&destination, target.getExtTypeName(),
                                          types, target.getIntParams());
    });
  }
  Type result;
  known = buildSingleton<LLVM::LLVMVoidType, LLVM::LLVMTokenType,
                         LLVM::LLVMLabelType, LLVM::LLVMMetadataType,
                         LLVM::LLVMX86AMXType, LLVM::LLVMPPCFP128Type>(
      source, destination, result);
  return result;
}

bool setBody(Type source, Type counterpart, Parts &parts,
             absl::Status &status) {
  auto structure = cast<LLVM::LLVMStructType>(source);
  detail::Lookup find(parts);
  auto body = find.all<Type>(structure.getBody());
  if (!find.complete)
    return false;
  if (succeeded(cast<LLVM::LLVMStructType>(counterpart)
                    .setBody(body, structure.isPacked())))
    return true;
  status = detail::refuse(source, "another type has its name there");
  return false;
}

} // namespace ctxpool::codec

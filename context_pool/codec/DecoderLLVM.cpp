//===- DecoderLLVM.cpp - The LLVM dialect in another context --------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// What LLVM modules have much of, built from its accessors. Most of it the
/// dialect has no bytecode for: its text takes many times longer, and that of
/// types may be exponentially large. Every kind here is its parameters and no
/// more.
///
//===----------------------------------------------------------------------===//

#include "context_pool/codec/DecoderDetail.h"

#include "mlir/Dialect/DLTI/DLTI.h"
#include "mlir/Dialect/LLVMIR/LLVMAttrs.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMTypes.h"
#include "llvm/ADT/TypeSwitch.h"

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

/// Makes an attribute of its kind, where all parts were found.
struct Maker {
  template <typename Kind, typename... Parameters>
  Attribute operator()(Kind, const Parameters &...parameters) const {
    return find.complete ? Attribute(Kind::get(&destination, parameters...))
                         : Attribute();
  }

  const detail::Lookup &find;
  MLIRContext &destination;
};

/// What the dialect does have bytecode for, and LLVM modules with debug
/// information consist of.
Attribute decodeDebugInfo(Attribute source, MLIRContext &destination,
                          Parts &parts, bool &known) {
  known = true;
  detail::Lookup find(parts);
  Maker make{find, destination};
  return llvm::TypeSwitch<Attribute, Attribute>(source)
      .Case([&](LLVM::DILexicalBlockAttr block) {
        return make(block, find(block.getScope()), find(block.getFile()),
                    block.getLine(), block.getColumn());
      })
      .Case([&](LLVM::DILexicalBlockFileAttr block) {
        return make(block, find(block.getScope()), find(block.getFile()),
                    block.getDiscriminator());
      })
      .Case([&](LLVM::DILocalVariableAttr variable) {
        return make(variable, find(variable.getScope()),
                    find(variable.getName()), find(variable.getFile()),
                    variable.getLine(), variable.getArg(),
                    variable.getAlignInBits(), find(variable.getType()),
                    variable.getFlags());
      })
      .Case([&](LLVM::DIExpressionAttr expression) {
        return make(expression, find.all<LLVM::DIExpressionElemAttr>(
                                    expression.getOperations()));
      })
      .Case([&](LLVM::DIExpressionElemAttr element) {
        return make(element, element.getOpcode(), element.getArguments());
      })
      .Case([&](LLVM::DISubprogramAttr program) {
        return make(program, find(program.getRecId()), program.getIsRecSelf(),
                    find(program.getId()), find(program.getCompileUnit()),
                    find(program.getScope()), find(program.getName()),
                    find(program.getLinkageName()), find(program.getFile()),
                    program.getLine(), program.getScopeLine(),
                    program.getSubprogramFlags(), find(program.getType()),
                    find.all<LLVM::DINodeAttr>(program.getRetainedNodes()),
                    find.all<LLVM::DINodeAttr>(program.getAnnotations()));
      })
      .Case([&](LLVM::DISubroutineTypeAttr type) {
        return make(type, type.getCallingConvention(),
                    find.all<LLVM::DITypeAttr>(type.getTypes()));
      })
      .Case([&](LLVM::DIDerivedTypeAttr type) {
        return make(type, type.getTag(), find(type.getName()),
                    find(type.getBaseType()), type.getSizeInBits(),
                    type.getAlignInBits(), type.getOffsetInBits(),
                    type.getDwarfAddressSpace(), find(type.getExtraData()));
      })
      .Case([&](LLVM::DICompositeTypeAttr type) {
        return make(type, find(type.getRecId()), type.getIsRecSelf(),
                    type.getTag(), find(type.getName()), find(type.getFile()),
                    type.getLine(), find(type.getScope()),
                    find(type.getBaseType()), type.getFlags(),
                    type.getSizeInBits(), type.getAlignInBits(),
                    find(type.getDataLocation()), find(type.getRank()),
                    find(type.getAllocated()), find(type.getAssociated()),
                    find.all<LLVM::DINodeAttr>(type.getElements()));
      })
      .Case([&](LLVM::DIBasicTypeAttr type) {
        return make(type, type.getTag(), find(type.getName()),
                    type.getSizeInBits(), type.getEncoding());
      })
      .Case([&](LLVM::DINullTypeAttr type) { return make(type); })
      .Case([&](LLVM::DISubrangeAttr range) {
        return make(range, find(range.getCount()), find(range.getLowerBound()),
                    find(range.getUpperBound()), find(range.getStride()));
      })
      .Case([&](LLVM::DIFileAttr file) {
        return make(file, find(file.getName()), find(file.getDirectory()));
      })
      .Case([&](LLVM::DICompileUnitAttr unit) {
        return make(unit, find(unit.getId()), unit.getSourceLanguage(),
                    find(unit.getFile()), find(unit.getProducer()),
                    unit.getIsOptimized(), unit.getEmissionKind(),
                    unit.getNameTableKind(),
                    find(unit.getSplitDebugFilename()));
      })
      .Case([&](LLVM::DIGlobalVariableAttr variable) {
        return make(variable, find(variable.getScope()),
                    find(variable.getName()), find(variable.getLinkageName()),
                    find(variable.getFile()), variable.getLine(),
                    find(variable.getType()), variable.getIsLocalToUnit(),
                    variable.getIsDefined(), variable.getAlignInBits());
      })
      .Case([&](LLVM::DIGlobalVariableExpressionAttr variable) {
        return make(variable, find(variable.getVar()),
                    find(variable.getExpr()));
      })
      .Case([&](LLVM::DILabelAttr label) {
        return make(label, find(label.getScope()), find(label.getName()),
                    find(label.getFile()), label.getLine());
      })
      .Default([&](Attribute) {
        known = false;
        return Attribute();
      });
}

} // namespace

Attribute detail::decodeLLVM(Attribute source, MLIRContext &destination,
                             Parts &parts, bool &known) {
  if (isa<DLTIDialect>(source.getDialect()))
    return decodeDataLayout(source, destination, parts, known);
  known = isa<LLVM::LLVMDialect>(source.getDialect());
  if (!known)
    return {};
  if (Attribute debugInfo = decodeDebugInfo(source, destination, parts, known);
      known)
    return debugInfo;
  Attribute result;
  known = buildEnum(source, destination, result);
  if (known)
    return result;

  known = true;
  Lookup find(parts);
  Maker make{find, destination};
  return llvm::TypeSwitch<Attribute, Attribute>(source)
      .Case([&](LLVM::TBAATagAttr tag) {
        return make(tag, find(tag.getBaseType()), find(tag.getAccessType()),
                    tag.getOffset(), tag.getConstant());
      })
      .Case([&](LLVM::TBAATypeDescriptorAttr type) {
        return make(type, type.getId(),
                    find.all<LLVM::TBAAMemberAttr>(type.getMembers()));
      })
      .Case([&](LLVM::TBAAMemberAttr member) {
        return make(member, find(member.getTypeDesc()), member.getOffset());
      })
      .Case([&](LLVM::TBAARootAttr root) {
        return make(root, find(root.getId()));
      })
      .Case([&](LLVM::AliasScopeAttr scope) {
        return make(scope, find(scope.getId()), find(scope.getDomain()),
                    find(scope.getDescription()));
      })
      .Case([&](LLVM::AliasScopeDomainAttr domain) {
        return make(domain, find(domain.getId()),
                    find(domain.getDescription()));
      })
      .Case([&](LLVM::AccessGroupAttr group) {
        return make(group, find(group.getId()));
      })
      .Case([&](LLVM::MemoryEffectsAttr effects) {
        return make(effects, effects.getOther(), effects.getArgMem(),
                    effects.getInaccessibleMem(), effects.getErrnoMem(),
                    effects.getTargetMem0(), effects.getTargetMem1());
      })
      .Case([&](LLVM::TargetFeaturesAttr target) {
        auto features = find.all<StringAttr>(target.getFeatures());
        return make(target, ArrayRef<StringAttr>(features));
      })
      .Case([&](LLVM::LoopAnnotationAttr loop) {
        return make(
            loop, find(loop.getDisableNonforced()), find(loop.getVectorize()),
            find(loop.getInterleave()), find(loop.getUnroll()),
            find(loop.getUnrollAndJam()), find(loop.getLicm()),
            find(loop.getDistribute()), find(loop.getPipeline()),
            find(loop.getPeeled()), find(loop.getUnswitch()),
            find(loop.getMustProgress()), find(loop.getIsVectorized()),
            find(loop.getStartLoc()), find(loop.getEndLoc()),
            find.all<LLVM::AccessGroupAttr>(loop.getParallelAccesses()));
      })
      .Case([&](LLVM::LoopUnrollAttr unroll) {
        return make(unroll, find(unroll.getDisable()), find(unroll.getCount()),
                    find(unroll.getRuntimeDisable()), find(unroll.getFull()),
                    find(unroll.getFollowupUnrolled()),
                    find(unroll.getFollowupRemainder()),
                    find(unroll.getFollowupAll()));
      })
      .Default([&](Attribute) {
        known = false;
        return Attribute();
      });
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

//===- LLVMEncoder.cpp - Encodings of the LLVM dialect's types ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The types of the LLVM dialect that are made of others. Its printer prints
/// these in full wherever they occur, past the printer that it is given: text
/// that may be exponentially larger than what it stands for.
///
//===----------------------------------------------------------------------===//

#include "context_pool/codec/EncoderDetail.h"

#include "mlir/Dialect/LLVMIR/LLVMTypes.h"

using namespace mlir;

namespace ctxpool::codec {

bool detail::isLiteralStruct(Type type) {
  auto structure = dyn_cast<LLVM::LLVMStructType>(type);
  return structure && !structure.isIdentified();
}

bool detail::encodeLLVM(Type type, Record &record) {
  auto writeTag = [&](Tag tag) { record.writeByte(static_cast<uint8_t>(tag)); };
  auto writeTypes = [&](ArrayRef<Type> types) {
    record.writeVarInt(types.size());
    for (Type part : types)
      record.writeType(part);
  };
  if (auto structure = dyn_cast<LLVM::LLVMStructType>(type)) {
    writeTag(Tag::LLVMStruct);
    record.writeByte(structure.isIdentified());
    if (structure.isIdentified()) {
      record.writeString(structure.getName());
      // One without a body so far prints as an opaque one.
      record.writeByte(structure.isOpaque());
      if (structure.isOpaque())
        return true;
    }
    record.writeByte(structure.isPacked());
    writeTypes(structure.getBody());
    return true;
  }
  if (auto array = dyn_cast<LLVM::LLVMArrayType>(type)) {
    writeTag(Tag::LLVMArray);
    record.writeVarInt(array.getNumElements());
    record.writeType(array.getElementType());
    return true;
  }
  if (auto function = dyn_cast<LLVM::LLVMFunctionType>(type)) {
    writeTag(Tag::LLVMFunction);
    record.writeByte(function.isVarArg());
    record.writeType(function.getReturnType());
    writeTypes(function.getParams());
    return true;
  }
  if (auto target = dyn_cast<LLVM::LLVMTargetExtType>(type)) {
    writeTag(Tag::LLVMTargetExt);
    record.writeString(target.getExtTypeName());
    writeTypes(target.getTypeParams());
    record.writeVarInt(target.getIntParams().size());
    for (unsigned parameter : target.getIntParams())
      record.writeVarInt(parameter);
    return true;
  }
  return false;
}

} // namespace ctxpool::codec

//===- OperationInfo.h - What is known of an operation's name ---*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_IR_OPERATIONINFO_H
#define CONTEXT_POOL_IR_OPERATIONINFO_H

#include "context_pool/ir/Symbols.h"

#include "context_pool/codec/SinkWriter.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"

namespace ctxpool::detail {

/// How operations of one name keep their properties.
enum class PropertyKind : uint8_t {
  None,
  /// Written by their BytecodeOpInterface.
  Native,
  /// A dictionary, which unregistered operations keep.
  Dictionary,
  /// Native, and without a BytecodeOpInterface.
  Opaque,
};

/// Whether to ask for the property by name would make an attribute of it.
inline bool isSegmentSizes(llvm::StringRef name) {
  return name.ends_with("SegmentSizes") || name.ends_with("_segment_sizes");
}

/// Hands properties to a sink, with null in place of a symbol's own name.
template <typename Sink>
class NamelessSink {
public:
  NamelessSink(Sink &newTarget, mlir::Operation *op, mlir::Attribute newName)
      : target(newTarget), name(newName) {
    // Others may have this value as well. They are written in alphabetical
    // order.
    for (mlir::StringAttr other : op->getName().getAttributeNames()) {
      llvm::StringRef text = other.getValue();
      if (text < "sym_name" && !isSegmentSizes(text) &&
          op->getInherentAttr(text).value_or(mlir::Attribute()) == name)
        ++before;
    }
  }

  void writeByte(uint8_t value) { target.writeByte(value); }
  void writeVarInt(uint64_t value) { target.writeVarInt(value); }
  void writeRaw(const void *data, size_t size) { target.writeRaw(data, size); }
  void writeData(llvm::ArrayRef<char> data) { target.writeData(data); }
  void writeAttribute(mlir::Attribute attribute) {
    bool isName = attribute == name && before-- == 0;
    target.writeAttribute(isName ? mlir::Attribute() : attribute);
  }
  void writeType(mlir::Type type) { target.writeType(type); }
  void writeResource(const mlir::AsmDialectResourceHandle &handle) {
    target.writeResource(handle);
  }

private:
  Sink &target;
  mlir::Attribute name;
  /// How many properties of that value precede the name.
  int before = 0;
};

struct OperationInfo {
  PropertyKind properties = PropertyKind::None;
  mlir::BytecodeOpInterface::Concept *writer = nullptr;

  static OperationInfo of(mlir::Operation *op) {
    OperationInfo info;
    mlir::OperationName name = op->getName();
    if (!name.isRegistered())
      info.properties = PropertyKind::Dictionary;
    else if (name.getOpPropertyByteSize() != 0) {
      info.writer = name.getInterface<mlir::BytecodeOpInterface>();
      info.properties =
          info.writer ? PropertyKind::Native : PropertyKind::Opaque;
    }
    return info;
  }

  /// Gives the operation's properties to the sink. With `nameless`, all but the
  /// symbol's name.
  template <typename Sink>
  void writeProperties(mlir::Operation *op, Sink &sink, bool nameless) const {
    mlir::Attribute name = nameless && properties != PropertyKind::None
                               ? Symbols::getInherentName(op)
                               : mlir::Attribute();
    switch (properties) {
    case PropertyKind::None:
      return;
    case PropertyKind::Native: {
      if (!name) {
        codec::SinkWriter<Sink> bytecode(sink);
        writer->writeProperties(writer, op, bytecode);
        return;
      }
      NamelessSink<Sink> namelessSink(sink, op, name);
      codec::SinkWriter<NamelessSink<Sink>> bytecode(namelessSink);
      writer->writeProperties(writer, op, bytecode);
      return;
    }
    case PropertyKind::Dictionary:
    case PropertyKind::Opaque: {
      mlir::Attribute attribute = op->getPropertiesAsAttribute();
      auto dictionary = name && attribute
                            ? mlir::dyn_cast<mlir::DictionaryAttr>(attribute)
                            : mlir::DictionaryAttr();
      if (!dictionary) {
        sink.writeAttribute(attribute);
        return;
      }
      writeEntries(dictionary, sink,
                   [](llvm::StringRef name) { return name != "sym_name"; });
      return;
    }
    }
  }

  /// The entries of the dictionary that `keep` wants.
  template <typename Sink, typename Keep>
  static void writeEntries(mlir::DictionaryAttr dictionary, Sink &sink,
                           Keep keep) {
    for (mlir::NamedAttribute entry : dictionary) {
      llvm::StringRef name = entry.getName().strref();
      if (!keep(name))
        continue;
      sink.writeByte(1);
      sink.writeData({name.data(), name.size()});
      sink.writeAttribute(entry.getValue());
    }
    sink.writeByte(0);
  }
};

/// Which attributes of an operation's dictionary count.
class DictionaryFilter {
public:
  enum class Form {
    /// None of them.
    None,
    /// The dictionary as it is.
    Whole,
    /// Those that the filter accepts.
    Entries,
  };

  /// `empty` is the empty dictionary of the context. The name of a nameless
  /// symbol does not count where it is kept here.
  DictionaryFilter(mlir::Operation *holder, const StructuralOptions &options,
                   bool isNameless, mlir::DictionaryAttr empty)
      : op(holder), dictionary(holder->getRawDictionaryAttrs()),
        includeDiscardable(options.includeDiscardableAttributes),
        nameless(isNameless && !Symbols::getInherentName(holder)) {
    // The usual one is known without a look at its memory; another context's
    // may be empty as well.
    if (dictionary == empty || dictionary.empty())
      return;
    if (includeDiscardable && !(nameless && dictionary.get("sym_name")))
      form = Form::Whole;
    else if (llvm::any_of(dictionary, [&](mlir::NamedAttribute entry) {
               return (*this)(entry.getName().strref());
             }))
      form = Form::Entries;
  }

  Form getForm() const { return form; }
  mlir::DictionaryAttr getDictionary() const { return dictionary; }

  bool operator()(llvm::StringRef name) const {
    if (nameless && name == "sym_name")
      return false;
    if (includeDiscardable)
      return true;
    // Only an operation without properties keeps inherent attributes here.
    if (!op->getName().isRegistered() || op->getPropertiesStorageSize() != 0)
      return false;
    for (mlir::StringAttr inherent : op->getName().getAttributeNames())
      if (inherent.getValue() == name)
        return true;
    return false;
  }

private:
  mlir::Operation *op;
  mlir::DictionaryAttr dictionary;
  bool includeDiscardable;
  bool nameless;
  Form form = Form::None;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_IR_OPERATIONINFO_H

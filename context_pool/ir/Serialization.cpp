//===- Serialization.cpp - Modules as bytecode ----------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/Equivalence.h"
#include "context_pool/ModuleTransfer.h"
#include "context_pool/codec/Encoder.h"
#include "context_pool/ir/BytecodeCheck.h"
#include "context_pool/ir/OperationCopier.h"
#include "context_pool/ir/PointerTable.h"
#include "context_pool/ir/SerializedStorage.h"

#include "absl/strings/str_cat.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/MemAlloc.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>
#include <type_traits>
#include <utility>

using namespace mlir;

namespace ctxpool {
namespace {

/// Finds what MLIR's bytecode may lose: it writes an attribute or type without
/// an encoding as text, and text loses a `distinct`'s identity, the low bits of
/// a wide float, the payload of a NaN and the data of a resource.
class RiskFinder {
public:
  bool hasRisk(Operation *root) {
    std::vector<Operation *> stack{root};
    while (!stack.empty()) {
      Operation *op = stack.back();
      stack.pop_back();
      if (visit(op))
        return true;
      for (Region &region : op->getRegions())
        for (Block &block : region) {
          for (BlockArgument argument : block.getArguments()) {
            add(argument.getType());
            add(Attribute(argument.getLoc()));
          }
          for (Operation &nested : block)
            stack.push_back(&nested);
        }
    }
    return drain();
  }

private:
  using Reference = codec::Reference;

  /// Collects what an operation refers to.
  struct Sink {
    explicit Sink(RiskFinder &owner) : finder(owner) {}
    void writeByte(uint8_t) {}
    void writeVarInt(uint64_t) {}
    void writeRaw(const void *, size_t) {}
    void writeData(ArrayRef<char>) {}
    void writeAttribute(Attribute attribute) { finder.add(attribute); }
    void writeType(Type type) { finder.add(type); }
    void writeResource(const AsmDialectResourceHandle &) {}
    RiskFinder &finder;
  };

  bool visit(Operation *op) {
    add(Attribute(op->getLoc()));
    add(Attribute(op->getRawDictionaryAttrs()));
    for (Type type : op->getResultTypes())
      add(type);
    const void *key = op->getName().getAsOpaquePointer();
    detail::OperationInfo *info = infos.find(key);
    if (!info) {
      infos[key] = detail::OperationInfo::of(op);
      info = infos.find(key);
    }
    Sink sink(*this);
    info->writeProperties(op, sink, /*nameless=*/false);
    return queue.size() > 4096 && drain();
  }

  void add(Attribute attribute) { add(Reference::to(attribute), false); }
  void add(Type type) { add(Reference::to(type), false); }

  /// `inText`: MLIR's bytecode has it as a part of a text.
  void add(Reference reference, bool inText) {
    if (!reference.pointer)
      return;
    uint8_t &seen = states[reference.pointer];
    uint8_t state = inText ? 2 : 1;
    if (seen >= state)
      return;
    seen = state;
    queue.push_back({reference, inText});
  }

  bool drain() {
    while (!queue.empty()) {
      auto [reference, inText] = queue.back();
      queue.pop_back();
      bool found = reference.kind == Reference::Kind::Attribute
                       ? examine(reference.getAttribute(), inText)
                       : examine(reference.getType(), inText);
      if (found)
        return true;
    }
    return false;
  }

  static bool isWide(Type type) {
    if (auto complex = dyn_cast<ComplexType>(type))
      type = complex.getElementType();
    auto number = dyn_cast<FloatType>(type);
    return number && number.getWidth() > 64;
  }

  /// Whether it is what text loses.
  static bool isFragile(Attribute attribute) {
    if (isa<DistinctAttr, DenseResourceElementsAttr>(attribute))
      return true;
    if (auto number = dyn_cast<FloatAttr>(attribute))
      return isWide(number.getType()) || number.getValue().isNaN();
    if (auto dense = dyn_cast<DenseElementsAttr>(attribute))
      return isWide(dense.getElementType());
    return false;
  }
  static bool isFragile(Type) { return false; }

  template <typename AttributeOrType>
  bool examine(AttributeOrType value, bool inText) {
    if (inText && isFragile(value))
      return true;
    bool isText = inText;
    if (!isa<BuiltinDialect>(value.getDialect())) {
      // An encoding that fails leaves out what cannot be lost by it.
      codec::Record record;
      absl::Status encoded;
      if constexpr (std::is_same_v<AttributeOrType, Type>)
        encoded = codec::encodeStructure(value, record);
      else
        encoded = codec::encode(value, record);
      if (!encoded.ok())
        return true;
      codec::Tag tag = static_cast<codec::Tag>(record.bytes.front());
      bool isPrinted =
          tag == codec::Tag::PrintedAttribute || tag == codec::Tag::PrintedType;
      // All else is text, also what has an encoding here and not in MLIR.
      isText |=
          tag != codec::Tag::DialectAttribute && tag != codec::Tag::DialectType;
      if (isPrinted && !record.handles.empty())
        return true;
      for (Reference reference : record.references)
        if (reference.kind != Reference::Kind::Bytes)
          add(reference, isText);
      // Numbers that the dialect prints without an attribute around them.
      return isPrinted && hasPrintedFloat(record);
    }
    value.walkImmediateSubElements(
        [&](Attribute part) { add(Reference::to(part), isText); },
        [&](Type part) { add(Reference::to(part), isText); });
    return false;
  }

  /// Whether the text has the mark of a number: see `codec::encode`.
  static bool hasPrintedFloat(const codec::Record &record) {
    for (size_t i = 1; i < record.bytes.size(); ++i)
      if (record.bytes[i - 1] == 1 && record.bytes[i] == 'f')
        return true;
    return false;
  }

  detail::PointerTable<uint8_t> states;
  detail::PointerTable<detail::OperationInfo> infos;
  std::vector<std::pair<Reference, bool>> queue;
};

/// Reads the bytes in a context of their own and compares.
absl::Status checkBytes(Operation *op, const SerializedModule &bytes) {
  MLIRContext *context = op->getContext();
  MLIRContext scratch(context->getDialectRegistry(),
                      MLIRContext::Threading::DISABLED);
  scratch.allowUnregisteredDialects(context->allowsUnregisteredDialects());
  DeserializeOptions options;
  options.verify = false;
  absl::StatusOr<OwningOpRef<Operation *>> read =
      deserialize(bytes, scratch, options);
  if (!read.ok())
    return absl::FailedPreconditionError(
        absl::StrCat("cannot serialize the operation: MLIR does not read what "
                     "it wrote: ",
                     read.status().message()));
  StructuralOptions located;
  located.includeLocations = true;
  absl::Status difference = checkEquivalence(op, read->get(), located);
  if (difference.ok())
    return difference;
  return absl::FailedPreconditionError(
      absl::StrCat("cannot serialize the operation: MLIR's bytecode would "
                   "change it: ",
                   difference.message()));
}

absl::StatusOr<OwningOpRef<Operation *>>
readOperation(const SerializedModule &module,
              const detail::BytecodeSummary &summary, MLIRContext &context,
              const DeserializeOptions &options) {
  detail::DiagnosticCapture diagnostics(context);
  if (absl::Status known = detail::checkOperations(summary, context);
      !known.ok())
    return known;
  Block block;
  ParserConfig config(&context, options.verify);
  if (failed(readBytecodeFile(detail::makeSource(module), &block, config)))
    return detail::readingFailed(diagnostics.take());
  if (!llvm::hasSingleElement(block))
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot read the serialized module: it has ",
        block.getOperations().size(), " operations at the top and not one"));
  Operation *op = &block.front();
  op->remove();
  return OwningOpRef<Operation *>(op);
}

} // namespace

namespace detail {

std::shared_ptr<SerializedStorage> SerializedStorage::allocate(size_t size) {
  std::shared_ptr<SerializedStorage> storage(new SerializedStorage());
  storage->memory = static_cast<char *>(
      llvm::allocate_buffer(std::max<size_t>(size, 1), alignment));
  storage->bytes = {storage->memory, size};
  return storage;
}

std::shared_ptr<SerializedStorage>
SerializedStorage::take(std::unique_ptr<llvm::MemoryBuffer> source) {
  if (reinterpret_cast<uintptr_t>(source->getBufferStart()) % alignment != 0) {
    std::shared_ptr<SerializedStorage> storage =
        allocate(source->getBufferSize());
    std::memcpy(storage->memory, source->getBufferStart(),
                source->getBufferSize());
    return storage;
  }
  std::shared_ptr<SerializedStorage> storage(new SerializedStorage());
  storage->bytes = source->getBuffer();
  storage->buffer = std::move(source);
  return storage;
}

SerializedStorage::~SerializedStorage() {
  if (memory)
    llvm::deallocate_buffer(memory, std::max<size_t>(bytes.size(), 1),
                            alignment);
}

std::shared_ptr<llvm::SourceMgr> makeSource(const SerializedModule &module) {
  struct Source {
    explicit Source(SerializedModule bytes) : module(std::move(bytes)) {}
    SerializedModule module;
    llvm::SourceMgr manager;
  };
  auto source = std::make_shared<Source>(module);
  source->manager.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBuffer(module.getBytes(), "serialized module",
                                       /*RequiresNullTerminator=*/false),
      llvm::SMLoc());
  return std::shared_ptr<llvm::SourceMgr>(source, &source->manager);
}

absl::Status readingFailed(const std::string &reasons) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot read the serialized module: ",
                   reasons.empty() ? "MLIR does not say why" : reasons));
}

absl::Status checkMagic(llvm::StringRef bytes) {
  if (isBytecode(llvm::MemoryBufferRef(bytes, "serialized module")))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("not MLIR bytecode: the first of ", bytes.size(),
                   " bytes are not its mark"));
}

} // namespace detail

llvm::StringRef SerializedModule::getBytes() const {
  return storage->getBytes();
}

absl::StatusOr<SerializedModule> serialize(Operation *op,
                                           const SerializeOptions &options) {
  OwningOpRef<Operation *> stripped;
  if (options.stripLocations) {
    detail::Translator identity(*op->getContext(), *op->getContext());
    absl::StatusOr<OwningOpRef<Operation *>> copy =
        detail::copyOperation(op, identity, {}, /*stripLocations=*/true);
    if (!copy.ok())
      return copy.status();
    stripped = *std::move(copy);
    op = *stripped;
  }

  detail::DiagnosticCapture diagnostics(*op->getContext());
  llvm::SmallString<0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  if (failed(writeBytecodeToFile(op, stream)))
    return absl::FailedPreconditionError(
        absl::StrCat("cannot serialize the operation: ", diagnostics.take()));
  auto storage = detail::SerializedStorage::allocate(bytes.size());
  std::memcpy(storage->getMemory(), bytes.data(), bytes.size());
  bytes = llvm::SmallString<0>();
  SerializedModule module =
      detail::SerializedStorage::toModule(std::move(storage));
  if (RiskFinder().hasRisk(op))
    if (absl::Status status = checkBytes(op, module); !status.ok())
      return status;
  return module;
}

absl::StatusOr<OwningOpRef<Operation *>>
deserialize(const SerializedModule &module, MLIRContext &context,
            const DeserializeOptions &options) {
  if (absl::Status status = detail::checkMagic(module.getBytes()); !status.ok())
    return status;
  absl::StatusOr<detail::BytecodeSummary> summary =
      detail::checkBytecode(module.getBytes());
  if (!summary.ok())
    return summary.status();
  absl::StatusOr<OwningOpRef<Operation *>> result = absl::UnknownError("");
  if (absl::Status ran = detail::runWithStack(
          *summary,
          [&] { result = readOperation(module, *summary, context, options); });
      !ran.ok())
    return ran;
  return result;
}

absl::StatusOr<SerializedModule>
loadSerialized(std::unique_ptr<llvm::MemoryBuffer> buffer) {
  if (!buffer)
    return absl::InvalidArgumentError("cannot load a serialized module: no "
                                      "buffer");
  if (absl::Status status = detail::checkMagic(buffer->getBuffer());
      !status.ok())
    return status;
  return detail::SerializedStorage::toModule(
      detail::SerializedStorage::take(std::move(buffer)));
}

} // namespace ctxpool

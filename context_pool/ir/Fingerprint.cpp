//===- Fingerprint.cpp - A digest of IR for every context -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/Fingerprint.h"

#include "context_pool/ir/Digester.h"
#include "context_pool/ir/OperationInfo.h"
#include "context_pool/ir/PointerTable.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/Region.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/Compiler.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

using namespace mlir;

namespace ctxpool {
namespace {

using detail::Digester;
using detail::OperationInfo;

/// Enters every digest. Changes with whatever changes a digest: the walk below,
/// the encodings of the codec, what a dialect writes.
constexpr llvm::StringLiteral scheme = "context_pool fingerprint 2";

/// Bytes on their way into a hasher, which is fastest on large pieces.
class Stream {
public:
  void begin() {
    if (buffer.empty())
      buffer.resize(initialSize);
    hasher.init();
    cursor = buffer.data();
    limit = cursor + buffer.size();
  }

  void writeByte(uint8_t value) {
    uint8_t *next = reserve(1);
    *next = value;
    cursor = next + 1;
  }

  void writeVarInt(uint64_t value) {
    cursor = codec::writeVarIntTo(reserve(codec::maxVarIntSize), value);
  }

  void writeRaw(const void *data, size_t count) {
    if (count == 0)
      return;
    uint8_t *next = reserve(count);
    std::memcpy(next, data, count);
    cursor = next + count;
  }

  void writeDigest(const detail::Digest &digest) {
    uint8_t *next = reserve(detail::Digest::maxSize);
    cursor = next + digest.copyTo(next);
  }

  size_t getPosition() const { return cursor - buffer.data(); }

  /// Overwrites two bytes that were written before.
  void patch(size_t position, unsigned value) {
    buffer[position] = static_cast<uint8_t>(value);
    buffer[position + 1] = static_cast<uint8_t>(value >> 8);
  }

  /// Fills in the size of what was written since `leaveSize`.
  size_t leaveSize() {
    size_t position = getPosition();
    writeByte(0);
    return position;
  }
  void insertSize(size_t position) {
    size_t count = getPosition() - position - 1;
    if (LLVM_LIKELY(count < 0x80)) {
      buffer[position] = static_cast<uint8_t>(count);
      return;
    }
    // One byte was left, and more are needed.
    uint8_t bytes[codec::maxVarIntSize];
    size_t used = codec::writeVarIntTo(bytes, count) - bytes;
    reserve(used);
    uint8_t *begin = buffer.data() + position;
    std::memmove(begin + used, begin + 1, count);
    std::memcpy(begin, bytes, used);
    cursor += used - 1;
  }

  /// Between operations only: positions are lost.
  void flushIfLarge() {
    if (LLVM_UNLIKELY(getPosition() >= flushSize))
      flush();
  }

  Fingerprint finish() {
    flush();
    Fingerprint result;
    hasher.final(result.bytes);
    return result;
  }

private:
  static constexpr size_t flushSize = 1 << 16;
  static constexpr size_t initialSize = 1 << 12;

  uint8_t *reserve(size_t count) {
    if (LLVM_UNLIKELY(static_cast<size_t>(limit - cursor) < count))
      grow(count);
    return cursor;
  }

  void grow(size_t count) {
    size_t position = getPosition();
    buffer.resize(std::max(buffer.size() * 2, position + count));
    cursor = buffer.data() + position;
    limit = buffer.data() + buffer.size();
  }

  void flush() {
    hasher.update(llvm::ArrayRef<uint8_t>(buffer.data(), getPosition()));
    // A large constant should not keep its memory.
    if (buffer.size() > 16 * flushSize)
      buffer = std::vector<uint8_t>(2 * flushSize);
    cursor = buffer.data();
    limit = cursor + buffer.size();
  }

  llvm::BLAKE3 hasher;
  std::vector<uint8_t> buffer;
  uint8_t *cursor = nullptr;
  uint8_t *limit = nullptr;
};

/// Bits of the number that an operation begins with.
enum OperationParts : unsigned {
  HasOperands = 1 << 0,
  HasResults = 1 << 1,
  HasProperties = 1 << 2,
  HasDictionary = 1 << 3,
  /// The dictionary is written entry by entry.
  HasDictionaryEntries = 1 << 4,
  HasSuccessors = 1 << 5,
  HasRegions = 1 << 6,
  /// A result was used before its definition.
  HasUsedResults = 1 << 7,
  IsNameless = 1 << 8,
  IsRegistered = 1 << 9,
};

} // namespace

/// Writes the IR as a canonical sequence of bytes into a hasher. The sequence
/// can be read back, but for attributes and types, which are there by digest:
///   - names, attributes and types: an index by first occurrence, and at the
///     first occurrence the name or the digest;
///   - values and blocks are numbered where they first occur, whether that is
///     their definition or an earlier use, and are written as the distance from
///     the next number, 0 if they are new, and one more than that number if
///     they are null;
///   - lists have their length; a block ends with a name of index 0.
struct Fingerprinter::Impl {
  absl::StatusOr<Fingerprint> compute(Operation *root,
                                      const StructuralOptions &newOptions);

  // What a SinkWriter needs.
  void writeByte(uint8_t value) { stream.writeByte(value); }
  void writeVarInt(uint64_t value) { stream.writeVarInt(value); }
  void writeRaw(const void *data, size_t size) { stream.writeRaw(data, size); }
  void writeData(ArrayRef<char> data) {
    stream.writeVarInt(data.size());
    stream.writeRaw(data.data(), data.size());
  }
  void writeAttribute(Attribute attribute) {
    if (!attribute) {
      stream.writeByte(0);
      return;
    }
    // Small ones have no index: they are written whole.
    if (detail::Digest::ofSmall(attribute, small)) {
      stream.writeByte(2);
      stream.writeDigest(small);
      return;
    }
    writeIndex(codec::Reference::to(attribute));
  }
  void writeType(Type type) {
    if (type)
      writeIndex(codec::Reference::to(type));
    else
      stream.writeByte(0);
  }
  void writeResource(const AsmDialectResourceHandle &handle);

private:
  /// A name of an operation in the current run.
  struct Name {
    OperationInfo info;
    uint32_t run = 0;
    uint32_t index = 0;
  };

  /// A value or a block.
  struct Number {
    uint32_t run = 0;
    uint32_t number : 31;
    uint32_t isPending : 1;
    Number() : number(0), isPending(0) {}
  };

  /// Where the walk is in an operation with regions.
  struct Level {
    Operation *op;
    unsigned region;
    Block *block;
    Block::iterator next;
  };

  void writeIndex(codec::Reference reference) {
    Digester::Result result = digester.get(reference);
    if (LLVM_LIKELY(!result.digest)) {
      stream.writeVarInt(result.index + 3);
      return;
    }
    stream.writeByte(1);
    stream.writeDigest(*result.digest);
  }

  /// Writes a use of a value or a block, which may be null.
  void writeUse(const void *pointer, Type type) {
    if (LLVM_UNLIKELY(!pointer)) {
      stream.writeVarInt(uint64_t(nextNumber) + 1);
      return;
    }
    Number &number = numbers[pointer];
    if (LLVM_LIKELY(number.run == run)) {
      stream.writeVarInt(nextNumber - number.number);
      return;
    }
    number.run = run;
    number.number = nextNumber++;
    number.isPending = true;
    pending.push_back({pointer, type});
    ++pendingCount;
    stream.writeByte(0);
  }

  /// Numbers a value or block at its definition. The distance to its number if
  /// it was used before, and else 0.
  uint32_t define(const void *pointer) {
    Number &number = numbers[pointer];
    if (LLVM_LIKELY(number.run != run)) {
      number.run = run;
      number.number = nextNumber++;
      number.isPending = false;
      return 0;
    }
    pendingCount -= number.isPending;
    number.isPending = false;
    return nextNumber - number.number;
  }

  /// Its results lie before it, its operands and properties after it.
  void prefetchOperation(const Operation *op) const {
    auto *address = reinterpret_cast<const char *>(op);
    const char *result = address - sizeof(mlir::detail::InlineOpResult);
    LLVM_PREFETCH(result, 0, 3);
    numbers.prefetch(result);
    LLVM_PREFETCH(address + 64, 0, 3);
    LLVM_PREFETCH(address + 128, 0, 3);
  }

  void writeOperation(Operation *op);
  void enterRegion(Level &level);
  void enterBlock(Level &level, Block *block);
  void step();
  void writePending();

  Digester digester;
  detail::PointerTable<Name> names;
  detail::PointerTable<Number, 7> numbers;
  Stream stream;
  detail::Digest small;

  // Of the current run.
  StructuralOptions options;
  Operation *root = nullptr;
  DictionaryAttr emptyDictionary;
  uint32_t run = 0;
  uint32_t nextName = 0;
  uint32_t nextNumber = 0;
  size_t pendingCount = 0;
  std::vector<std::pair<const void *, Type>> pending;
  std::vector<Level> levels;
  llvm::SmallVector<uint32_t, 8> usedResults;
};

absl::StatusOr<Fingerprint>
Fingerprinter::Impl::compute(Operation *newRoot,
                             const StructuralOptions &newOptions) {
  assert(newRoot && "no operation");
  root = newRoot;
  options = newOptions;
  if (++run == 0) {
    names.clear();
    numbers.clear();
    run = 1;
  }
  // A table of addresses that are mostly gone would slow every later run.
  if (numbers.size() > 1024 && numbers.size() > 4 * size_t(nextNumber))
    numbers.clear();
  nextName = 0;
  nextNumber = 0;
  pendingCount = 0;
  pending.clear();
  levels.clear();
  emptyDictionary = DictionaryAttr::get(root->getContext());
  digester.begin(root, options.symbols);

  stream.begin();
  stream.writeRaw(scheme.data(), scheme.size());
  stream.writeVarInt(LLVM_VERSION_MAJOR);
  stream.writeByte(options.includeLocations);
  stream.writeByte(options.includeDiscardableAttributes);
  stream.writeByte(static_cast<uint8_t>(options.symbols));

  writeOperation(root);
  while (!levels.empty() && digester.getStatus().ok()) {
    step();
    stream.flushIfLarge();
  }
  writePending();
  if (!digester.getStatus().ok())
    return digester.getStatus();
  return stream.finish();
}

void Fingerprinter::Impl::writeOperation(Operation *op) {
  if (op->getRawDictionaryAttrs() != emptyDictionary)
    digester.prefetch(op->getRawDictionaryAttrs());
  Name &name = names[op->getName().getAsOpaquePointer()];
  digester.setUser(op);

  // The name, with 0 left for the end of a block.
  if (LLVM_LIKELY(name.run == run)) {
    stream.writeVarInt(name.index + 2);
  } else {
    // A dialect that was loaded since the last run changes what a name is.
    name.info = OperationInfo::of(op);
    name.run = run;
    name.index = nextName++;
    StringRef text = op->getName().getStringRef();
    stream.writeByte(1);
    stream.writeVarInt(text.size());
    stream.writeRaw(text.data(), text.size());
  }

  bool isNameless = LLVM_UNLIKELY(digester.getSymbols().normalize()) &&
                    digester.getSymbols().isNameless(op);
  detail::DictionaryFilter dictionary(op, options, isNameless, emptyDictionary);
  unsigned parts = 0;
  if (op->getNumOperands() != 0)
    parts |= HasOperands;
  if (op->getNumResults() != 0)
    parts |= HasResults;
  if (name.info.properties != detail::PropertyKind::None)
    parts |= HasProperties;
  if (dictionary.getForm() == detail::DictionaryFilter::Form::Whole)
    parts |= HasDictionary;
  else if (dictionary.getForm() == detail::DictionaryFilter::Form::Entries)
    parts |= HasDictionaryEntries;
  if (op->getNumSuccessors() != 0)
    parts |= HasSuccessors;
  if (op->getNumRegions() != 0)
    parts |= HasRegions;
  if (isNameless)
    parts |= IsNameless;
  if (name.info.properties != detail::PropertyKind::Dictionary)
    parts |= IsRegistered;

  // Operands and successors come before results: an operation may use its own.
  size_t partsBegin = stream.getPosition();
  stream.writeByte(0);
  stream.writeByte(0);
  if (parts & HasOperands) {
    stream.writeVarInt(op->getNumOperands());
    for (OpOperand &operand : op->getOpOperands()) {
      Value value = operand.get();
      writeUse(value.getAsOpaquePointer(), value ? value.getType() : Type());
    }
  }
  if (parts & HasSuccessors) {
    stream.writeVarInt(op->getNumSuccessors());
    for (Block *successor : op->getSuccessors())
      writeUse(successor, Type());
  }
  if (parts & HasResults) {
    stream.writeVarInt(op->getNumResults());
    usedResults.clear();
    bool anyUsed = false;
    for (OpResult result : op->getOpResults()) {
      writeType(result.getType());
      uint32_t distance = define(result.getAsOpaquePointer());
      usedResults.push_back(distance);
      anyUsed |= distance != 0;
    }
    if (LLVM_UNLIKELY(anyUsed)) {
      parts |= HasUsedResults;
      for (uint32_t distance : usedResults)
        stream.writeVarInt(distance);
    }
  }
  stream.patch(partsBegin, parts);

  if (parts & HasProperties) {
    size_t begin = stream.leaveSize();
    name.info.writeProperties(op, *this, isNameless);
    stream.insertSize(begin);
  }
  if (parts & HasDictionary)
    writeAttribute(dictionary.getDictionary());
  else if (parts & HasDictionaryEntries)
    OperationInfo::writeEntries(dictionary.getDictionary(), *this, dictionary);
  if (options.includeLocations)
    writeAttribute(op->getLoc());
  if (parts & HasRegions) {
    stream.writeVarInt(op->getNumRegions());
    levels.push_back({op, 0, nullptr, {}});
    enterRegion(levels.back());
  }
}

void Fingerprinter::Impl::writeResource(
    const AsmDialectResourceHandle &handle) {
  codec::Record record;
  if (absl::Status status = codec::encodeResource(handle, record);
      !status.ok()) {
    digester.fail(std::move(status));
    return;
  }
  stream.writeVarInt(record.bytes.size());
  stream.writeRaw(record.bytes.data(), record.bytes.size());
  for (codec::Reference reference : record.references)
    writeData(reference.getBytes());
}

void Fingerprinter::Impl::enterRegion(Level &level) {
  Region &region = level.op->getRegion(level.region);
  // Blocks are numbered before what is in them: they may be used anywhere.
  size_t count = 0;
  for (auto it = region.begin(), end = region.end(); it != end; ++it)
    ++count;
  stream.writeVarInt(count);
  for (Block &block : region)
    stream.writeVarInt(define(&block));
  level.block = nullptr;
  if (count != 0)
    enterBlock(level, &region.front());
}

void Fingerprinter::Impl::enterBlock(Level &level, Block *block) {
  level.block = block;
  level.next = block->begin();
  digester.setUser(level.op);
  stream.writeVarInt(block->getNumArguments());
  for (BlockArgument argument : block->getArguments()) {
    writeType(argument.getType());
    stream.writeVarInt(define(argument.getAsOpaquePointer()));
    if (options.includeLocations)
      writeAttribute(argument.getLoc());
  }
}

void Fingerprinter::Impl::step() {
  Level &level = levels.back();
  if (level.block && level.next != level.block->end()) {
    Operation *op = &*level.next++;
    // Waiting for memory is most of the time that large modules take: the next
    // operation is on its way while this one is written.
    if (level.next != level.block->end())
      prefetchOperation(&*level.next);
    // Invalidates `level`.
    writeOperation(op);
    return;
  }
  if (level.block) {
    // The end of a block; an operation's name is not 0.
    stream.writeByte(0);
    if (Block *next = level.block->getNextNode()) {
      enterBlock(level, next);
      return;
    }
  }
  if (++level.region != level.op->getNumRegions())
    enterRegion(level);
  else
    levels.pop_back();
}

/// Values and blocks that are defined outside of the root.
void Fingerprinter::Impl::writePending() {
  stream.writeVarInt(pendingCount);
  if (pendingCount == 0)
    return;
  digester.setUser(root);
  for (auto [pointer, type] : pending) {
    Number &number = numbers[pointer];
    if (!number.isPending)
      continue;
    stream.writeVarInt(number.number);
    writeType(type);
    stream.flushIfLarge();
  }
}

//===----------------------------------------------------------------------===//
// Public interface
//===----------------------------------------------------------------------===//

Fingerprinter::Fingerprinter(MLIRContext &) : impl(std::make_unique<Impl>()) {}
Fingerprinter::~Fingerprinter() = default;
Fingerprinter::Fingerprinter(Fingerprinter &&) noexcept = default;
Fingerprinter &Fingerprinter::operator=(Fingerprinter &&) noexcept = default;

absl::StatusOr<Fingerprint>
Fingerprinter::compute(Operation *op, const StructuralOptions &options) {
  return impl->compute(op, options);
}

absl::StatusOr<Fingerprint> fingerprint(Operation *op,
                                        const StructuralOptions &options) {
  return Fingerprinter(*op->getContext()).compute(op, options);
}

} // namespace ctxpool

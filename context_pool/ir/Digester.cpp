//===- Digester.cpp - Digests of attributes and types ---------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ir/Digester.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/Support/BLAKE3.h"

#include <algorithm>
#include <cstring>

using namespace mlir;

namespace ctxpool::detail {
namespace {

template <typename Bytes>
void append(Bytes &bytes, const Digest &digest) {
  size_t size = bytes.size();
  bytes.resize_for_overwrite(size + Digest::maxSize);
  bytes.truncate(size + digest.copyTo(bytes.data() + size));
}

/// What the contents of a digest begin with.
enum class Form : uint8_t { Plain = 1, Distinct = 2, Mutable = 3, Small = 4 };

bool isMutable(codec::Reference reference) {
  if (reference.kind == codec::Reference::Kind::Type)
    return reference.getType().hasTrait<TypeTrait::IsMutable>();
  return reference.getAttribute().hasTrait<AttributeTrait::IsMutable>();
}

} // namespace

Digest Digest::of(ArrayRef<uint8_t> contents) {
  Digest digest;
  if (contents.size() <= maxInline) {
    digest.bytes[0] = contents.size();
    std::copy(contents.begin(), contents.end(), digest.bytes + 1);
    return digest;
  }
  digest.bytes[0] = hashed;
  llvm::BLAKE3Result<> result = llvm::BLAKE3::hash(contents);
  std::memcpy(digest.bytes + 1, result.data(), result.size());
  return digest;
}

bool Digest::ofSmall(Attribute attribute, Digest &digest) {
  // After the length and the form: what kind, of which type, and the value.
  uint8_t *next = digest.bytes + 1;
  auto writeValue = [&](uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      *next++ = static_cast<uint8_t>(value) | 0x80;
    *next++ = static_cast<uint8_t>(value);
  };
  TypeID id = attribute.getTypeID();
  *next++ = static_cast<uint8_t>(Form::Small);
  if (id == TypeID::get<IntegerAttr>()) {
    auto integer = cast<IntegerAttr>(attribute);
    APInt value = integer.getValue();
    if (value.getBitWidth() > 64)
      return false;
    if (auto type = dyn_cast<IntegerType>(integer.getType())) {
      *next++ = type.isSignless() ? 1 : type.isSigned() ? 2 : 3;
      *next++ = type.getWidth();
    } else {
      *next++ = 4;
    }
    // Zigzag: the bits are all there.
    writeValue(codec::toZigZag(value.getBitWidth() ? value.getSExtValue() : 0));
  } else if (id == TypeID::get<StringAttr>()) {
    auto string = cast<StringAttr>(attribute);
    StringRef value = string.getValue();
    if (value.size() > 24 || !isa<NoneType>(string.getType()))
      return false;
    *next++ = 5;
    next = std::copy(value.bytes_begin(), value.bytes_end(), next);
  } else if (id == TypeID::get<FloatAttr>()) {
    auto number = cast<FloatAttr>(attribute);
    TypeID type = number.getType().getTypeID();
    if (type == TypeID::get<Float32Type>())
      *next++ = 6;
    else if (type == TypeID::get<Float64Type>())
      *next++ = 7;
    else if (type == TypeID::get<Float16Type>())
      *next++ = 8;
    else if (type == TypeID::get<BFloat16Type>())
      *next++ = 9;
    else
      return false;
    writeValue(number.getValue().bitcastToAPInt().getZExtValue());
  } else {
    return false;
  }
  digest.bytes[0] = next - digest.bytes - 1;
  return true;
}

void Digester::begin(Operation *newRoot, StructuralOptions::Symbols mode) {
  if (++run == 0) {
    // The numbers of runs begin anew: forget those that are remembered.
    memo.clear();
    for (Slot &slot : slots)
      slot.run = 0;
    run = 1;
  }
  nextIndex = 0;
  root = newRoot;
  user = newRoot;
  symbols = std::make_unique<Symbols>(newRoot, mode);
  distinctNumbers.clear();
  scoped.clear();
  status = absl::OkStatus();
  depth = 0;
  if (slotTable.empty())
    slotTable.resize(128);
}

Digester::Result Digester::getSlow(codec::Reference reference) {
  Known known = lookup(reference.pointer);
  if (known.slot == noSlot) {
    known = resolve(reference);
    if (known.slot == noSlot)
      return {0, nullptr};
  }
  Slot &slot = slots[known.slot];
  bool isNew = slot.run != run;
  if (isNew) {
    slot.run = run;
    slot.index = nextIndex++;
  }
  if (!(known.flags & Symbolic) || !normalize()) {
    Entry &entry = *memo.find(reference.pointer);
    entry.indexRun = run;
    entry.index = slot.index;
  }
  return {slot.index, isNew ? &slot.digest : nullptr};
}

Operation *Digester::getScope() {
  for (Operation *op = user; op && op != root; op = op->getParentOp())
    if (op->hasTrait<OpTrait::SymbolTable>())
      return op;
  return root;
}

Digester::Known Digester::lookup(const void *pointer) {
  Entry *entry = memo.find(pointer);
  if (!entry)
    return {};
  Known known{entry->slot, static_cast<uint8_t>(entry->flags)};
  if ((known.flags & Symbolic) && normalize()) {
    auto it = scoped.find({pointer, getScope()});
    known.slot = it == scoped.end() ? noSlot : it->second;
  } else if ((known.flags & (Volatile | Relative)) && entry->digestRun != run) {
    known.slot = noSlot;
  }
  return known;
}

void Digester::store(const void *pointer, uint32_t slot, uint8_t flags) {
  Entry &entry = memo[pointer];
  entry.flags = flags;
  if ((flags & Symbolic) && normalize()) {
    // Under other options it has another digest, which may be known.
    scoped[{pointer, getScope()}] = slot;
    return;
  }
  entry.slot = slot;
  entry.digestRun = run;
}

Digester::Known Digester::resolve(codec::Reference reference) {
  // What the last frame came to, for the one below it.
  Known result = push(reference);
  while (depth != 0) {
    Frame &frame = *frames[depth - 1];
    ArrayRef<codec::Reference> parts = frame.record->references;
    bool pushed = false;
    while (frame.slots.size() != parts.size()) {
      codec::Reference part = parts[frame.slots.size()];
      if (part.kind == codec::Reference::Kind::Bytes || !part.pointer) {
        frame.slots.push_back(noSlot);
        continue;
      }
      Digest small;
      if (part.kind == codec::Reference::Kind::Attribute &&
          Digest::ofSmall(part.getAttribute(), small)) {
        frame.slots.push_back(smallSlot);
        continue;
      }
      Known known = lookup(part.pointer);
      if (known.slot == noSlot) {
        size_t before = depth;
        known = push(part);
        if (depth != before) {
          pushed = true;
          break;
        }
        if (known.slot == noSlot) {
          depth = 0;
          return {};
        }
      }
      frame.flags |= known.flags;
      frame.slots.push_back(known.slot);
    }
    if (pushed)
      continue;
    result = finish(frame);
    --depth;
    if (depth != 0) {
      frames[depth - 1]->flags |= result.flags;
      frames[depth - 1]->slots.push_back(result.slot);
    }
  }
  // Nor should one deep attribute.
  if (frames.size() > 64)
    frames.resize(16);
  return result;
}

bool Digester::encode(codec::Reference reference, codec::Record &record,
                      uint8_t &flags, bool &isDistinct) {
  absl::Status encoded;
  isDistinct = false;
  if (reference.kind == codec::Reference::Kind::Type) {
    encoded = codec::encode(reference.getType(), record);
  } else {
    Attribute attribute = reference.getAttribute();
    if (isa<DistinctAttr>(attribute)) {
      isDistinct = true;
      flags |= Relative;
    }
    auto symbol = dyn_cast<SymbolRefAttr>(attribute);
    if (symbol)
      flags |= Symbolic;
    if (symbol && normalize()) {
      record.clear();
      symbols->encode(user, symbol, record);
    } else {
      encoded = codec::encode(attribute, record);
    }
  }
  if (record.readsResource)
    flags |= Volatile;
  if (encoded.ok())
    return true;
  fail(std::move(encoded));
  return false;
}

/// Either digests at once, or leaves it to a new frame; neither if it cannot.
Digester::Known Digester::push(codec::Reference reference) {
  if (isMutable(reference)) {
    Known known;
    known.flags = Volatile;
    known.slot = digestMutable(reference, known.flags);
    if (known.slot != noSlot)
      store(reference.pointer, known.slot, known.flags);
    return known;
  }
  if (depth == frames.size())
    frames.push_back(std::make_unique<Frame>());
  Frame &frame = *frames[depth];
  frame.reference = reference;
  frame.slots.clear();
  frame.flags = 0;
  Entry *entry = memo.find(reference.pointer);
  if (entry && (entry->flags & Relative)) {
    auto kept = keptRecords.find(reference.pointer);
    if (kept != keptRecords.end()) {
      frame.record = kept->second.get();
      frame.isDistinct = reference.kind == codec::Reference::Kind::Attribute &&
                         isa<DistinctAttr>(reference.getAttribute());
      frame.flags = frame.isDistinct ? Relative : 0;
      ++depth;
      return {};
    }
  }
  frame.record = &frame.ownRecord;
  if (encode(reference, frame.ownRecord, frame.flags, frame.isDistinct))
    ++depth;
  return {};
}

Digester::Known Digester::finish(Frame &frame) {
  const codec::Record &record = *frame.record;
  scratch.clear();
  if (frame.isDistinct) {
    scratch.push_back(static_cast<uint8_t>(Form::Distinct));
    codec::appendVarInt(scratch, getDistinctNumber(frame.reference.pointer));
  } else {
    scratch.push_back(static_cast<uint8_t>(Form::Plain));
  }
  codec::appendVarInt(scratch, record.bytes.size());
  scratch.append(record.bytes.begin(), record.bytes.end());
  codec::appendVarInt(scratch, record.references.size());
  for (auto [reference, slot] : llvm::zip(record.references, frame.slots)) {
    if (reference.kind == codec::Reference::Kind::Bytes) {
      scratch.push_back(static_cast<uint8_t>(reference.kind));
      append(scratch, digestData(reference.getBytes(), record.readsResource));
    } else if (!reference.pointer) {
      scratch.push_back(0);
    } else {
      scratch.push_back(static_cast<uint8_t>(reference.kind));
      if (slot != smallSlot) {
        append(scratch, slots[slot].digest);
        continue;
      }
      Digest small;
      Digest::ofSmall(reference.getAttribute(), small);
      append(scratch, small);
    }
  }
  Known known{internDigest(Digest::of(scratch)), frame.flags};
  store(frame.reference.pointer, known.slot, known.flags);
  if (frame.record != &frame.ownRecord)
    return known;
  // Resources are read again, and symbols mean other things elsewhere.
  bool isSymbol = frame.reference.kind == codec::Reference::Kind::Attribute &&
                  isa<SymbolRefAttr>(frame.reference.getAttribute());
  if ((known.flags & Relative) && !record.readsResource && !isSymbol) {
    keptRecords[frame.reference.pointer] =
        std::make_unique<codec::Record>(std::move(frame.ownRecord));
    frame.ownRecord = codec::Record();
  } else if (record.bytes.capacity() > (1 << 16) ||
             record.references.capacity() > (1 << 12)) {
    // One large record should not keep its memory.
    frame.ownRecord = codec::Record();
    frame.slots = {};
  }
  return known;
}

uint32_t Digester::digestMutable(codec::Reference reference, uint8_t &flags) {
  struct Node {
    codec::Record record;
    size_t next = 0;
  };
  std::vector<std::unique_ptr<Node>> stack;
  llvm::DenseMap<const void *, unsigned> places;
  SmallVector<uint8_t, 512> bytes{static_cast<uint8_t>(Form::Mutable)};

  auto enter = [&](codec::Reference part) {
    places.try_emplace(part.pointer, places.size());
    auto node = std::make_unique<Node>();
    bool isDistinct = false;
    if (!encode(part, node->record, flags, isDistinct))
      return false;
    bytes.push_back(isDistinct ? 'X' : 'N');
    if (isDistinct)
      codec::appendVarInt(bytes, getDistinctNumber(part.pointer));
    codec::appendVarInt(bytes, node->record.bytes.size());
    bytes.append(node->record.bytes.begin(), node->record.bytes.end());
    codec::appendVarInt(bytes, node->record.references.size());
    stack.push_back(std::move(node));
    return true;
  };

  if (!enter(reference))
    return noSlot;
  while (!stack.empty()) {
    Node &node = *stack.back();
    if (node.next == node.record.references.size()) {
      stack.pop_back();
      continue;
    }
    codec::Reference part = node.record.references[node.next++];
    if (part.kind == codec::Reference::Kind::Bytes) {
      bytes.push_back('D');
      append(bytes, digestData(part.getBytes(), node.record.readsResource));
    } else if (!part.pointer) {
      bytes.push_back('0');
    } else if (auto it = places.find(part.pointer); it != places.end()) {
      bytes.push_back('B');
      codec::appendVarInt(bytes, it->second);
    } else if (!enter(part)) {
      return noSlot;
    }
  }
  return internDigest(Digest::of(bytes));
}

Digest Digester::digestData(ArrayRef<char> data, bool remember) {
  ArrayRef<uint8_t> bytes(reinterpret_cast<const uint8_t *>(data.data()),
                          data.size());
  if (!remember)
    return Digest::of(bytes);
  auto [it, isNew] = dataDigests.try_emplace(
      {static_cast<const void *>(data.data()), data.size()});
  if (isNew)
    it->second = Digest::of(bytes);
  return it->second;
}

uint32_t Digester::internDigest(const Digest &digest) {
  auto findPlace = [](const std::vector<SlotKey> &table, uint32_t hash,
                      auto isIt) {
    size_t mask = table.size() - 1, place = hash & mask;
    while (table[place].slot != noSlot &&
           !(table[place].hash == hash && isIt(table[place].slot)))
      place = (place + 1) & mask;
    return place;
  };
  if ((slots.size() + 1) * 2 > slotTable.size()) {
    std::vector<SlotKey> larger(slotTable.size() * 2);
    for (SlotKey key : slotTable)
      if (key.slot != noSlot)
        larger[findPlace(larger, key.hash, [](uint32_t) { return false; })] =
            key;
    slotTable.swap(larger);
  }
  uint32_t hash = digest.hash();
  SlotKey &key = slotTable[findPlace(slotTable, hash, [&](uint32_t slot) {
    return slots[slot].digest == digest;
  })];
  if (key.slot == noSlot) {
    key.slot = slots.size();
    key.hash = hash;
    slots.push_back({digest});
  }
  return key.slot;
}

uint32_t Digester::getDistinctNumber(const void *pointer) {
  return distinctNumbers.try_emplace(pointer, distinctNumbers.size())
      .first->second;
}

} // namespace ctxpool::detail

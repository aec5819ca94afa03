//===- Digester.cpp - Digests of attributes and types ---------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ir/Digester.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/Support/BLAKE3.h"

#include <cstring>

using namespace mlir;

namespace ctxpool::detail {
namespace {

Digest blake3(ArrayRef<uint8_t> bytes) { return llvm::BLAKE3::hash(bytes); }

template <typename Bytes>
void append(Bytes &bytes, const Digest &digest) {
  bytes.append(digest.begin(), digest.end());
}

/// The last part of what is digested of a record, or of several.
enum class Form : uint8_t { Plain = 1, Distinct = 2, Mutable = 3 };

bool isMutable(codec::Reference reference) {
  if (reference.kind == codec::Reference::Kind::Type)
    return reference.getType().hasTrait<TypeTrait::IsMutable>();
  return reference.getAttribute().hasTrait<AttributeTrait::IsMutable>();
}

} // namespace

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
    slotTable.assign(128, noSlot);
}

Digester::Result Digester::getSlow(codec::Reference reference) {
  Known known = lookup(reference.pointer);
  if (known.slot == noSlot) {
    resolve(reference);
    known = lookup(reference.pointer);
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

uint32_t Digester::resolve(codec::Reference reference) {
  if (!push(reference))
    return noSlot;
  while (depth != 0) {
    Frame &frame = *frames[depth - 1];
    bool pushed = false;
    for (; frame.next != frame.record.references.size(); ++frame.next) {
      codec::Reference part = frame.record.references[frame.next];
      if (part.kind == codec::Reference::Kind::Bytes || !part.pointer)
        continue;
      Known known = lookup(part.pointer);
      if (known.slot == noSlot) {
        if (!push(part)) {
          depth = 0;
          return noSlot;
        }
        pushed = true;
        break;
      }
      frame.flags |= known.flags;
    }
    if (pushed)
      continue;
    finish(frame);
    --depth;
  }
  return lookup(reference.pointer).slot;
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

bool Digester::push(codec::Reference reference) {
  if (isMutable(reference)) {
    uint8_t flags = Volatile;
    uint32_t slot = digestMutable(reference, flags);
    if (slot == noSlot)
      return false;
    store(reference.pointer, slot, flags);
    return true;
  }
  if (depth == frames.size())
    frames.push_back(std::make_unique<Frame>());
  Frame &frame = *frames[depth];
  frame.reference = reference;
  frame.next = 0;
  frame.flags = 0;
  if (!encode(reference, frame.record, frame.flags, frame.isDistinct))
    return false;
  ++depth;
  return true;
}

void Digester::finish(Frame &frame) {
  codec::Record &record = frame.record;
  scratch.clear();
  codec::appendVarInt(scratch, record.bytes.size());
  scratch.append(record.bytes.begin(), record.bytes.end());
  codec::appendVarInt(scratch, record.references.size());
  for (codec::Reference reference : record.references) {
    if (!reference.pointer && reference.kind != codec::Reference::Kind::Bytes) {
      scratch.push_back(0);
      continue;
    }
    scratch.push_back(static_cast<uint8_t>(reference.kind));
    if (reference.kind == codec::Reference::Kind::Bytes)
      append(scratch, digestData(reference.getBytes(), record.readsResource));
    else
      append(scratch, slots[lookup(reference.pointer).slot].digest);
  }
  if (frame.isDistinct) {
    scratch.push_back(static_cast<uint8_t>(Form::Distinct));
    codec::appendVarInt(scratch, getDistinctNumber(frame.reference.pointer));
  } else {
    scratch.push_back(static_cast<uint8_t>(Form::Plain));
  }
  store(frame.reference.pointer, internDigest(blake3(scratch)), frame.flags);
  // One large record should not keep its memory.
  if (record.bytes.capacity() > (1 << 16))
    record = codec::Record();
}

uint32_t Digester::digestMutable(codec::Reference reference, uint8_t &flags) {
  struct Node {
    codec::Record record;
    size_t next = 0;
  };
  std::vector<std::unique_ptr<Node>> stack;
  llvm::DenseMap<const void *, unsigned> places;
  SmallVector<uint8_t, 512> bytes;

  auto enter = [&](codec::Reference part) {
    places.try_emplace(part.pointer, places.size());
    auto node = std::make_unique<Node>();
    bool isDistinct = false;
    if (!encode(part, node->record, flags, isDistinct))
      return false;
    bytes.push_back('N');
    if (isDistinct) {
      bytes.push_back('X');
      codec::appendVarInt(bytes, getDistinctNumber(part.pointer));
    }
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
  bytes.push_back(static_cast<uint8_t>(Form::Mutable));
  return internDigest(blake3(bytes));
}

Digest Digester::digestData(ArrayRef<char> data, bool remember) {
  ArrayRef<uint8_t> bytes(reinterpret_cast<const uint8_t *>(data.data()),
                          data.size());
  if (!remember)
    return blake3(bytes);
  auto [it, isNew] =
      dataDigests.try_emplace({static_cast<const void *>(data.data()), data.size()});
  if (isNew)
    it->second = blake3(bytes);
  return it->second;
}

uint32_t Digester::internDigest(const Digest &digest) {
  if ((slots.size() + 1) * 2 > slotTable.size()) {
    std::vector<uint32_t> larger(slotTable.size() * 2, noSlot);
    size_t mask = larger.size() - 1;
    for (uint32_t i = 0, e = slots.size(); i != e; ++i) {
      size_t place;
      std::memcpy(&place, slots[i].digest.data(), sizeof(place));
      for (place &= mask; larger[place] != noSlot; place = (place + 1) & mask)
        ;
      larger[place] = i;
    }
    slotTable.swap(larger);
  }
  size_t mask = slotTable.size() - 1;
  size_t place;
  std::memcpy(&place, digest.data(), sizeof(place));
  for (place &= mask; slotTable[place] != noSlot; place = (place + 1) & mask)
    if (slots[slotTable[place]].digest == digest)
      return slotTable[place];
  slotTable[place] = slots.size();
  slots.push_back({digest});
  return slotTable[place];
}

uint32_t Digester::getDistinctNumber(const void *pointer) {
  return distinctNumbers.try_emplace(pointer, distinctNumbers.size())
      .first->second;
}

} // namespace ctxpool::detail

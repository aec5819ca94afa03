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
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
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

/// In place of the kind of a reference to something that refers back.
constexpr uint8_t insideComponent = 0xFF;

bool isMutable(codec::Reference reference) {
  if (reference.kind == codec::Reference::Kind::Type)
    return codec::isMutable(reference.getType());
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
    next = codec::writeVarIntTo(
        next, codec::toZigZag(value.getBitWidth() ? value.getSExtValue() : 0));
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
    next = codec::writeVarIntTo(
        next, number.getValue().bitcastToAPInt().getZExtValue());
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
    encoded = codec::encodeStructure(reference.getType(), record);
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
    return digestMutable(reference);
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

/// The contents of an attribute or type of which all parts have digests, or are
/// of the same component and stand there as such.
Digest Digester::digestRecord(codec::Reference owner,
                              const codec::Record &record, bool isDistinct,
                              ArrayRef<uint32_t> partSlots) {
  scratch.clear();
  if (isDistinct) {
    scratch.push_back(static_cast<uint8_t>(Form::Distinct));
    codec::appendVarInt(scratch, getDistinctNumber(owner.pointer));
  } else {
    scratch.push_back(static_cast<uint8_t>(Form::Plain));
  }
  codec::appendVarInt(scratch, record.bytes.size());
  scratch.append(record.bytes.begin(), record.bytes.end());
  codec::appendVarInt(scratch, record.references.size());
  for (auto [reference, slot] : llvm::zip(record.references, partSlots)) {
    if (reference.kind == codec::Reference::Kind::Bytes) {
      ArrayRef<char> data = reference.getBytes();
      scratch.push_back(static_cast<uint8_t>(reference.kind));
      append(scratch,
             Digest::of(ArrayRef<uint8_t>(
                 reinterpret_cast<const uint8_t *>(data.data()), data.size())));
    } else if (!reference.pointer) {
      scratch.push_back(0);
    } else if (slot == noSlot) {
      scratch.push_back(insideComponent);
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
  return Digest::of(scratch);
}

Digester::Known Digester::finish(Frame &frame) {
  const codec::Record &record = *frame.record;
  // It may have been digested meanwhile, as a part of something that it has.
  if (frame.flags & Volatile)
    if (Known known = lookup(frame.reference.pointer); known.slot != noSlot)
      return known;
  Known known{internDigest(digestRecord(frame.reference, record,
                                        frame.isDistinct, frame.slots)),
              frame.flags};
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

/// Tarjan's algorithm over what a mutable type or attribute reaches and is not
/// known yet: each node is encoded once, and the components, sets of nodes of
/// which each reaches every other, come to be complete one after the other, the
/// inner ones first. Without recursion.
Digester::Known Digester::digestMutable(codec::Reference reference) {
  std::vector<std::unique_ptr<Node>> nodes;
  llvm::DenseMap<const void *, unsigned> places;
  // The path from the first node, and the nodes whose component is open.
  SmallVector<unsigned, 16> path, open;

  auto enter = [&](codec::Reference part) {
    auto node = std::make_unique<Node>();
    node->reference = part;
    node->low = nodes.size();
    node->flags = isMutable(part) ? Volatile : 0;
    if (!encode(part, node->record, node->flags, node->isDistinct))
      return false;
    places.try_emplace(part.pointer, nodes.size());
    path.push_back(nodes.size());
    open.push_back(nodes.size());
    nodes.push_back(std::move(node));
    return true;
  };

  if (!enter(reference))
    return {};
  while (!path.empty()) {
    unsigned place = path.back();
    Node &node = *nodes[place];
    ArrayRef<codec::Reference> parts = node.record.references;
    bool entered = false;
    while (node.slots.size() != parts.size()) {
      codec::Reference part = parts[node.slots.size()];
      Digest small;
      if (part.kind == codec::Reference::Kind::Bytes || !part.pointer) {
        node.slots.push_back(noSlot);
        continue;
      }
      if (part.kind == codec::Reference::Kind::Attribute &&
          Digest::ofSmall(part.getAttribute(), small)) {
        node.slots.push_back(smallSlot);
        continue;
      }
      if (auto it = places.find(part.pointer);
          it != places.end() && nodes[it->second]) {
        // Back into an open component, which is then this one's as well.
        node.low = std::min(node.low, nodes[it->second]->low);
        node.flags |= nodes[it->second]->flags;
        node.slots.push_back(noSlot);
        continue;
      }
      Known known = lookup(part.pointer);
      if (known.slot == noSlot) {
        if (!enter(part))
          return {};
        entered = true;
        break;
      }
      node.flags |= known.flags;
      node.slots.push_back(known.slot);
    }
    if (entered)
      continue;
    path.pop_back();
    if (node.low != place)
      continue;
    // All that was opened after it reaches it.
    SmallVector<Node *> component;
    size_t first = open.size();
    do
      component.push_back(nodes[open[--first]].get());
    while (open[first] != place);
    digestComponent(component);
    for (size_t i = first; i != open.size(); ++i)
      nodes[open[i]].reset();
    open.truncate(first);
  }
  return lookup(reference.pointer);
}

/// The digest of a node in a cycle is that of the whole component, written from
/// a node on that is the same wherever the walk came from, and the node's place
/// in it.
void Digester::digestComponent(ArrayRef<Node *> component) {
  uint8_t flags = 0;
  for (Node *node : component)
    flags |= node->flags;
  std::vector<Digest> contents;
  llvm::DenseMap<const void *, unsigned> members;
  for (auto [i, node] : llvm::enumerate(component)) {
    members[node->reference.pointer] = i;
    contents.push_back(digestRecord(node->reference, node->record,
                                    node->isDistinct, node->slots));
  }
  bool isCycle =
      component.size() != 1 ||
      llvm::any_of(component[0]->record.references, [&](codec::Reference part) {
        return part.pointer == component[0]->reference.pointer;
      });
  if (!isCycle) {
    store(component[0]->reference.pointer, internDigest(contents[0]), flags);
    return;
  }

  // From a node on, in the order of a breadth-first walk; the places in it.
  SmallVector<unsigned> order, placeOf;
  auto walk = [&](unsigned start) {
    constexpr unsigned unseen = ~0u;
    placeOf.assign(component.size(), unseen);
    order.assign(1, start);
    placeOf[start] = 0;
    scratch.clear();
    scratch.push_back(static_cast<uint8_t>(Form::Mutable));
    for (unsigned i = 0; i != order.size(); ++i) {
      const Node &node = *component[order[i]];
      append(scratch, contents[order[i]]);
      for (auto [part, slot] : llvm::zip(node.record.references, node.slots)) {
        if (slot != noSlot || !part.pointer ||
            part.kind == codec::Reference::Kind::Bytes)
          continue;
        unsigned member = members.lookup(part.pointer);
        if (placeOf[member] == unseen) {
          placeOf[member] = order.size();
          order.push_back(member);
        }
        codec::appendVarInt(scratch, placeOf[member]);
      }
    }
    return Digest::of(scratch);
  };

  // The node with the least contents that no other has: the one or other name,
  // as types that refer to themselves have one.
  auto sorted = llvm::to_vector(llvm::seq<unsigned>(0, component.size()));
  llvm::sort(sorted, [&](unsigned lhs, unsigned rhs) {
    return contents[lhs] < contents[rhs];
  });
  for (size_t i = 0; i != sorted.size(); ++i) {
    const Digest &own = contents[sorted[i]];
    if ((i != 0 && contents[sorted[i - 1]] == own) ||
        (i + 1 != sorted.size() && contents[sorted[i + 1]] == own))
      continue;
    Digest whole = walk(sorted[i]);
    for (auto [member, place] : llvm::enumerate(placeOf)) {
      scratch.assign(1, static_cast<uint8_t>(Form::Mutable));
      append(scratch, whole);
      codec::appendVarInt(scratch, place);
      store(component[member]->reference.pointer,
            internDigest(Digest::of(scratch)), flags);
    }
    return;
  }
  // Nothing tells them apart: each is written from itself on.
  for (unsigned i = 0; i != component.size(); ++i)
    store(component[i]->reference.pointer, internDigest(walk(i)), flags);
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

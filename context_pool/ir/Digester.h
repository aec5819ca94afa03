//===- Digester.h - Digests of attributes and types -------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Digests of attributes and types, remembered between operations and calls.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_IR_DIGESTER_H
#define CONTEXT_POOL_IR_DIGESTER_H

#include "context_pool/ir/PointerTable.h"
#include "context_pool/ir/Symbols.h"

#include "context_pool/codec/Encoder.h"

#include "absl/status/status.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

#include <cstring>
#include <memory>
#include <vector>

namespace ctxpool::detail {

/// What identifies the contents of an attribute or type: these contents
/// themselves where they are short, as most are, and else their BLAKE3 digest
/// of 256 bits.
class Digest {
public:
  static constexpr size_t maxInline = 32;

  static Digest of(llvm::ArrayRef<uint8_t> contents);

  /// The digests of integers and floating point numbers of up to 64 bits of the
  /// usual types, and of short strings: found faster than remembered. False for
  /// every other attribute.
  static bool ofSmall(mlir::Attribute attribute, Digest &digest);

  static constexpr size_t maxSize = 33;

  /// Writes the shortest form that can be told apart, a byte of length or mark
  /// and what follows, where `maxSize` bytes are free. How many of them it
  /// needs.
  size_t copyTo(uint8_t *to) const {
    std::memcpy(to, bytes, maxSize);
    return bytes[0] == hashed ? maxSize : bytes[0] + 1;
  }

  uint32_t hash() const {
    uint64_t words[4];
    std::memcpy(words, bytes + 1, sizeof(words));
    uint64_t mixed = (words[0] ^ 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
    mixed = (mixed ^ (mixed >> 29) ^ words[1]) * 0x94D049BB133111EBull;
    mixed = (mixed ^ (mixed >> 32) ^ words[2]) * 0xBF58476D1CE4E5B9ull;
    mixed = (mixed ^ (mixed >> 29) ^ words[3]) * 0x94D049BB133111EBull;
    return static_cast<uint32_t>(mixed ^ (mixed >> 32)) ^ bytes[0];
  }

  friend bool operator==(const Digest &lhs, const Digest &rhs) {
    return std::memcmp(lhs.bytes, rhs.bytes, sizeof(lhs.bytes)) == 0;
  }
  friend bool operator<(const Digest &lhs, const Digest &rhs) {
    return std::memcmp(lhs.bytes, rhs.bytes, sizeof(lhs.bytes)) < 0;
  }

private:
  static constexpr uint8_t hashed = 0xFF;

  /// The length or `hashed`, and the contents or their digest, padded with
  /// zeros.
  uint8_t bytes[maxSize] = {};
};

/// Digests attributes and types: the digest of a record, with the digests of
/// what it refers to in place of the references.
///
/// A run is the digest of one root. In it every distinct digest has an index,
/// by first occurrence, so that a digest is written out once and attributes
/// that are equal share an index, whatever their addresses.
///
/// Most digests depend on nothing but the attribute and are kept for ever.
/// Those that reach something else are not:
///   - a distinct attribute counts by first occurrence in the run;
///   - a mutable type or attribute may get its body later, and a resource its
///     data: read once a run. Those that refer to one another are written out
///     together, each once, from one on that the walk does not choose, so that
///     cycles end and the result is the same wherever the walk comes from;
///   - a symbol reference, where names do not count, means what it means to the
///     operation that holds it.
class Digester {
public:
  /// Starts the run of `root`.
  void begin(mlir::Operation *root, StructuralOptions::Symbols mode);

  /// The operation that holds the attributes which follow.
  void setUser(mlir::Operation *op) { user = op; }

  struct Result {
    uint32_t index;
    /// Set where the index is new.
    const Digest *digest;
  };

  /// The index of a type, or of an attribute that `Digest::ofSmall` does not
  /// digest; not null. Wrong, and `status` not OK, where it cannot be encoded.
  Result get(codec::Reference reference) {
    if (Entry *entry = memo.find(reference.pointer))
      if (entry->indexRun == run)
        return {entry->index, nullptr};
    return getSlow(reference);
  }

  /// Announces that the attribute will be asked for.
  void prefetch(mlir::Attribute attribute) const {
    memo.prefetch(attribute.getAsOpaquePointer());
  }

  Symbols &getSymbols() { return *symbols; }
  const absl::Status &getStatus() const { return status; }
  void fail(absl::Status failure) {
    if (status.ok())
      status = std::move(failure);
  }

private:
  static constexpr uint32_t noSlot = (1u << 28) - 1;
  /// In place of the slot of an attribute that `Digest::ofSmall` digests.
  static constexpr uint32_t smallSlot = noSlot - 1;

  enum Flags : uint8_t {
    /// Reaches something that may change between runs.
    Volatile = 1,
    /// Reaches a distinct attribute.
    Relative = 2,
    /// Reaches a symbol reference.
    Symbolic = 4,
  };

  /// What is known of an address.
  struct Entry {
    uint32_t slot : 28;
    uint32_t flags : 4;
    /// The run for which `index` holds.
    uint32_t indexRun;
    uint32_t index;
    /// The run in which the digest was computed.
    uint32_t digestRun;
    Entry() : slot(noSlot), flags(0), indexRun(0), index(0), digestRun(0) {}
  };

  /// A digest, with its index in the run that it last occurred in.
  struct Slot {
    Digest digest;
    uint32_t run = 0;
    uint32_t index = 0;
  };

  struct Known {
    uint32_t slot = noSlot;
    uint8_t flags = 0;
  };

  /// An attribute or type whose parts are being digested.
  struct Frame {
    codec::Reference reference;
    codec::Record ownRecord;
    /// That, or one that is kept.
    const codec::Record *record;
    /// Of the references so far.
    llvm::SmallVector<uint32_t, 8> slots;
    uint8_t flags;
    bool isDistinct;
  };

  /// Something that a mutable type or attribute reaches.
  struct Node {
    codec::Reference reference;
    codec::Record record;
    /// Of the references so far; noSlot for those within the component.
    llvm::SmallVector<uint32_t, 8> slots;
    uint8_t flags = 0;
    bool isDistinct = false;
    /// The first node that is known to be in the same component.
    unsigned low = 0;
  };

  Result getSlow(codec::Reference reference);
  Known lookup(const void *pointer);
  void store(const void *pointer, uint32_t slot, uint8_t flags);
  Known resolve(codec::Reference reference);
  Known push(codec::Reference reference);
  Known finish(Frame &frame);
  Known digestMutable(codec::Reference reference);
  void digestComponent(llvm::ArrayRef<Node *> component);
  Digest digestRecord(codec::Reference owner, const codec::Record &record,
                      bool isDistinct, llvm::ArrayRef<uint32_t> partSlots);
  /// Encodes, and adds to `flags` what the record itself reaches.
  bool encode(codec::Reference reference, codec::Record &record, uint8_t &flags,
              bool &isDistinct);
  uint32_t internDigest(const Digest &digest);
  uint32_t getDistinctNumber(const void *pointer);
  mlir::Operation *getScope();

  bool normalize() const { return symbols && symbols->normalize(); }

  PointerTable<Entry> memo;
  std::vector<Slot> slots;
  /// Slots by digest, open addressing; noSlot is free. The hash saves a look at
  /// digests that are others.
  struct SlotKey {
    uint32_t slot = noSlot;
    uint32_t hash = 0;
  };
  std::vector<SlotKey> slotTable;

  /// The records of attributes that are digested anew by every run, because of
  /// what they reach and not of what they are themselves.
  llvm::DenseMap<const void *, std::unique_ptr<codec::Record>> keptRecords;

  // Of the current run.
  uint32_t run = 0;
  uint32_t nextIndex = 0;
  mlir::Operation *root = nullptr;
  mlir::Operation *user = nullptr;
  std::unique_ptr<Symbols> symbols;
  llvm::DenseMap<const void *, uint32_t> distinctNumbers;
  llvm::DenseMap<std::pair<const void *, const void *>, uint32_t> scoped;
  absl::Status status;

  std::vector<std::unique_ptr<Frame>> frames;
  size_t depth = 0;
  llvm::SmallVector<uint8_t, 512> scratch;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_IR_DIGESTER_H

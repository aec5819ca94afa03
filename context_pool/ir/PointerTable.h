//===- PointerTable.h - Hash tables from addresses --------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Open-addressing tables keyed by the addresses of IR objects. Addresses serve
/// to find things again and never reach an output.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_IR_POINTERTABLE_H
#define CONTEXT_POOL_IR_POINTERTABLE_H

#include "llvm/Support/Compiler.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ctxpool::detail {

/// A table from non-null addresses to `Value`, which has a default constructor
/// and is cheap to copy. References are valid until the next insertion.
///
/// `granularity` is the logarithm of about the size of the objects.
template <typename Value, unsigned granularity = 5>
class PointerTable {
public:
  explicit PointerTable(size_t initialCapacity = 64)
      : slots(initialCapacity), shift(64 - log2(initialCapacity)) {}

  /// Null where there is none.
  Value *find(const void *key) {
    for (size_t i = home(key);; i = next(i, key)) {
      if (slots[i].key == key)
        return &slots[i].value;
      if (!slots[i].key)
        return nullptr;
    }
  }

  /// The value of the key, a new one where there is none.
  Value &operator[](const void *key) {
    for (size_t i = home(key);; i = next(i, key)) {
      if (slots[i].key == key)
        return slots[i].value;
      if (!slots[i].key) {
        if ((count + 1) * 2 > slots.size()) {
          grow();
          return (*this)[key];
        }
        ++count;
        slots[i].key = key;
        return slots[i].value;
      }
    }
  }

  /// Announces that the key will be looked for.
  void prefetch(const void *key) const {
    LLVM_PREFETCH(&slots[home(key)], 1, 3);
  }

  void clear() {
    if (count == 0)
      return;
    slots.assign(slots.size(), Slot());
    count = 0;
  }

  bool empty() const { return count == 0; }
  size_t size() const { return count; }

private:
  struct Slot {
    const void *key = nullptr;
    Value value = Value();
  };

  static unsigned log2(size_t powerOfTwo) {
    unsigned bits = 0;
    while ((size_t(1) << bits) < powerOfTwo)
      ++bits;
    return bits;
  }

  static uint64_t hashPage(const void *key) {
    return (reinterpret_cast<uintptr_t>(key) >> 12) * 0x9E3779B97F4A7C15ull;
  }

  /// Objects are mostly visited in the order in which they were allocated, so
  /// what lies on one page of memory stays together in the table, one cache
  /// line after the other; pages are spread by multiplication.
  size_t home(const void *key) const {
    size_t offset = (reinterpret_cast<uintptr_t>(key) & 4095) >> granularity;
    return ((hashPage(key) >> shift) + offset) & (slots.size() - 1);
  }

  /// Where two pages meet, they are dense: the next slot would be taken as
  /// well, and the one after it. A page has a stride of its own instead, odd so
  /// that it leads everywhere, and stays together after it.
  size_t next(size_t i, const void *key) const {
    size_t stride = (hashPage(key) >> 16) | 1;
    return (i + stride) & (slots.size() - 1);
  }

  void grow() {
    std::vector<Slot> old(slots.size() * 2);
    old.swap(slots);
    --shift;
    for (Slot &slot : old) {
      if (!slot.key)
        continue;
      size_t i = home(slot.key);
      while (slots[i].key)
        i = next(i, slot.key);
      slots[i] = slot;
    }
  }

  std::vector<Slot> slots;
  unsigned shift;
  size_t count = 0;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_IR_POINTERTABLE_H

//===- TextSize.h - What it takes to print something in full ----*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// MLIR's printer recurses into the parts of an attribute or type, and prints a
/// part as often as it occurs. Types that share their parts can have a text that
/// is exponentially larger than they are, and deep ones take the printer more
/// stack than there is.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CODEC_TEXTSIZE_H
#define CONTEXT_POOL_CODEC_TEXTSIZE_H

#include "context_pool/codec/Record.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/MathExtras.h"

#include <cstdint>
#include <vector>

namespace ctxpool::codec {

/// The parts of an attribute or type that its text has, each as often as it has
/// it.
void appendPrintedParts(Reference value, std::vector<Reference> &parts);

/// The size of a text in parts. Numbers saturate.
struct TextSize {
  /// The attributes and types in it.
  uint64_t parts = 0;
  /// Those of them that are in it because something around them is printed
  /// again.
  uint64_t repeated = 0;
  /// How deep they nest.
  uint64_t depth = 0;

  /// How many may be repeated: far beyond what compilers make, and no more than
  /// what takes time linear in what is printed. MLIR takes seconds to parse such
  /// a text of LLVM structs.
  uint64_t getMaxRepeated() const {
    return (1 << 15) + llvm::SaturatingMultiply<uint64_t>(parts - repeated, 16);
  }
  bool isReasonable() const { return repeated <= getMaxRepeated(); }

  /// What MLIR 22.1 needs of the stack to print or to parse it. Measured: 473
  /// and 2,100 bytes for what nests in another.
  uint64_t getStackBytes() const {
    return llvm::SaturatingMultiply(depth, bytesOfPart);
  }
  static constexpr uint64_t bytesOfPart = 4096;
};

/// Measures the text of values of one context that nobody changes meanwhile.
/// Takes time linear in the distinct parts; where types are parts of themselves,
/// which the printer takes note of, at most about a second. Recurses not.
class TextMeasure {
public:
  TextSize measure(Reference value);

private:
  struct Node {
    std::vector<Reference> parts;
    /// Of the text, where that is the same wherever it occurs. 0: not known.
    uint64_t size = 0;
    uint64_t depth = 0;
    /// Its place among those that are being measured.
    size_t place = isClosed;
  };
  static constexpr size_t isClosed = SIZE_MAX;

  Node &getNode(Reference value);

  std::vector<Node> nodes;
  llvm::DenseMap<const void *, size_t> numbers;
  uint64_t distinctParts = 0;
};

} // namespace ctxpool::codec

#endif // CONTEXT_POOL_CODEC_TEXTSIZE_H

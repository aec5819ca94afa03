//===- TextSize.cpp - What it takes to print something in full ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/codec/TextSize.h"

#include "context_pool/codec/EncoderDetail.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <type_traits>

using namespace mlir;

namespace ctxpool::codec {
namespace {

template <typename AttributeOrType>
void appendParts(AttributeOrType value, std::vector<Reference> &parts) {
  size_t first = parts.size();
  auto add = [&](auto part) {
    if (part)
      parts.push_back(Reference::to(part));
  };
  if constexpr (std::is_same_v<AttributeOrType, Attribute>)
    if (isa<DenseElementsAttr, StringAttr>(value))
      return;
  value.walkImmediateSubElements([&](Attribute part) { add(part); },
                                 [&](Type part) { add(part); });
  if (isa<BuiltinDialect>(value.getDialect()) || parts.size() != first)
    return;
  // Some keep parts in their storage that only their accessors show, or their
  // printer. Where that fails, they stay hidden.
  if constexpr (std::is_same_v<AttributeOrType, Attribute>) {
    if (auto entry = dyn_cast<DataLayoutEntryInterface>(value)) {
      add(dyn_cast<Type>(entry.getKey()));
      add(entry.getValue());
      return;
    }
  }
  Record record;
  if (!detail::encodeUnnamed(value, record).ok())
    return;
  for (Reference part : record.references)
    if (part.pointer && part.kind != Reference::Kind::Bytes)
      parts.push_back(part);
}

} // namespace

void appendPrintedParts(Reference value, std::vector<Reference> &parts) {
  if (value.kind == Reference::Kind::Attribute)
    appendParts(value.getAttribute(), parts);
  else if (value.kind == Reference::Kind::Type)
    appendParts(value.getType(), parts);
}

TextMeasure::Node &TextMeasure::getNode(Reference value) {
  auto [found, isNew] = numbers.try_emplace(value.pointer, nodes.size());
  if (isNew) {
    Node &node = nodes.emplace_back();
    appendPrintedParts(value, node.parts);
    distinctParts += node.parts.size();
    if (node.parts.empty())
      node.size = node.depth = 1;
  }
  return nodes[found->second];
}

TextSize TextMeasure::measure(Reference value) {
  constexpr uint64_t maxVisits = 1 << 20;
  nodes.clear();
  numbers.clear();
  distinctParts = 0;

  /// One that is being measured.
  struct Frame {
    Reference value;
    size_t nextPart;
    uint64_t size;
    uint64_t depth;
    /// The outermost that it comes back to.
    size_t outermost;
  };
  std::vector<Frame> stack;
  TextSize result;
  uint64_t visits = 0;
  auto open = [&](Reference opened) {
    getNode(opened).place = stack.size();
    stack.push_back({opened, 0, 1, 0, TextMeasure::isClosed});
    result.depth = std::max<uint64_t>(result.depth, stack.size());
  };
  if (getNode(value).size == 1)
    return {1, 0, 1};
  for (open(value); !stack.empty();) {
    Frame &top = stack.back();
    Node &node = getNode(top.value);
    if (top.nextPart != node.parts.size()) {
      Reference next = node.parts[top.nextPart++];
      Node &part = getNode(next);
      if (++visits > maxVisits) {
        result.parts = result.repeated = UINT64_MAX;
        return result;
      }
      if (part.size) {
        top.size = llvm::SaturatingAdd(top.size, part.size);
        top.depth = std::max(top.depth, part.depth);
        result.depth =
            std::max<uint64_t>(result.depth, stack.size() + part.depth);
      } else if (part.place != isClosed) {
        // Printed as its name.
        top.size = llvm::SaturatingAdd<uint64_t>(top.size, 1);
        top.depth = std::max<uint64_t>(top.depth, 1);
        result.depth = std::max<uint64_t>(result.depth, stack.size() + 1);
        top.outermost = std::min(top.outermost, part.place);
      } else {
        open(next);
      }
      continue;
    }
    Frame done = top;
    stack.pop_back();
    node.place = isClosed;
    ++done.depth;
    // What comes back to something around it is another text elsewhere.
    if (done.outermost >= stack.size()) {
      node.size = done.size;
      node.depth = done.depth;
      done.outermost = isClosed;
    }
    if (stack.empty()) {
      result.parts = done.size;
      break;
    }
    Frame &outer = stack.back();
    outer.size = llvm::SaturatingAdd(outer.size, done.size);
    outer.depth = std::max(outer.depth, done.depth);
    outer.outermost = std::min(outer.outermost, done.outermost);
  }
  // Each distinct part once, for each place in which it is a part of another.
  uint64_t once = distinctParts + 1;
  result.repeated = result.parts > once ? result.parts - once : 0;
  return result;
}

} // namespace ctxpool::codec

//===- ResultDigest.h - Whether two compiles gave one result -- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_COMPILE_RESULTDIGEST_H
#define CONTEXT_POOL_COMPILE_RESULTDIGEST_H

#include "llvm/ADT/StringRef.h"

#include <array>
#include <cstdint>

namespace mlir {
class ModuleOp;
} // namespace mlir

namespace ctxpool::detail {

using ResultDigest = std::array<uint8_t, 32>;

/// BLAKE3 of the bytes.
ResultDigest digestBytes(llvm::StringRef bytes);

/// A digest of what a module is, which is equal for results that differ only in
/// what upstream's passes leave to chance: the order of private symbols in
/// their symbol table, their names, and locations. Nor does it see the keys of
/// resources, which depend on what else a context holds, or the order of use
/// lists.
///
/// It sees everything else: operations in their order, attributes, properties,
/// types, the contents of resources, and which reference means which symbol.
///
/// How: private symbols that can be reached from the others are numbered in the
/// order in which references to them are met, beginning with the public
/// symbols, so that equal modules get equal numbers whatever the symbols were
/// called. The rest, which nothing public refers to, is named after its
/// content: each by a hash of its text in which its own name is left out and
/// references to others of them stand for those others' hashes, refined until
/// no two fall apart any more. Symbols are private by their visibility, or by
/// LLVM's linkage `private` and `internal`. Symbol tables within the module,
/// such as a `gpu.module`, are treated the same way.
///
/// `module` is changed: its private symbols are renamed and reordered.
ResultDigest digestModule(mlir::ModuleOp module);

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_COMPILE_RESULTDIGEST_H

//===- Symbols.h - Symbol names that do not count ---------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Finds what a symbol reference names, for the modes in which some names do
/// not count.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_IR_SYMBOLS_H
#define CONTEXT_POOL_IR_SYMBOLS_H

#include "context_pool/Fingerprint.h"
#include "context_pool/codec/Record.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

#include <memory>

namespace ctxpool::detail {

/// Which symbols below one root lose their names, and what references mean
/// then.
///
/// A symbol is an operation with a `sym_name` directly in the body of a symbol
/// table. A reference is looked up from the operation that holds it: in that
/// operation itself where it is a symbol table, and then in each one around it
/// up to the root; the parts after the first, in what was found before. What is
/// not found counts by name.
class Symbols {
public:
  Symbols(mlir::Operation *newRoot, StructuralOptions::Symbols newMode)
      : root(newRoot), mode(newMode) {}

  bool normalize() const { return mode != StructuralOptions::Symbols::Exact; }

  /// Whether the name of this operation does not count.
  bool isNameless(mlir::Operation *op);

  /// Writes what the reference means to `user` into an empty record: the same
  /// for two references exactly when they name the same symbol but for names
  /// that do not count.
  void encode(mlir::Operation *user, mlir::SymbolRefAttr reference,
              codec::Record &record);

  /// The operation's own name, or null.
  static mlir::StringAttr getName(mlir::Operation *op);

  /// The name, if it is in the operation's properties; then a discardable
  /// attribute `sym_name` is like any other. Else null.
  static mlir::Attribute getInherentName(mlir::Operation *op);

private:
  struct Symbol {
    mlir::Operation *op;
    bool nameless;
    /// Among the nameless ones of the table.
    unsigned number;
  };
  struct Table {
    llvm::StringMap<Symbol> byName;
    llvm::DenseMap<mlir::Operation *, bool> namelessOps;
  };

  Table &getTable(mlir::Operation *op);

  mlir::Operation *root;
  StructuralOptions::Symbols mode;
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<Table>> tables;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_IR_SYMBOLS_H

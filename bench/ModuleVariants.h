//===- ModuleVariants.h - One module as many different ones --- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Modules that a cache cannot know, although a compiler does the same work for
/// them: the module of a file with a number in its attribute `llvm.ident`, the
/// name of who produced it. The number is text of one length, and reaches
/// whatever is made of the module: bytecode, bitcode and objects hold it as it
/// is. So a result tells whose it is, and results of different numbers that are
/// equal but for it are of equal modules.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_MODULEVARIANTS_H
#define CONTEXT_POOL_BENCH_MODULEVARIANTS_H

#include "bench/ModuleSource.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <string>

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace ctxpool::bench {

/// Gives every module the number 0. An `llvm.ident` that it has is replaced.
/// Bytecode is written anew as bytecode, and text as text, with locations where
/// the text has some. A file that cannot be parsed and verified for it, or not be
/// written, gets an `error`. Wants a large stack.
void numberSources(llvm::MutableArrayRef<ModuleSource> sources,
                   const mlir::DialectRegistry &registry,
                   bool allowUnregisteredDialects);

/// The bytes of `numbered`, which has number 0, with another number.
ModuleSource makeVariant(const ModuleSource &numbered, uint64_t number);

/// `bytes`, what a module of number `from` became, as that of number `to` would
/// be. Nothing where they do not hold the number.
std::optional<std::string> renumber(llvm::StringRef bytes, uint64_t from,
                                    uint64_t to);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_MODULEVARIANTS_H

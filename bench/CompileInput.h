//===- CompileInput.h - What a request brings ----------------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_COMPILEINPUT_H
#define CONTEXT_POOL_BENCH_COMPILEINPUT_H

#include "bench/ModuleSource.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <optional>

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace ctxpool::bench {

/// As what the module of a compile request arrives.
enum class CompileInput {
  Files,    ///< The bytes of its file, text or bytecode.
  Text,     ///< Text; a file of bytecode is printed, with locations.
  Bytecode, ///< Bytecode; a file of text is written as that.
  Module    ///< Live, in a context of a front end.
};

/// The names of all of them, in their order.
llvm::ArrayRef<llvm::StringRef> getCompileInputNames();

/// The one of that name.
std::optional<CompileInput> findCompileInput(llvm::StringRef name);

/// Makes of the files what requests bring, before anything is measured. A file
/// that cannot be parsed and verified for it, or not be written, gets an
/// `error`. Wants a large stack.
void convertSources(llvm::MutableArrayRef<ModuleSource> sources,
                    CompileInput input, const mlir::DialectRegistry &registry,
                    bool allowUnregisteredDialects);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_COMPILEINPUT_H

//===- CompilerIdentity.h - Which compiler is this process? -----*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_COMPILERIDENTITY_H
#define CONTEXT_POOL_CACHE_COMPILERIDENTITY_H

#include "context_pool/CompileCache.h"

#include <vector>

namespace ctxpool::detail {

/// What tells this compiler from others, as it is loaded now: the version of
/// LLVM, and a `code` for each object file whose code can change a result, by
/// name:
///   - the executable, which may hold MLIR and passes of its own;
///   - what names MLIR or LLVM in its dynamic symbols: their libraries, plugins;
///   - what those need, directly or not: the mathematical functions that constants
///     are folded with are in the C library.
/// What else is loaded, such as the modules of a name service, is not part of
/// it: which of those are there differs from run to run. Nor is what came with
/// `openRuntimeLibrary`, unless some of the above needs it.
///
/// Code is known by its build id, or, without one, by what is in the file and in
/// the segments that nobody writes to. The latter is computed once for each
/// object and process, and remembered.
std::vector<KeyPart> getCompilerIdentity();

/// A handle on a library that compiled code uses, whose symbols are not visible
/// to others; null where `dlerror` says why. The library stays loaded.
///
/// It and what is loaded for its sake may name LLVM and are no compilers: the
/// identity stays as it was, but for identities that are asked for as it loads.
/// What was loaded before, as a part of a compiler for all that is known, remains
/// one.
void *openRuntimeLibrary(const char *path);

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_COMPILERIDENTITY_H

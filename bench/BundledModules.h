//===- BundledModules.h - Modules in the executable ----------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_BUNDLEDMODULES_H
#define CONTEXT_POOL_BENCH_BUNDLEDMODULES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace ctxpool::bench {

/// A file of bench/modules as it was when the tool was built.
struct BundledModule {
  llvm::StringRef name; ///< The name of the file, without its folder.
  llvm::StringRef text; ///< Followed by a zero byte.
};

/// All of them, sorted by name. The build writes the definition.
llvm::ArrayRef<BundledModule> getBundledModules();

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_BUNDLEDMODULES_H

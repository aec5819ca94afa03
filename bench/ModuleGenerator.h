//===- ModuleGenerator.h - Modules of a given size ------------ -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_MODULEGENERATOR_H
#define CONTEXT_POOL_BENCH_MODULEGENERATOR_H

#include "llvm/Support/raw_ostream.h"

#include <cstdint>

namespace ctxpool::bench {

struct GeneratorOptions {
  unsigned functions = 1;
  uint64_t seed = 0;
  unsigned constantsKib = 0; ///< Total size of the dense constants.
};

/// Prints a module of so many functions, with the pipeline that lowers it to
/// the LLVM dialect in its first line. The text depends on the options alone:
/// it is the same on every machine.
///
/// A function is one of: arithmetic in loops and branches on scalars; loops
/// over buffers; named and generic structured operations on tensors; a state
/// machine of basic blocks; a layer that adds a large constant. It may call an
/// earlier one. Some of its attributes occur nowhere else, some everywhere.
void generateModule(const GeneratorOptions &options, llvm::raw_ostream &stream);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_MODULEGENERATOR_H

//===- StructuralFlags.h - What counts, as options ------------ -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_STRUCTURALFLAGS_H
#define CONTEXT_POOL_BENCH_STRUCTURALFLAGS_H

#include "context_pool/Fingerprint.h"

#include "llvm/Support/CommandLine.h"

namespace ctxpool::bench {

/// The options of commands that look at what a module is.
class StructuralFlags {
public:
  StructuralFlags(llvm::cl::SubCommand &command,
                  llvm::cl::OptionCategory &category);

  /// What was asked for. Valid once the command line is parsed.
  StructuralOptions getOptions() const;
  bool allowsUnregisteredDialects() const { return allowUnregistered; }

private:
  using Symbols = StructuralOptions::Symbols;
  llvm::cl::opt<bool> locations;
  llvm::cl::opt<Symbols> symbols;
  llvm::cl::opt<bool> allowUnregistered;
};

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_STRUCTURALFLAGS_H

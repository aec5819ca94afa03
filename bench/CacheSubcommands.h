//===- CacheSubcommands.h - Parts of ctxpool-bench cache --------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_CACHESUBCOMMANDS_H
#define CONTEXT_POOL_BENCH_CACHESUBCOMMANDS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/CommandLine.h"

namespace ctxpool::bench {

/// `parseCommandLine` for `cache NAME ...`, which is one word to LLVM.
bool parseSubcommandLine(int argc, char **argv, llvm::cl::SubCommand &command,
                         llvm::cl::OptionCategory &category,
                         llvm::StringRef explanation);

// Each takes the whole command line, `ctxpool-bench cache <name> ...`, and
// returns the exit status of the process.

int runCacheClear(int argc, char **argv);
int runCacheGc(int argc, char **argv);
int runCacheList(int argc, char **argv);
int runCacheStats(int argc, char **argv);
int runCacheVerify(int argc, char **argv);
int runCacheWarm(int argc, char **argv);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_CACHESUBCOMMANDS_H

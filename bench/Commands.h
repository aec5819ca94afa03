//===- Commands.h - The commands of ctxpool-bench ------------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_COMMANDS_H
#define CONTEXT_POOL_BENCH_COMMANDS_H

namespace ctxpool::bench {

// Each takes the whole command line, `argv[1]` being the command's name, and
// returns the exit status of the process.

int runCache(int argc, char **argv);
int runCompile(int argc, char **argv);
int runGenerate(int argc, char **argv);
int runDialects(int argc, char **argv);
int runDiff(int argc, char **argv);
int runFingerprint(int argc, char **argv);
int runJit(int argc, char **argv);
int runMicro(int argc, char **argv);
int runTransfer(int argc, char **argv);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_COMMANDS_H

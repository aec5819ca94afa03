//===- Benchmarks.h - Google Benchmark cases ------------------ -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_MICRO_BENCHMARKS_H
#define CONTEXT_POOL_BENCH_MICRO_BENCHMARKS_H

namespace ctxpool::bench {

/// Tells Google Benchmark of the cases of templates and the pool.
void registerContextBenchmarks();

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_MICRO_BENCHMARKS_H

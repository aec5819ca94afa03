//===- ProcessInfo.h - Time and memory of this process -------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_PROCESSINFO_H
#define CONTEXT_POOL_BENCH_PROCESSINFO_H

#include "absl/status/statusor.h"

#include <cstddef>
#include <cstdint>
#include <functional>

namespace ctxpool::bench {

/// Seconds of a clock that never goes back.
double getWallSeconds();

/// Processor time that all threads of this process have used so far.
double getCpuSeconds();

/// Bytes that this process has allocated from the heap and not freed. 0 where
/// the allocator does not tell.
size_t getHeapBytes();

/// Gives freed heap memory back to the system, where the allocator can, so that
/// resident memory tells what is in use.
void releaseFreeMemory();

/// Resident memory of this process at this moment, in bytes. 0 where the system
/// does not tell (Linux does).
uint64_t getResidentBytes();

/// Threads of this process at this moment. 0 where the system does not tell.
size_t countThreads();

/// Runs `body` in a forked child and returns the peak resident memory of that
/// child, what it shares with this process included.
///
/// Call it while this process has a single thread: a child has only the thread
/// that forked it, and locks that others held stay locked. The child ends
/// without running destructors and prints nothing.
///
/// Errors: Internal          - the child died of a signal or exited with an
/// error.
///         ResourceExhausted - the child could not be made.
absl::StatusOr<uint64_t> measurePeakResident(const std::function<bool()> &body);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_PROCESSINFO_H

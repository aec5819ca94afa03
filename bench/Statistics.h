//===- Statistics.h - Figures from samples -------------------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_STATISTICS_H
#define CONTEXT_POOL_BENCH_STATISTICS_H

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <vector>

namespace ctxpool::bench {

/// The smallest sample that at least `percent` of the samples do not exceed
/// (the nearest rank: always a value that was measured). 0 where there is none.
inline double percentile(std::vector<double> samples, double percent) {
  assert(percent >= 0 && percent <= 100 && "not a percentage");
  if (samples.empty())
    return 0;
  auto rank = static_cast<size_t>(
      std::ceil(percent / 100 * static_cast<double>(samples.size())));
  auto nth = samples.begin() + (std::max<size_t>(rank, 1) - 1);
  std::nth_element(samples.begin(), nth, samples.end());
  return *nth;
}

/// The middle sample, or the mean of the two in the middle. 0 where there is
/// none.
inline double median(std::vector<double> samples) {
  if (samples.empty())
    return 0;
  std::sort(samples.begin(), samples.end());
  size_t middle = samples.size() / 2;
  return samples.size() % 2 ? samples[middle]
                            : (samples[middle - 1] + samples[middle]) / 2;
}

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_STATISTICS_H

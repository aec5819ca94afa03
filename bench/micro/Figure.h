//===- Figure.h - A figure that the product has to reach ------ -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// What `ctxpool-bench micro --summary` prints a line for.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_MICRO_FIGURE_H
#define CONTEXT_POOL_BENCH_MICRO_FIGURE_H

#include "absl/status/statusor.h"

#include <cassert>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace ctxpool::bench {

/// One figure: where that says enough, a ratio or a count that is taken in one
/// process, so that it means the same on another machine.
struct Figure {
  enum class Bound { AtMost, AtLeast };

  std::string id;   ///< Unique, such as `R1b`, `R1b-locks` or `R6/1k`.
  std::string what; ///< One line for a reader who knows the library.
  Bound bound;
  double asked;
  std::string unit; ///< `x` for a ratio, a unit of time; empty for a count.
  /// Takes the figure, at least `repetitions` times unless that takes minutes.
  /// Unimplemented, which is no failure: the machine or the build lacks what it
  /// takes.
  std::function<absl::StatusOr<std::vector<double>>()> measure;

  bool isReachedBy(double value) const {
    return bound == Bound::AtMost ? value <= asked : value >= asked;
  }
};

/// How often a figure is taken at least. Odd, so that the median is one of
/// them.
constexpr int repetitions = 7;

/// The figures of the cache and the compile service.
std::vector<Figure> makeCacheFigures();

/// The figures of templates and the pool.
std::vector<Figure> makeContextFigures();

/// The figures of digests and comparisons.
std::vector<Figure> makeIrFigures();

/// The figures of folders and servers that caches keep artifacts in.
std::vector<Figure> makeTierFigures();

/// The figures of modules that move between contexts.
std::vector<Figure> makeTransferFigures();

/// Nanoseconds that `body` takes.
template <typename Body>
double nanosecondsOf(Body &&body) {
  auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::nano>(
             std::chrono::steady_clock::now() - begin)
      .count();
}

/// Runs `first` and `second`, which return what they measured, in turns, and
/// returns `combine` of each pair. Which comes first alternates, so that
/// neither gains by its place or by a drift of the machine's speed.
template <typename First, typename Second, typename Combine>
std::vector<double> interleave(First &&first, Second &&second,
                               Combine &&combine) {
  std::vector<double> combined;
  // One pair to warm up.
  for (int repetition = -1; repetition < repetitions; ++repetition) {
    double ofFirst = 0, ofSecond = 0;
    if (repetition % 2 == 0) {
      ofFirst = first();
      ofSecond = second();
    } else {
      ofSecond = second();
      ofFirst = first();
    }
    if (repetition >= 0)
      combined.push_back(combine(ofFirst, ofSecond));
  }
  return combined;
}

template <typename First, typename Second>
std::vector<double> ratios(First &&first, Second &&second) {
  return interleave(first, second, [](double a, double b) { return a / b; });
}

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_MICRO_FIGURE_H

//===- ProgressLine.h - How far a run has come ---- -*- C++ -*--------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_PROGRESSLINE_H
#define CONTEXT_POOL_BENCH_PROGRESSLINE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/CommandLine.h"

#include <string>

namespace ctxpool::bench {

/// The option `--no-progress`.
class ProgressFlag {
public:
  ProgressFlag(llvm::cl::SubCommand &command,
               llvm::cl::OptionCategory &category);

  /// Whether there is a terminal, and the option is not given.
  bool isShown() const;

private:
  llvm::cl::opt<bool> off;
};

/// One line on stderr that is written over and over, and is gone at the end.
class ProgressLine {
public:
  explicit ProgressLine(const ProgressFlag &flag) : enabled(flag.isShown()) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine &) = delete;
  ProgressLine &operator=(const ProgressLine &) = delete;

  /// `done` is a part of 1.
  void show(llvm::StringRef activity, double done);

  /// Makes room for a message.
  void clear();

private:
  const bool enabled;
  std::string shown;
};

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_PROGRESSLINE_H

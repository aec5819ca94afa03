//===- ProgressLine.cpp - How far a run has come ---------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/ProgressLine.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <utility>

using namespace ctxpool;
using namespace ctxpool::bench;
namespace cl = llvm::cl;

ProgressFlag::ProgressFlag(cl::SubCommand &command,
                           cl::OptionCategory &category)
    : off("no-progress", cl::sub(command), cl::cat(category),
          cl::desc("No progress line, which a terminal gets otherwise")) {}

bool ProgressFlag::isShown() const {
  return !off && llvm::sys::Process::StandardErrIsDisplayed();
}

void ProgressLine::show(llvm::StringRef activity, double done) {
  std::string text = llvm::formatv("{0}: {1:P0}", activity, done);
  if (!enabled || text == shown)
    return;
  clear();
  llvm::errs() << text;
  shown = std::move(text);
}

void ProgressLine::clear() {
  if (!shown.empty())
    llvm::errs() << '\r' << std::string(shown.size(), ' ') << '\r';
  shown.clear();
}

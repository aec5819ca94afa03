//===- ReportFlag.h - Where a report goes --------------------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_REPORTFLAG_H
#define CONTEXT_POOL_BENCH_REPORTFLAG_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/JSON.h"

#include <string>

namespace ctxpool::bench {

/// The option `--json[=file]`: where the report goes besides the text.
class ReportFlag {
public:
  ReportFlag(llvm::cl::SubCommand &command, llvm::cl::OptionCategory &category);

  /// Why the option is wrong, also where the report would overwrite one of the
  /// command's `inputs`; empty where it is not.
  std::string check(llvm::ArrayRef<std::string> inputs = {}) const;

  /// Whether standard output gets the text for people, and not the report.
  bool leavesStandardOutput() const { return path != "-"; }

  /// Whether a report that was asked for can be written: told before a run,
  /// which may be long. Prints an error where it cannot.
  bool canWrite() const;

  /// Writes what `make` returns, if a report was asked for. Prints an error and
  /// returns false where that fails.
  bool write(llvm::function_ref<llvm::json::Object()> make) const;

private:
  /// Without a file, standard output.
  struct Parser : llvm::cl::parser<std::string> {
    using llvm::cl::parser<std::string>::parser;
    bool parse(llvm::cl::Option &option, llvm::StringRef name,
               llvm::StringRef argument, std::string &value) const;
  };

  llvm::cl::opt<std::string, /*ExternalStorage=*/false, Parser> path;
};

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_REPORTFLAG_H

//===- Environment.h - What a measurement was made with ------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_ENVIRONMENT_H
#define CONTEXT_POOL_BENCH_ENVIRONMENT_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"

#include <optional>
#include <string>

namespace ctxpool::bench {

/// The build and the machine: what a figure means nothing without.
struct Environment {
  std::string version;     ///< Of context_pool.
  std::string mlirVersion; ///< Of the headers that the tool was built with.
  std::string linkMode;    ///< `archives` or `dylib`.
  std::string compiler;
  std::string buildType;
  std::string sanitizer; ///< Empty: none.
  bool optimized = false;
  bool assertions = false; ///< In this project's own code.
  std::string host, cpu, operatingSystem;
  unsigned cpuCount = 0; ///< Processors that this process may use.

  /// The build as one line.
  std::string describeBuild() const;

  /// Why figures of this build mislead; empty where they do not.
  std::string describeHandicap() const;
};

const Environment &getEnvironment();

/// Version of the layout of all JSON reports. Fields may be added without a new
/// one; readers ignore what they do not know.
constexpr int jsonSchema = 1;

/// The members that every report begins with: schema, command, versions, host,
/// command line.
llvm::json::Object makeReport(llvm::StringRef command,
                              llvm::ArrayRef<char *> commandLine);

/// Null where there is no value.
template <typename T>
llvm::json::Value makeOptional(std::optional<T> value) {
  return value ? llvm::json::Value(*value) : llvm::json::Value(nullptr);
}

/// Prints why a file failed, and returns its entry in a report.
llvm::json::Object reportFailedFile(llvm::StringRef file,
                                    llvm::StringRef message);

/// Whether a report can be written to `path`: told before a run, which may be
/// long. Prints an error where it cannot. What is in the file stays.
bool canWriteReport(llvm::StringRef path);

/// Writes `report` to the file, or to stdout where `path` is `-`. Prints an
/// error and returns false where that fails.
bool writeReport(llvm::json::Object report, llvm::StringRef path);

/// Warns on stderr where this build is not one to measure with.
void warnOfHandicap();

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_ENVIRONMENT_H

//===- CommandLine.h - What the commands' options share ------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_COMMANDLINE_H
#define CONTEXT_POOL_BENCH_COMMANDLINE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

#include <optional>
#include <string>

namespace ctxpool::bench {

enum ExitStatus : int {
  exitSuccess = 0,
  exitFailure = 1, ///< A request failed, a file is missing, results differ.
  exitUsage = 2,   ///< The command line is wrong; nothing was run.
};

/// A command, or a part of one that is chosen by its second word.
struct Command {
  llvm::StringLiteral name;
  llvm::StringLiteral summary;
  /// Takes the whole command line, and returns the exit status.
  int (*run)(int argc, char **argv);
};

/// Prints the commands, one on a line.
void printCommands(llvm::raw_ostream &stream, llvm::ArrayRef<Command> commands);

/// `text` with what stands before the host in each URL of a Redis server replaced
/// by `***`.
std::string hidePasswords(llvm::StringRef text);

/// Prints `ctxpool-bench: error: <message>` to stderr, without passwords.
void printError(const llvm::Twine &message);

/// `message` with `file` in front, unless it names the file itself,
/// as diagnostics do.
std::string nameFile(llvm::StringRef file, llvm::StringRef message);

/// Why the FILES of a command line are wrong, whether they exist or not; empty
/// where they are not.
std::string checkFiles(llvm::ArrayRef<std::string> files);

/// The value of an enumeration without gaps that is called `name`, where `names`
/// are those of all values in their order.
template <typename Enum>
std::optional<Enum> findByName(llvm::ArrayRef<llvm::StringRef> names,
                               llvm::StringRef name) {
  const llvm::StringRef *found = llvm::find(names, name);
  if (found == names.end())
    return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

/// Prints `ctxpool-bench: warning: <message>` to stderr, without passwords.
void printWarning(const llvm::Twine &message);

/// Prints an error about the command line, and where to read more, as one line;
/// returns `exitUsage`.
int usageError(const llvm::Twine &message, llvm::StringRef command);

/// Parses the options of `command`, which are those in `category`. Prints one
/// line to stderr and returns false where the command line is wrong. `--help`
/// and `--version` print to stdout and end the process with status 0;
/// `explanation` follows the options.
bool parseCommandLine(int argc, const char *const *argv,
                      llvm::cl::SubCommand &command,
                      llvm::cl::OptionCategory &category,
                      llvm::StringRef explanation = "");

/// Prints what `--version` prints.
void printVersion(llvm::raw_ostream &stream);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_COMMANDLINE_H

//===- main.cpp - Dispatches to the commands of ctxpool-bench -------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CommandLine.h"
#include "bench/Commands.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

using namespace ctxpool;
using namespace ctxpool::bench;

// The one place that knows all commands. A command parses its own options.
static constexpr Command commands[] = {
    {"cache", "Look into compile caches, fill and clear them", runCache},
    {"compile",
     "Serve modules with fresh and pooled contexts and caches, and compare",
     runCompile},
    {"dialects", "Tell what loading each dialect costs", runDialects},
    {"diff", "Print the first difference of two modules", runDiff},
    {"fingerprint", "Print the digest of each module", runFingerprint},
    {"generate", "Print a module of a given size", runGenerate},
    {"jit", "Compile a module and call a function of it, twice", runJit},
    {"micro", "Measure the parts of the library", runMicro},
    {"transfer", "Compare the ways of a module into another context",
     runTransfer},
};

static void printHelp(llvm::raw_ostream &stream) {
  stream << "OVERVIEW: measures what context_pool gains on MLIR modules\n\n"
         << "USAGE: ctxpool-bench COMMAND [options]\n\n"
         << "COMMANDS:\n";
  printCommands(stream, commands);
  stream << "\nOPTIONS:\n"
         << "  --help     Display this text, or the options of a command\n"
         << "  --version  Display the version\n";
}

/// The exit status of a command that ended with `status`: a report that could not
/// be written is a failure. Unless it is looked at, LLVM aborts over it.
static int finish(int status) {
  llvm::raw_fd_ostream &out = llvm::outs();
  out.flush();
  if (!out.has_error())
    return status;
  printError("cannot write to standard output: " + out.error().message());
  out.clear_error();
  return status == exitSuccess ? int(exitFailure) : status;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  llvm::StringRef name = argc > 1 ? argv[1] : "";
  if (name.empty()) {
    printHelp(llvm::errs());
    return exitUsage;
  }
  if (name == "--help" || name == "-help" || name == "-h" || name == "help") {
    printHelp(llvm::outs());
    return finish(exitSuccess);
  }
  if (name == "--version" || name == "-version") {
    printVersion(llvm::outs());
    return finish(exitSuccess);
  }
  const Command *command = llvm::find_if(
      commands, [&](const Command &entry) { return entry.name == name; });
  if (command == std::end(commands))
    return usageError("'" + name + "' is not a command", "");
  return finish(command->run(argc, argv));
}

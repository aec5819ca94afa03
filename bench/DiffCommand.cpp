//===- DiffCommand.cpp - ctxpool-bench diff -------------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CommandLine.h"
#include "bench/Commands.h"
#include "bench/CrashGuard.h"
#include "bench/ModuleParser.h"
#include "bench/ModuleSource.h"
#include "bench/Registration.h"
#include "bench/StructuralFlags.h"
#include "bench/ThreadTeam.h"
#include "context_pool/Equivalence.h"

#include "mlir/IR/DialectRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

#include <optional>
#include <string>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;
namespace cl = llvm::cl;

static cl::SubCommand diffCommand("diff",
                                  "print the first difference of two modules");
static cl::OptionCategory category("Options of diff");

static cl::list<std::string> files(cl::Positional, cl::sub(diffCommand),
                                   cl::cat(category), cl::desc("A B"));
static StructuralFlags flags(diffCommand, category);
static constexpr llvm::StringLiteral explanation = R"(
A and B are .mlir text or .mlirbc bytecode; one of them may be - for standard input.
Exits with 0 and prints nothing where they are equivalent, with 1 where they are
not, and with 2 where that cannot be told.
)";

/// Compares the two files. Returns the exit status.
static int compare(const mlir::DialectRegistry &registry) {
  std::vector<LoadedModule> modules;
  for (const std::string &file : files) {
    if (llvm::sys::fs::is_directory(file)) {
      printError(file + ": is a folder; diff takes files");
      return exitUsage;
    }
    std::vector<ModuleSource> read = readModules({file});
    absl::StatusOr<LoadedModule> loaded =
        loadModule(read.front(), registry, flags.allowsUnregisteredDialects());
    if (!loaded.ok()) {
      printError(
          nameFile(read.front().name, std::string(loaded.status().message())));
      return exitUsage;
    }
    modules.push_back(*std::move(loaded));
  }
  absl::Status status =
      checkEquivalence(modules[0].module->getOperation(),
                       modules[1].module->getOperation(), flags.getOptions());
  if (status.ok())
    return exitSuccess;
  if (!absl::IsInvalidArgument(status)) {
    printError(std::string(status.message()));
    return exitUsage;
  }
  llvm::outs() << std::string(status.message()) << "\n";
  return exitFailure;
}

int bench::runDiff(int argc, char **argv) {
  if (!parseCommandLine(argc, argv, diffCommand, category, explanation))
    return exitUsage;
  if (files.size() != 2)
    return usageError("two files are needed, " + std::to_string(files.size()) +
                          " given",
                      "diff");
  if (std::string complaint = checkFiles(files); !complaint.empty())
    return usageError(complaint, "diff");
  mlir::DialectRegistry registry;
  if (!registerEverything(registry, {}, {}))
    return exitUsage;
  std::optional<detail::CrashHandlers> handlers = installCrashHandlers();
  if (!handlers)
    return exitUsage;
  auto compareGuarded = [&] {
    int result = exitUsage;
    if (absl::Status status = runGuarded([&] { result = compare(registry); });
        !status.ok())
      printError("comparing the files " + std::string(status.message()));
    return result;
  };
  // The parser recurses.
  return runOnLargeStack(compareGuarded, exitUsage);
}

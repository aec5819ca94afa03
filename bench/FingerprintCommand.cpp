//===- FingerprintCommand.cpp - ctxpool-bench fingerprint -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CommandLine.h"
#include "bench/Commands.h"
#include "bench/CrashGuard.h"
#include "bench/Environment.h"
#include "bench/ModuleParser.h"
#include "bench/ModuleSource.h"
#include "bench/Registration.h"
#include "bench/ReportFlag.h"
#include "bench/StructuralFlags.h"
#include "bench/ThreadTeam.h"
#include "context_pool/Fingerprint.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;
namespace cl = llvm::cl;

static cl::SubCommand
    fingerprintCommand("fingerprint",
                       "print the digest of each module, as sha256sum does");
static cl::OptionCategory category("Options of fingerprint");

static cl::list<std::string> files(cl::Positional, cl::sub(fingerprintCommand),
                                   cl::cat(category), cl::desc("FILES..."));
static StructuralFlags flags(fingerprintCommand, category);
static cl::opt<bool>
    functions("functions", cl::sub(fingerprintCommand), cl::cat(category),
              cl::desc("A line for each function in place of the module"));
static ReportFlag reportFlag(fingerprintCommand, category);
static constexpr llvm::StringLiteral explanation = R"(
FILES are .mlir text or .mlirbc bytecode, folders of them (searched recursively),
or - for standard input. A digest is the same in every context and process, and for
text and bytecode.
)";

namespace {
struct NamedDigest {
  std::string name; ///< Empty for the module.
  std::string digest;
};
} // namespace

/// `@outer::@inner` for a function within nested symbol tables.
static std::string makePath(mlir::Operation *function, mlir::Operation *root) {
  std::string path;
  for (mlir::Operation *op = function; op != root; op = op->getParentOp())
    if (auto name = op->getAttrOfType<mlir::StringAttr>(
            mlir::SymbolTable::getSymbolAttrName()))
      path.insert(0, "@" + name.str() + (path.empty() ? "" : "::"));
  return path;
}

/// The digests of one file, or why there are none.
static absl::StatusOr<std::vector<NamedDigest>>
digest(const ModuleSource &source, const mlir::DialectRegistry &registry) {
  absl::StatusOr<LoadedModule> loaded =
      loadModule(source, registry, flags.allowsUnregisteredDialects());
  if (!loaded.ok())
    return loaded.status();
  mlir::Operation *root = loaded->module->getOperation();

  std::vector<std::pair<std::string, mlir::Operation *>> wanted;
  if (functions)
    root->walk<mlir::WalkOrder::PreOrder>([&](mlir::FunctionOpInterface op) {
      wanted.emplace_back(makePath(op, root), op);
    });
  else
    wanted.emplace_back("", root);

  std::vector<NamedDigest> digests;
  Fingerprinter fingerprinter(*loaded->context);
  for (auto &[name, op] : wanted) {
    absl::StatusOr<Fingerprint> result =
        fingerprinter.compute(op, flags.getOptions());
    if (!result.ok())
      return result.status();
    digests.push_back({std::move(name), result->toHex()});
  }
  return digests;
}

static llvm::json::Object makeEntry(const ModuleSource &source,
                                    llvm::ArrayRef<NamedDigest> digests) {
  llvm::json::Object entry{{"file", llvm::json::fixUTF8(source.name)}};
  if (!functions) {
    entry["digest"] = digests.front().digest;
    return entry;
  }
  llvm::json::Array list;
  for (const NamedDigest &named : digests)
    list.push_back(llvm::json::Object{{"name", llvm::json::fixUTF8(named.name)},
                                      {"digest", named.digest}});
  entry["functions"] = std::move(list);
  return entry;
}

int bench::runFingerprint(int argc, char **argv) {
  if (!parseCommandLine(argc, argv, fingerprintCommand, category, explanation))
    return exitUsage;
  if (files.empty())
    return usageError("no file is given", "fingerprint");
  if (std::string complaint = checkFiles(files); !complaint.empty())
    return usageError(complaint, "fingerprint");
  if (std::string complaint = reportFlag.check(files); !complaint.empty())
    return usageError(complaint, "fingerprint");
  mlir::DialectRegistry registry;
  if (!registerEverything(registry, {}, {}))
    return exitFailure;
  if (!reportFlag.canWrite())
    return exitFailure;
  std::optional<detail::CrashHandlers> handlers = installCrashHandlers();
  if (!handlers)
    return exitFailure;
  bool allWell = true;
  llvm::json::Array entries;
  // The parser recurses.
  int status = runOnLargeStack(
      [&] {
        for (const ModuleSource &source : readModules(files)) {
          absl::StatusOr<std::vector<NamedDigest>> digests =
              absl::UnknownError("");
          if (absl::Status status =
                  runGuarded([&] { digests = digest(source, registry); });
              !status.ok())
            digests = status;
          if (!digests.ok()) {
            allWell = false;
            entries.push_back(reportFailedFile(
                source.name, std::string(digests.status().message())));
            continue;
          }
          if (reportFlag.leavesStandardOutput())
            for (const NamedDigest &named : *digests)
              llvm::outs() << named.digest << "  " << source.name
                           << (named.name.empty() ? "" : ":") << named.name
                           << "\n";
          entries.push_back(makeEntry(source, *digests));
        }
        return allWell ? exitSuccess : exitFailure;
      },
      exitFailure);
  bool written = reportFlag.write([&] {
    llvm::json::Object report =
        makeReport("fingerprint", llvm::ArrayRef(argv, argc));
    report["files"] = std::move(entries);
    return report;
  });
  return written ? status : exitFailure;
}

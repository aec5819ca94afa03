//===- CacheCommand.cpp - ctxpool-bench cache -----------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CacheSubcommands.h"
#include "bench/CommandLine.h"
#include "bench/Commands.h"
#include "bench/CompileMode.h"
#include "bench/CrashGuard.h"
#include "bench/Environment.h"
#include "bench/ModuleParser.h"
#include "bench/ModuleSource.h"
#include "bench/PipelineFlags.h"
#include "bench/RecipeFlags.h"
#include "bench/ReportFlag.h"
#include "bench/StructuralFlags.h"
#include "bench/ThreadTeam.h"
#include "context_pool/CompileCache.h"
#include "context_pool/Fingerprint.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mlir/IR/DialectRegistry.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;
namespace cl = llvm::cl;

bool bench::parseSubcommandLine(int argc, char **argv, cl::SubCommand &command,
                                cl::OptionCategory &category,
                                llvm::StringRef explanation) {
  std::string name = command.getName().str();
  std::vector<const char *> words = {argv[0], name.c_str()};
  words.insert(words.end(), argv + 3, argv + argc);
  return parseCommandLine(static_cast<int>(words.size()), words.data(), command,
                          category, explanation);
}

//===----------------------------------------------------------------------===//
// cache explain
//===----------------------------------------------------------------------===//

static cl::SubCommand explainCommand("cache explain",
                                     "print what goes into a module's key");
static cl::OptionCategory explainCategory("Options of cache explain");

static cl::list<std::string> explainFiles(cl::Positional,
                                          cl::sub(explainCommand),
                                          cl::cat(explainCategory),
                                          cl::desc("FILE [OTHER]"));
static PipelineFlags
    pipelineFlags(explainCommand, explainCategory,
                  "overrides the one that a file names in its first\n"
                  "line, // PIPELINE: <text>");
static RecipeFlags recipeFlags(explainCommand, explainCategory);
static StructuralFlags structuralFlags(explainCommand, explainCategory);
static ReportFlag reportFlag(explainCommand, explainCategory);
static constexpr llvm::StringLiteral explanation = R"(
FILE and OTHER are .mlir text, .mlirbc bytecode, or a report which this command
wrote with --json, on another machine, say; one of them may be - for standard input.

With FILE alone, prints everything that goes into its key, and the key by which a
compile service with this recipe knows it. With two, says which of these parts
differ, and exits with 0 where the keys are equal, with 1 where they are not, and
with 2 where that cannot be told. The recipe is that of the options for both; a
report has its own.
)";

namespace {
/// A key with what went into it.
struct ExplainedKey {
  std::string file;
  std::string digest;
  std::vector<KeyPart> parts;
};

/// A part that two keys do not share.
struct PartDifference {
  std::string name;
  std::string values[2]; ///< `none` where a key does not have the part.
};
} // namespace

static absl::StatusOr<ExplainedKey> readReport(const ModuleSource &source) {
  llvm::Expected<llvm::json::Value> value =
      llvm::json::parse(source.bytes->getBuffer());
  if (!value)
    return absl::InvalidArgumentError("it is no JSON: " +
                                      llvm::toString(value.takeError()));
  auto refuse = [] {
    return absl::InvalidArgumentError(
        "it is no report of 'cache explain --json' of one file");
  };
  const llvm::json::Object *report = value->getAsObject();
  const llvm::json::Array *keys = report ? report->getArray("keys") : nullptr;
  const llvm::json::Object *key =
      keys && keys->size() == 1 ? keys->front().getAsObject() : nullptr;
  const llvm::json::Array *parts = key ? key->getArray("parts") : nullptr;
  std::optional<llvm::StringRef> digest =
      key ? key->getString("key") : std::nullopt;
  if (!parts || !digest)
    return refuse();
  ExplainedKey explained{source.name, digest->str(), {}};
  for (const llvm::json::Value &entry : *parts) {
    const llvm::json::Object *part = entry.getAsObject();
    std::optional<llvm::StringRef> name, text;
    if (part) {
      name = part->getString("name");
      text = part->getString("value");
    }
    if (!name || !text)
      return refuse();
    explained.parts.push_back({name->str(), text->str()});
  }
  return explained;
}

static absl::StatusOr<ExplainedKey>
explainModule(const ModuleSource &source,
              const mlir::DialectRegistry &registry) {
  absl::StatusOr<LoadedModule> loaded = loadModule(
      source, registry, structuralFlags.allowsUnregisteredDialects());
  if (!loaded.ok())
    return loaded.status();
  absl::StatusOr<Fingerprint> digest =
      fingerprint(loaded->module->getOperation(), structuralFlags.getOptions());
  if (!digest.ok())
    return digest.status();

  CompileRecipe recipe =
      makeRecipe(pipelineFlags.getPipeline().empty()
                     ? source.getPipeline()
                     : llvm::StringRef(pipelineFlags.getPipeline()),
                 recipeFlags.getOutput());
  recipeFlags.apply(recipe);
  absl::StatusOr<ResolvedRecipe> resolved = ResolvedRecipe::create(recipe);
  if (!resolved.ok())
    return resolved.status();
  // A recipe may be of other operations, and a service's is of modules.
  if (absl::Status status = checkRunsOnModules(recipe.pipeline); !status.ok())
    return absl::Status(
        status.code(),
        absl::StrCat("pipeline '", recipe.pipeline, "': ", status.message()));
  return ExplainedKey{source.name, resolved->makeKey(*digest).digest.toHex(),
                      resolved->explainKey(*digest)};
}

static absl::StatusOr<ExplainedKey>
explain(const std::string &file, const mlir::DialectRegistry &registry) {
  if (llvm::sys::fs::is_directory(file))
    return absl::InvalidArgumentError(
        "it is a folder; cache explain takes files");
  ModuleSource source = std::move(readModules({file}).front());
  if (!source.error.empty())
    return absl::NotFoundError(source.error);
  // No module begins like that.
  if (source.bytes->getBuffer().ltrim().starts_with("{"))
    return readReport(source);
  return explainModule(source, registry);
}

static std::vector<PartDifference> findDifferences(const ExplainedKey &first,
                                                   const ExplainedKey &second) {
  // In the order of the first. Two libraries may have one name.
  llvm::MapVector<llvm::StringRef, std::vector<llvm::StringRef>> values[2];
  for (auto [side, key] : {std::pair(0, &first), std::pair(1, &second)})
    for (const KeyPart &part : key->parts)
      for (int each : {0, 1}) {
        std::vector<llvm::StringRef> &list = values[each][part.name];
        if (each == side)
          list.push_back(part.value);
      }
  auto show = [](const std::vector<llvm::StringRef> &list) {
    return list.empty() ? "none" : llvm::join(list, ", ");
  };
  std::vector<PartDifference> differences;
  for (auto &[name, list] : values[0]) {
    const std::vector<llvm::StringRef> &other = values[1].find(name)->second;
    if (list != other)
      differences.push_back({name.str(), {show(list), show(other)}});
  }
  return differences;
}

static void printKey(const ExplainedKey &key) {
  size_t width = 0;
  for (const KeyPart &part : key.parts)
    width = std::max(width, part.name.size());
  auto print = [&](llvm::StringRef name, llvm::StringRef value) {
    llvm::outs() << llvm::left_justify(name, width) << "  "
                 << (value.empty() ? llvm::StringRef("-") : value) << "\n";
  };
  for (const KeyPart &part : key.parts)
    print(part.name, part.value);
  print("key", key.digest);
}

static void printDifferences(llvm::ArrayRef<ExplainedKey> keys,
                             llvm::ArrayRef<PartDifference> differences) {
  if (differences.empty()) {
    llvm::outs() << "the keys are equal: " << keys.front().digest << "\n";
    return;
  }
  llvm::outs() << "the keys differ in " << differences.size()
               << (differences.size() == 1 ? " part" : " parts") << "\n";
  for (const PartDifference &difference : differences) {
    llvm::outs() << difference.name << "\n";
    for (auto [key, value] : llvm::zip(keys, difference.values))
      llvm::outs() << "  " << key.file << ": "
                   << (value.empty() ? llvm::StringRef("-")
                                     : llvm::StringRef(value))
                   << "\n";
  }
}

static llvm::json::Object
makeExplanation(llvm::ArrayRef<ExplainedKey> keys,
                llvm::ArrayRef<PartDifference> differences,
                llvm::ArrayRef<char *> commandLine) {
  llvm::json::Object report = makeReport("cache explain", commandLine);
  llvm::json::Array entries;
  for (const ExplainedKey &key : keys) {
    llvm::json::Array parts;
    for (const KeyPart &part : key.parts)
      parts.push_back(
          llvm::json::Object{{"name", llvm::json::fixUTF8(part.name)},
                             {"value", llvm::json::fixUTF8(part.value)}});
    entries.push_back(
        llvm::json::Object{{"file", llvm::json::fixUTF8(key.file)},
                           {"key", key.digest},
                           {"parts", std::move(parts)}});
  }
  report["keys"] = std::move(entries);
  if (keys.size() < 2)
    return report;
  report["equal"] = differences.empty();
  llvm::json::Array list;
  for (const PartDifference &difference : differences)
    list.push_back(llvm::json::Object{
        {"part", llvm::json::fixUTF8(difference.name)},
        {"values",
         llvm::json::Array{llvm::json::fixUTF8(difference.values[0]),
                           llvm::json::fixUTF8(difference.values[1])}}});
  report["differences"] = std::move(list);
  return report;
}

static int runExplain(int argc, char **argv) {
  if (!parseSubcommandLine(argc, argv, explainCommand, explainCategory,
                           explanation))
    return exitUsage;
  if (explainFiles.empty() || explainFiles.size() > 2)
    return usageError("one or two files are needed, " +
                          std::to_string(explainFiles.size()) + " given",
                      "cache explain");
  for (const std::string &complaint :
       {checkFiles(explainFiles), reportFlag.check(explainFiles),
        recipeFlags.check()})
    if (!complaint.empty())
      return usageError(complaint, "cache explain");
  mlir::DialectRegistry registry;
  if (pipelineFlags.setUp(registry, "cache explain") != exitSuccess ||
      !reportFlag.canWrite())
    return exitUsage;

  std::optional<detail::CrashHandlers> handlers = installCrashHandlers();
  if (!handlers)
    return exitUsage;

  std::vector<ExplainedKey> keys;
  // The parser recurses.
  int status = runOnLargeStack(
      [&]() -> int {
        for (const std::string &file : explainFiles) {
          absl::StatusOr<ExplainedKey> key = absl::UnknownError("");
          if (absl::Status status =
                  runGuarded([&] { key = explain(file, registry); });
              !status.ok())
            key = status;
          if (!key.ok()) {
            printError(nameFile(file == "-" ? "<stdin>" : file,
                                std::string(key.status().message())));
            return exitUsage;
          }
          keys.push_back(*std::move(key));
        }
        return exitSuccess;
      },
      exitUsage);
  if (status != exitSuccess)
    return status;

  std::vector<PartDifference> differences;
  if (keys.size() == 2) {
    differences = findDifferences(keys[0], keys[1]);
    if (differences.empty() != (keys[0].digest == keys[1].digest)) {
      printError("the keys and their parts contradict each other: a report was "
                 "changed");
      return exitUsage;
    }
  }
  if (reportFlag.leavesStandardOutput()) {
    if (keys.size() == 1)
      printKey(keys.front());
    else
      printDifferences(keys, differences);
  }
  if (!reportFlag.write([&] {
        return makeExplanation(keys, differences, llvm::ArrayRef(argv, argc));
      }))
    return exitUsage;
  return differences.empty() ? exitSuccess : exitFailure;
}

//===----------------------------------------------------------------------===//
// The command
//===----------------------------------------------------------------------===//

static constexpr Command subcommands[] = {
    {"clear", "Delete all that a cache holds", runCacheClear},
    {"explain", "Print what goes into a module's key, or tell two keys apart",
     runExplain},
    {"gc", "Delete what a folder holds and no cache uses any more", runCacheGc},
    {"list", "Print what a cache holds", runCacheList},
    {"stats", "Print how much a cache holds, and how a server does",
     runCacheStats},
    {"verify", "Read all that a cache holds, and print what is damaged",
     runCacheVerify},
    {"warm", "Compile modules into a cache", runCacheWarm},
};

static void printHelp(llvm::raw_ostream &stream) {
  stream << "OVERVIEW: fills compile caches, and looks into them\n\n"
         << "USAGE: ctxpool-bench cache SUBCOMMAND [options]\n\n"
         << "SUBCOMMANDS:\n";
  printCommands(stream, subcommands);
}

int bench::runCache(int argc, char **argv) {
  llvm::StringRef name = argc > 2 ? argv[2] : "";
  if (name == "--help" || name == "-help" || name == "-h" || name == "help") {
    printHelp(llvm::outs());
    return exitSuccess;
  }
  if (name.empty())
    return usageError("no subcommand is given", "cache");
  const Command *subcommand = llvm::find_if(
      subcommands, [&](const Command &entry) { return entry.name == name; });
  if (subcommand == std::end(subcommands))
    return usageError("'" + name + "' is not a subcommand of cache", "cache");
  return subcommand->run(argc, argv);
}

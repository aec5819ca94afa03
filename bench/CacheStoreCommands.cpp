//===- CacheStoreCommands.cpp - ctxpool-bench cache stats and others ------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CacheFlags.h"
#include "bench/CacheSubcommands.h"
#include "bench/CommandLine.h"
#include "bench/Environment.h"
#include "bench/ReportFlag.h"
#include "bench/TextTable.h"
#include "context_pool/cache/CacheAccess.h"
#include "context_pool/cache/DiskTier.h"
#include "context_pool/cache/RemoteTier.h"

#include "absl/status/status.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;
using detail::DiskEntry;
using detail::DiskTier;
using detail::RemoteTier;
namespace cl = llvm::cl;

//===----------------------------------------------------------------------===//
// What the commands share
//===----------------------------------------------------------------------===//

namespace {
/// A command on what is kept, its options and what is left to do.
class StoreCommand {
public:
  StoreCommand(const char *theName, const char *summary,
               CacheStoreFlags::Stores stores)
      : name(theName), title("Options of " + name), command(name, summary),
        category(title), storeFlags(command, category, stores),
        reportFlag(command, category) {}

  /// Returns what the process has to exit with, after an error was printed.
  std::optional<int> parse(int argc, char **argv, llvm::StringRef explanation) {
    if (!parseSubcommandLine(argc, argv, command, category, explanation))
      return exitUsage;
    absl::StatusOr<CompileCacheOptions> parsed = storeFlags.getOptions();
    if (!parsed.ok())
      return usageError(std::string(parsed.status().message()), name);
    if (std::string complaint = reportFlag.check(); !complaint.empty())
      return usageError(complaint, name);
    if (!reportFlag.canWrite())
      return exitFailure;
    cache = *std::move(parsed);
    return std::nullopt;
  }

  const CompileCacheOptions &getCache() const { return cache; }
  bool hasFolder() const { return DiskTier::isCache(cache.directory); }
  std::string getRemoteName() const { return hidePasswords(cache.remote); }
  bool printsText() const { return reportFlag.leavesStandardOutput(); }

  /// The folder's tier. Call it where there is a cache.
  absl::StatusOr<std::unique_ptr<DiskTier>> openFolder(bool readOnly) const {
    detail::DiskTierOptions options = detail::getDiskTierOptions(cache);
    options.readOnly = readOnly;
    return DiskTier::create(std::move(options));
  }

  absl::StatusOr<std::unique_ptr<RemoteTier>> openRemote() const {
    return RemoteTier::create(detail::getRemoteTierOptions(cache));
  }

  /// Writes the report, in which `members` are as well, and returns the exit
  /// status.
  int finish(int status, llvm::json::Object members,
             llvm::ArrayRef<char *> commandLine) const {
    bool written = reportFlag.write([&] {
      llvm::json::Object report = makeReport(name, commandLine);
      for (auto &[key, value] : members)
        report[key] = std::move(value);
      return report;
    });
    return written ? status : int(exitFailure);
  }

private:
  const std::string name, title;
  cl::SubCommand command;
  cl::OptionCategory category;
  CacheStoreFlags storeFlags;
  ReportFlag reportFlag;
  CompileCacheOptions cache;
};
} // namespace

static int fail(const absl::Status &status) {
  printError(std::string(status.message()));
  return exitFailure;
}

static std::string describeEmpty(const std::string &directory) {
  return "'" + directory + "' holds no cache";
}

/// What is not known of a damaged entry.
static std::string orUnknown(const std::string &text) {
  return text.empty() ? "?" : text;
}
static std::string getKeyText(const DiskEntry &entry) {
  return entry.kind.empty() ? "?" : entry.key.digest.toHex();
}

static llvm::json::Array makeEntries(llvm::ArrayRef<DiskEntry> entries) {
  llvm::json::Array array;
  for (const DiskEntry &entry : entries) {
    if (entry.kind.empty()) {
      array.push_back(llvm::json::Object{{"key", nullptr}});
      continue;
    }
    array.push_back(llvm::json::Object{
        {"key", entry.key.digest.toHex()},
        {"kind", llvm::json::fixUTF8(entry.kind)},
        {"bytes", entry.bytes},
        {"compile_seconds", absl::ToDoubleSeconds(entry.compileCost)}});
  }
  return array;
}

static void printEntries(llvm::ArrayRef<DiskEntry> entries) {
  TextTable table({0, 1});
  table.addRow({"key", "kind", "bytes", "compile ms"});
  table.addRule();
  for (const DiskEntry &entry : entries)
    table.addRow({getKeyText(entry), orUnknown(entry.kind),
                  entry.kind.empty() ? "?" : std::to_string(entry.bytes),
                  entry.kind.empty() ? "?"
                                     : formatNumber(absl::ToDoubleMilliseconds(
                                           entry.compileCost))});
  table.print(llvm::outs());
}

//===----------------------------------------------------------------------===//
// cache stats
//===----------------------------------------------------------------------===//

static StoreCommand statsCommand("cache stats", "print how much a cache holds",
                                 CacheStoreFlags::Stores::DirectoryAndRemote);

namespace {
struct FolderStats {
  std::vector<DiskEntry> entries;
  uint64_t storedBytes = 0;
};
} // namespace

static absl::StatusOr<FolderStats> readFolder(const StoreCommand &command) {
  if (!command.hasFolder())
    return FolderStats();
  absl::StatusOr<std::unique_ptr<DiskTier>> tier =
      command.openFolder(/*readOnly=*/true);
  if (!tier.ok())
    return tier.status();
  absl::StatusOr<std::vector<DiskEntry>> entries = (*tier)->list();
  if (!entries.ok())
    return entries.status();
  return FolderStats{*std::move(entries), (*tier)->getStats().bytes};
}

/// Adds to the table, and returns what goes into the report.
static llvm::json::Object describeFolder(const StoreCommand &command,
                                         const FolderStats &stats,
                                         TextTable &table) {
  struct Kind {
    uint64_t entries = 0, bytes = 0;
  };
  std::map<std::string, Kind> kinds;
  uint64_t bytes = 0;
  absl::Duration cost;
  for (const DiskEntry &entry : stats.entries) {
    Kind &kind = kinds[entry.kind];
    ++kind.entries;
    kind.bytes += entry.bytes;
    bytes += entry.bytes;
    cost += entry.compileCost;
  }
  const CompileCacheOptions &cache = command.getCache();
  table.addRow({"folder", cache.directory +
                              (command.hasFolder() ? "" : " (no cache yet)")});
  table.addRow({"  entries", std::to_string(stats.entries.size())});
  llvm::json::Array list;
  for (const auto &[name, kind] : kinds) {
    table.addRow({"    " + name, std::to_string(kind.entries) + ", " +
                                     formatBytes(kind.bytes)});
    list.push_back(llvm::json::Object{{"kind", llvm::json::fixUTF8(name)},
                                      {"entries", kind.entries},
                                      {"bytes", kind.bytes}});
  }
  table.addRow({"  artifacts", formatBytes(bytes)});
  table.addRow({"  stored", formatBytes(stats.storedBytes) + " of at most " +
                                formatBytes(cache.directoryBytes)});
  table.addRow({"  compiled in",
                llvm::formatv("{0:F2} s", absl::ToDoubleSeconds(cost)).str()});
  return llvm::json::Object{{"path", llvm::json::fixUTF8(cache.directory)},
                            {"exists", command.hasFolder()},
                            {"entries", stats.entries.size()},
                            {"artifact_bytes", bytes},
                            {"stored_bytes", stats.storedBytes},
                            {"limit_bytes", cache.directoryBytes},
                            {"compile_seconds", absl::ToDoubleSeconds(cost)},
                            {"kinds", std::move(list)}};
}

static llvm::json::Object describeRemote(const StoreCommand &command,
                                         RemoteTier &tier, bool &answers,
                                         TextTable &table) {
  // The first call connects, the second one does not.
  auto ask = [&] { return tier.get(CacheKey()).status(); };
  absl::Status status = ask();
  answers = status.ok();
  auto begin = std::chrono::steady_clock::now();
  if (answers)
    status = ask();
  absl::Duration duration =
      absl::FromChrono(std::chrono::steady_clock::now() - begin);
  table.addRow({"server", command.getRemoteName()});
  table.addRow({"  answers",
                answers ? llvm::formatv("in {0:F2} ms",
                                        absl::ToDoubleMilliseconds(duration))
                              .str()
                        : "no: " + std::string(status.message())});
  table.addRow({"  values", command.getCache().remoteSecret.empty()
                                ? "checked for damage, not authenticated"
                                : "authenticated"});
  table.addRow({"  state", tier.getState().toString()});
  llvm::json::Object remote{
      {"url", llvm::json::fixUTF8(command.getRemoteName())},
      {"answers", answers},
      {"authenticated", !command.getCache().remoteSecret.empty()},
      {"state", llvm::json::fixUTF8(tier.getState().toString())}};
  if (answers)
    remote["answer_ms"] = absl::ToDoubleMilliseconds(duration);
  else
    remote["error"] = llvm::json::fixUTF8(std::string(status.message()));
  return remote;
}

int bench::runCacheStats(int argc, char **argv) {
  static constexpr llvm::StringLiteral explanation = R"(
Of a folder: what it holds and may hold. Of a server: whether it answers, and what
became of the attempt; exits with 1 where it does not.
)";
  if (std::optional<int> status = statsCommand.parse(argc, argv, explanation))
    return *status;
  TextTable table({0, 1});
  llvm::json::Object report;
  bool answers = true;
  if (!statsCommand.getCache().directory.empty()) {
    absl::StatusOr<FolderStats> stats = readFolder(statsCommand);
    if (!stats.ok())
      return fail(stats.status());
    report["directory"] = describeFolder(statsCommand, *stats, table);
  }
  if (!statsCommand.getCache().remote.empty()) {
    absl::StatusOr<std::unique_ptr<RemoteTier>> tier =
        statsCommand.openRemote();
    if (!tier.ok())
      return fail(tier.status());
    report["remote"] = describeRemote(statsCommand, **tier, answers, table);
  }
  if (statsCommand.printsText())
    table.print(llvm::outs());
  return statsCommand.finish(answers ? exitSuccess : exitFailure,
                             std::move(report), llvm::ArrayRef(argv, argc));
}

//===----------------------------------------------------------------------===//
// cache verify
//===----------------------------------------------------------------------===//

static StoreCommand verifyCommand("cache verify", "read all that a cache holds",
                                  CacheStoreFlags::Stores::Directory);

int bench::runCacheVerify(int argc, char **argv) {
  static constexpr llvm::StringLiteral explanation = R"(
Reads every artifact and compares its digest. Lists those that are damaged, and exits
with 1 where there are any: a cache treats them as absent, and the next compile
replaces them. A folder in whose tables somebody else wrote is replaced by an empty
one when it is opened.
)";
  if (std::optional<int> status = verifyCommand.parse(argc, argv, explanation))
    return *status;
  DiskTier::Verification verification;
  const std::string &directory = verifyCommand.getCache().directory;
  if (verifyCommand.hasFolder()) {
    absl::StatusOr<std::unique_ptr<DiskTier>> tier =
        verifyCommand.openFolder(/*readOnly=*/true);
    if (!tier.ok())
      return fail(tier.status());
    absl::StatusOr<DiskTier::Verification> verified = (*tier)->verify();
    if (!verified.ok())
      return fail(verified.status());
    verification = *std::move(verified);
  }
  const std::vector<DiskEntry> &damaged = verification.damaged;
  if (verifyCommand.printsText()) {
    if (!damaged.empty())
      printEntries(damaged);
    if (verifyCommand.hasFolder())
      llvm::outs() << directory << ": " << verification.entries
                   << " entries read, " << damaged.size() << " damaged\n";
    else
      llvm::outs() << describeEmpty(directory) << "\n";
  }
  return verifyCommand.finish(
      damaged.empty() ? exitSuccess : exitFailure,
      llvm::json::Object{{"directory", llvm::json::fixUTF8(directory)},
                         {"entries", verification.entries},
                         {"damaged", makeEntries(damaged)}},
      llvm::ArrayRef(argv, argc));
}

//===----------------------------------------------------------------------===//
// cache list
//===----------------------------------------------------------------------===//

static StoreCommand listCommand("cache list", "print what a cache holds",
                                CacheStoreFlags::Stores::Directory);

int bench::runCacheList(int argc, char **argv) {
  static constexpr llvm::StringLiteral explanation = R"(
Prints the key, kind, bytes and compile cost of every artifact, by key.
)";
  if (std::optional<int> status = listCommand.parse(argc, argv, explanation))
    return *status;
  absl::StatusOr<FolderStats> stats = readFolder(listCommand);
  if (!stats.ok())
    return fail(stats.status());
  const std::string &directory = listCommand.getCache().directory;
  if (listCommand.printsText()) {
    if (listCommand.hasFolder())
      printEntries(stats->entries);
    else
      llvm::outs() << describeEmpty(directory) << "\n";
  }
  return listCommand.finish(
      exitSuccess,
      llvm::json::Object{{"directory", llvm::json::fixUTF8(directory)},
                         {"entries", makeEntries(stats->entries)}},
      llvm::ArrayRef(argv, argc));
}

//===----------------------------------------------------------------------===//
// cache gc
//===----------------------------------------------------------------------===//

static StoreCommand gcCommand("cache gc", "delete what is not in use",
                              CacheStoreFlags::Stores::Directory);

/// What the files take on the disk, holes not counted.
static uint64_t measureFiles(const std::string &directory) {
  uint64_t bytes = 0;
  std::error_code error;
  // Files of others come and go meanwhile.
  for (std::filesystem::recursive_directory_iterator entry(
           directory,
           std::filesystem::directory_options::skip_permission_denied, error),
       end;
       !error && entry != end; entry.increment(error)) {
    struct stat status;
    if (lstat(entry->path().c_str(), &status) == 0)
      bytes += uint64_t(status.st_blocks) * 512;
  }
  return bytes;
}

int bench::runCacheGc(int argc, char **argv) {
  static constexpr llvm::StringLiteral explanation = R"(
Deletes stores that newer ones have replaced, and locks of processes that were killed.
Caches do so by themselves when they open the folder or run out of room. What a cache
would find stays.
)";
  if (std::optional<int> status = gcCommand.parse(argc, argv, explanation))
    return *status;
  const std::string &directory = gcCommand.getCache().directory;
  uint64_t before = 0, after = 0;
  if (gcCommand.hasFolder()) {
    absl::StatusOr<std::unique_ptr<DiskTier>> tier =
        gcCommand.openFolder(/*readOnly=*/false);
    if (!tier.ok())
      return fail(tier.status());
    before = measureFiles(directory);
    if (absl::Status status = (*tier)->collectGarbage(); !status.ok())
      return fail(status);
    after = measureFiles(directory);
  }
  uint64_t freed = before > after ? before - after : 0;
  if (gcCommand.printsText()) {
    if (gcCommand.hasFolder())
      llvm::outs() << directory << ": " << formatBytes(freed) << " freed, "
                   << formatBytes(after) << " left on the disk\n";
    else
      llvm::outs() << describeEmpty(directory) << "\n";
  }
  return gcCommand.finish(
      exitSuccess,
      llvm::json::Object{{"directory", llvm::json::fixUTF8(directory)},
                         {"freed_bytes", freed},
                         {"left_bytes", after}},
      llvm::ArrayRef(argv, argc));
}

//===----------------------------------------------------------------------===//
// cache clear
//===----------------------------------------------------------------------===//

static StoreCommand clearCommand("cache clear", "delete all that a cache holds",
                                 CacheStoreFlags::Stores::DirectoryAndRemote);

int bench::runCacheClear(int argc, char **argv) {
  static constexpr llvm::StringLiteral explanation = R"(
Clears the folder, or the server, or both where both are given. Of a server, all
artifacts that were written with the secret in CTXPOOL_REMOTE_SECRET, by whatever
machine, and nothing else. Caches that are open notice within moments; what they have
in memory stays.
)";
  if (std::optional<int> status = clearCommand.parse(argc, argv, explanation))
    return *status;
  // Each is cleared, whatever becomes of the other.
  int exitStatus = exitSuccess;
  llvm::json::Array cleared;
  auto note = [&](llvm::StringRef what, const absl::Status &status) {
    if (!status.ok()) {
      exitStatus = fail(status);
      return;
    }
    cleared.push_back(llvm::json::fixUTF8(what));
    if (clearCommand.printsText())
      llvm::outs() << "cleared " << what << "\n";
  };
  const std::string &directory = clearCommand.getCache().directory;
  if (clearCommand.hasFolder()) {
    absl::StatusOr<std::unique_ptr<DiskTier>> tier =
        clearCommand.openFolder(/*readOnly=*/false);
    note(directory, tier.ok() ? (*tier)->clear() : tier.status());
  } else if (!directory.empty() && clearCommand.printsText()) {
    llvm::outs() << describeEmpty(directory) << "\n";
  }
  if (!clearCommand.getCache().remote.empty()) {
    absl::StatusOr<std::unique_ptr<RemoteTier>> tier =
        clearCommand.openRemote();
    note(clearCommand.getRemoteName(),
         tier.ok() ? (*tier)->clear() : tier.status());
  }
  return clearCommand.finish(
      exitStatus, llvm::json::Object{{"cleared", std::move(cleared)}},
      llvm::ArrayRef(argv, argc));
}

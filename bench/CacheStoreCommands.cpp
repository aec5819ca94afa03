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
#include "llvm/Support/FileSystem.h"
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
using detail::DiskTier;
using detail::RemoteTier;
using detail::TierEntry;
using detail::TierVerification;
namespace cl = llvm::cl;

//===----------------------------------------------------------------------===//
// What the commands share
//===----------------------------------------------------------------------===//

namespace {
/// A command on what is kept, its options and what is left to do.
class StoreCommand {
public:
  StoreCommand(const char *theName, const char *summary,
               CacheStoreFlags::Stores stores, CacheStoreFlags::Access access)
      : name(theName), title("Options of " + name), command(name, summary),
        category(title), storeFlags(command, category, stores, access),
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
    // Nothing there is an empty cache, and what is there has to be one.
    const std::string &directory = parsed->directory;
    if (llvm::sys::fs::exists(directory) &&
        !llvm::sys::fs::is_directory(directory)) {
      printError("'" + directory + "' is not a folder");
      return exitFailure;
    }
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

/// What a folder or a server holds. Only values of a server expire.
enum class Place { Folder, Server };

static llvm::json::Array makeEntries(llvm::ArrayRef<TierEntry> entries,
                                     Place place) {
  llvm::json::Array array;
  for (const TierEntry &entry : entries) {
    llvm::json::Object object{{"key", nullptr}};
    if (entry.key)
      object["key"] = entry.key->digest.toHex();
    if (!entry.kind.empty()) {
      object["kind"] = llvm::json::fixUTF8(entry.kind);
      object["bytes"] = entry.bytes;
      object["compile_seconds"] = absl::ToDoubleSeconds(entry.compileCost);
    }
    if (place == Place::Server)
      object["expires_in_seconds"] =
          entry.expiresIn == absl::InfiniteDuration()
              ? llvm::json::Value(nullptr)
              : llvm::json::Value(absl::ToDoubleSeconds(entry.expiresIn));
    array.push_back(std::move(object));
  }
  return array;
}

static std::string formatExpiry(absl::Duration expiresIn) {
  if (expiresIn == absl::InfiniteDuration())
    return "never";
  return absl::FormatDuration(absl::Trunc(expiresIn, absl::Seconds(1)));
}

static void printEntries(llvm::ArrayRef<TierEntry> entries, Place place) {
  TextTable table({0, 1});
  std::vector<std::string> header = {"key", "kind", "bytes", "compile ms"};
  if (place == Place::Server)
    header.emplace_back("expires in");
  table.addRow(std::move(header));
  table.addRule();
  for (const TierEntry &entry : entries) {
    bool isKnown = !entry.kind.empty();
    std::vector<std::string> row = {
        orUnknown(entry.key ? entry.key->digest.toHex() : ""),
        orUnknown(entry.kind), isKnown ? std::to_string(entry.bytes) : "?",
        isKnown ? formatNumber(absl::ToDoubleMilliseconds(entry.compileCost))
                : "?"};
    if (place == Place::Server)
      row.push_back(formatExpiry(entry.expiresIn));
    table.addRow(std::move(row));
  }
  table.print(llvm::outs());
}

//===----------------------------------------------------------------------===//
// cache stats
//===----------------------------------------------------------------------===//

static StoreCommand statsCommand("cache stats", "print how much a cache holds",
                                 CacheStoreFlags::Stores::DirectoryAndRemote,
                                 CacheStoreFlags::Access::Reads);

namespace {
struct FolderStats {
  std::vector<TierEntry> entries;
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
  absl::StatusOr<std::vector<TierEntry>> entries = (*tier)->list();
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
  for (const TierEntry &entry : stats.entries) {
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
  const std::string message(status.message());
  table.addRow({"server", command.getRemoteName()});
  table.addRow({"  answers",
                answers ? llvm::formatv("in {0:F2} ms",
                                        absl::ToDoubleMilliseconds(duration))
                              .str()
                        : "no: " + hidePasswords(message)});
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
    remote["error"] = llvm::json::fixUTF8(hidePasswords(message));
  if (!answers)
    return remote;
  absl::StatusOr<detail::RemoteServerCounts> deleted = tier.countDeleted();
  table.addRow({"  evicted",
                deleted.ok()
                    ? llvm::formatv("{0}, and {1} expired, of all databases "
                                    "since the server started",
                                    deleted->evicted, deleted->expired)
                          .str()
                    : "unknown: " + std::string(deleted.status().message())});
  remote["server_evicted"] = nullptr;
  remote["server_expired"] = nullptr;
  if (deleted.ok()) {
    remote["server_evicted"] = deleted->evicted;
    remote["server_expired"] = deleted->expired;
  }
  return remote;
}

int bench::runCacheStats(int argc, char **argv) {
  static constexpr llvm::StringLiteral explanation = R"(
Of a folder: what it holds and may hold. What was evicted there, the process that did
so knows alone: see compile. Of a server: whether it answers, what became of the
attempt, and what the server has deleted to make room; exits with 1 where it does not
answer.
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
                                  CacheStoreFlags::Stores::DirectoryAndRemote,
                                  CacheStoreFlags::Access::Reads);

static absl::StatusOr<TierVerification> verifyFolder() {
  if (!verifyCommand.hasFolder())
    return TierVerification();
  absl::StatusOr<std::unique_ptr<DiskTier>> tier =
      verifyCommand.openFolder(/*readOnly=*/true);
  if (!tier.ok())
    return tier.status();
  return (*tier)->verify();
}

static absl::StatusOr<TierVerification> verifyServer() {
  absl::StatusOr<std::unique_ptr<RemoteTier>> tier = verifyCommand.openRemote();
  if (!tier.ok())
    return tier.status();
  return (*tier)->verify();
}

static void printVerification(const std::string &name, Place place,
                              const TierVerification &verification) {
  if (!verification.damaged.empty())
    printEntries(verification.damaged, place);
  llvm::outs() << name << ": " << verification.entries
               << (verification.entries == 1 ? " entry read, "
                                             : " entries read, ")
               << verification.damaged.size()
               << (place == Place::Server ? " rejected\n" : " damaged\n");
}

int bench::runCacheVerify(int argc, char **argv) {
  static constexpr llvm::StringLiteral explanation = R"(
Reads every artifact and compares its digest. Lists those that are damaged, and exits
with 1 where there are any: a cache treats them as absent, and the next compile
replaces them. A folder in whose tables somebody else wrote is replaced by an empty
one when it is opened.

Of a server, reads the values that the secret in CTXPOOL_REMOTE_SECRET is for, those
without a secret if there is none, and lists what a cache would reject: what is
damaged, larger than CTXPOOL_REMOTE_MAX_BYTES allows or, with a secret, was written by
somebody who does not have it. Such values stay, and what they say of themselves is
not to be trusted.
)";
  if (std::optional<int> status = verifyCommand.parse(argc, argv, explanation))
    return *status;
  int exitStatus = exitSuccess;
  llvm::json::Object report;
  const std::string &directory = verifyCommand.getCache().directory;
  if (!directory.empty()) {
    absl::StatusOr<TierVerification> verified = verifyFolder();
    if (!verified.ok())
      return fail(verified.status());
    if (!verified->damaged.empty())
      exitStatus = exitFailure;
    if (verifyCommand.printsText()) {
      if (verifyCommand.hasFolder())
        printVerification(directory, Place::Folder, *verified);
      else
        llvm::outs() << describeEmpty(directory) << "\n";
    }
    report["directory"] = llvm::json::fixUTF8(directory);
    report["entries"] = verified->entries;
    report["damaged"] = makeEntries(verified->damaged, Place::Folder);
  }
  if (!verifyCommand.getCache().remote.empty()) {
    absl::StatusOr<TierVerification> verified = verifyServer();
    if (!verified.ok())
      return fail(verified.status());
    if (!verified->damaged.empty())
      exitStatus = exitFailure;
    if (verifyCommand.printsText())
      printVerification(verifyCommand.getRemoteName(), Place::Server,
                        *verified);
    report["remote"] = llvm::json::fixUTF8(verifyCommand.getRemoteName());
    report["remote_entries"] = verified->entries;
    report["remote_rejected"] = makeEntries(verified->damaged, Place::Server);
  }
  return verifyCommand.finish(exitStatus, std::move(report),
                              llvm::ArrayRef(argv, argc));
}

//===----------------------------------------------------------------------===//
// cache list
//===----------------------------------------------------------------------===//

static StoreCommand listCommand("cache list", "print what a cache holds",
                                CacheStoreFlags::Stores::DirectoryAndRemote,
                                CacheStoreFlags::Access::Reads);

static absl::StatusOr<std::vector<TierEntry>> listServer() {
  absl::StatusOr<std::unique_ptr<RemoteTier>> tier = listCommand.openRemote();
  if (!tier.ok())
    return tier.status();
  return (*tier)->list();
}

int bench::runCacheList(int argc, char **argv) {
  static constexpr llvm::StringLiteral explanation = R"(
Prints the key, kind, bytes and compile cost of every artifact, by key. Of a server,
also when it expires, and those alone that the secret in CTXPOOL_REMOTE_SECRET is for,
or those without a secret if there is none; all as the values say, which cache verify
checks.
)";
  if (std::optional<int> status = listCommand.parse(argc, argv, explanation))
    return *status;
  llvm::json::Object report;
  const std::string &directory = listCommand.getCache().directory;
  const bool hasServer = !listCommand.getCache().remote.empty();
  if (!directory.empty()) {
    absl::StatusOr<FolderStats> stats = readFolder(listCommand);
    if (!stats.ok())
      return fail(stats.status());
    if (listCommand.printsText()) {
      if (hasServer && listCommand.hasFolder())
        llvm::outs() << directory << "\n";
      if (listCommand.hasFolder())
        printEntries(stats->entries, Place::Folder);
      else
        llvm::outs() << describeEmpty(directory) << "\n";
    }
    report["directory"] = llvm::json::fixUTF8(directory);
    report["entries"] = makeEntries(stats->entries, Place::Folder);
  }
  if (hasServer) {
    absl::StatusOr<std::vector<TierEntry>> entries = listServer();
    if (!entries.ok())
      return fail(entries.status());
    if (listCommand.printsText()) {
      if (!directory.empty())
        llvm::outs() << "\n" << listCommand.getRemoteName() << "\n";
      printEntries(*entries, Place::Server);
    }
    report["remote"] = llvm::json::fixUTF8(listCommand.getRemoteName());
    report["remote_entries"] = makeEntries(*entries, Place::Server);
  }
  return listCommand.finish(exitSuccess, std::move(report),
                            llvm::ArrayRef(argv, argc));
}

//===----------------------------------------------------------------------===//
// cache gc
//===----------------------------------------------------------------------===//

static StoreCommand gcCommand("cache gc", "delete what is not in use",
                              CacheStoreFlags::Stores::DirectoryOnly,
                              CacheStoreFlags::Access::Changes);

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
would find stays. Refused where CTXPOOL_MODE is read-only or off.

A server needs no such command: it deletes by itself what has expired and, by its
maxmemory-policy, what it has no room for.
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
                                 CacheStoreFlags::Stores::DirectoryAndRemote,
                                 CacheStoreFlags::Access::Changes);

int bench::runCacheClear(int argc, char **argv) {
  static constexpr llvm::StringLiteral explanation = R"(
Clears the folder, or the server, or both where both are given. Of a server, all
artifacts that were written with the secret in CTXPOOL_REMOTE_SECRET, by whatever
machine, and nothing else. Caches that are open notice within moments; what they have
in memory stays. Refused where CTXPOOL_MODE is read-only or off.
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

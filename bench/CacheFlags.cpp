//===- CacheFlags.cpp - Where caches are kept -----------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CacheFlags.h"

#include "bench/CommandLine.h"
#include "context_pool/cache/CacheSettings.h"
#include "context_pool/cache/DiskTier.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "llvm/Support/FormatVariadic.h"

#include <utility>

using namespace ctxpool;
using namespace ctxpool::bench;
namespace cl = llvm::cl;

CacheFlags::CacheFlags(cl::SubCommand &command, cl::OptionCategory &category)
    : directory("cache-dir", cl::sub(command), cl::cat(category),
                cl::value_desc("folder"),
                cl::desc("Folder in which the cache outlives the process\n"
                         "(default: CTXPOOL_DIR; without it, none)")),
      size("cache-size", cl::sub(command), cl::cat(category),
           cl::value_desc("bytes"),
           cl::desc("What the folder may hold, such as 512M (default:\n"
                    "CTXPOOL_DIR_BYTES, or 10G)")),
      remote("remote", cl::sub(command), cl::cat(category),
             cl::value_desc("url"),
             cl::desc("Redis server that machines share:\n"
                      "redis://[user:password@]host:port/db, or rediss:// for\n"
                      "TLS (default: CTXPOOL_REMOTE; without it, none)")),
      mode("cache-mode", cl::sub(command), cl::cat(category),
           cl::value_desc("mode"),
           cl::desc("read-write, read-only, recompute or off (default:\n"
                    "CTXPOOL_MODE, or read-write)")) {}

bool CacheFlags::areGiven() const {
  return directory.getNumOccurrences() || size.getNumOccurrences() ||
         remote.getNumOccurrences() || mode.getNumOccurrences();
}

static absl::Status nameOption(llvm::StringRef option,
                               const absl::Status &status) {
  return absl::Status(status.code(),
                      absl::StrCat(option.str(), ": ", status.message()));
}

absl::StatusOr<CompileCacheOptions> CacheFlags::getOptions() const {
  absl::StatusOr<CompileCacheOptions> options = readCacheEnvironment();
  if (!options.ok())
    return options;
  if (directory.getNumOccurrences())
    options->directory = directory;
  if (remote.getNumOccurrences())
    options->remote = remote;
  if (mode.getNumOccurrences()) {
    absl::StatusOr<CompileCacheOptions::Mode> parsed =
        detail::parseCacheMode(mode);
    if (!parsed.ok())
      return nameOption("--cache-mode", parsed.status());
    options->mode = *parsed;
  }
  if (size.getNumOccurrences()) {
    absl::StatusOr<uint64_t> parsed = detail::parseBytes(size);
    if (!parsed.ok())
      return nameOption("--cache-size", parsed.status());
    if (*parsed < detail::DiskTier::minDirectoryBytes)
      return absl::InvalidArgumentError(
          absl::StrCat("--cache-size: ", *parsed, " bytes; expected at least ",
                       formatBytes(detail::DiskTier::minDirectoryBytes)));
    if (options->directory.empty())
      return absl::InvalidArgumentError(
          "--cache-size is about a folder, which --cache-dir names");
    options->directoryBytes = *parsed;
  }
  // What is wrong with the rest is told before anything runs.
  if (absl::Status status = CompileCache::create(*options).status();
      !status.ok())
    return status;
  return options;
}

CacheStoreFlags::CacheStoreFlags(cl::SubCommand &command,
                                 cl::OptionCategory &category, Stores stores,
                                 Access access)
    : stores(stores), access(access),
      directory("directory", cl::sub(command), cl::cat(category),
                cl::value_desc("folder"),
                cl::desc("Folder of the cache (default: CTXPOOL_DIR, or\n"
                         "$XDG_CACHE_HOME/context_pool, or\n"
                         "~/.cache/context_pool; none where --remote is\n"
                         "given)")),
      remote("remote", cl::sub(command), cl::cat(category),
             cl::value_desc("url"),
             cl::desc(stores == Stores::DirectoryOnly
                          ? "Not for this command: a server needs none"
                          : "Redis server of the cache:\n"
                            "redis://[user:password@]host:port/db, or\n"
                            "rediss:// for TLS; nothing, as in --remote=, for\n"
                            "that of CTXPOOL_REMOTE (default: none)")) {}

absl::StatusOr<CompileCacheOptions> CacheStoreFlags::getOptions() const {
  absl::StatusOr<CompileCacheOptions> options = readCacheEnvironment();
  if (!options.ok())
    return options;
  const bool hasRemote = remote.getNumOccurrences() != 0;
  if (hasRemote && stores == Stores::DirectoryOnly)
    return absl::InvalidArgumentError(
        "--remote: a server deletes by itself what has expired and what it has "
        "no room for; 'cache clear' deletes everything");
  if (directory.getNumOccurrences() && directory.empty())
    return absl::InvalidArgumentError("--directory= names no folder");
  if (hasRemote && remote.empty() && options->remote.empty())
    return absl::InvalidArgumentError(
        "--remote= names no server, nor does CTXPOOL_REMOTE");
  using Mode = CompileCacheOptions::Mode;
  if (access == Access::Reads)
    options->mode = Mode::ReadWrite;
  else if (options->mode == Mode::ReadOnly || options->mode == Mode::Off)
    return absl::FailedPreconditionError(absl::StrCat(
        "CTXPOOL_MODE: '", getCacheModeName(options->mode).str(),
        "' lets no cache be changed, which this command does; expected "
        "read-write or recompute"));
  // What a variable says is not looked after, or cleared, unless asked for.
  if (!hasRemote)
    options->remote.clear();
  else if (!remote.empty())
    options->remote = remote;
  options->directory = directory;
  if (!directory.getNumOccurrences() && !hasRemote) {
    absl::StatusOr<std::string> usual = getDefaultCacheDirectory();
    if (!usual.ok())
      return usual.status();
    options->directory = *std::move(usual);
  }
  if (absl::Status status = CompileCache::create(*options).status();
      !status.ok())
    return status;
  return options;
}

llvm::StringRef bench::getCacheModeName(CompileCacheOptions::Mode mode) {
  switch (mode) {
  case CompileCacheOptions::Mode::ReadWrite:
    return "read-write";
  case CompileCacheOptions::Mode::ReadOnly:
    return "read-only";
  case CompileCacheOptions::Mode::Recompute:
    return "recompute";
  case CompileCacheOptions::Mode::Off:
    return "off";
  }
  return "";
}

std::string bench::describeCache(const CompileCacheOptions &options) {
  std::string text = "memory (" + formatBytes(options.memoryBytes) + ")";
  if (!options.directory.empty())
    text += ", " + options.directory + " (" +
            formatBytes(options.directoryBytes) + ")";
  if (!options.remote.empty())
    text += ", " + hidePasswords(options.remote);
  return text + ", " + getCacheModeName(options.mode).str();
}

void bench::addCache(llvm::json::Object &report,
                     const CompileCacheOptions &options) {
  report["cache_directory"] = llvm::json::fixUTF8(options.directory);
  report["cache_directory_bytes"] = options.directoryBytes;
  report["cache_remote"] = llvm::json::fixUTF8(hidePasswords(options.remote));
  report["cache_mode"] = getCacheModeName(options.mode);
}

void bench::warnOfFaults(llvm::StringRef cache, uint64_t faults,
                         llvm::StringRef lastFault) {
  if (faults)
    printWarning(llvm::formatv("{0} had {1} fault{2}, the last: {3}", cache,
                               faults, faults == 1 ? "" : "s", lastFault));
}

std::string bench::formatBytes(uint64_t bytes) {
  double value = static_cast<double>(bytes);
  static constexpr const char *units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit)
    value /= 1024;
  if (unit == 0)
    return llvm::formatv("{0} bytes", bytes);
  return llvm::formatv("{0:F1} {1}", value, units[unit]);
}

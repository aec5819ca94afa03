//===- CacheSettings.cpp - Settings of caches as text ---------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/CacheSettings.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;

absl::StatusOr<CompileCacheOptions::Mode>
detail::parseCacheMode(llvm::StringRef text) {
  using Mode = CompileCacheOptions::Mode;
  auto mode = llvm::StringSwitch<std::optional<Mode>>(text)
                  .Case("read-write", Mode::ReadWrite)
                  .Case("read-only", Mode::ReadOnly)
                  .Case("recompute", Mode::Recompute)
                  .Case("off", Mode::Off)
                  .Default(std::nullopt);
  if (mode)
    return *mode;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text.str(),
                   "' is not a mode; expected read-write, read-only, recompute "
                   "or off"));
}

absl::StatusOr<uint64_t> detail::parseBytes(llvm::StringRef text) {
  llvm::StringRef digits = text;
  uint64_t unit = 1;
  for (auto [suffix, shift] :
       {std::pair('K', 10), {'M', 20}, {'G', 30}, {'T', 40}})
    if (digits.consume_back(llvm::StringRef(&suffix, 1))) {
      unit = uint64_t(1) << shift;
      break;
    }
  uint64_t number;
  bool overflows = false;
  if (!digits.getAsInteger(10, number)) {
    uint64_t bytes = llvm::SaturatingMultiply(number, unit, &overflows);
    if (!overflows)
      return bytes;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text.str(),
                   "' is not a number of bytes; expected one such as 1000000, "
                   "512M or 10G"));
}

namespace {

std::string getVariable(const char *name) {
  const char *value = std::getenv(name); // NOLINT(concurrency-mt-unsafe)
  return value ? value : "";
}

absl::StatusOr<absl::Duration> parseDuration(llvm::StringRef text) {
  absl::Duration duration;
  if (absl::ParseDuration(text.str(), &duration))
    return duration;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text.str(),
                   "' is not a duration; expected one such as 90s, 24h or "
                   "inf"));
}

absl::StatusOr<std::string> parseText(llvm::StringRef text) {
  return text.str();
}

/// Where the variable is set, has `parse` turn its value into `field`.
template <typename T, typename Field>
absl::Status read(const char *variable,
                  absl::StatusOr<T> (*parse)(llvm::StringRef), Field &field) {
  std::string text = getVariable(variable);
  if (text.empty())
    return absl::OkStatus();
  absl::StatusOr<T> value = parse(text);
  if (!value.ok())
    return absl::Status(value.status().code(),
                        absl::StrCat("environment variable ", variable, ": ",
                                     value.status().message()));
  field = *std::move(value);
  return absl::OkStatus();
}

} // namespace

absl::StatusOr<std::string> ctxpool::getDefaultCacheDirectory() {
  if (std::string directory = getVariable("CTXPOOL_DIR"); !directory.empty())
    return directory;
  if (std::string cache = getVariable("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/context_pool";
  if (std::string home = getVariable("HOME"); !home.empty())
    return home + "/.cache/context_pool";
  return absl::FailedPreconditionError(
      "no folder for the cache: none of CTXPOOL_DIR, XDG_CACHE_HOME and HOME "
      "is set");
}

absl::StatusOr<CompileCacheOptions>
ctxpool::readCacheEnvironment(CompileCacheOptions options) {
  absl::Status status;
  status.Update(read("CTXPOOL_MODE", parseCacheMode, options.mode));
  status.Update(read("CTXPOOL_MEMORY_BYTES", parseBytes, options.memoryBytes));
  status.Update(read("CTXPOOL_DIR", parseText, options.directory));
  status.Update(read("CTXPOOL_DIR_BYTES", parseBytes, options.directoryBytes));
  status.Update(read("CTXPOOL_CROSS_PROCESS_WAIT", parseDuration,
                     options.crossProcessWait));
  status.Update(read("CTXPOOL_REMOTE", parseText, options.remote));
  status.Update(read("CTXPOOL_REMOTE_SECRET", parseText, options.remoteSecret));
  std::optional<absl::Duration> timeout;
  status.Update(read("CTXPOOL_REMOTE_TIMEOUT", parseDuration, timeout));
  if (timeout) {
    options.remoteConnectTimeout = options.remoteCallTimeout = *timeout;
    options.remoteTotalTimeout = std::max(options.remoteTotalTimeout, *timeout);
  }
  status.Update(
      read("CTXPOOL_REMOTE_EXPIRY", parseDuration, options.remoteExpiry));
  status.Update(read("CTXPOOL_REMOTE_MAX_BYTES", parseBytes,
                     options.remoteMaxArtifactBytes));
  if (!status.ok())
    return status;
  return options;
}

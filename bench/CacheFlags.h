//===- CacheFlags.h - Where caches are kept ---------------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_CACHEFLAGS_H
#define CONTEXT_POOL_BENCH_CACHEFLAGS_H

#include "context_pool/CompileCache.h"

#include "absl/status/statusor.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/JSON.h"

#include <cstdint>
#include <string>

namespace ctxpool::bench {

/// The options of commands that compile through a cache: `--cache-dir`,
/// `--cache-size`, `--remote` and `--cache-mode`.
class CacheFlags {
public:
  CacheFlags(llvm::cl::SubCommand &command, llvm::cl::OptionCategory &category);

  /// Whether the command line has any of them.
  bool areGiven() const;

  /// Whether reports are to describe the cache that came of them: one in memory
  /// alone goes without saying.
  bool isOfInterest(const CompileCacheOptions &options) const {
    return areGiven() || !options.directory.empty() || !options.remote.empty();
  }

  /// What the environment says, with the options in its place. Without either, a
  /// cache is in memory alone.
  ///
  /// Errors: InvalidArgument    - a value is not understood or out of its range;
  ///                              the message names the option or the variable,
  ///                              and no password.
  ///         FailedPrecondition - the folder is not to be trusted.
  ///         Unimplemented      - this build has no Redis, or no TLS.
  absl::StatusOr<CompileCacheOptions> getOptions() const;

private:
  llvm::cl::opt<std::string> directory, size, remote, mode;
};

/// The options of commands that are about a cache as such: `--directory` and
/// `--remote`.
class CacheStoreFlags {
public:
  /// What a command does to the cache.
  enum class Access { Reads, Changes };

  enum class Stores {
    DirectoryOnly, ///< There is nothing to do on a server: `--remote` is an
                   ///< error that says why.
    DirectoryAndRemote
  };

  CacheStoreFlags(llvm::cl::SubCommand &command,
                  llvm::cl::OptionCategory &category, Stores stores,
                  Access access);

  /// What the environment says of the folder and the server that the command
  /// line names. Where it names none, of the default folder. The mode is that of
  /// the environment for commands that change something, and else read-write.
  ///
  /// Errors: those of `CacheFlags::getOptions`; FailedPrecondition also where
  ///         there is no default folder, or the environment's mode lets nothing
  ///         be changed and the command would.
  absl::StatusOr<CompileCacheOptions> getOptions() const;

private:
  const Stores stores;
  const Access access;
  llvm::cl::opt<std::string> directory, remote;
};

/// `read-write` and so on.
llvm::StringRef getCacheModeName(CompileCacheOptions::Mode mode);

/// Where a cache with these options keeps artifacts, as one line, without
/// passwords.
std::string describeCache(const CompileCacheOptions &options);

/// Adds the same to the report of a command.
void addCache(llvm::json::Object &report, const CompileCacheOptions &options);

/// Warns of faults of folder and server, where there were any: they fail no
/// request. `cache` is what the warning calls the cache.
void warnOfFaults(llvm::StringRef cache, uint64_t faults,
                  llvm::StringRef lastFault);

/// `1.5 MiB`.
std::string formatBytes(uint64_t bytes);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_CACHEFLAGS_H

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

#include <optional>
#include <string>

namespace ctxpool::bench {

/// The options of commands that compile through a cache: `--cache-dir`,
/// `--cache-size`, `--remote` and `--cache-mode`.
class CacheFlags {
public:
  CacheFlags(llvm::cl::SubCommand &command, llvm::cl::OptionCategory &category);

  /// Whether the command line has any of them.
  bool areGiven() const;

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

/// The options of commands that are about a cache as such: `--directory`, and
/// `--remote` where the command can do something with a server.
class CacheStoreFlags {
public:
  enum class Stores { Directory, DirectoryAndRemote };

  CacheStoreFlags(llvm::cl::SubCommand &command,
                  llvm::cl::OptionCategory &category, Stores stores);

  /// What the environment says, but the mode, of the folder and the server that
  /// the command line names. Where it names none, of the default folder.
  ///
  /// Errors: those of `CacheFlags::getOptions`; FailedPrecondition also where
  ///         there is no default folder.
  absl::StatusOr<CompileCacheOptions> getOptions() const;

private:
  llvm::cl::opt<std::string> directory;
  std::optional<llvm::cl::opt<std::string>> remote;
};

/// `read-write` and so on.
llvm::StringRef getCacheModeName(CompileCacheOptions::Mode mode);

/// Where a cache with these options keeps artifacts, as one line, without
/// passwords.
std::string describeCache(const CompileCacheOptions &options);

/// `1.5 MiB`.
std::string formatBytes(uint64_t bytes);

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_CACHEFLAGS_H

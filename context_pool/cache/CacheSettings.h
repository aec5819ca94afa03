//===- CacheSettings.h - Settings of caches as text -------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// How environment variables and command lines spell what a cache is told.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_CACHESETTINGS_H
#define CONTEXT_POOL_CACHE_CACHESETTINGS_H

#include "context_pool/CompileCache.h"

#include "absl/status/statusor.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace ctxpool::detail {

/// `read-write`, `read-only`, `recompute` or `off`.
///
/// Errors: InvalidArgument - anything else; the message has it and these.
absl::StatusOr<CompileCacheOptions::Mode> parseCacheMode(llvm::StringRef text);

/// A number of bytes, or one with `K`, `M`, `G` or `T` for powers of 1,024.
///
/// Errors: InvalidArgument - anything else, or more than 64 bits hold.
absl::StatusOr<uint64_t> parseBytes(llvm::StringRef text);

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_CACHESETTINGS_H

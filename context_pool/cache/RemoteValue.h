//===- RemoteValue.h - Artifacts as values of a server ----------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_REMOTEVALUE_H
#define CONTEXT_POOL_CACHE_REMOTEVALUE_H

#include "context_pool/CompileCache.h"

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "llvm-c/blake3.h"
#include "llvm/ADT/StringRef.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace ctxpool::detail {

/// What a value says of its artifact.
struct RemoteValueSummary {
  std::string kind;
  uint64_t bytes = 0;
  absl::Duration compileCost;
};

/// The names and values under which artifacts are kept on a server that others
/// can write to.
///
/// A name is `ctxpool:<scheme>:<64 hexadecimal digits>`. The scheme is the
/// version of the format and, with a secret, a number made from it: programs
/// with different secrets share a server and do not meet.
///
/// A value, its numbers with the lowest byte first:
///
///   offset  bytes
///        0      8  `ctxpool` and the version, 1
///        8      1  how the artifact's bytes are stored: 0 as they are, 1 by zstd
///        9      1  length of the kind
///       10      6  zero
///       16      8  how many bytes the artifact has
///       24      8  compile cost in nanoseconds
///       32     32  digest of the artifact's bytes
///       64     32  meaning
///       96     32  tag: BLAKE3 of the name, of all before, and of all behind
///      128         kind, then the bytes
///
/// The tag is keyed. With a secret, only who has it can make a value that is
/// accepted, and only under the name it was made for. Without one the key is
/// known to all: the tag then finds damage, not malice.
///
/// Nothing of a value is used before its tag was compared; `peek` is for people.
///
/// Thread safety: every member may be called from several threads at once.
class RemoteValueFormat {
public:
  /// Artifacts have at most `maxBytes` bytes. An empty secret: none.
  RemoteValueFormat(llvm::StringRef secret, uint64_t maxBytes);

  /// What all names begin with.
  const std::string &getPrefix() const { return prefix; }
  std::string makeName(const CacheKey &key) const;

  /// The largest value that `encode` makes.
  uint64_t getMaxValueBytes() const;

  /// Compresses where that pays.
  ///
  /// Errors: OutOfRange - more than `maxBytes`, or a kind of more than 255
  ///                      bytes.
  absl::StatusOr<std::string> encode(llvm::StringRef name,
                                     const Artifact &artifact) const;

  /// How many bytes of a value `peek` looks at.
  static constexpr size_t peekedBytes = 128 + 255;

  /// The key that such a name is of; nothing for other names.
  std::optional<CacheKey> parseName(llvm::StringRef name) const;

  /// What a value, or its first `peekedBytes` bytes, says that it is, for people:
  /// anybody may have written that. Nothing where it is of another format or
  /// version, or the kind does not print.
  static std::optional<RemoteValueSummary> peek(llvm::StringRef value);

  /// Errors: DataLoss - not made by `encode` for that name and secret; another
  ///                    version; larger than `maxBytes`; without a kind.
  absl::StatusOr<Artifact> decode(llvm::StringRef name,
                                  llvm::StringRef value) const;

private:
  Fingerprint computeTag(llvm::StringRef name, llvm::StringRef value) const;

  const uint64_t maxBytes;
  std::string prefix;
  llvm_blake3_hasher keyed; ///< As it is before the first byte.
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_REMOTEVALUE_H

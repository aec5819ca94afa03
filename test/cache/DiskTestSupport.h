//===- DiskTestSupport.h - Folders and artifacts for tests ------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_TEST_CACHE_DISKTESTSUPPORT_H
#define CONTEXT_POOL_TEST_CACHE_DISKTESTSUPPORT_H

#include "context_pool/cache/DiskTier.h"
#include "test/support/TestFiles.h"

#include "gtest/gtest.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ctxpool::test {

CacheKey makeKey(uint64_t number);

/// Bytes that say which they are: nobody takes one for another.
std::string makeBytes(uint64_t number, size_t size);

/// `makeBytes` with a kind, meaning and cost that go with them.
Artifact makeArtifact(uint64_t number, size_t size);

/// Whether it is `makeArtifact` of those, with everything that belongs to it.
bool isArtifact(const Artifact &artifact, uint64_t number, size_t size);

class DiskTest : public testing::Test {
protected:
  /// Looks and tries again at once, and does not give up a lock that is held.
  detail::DiskTierOptions getOptions() const;

  /// The test fails where there is none.
  std::unique_ptr<detail::DiskTier> open() const { return open(getOptions()); }
  static std::unique_ptr<detail::DiskTier>
  open(const detail::DiskTierOptions &options);

  const TemporaryFolder temporary;

  /// Does not exist yet.
  const std::filesystem::path folder = temporary.get() / "cache";
};

/// What `get` gives, nothing on a miss; a fault fails the test.
std::optional<Artifact> getFrom(detail::DiskTier &tier, const CacheKey &key);

/// The same, and put again where it is old, as a cache does.
std::optional<Artifact> useFrom(detail::DiskTier &tier, const CacheKey &key);

/// All files in the folder, at any depth, sorted.
std::vector<std::filesystem::path> filesIn(const std::filesystem::path &folder);

/// What is in the folder, at any depth: "folder", or what a file begins with, up
/// to the zeros at the end.
std::map<std::filesystem::path, std::string>
treeOf(const std::filesystem::path &folder);

void flipByte(const std::filesystem::path &file, uint64_t offset,
              unsigned char mask = 0x10);

} // namespace ctxpool::test

#endif // CONTEXT_POOL_TEST_CACHE_DISKTESTSUPPORT_H

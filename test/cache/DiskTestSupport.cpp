//===- DiskTestSupport.cpp - Folders and artifacts for tests --------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/cache/DiskTestSupport.h"

#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

using namespace ctxpool;
using namespace ctxpool::detail;
using namespace ctxpool::test;

namespace fs = std::filesystem;

static Fingerprint digestOf(llvm::StringRef text) {
  Fingerprint digest;
  digest.bytes = llvm::BLAKE3::hash<32>(llvm::arrayRefFromStringRef(text));
  return digest;
}

CacheKey test::makeKey(uint64_t number) {
  return {digestOf("key " + std::to_string(number))};
}

std::string test::makeBytes(uint64_t number, size_t size) {
  std::string text = std::to_string(number) + ":" + std::to_string(size) + ";";
  std::string bytes;
  while (bytes.size() < size)
    bytes += text;
  bytes.resize(size);
  return bytes;
}

Artifact test::makeArtifact(uint64_t number, size_t size) {
  std::string bytes = makeBytes(number, size);
  return Artifact::copyOf("kind " + std::to_string(number), bytes)
      .withMeaning(digestOf("meaning " + bytes))
      .withCompileCost(absl::Microseconds(number));
}

bool test::isArtifact(const Artifact &artifact, uint64_t number, size_t size) {
  Artifact expected = makeArtifact(number, size);
  return artifact.getBytes() == expected.getBytes() &&
         artifact.getKind() == expected.getKind() &&
         artifact.getMeaning() == expected.getMeaning() &&
         artifact.getCompileCost() == expected.getCompileCost();
}

DiskTierOptions DiskTest::getOptions() const {
  DiskTierOptions options;
  options.directory = folder.string();
  // A lock is given to whoever asks at the right moment, not in turn.
  options.lockWait = absl::FromChrono(deadline);
  options.retryAfter = absl::ZeroDuration();
  options.lookInterval = absl::ZeroDuration();
  return options;
}

std::unique_ptr<DiskTier> DiskTest::open(const DiskTierOptions &options) {
  absl::StatusOr<std::unique_ptr<DiskTier>> tier = DiskTier::create(options);
  EXPECT_THAT(tier, IsOk());
  return tier.ok() ? *std::move(tier) : nullptr;
}

std::optional<Artifact> test::getFrom(DiskTier &tier, const CacheKey &key) {
  absl::StatusOr<std::optional<Artifact>> found = tier.get(key);
  EXPECT_THAT(found, IsOk());
  return found.ok() ? *found : std::nullopt;
}

std::optional<Artifact> test::useFrom(DiskTier &tier, const CacheKey &key) {
  absl::StatusOr<TierFound> found = tier.find(key);
  EXPECT_THAT(found, IsOk());
  if (!found.ok())
    return std::nullopt;
  if (found->artifact && found->isOld)
    EXPECT_THAT(tier.put(key, *found->artifact, /*replace=*/false), IsOk());
  return found->artifact;
}

std::map<fs::path, std::string> test::treeOf(const fs::path &folder) {
  std::map<fs::path, std::string> tree;
  for (const fs::directory_entry &entry :
       fs::recursive_directory_iterator(folder)) {
    std::string &content = tree[entry.path()];
    if (!entry.is_regular_file()) {
      content = "folder";
      continue;
    }
    // Some are large, and most of them a hole.
    std::ifstream stream(entry.path(), std::ios::binary);
    content.resize(std::min<uint64_t>(fs::file_size(entry.path()), 4 << 20));
    stream.read(content.data(), static_cast<std::streamsize>(content.size()));
    content.erase(content.find_last_not_of('\0') + 1);
  }
  return tree;
}

std::vector<fs::path> test::filesIn(const fs::path &folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry &entry :
       fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

void test::flipByte(const fs::path &file, uint64_t offset, unsigned char mask) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(offset));
  char byte = static_cast<char>(stream.get() ^ mask);
  stream.seekp(static_cast<std::streamoff>(offset));
  stream.put(byte);
  EXPECT_TRUE(stream.good()) << file;
}

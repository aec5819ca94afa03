//===- CompileCacheDiskTest.cpp - Caches on a folder --------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/CompileCache.h"

#include "test/cache/DiskTestSupport.h"
#include "test/support/StatusMatchers.h"

#include "gtest/gtest.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sys/stat.h>

using namespace ctxpool;
using namespace ctxpool::test;
namespace fs = std::filesystem;

namespace {

using Mode = CompileCacheOptions::Mode;

class CompileCacheDiskTest : public testing::Test {
protected:
  /// A cache on the folder, as another process would have it.
  std::unique_ptr<CompileCache> open(Mode mode = Mode::ReadWrite) const {
    CompileCacheOptions options;
    options.directory = folder;
    options.mode = mode;
    absl::StatusOr<std::unique_ptr<CompileCache>> cache =
        CompileCache::create(options);
    EXPECT_THAT(cache, IsOk());
    return cache.ok() ? *std::move(cache) : nullptr;
  }

  /// Asks for `makeArtifact(number)`, which compiles to `makeArtifact(version)`;
  /// what came out is a version.
  static uint64_t ask(CompileCache &cache, uint64_t number, uint64_t version) {
    absl::StatusOr<Artifact> artifact =
        cache.getOrCompile(makeKey(number), [&]() -> absl::StatusOr<Artifact> {
          return makeArtifact(version, 1000);
        });
    EXPECT_THAT(artifact, IsOk());
    for (uint64_t candidate = 0; artifact.ok() && candidate != 10; ++candidate)
      if (isArtifact(*artifact, candidate, 1000))
        return candidate;
    ADD_FAILURE() << "an artifact that nobody made";
    return ~uint64_t(0);
  }

  const TemporaryFolder temporary;
  const fs::path folder = temporary.get() / "cache";
};

} // namespace

TEST_F(CompileCacheDiskTest, WhatOneCacheCompiledAnotherFinds) {
  {
    std::unique_ptr<CompileCache> first = open();
    EXPECT_EQ(ask(*first, 1, 1), 1u);
  } // The destructor finishes the writes.
  std::unique_ptr<CompileCache> second = open();

  EXPECT_EQ(ask(*second, 1, 2), 1u);

  EXPECT_EQ(second->getStats().compiles, 0u);
  EXPECT_EQ(second->getStats().disk.hits, 1u);
  EXPECT_EQ(ask(*second, 1, 2), 1u);
  EXPECT_EQ(second->getStats().memory.hits, 1u) << "the hit filled memory";
}

TEST_F(CompileCacheDiskTest, TimeoutBoundsTheWaitForWhoSharesTheFolder) {
  CompileCacheOptions options;
  options.directory = folder;
  options.crossProcessWait = absl::Hours(1);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(one, CompileCache::create(options));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(other, CompileCache::create(options));
  auto compile = [&]() -> absl::StatusOr<Artifact> {
    // `one` holds the right to compile the key.
    for (absl::Duration timeout :
         {absl::ZeroDuration(), absl::Milliseconds(20)}) {
      absl::StatusOr<Artifact> artifact = other->getOrCompile(
          makeKey(1),
          []() -> absl::StatusOr<Artifact> { return makeArtifact(2, 1000); },
          timeout);
      EXPECT_TRUE(artifact.ok() && isArtifact(*artifact, 2, 1000));
      other->clear();
    }
    return makeArtifact(1, 1000);
  };
  EXPECT_THAT(one->getOrCompile(makeKey(1), compile), IsOk());
  EXPECT_EQ(other->getStats().compiles, 2u);
}

TEST_F(CompileCacheDiskTest, ReadOnlyMakesNoFolder) {
  std::unique_ptr<CompileCache> reader = open(Mode::ReadOnly);
  EXPECT_EQ(ask(*reader, 1, 1), 1u);
  EXPECT_EQ(reader->getStats().disk.errors, 0u);
  EXPECT_THAT(reader->flush(), IsOk());
  reader->clear();
  reader.reset();
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(CompileCacheDiskTest, ReadOnlyUsesTheFolderAndLeavesItAsItIs) {
  {
    std::unique_ptr<CompileCache> writer = open();
    ask(*writer, 1, 1);
  }
  std::unique_ptr<CompileCache> reader = open(Mode::ReadOnly);
  EXPECT_EQ(ask(*reader, 1, 2), 1u);
  EXPECT_EQ(ask(*reader, 2, 3), 3u);
  EXPECT_THAT(reader->flush(), IsOk());
  reader->clear();
  reader.reset();

  std::unique_ptr<CompileCache> other = open();
  EXPECT_EQ(ask(*other, 1, 4), 1u);
  EXPECT_EQ(ask(*other, 2, 5), 5u);
}

TEST_F(CompileCacheDiskTest, RecomputeReplacesWhatTheFolderHolds) {
  {
    std::unique_ptr<CompileCache> writer = open();
    ask(*writer, 1, 1);
  }
  {
    std::unique_ptr<CompileCache> cache = open(Mode::Recompute);
    EXPECT_EQ(ask(*cache, 1, 2), 2u);
  }
  std::unique_ptr<CompileCache> other = open();
  EXPECT_EQ(ask(*other, 1, 3), 2u);
}

TEST_F(CompileCacheDiskTest, OffDoesNotTouchTheFolder) {
  std::unique_ptr<CompileCache> cache = open(Mode::Off);
  EXPECT_EQ(ask(*cache, 1, 1), 1u);
  EXPECT_THAT(cache->flush(), IsOk());
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(CompileCacheDiskTest, TheFolderIsCreatedForItsOwnerOnly) {
  std::unique_ptr<CompileCache> cache = open();
  ask(*cache, 1, 1);
  ASSERT_THAT(cache->flush(), IsOk());
  struct stat status;
  ASSERT_EQ(stat(folder.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(CompileCacheDiskTest, AFolderThatOthersMayWriteToIsRefused) {
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::all);
  CompileCacheOptions options;
  options.directory = folder;
  EXPECT_THAT(CompileCache::create(options),
              StatusIs(absl::StatusCode::kFailedPrecondition, folder.string()));

  options.allowForeignDirectory = true;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(cache, CompileCache::create(options));
  EXPECT_EQ(ask(*cache, 1, 1), 1u);
}

TEST_F(CompileCacheDiskTest, AFolderThatCannotBeMadeFailsNoCompileAndCounts) {
  std::ofstream(folder) << "a file where the folder should be";
  std::unique_ptr<CompileCache> cache = open();

  EXPECT_EQ(ask(*cache, 1, 1), 1u);
  EXPECT_FALSE(cache->flush().ok());
  EXPECT_GT(cache->getStats().disk.errors, 0u);
  EXPECT_NE(cache->getStats().disk.lastError, "");
}

TEST_F(CompileCacheDiskTest, CreateNamesTheOptionThatIsOutOfItsRange) {
  CompileCacheOptions options;
  options.directory = folder;
  options.directoryBytes = 1;
  EXPECT_THAT(CompileCache::create(options),
              StatusIs(absl::StatusCode::kInvalidArgument, "directoryBytes"));
  options.directoryBytes = 1ull << 30;
  options.crossProcessWait = absl::Seconds(-1);
  EXPECT_THAT(CompileCache::create(options),
              StatusIs(absl::StatusCode::kInvalidArgument, "crossProcessWait"));
}

//===- DiskTierTest.cpp - Artifacts in a folder ---------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/cache/DiskTestSupport.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestFiles.h"

#include <fstream>
#include <set>
#include <sys/stat.h>
#include <thread>

using namespace ctxpool;
using namespace ctxpool::detail;
using namespace ctxpool::test;

namespace fs = std::filesystem;

namespace {

using DiskTierTest = DiskTest;

constexpr size_t sizes[] = {0,     1,      8,      1000,   59999,
                            60000, 60001,  65534,  65535,  65536,
                            69632, 100000, 131072, 3000001};

TEST_F(DiskTierTest, ArtifactComesBackWithItsKindBytesMeaningAndCost) {
  {
    std::unique_ptr<DiskTier> tier = open();
    for (size_t size : sizes) {
      EXPECT_FALSE(getFrom(*tier, makeKey(size)));
      EXPECT_THAT(tier->put(makeKey(size), makeArtifact(size, size),
                            /*replace=*/false),
                  IsOk());
      std::optional<Artifact> found = getFrom(*tier, makeKey(size));
      EXPECT_TRUE(found && isArtifact(*found, size, size)) << size;
    }
  }
  std::unique_ptr<DiskTier> again = open();
  for (size_t size : sizes) {
    std::optional<Artifact> found = getFrom(*again, makeKey(size));
    EXPECT_TRUE(found && isArtifact(*found, size, size)) << size;
  }
  EXPECT_EQ(again->getStats().rejected, 0u);
}

TEST_F(DiskTierTest, BytesAre64ByteAlignedAndManyAreMappedWithoutACopy) {
  std::unique_ptr<DiskTier> tier = open();
  for (size_t size : {1000, 65000, 200000}) {
    ASSERT_THAT(tier->put(makeKey(size), makeArtifact(size, size),
                          /*replace=*/false),
                IsOk());
    std::optional<Artifact> first = getFrom(*tier, makeKey(size));
    std::optional<Artifact> second = getFrom(*tier, makeKey(size));
    ASSERT_TRUE(first && second);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first->getBytes().data()) % 64, 0u);
    // A copy of each would be elsewhere.
    if (size == 200000)
      EXPECT_EQ(first->getBytes().data(), second->getBytes().data());
  }
}

TEST_F(DiskTierTest, ArtifactsOutliveTheTierAndTheFolder) {
  std::optional<Artifact> large, small;
  {
    std::unique_ptr<DiskTier> tier = open();
    ASSERT_THAT(tier->put(makeKey(1), makeArtifact(1, 500000), false), IsOk());
    ASSERT_THAT(tier->put(makeKey(2), makeArtifact(2, 500), false), IsOk());
    large = getFrom(*tier, makeKey(1));
    small = getFrom(*tier, makeKey(2));
  }
  fs::remove_all(folder);

  EXPECT_TRUE(large && isArtifact(*large, 1, 500000));
  EXPECT_TRUE(small && isArtifact(*small, 2, 500));
}

TEST_F(DiskTierTest, WhatIsThereStaysUnlessReplaced) {
  std::unique_ptr<DiskTier> tier = open();
  for (size_t size : {100, 100000}) {
    const CacheKey key = makeKey(size);
    ASSERT_THAT(tier->put(key, makeArtifact(1, size), false), IsOk());
    ASSERT_THAT(tier->put(key, makeArtifact(2, size), false), IsOk());
    EXPECT_TRUE(isArtifact(*getFrom(*tier, key), 1, size));

    ASSERT_THAT(tier->put(key, makeArtifact(3, size), /*replace=*/true),
                IsOk());
    EXPECT_TRUE(isArtifact(*getFrom(*tier, key), 3, size));

    ASSERT_THAT(tier->put(key, makeArtifact(1, size), /*replace=*/true),
                IsOk());
    EXPECT_TRUE(isArtifact(*getFrom(*tier, key), 1, size));
  }
}

TEST_F(DiskTierTest, AKeyCanBeReplacedAnyNumberOfTimes) {
  std::unique_ptr<DiskTier> tier = open();
  for (unsigned round = 0; round < 50; ++round) {
    EXPECT_THAT(tier->put(makeKey(1), makeArtifact(round, 100),
                          /*replace=*/true),
                IsOk());
    std::optional<Artifact> found = getFrom(*tier, makeKey(1));
    EXPECT_TRUE(found && isArtifact(*found, round, 100)) << round;
  }
}

TEST_F(DiskTierTest, EqualReplacementsTakeNoRoom) {
  std::unique_ptr<DiskTier> tier = open();
  for (unsigned round = 0; round < 50; ++round)
    EXPECT_THAT(tier->put(makeKey(1), makeArtifact(7, 100), true), IsOk());
  EXPECT_TRUE(isArtifact(*getFrom(*tier, makeKey(1)), 7, 100));
}

TEST_F(DiskTierTest, ClearForgetsEverythingAlsoForOthers) {
  std::unique_ptr<DiskTier> one = open();
  std::unique_ptr<DiskTier> other = open();
  for (uint64_t number = 0; number < 20; ++number)
    ASSERT_THAT(
        one->put(makeKey(number), makeArtifact(number, 30000 * number), false),
        IsOk());
  std::optional<Artifact> held = getFrom(*other, makeKey(10));
  ASSERT_TRUE(held);

  ASSERT_THAT(one->clear(), IsOk());

  for (uint64_t number = 0; number < 20; ++number) {
    EXPECT_FALSE(getFrom(*one, makeKey(number)));
    EXPECT_FALSE(getFrom(*other, makeKey(number)));
  }
  EXPECT_TRUE(isArtifact(*held, 10, 300000));
  ASSERT_THAT(other->put(makeKey(1), makeArtifact(5, 10), false), IsOk());
  EXPECT_TRUE(isArtifact(*getFrom(*one, makeKey(1)), 5, 10));
}

/// From now on it believes in what it has open, for its `lookInterval`.
void openAndLook(DiskTier &tier) {
  for (unsigned round = 0; round < 2; ++round)
    EXPECT_FALSE(getFrom(tier, makeKey(1000)));
}

TEST_F(DiskTierTest, WhatAnotherOneClearedIsNotDamaged) {
  DiskTierOptions options = getOptions();
  options.lookInterval = absl::Hours(1);
  std::unique_ptr<DiskTier> other = open();
  // Large ones have files of their own, which are deleted.
  ASSERT_THAT(other->put(makeKey(1), makeArtifact(1, 100000), false), IsOk());
  std::unique_ptr<DiskTier> reader = open(options);
  openAndLook(*reader);
  ASSERT_THAT(other->clear(), IsOk());

  EXPECT_FALSE(getFrom(*reader, makeKey(1)));
  EXPECT_EQ(reader->getStats().rejected, 0u);
}

TEST_F(DiskTierTest, WhatAnotherOneReplacedIsFoundWhereItIsByNow) {
  DiskTierOptions options = getOptions();
  options.lookInterval = absl::Hours(1);
  std::unique_ptr<DiskTier> other = open();
  ASSERT_THAT(other->put(makeKey(1), makeArtifact(1, 100000), false), IsOk());
  std::unique_ptr<DiskTier> reader = open(options);
  std::unique_ptr<DiskTier> compiler = open(options);
  openAndLook(*reader);
  openAndLook(*compiler);
  ASSERT_THAT(other->clear(), IsOk());
  ASSERT_THAT(other->put(makeKey(1), makeArtifact(3, 100000), false), IsOk());

  std::optional<Artifact> found = getFrom(*reader, makeKey(1));
  EXPECT_TRUE(found && isArtifact(*found, 3, 100000));
  EXPECT_EQ(reader->getStats().rejected, 0u);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      claim, compiler->claim(makeKey(1), absl::InfiniteDuration()));
  EXPECT_FALSE(claim) << "somebody has compiled it";
}

TEST_F(DiskTierTest, WhatIsPutAfterAnotherOneClearedIsStored) {
  DiskTierOptions options = getOptions();
  options.lookInterval = absl::Hours(1);
  std::unique_ptr<DiskTier> other = open();
  std::unique_ptr<DiskTier> writer = open(options);
  openAndLook(*writer);
  ASSERT_THAT(other->clear(), IsOk());

  ASSERT_THAT(writer->put(makeKey(1), makeArtifact(1, 100000), false), IsOk());
  std::optional<Artifact> found = getFrom(*other, makeKey(1));
  EXPECT_TRUE(found && isArtifact(*found, 1, 100000));
}

//===----------------------------------------------------------------------===//
// The bound
//===----------------------------------------------------------------------===//

/// What the files in a folder occupy. Nothing where one is deleted meanwhile.
std::optional<uint64_t> bytesOnDisk(const fs::path &folder) {
  uint64_t bytes = 0;
  std::error_code error;
  fs::recursive_directory_iterator file(folder, error), end;
  for (; !error && file != end; file.increment(error)) {
    struct stat status;
    if (lstat(file->path().c_str(), &status))
      return std::nullopt;
    if (S_ISREG(status.st_mode))
      bytes += static_cast<uint64_t>(status.st_blocks) * 512;
  }
  return error ? std::nullopt : std::optional(bytes);
}

TEST_F(DiskTierTest, FolderStaysBoundedAndWhatIsUsedLivesLongest) {
  DiskTierOptions options = getOptions();
  options.directoryBytes = 16 << 20;
  std::unique_ptr<DiskTier> tier = open(options);
  // Goes on using what it has open.
  std::unique_ptr<DiskTier> other = open(options);
  const CacheKey used = makeKey(1000000);
  ASSERT_THAT(tier->put(used, makeArtifact(1, 100000), false), IsOk());
  std::optional<Artifact> held = getFrom(*tier, used);
  ASSERT_TRUE(held);

  uint64_t number = 0;
  auto putNext = [&](DiskTier &into) {
    EXPECT_THAT(into.put(makeKey(number), makeArtifact(number, 100000), false),
                IsOk());
    ++number;
  };
  // 60 MB in a folder of 16, and more until the worker has come to its turn.
  EXPECT_TRUE(eventually([&] {
    putNext(number % 2 ? *tier : *other);
    std::optional<Artifact> found = useFrom(*other, used);
    EXPECT_TRUE(found && isArtifact(*found, 1, 100000)) << number;
    return number >= 600 &&
           tier->getStats().evictions + other->getStats().evictions > 100;
  }));

  EXPECT_FALSE(getFrom(*tier, makeKey(0)));
  EXPECT_TRUE(isArtifact(*held, 1, 100000));
  tier.reset();
  other.reset();
  held.reset();
  tier = open(options);
  EXPECT_THAT(tier->collectGarbage(), IsOk());
  // What was written while the worker was not there yet comes on top, until
  // there is a new store.
  EXPECT_TRUE(eventually([&] {
    putNext(*tier);
    std::optional<uint64_t> bytes = bytesOnDisk(folder);
    return bytes && *bytes < 3 * options.directoryBytes;
  }));
}

TEST_F(DiskTierTest, EvictionsAreCountedByTheOneThatReplacedTheStore) {
  DiskTierOptions options = getOptions();
  options.directoryBytes = 16 << 20;
  std::unique_ptr<DiskTier> tier = open(options);
  std::unique_ptr<DiskTier> other = open(options);
  std::unique_ptr<DiskTier> idle = open(options);
  ASSERT_THAT(idle->get(makeKey(0)), IsOk());
  uint64_t puts = 0, evicted = 0;
  EXPECT_TRUE(eventually([&] {
    EXPECT_THAT((puts % 2 ? tier : other)
                    ->put(makeKey(puts), makeArtifact(puts, 100000), false),
                IsOk());
    ++puts;
    evicted = tier->getStats().evictions + other->getStats().evictions;
    return evicted > 100;
  }));
  EXPECT_LE(evicted, puts - idle->getStats().entries);
  EXPECT_EQ(idle->getStats().evictions, 0u);
}

TEST_F(DiskTierTest, TheFolderHoldsNoMoreThanItMay) {
  DiskTierOptions options = getOptions();
  options.directoryBytes = DiskTier::minDirectoryBytes;
  std::unique_ptr<DiskTier> tier = open(options);
  for (size_t size : {2000000, 2 << 20, 700000})
    for (uint64_t number = 0; number < 8; ++number) {
      ASSERT_THAT(tier->put(makeKey(size + number), makeArtifact(number, size),
                            /*replace=*/false),
                  IsOk());
      EXPECT_TRUE(getFrom(*tier, makeKey(size + number)));
      // LLVM's tables come on top where an artifact is as large as can be.
      EXPECT_LE(tier->getStats().bytes, options.directoryBytes + 40000);
    }
}

/// How many generations' files that were deleted are mapped.
size_t countDeletedGenerations() {
  std::set<std::string> generations;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (size_t place = line.find("/gen.");
        place != std::string::npos &&
        line.find("(deleted)") != std::string::npos)
      generations.insert(line.substr(place, line.find('/', place + 1) - place));
  return generations.size();
}

TEST_F(DiskTierTest, WhatIsHeldKeepsAtMostTwoDeletedStores) {
  DiskTierOptions options = getOptions();
  options.directoryBytes = DiskTier::minDirectoryBytes;
  std::unique_ptr<DiskTier> tier = open(options);
  std::vector<Artifact> held;
  auto isMapped = [&](uint64_t number) {
    return getFrom(*tier, makeKey(number))->getBytes().data() ==
           getFrom(*tier, makeKey(number))->getBytes().data();
  };
  // Ten fill a store.
  for (uint64_t number = 0; number < 120; ++number) {
    ASSERT_THAT(tier->put(makeKey(number), makeArtifact(number, 200000), false),
                IsOk());
    std::optional<Artifact> found = getFrom(*tier, makeKey(number));
    ASSERT_TRUE(found);
    held.push_back(*found);
    if (number < 10)
      EXPECT_TRUE(isMapped(number));
  }

  EXPECT_TRUE(eventually([] { return countDeletedGenerations() <= 2; }));
  EXPECT_FALSE(isMapped(119));
  for (uint64_t number = 0; number < 120; ++number)
    EXPECT_TRUE(isArtifact(held[number], number, 200000));

  held.clear();
  EXPECT_TRUE(eventually([] { return countDeletedGenerations() == 0; }));
  EXPECT_TRUE(isMapped(119));
}

TEST_F(DiskTierTest, AStoreThatIsNotUsedAnyMoreIsClosedByTheTier) {
  std::unique_ptr<DiskTier> tier = open();
  ASSERT_THAT(tier->put(makeKey(1), makeArtifact(1, 200000), false), IsOk());
  std::optional<Artifact> held = getFrom(*tier, makeKey(1));
  ASSERT_THAT(tier->clear(), IsOk());
  EXPECT_EQ(countDeletedGenerations(), 1u);
  // The worker waits for the lock, which is held by somebody else.
  CTXPOOL_ASSERT_OK_AND_ASSIGN(door, FileLock::open(folder / "door"));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(locked, door.tryLock(FileLock::Exclusive));
  ASSERT_TRUE(locked);
  std::thread clearer([&] { EXPECT_THAT(tier->clear(), IsOk()); });
  EXPECT_TRUE(eventually([&] { return !tier->getStats().bytes; }));

  held.reset();
  EXPECT_EQ(countDeletedGenerations(), 1u) << "this thread closed it";

  door = *FileLock::open(folder / "door");
  clearer.join();
  EXPECT_TRUE(eventually([] { return countDeletedGenerations() == 0; }));
}

TEST_F(DiskTierTest, AnArtifactThatTheFolderMayNotHoldIsRefused) {
  DiskTierOptions options = getOptions();
  options.directoryBytes = DiskTier::minDirectoryBytes;
  std::unique_ptr<DiskTier> tier = open(options);
  EXPECT_EQ(tier->getMaxArtifactBytes(), DiskTier::minDirectoryBytes / 2);
  EXPECT_THAT(tier->put(makeKey(1), makeArtifact(1, 3 << 20), false),
              StatusIs(absl::StatusCode::kResourceExhausted, "may hold"));
  EXPECT_FALSE(getFrom(*tier, makeKey(1)));
}

TEST_F(DiskTierTest, WhatIsFoundInThePreviousStoreIsOldAndNotWritten) {
  {
    std::unique_ptr<DiskTier> tier = open();
    ASSERT_THAT(tier->put(makeKey(1), makeArtifact(1, 100), false), IsOk());
    CTXPOOL_ASSERT_OK_AND_ASSIGN(found, tier->find(makeKey(1)));
    EXPECT_FALSE(found.isOld);
  }
  CacheDirectory directory({folder.string()});
  ASSERT_THAT(directory.startGeneration(/*keepCurrent=*/true, std::nullopt,
                                        [] { return false; }),
              IsOk());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(found, open()->find(makeKey(1)));
  EXPECT_TRUE(found.artifact && isArtifact(*found.artifact, 1, 100));
  EXPECT_TRUE(found.isOld);
  ASSERT_THAT(directory.startGeneration(/*keepCurrent=*/true, std::nullopt,
                                        [] { return false; }),
              IsOk());
  EXPECT_FALSE(getFrom(*open(), makeKey(1)));
}

//===----------------------------------------------------------------------===//
// For people
//===----------------------------------------------------------------------===//

TEST_F(DiskTierTest, ListsWhatIsThere) {
  std::unique_ptr<DiskTier> tier = open();
  for (uint64_t number = 0; number < 10; ++number)
    ASSERT_THAT(
        tier->put(makeKey(number), makeArtifact(number, 20000 * number), false),
        IsOk());
  ASSERT_THAT(tier->put(makeKey(3), makeArtifact(33, 5), /*replace=*/true),
              IsOk());

  CTXPOOL_ASSERT_OK_AND_ASSIGN(entries, tier->list());

  std::set<Fingerprint> keys;
  uint64_t bytes = 0;
  for (const TierEntry &entry : entries) {
    ASSERT_TRUE(entry.key);
    keys.insert(entry.key->digest);
    bytes += entry.bytes;
    if (entry.key == makeKey(3)) {
      EXPECT_EQ(entry.kind, "kind 33");
      EXPECT_EQ(entry.compileCost, absl::Microseconds(33));
    }
  }
  EXPECT_EQ(keys.size(), 10u);
  EXPECT_EQ(bytes, 20000u * (45 - 3) + 5);
  EXPECT_EQ(tier->getStats().entries, 10u);
  EXPECT_GE(tier->getStats().bytes, bytes);
}

// LLVM reads a large table on several threads.
TEST_F(DiskTierTest, ListsAndCountsEachOfMany) {
  constexpr uint64_t count = 3000;
  std::unique_ptr<DiskTier> tier = open();
  std::set<Fingerprint> keys;
  for (uint64_t number = 0; number < count; ++number) {
    ASSERT_THAT(tier->put(makeKey(number), makeArtifact(number, 20), false),
                IsOk());
    keys.insert(makeKey(number).digest);
  }
  for (unsigned round = 0; round < 30; ++round) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(entries, tier->list());
    std::vector<Fingerprint> listed;
    for (const TierEntry &entry : entries)
      listed.push_back(entry.key.value_or(CacheKey()).digest);
    EXPECT_THAT(listed, testing::ElementsAreArray(keys));
    EXPECT_EQ(tier->getStats().entries, count);
  }
}

TEST_F(DiskTierTest, StatsOpenAndMakeNothing) {
  std::unique_ptr<DiskTier> tier = open();
  EXPECT_EQ(tier->getStats().entries, 0u);
  EXPECT_FALSE(fs::exists(folder));

  ASSERT_THAT(tier->put(makeKey(1), makeArtifact(1, 10), false), IsOk());
  EXPECT_EQ(tier->getStats().entries, 1u);
  fs::remove_all(folder);
  EXPECT_EQ(tier->getStats().entries, 0u);
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(DiskTierTest, StatsDoNotWaitForWhoHasLockedTheTables) {
  std::unique_ptr<DiskTier> tier = open();
  ASSERT_THAT(tier->put(makeKey(1), makeArtifact(1, 10), false), IsOk());
  EXPECT_EQ(tier->getStats().entries, 1u);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      lock, FileLock::open(folder / "gen.1" / "cas" / "v1.1" / "index.v1"));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(locked, lock.tryLock(FileLock::Exclusive));
  ASSERT_TRUE(locked);
  ASSERT_THAT(tier->put(makeKey(2), makeArtifact(2, 10), false), IsOk());
  EXPECT_EQ(tier->getStats().entries, 1u) << "as many as before";
  EXPECT_GT(tier->getStats().bytes, 0u);
}

TEST_F(DiskTierTest, VerifyNamesWhatIsDamaged) {
  std::unique_ptr<DiskTier> tier = open();
  for (uint64_t number = 0; number < 5; ++number)
    ASSERT_THAT(tier->put(makeKey(number), makeArtifact(number, 100000), false),
                IsOk());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(before, tier->verify());
  EXPECT_EQ(before.entries, 5u);
  EXPECT_TRUE(before.damaged.empty());
  for (const fs::path &file : filesIn(folder))
    if (fs::file_size(file) == 100000 && readFile(file).substr(0, 2) == "3:")
      flipByte(file, 50000);

  CTXPOOL_ASSERT_OK_AND_ASSIGN(after, tier->verify());

  EXPECT_EQ(after.entries, 5u);
  ASSERT_EQ(after.damaged.size(), 1u);
  EXPECT_EQ(after.damaged[0].key, makeKey(3));
}

TEST_F(DiskTierTest, AFolderIsACacheOnceItWasUsed) {
  EXPECT_FALSE(DiskTier::isCache(folder.string()));
  std::unique_ptr<DiskTier> tier = open();
  EXPECT_FALSE(DiskTier::isCache(folder.string()));
  ASSERT_THAT(tier->put(makeKey(1), makeArtifact(1, 10), false), IsOk());
  EXPECT_TRUE(DiskTier::isCache(folder.string()));
  EXPECT_FALSE(DiskTier::isCache(""));
}

TEST_F(DiskTierTest, CreateNamesTheOptionThatIsOutOfItsRange) {
  DiskTierOptions options = getOptions();
  options.directory = "";
  EXPECT_THAT(DiskTier::create(options),
              StatusIs(absl::StatusCode::kInvalidArgument, "directory"));
  options = getOptions();
  options.directoryBytes = DiskTier::minDirectoryBytes - 1;
  EXPECT_THAT(DiskTier::create(options),
              StatusIs(absl::StatusCode::kInvalidArgument, "directoryBytes"));
  options = getOptions();
  options.crossProcessWait = absl::Seconds(-1);
  EXPECT_THAT(DiskTier::create(options),
              StatusIs(absl::StatusCode::kInvalidArgument, "crossProcessWait"));
}

} // namespace

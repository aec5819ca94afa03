//===- DiskFaultsTest.cpp - Folders that are damaged, full or foreign -----===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/cache/ChildProcess.h"
#include "test/cache/DiskTestSupport.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"
#include "test/support/TestFiles.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <random>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

using namespace ctxpool;
using namespace ctxpool::detail;
using namespace ctxpool::test;

namespace fs = std::filesystem;

namespace {

constexpr uint64_t entries = 30;

size_t sizeOf(uint64_t number) { return number % 3 ? 1000 : 100000; }

class DiskFaultsTest : public DiskTest {
protected:
  void fill() const {
    std::unique_ptr<DiskTier> tier = open();
    for (uint64_t number = 0; number < entries; ++number)
      ASSERT_THAT(tier->put(makeKey(number),
                            makeArtifact(number, sizeOf(number)), false),
                  IsOk());
  }

  enum Result {
    Fine = 0,
    Fault = 11,
    Wrong = 12,
    NotStored = 13,
    Unreachable = 14
  };

  /// Uses a folder that may be damaged: everything is right or a miss, and after
  /// having been published again it is there.
  static Result useAll(DiskTier &tier, bool mayFault = false) {
    for (uint64_t number = 0; number < entries; ++number) {
      absl::StatusOr<std::optional<Artifact>> found = tier.get(makeKey(number));
      if (!found.ok() && mayFault)
        continue;
      if (!found.ok())
        return Fault;
      if (*found && !isArtifact(**found, number, sizeOf(number)))
        return Wrong;
      if (!tier.put(makeKey(number), makeArtifact(number, sizeOf(number)),
                    false)
               .ok())
        return Fault;
      found = tier.get(makeKey(number));
      if (!found.ok() || !*found ||
          !isArtifact(**found, number, sizeOf(number)))
        return NotStored;
    }
    return Fine;
  }

  /// In a process of its own, since LLVM might bring it down.
  int useAllInChild() const {
    return ChildProcess([&] {
             std::unique_ptr<DiskTier> tier = open();
             return tier ? useAll(*tier) : Fault;
           })
        .wait();
  }
};

//===----------------------------------------------------------------------===//
// Damage
//===----------------------------------------------------------------------===//

TEST_F(DiskFaultsTest, DamagedBytesAreAMissAndCanBePublishedAgain) {
  for (size_t size : {1000, 100000}) {
    const CacheKey key = makeKey(size);
    std::unique_ptr<DiskTier> tier = open();
    std::unique_ptr<DiskTier> other = open();
    ASSERT_THAT(tier->put(key, makeArtifact(1, size), false), IsOk());
    unsigned damagedFiles = 0;
    for (const fs::path &file : filesIn(folder)) {
      if (file.filename() != "data.v1" &&
          file.filename().string().substr(0, 4) != "leaf")
        continue;
      // The file is sparse and large.
      std::ifstream stream(file, std::ios::binary);
      std::string text(std::min<uint64_t>(fs::file_size(file), 1 << 20), '\0');
      stream.read(text.data(), static_cast<std::streamsize>(text.size()));
      size_t place = text.find(makeBytes(1, size).substr(0, 500));
      if (place == std::string::npos)
        continue;
      flipByte(file, place + 300);
      ++damagedFiles;
    }
    ASSERT_EQ(damagedFiles, 1u);

    EXPECT_FALSE(getFrom(*tier, key));
    EXPECT_FALSE(getFrom(*other, key));
    EXPECT_EQ(tier->getStats().rejected, 1u);
    EXPECT_EQ(other->getStats().rejected, 1u);

    ASSERT_THAT(tier->put(key, makeArtifact(1, size), false), IsOk());
    for (DiskTier *reader : {tier.get(), other.get()}) {
      std::optional<Artifact> found = getFrom(*reader, key);
      EXPECT_TRUE(found && isArtifact(*found, 1, size));
      EXPECT_EQ(reader->getStats().rejected, 1u) << "once and for all";
    }
    tier.reset();
    other.reset();
    fs::remove_all(folder);
  }
}

TEST_F(DiskFaultsTest, ALostFileIsAMissAndCanBePublishedAgain) {
  std::unique_ptr<DiskTier> tier = open();
  ASSERT_THAT(tier->put(makeKey(1), makeArtifact(1, 100000), false), IsOk());
  for (const fs::path &file : filesIn(folder))
    if (file.filename().string().substr(0, 4) == "leaf")
      fs::remove(file);
  EXPECT_FALSE(getFrom(*tier, makeKey(1)));
  ASSERT_THAT(tier->put(makeKey(1), makeArtifact(1, 100000), false), IsOk());
  EXPECT_TRUE(isArtifact(*getFrom(*tier, makeKey(1)), 1, 100000));
}

TEST_F(DiskFaultsTest, FlippedBytesInAnyFileNeitherCrashNorAreServed) {
  const uint64_t seed = numberFromEnvironment("CONTEXT_POOL_TEST_SEED", 1);
  SCOPED_TRACE("CONTEXT_POOL_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  fill();
  const fs::path whole = temporary.get() / "whole";
  fs::copy(folder, whole, fs::copy_options::recursive);

  constexpr unsigned rounds = isSanitized ? 4 : 12;
  for (const fs::path &file : filesIn(whole)) {
    const uint64_t size = fs::file_size(file);
    const bool isLeaf = file.filename().string().substr(0, 4) == "leaf";
    for (unsigned round = 0; size && round < (isLeaf ? 1 : rounds); ++round) {
      fs::remove_all(folder);
      fs::copy(whole, folder, fs::copy_options::recursive);
      const fs::path victim = folder / fs::relative(file, whole);
      // Half of them where the headers are.
      const uint64_t offset =
          random() % (round % 2 ? size : std::min<uint64_t>(size, 256));
      flipByte(victim, offset, static_cast<unsigned char>(1 + random() % 255));
      const int result = useAllInChild();
      // The version is something that a flipped byte cannot reach unseen.
      EXPECT_EQ(result, Fine) << victim << " at " << offset;
    }
  }
}

TEST_F(DiskFaultsTest, TruncatedEmptyAndMissingFilesAreReplaced) {
  fill();
  const fs::path whole = temporary.get() / "whole";
  fs::copy(folder, whole, fs::copy_options::recursive);
  unsigned leaves = 0;
  for (const fs::path &file : filesIn(whole)) {
    const uint64_t size = fs::file_size(file);
    const bool isLeaf = file.filename().string().substr(0, 4) == "leaf";
    // They are alike.
    if (isLeaf && ++leaves > (isSanitized ? 2 : entries))
      continue;
    for (int kind = 0; kind < (isLeaf ? 1 : 4); ++kind) {
      fs::remove_all(folder);
      fs::copy(whole, folder, fs::copy_options::recursive);
      const fs::path victim = folder / fs::relative(file, whole);
      switch (kind) {
      case 0:
        fs::resize_file(victim, size / 2);
        break;
      case 1:
        fs::resize_file(victim, 0);
        break;
      case 2:
        fs::remove(victim);
        break;
      case 3: // Something else in its place, for all but what is only locked.
        if (!size)
          continue;
        if (victim.filename() == "generations" || victim.filename() == "seal" ||
            victim.filename() == "boot")
          continue;
        fs::remove(victim);
        fs::create_directory(victim);
        break;
      }
      EXPECT_EQ(useAllInChild(), Fine) << victim << ", kind " << kind;
    }
  }
}

TEST_F(DiskFaultsTest, FilesThatDoNotBelongThereChangeNothing) {
  fill();
  std::ofstream(folder / "junk") << "junk";
  std::ofstream(folder / "gen.77") << "a file named like a folder";
  std::ofstream(folder / "generations.new") << "left by a killed process";
  fs::create_directories(folder / "gen.78" / "cas");
  fs::create_directories(folder / "gen.old");
  fs::create_symlink("/nowhere", folder / "gen.79");
  fs::create_symlink("/nowhere", folder / "dangling");
  const fs::path store = folder / "gen.1" / "cas" / "v1.1";
  std::ofstream(store / "leaf.1.v1") << "";
  std::ofstream(store / "leaf.2.v1.abcdef") << "left by a killed process";
  fs::create_directory(store / "leaf.3.v1");
  fs::last_write_time(folder / "junk",
                      fs::file_time_type::clock::now() + std::chrono::hours(9));
  fs::create_directory(folder / "locks");
  fs::create_directory(folder / "locks" / "junk");
  std::ofstream(folder / "locks" / "mine") << "of somebody else";

  {
    std::unique_ptr<DiskTier> tier = open();
    EXPECT_TRUE(getFrom(*tier, makeKey(1)));
    EXPECT_EQ(useAll(*tier), Fine);
    EXPECT_THAT(tier->collectGarbage(), IsOk());
    EXPECT_THAT(tier->clear(), IsOk());
    EXPECT_FALSE(getFrom(*tier, makeKey(1)));
    EXPECT_EQ(useAll(*tier), Fine);
  }
  EXPECT_THAT(open()->collectGarbage(), IsOk());
  EXPECT_TRUE(fs::exists(folder / "junk"));
  EXPECT_TRUE(fs::exists(folder / "locks" / "mine"));
  EXPECT_FALSE(fs::exists(folder / "gen.1"));
  EXPECT_FALSE(fs::exists(folder / "gen.77"));
  EXPECT_FALSE(fs::exists(folder / "gen.78"));
}

//===----------------------------------------------------------------------===//
// An unclean stop of the machine
//===----------------------------------------------------------------------===//

/// Leaves a store that was open when the machine stopped.
void pretendCrash(const fs::path &folder) {
  fs::remove(folder / "gen.1" / "seal");
  std::ofstream(folder / "gen.1" / "boot") << withCheck("another\n");
}

TEST_F(DiskFaultsTest, AStoreThatWasOpenWhenTheMachineStoppedIsValidated) {
  fill();
  pretendCrash(folder);
  EXPECT_TRUE(getFrom(*open(), makeKey(1))) << "it was whole";

  pretendCrash(folder);
  flipByte(folder / "gen.1" / "cas" / "v1.1" / "index.v1", 500);
  flipByte(folder / "gen.1" / "cas" / "v1.1" / "actions.v1", 40);
  flipByte(folder / "gen.1" / "cas" / "v1.1" / "data.v1", 5000);
  EXPECT_EQ(useAllInChild(), Fine);
  EXPECT_FALSE(fs::exists(folder / "gen.1")) << "it was not";
}

TEST_F(DiskFaultsTest, AStoreThatCannotBeValidatedInTimeIsReplaced) {
  fill();
  pretendCrash(folder);
  DiskTierOptions options = getOptions();
  options.validationWait = absl::ZeroDuration();
  std::unique_ptr<DiskTier> tier = open(options);
  EXPECT_FALSE(getFrom(*tier, makeKey(1)));
  EXPECT_EQ(useAll(*tier), Fine);
}

TEST_F(DiskFaultsTest, WhileAStoreIsValidatedOnlyTheFirstCallWaits) {
  fill();
  pretendCrash(folder);
  // LLVM waits for that lock.
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      lock, FileLock::open(folder / "gen.1" / "cas" / "v1.validation"));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(locked, lock.tryLock(FileLock::Exclusive));
  ASSERT_TRUE(locked);
  DiskTierOptions options = getOptions();
  options.lockWait = absl::Milliseconds(100);
  options.validationWait = absl::Hours(1);
  std::unique_ptr<DiskTier> tier = open(options);

  constexpr unsigned calls = 1000;
  const auto begin = std::chrono::steady_clock::now();
  for (unsigned call = 0; call < calls; ++call) {
    EXPECT_THAT(tier->get(makeKey(1)),
                StatusIs(absl::StatusCode::kDeadlineExceeded, "takes long"));
    EXPECT_THAT(tier->claim(makeKey(1), absl::InfiniteDuration()),
                StatusIs(absl::StatusCode::kDeadlineExceeded, "takes long"));
  }
  EXPECT_LT(absl::FromChrono(std::chrono::steady_clock::now() - begin),
            calls * options.lockWait);

  lock = *FileLock::open(folder / "gen.1" / "cas" / "v1.validation");
  EXPECT_TRUE(eventually([&] { return tier->get(makeKey(1)).ok(); }));
  EXPECT_TRUE(getFrom(*tier, makeKey(1)));
}

TEST_F(DiskFaultsTest, AStoreThatAKilledProcessHadOpenIsTakenAsItIs) {
  fill();
  ChildProcess killed([&] {
    std::unique_ptr<DiskTier> tier = open();
    if (!tier->put(makeKey(100), makeArtifact(100, 10), false).ok())
      return Fault;
    raise(SIGKILL);
    return Fine;
  });
  ASSERT_EQ(killed.wait(), -SIGKILL);
  DiskTierOptions options = getOptions();
  options.validationWait = absl::ZeroDuration();
  std::unique_ptr<DiskTier> tier = open(options);
  EXPECT_TRUE(getFrom(*tier, makeKey(1)));
  EXPECT_TRUE(getFrom(*tier, makeKey(100)));
}

//===----------------------------------------------------------------------===//
// Folders
//===----------------------------------------------------------------------===//

TEST_F(DiskFaultsTest, FolderIsMadeForTheUserAlone) {
  DiskTierOptions options = getOptions();
  options.directory = (folder / "a" / "b").string();
  const mode_t before = umask(0);
  EXPECT_FALSE(getFrom(*open(options), makeKey(1)));
  umask(before);
  for (const fs::path &path : {folder, folder / "a", folder / "a" / "b"}) {
    struct stat status;
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700u) << path;
  }
}

TEST_F(DiskFaultsTest, AFolderThatOthersCanWriteToIsRefusedUnlessAllowed) {
  fs::create_directory(folder);
  for (mode_t mode : {0770, 0707, 0777}) {
    ASSERT_EQ(chmod(folder.c_str(), mode), 0);
    EXPECT_THAT(DiskTier::create(getOptions()),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "can be written to by others"));
  }
  DiskTierOptions options = getOptions();
  options.allowForeignDirectory = true;
  EXPECT_EQ(useAll(*open(options)), Fine);
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  EXPECT_EQ(useAll(*open()), Fine);

  // It may become so later.
  std::unique_ptr<DiskTier> tier = open();
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  EXPECT_THAT(tier->get(makeKey(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition, "others"));
}

TEST_F(DiskFaultsTest, AFolderOrLinkOfSomebodyElseIsRefused) {
  if (geteuid() != 0)
    GTEST_SKIP() << "only root can give files away";
  fs::create_directory(folder);
  ASSERT_EQ(chown(folder.c_str(), 65534, 65534), 0);
  EXPECT_THAT(
      DiskTier::create(getOptions()),
      StatusIs(absl::StatusCode::kFailedPrecondition, "belongs to user 65534"));

  // A link of somebody else to a folder of ours.
  fs::remove_all(folder);
  const fs::path ours = temporary.get() / "ours";
  fs::create_directory(ours);
  ASSERT_EQ(chmod(ours.c_str(), 0700), 0);
  fs::create_symlink(ours, folder);
  EXPECT_EQ(useAll(*open()), Fine) << "our own link";
  ASSERT_EQ(lchown(folder.c_str(), 65534, 65534), 0);
  EXPECT_THAT(
      DiskTier::create(getOptions()),
      StatusIs(absl::StatusCode::kFailedPrecondition, "its link to 65534"));
}

TEST_F(DiskFaultsTest, AFolderWithNamesOfACacheThatIsNoneIsLeftAlone) {
  for (const char *name : {"gen.1/results", "locks"}) {
    fs::remove_all(folder);
    fs::create_directories(folder / name);
    fs::permissions(folder, fs::perms::owner_all);
    std::ofstream(folder / name / "mine") << "precious";
    const auto before = treeOf(folder);

    std::unique_ptr<DiskTier> tier = open();
    EXPECT_THAT(tier->get(makeKey(1)),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         "no valid file 'generations'"));
    EXPECT_FALSE(tier->put(makeKey(1), makeArtifact(1, 10), false).ok());
    EXPECT_FALSE(tier->clear().ok());
    EXPECT_THAT(tier->collectGarbage(), IsOk());
    EXPECT_EQ(treeOf(folder), before);

    fs::remove_all(folder / *fs::path(name).begin());
    EXPECT_TRUE(eventually([&] { return tier->get(makeKey(1)).ok(); }));
    EXPECT_EQ(useAll(*tier), Fine);
  }
}

/// Whether nobody uses or changes the folder, which is somebody else's.
void expectLeftAlone(const DiskTierOptions &options, const fs::path &folder) {
  fs::permissions(folder, fs::perms::owner_all);
  const auto before = treeOf(folder);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, DiskTier::create(options));
  EXPECT_THAT(tier->get(makeKey(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "which is none of a cache's"));
  EXPECT_FALSE(tier->put(makeKey(1), makeArtifact(1, 10), false).ok());
  EXPECT_FALSE(tier->clear().ok());
  EXPECT_EQ(tier->collectGarbage().ok(), !options.readOnly);
  EXPECT_EQ(treeOf(folder), before);
}

TEST_F(DiskFaultsTest, AForeignTextNamedAsTheListOfACacheIsLeftAlone) {
  fs::create_directory(folder);
  std::ofstream(folder / "generations") << "Generation list of my family";
  expectLeftAlone(getOptions(), folder);

  fs::create_directories(folder / "gen.1");
  fs::create_directories(folder / "gen.7");
  std::ofstream(folder / "gen.1" / "data") << "precious";
  expectLeftAlone(getOptions(), folder);
  DiskTierOptions options = getOptions();
  options.readOnly = true;
  expectLeftAlone(options, folder);
}

TEST_F(DiskFaultsTest, AForeignFileNamedAsTheLockOfACacheMakesNoCache) {
  fs::create_directories(folder / "gen.1");
  std::ofstream(folder / "gen.1" / "data") << "precious";
  std::ofstream(folder / "door") << "of somebody else";
  expectLeftAlone(getOptions(), folder);
}

TEST_F(DiskFaultsTest, ACacheThatLostItsListIsLeftAloneWithAForeignFolder) {
  fill();
  fs::create_directory(folder / "gen.7");
  std::ofstream(folder / "gen.7" / "data") << "precious";
  fs::remove(folder / "generations");
  expectLeftAlone(getOptions(), folder);
  fs::remove(folder / "gen.7" / "data");
  EXPECT_EQ(useAll(*open()), Fine);
}

TEST_F(DiskFaultsTest, ACacheThatLostItsListAndItsStoresGoesOn) {
  fill();
  fs::create_directory(folder / "locks");
  fs::remove(folder / "generations");
  fs::remove_all(folder / "gen.1");
  EXPECT_EQ(useAll(*open()), Fine);
}

TEST_F(DiskFaultsTest, FoldersThatAreOnlyNamedLikeStoresAreNotDeleted) {
  const fs::path precious = temporary.get() / "precious";
  fill();
  fs::create_directory(folder / "gen.7");
  std::ofstream(folder / "gen.7" / "data") << "precious";
  fs::create_directory(precious);
  std::ofstream(precious / "users") << "precious";
  fs::create_directory_symlink(precious, folder / "gen.8");
  fs::create_directory(folder / "gen.9");

  std::unique_ptr<DiskTier> tier = open();
  EXPECT_THAT(tier->clear(), IsOk());
  EXPECT_THAT(tier->collectGarbage(), IsOk());
  EXPECT_EQ(useAll(*tier), Fine);
  EXPECT_EQ(readFile(folder / "gen.7" / "data"), "precious");
  EXPECT_EQ(readFile(precious / "users"), "precious");
  for (const char *name : {"gen.1", "gen.8", "gen.9"})
    EXPECT_FALSE(fs::exists(folder / name)) << name;
}

TEST_F(DiskFaultsTest, WhoWasKilledBeforeTheFirstStoreLeavesACache) {
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  std::ofstream(folder / "generations")
      << withCheck("scheme 1\ncurrent 0\nprevious 0\n");
  fs::create_directory(folder / "gen.1");
  EXPECT_EQ(useAll(*open()), Fine);
}

TEST_F(DiskFaultsTest, WhatCouldNotBeClearedIsNotServedAndClearedLater) {
  fill();
  std::unique_ptr<DiskTier> tier = open();
  EXPECT_TRUE(getFrom(*tier, makeKey(1)));
  // What the list of stores is written to.
  fs::create_directory(folder / "generations.new");
  EXPECT_FALSE(tier->clear().ok());
  for (unsigned round = 0; round < 20; ++round)
    EXPECT_FALSE(tier->get(makeKey(1)).ok());
  EXPECT_FALSE(tier->put(makeKey(2), makeArtifact(2, 10), false).ok());

  fs::remove(folder / "generations.new");
  EXPECT_TRUE(eventually([&] { return tier->get(makeKey(1)).ok(); }));
  EXPECT_FALSE(getFrom(*tier, makeKey(1)));
  EXPECT_FALSE(getFrom(*open(), makeKey(1)));
  EXPECT_EQ(useAll(*tier), Fine);
}

//===----------------------------------------------------------------------===//
// Only read
//===----------------------------------------------------------------------===//

/// Without the notes of whether a store was closed, which change with its use.
std::map<fs::path, std::string> treeWithoutNotes(const fs::path &folder) {
  std::map<fs::path, std::string> tree = treeOf(folder);
  for (auto entry = tree.begin(); entry != tree.end();)
    if (entry->first.filename() == "seal" || entry->first.filename() == "boot")
      entry = tree.erase(entry);
    else
      ++entry;
  return tree;
}

TEST_F(DiskFaultsTest, WhoOnlyReadsMakesNothingAndSeesWhatOthersMake) {
  DiskTierOptions options = getOptions();
  options.readOnly = true;
  std::unique_ptr<DiskTier> reader = open(options);
  EXPECT_FALSE(getFrom(*reader, makeKey(1)));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      claim, reader->claim(makeKey(1), absl::InfiniteDuration()));
  EXPECT_FALSE(claim);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(listed, reader->list());
  EXPECT_TRUE(listed.empty());
  EXPECT_EQ(reader->getStats().entries, 0u);
  for (const absl::Status &status :
       {reader->put(makeKey(1), makeArtifact(1, 1), false), reader->clear(),
        reader->collectGarbage()})
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 "is only read"));
  EXPECT_FALSE(fs::exists(folder));

  fill();
  EXPECT_TRUE(getFrom(*reader, makeKey(1)));
  // A new store that nobody has used yet.
  CacheDirectory directory({folder.string()});
  ASSERT_THAT(directory.startGeneration(/*keepCurrent=*/false, std::nullopt,
                                        [] { return false; }),
              IsOk());
  EXPECT_FALSE(getFrom(*reader, makeKey(1)));
  fill();
  EXPECT_TRUE(getFrom(*reader, makeKey(1)));
}

TEST_F(DiskFaultsTest, WhoOnlyReadsLeavesTheFolderAsItIs) {
  fill();
  fs::create_directories(folder / "gen.0" / "cas");
  fs::create_directory(folder / "locks");
  std::ofstream(folder / "locks" / makeKey(1).digest.toHex()) << "";
  const auto before = treeWithoutNotes(folder);
  DiskTierOptions options = getOptions();
  options.readOnly = true;
  {
    std::unique_ptr<DiskTier> reader = open(options);
    for (uint64_t number = 0; number < entries; ++number)
      EXPECT_TRUE(getFrom(*reader, makeKey(number)));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(verified, reader->verify());
    EXPECT_EQ(verified.entries, entries);
  }
  EXPECT_EQ(treeWithoutNotes(folder), before);

  // The next one who opens the store believes it without a validation.
  options = getOptions();
  options.validationWait = absl::ZeroDuration();
  EXPECT_TRUE(getFrom(*open(options), makeKey(1)));
}

TEST_F(DiskFaultsTest, WhoOnlyReadsLeavesADamagedStoreToOthers) {
  fill();
  pretendCrash(folder);
  for (const char *file : {"index.v1", "actions.v1", "data.v1"})
    flipByte(folder / "gen.1" / "cas" / "v1.1" / file, 40);
  const auto before = treeOf(folder);
  DiskTierOptions options = getOptions();
  options.readOnly = true;
  std::unique_ptr<DiskTier> reader = open(options);
  EXPECT_FALSE(getFrom(*reader, makeKey(1)));
  auto after = treeOf(folder);
  after.erase(folder / "gen.1" / "cas" / "v1.validation"); // LLVM's
  EXPECT_EQ(after, before);

  EXPECT_EQ(useAllInChild(), Fine);
  EXPECT_TRUE(getFrom(*reader, makeKey(1)));
}

TEST_F(DiskFaultsTest, WhoOnlyReadsNeedsNoLockThatNobodyHasMade) {
  fill();
  fs::remove(folder / "door");
  const auto before = treeWithoutNotes(folder);
  DiskTierOptions options = getOptions();
  options.readOnly = true;
  {
    std::unique_ptr<DiskTier> reader = open(options);
    EXPECT_TRUE(getFrom(*reader, makeKey(1)));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(verified, reader->verify());
    EXPECT_EQ(verified.entries, entries);
  }
  EXPECT_EQ(treeWithoutNotes(folder), before);
}

TEST_F(DiskFaultsTest, WhoOnlyReadsTakesAListAloneForAnEmptyCache) {
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  std::ofstream(folder / "generations")
      << withCheck("scheme 1\ncurrent 0\nprevious 0\n");
  const auto before = treeOf(folder);
  DiskTierOptions options = getOptions();
  options.readOnly = true;
  std::unique_ptr<DiskTier> reader = open(options);
  EXPECT_FALSE(getFrom(*reader, makeKey(1)));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(listed, reader->list());
  EXPECT_TRUE(listed.empty());
  EXPECT_EQ(treeOf(folder), before);
  fill();
  EXPECT_TRUE(getFrom(*reader, makeKey(1)));
}

TEST_F(DiskFaultsTest, LinksInTheFolderAreNotFollowed) {
  fill();
  const fs::path precious = temporary.get() / "precious";
  std::ofstream(precious) << "precious";
  fs::remove(folder / "door");
  fs::create_symlink(precious, folder / "door");
  std::unique_ptr<DiskTier> tier = open();
  EXPECT_FALSE(tier->get(makeKey(1)).ok());
  fs::remove(folder / "door");
  fs::create_symlink(precious, folder / "generations.new");
  EXPECT_TRUE(eventually([&] { return tier->get(makeKey(1)).ok(); }));
  EXPECT_FALSE(tier->clear().ok());
  EXPECT_EQ(readFile(precious), "precious");
}

TEST_F(DiskFaultsTest, WhereThePathIsAFileOrHasNoParentEachCallIsAFault) {
  std::ofstream(folder) << "a file";
  EXPECT_THAT(open()->get(makeKey(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition, "not a folder"));
  DiskTierOptions options = getOptions();
  options.directory = (folder / "below").string();
  std::unique_ptr<DiskTier> tier = open(options);
  EXPECT_FALSE(tier->get(makeKey(1)).ok());
  EXPECT_FALSE(tier->put(makeKey(1), makeArtifact(1, 1), false).ok());
  EXPECT_FALSE(tier->clear().ok());
  EXPECT_FALSE(tier->claim(makeKey(1), absl::InfiniteDuration()).ok());
  EXPECT_EQ(tier->getStats().entries, 0u);

  fs::remove(folder);
  EXPECT_TRUE(eventually([&] { return tier->get(makeKey(1)).ok(); }));
  EXPECT_EQ(useAll(*tier), Fine);
}

TEST_F(DiskFaultsTest, AFolderThatIsRemovedWhileInUseIsMadeAgain) {
  std::unique_ptr<DiskTier> tier = open();
  EXPECT_EQ(useAll(*tier), Fine);
  std::optional<Artifact> held = getFrom(*tier, makeKey(0));
  for (unsigned round = 0; round < 3; ++round) {
    fs::remove_all(folder);
    EXPECT_FALSE(getFrom(*tier, makeKey(0)));
    EXPECT_EQ(useAll(*tier), Fine);
  }
  EXPECT_TRUE(isArtifact(*held, 0, sizeOf(0)));
}

TEST_F(DiskFaultsTest, AFolderThatIsMovedWhileInUseIsMadeAgain) {
  std::unique_ptr<DiskTier> tier = open();
  EXPECT_EQ(useAll(*tier), Fine);
  std::optional<Artifact> held = getFrom(*tier, makeKey(0));
  fs::rename(folder, temporary.get() / "elsewhere");

  EXPECT_FALSE(getFrom(*tier, makeKey(0)));
  EXPECT_EQ(useAll(*tier), Fine);

  EXPECT_TRUE(isArtifact(*held, 0, sizeOf(0)));
  EXPECT_TRUE(getFrom(*open(), makeKey(0))) << "another process";
}

TEST_F(DiskFaultsTest, AFolderThatTakesItsPlaceIsUsedFromThenOn) {
  std::unique_ptr<DiskTier> tier = open();
  ASSERT_THAT(tier->put(makeKey(1), makeArtifact(1, 10), false), IsOk());
  fs::rename(folder, temporary.get() / "elsewhere");
  std::unique_ptr<DiskTier> other = open();
  ASSERT_THAT(other->put(makeKey(2), makeArtifact(2, 10), false), IsOk());

  EXPECT_FALSE(getFrom(*tier, makeKey(1)));
  EXPECT_TRUE(getFrom(*tier, makeKey(2)));
}

TEST_F(DiskFaultsTest, AStoreThatIsRemovedWhileInUseIsMadeAgain) {
  std::unique_ptr<DiskTier> tier = open();
  EXPECT_EQ(useAll(*tier), Fine);
  fs::remove_all(folder / "gen.1");

  EXPECT_FALSE(getFrom(*tier, makeKey(0)));
  EXPECT_EQ(useAll(*tier), Fine);

  EXPECT_TRUE(getFrom(*open(), makeKey(0))) << "another process";
}

TEST_F(DiskFaultsTest, ARelativePathIsOfTheFolderInWhichItWasGiven) {
  EXPECT_EQ(ChildProcess([&] {
              DiskTierOptions options = getOptions();
              options.directory = "relative";
              fs::current_path(temporary.get());
              std::unique_ptr<DiskTier> tier = open(options);
              fs::current_path("/");
              return tier ? useAll(*tier) : Fault;
            }).wait(),
            Fine);
  EXPECT_TRUE(fs::exists(temporary.get() / "relative" / "generations"));
}

TEST_F(DiskFaultsTest, WithoutRightsEachCallIsAFaultUntilThereAreSome) {
  fill();
  // Rights do not bind root.
  ChildProcess user([&] {
    if (geteuid() == 0) {
      for (const fs::path &file : {folder.parent_path(), folder})
        if (chown(file.c_str(), 65534, 65534))
          return Fault;
      for (const auto &entry : fs::recursive_directory_iterator(folder))
        if (chown(entry.path().c_str(), 65534, 65534))
          return Fault;
      if (setgid(65534) || setuid(65534))
        return Fault;
      if (access(folder.c_str(), X_OK))
        return Unreachable;
    }
    for (mode_t mode : {0555, 0000}) {
      // What is in the folder can still be written to: a store has to be made.
      fs::remove_all(folder / "gen.1");
      fs::remove_all(folder / "gen.2");
      chmod(folder.c_str(), mode);
      std::unique_ptr<DiskTier> tier = open();
      if (!tier || useAll(*tier, /*mayFault=*/true) != Fine ||
          tier->get(makeKey(1)).ok())
        return Wrong;
      chmod(folder.c_str(), 0700);
      if (!eventually([&] { return tier->get(makeKey(1)).ok(); }))
        return Fault;
      if (useAll(*tier) != Fine)
        return NotStored;
    }
    return Fine;
  });
  const int result = user.wait();
  if (result == Unreachable)
    GTEST_SKIP() << "others cannot reach the temporary folder";
  EXPECT_EQ(result, Fine);
}

TEST_F(DiskFaultsTest, AFolderOfAnotherVersionIsLeftAloneUntilCleared) {
  fill();
  // Written by a later version, and whole.
  const std::string other = "scheme 2\nwhatever it likes\n";
  std::ofstream(folder / "generations") << withCheck(other);

  std::unique_ptr<DiskTier> tier = open();
  EXPECT_THAT(tier->get(makeKey(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "is a cache of version 2"));
  EXPECT_EQ(readFile(folder / "generations"), withCheck(other));

  EXPECT_THAT(tier->clear(), IsOk());
  EXPECT_FALSE(getFrom(*tier, makeKey(1)));
  EXPECT_EQ(useAll(*tier), Fine);
}

//===----------------------------------------------------------------------===//
// Full disks
//===----------------------------------------------------------------------===//

/// A disk of some size in the place of a folder, for a scope.
class SmallDisk {
public:
  SmallDisk(fs::path theFolder, llvm::StringRef size)
      : folder(std::move(theFolder)) {
    fs::create_directory(folder);
    std::string options = ("mode=0700,size=" + size).str();
    if (mount("tmpfs", folder.c_str(), "tmpfs", 0, options.c_str()))
      error = errno;
  }
  ~SmallDisk() {
    if (isMounted())
      EXPECT_EQ(umount(folder.c_str()), 0) << std::strerror(errno);
  }
  SmallDisk(const SmallDisk &) = delete;
  SmallDisk &operator=(const SmallDisk &) = delete;

  bool isMounted() const { return error == 0; }
  const char *getError() const { return std::strerror(error); }

private:
  const fs::path folder;
  int error = 0;
};

TEST_F(DiskFaultsTest, AFullDiskCostsWritesAndNothingElse) {
  SmallDisk disk(folder, "64m");
  if (!disk.isMounted())
    GTEST_SKIP() << "mounting is not allowed: " << disk.getError();
  const fs::path ballast = folder / "ballast";
  int result =
      ChildProcess([&] {
        std::unique_ptr<DiskTier> tier = open();
        uint64_t stored = 0;
        absl::Status status;
        for (; status.ok() && stored < 5000; ++stored)
          status = tier->put(makeKey(stored),
                             makeArtifact(stored, sizeOf(stored)), false);
        if (!absl::IsResourceExhausted(status))
          return Fault;
        --stored;
        // To the last byte.
        std::ofstream stream(ballast, std::ios::binary);
        const std::string block(4096, 'x');
        while (stream.write(block.data(),
                            static_cast<std::streamsize>(block.size())) &&
               stream.flush()) {
        }
        stream.close();
        struct statvfs left;
        if (statvfs(folder.c_str(), &left) || left.f_bavail > 1)
          return Fault;

        for (uint64_t number = 0; number < stored; ++number) {
          absl::StatusOr<std::optional<Artifact>> found =
              tier->get(makeKey(number));
          if (!found.ok() || !*found ||
              !isArtifact(**found, number, sizeOf(number)))
            return Wrong;
          if (!absl::IsResourceExhausted(tier->put(
                  makeKey(number + 100000), makeArtifact(number, 10), false)))
            return Fault;
        }
        // Another process, and a store that has to be made.
        int other = ChildProcess([&] {
                      std::unique_ptr<DiskTier> late = open();
                      absl::StatusOr<std::optional<Artifact>> found =
                          late->get(makeKey(1));
                      return found.ok() && *found ? Fine : Wrong;
                    }).wait();
        if (other != Fine)
          return Wrong;

        fs::remove(ballast);
        if (!tier->clear().ok())
          return Fault;
        return useAll(*tier);
      }).wait();
  EXPECT_EQ(result, Fine);
}

TEST_F(DiskFaultsTest, ADiskWithoutRoomForAStoreIsAFault) {
  SmallDisk disk(folder, "1m");
  if (!disk.isMounted())
    GTEST_SKIP() << "mounting is not allowed: " << disk.getError();
  std::unique_ptr<DiskTier> tier = open();
  EXPECT_THAT(tier->get(makeKey(1)),
              StatusIs(absl::StatusCode::kResourceExhausted, "bytes left"));
  ASSERT_EQ(mount("tmpfs", folder.c_str(), "tmpfs", MS_REMOUNT, "size=64m"), 0);
  EXPECT_TRUE(eventually([&] { return tier->get(makeKey(1)).ok(); }));
  EXPECT_EQ(useAll(*tier), Fine);
}

TEST_F(DiskFaultsTest, AReadOnlyDiskIsAFaultUntilItIsWritable) {
  SmallDisk disk(folder, "64m");
  if (!disk.isMounted())
    GTEST_SKIP() << "mounting is not allowed: " << disk.getError();
  fill();
  ASSERT_EQ(mount("tmpfs", folder.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, ""),
            0);
  std::unique_ptr<DiskTier> tier = open();
  EXPECT_FALSE(tier->get(makeKey(1)).ok());
  EXPECT_FALSE(tier->put(makeKey(1), makeArtifact(1, 1), false).ok());
  ASSERT_EQ(mount("tmpfs", folder.c_str(), "tmpfs", MS_REMOUNT, ""), 0);
  EXPECT_TRUE(eventually([&] { return tier->get(makeKey(1)).ok(); }));
  EXPECT_TRUE(getFrom(*tier, makeKey(1)));
}

TEST_F(DiskFaultsTest, ALimitOnFileSizesIsAFault) {
  int result =
      ChildProcess([&] {
        rlimit limit = {1 << 20, 1 << 20};
        if (setrlimit(RLIMIT_FSIZE, &limit))
          return Fault;
        std::unique_ptr<DiskTier> tier = open();
        return absl::IsFailedPrecondition(tier->get(makeKey(1)).status())
                   ? Fine
                   : Wrong;
      }).wait();
  EXPECT_EQ(result, Fine);
}

} // namespace

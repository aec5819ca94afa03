//===- DiskProcessesTest.cpp - Processes that share a folder --------------===//
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
#include "test/support/TestFiles.h"

#include <csignal>
#include <deque>
#include <fcntl.h>
#include <fstream>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

using namespace ctxpool;
using namespace ctxpool::detail;
using namespace ctxpool::test;

namespace fs = std::filesystem;

namespace {

using DiskProcessesTest = DiskTest;

/// A number that processes count up together.
class SharedCounter {
public:
  SharedCounter()
      : memory(mmap(nullptr, sizeof(Value), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(memory, MAP_FAILED);
    new (memory) Value(0);
  }
  ~SharedCounter() { munmap(memory, sizeof(Value)); }
  SharedCounter(const SharedCounter &) = delete;
  SharedCounter &operator=(const SharedCounter &) = delete;

  std::atomic<uint64_t> &operator*() const {
    return *static_cast<std::atomic<uint64_t> *>(memory);
  }

private:
  using Value = std::atomic<uint64_t>;
  void *memory;
};

/// Results of children.
constexpr int fine = 0, noTier = 11, wrongBytes = 12, fault = 13, missing = 14;

size_t sizeOf(uint64_t number) { return number % 7 * 20000 + number % 100; }

TEST_F(DiskProcessesTest, KilledAtAnyPointTheyLeaveNothingThatIsNotWhole) {
  const uint64_t seed = numberFromEnvironment("CONTEXT_POOL_TEST_SEED", 1);
  SCOPED_TRACE("CONTEXT_POOL_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  SharedCounter written;
  constexpr uint64_t keys = 100;

  // Each reads and writes all keys, over and over, until it is killed.
  auto work = [&](uint64_t first) {
    std::unique_ptr<DiskTier> tier = open();
    if (!tier)
      return noTier;
    for (uint64_t round = first;; ++round) {
      const uint64_t number = round % keys;
      absl::StatusOr<std::optional<Artifact>> found =
          tier->get(makeKey(number));
      if (!found.ok())
        return fault;
      if (*found && !isArtifact(**found, number, sizeOf(number)))
        return wrongBytes;
      // Now and then something else, so that there is always more to write.
      if (!tier->put(
                   makeKey(number + keys * (round / keys)),
                   makeArtifact(number + keys * (round / keys), sizeOf(number)),
                   false)
               .ok())
        return fault;
      if (round % 13 == 0 &&
          !tier->put(makeKey(number), makeArtifact(number, sizeOf(number)),
                     /*replace=*/true)
               .ok())
        return fault;
      ++*written;
    }
  };

  std::deque<ChildProcess> processes;
  for (uint64_t index = 0; *written < 500; ++index) {
    while (processes.size() < 2 + index % 7)
      processes.emplace_back([&, index] { return work(index * 17); });
    const uint64_t until = *written + random() % 20;
    ASSERT_TRUE(eventually([&] { return *written >= until; }));
    processes.front().kill(SIGKILL);
    EXPECT_EQ(processes.front().wait(), -SIGKILL);
    processes.pop_front();
  }
  for (ChildProcess &process : processes) {
    process.kill(SIGKILL);
    EXPECT_EQ(process.wait(), -SIGKILL);
  }

  std::unique_ptr<DiskTier> tier = open();
  for (uint64_t number = 0; number < keys; ++number) {
    std::optional<Artifact> found = getFrom(*tier, makeKey(number));
    EXPECT_TRUE(!found || isArtifact(*found, number, sizeOf(number)));
    EXPECT_THAT(
        tier->put(makeKey(number), makeArtifact(number, sizeOf(number)), false),
        IsOk());
    found = getFrom(*tier, makeKey(number));
    EXPECT_TRUE(found && isArtifact(*found, number, sizeOf(number)));
  }
  EXPECT_EQ(tier->getStats().rejected, 0u);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(verified, tier->verify());
  EXPECT_TRUE(verified.damaged.empty());
}

TEST_F(DiskProcessesTest, OfDifferentResultsForAKeyOneIsSeenWhole) {
  auto work = [&](bool replace) {
    const uint64_t self = static_cast<uint64_t>(getpid());
    std::unique_ptr<DiskTier> tier = open();
    if (!tier)
      return noTier;
    for (uint64_t round = 0; round < 100; ++round) {
      const size_t size = round % 2 ? 500 : 70000;
      // The bytes, the kind, the meaning and the cost all say who wrote them.
      absl::Status put = tier->put(makeKey(round), makeArtifact(self, size),
                                   replace && round % 10 == 0);
      if (!put.ok())
        return fault;
      absl::StatusOr<std::optional<Artifact>> found = tier->get(makeKey(round));
      if (!found.ok())
        return fault;
      if (!*found)
        return missing;
      const uint64_t writer =
          std::stoull((*found)
                          ->getBytes()
                          .take_until([](char c) { return c == ':'; })
                          .str());
      if (!isArtifact(**found, writer, size))
        return wrongBytes;
    }
    return fine;
  };
  for (bool replace : {false, true}) {
    std::deque<ChildProcess> processes;
    for (unsigned index = 0; index < 4; ++index)
      processes.emplace_back([&] { return work(replace); });
    for (ChildProcess &process : processes)
      EXPECT_EQ(process.wait(), fine);
  }
  EXPECT_EQ(open()->getStats().rejected, 0u);
}

TEST_F(DiskProcessesTest, RotationOfOneDoesNotDisturbTheOthers) {
  DiskTierOptions options = getOptions();
  options.directoryBytes = 8 << 20;
  auto work = [&](uint64_t index) {
    std::unique_ptr<DiskTier> tier = open(options);
    if (!tier)
      return noTier;
    std::deque<Artifact> held;
    for (uint64_t round = 0; round < 150; ++round) {
      const uint64_t number = index * 1000 + round;
      if (!tier->put(makeKey(number), makeArtifact(number, 100000), false).ok())
        return fault;
      absl::StatusOr<std::optional<Artifact>> found =
          tier->get(makeKey(number));
      if (!found.ok())
        return fault;
      if (!*found)
        continue;
      held.push_back(**found);
      if (held.size() > 5)
        held.pop_front();
      for (size_t back = 0; back < held.size(); ++back)
        if (!isArtifact(
                held[held.size() - 1 - back],
                std::stoull(held[held.size() - 1 - back]
                                .getBytes()
                                .take_until([](char c) { return c == ':'; })
                                .str()),
                100000))
          return wrongBytes;
    }
    return fine;
  };
  std::deque<ChildProcess> processes;
  for (uint64_t index = 0; index < 3; ++index)
    processes.emplace_back([&, index] { return work(index); });
  for (ChildProcess &process : processes)
    EXPECT_EQ(process.wait(), fine);
}

//===----------------------------------------------------------------------===//
// One compile per key
//===----------------------------------------------------------------------===//

TEST_F(DiskProcessesTest, AKeyIsCompiledByOneProcess) {
  SharedCounter compiles;
  constexpr uint64_t keys = 40;
  auto work = [&]() {
    std::unique_ptr<DiskTier> tier = open();
    if (!tier)
      return noTier;
    for (uint64_t number = 0; number < keys; ++number) {
      const CacheKey key = makeKey(number);
      absl::StatusOr<std::optional<Artifact>> found = tier->get(key);
      if (!found.ok())
        return fault;
      if (*found)
        continue;
      absl::StatusOr<std::unique_ptr<CompileClaim>> claim =
          tier->claim(key, absl::InfiniteDuration());
      if (!claim.ok())
        return fault;
      if (*claim) {
        ++*compiles;
        if (!tier->put(key, makeArtifact(number, 1000), false).ok())
          return fault;
        continue;
      }
      found = tier->get(key);
      if (!found.ok() || !*found || !isArtifact(**found, number, 1000))
        return missing;
    }
    return fine;
  };
  {
    std::deque<ChildProcess> processes;
    for (unsigned index = 0; index < 6; ++index)
      processes.emplace_back(work);
    for (ChildProcess &process : processes)
      EXPECT_EQ(process.wait(), fine);
  }
  EXPECT_EQ(*compiles, keys);
  EXPECT_TRUE(fs::is_empty(folder / "locks")) << "lock files pile up";
}

TEST_F(DiskProcessesTest, ARightToCompileEndsWithItsProcess) {
  Signal claimed;
  ChildProcess holder([&] {
    std::unique_ptr<DiskTier> tier = open();
    absl::StatusOr<std::unique_ptr<CompileClaim>> claim =
        tier->claim(makeKey(1), absl::InfiniteDuration());
    if (!claim.ok() || !*claim)
      return fault;
    claimed.send();
    pause();
    return fine;
  });
  ASSERT_TRUE(claimed.await());
  ChildProcess waiter([&] {
    std::unique_ptr<DiskTier> tier = open();
    claimed.send();
    absl::StatusOr<std::unique_ptr<CompileClaim>> claim =
        tier->claim(makeKey(1), absl::InfiniteDuration());
    return claim.ok() && *claim ? fine : missing;
  });
  ASSERT_TRUE(claimed.await());
  holder.kill(SIGKILL);
  EXPECT_EQ(holder.wait(), -SIGKILL);
  EXPECT_EQ(waiter.wait(), fine);
}

TEST_F(DiskProcessesTest, AWaitForAnotherProcessEndsAtItsLimit) {
  DiskTierOptions options = getOptions();
  options.crossProcessWait = absl::Milliseconds(30);
  std::unique_ptr<DiskTier> one = open(), other = open(options);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      claim, one->claim(makeKey(1), absl::InfiniteDuration()));
  ASSERT_TRUE(claim);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      none, other->claim(makeKey(1), absl::InfiniteDuration()));
  EXPECT_FALSE(none);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      different, other->claim(makeKey(2), absl::InfiniteDuration()));
  EXPECT_TRUE(different);

  claim.reset();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      now, other->claim(makeKey(1), absl::InfiniteDuration()));
  EXPECT_TRUE(now);
}

TEST_F(DiskProcessesTest, AWaitForAnotherProcessEndsAtTheLimitOfTheCall) {
  DiskTierOptions options = getOptions();
  options.crossProcessWait = absl::Hours(1);
  std::unique_ptr<DiskTier> one = open(), other = open(options);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      claim, one->claim(makeKey(1), absl::InfiniteDuration()));
  ASSERT_TRUE(claim);
  for (absl::Duration limit : {absl::Milliseconds(30), absl::ZeroDuration(),
                               -absl::InfiniteDuration()}) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(none, other->claim(makeKey(1), limit));
    EXPECT_FALSE(none);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(different, other->claim(makeKey(2), limit));
    EXPECT_TRUE(different);
  }
}

TEST_F(DiskProcessesTest, LockFilesOfTheKilledAreCollected) {
  ChildProcess killed([&] {
    std::unique_ptr<DiskTier> tier = open();
    absl::StatusOr<std::unique_ptr<CompileClaim>> claim =
        tier->claim(makeKey(1), absl::InfiniteDuration());
    raise(SIGKILL);
    return fine;
  });
  ASSERT_EQ(killed.wait(), -SIGKILL);
  ASSERT_FALSE(fs::is_empty(folder / "locks"));
  std::unique_ptr<DiskTier> tier = open();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      held, tier->claim(makeKey(2), absl::InfiniteDuration()));
  EXPECT_THAT(tier->collectGarbage(), IsOk());
  EXPECT_FALSE(fs::exists(folder / "locks" / makeKey(1).digest.toHex()));
  EXPECT_TRUE(fs::exists(folder / "locks" / makeKey(2).digest.toHex()));
}

//===----------------------------------------------------------------------===//
// Forks
//===----------------------------------------------------------------------===//

TEST_F(DiskProcessesTest, AForkedChildUsesItsOwnTierAndLeavesTheParentsAlone) {
  std::unique_ptr<DiskTier> tier = open();
  ASSERT_THAT(tier->put(makeKey(1), makeArtifact(1, 100000), false), IsOk());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      claim, tier->claim(makeKey(2), absl::InfiniteDuration()));
  std::optional<Artifact> held = getFrom(*tier, makeKey(1));
  ChildProcess child([&] {
    if (!absl::IsFailedPrecondition(tier->get(makeKey(1)).status()) ||
        !absl::IsFailedPrecondition(tier->clear()) ||
        !absl::IsFailedPrecondition(
            tier->claim(makeKey(2), absl::InfiniteDuration()).status()))
      return fault;
    if (!isArtifact(*held, 1, 100000))
      return wrongBytes;
    claim.reset();
    held.reset();
    (void)tier.release();
    DiskTierOptions options = getOptions();
    options.crossProcessWait = absl::ZeroDuration();
    std::unique_ptr<DiskTier> own = open(options);
    absl::StatusOr<std::optional<Artifact>> found = own->get(makeKey(1));
    if (!found.ok() || !*found || !isArtifact(**found, 1, 100000))
      return missing;
    absl::StatusOr<std::unique_ptr<CompileClaim>> other =
        own->claim(makeKey(2), absl::InfiniteDuration());
    return other.ok() && !*other ? fine : fault;
  });
  EXPECT_EQ(child.wait(), fine);
  EXPECT_THAT(tier->put(makeKey(3), makeArtifact(3, 1000), false), IsOk());
  for (uint64_t number : {1, 3})
    EXPECT_TRUE(getFrom(*tier, makeKey(number)));
  EXPECT_TRUE(isArtifact(*held, 1, 100000));
}

//===----------------------------------------------------------------------===//
// Stuck processes
//===----------------------------------------------------------------------===//

class StuckProcessTest : public DiskTest,
                         public testing::WithParamInterface<const char *> {};

TEST_P(StuckProcessTest, CallsGoOnAsFaultsUntilTheLockIsFree) {
  {
    std::unique_ptr<DiskTier> tier = open();
    ASSERT_THAT(tier->put(makeKey(1), makeArtifact(1, 10), false), IsOk());
  }
  Signal locked;
  ChildProcess stuck([&] {
    absl::StatusOr<FileLock> lock = FileLock::open(folder / GetParam());
    if (!lock.ok() || !*lock->tryLock(FileLock::Exclusive))
      return fault;
    locked.send();
    raise(SIGSTOP);
    return fine;
  });
  ASSERT_TRUE(locked.await());
  DiskTierOptions options = getOptions();
  options.lockWait = absl::Milliseconds(50);
  std::unique_ptr<DiskTier> tier = open(options);

  EXPECT_THAT(tier->get(makeKey(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ""));
  EXPECT_THAT(tier->put(makeKey(2), makeArtifact(2, 10), false),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ""));
  EXPECT_FALSE(tier->claim(makeKey(2), absl::InfiniteDuration()).ok());

  stuck.kill(SIGKILL);
  EXPECT_EQ(stuck.wait(), -SIGKILL);
  EXPECT_TRUE(eventually([&] { return tier->get(makeKey(1)).ok(); }));
  EXPECT_TRUE(getFrom(*tier, makeKey(1)));
  EXPECT_THAT(tier->put(makeKey(2), makeArtifact(2, 10), false), IsOk());
}

INSTANTIATE_TEST_SUITE_P(Locks, StuckProcessTest,
                         testing::Values("door", "gen.1/users",
                                         "gen.1/cas/lock",
                                         "gen.1/cas/v1.1/index.v1",
                                         "gen.1/cas/v1.1/data.v1.shared"));

} // namespace

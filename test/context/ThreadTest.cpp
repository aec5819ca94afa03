//===- ThreadTest.cpp - Thread, rule by rule ------------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/support/Thread.h"

#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"

#include "llvm/Support/PrettyStackTrace.h"

#include <atomic>
#include <limits>
#include <pthread.h>
#include <stdexcept>
#include <thread>

using namespace ctxpool;
using namespace ctxpool::test;

namespace {

TEST(ThreadTest, TheBodyRunsOnAStackOfTheStatedSize) {
  size_t stackBytes = 0;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      thread, Thread::start(Thread::compilerStackBytes, [&] {
        pthread_attr_t attributes;
        ASSERT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
        pthread_attr_getstacksize(&attributes, &stackBytes);
        pthread_attr_destroy(&attributes);
      }));
  thread.join();

  EXPECT_GE(stackBytes, Thread::compilerStackBytes);
}

TEST(ThreadTest, BelowTheStackLiesAGuardOf64KiB) {
  size_t guardBytes = 0;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      thread, Thread::start(Thread::compilerStackBytes, [&] {
        pthread_attr_t attributes;
        ASSERT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
        pthread_attr_getguardsize(&attributes, &guardBytes);
        pthread_attr_destroy(&attributes);
      }));
  thread.join();

  EXPECT_EQ(guardBytes, size_t(64) << 10);
}

TEST(ThreadTest, TheDestructorJoins) {
  std::atomic<bool> done{false};
  {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        first, Thread::start(Thread::compilerStackBytes, [&] { done = true; }));
    Thread second = std::move(first);
  }

  EXPECT_TRUE(done);
}

TEST(ThreadTest, ADetachedThreadIsNotWaitedFor) {
  auto gate = std::make_shared<PhaseGate>();
  {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        thread, Thread::start(Thread::compilerStackBytes, [gate] {
          gate->await(1);
          gate->open(2);
        }));
    thread.detach();
  }

  gate->open(1);
  gate->await(2);
}

TEST(ThreadTest, AStackThatTheSystemDoesNotHaveIsResourceExhausted) {
  EXPECT_THAT(Thread::start(size_t(1) << 60, [] {}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "starting a thread with a stack of "
                       "1152921504606846976 bytes: "));
  // With its guard it is more than a size.
  EXPECT_THAT(Thread::start(std::numeric_limits<size_t>::max(), [] {}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "starting a thread with a stack of "
                       "18446744073709551615 bytes: "));
}

//===----------------------------------------------------------------------===//
// runWithStack
//===----------------------------------------------------------------------===//

constexpr size_t KiB = 1 << 10, MiB = 1 << 20;

/// Runs `body` on a thread with that much stack.
void runOnStackOf(size_t stackBytes, const std::function<void()> &body) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(thread, Thread::start(stackBytes, body));
  thread.join();
}

/// Whether `runWithStack` stays on its caller's thread.
bool staysOnThread(uint64_t bytes) {
  std::thread::id where;
  EXPECT_THAT(
      detail::runWithStack(bytes, [&] { where = std::this_thread::get_id(); }),
      IsOk());
  return where == std::this_thread::get_id();
}

/// How much stack the calling thread has left.
size_t getStackLeft() {
  pthread_attr_t attributes;
  void *low = nullptr;
  size_t bytes = 0;
  EXPECT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
  pthread_attr_getstack(&attributes, &low, &bytes);
  pthread_attr_destroy(&attributes);
  return static_cast<char *>(__builtin_frame_address(0)) -
         static_cast<char *>(low);
}

TEST(RunWithStackTest, WhatNeedsLittleStaysOnTheThread) {
  runOnStackOf(256 * KiB, [] { EXPECT_TRUE(staysOnThread(128 * KiB)); });
}

TEST(RunWithStackTest, WhatTheThreadHasMoreThanEnoughForStaysOnIt) {
  runOnStackOf(16 * MiB, [] {
    EXPECT_TRUE(staysOnThread(7 * MiB));
    EXPECT_FALSE(staysOnThread(16 * MiB));
  });
}

TEST(RunWithStackTest, WhatTheThreadHasNoRoomForRunsOnAnother) {
  runOnStackOf(256 * KiB, [] {
    size_t left = 0;
    EXPECT_THAT(detail::runWithStack(64 * MiB, [&] { left = getStackLeft(); }),
                IsOk());
    EXPECT_GT(left, 64 * MiB);
    EXPECT_FALSE(staysOnThread(200 * KiB));
  });
}

TEST(RunWithStackTest, WhatTheThreadHasUsedOfItsStackIsNoRoom) {
  runOnStackOf(16 * MiB, [] {
    volatile char used[4 * MiB];
    used[0] = used[sizeof(used) - 1] = 1;
    EXPECT_FALSE(staysOnThread(7 * MiB));
    EXPECT_EQ(used[0], 1);
  });
}

TEST(RunWithStackTest, AStackThatTheSystemDoesNotHaveIsResourceExhausted) {
  bool ran = false;
  for (uint64_t bytes :
       {uint64_t(1) << 60, std::numeric_limits<uint64_t>::max()})
    EXPECT_THAT(detail::runWithStack(bytes, [&] { ran = true; }),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         "starting a thread with a stack of "));
  EXPECT_FALSE(ran);
}

TEST(RunWithStackTest, AnExceptionComesToTheCaller) {
  for (uint64_t bytes : {128 * KiB, 64 * MiB}) {
    std::string caught;
    try {
      (void)detail::runWithStack(
          bytes, [] { throw std::runtime_error("no such shape"); });
    } catch (const std::runtime_error &error) {
      caught = error.what();
    }
    EXPECT_EQ(caught, "no such shape");
  }
}

TEST(RunWithStackTest, WhatEndsItsThreadEndsTheCallers) {
  bool unwound = false, returned = false;
  struct Witness {
    bool &flag;
    ~Witness() { flag = true; }
  };
  runOnStackOf(256 * KiB, [&] {
    Witness witness{unwound};
    (void)detail::runWithStack(64 * MiB, [] { pthread_exit(nullptr); });
    returned = true;
  });
  EXPECT_TRUE(unwound);
  EXPECT_FALSE(returned);
}

TEST(RunWithStackTest, ThePrettyStackTraceIsTheCallers) {
  llvm::PrettyStackTraceString entry("within");
  const void *there = nullptr;
  EXPECT_THAT(detail::runWithStack(
                  64 * MiB, [&] { there = llvm::SavePrettyStackState(); }),
              IsOk());
  EXPECT_EQ(there, llvm::SavePrettyStackState());
}

} // namespace

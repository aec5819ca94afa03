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

#include <atomic>
#include <limits>
#include <pthread.h>

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

} // namespace

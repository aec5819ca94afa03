//===- RequestQueueTest.cpp - Tests of requests and their threads ---------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiled with exceptions, as users may be.
//
//===----------------------------------------------------------------------===//

#include "context_pool/compile/RequestQueue.h"

#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"

#include "llvm/Support/Compiler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <atomic>
#include <fstream>
#include <pthread.h>
#include <string>
#include <sys/resource.h>
#include <thread>

using namespace ctxpool;
using namespace ctxpool::detail;
using namespace ctxpool::test;

namespace {

using Answer = RequestQueue::Answer;
using Code = absl::StatusCode;

constexpr size_t stackBytes = size_t(64) << 20;

Answer answerOf(RequestQueue::Future future) {
  if (future.wait_for(deadline) != std::future_status::ready)
    return absl::UnknownError("no answer");
  return future.get();
}

Answer serveWell() { return Artifact::copyOf("test", "bytes"); }
Answer endThread() { pthread_exit(nullptr); }

/// The address space that the process takes, in bytes.
uint64_t getAddressSpace() {
  std::ifstream file("/proc/self/status");
  std::string word;
  uint64_t kibibytes = 0;
  while (file >> word)
    if (word == "VmSize:") {
      file >> kibibytes;
      break;
    }
  return kibibytes << 10;
}

bool isSanitized() {
#if LLVM_ADDRESS_SANITIZER_BUILD || LLVM_THREAD_SANITIZER_BUILD
  return true;
#else
  return false;
#endif
}

TEST(RequestQueueTest, StacksOfThreadsThatEndedInRequestsAreFreed) {
  if (isSanitized())
    GTEST_SKIP() << "sanitizers have address space of their own for a thread";
  RequestQueue queue(4, [](const Answer &) {});
  ASSERT_THAT(queue.start(2, stackBytes), IsOk());
  auto endThreads = [&](int count) {
    for (int i = 0; i != count; ++i)
      EXPECT_THAT(answerOf(queue.add(endThread)), StatusIs(Code::kAborted, ""));
    EXPECT_THAT(answerOf(queue.add(serveWell)), IsOk());
  };
  endThreads(4);
  uint64_t before = getAddressSpace();
  endThreads(32);

  EXPECT_LT(getAddressSpace(), before + 16 * stackBytes);
  queue.stop(RequestQueue::Waiting::Finish);
}

TEST(RequestQueueTest, AThreadThatARequestCancelledIsReplaced) {
  RequestQueue queue(4, [](const Answer &) {});
  ASSERT_THAT(queue.start(1, stackBytes), IsOk());
  for (int round = 0; round != 3; ++round) {
    // It ends as it waits for the next one.
    EXPECT_THAT(answerOf(queue.add([] {
                  pthread_cancel(pthread_self());
                  return serveWell();
                })),
                IsOk());
    EXPECT_THAT(answerOf(queue.add(serveWell)), IsOk());
  }
  queue.stop(RequestQueue::Waiting::Finish);
}

TEST(RequestQueueTest, WhereNoThreadCanBeHadRequestsAreAnsweredWithThat) {
  if (isSanitized())
    GTEST_SKIP() << "sanitizers need all of the address space";
  std::atomic<int> answers{0};
  RequestQueue queue(1, [&](const Answer &) { ++answers; });
  ASSERT_THAT(queue.start(1, stackBytes), IsOk());
  PhaseGate gate;
  RequestQueue::Future ends = queue.add([&] {
    gate.open(1);
    gate.await(2);
    return endThread();
  });
  gate.await(1);
  RequestQueue::Future waits = queue.add(serveWell);
  Answer late = absl::UnknownError("not yet");
  // Waits for room, or comes when there is nobody.
  std::thread adding([&] { late = answerOf(queue.add(serveWell)); });

  rlimit unlimited;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &unlimited), 0);
  rlimit limited = unlimited;
  limited.rlim_cur = getAddressSpace() + stackBytes / 2;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  gate.open(2);
  Answer ended = answerOf(std::move(ends));
  Answer waited = answerOf(std::move(waits));
  adding.join();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &unlimited), 0);

  EXPECT_THAT(ended, StatusIs(Code::kAborted, "the thread that served"));
  for (const Answer &answer : {waited, late})
    EXPECT_THAT(answer, StatusIs(Code::kResourceExhausted,
                                 "no thread to serve the request"));
  EXPECT_EQ(answers, 3);
  // Now there is one.
  EXPECT_THAT(answerOf(queue.add(serveWell)), IsOk());
  queue.stop(RequestQueue::Waiting::Finish);
}

} // namespace

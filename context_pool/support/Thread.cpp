//===- Thread.cpp - A thread with a stated stack size ---------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/support/Thread.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/PrettyStackTrace.h"

#include <cerrno>
#include <cxxabi.h>
#include <exception>
#include <memory>
#include <system_error>
#include <utility>

using namespace ctxpool;

absl::StatusOr<Thread> Thread::start(size_t stackBytes,
                                     std::function<void()> body) {
  auto failure = [&](int error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("starting a thread with a stack of ", stackBytes,
                     " bytes: ", std::generic_category().message(error)));
  };

  pthread_attr_t attributes;
  if (int error = pthread_attr_init(&attributes))
    return failure(error);
  // Owned by the thread once there is one.
  auto *ownedBody = new std::function<void()>(std::move(body));
  pthread_t handle;
  // The guard is taken from the stack.
  constexpr size_t guardBytes = size_t(64) << 10;
  size_t allBytes;
  int error = __builtin_add_overflow(stackBytes, guardBytes, &allBytes)
                  ? ENOMEM
                  : pthread_attr_setstacksize(&attributes, allBytes);
  if (!error)
    error = pthread_attr_setguardsize(&attributes, guardBytes);
  if (!error)
    error = pthread_create(
        &handle, &attributes,
        [](void *argument) -> void * {
          std::unique_ptr<std::function<void()>> body(
              static_cast<std::function<void()> *>(argument));
          (*body)();
          return nullptr;
        },
        ownedBody);
  pthread_attr_destroy(&attributes);
  if (error) {
    delete ownedBody;
    return failure(error);
  }
  return Thread(handle);
}

Thread::Thread(Thread &&other) noexcept
    : handle(std::exchange(other.handle, std::nullopt)), mark(other.mark) {}

Thread &Thread::operator=(Thread &&other) noexcept {
  if (this != &other) {
    join();
    handle = std::exchange(other.handle, std::nullopt);
    mark = other.mark;
  }
  return *this;
}

void Thread::join() {
  if (!handle)
    return;
  pthread_t ended = *std::exchange(handle, std::nullopt);
  if (!mark.isInherited())
    pthread_join(ended, nullptr);
}

void Thread::detach() {
  if (!handle)
    return;
  pthread_t left = *std::exchange(handle, std::nullopt);
  if (!mark.isInherited())
    pthread_detach(left);
}

//===----------------------------------------------------------------------===//
// runWithStack
//===----------------------------------------------------------------------===//

static thread_local detail::ThreadGuide threadGuide = nullptr;

detail::ThreadGuide detail::exchangeThreadGuide(ThreadGuide guide) {
  return std::exchange(threadGuide, guide);
}

namespace {
struct AddressRange {
  uintptr_t low = 0, high = 0;
};
} // namespace

/// The calling thread's stack without its guard; empty where the system does
/// not tell.
static AddressRange findStack() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0)
    return {};
  void *low;
  size_t bytes, guardBytes;
  bool isKnown = pthread_attr_getstack(&attributes, &low, &bytes) == 0 &&
                 pthread_attr_getguardsize(&attributes, &guardBytes) == 0 &&
                 guardBytes < bytes;
  pthread_attr_destroy(&attributes);
  if (!isKnown)
    return {};
  // Some systems count the guard as stack.
  return {uintptr_t(low) + guardBytes, uintptr_t(low) + bytes};
}

/// How much the stack can grow yet; 0 where it is none of the thread's own, such
/// as that of a coroutine.
static uint64_t getStackLeft() {
  // For the main thread the system reads a file.
  static thread_local const AddressRange stack = findStack();
  auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return here > stack.low && here < stack.high ? here - stack.low : 0;
}

/// Runs `body` as if it were called.
static absl::Status runOnThread(size_t stackBytes,
                                llvm::function_ref<void()> body) {
  const void *prettyStack = llvm::SavePrettyStackState();
  std::exception_ptr thrown;
  bool hasEnded = false;
  absl::StatusOr<Thread> thread = Thread::start(stackBytes, [&] {
    // What a crash prints begins with what the caller is at.
    llvm::RestorePrettyStackState(prettyStack);
    try {
      body();
    } catch (abi::__forced_unwind &) {
      throw;
    } catch (...) {
      thrown = std::current_exception();
    }
    hasEnded = true;
  });
  if (!thread.ok())
    return thread.status();
  thread->join();
  if (!hasEnded)
    pthread_exit(nullptr);
  if (thrown)
    std::rethrow_exception(thrown);
  return absl::OkStatus();
}

absl::Status detail::runWithStack(uint64_t bytes,
                                  const std::function<void()> &body) {
  constexpr uint64_t callersBytes = 128 << 10;
  // A thread of its own has 8 MiB of it. What a depth takes is an estimate, of
  // MLIR's own dialects.
  constexpr uint64_t spareBytes = 1 << 20;
  auto hasRoom = [&] {
    uint64_t left = getStackLeft();
    return left > spareBytes && bytes <= (left - spareBytes) / 2;
  };
  if (bytes <= callersBytes || hasRoom()) {
    body();
    return absl::OkStatus();
  }
  auto elsewhere = [&](llvm::function_ref<void()> work) {
    return runOnThread(
        llvm::SaturatingAdd<uint64_t>(bytes, Thread::compilerStackBytes), work);
  };
  if (threadGuide)
    return threadGuide(elsewhere, body);
  return elsewhere(body);
}

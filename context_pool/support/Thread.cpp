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

#include <cerrno>
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

absl::Status detail::runWithStack(uint64_t bytes,
                                  const std::function<void()> &body) {
  constexpr uint64_t callersBytes = 128 << 10;
  if (bytes <= callersBytes) {
    body();
    return absl::OkStatus();
  }
  absl::StatusOr<Thread> thread =
      Thread::start(bytes + Thread::compilerStackBytes, [&] { body(); });
  if (!thread.ok())
    return thread.status();
  thread->join();
  return absl::OkStatus();
}

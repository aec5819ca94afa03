//===- Fork.cpp - What was made before a fork -----------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/support/Fork.h"

#include <pthread.h>

using namespace ctxpool::detail;

std::atomic<uint64_t> ctxpool::detail::forkGeneration{0};

// At load time: an initialisation on first use may itself be cut by a fork.
[[maybe_unused]] static const int registered =
    pthread_atfork(nullptr, nullptr, [] {
      forkGeneration.fetch_add(1, std::memory_order_relaxed);
    });

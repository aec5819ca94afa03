//===- StoreValidation.h - Whether a store is whole -------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_STOREVALIDATION_H
#define CONTEXT_POOL_CACHE_STOREVALIDATION_H

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <string>

namespace ctxpool::detail {

/// Reads the whole store of LLVM's in `storeFolder`, in a child process, since
/// LLVM may crash or hang where the store is damaged.
///
/// Errors: DataLoss  - it is damaged, or was not validated within `limit`;
///         Cancelled - `giveUp` said so;
///         whatever starting a process gave.
absl::Status validateInChild(const std::string &storeFolder,
                             absl::Duration limit,
                             llvm::function_ref<bool()> giveUp);

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_STOREVALIDATION_H

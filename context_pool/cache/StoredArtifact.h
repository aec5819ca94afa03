//===- StoredArtifact.h - An artifact as it was when stored ---- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_STOREDARTIFACT_H
#define CONTEXT_POOL_CACHE_STOREDARTIFACT_H

#include "context_pool/CompileCache.h"

#include "absl/time/time.h"

#include <optional>

namespace ctxpool::detail {

/// `bytes`, which came out of a tier with their kind, with what was stored beside
/// them. Nothing where their digest is another, since they were damaged, or where
/// the kind is empty, since no cache takes such an artifact in.
std::optional<Artifact> restoreArtifact(const Artifact &bytes,
                                        const Fingerprint &digest,
                                        const Fingerprint &meaning,
                                        absl::Duration compileCost);

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_STOREDARTIFACT_H

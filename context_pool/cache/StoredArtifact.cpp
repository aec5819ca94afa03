//===- StoredArtifact.cpp - An artifact as it was when stored -------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/StoredArtifact.h"

using namespace ctxpool;
using namespace ctxpool::detail;

std::optional<Artifact> ctxpool::detail::restoreArtifact(
    const Artifact &bytes, const Fingerprint &digest,
    const Fingerprint &meaning, absl::Duration compileCost) {
  if (bytes.getKind().empty() || bytes.getDigest() != digest)
    return std::nullopt;
  Artifact artifact = bytes;
  if (meaning != digest)
    artifact = artifact.withMeaning(meaning);
  if (compileCost != absl::ZeroDuration())
    artifact = artifact.withCompileCost(compileCost);
  return artifact;
}

//===- Artifact.cpp - Immutable bytes that a compiler made ----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/CacheAccess.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;

namespace {

constexpr std::align_val_t alignment{64};

/// Where the bytes of artifacts without bytes are.
alignas(64) const char noBytes[64] = {};

bool isAligned(llvm::StringRef bytes) {
  return reinterpret_cast<uintptr_t>(bytes.begin()) %
             static_cast<size_t>(alignment) ==
         0;
}

/// What all artifacts with the same bytes share.
struct Payload {
  Payload(llvm::StringRef kind, llvm::StringRef bytes,
          std::shared_ptr<const void> owner)
      : kind(kind), bytes(bytes), owner(std::move(owner)) {}
  ~Payload() { delete digest.load(); }
  Payload(const Payload &) = delete;
  Payload &operator=(const Payload &) = delete;

  const Fingerprint &getDigest() const {
    if (const Fingerprint *known = digest.load(std::memory_order_acquire))
      return *known;
    // Threads that come here at once compute the same, and one of them wins:
    // nobody waits, not even in a process that forked meanwhile.
    auto *computed = new Fingerprint;
    computed->bytes =
        llvm::BLAKE3::hash<32>(llvm::arrayRefFromStringRef(bytes));
    const Fingerprint *published = nullptr;
    if (digest.compare_exchange_strong(published, computed,
                                       std::memory_order_acq_rel))
      return *computed;
    delete computed;
    return *published;
  }

  const std::string kind;
  const llvm::StringRef bytes;
  const std::shared_ptr<const void> owner;
  mutable std::atomic<const Fingerprint *> digest{nullptr};
};

} // namespace

struct Artifact::Storage {
  std::shared_ptr<const Payload> payload;
  std::optional<Fingerprint> meaning;
  absl::Duration compileCost;
};

Artifact::Artifact(std::shared_ptr<const Storage> storage)
    : storage(std::move(storage)) {}

Artifact::Artifact() : Artifact(copyOf("", "")) {}

Artifact Artifact::copyOf(llvm::StringRef kind, llvm::StringRef bytes) {
  if (bytes.empty())
    return adopt(kind, llvm::StringRef(noBytes, 0), nullptr);
  auto *copy = static_cast<char *>(::operator new(bytes.size(), alignment));
  std::shared_ptr<const void> owner(
      copy, [](char *data) { ::operator delete(data, alignment); });
  std::memcpy(copy, bytes.data(), bytes.size());
  return adopt(kind, llvm::StringRef(copy, bytes.size()), std::move(owner));
}

Artifact Artifact::adopt(llvm::StringRef kind, llvm::StringRef bytes,
                         std::shared_ptr<const void> owner) {
  if (!bytes.data() || !isAligned(bytes))
    return copyOf(kind, bytes);
  auto storage = std::make_shared<Storage>();
  storage->payload = std::make_shared<Payload>(kind, bytes, std::move(owner));
  return Artifact(std::move(storage));
}

llvm::StringRef Artifact::getKind() const { return storage->payload->kind; }

llvm::StringRef Artifact::getBytes() const { return storage->payload->bytes; }

const Fingerprint &Artifact::getDigest() const {
  return storage->payload->getDigest();
}

const Fingerprint &Artifact::getMeaning() const {
  return storage->meaning ? *storage->meaning : getDigest();
}

absl::Duration Artifact::getCompileCost() const { return storage->compileCost; }

Artifact Artifact::withMeaning(const Fingerprint &meaning) const {
  auto changed = std::make_shared<Storage>(*storage);
  changed->meaning = meaning;
  return Artifact(std::move(changed));
}

Artifact Artifact::withCompileCost(absl::Duration cost) const {
  auto changed = std::make_shared<Storage>(*storage);
  changed->compileCost = std::max(cost, absl::ZeroDuration());
  return Artifact(std::move(changed));
}

FlightCache::Value CacheAccess::toValue(const Artifact &artifact) {
  return {artifact.storage,
          artifact.getKind().size() + artifact.getBytes().size(),
          absl::ToInt64Nanoseconds(artifact.getCompileCost())};
}

Artifact CacheAccess::toArtifact(const FlightCache::Value &value) {
  return Artifact(
      std::static_pointer_cast<const Artifact::Storage>(value.object));
}

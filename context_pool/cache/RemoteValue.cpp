//===- RemoteValue.cpp - Artifacts as values of a server ------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/RemoteValue.h"

#include "context_pool/cache/StoredArtifact.h"

#include "absl/strings/str_cat.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Compression.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemAlloc.h"

#include <algorithm>
#include <array>
#include <cstring>

using namespace ctxpool;
using namespace ctxpool::detail;
namespace endian = llvm::support::endian;
namespace zstd = llvm::compression::zstd;

namespace {

constexpr llvm::StringLiteral magic("ctxpool\x01");
enum Encoding : char { AsTheyAre = 0, ByZstd = 1 };

constexpr size_t encodingOffset = 8;
constexpr size_t kindSizeOffset = 9;
constexpr size_t sizeOffset = 16;
constexpr size_t costOffset = 24;
constexpr size_t digestOffset = 32;
constexpr size_t meaningOffset = 64;
constexpr size_t tagOffset = 96;
constexpr size_t headerSize = 128;
constexpr size_t maxKindSize = 255;
static_assert(RemoteValueFormat::peekedBytes == headerSize + maxKindSize);

/// Below that even good compression saves nothing that a network would notice.
constexpr size_t minCompressed = 256;

} // namespace

/// A key of its own for each purpose that the secret is put to.
static std::array<uint8_t, LLVM_BLAKE3_KEY_LEN>
deriveKey(const char *purpose, llvm::StringRef secret) {
  llvm_blake3_hasher hasher;
  llvm_blake3_hasher_init_derive_key(&hasher, purpose);
  llvm_blake3_hasher_update(&hasher, secret.data(), secret.size());
  std::array<uint8_t, LLVM_BLAKE3_KEY_LEN> key;
  llvm_blake3_hasher_finalize(&hasher, key.data(), key.size());
  return key;
}

/// In a time that does not depend on where they differ.
static bool isEqualInConstantTime(const Fingerprint &lhs, const char *rhs) {
  unsigned char difference = 0;
  for (size_t i = 0; i < lhs.bytes.size(); ++i)
    difference |= lhs.bytes[i] ^ static_cast<unsigned char>(rhs[i]);
  return difference == 0;
}

static llvm::ArrayRef<uint8_t> asBytes(llvm::StringRef text) {
  return {text.bytes_begin(), text.size()};
}

static absl::Duration readCost(llvm::StringRef value) {
  return absl::Nanoseconds(
      static_cast<int64_t>(endian::read64le(value.data() + costOffset)));
}

static Fingerprint readFingerprint(llvm::StringRef value, size_t offset) {
  Fingerprint fingerprint;
  std::memcpy(fingerprint.bytes.data(), value.data() + offset,
              fingerprint.bytes.size());
  return fingerprint;
}

RemoteValueFormat::RemoteValueFormat(llvm::StringRef secret, uint64_t maxBytes)
    : maxBytes(maxBytes), prefix("ctxpool:v1") {
  auto key = deriveKey("context_pool remote cache v1: tag of a value", secret);
  llvm_blake3_hasher_init_keyed(&keyed, key.data());
  if (!secret.empty()) {
    Fingerprint id;
    id.bytes =
        deriveKey("context_pool remote cache v1: name of a secret", secret);
    absl::StrAppend(&prefix, "-", id.toHex().substr(0, 16));
  }
  prefix += ':';
}

std::string RemoteValueFormat::makeName(const CacheKey &key) const {
  return prefix + key.digest.toHex();
}

std::optional<CacheKey>
RemoteValueFormat::parseName(llvm::StringRef name) const {
  if (!name.consume_front(prefix))
    return std::nullopt;
  std::optional<Fingerprint> digest = Fingerprint::fromHex(name);
  if (!digest || digest->toHex() != name)
    return std::nullopt;
  return CacheKey{*digest};
}

std::optional<RemoteValueSummary>
RemoteValueFormat::peek(llvm::StringRef value) {
  if (value.size() < headerSize || !value.starts_with(magic))
    return std::nullopt;
  size_t kindSize = static_cast<unsigned char>(value[kindSizeOffset]);
  llvm::StringRef kind = value.drop_front(headerSize).take_front(kindSize);
  if (kind.empty() || kind.size() != kindSize ||
      !llvm::all_of(kind, llvm::isPrint))
    return std::nullopt;
  return RemoteValueSummary{
      kind.str(), endian::read64le(value.data() + sizeOffset), readCost(value)};
}

uint64_t RemoteValueFormat::getMaxValueBytes() const {
  return headerSize + maxKindSize + maxBytes;
}

Fingerprint RemoteValueFormat::computeTag(llvm::StringRef name,
                                          llvm::StringRef value) const {
  llvm_blake3_hasher hasher = keyed;
  // The size keeps the end of the name apart from the beginning of the value.
  char nameSize[8];
  endian::write64le(nameSize, name.size());
  llvm_blake3_hasher_update(&hasher, nameSize, sizeof(nameSize));
  llvm_blake3_hasher_update(&hasher, name.data(), name.size());
  llvm_blake3_hasher_update(&hasher, value.data(), tagOffset);
  llvm::StringRef behind = value.drop_front(headerSize);
  llvm_blake3_hasher_update(&hasher, behind.data(), behind.size());
  Fingerprint tag;
  llvm_blake3_hasher_finalize(&hasher, tag.bytes.data(), tag.bytes.size());
  return tag;
}

absl::StatusOr<std::string>
RemoteValueFormat::encode(llvm::StringRef name,
                          const Artifact &artifact) const {
  llvm::StringRef bytes = artifact.getBytes();
  llvm::StringRef kind = artifact.getKind();
  if (bytes.size() > maxBytes)
    return absl::OutOfRangeError(absl::StrCat("an artifact of ", bytes.size(),
                                              " bytes, where at most ",
                                              maxBytes, " are stored"));
  if (kind.size() > maxKindSize)
    return absl::OutOfRangeError(absl::StrCat("a kind of ", kind.size(),
                                              " bytes, where at most ",
                                              maxKindSize, " are stored"));

  Encoding encoding = AsTheyAre;
  llvm::StringRef stored = bytes;
  llvm::SmallVector<uint8_t, 0> compressed;
  if (zstd::isAvailable() && bytes.size() >= minCompressed) {
    zstd::compress(asBytes(bytes), compressed, zstd::BestSpeedCompression);
    if (compressed.size() < bytes.size() - bytes.size() / 16) {
      encoding = ByZstd;
      stored = llvm::StringRef(
          reinterpret_cast<const char *>(compressed.data()), compressed.size());
    }
  }

  std::string value(headerSize, '\0');
  value.reserve(headerSize + kind.size() + stored.size());
  std::copy(magic.begin(), magic.end(), value.begin());
  value[encodingOffset] = encoding;
  value[kindSizeOffset] = static_cast<char>(kind.size());
  endian::write64le(&value[sizeOffset], bytes.size());
  endian::write64le(&value[costOffset],
                    absl::ToInt64Nanoseconds(artifact.getCompileCost()));
  const Fingerprint &digest = artifact.getDigest();
  std::copy(digest.bytes.begin(), digest.bytes.end(), &value[digestOffset]);
  const Fingerprint &meaning = artifact.getMeaning();
  std::copy(meaning.bytes.begin(), meaning.bytes.end(), &value[meaningOffset]);
  value.append(kind.data(), kind.size());
  value.append(stored.data(), stored.size());
  Fingerprint tag = computeTag(name, value);
  std::copy(tag.bytes.begin(), tag.bytes.end(), &value[tagOffset]);
  return value;
}

/// Nothing where `stored` is not exactly `size` bytes, compressed.
static std::optional<Artifact> decompress(llvm::StringRef kind,
                                          llvm::StringRef stored, size_t size) {
  constexpr size_t alignment = 64;
  std::shared_ptr<char> buffer(
      static_cast<char *>(llvm::allocate_buffer(size, alignment)),
      [size](char *bytes) { llvm::deallocate_buffer(bytes, size, alignment); });
  size_t decompressedSize = size;
  if (llvm::Error error = zstd::decompress(
          asBytes(stored), reinterpret_cast<uint8_t *>(buffer.get()),
          decompressedSize)) {
    llvm::consumeError(std::move(error));
    return std::nullopt;
  }
  if (decompressedSize != size)
    return std::nullopt;
  return Artifact::adopt(kind, llvm::StringRef(buffer.get(), size), buffer);
}

absl::StatusOr<Artifact>
RemoteValueFormat::decode(llvm::StringRef name, llvm::StringRef value) const {
  if (value.size() < headerSize)
    return absl::DataLossError(absl::StrCat("a value of ", value.size(),
                                            " bytes, less than a header"));
  if (value.size() > getMaxValueBytes())
    return absl::DataLossError(absl::StrCat("a value of ", value.size(),
                                            " bytes, where at most ",
                                            getMaxValueBytes(), " are read"));
  if (!value.starts_with(magic))
    return absl::DataLossError("not a value of this format and version");
  if (!isEqualInConstantTime(computeTag(name, value), value.data() + tagOffset))
    return absl::DataLossError("the tag does not fit the value");

  size_t kindSize = static_cast<unsigned char>(value[kindSizeOffset]);
  uint64_t size = endian::read64le(value.data() + sizeOffset);
  llvm::StringRef behind = value.drop_front(headerSize);
  if (kindSize == 0)
    return absl::DataLossError("the artifact has no kind");
  if (kindSize > behind.size() || size > maxBytes)
    return absl::DataLossError("a size in the header is out of range");
  llvm::StringRef kind = behind.take_front(kindSize);
  llvm::StringRef stored = behind.drop_front(kindSize);

  std::optional<Artifact> artifact;
  if (value[encodingOffset] == AsTheyAre && stored.size() == size)
    artifact = Artifact::copyOf(kind, stored);
  else if (value[encodingOffset] == ByZstd && zstd::isAvailable())
    artifact = decompress(kind, stored, size);
  if (!artifact)
    return absl::DataLossError("the stored bytes cannot be taken apart");

  // Also whoever has the secret may have compressed with bad memory.
  artifact =
      restoreArtifact(*artifact, readFingerprint(value, digestOffset),
                      readFingerprint(value, meaningOffset), readCost(value));
  if (!artifact)
    return absl::DataLossError("the digest does not fit the bytes");
  return *std::move(artifact);
}

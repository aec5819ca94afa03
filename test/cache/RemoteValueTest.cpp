//===- RemoteValueTest.cpp - Artifacts as values of a server --------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/RemoteValue.h"

#include "test/support/StatusMatchers.h"

#include "llvm/Support/Endian.h"

#include <random>

using namespace ctxpool;
using namespace ctxpool::detail;
using namespace ctxpool::test;

namespace {

constexpr uint64_t maxBytes = 1 << 20;

std::string randomBytes(size_t size) {
  std::mt19937 generator(1);
  std::string bytes;
  while (bytes.size() < size)
    bytes += static_cast<char>(generator());
  return bytes;
}

CacheKey makeKey(uint8_t number) {
  CacheKey key;
  key.digest.bytes.fill(number);
  return key;
}

/// Computes the tag of a value that was changed, as anybody can where there is
/// no secret.
void forgeTag(llvm::StringRef name, std::string &value) {
  llvm_blake3_hasher hasher;
  uint8_t key[32], size[8];
  llvm_blake3_hasher_init_derive_key(
      &hasher, "context_pool remote cache v1: tag of a value");
  llvm_blake3_hasher_finalize(&hasher, key, sizeof(key));
  llvm_blake3_hasher_init_keyed(&hasher, key);
  llvm::support::endian::write64le(size, name.size());
  llvm_blake3_hasher_update(&hasher, size, sizeof(size));
  llvm_blake3_hasher_update(&hasher, name.data(), name.size());
  llvm_blake3_hasher_update(&hasher, value.data(), 96);
  llvm_blake3_hasher_update(&hasher, value.data() + 128, value.size() - 128);
  llvm_blake3_hasher_finalize(&hasher, reinterpret_cast<uint8_t *>(&value[96]),
                              32);
}

class RemoteValueTest : public testing::Test {
protected:
  RemoteValueFormat format{"", maxBytes};
  RemoteValueFormat secretive{"secret", maxBytes};
  std::string name = format.makeName(makeKey(7));
  std::string secretName = secretive.makeName(makeKey(7));
};

void expectEqual(const Artifact &lhs, const Artifact &rhs) {
  EXPECT_EQ(lhs.getKind(), rhs.getKind());
  EXPECT_EQ(lhs.getBytes(), rhs.getBytes());
  EXPECT_EQ(lhs.getDigest(), rhs.getDigest());
  EXPECT_EQ(lhs.getMeaning(), rhs.getMeaning());
  EXPECT_EQ(lhs.getCompileCost(), rhs.getCompileCost());
}

TEST_F(RemoteValueTest, NamesHaveTheSchemeAndTheKey) {
  EXPECT_EQ(
      format.makeName(makeKey(0xab)),
      "ctxpool:v1:abababababababababababababababababababababababababababab"
      "abababab");
  EXPECT_EQ(name.rfind(format.getPrefix(), 0), 0u);
}

TEST_F(RemoteValueTest, SecretsHaveNamesOfTheirOwn) {
  RemoteValueFormat other("other", maxBytes);

  EXPECT_NE(format.getPrefix(), secretive.getPrefix());
  EXPECT_NE(other.getPrefix(), secretive.getPrefix());
  EXPECT_EQ(secretive.getPrefix(),
            RemoteValueFormat("secret", maxBytes).getPrefix());
  EXPECT_EQ(secretive.getPrefix().find("secret"), std::string::npos);
}

TEST_F(RemoteValueTest, OnlyItsOwnNamesHaveKeys) {
  std::optional<CacheKey> key = format.parseName(name);
  ASSERT_TRUE(key);
  EXPECT_EQ(*key, makeKey(7));
  for (const std::string &other :
       {secretName, name + "0", name.substr(0, name.size() - 1),
        llvm::StringRef(name).upper(),
        format.getPrefix() + std::string(64, 'A'),
        format.getPrefix() + std::string(64, '?'), std::string()})
    EXPECT_FALSE(format.parseName(other)) << other;
}

TEST_F(RemoteValueTest, TheBeginningOfAValueTellsWhatItIs) {
  for (const std::string &kind : {std::string("k"), std::string(255, 'k')}) {
    std::string value =
        *format.encode(name, Artifact::copyOf(kind, randomBytes(1000))
                                 .withCompileCost(absl::Milliseconds(12)));

    std::optional<RemoteValueSummary> summary =
        format.peek(value.substr(0, RemoteValueFormat::peekedBytes));

    ASSERT_TRUE(summary);
    EXPECT_EQ(summary->kind, kind);
    EXPECT_EQ(summary->bytes, 1000u);
    EXPECT_EQ(summary->compileCost, absl::Milliseconds(12));
  }
}

TEST_F(RemoteValueTest, WhatIsNoValueOrDoesNotPrintTellsNothing) {
  std::string value =
      *format.encode(name, Artifact::copyOf("kind", randomBytes(100)));
  std::string otherVersion = value, escape = value;
  ++otherVersion[7];
  escape[129] = '\033';
  for (const std::string &other :
       {std::string(), value.substr(0, 127), value.substr(0, 130), otherVersion,
        escape, *format.encode(name, Artifact::copyOf("", "no kind"))})
    EXPECT_FALSE(format.peek(other));
}

TEST_F(RemoteValueTest, ComesBackWithAllThatItHad) {
  std::vector<Artifact> artifacts = {
      Artifact::copyOf("k", ""),
      Artifact::copyOf("object", std::string(100000, 'x')),
      Artifact::copyOf("object", randomBytes(100000)),
      Artifact::copyOf(std::string(255, 'k'), "short"),
      Artifact::copyOf("zeros", std::string(maxBytes, '\0')),
      Artifact::copyOf("llvm", "text")
          .withMeaning(makeKey(3).digest)
          .withCompileCost(absl::Nanoseconds(1234567890123))};
  for (const Artifact &artifact : artifacts)
    for (RemoteValueFormat *each : {&format, &secretive}) {
      CTXPOOL_ASSERT_OK_AND_ASSIGN(value, each->encode(name, artifact));
      CTXPOOL_ASSERT_OK_AND_ASSIGN(decoded, each->decode(name, value));

      expectEqual(decoded, artifact);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(decoded.getBytes().data()) % 64,
                0u);
      EXPECT_LE(value.size(), each->getMaxValueBytes());
    }
}

TEST_F(RemoteValueTest, IsCompressedWhereThatPays) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      small,
      format.encode(name, Artifact::copyOf("", std::string(100000, 'x'))));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      large, format.encode(name, Artifact::copyOf("", randomBytes(100000))));

  EXPECT_LT(small.size(), 1000u);
  EXPECT_EQ(large.size(), 100000u + 128);
}

TEST_F(RemoteValueTest, AValueWithoutAKindIsNotAccepted) {
  for (RemoteValueFormat *each : {&format, &secretive}) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        value, each->encode(name, Artifact::copyOf("", "bytes")));
    EXPECT_THAT(each->decode(name, value),
                StatusIs(absl::StatusCode::kDataLoss, "no kind"));
  }
}

TEST_F(RemoteValueTest, EveryFlippedBitIsFound) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      value,
      format.encode(name, Artifact::copyOf("kind", std::string(300, 'x'))));
  for (size_t bit = 0; bit < 8 * value.size(); ++bit) {
    std::string damaged = value;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));

    EXPECT_THAT(format.decode(name, damaged),
                StatusIs(absl::StatusCode::kDataLoss, ""))
        << "bit " << bit;
  }
}

TEST_F(RemoteValueTest, EveryTruncationAndExtensionIsFound) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      value, format.encode(name, Artifact::copyOf("kind", randomBytes(300))));
  for (size_t size = 0; size < value.size(); ++size)
    EXPECT_THAT(format.decode(name, llvm::StringRef(value).take_front(size)),
                StatusIs(absl::StatusCode::kDataLoss, ""))
        << size << " bytes";
  EXPECT_THAT(format.decode(name, value + '\0'),
              StatusIs(absl::StatusCode::kDataLoss, ""));
  EXPECT_THAT(format.decode(name, value + value),
              StatusIs(absl::StatusCode::kDataLoss, ""));
}

TEST_F(RemoteValueTest, AValueUnderAnotherNameIsNotAccepted) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      value, secretive.encode(secretName, Artifact::copyOf("kind", "bytes")));

  EXPECT_THAT(secretive.decode(secretive.makeName(makeKey(8)), value),
              StatusIs(absl::StatusCode::kDataLoss, "tag"));
}

TEST_F(RemoteValueTest, OnlyWhoHasTheSecretMakesWhatIsAccepted) {
  Artifact artifact = Artifact::copyOf("kind", "bytes");
  RemoteValueFormat other("other", maxBytes);
  for (RemoteValueFormat *attacker : {&format, &other}) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(value, attacker->encode(secretName, artifact));

    EXPECT_THAT(secretive.decode(secretName, value),
                StatusIs(absl::StatusCode::kDataLoss, "tag"));
  }
  CTXPOOL_ASSERT_OK_AND_ASSIGN(forged, secretive.encode(secretName, artifact));
  forgeTag(secretName, forged);
  EXPECT_THAT(secretive.decode(secretName, forged),
              StatusIs(absl::StatusCode::kDataLoss, "tag"));
}

TEST_F(RemoteValueTest, TheTagIsAsDocumented) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      value, format.encode(name, Artifact::copyOf("kind", "bytes")));
  std::string forged = value;
  forgeTag(name, forged);

  EXPECT_EQ(forged, value);
}

TEST_F(RemoteValueTest, HeadersThatLieAreFoundWithAFittingTag) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      value,
      format.encode(name, Artifact::copyOf("kind", std::string(5000, 'x'))));
  ASSERT_EQ(value[8], 1) << "not compressed";
  auto decodeWith = [&](size_t offset, uint64_t number, size_t size) {
    std::string forged = value;
    for (size_t i = 0; i < size; ++i)
      forged[offset + i] = static_cast<char>(number >> 8 * i);
    forgeTag(name, forged);
    return format.decode(name, forged).status();
  };

  for (uint64_t size :
       {uint64_t(0), uint64_t(1), uint64_t(4999), uint64_t(5001), maxBytes})
    EXPECT_THAT(decodeWith(16, size, 8),
                StatusIs(absl::StatusCode::kDataLoss, "cannot be taken apart"))
        << size;
  for (uint64_t size : {maxBytes + 1, uint64_t(1) << 40, ~uint64_t(0)})
    EXPECT_THAT(decodeWith(16, size, 8),
                StatusIs(absl::StatusCode::kDataLoss, "out of range"))
        << size;
  EXPECT_THAT(decodeWith(9, 255, 1),
              StatusIs(absl::StatusCode::kDataLoss, "out of range"));
  EXPECT_THAT(decodeWith(8, 0, 1),
              StatusIs(absl::StatusCode::kDataLoss, "cannot be taken apart"));
  EXPECT_THAT(decodeWith(8, 2, 1),
              StatusIs(absl::StatusCode::kDataLoss, "cannot be taken apart"));
  EXPECT_THAT(decodeWith(32, 0, 1),
              StatusIs(absl::StatusCode::kDataLoss, "digest"));
  EXPECT_THAT(decodeWith(7, 2, 1),
              StatusIs(absl::StatusCode::kDataLoss, "version"));
}

TEST_F(RemoteValueTest, WhatIsTooLargeIsNeitherWrittenNorRead) {
  RemoteValueFormat smaller("", 1000);
  Artifact artifact = Artifact::copyOf("k", std::string(1001, 'x'));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(value, format.encode(name, artifact));

  EXPECT_THAT(smaller.encode(name, artifact),
              StatusIs(absl::StatusCode::kOutOfRange, "1001 bytes"));
  EXPECT_THAT(smaller.decode(name, value),
              StatusIs(absl::StatusCode::kDataLoss, "out of range"));
  EXPECT_THAT(format.encode(name, Artifact::copyOf(std::string(256, 'k'), "")),
              StatusIs(absl::StatusCode::kOutOfRange, "256 bytes"));
  EXPECT_THAT(format.decode(name, std::string(2 * maxBytes, 'x')),
              StatusIs(absl::StatusCode::kDataLoss, "at most"));
}

} // namespace

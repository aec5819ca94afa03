//===- ArtifactTest.cpp - Tests of artifacts ------------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/CompileCache.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"
#include "gtest/gtest.h"

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace ctxpool;

namespace {

bool isAligned(const Artifact &artifact) {
  return reinterpret_cast<uintptr_t>(artifact.getBytes().data()) % 64 == 0;
}

Fingerprint digestOf(llvm::StringRef bytes) {
  Fingerprint digest;
  digest.bytes = llvm::BLAKE3::hash<32>(llvm::arrayRefFromStringRef(bytes));
  return digest;
}

/// Bytes at an address that is, or is not, a multiple of 64, and whether they
/// are still there.
struct Bytes {
  explicit Bytes(size_t offset) : owner(std::make_shared<Block>()) {
    text = llvm::StringRef(owner->text + offset, 5);
    std::memcpy(owner->text + offset, "bytes", 5);
    alive = owner;
  }
  struct alignas(64) Block {
    char text[128];
  };
  std::shared_ptr<Block> owner;
  std::weak_ptr<Block> alive;
  llvm::StringRef text;
};

TEST(ArtifactTest, TheDefaultHasNoKindAndNoBytes) {
  Artifact artifact;
  EXPECT_EQ(artifact.getKind(), "");
  EXPECT_EQ(artifact.getBytes(), "");
  EXPECT_EQ(artifact.getDigest(), digestOf(""));
}

TEST(ArtifactTest, CopyOfCopiesTheBytes) {
  std::string bytes = "some bytes";
  Artifact artifact = Artifact::copyOf("object", bytes);
  bytes = "else......";
  EXPECT_EQ(artifact.getKind(), "object");
  EXPECT_EQ(artifact.getBytes(), "some bytes");
}

TEST(ArtifactTest, BytesAre64ByteAlignedAlsoWhereThereAreNone) {
  EXPECT_TRUE(isAligned(Artifact()));
  for (size_t size : {0, 1, 63, 64, 65, 4096, 100001}) {
    EXPECT_TRUE(isAligned(Artifact::copyOf("k", std::string(size, 'x'))));
    EXPECT_EQ(Artifact::copyOf("k", std::string(size, 'x')).getBytes().size(),
              size);
  }
  for (size_t offset : {0, 1, 8, 32, 63, 64}) {
    Bytes bytes(offset);
    EXPECT_TRUE(isAligned(Artifact::adopt("k", bytes.text, bytes.owner)));
  }
  EXPECT_TRUE(isAligned(Artifact::adopt("k", llvm::StringRef(), nullptr)));
}

TEST(ArtifactTest, AdoptedBytesStayInPlaceAndLiveAsLongAsTheLastCopy) {
  Bytes bytes(0);
  std::optional<Artifact> artifact =
      Artifact::adopt("k", bytes.text, std::move(bytes.owner));
  EXPECT_EQ(artifact->getBytes().data(), bytes.text.data());
  std::optional<Artifact> copy = artifact->withCompileCost(absl::Seconds(1));
  artifact.reset();
  EXPECT_FALSE(bytes.alive.expired());
  EXPECT_EQ(copy->getBytes(), "bytes");
  copy.reset();
  EXPECT_TRUE(bytes.alive.expired());
}

TEST(ArtifactTest, AdoptCopiesWhatIsNotAlignedAndLetsGoOfItsOwner) {
  Bytes bytes(8);
  Artifact artifact = Artifact::adopt("k", bytes.text, std::move(bytes.owner));
  EXPECT_TRUE(bytes.alive.expired());
  EXPECT_EQ(artifact.getBytes(), "bytes");
}

TEST(ArtifactTest, CopiesShareTheBytes) {
  Artifact artifact = Artifact::copyOf("k", "bytes");
  Artifact copy = artifact;
  EXPECT_EQ(copy.getBytes().data(), artifact.getBytes().data());
  EXPECT_EQ(artifact.withMeaning(digestOf("m")).getBytes().data(),
            artifact.getBytes().data());
}

TEST(ArtifactTest, TheDigestIsThatOfTheBytesOnAnyThread) {
  Artifact artifact = Artifact::copyOf("k", std::string(100000, 'a'));
  Fingerprint expected = digestOf(std::string(100000, 'a'));
  std::vector<std::thread> threads;
  for (int i = 0; i != 8; ++i)
    threads.emplace_back(
        [copy = artifact.withCompileCost(absl::Seconds(i)), &expected] {
          EXPECT_EQ(copy.getDigest(), expected);
        });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(artifact.getDigest(), expected);
}

TEST(ArtifactTest, TheMeaningIsTheDigestUnlessTheProducerSaysAnother) {
  Artifact artifact = Artifact::copyOf("k", "bytes");
  EXPECT_EQ(artifact.getMeaning(), digestOf("bytes"));
  Artifact changed = artifact.withMeaning(digestOf("meaning"));
  EXPECT_EQ(changed.getMeaning(), digestOf("meaning"));
  EXPECT_EQ(changed.getDigest(), digestOf("bytes"));
  EXPECT_EQ(artifact.getMeaning(), digestOf("bytes"));
}

TEST(ArtifactTest, TheCompileCostIsZeroUntilSomebodySays) {
  Artifact artifact = Artifact::copyOf("k", "bytes").withMeaning(digestOf("m"));
  EXPECT_EQ(artifact.getCompileCost(), absl::ZeroDuration());
  Artifact changed = artifact.withCompileCost(absl::Milliseconds(5));
  EXPECT_EQ(changed.getCompileCost(), absl::Milliseconds(5));
  EXPECT_EQ(changed.getMeaning(), digestOf("m"));
  EXPECT_EQ(changed.getKind(), "k");
}

TEST(ArtifactTest, ACompileCostBelowZeroIsNone) {
  for (absl::Duration cost : {-absl::Seconds(1), -absl::InfiniteDuration()})
    EXPECT_EQ(
        Artifact::copyOf("k", "bytes").withCompileCost(cost).getCompileCost(),
        absl::ZeroDuration());
}

} // namespace

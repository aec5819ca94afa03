//===- TransferModulesTest.cpp - Many modules, into many contexts ---------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ContextPool.h"
#include "context_pool/ModuleTransfer.h"
#include "test/ir/IrTestSupport.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"
#include "test/transfer/TransferTestSupport.h"

#include <iostream>

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

/// Larger files are left to the long form of the test.
size_t largestFile() {
  return numberFromEnvironment("CONTEXT_POOL_TEST_CORPUS_BYTES", 48 << 10);
}

std::vector<std::filesystem::path> bundledFiles() {
  return moduleFiles(sourceDir() / "bench" / "modules");
}

std::vector<std::filesystem::path> collectedFiles(llvm::StringRef folder) {
  auto path = sharedDir(folder);
  return path ? moduleFiles(*path) : std::vector<std::filesystem::path>();
}

/// But for those that end the process that parses them.
std::vector<std::filesystem::path> collectedCases() {
  auto files = collectedFiles("cases/inputs");
  llvm::erase_if(files, [](const std::filesystem::path &file) {
    return file.parent_path().filename() == "crash" ||
           file.filename() == "006-resource-align-zero.mlir";
  });
  return files;
}

bool hasResources(llvm::StringRef text) {
  return text.contains("dense_resource") || text.contains("dialect_resources");
}

/// Copies every file's module into a fresh, a used and a pooled context.
void expectClonesAreFaithful(const std::vector<std::filesystem::path> &files) {
  auto source = makeContext();
  auto fresh = makeContext();
  auto dirty = makeDirtyContext();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      pool, ContextPool::create(fullTemplate(), ContextPoolOptions()));
  CrossContextCloner cloner(*source, *dirty);
  size_t refused = 0, copied = 0;
  for (const auto &file : files) {
    std::string text = readFile(file);
    if (text.size() > largestFile())
      continue;
    SCOPED_TRACE(file.string());
    OwningOpRef<ModuleOp> module = tryParse(*source, text);
    if (!module)
      continue;
    // The same keys come back with other contents: then they are renamed.
    bool sameText = !hasResources(text);
    auto inFresh = cloneInto(*module, *fresh);
    EXPECT_THAT(inFresh, IsOk());
    if (!inFresh.ok()) {
      ++refused;
      continue;
    }
    ++copied;
    expectFaithful(*module, inFresh->get(), sameText);

    for (int round = 0; round != 2; ++round) {
      auto inDirty = cloner.clone(*module);
      ASSERT_THAT(inDirty, IsOk());
      expectFaithful(*module, inDirty->get(), sameText);
    }

    CTXPOOL_ASSERT_OK_AND_ASSIGN(lease, pool->acquire());
    lease->allowUnregisteredDialects();
    {
      auto inPooled = cloneInto(*module, *lease);
      ASSERT_THAT(inPooled, IsOk());
      // The pool forgets resources, so that the names are free again.
      expectFaithful(*module, inPooled->get());
    }
    EXPECT_TRUE(lease.takeDiagnostics().empty());
  }
  EXPECT_EQ(refused, 0u) << "of " << refused + copied;
}

TEST(TransferModulesTest, BundledModulesAreCopiedFaithfully) {
  expectClonesAreFaithful(bundledFiles());
}

TEST(TransferModulesTest, CorpusIsCopiedFaithfully) {
  auto files = collectedFiles("corpus");
  if (files.empty())
    GTEST_SKIP() << "needs the folder 'corpus' in CONTEXT_POOL_SHARED_DIR";
  expectClonesAreFaithful(files);
}

TEST(TransferModulesTest, CollectedCasesAreCopiedFaithfully) {
  auto files = collectedCases();
  if (files.empty())
    GTEST_SKIP() << "needs the folder 'cases' in CONTEXT_POOL_SHARED_DIR";
  expectClonesAreFaithful(files);
}

/// Bytes bring every file's module into another context, or are refused for
/// what the file is known to have.
void expectBytesAreFaithful(const std::vector<std::filesystem::path> &files,
                            size_t maxRefused) {
  auto source = makeContext();
  auto dirty = makeDirtyContext();
  size_t refused = 0;
  StructuralOptions located;
  located.includeLocations = true;
  for (const auto &file : files) {
    std::string text = readFile(file);
    if (text.size() > largestFile())
      continue;
    SCOPED_TRACE(file.string());
    OwningOpRef<ModuleOp> module = tryParse(*source, text);
    if (!module)
      continue;
    auto bytes = serialize(*module);
    if (!bytes.ok()) {
      ++refused;
      EXPECT_THAT(bytes, StatusIs(absl::StatusCode::kFailedPrecondition,
                                  "cannot serialize the operation"));
      EXPECT_TRUE(llvm::StringRef(text).contains("distinct[") ||
                  llvm::StringRef(text).contains("f128") ||
                  llvm::StringRef(text).contains("f80") ||
                  llvm::StringRef(text).contains("dense_resource"))
          << bytes.status().ToString();
      continue;
    }
    DeserializeOptions options;
    options.verify = verifies(*module);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(read, deserialize(*bytes, *dirty, options));
    EXPECT_THAT(checkEquivalence(*module, *read, located), IsOk());

    SerializeOptions strip;
    strip.stripLocations = true;
    auto stripped = serialize(*module, strip);
    ASSERT_THAT(stripped, IsOk());
    CTXPOOL_ASSERT_OK_AND_ASSIGN(bare, deserialize(*stripped, *dirty, options));
    EXPECT_THAT(checkEquivalence(*module, *bare), IsOk());
    bare->walk(
        [](Operation *op) { EXPECT_TRUE(isa<UnknownLoc>(op->getLoc())); });
  }
  EXPECT_LE(refused, maxRefused);
}

TEST(TransferModulesTest, BundledModulesSurviveBytes) {
  expectBytesAreFaithful(bundledFiles(), 0);
}

TEST(TransferModulesTest, CorpusSurvivesBytes) {
  auto files = collectedFiles("corpus");
  if (files.empty())
    GTEST_SKIP() << "needs the folder 'corpus' in CONTEXT_POOL_SHARED_DIR";
  expectBytesAreFaithful(files, 8);
}

TEST(TransferModulesTest, CollectedCasesSurviveBytesOrAreRefused) {
  auto files = collectedCases();
  if (files.empty())
    GTEST_SKIP() << "needs the folder 'cases' in CONTEXT_POOL_SHARED_DIR";
  expectBytesAreFaithful(files, 8);
}

} // namespace

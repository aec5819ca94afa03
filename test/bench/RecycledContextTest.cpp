//===- RecycledContextTest.cpp - Real modules in one recycled context -----===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CompileMode.h"
#include "bench/ModuleSource.h"
#include "bench/Registration.h"
#include "bench/ResultDigest.h"
#include "context_pool/ContextPool.h"

#include "test/support/StatusMatchers.h"
#include "test/support/TestFiles.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MemoryBuffer.h"

#include <filesystem>
#include <optional>

using namespace ctxpool;
using namespace ctxpool::bench;
using namespace ctxpool::test;

namespace {

/// Upstream's dialects, extensions and passes.
const mlir::DialectRegistry &registry() {
  static const mlir::DialectRegistry all = [] {
    mlir::DialectRegistry made;
    EXPECT_TRUE(registerEverything(made, {}, {}));
    return made;
  }();
  return all;
}

/// Runs every module in a fresh context, and all of them twice in one context
/// of a pool, so that in the second round each comes after every other one.
void expectSameResultsInARecycledContext(llvm::ArrayRef<ModuleSource> sources,
                                         bool allowUnregistered) {
  CompileSetup setup;
  setup.registry = &registry();
  setup.allowUnregisteredDialects = allowUnregistered;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(fresh, createCompileMode("fresh", setup));

  ContextTemplateOptions options;
  options.populate = [](mlir::DialectRegistry &made) {
    registry().appendTo(made);
  };
  options.allowUnregisteredDialects = allowUnregistered;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(contextTemplate,
                               ContextTemplate::create(std::move(options)));
  ContextPoolOptions poolOptions;
  poolOptions.minIdle = 0;
  poolOptions.maxLive = 1;
  poolOptions.maxBytesPerContext = ~uint64_t(0);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      pool, ContextPool::create(contextTemplate, poolOptions));

  std::vector<absl::StatusOr<Artifact>> expected;
  for (const ModuleSource &source : sources)
    expected.push_back(fresh->serve(source));
  for (int round = 0; round < 2; ++round)
    for (auto [source, want] : llvm::zip_equal(sources, expected)) {
      SCOPED_TRACE(source.name);
      CTXPOOL_ASSERT_OK_AND_ASSIGN(lease, pool->acquire());
      absl::StatusOr<Artifact> got = serveInLease(lease, source);
      ASSERT_EQ(got.status(), want.status());
      if (!got.ok() || got->getBytes() == want->getBytes())
        continue;
      // What upstream's passes leave to chance may differ.
      CTXPOOL_ASSERT_OK_AND_ASSIGN(digestGot,
                                   digestResult(got->getBytes(), registry()));
      CTXPOOL_ASSERT_OK_AND_ASSIGN(digestWant,
                                   digestResult(want->getBytes(), registry()));
      EXPECT_EQ(digestGot, digestWant);
    }

  EXPECT_EQ(pool->getStats().clones, 1u);
}

TEST(RecycledContextTest, BundledModulesGiveTheResultsOfAFreshContext) {
  expectSameResultsInARecycledContext(readBundledModules(), false);
}

/// A file of lines with columns between tabs.
std::vector<std::vector<std::string>>
readTable(const std::filesystem::path &path) {
  std::vector<std::vector<std::string>> table;
  auto buffer = llvm::MemoryBuffer::getFile(path.string());
  if (!buffer)
    return table;
  llvm::SmallVector<llvm::StringRef, 0> lines;
  (*buffer)->getBuffer().split(lines, '\n', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef line : lines) {
    llvm::SmallVector<llvm::StringRef> columns;
    line.split(columns, '\t');
    table.emplace_back(columns.begin(), columns.end());
  }
  return table;
}

/// The modules of a folder of the corpus, with the pipelines that its tables
/// give them. Those above 64 KiB take minutes in all, and are left out unless
/// CONTEXT_POOL_TEST_LARGE_MODULES is set.
std::vector<ModuleSource> readCorpus(const std::filesystem::path &corpus,
                                     const std::vector<std::string> &folders) {
  llvm::StringMap<std::string> pipelines;
  for (const std::vector<std::string> &row :
       readTable(corpus / "pipelines.tsv"))
    if (row.size() > 1 && !llvm::StringRef(row[1]).starts_with("--"))
      pipelines[row[0]] = row[1];

  std::vector<ModuleSource> sources;
  for (const std::vector<std::string> &row : readTable(corpus / "INDEX.tsv")) {
    if (row.size() < 8 ||
        llvm::none_of(folders, [&](const std::string &folder) {
          return llvm::StringRef(row[0]).starts_with(folder + "/");
        }))
      continue;
    std::vector<ModuleSource> read = readModules({(corpus / row[0]).string()});
    for (ModuleSource &source : read) {
      EXPECT_EQ(source.error, "") << source.name;
      if (!source.bytes ||
          (source.bytes->getBufferSize() > (64 << 10) &&
           !numberFromEnvironment("CONTEXT_POOL_TEST_LARGE_MODULES", 0)))
        continue;
      source.pipeline = pipelines.lookup(row[7]);
      sources.push_back(std::move(source));
    }
  }
  return sources;
}

class CorpusTest : public testing::Test {
protected:
  void SetUp() override {
    std::optional<std::filesystem::path> found = sharedDir("corpus");
    if (!found)
      GTEST_SKIP() << "needs the folder 'corpus' in CONTEXT_POOL_SHARED_DIR";
    corpus = *found;
  }
  std::filesystem::path corpus;
};

TEST_F(CorpusTest, ModulesGiveTheResultsOfAFreshContext) {
  std::vector<ModuleSource> sources =
      readCorpus(corpus, {"models", "upstream"});
  ASSERT_GT(sources.size(), 100u);
  expectSameResultsInARecycledContext(sources, false);
}

TEST_F(CorpusTest, UnregisteredModulesGiveTheResultsOfAFreshContext) {
  std::vector<ModuleSource> sources = readCorpus(corpus, {"unregistered"});
  ASSERT_GT(sources.size(), 1u);
  expectSameResultsInARecycledContext(sources, true);
}

} // namespace

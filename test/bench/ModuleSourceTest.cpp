//===- ModuleSourceTest.cpp - Which modules a run is about ----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/ModuleSource.h"
#include "bench/BundledModules.h"
#include "test/bench/ToolRunner.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cstdint>
#include <string>
#include <vector>

#include <filesystem>
#include <unistd.h>

using namespace ctxpool::bench;
using namespace ctxpool::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

std::vector<std::string> getNames(const std::vector<ModuleSource> &sources) {
  std::vector<std::string> names;
  for (const ModuleSource &source : sources)
    names.push_back(source.name);
  return names;
}

TEST(PipelineCommentTest, IsTheRestOfAFirstLineThatBeginsSo) {
  EXPECT_EQ(findPipelineComment("// PIPELINE: builtin.module(cse)\nmodule {}"),
            "builtin.module(cse)");
  EXPECT_EQ(findPipelineComment("//PIPELINE:any(cse)  \r\n"), "any(cse)");
  EXPECT_EQ(findPipelineComment("// PIPELINE: x"), "x");
}

TEST(PipelineCommentTest, IsNotFoundElsewhere) {
  EXPECT_EQ(findPipelineComment(""), std::nullopt);
  EXPECT_EQ(findPipelineComment("module {}\n// PIPELINE: x\n"), std::nullopt);
  EXPECT_EQ(findPipelineComment("// pipeline: x\n"), std::nullopt);
  EXPECT_EQ(findPipelineComment("ML\xefR\x0d"), std::nullopt);
}

TEST(ModuleSourceTest, FoldersGiveTheirModulesSortedByPath) {
  TemporaryFolder folder;
  std::string c = folder.write("m/c.mlir", "");
  std::string a = folder.write("m/sub/deep/a.mlirbc", "");
  std::string b = folder.write("m/sub/b.mlir", "");
  folder.write("m/readme.md", "");
  folder.write("m/sub/x.mlir.txt", "");

  std::vector<ModuleSource> sources = readModules({folder.getPath("m")});

  EXPECT_THAT(getNames(sources), ElementsAre(c, b, a));
}

TEST(ModuleSourceTest, FilesKeepTheirOrderAndMayEndInAnything) {
  TemporaryFolder folder;
  std::string b = folder.write("b.txt", goodModule);
  std::string a = folder.write("a", "");

  std::vector<ModuleSource> sources = readModules({b, a});

  EXPECT_THAT(getNames(sources), ElementsAre(b, a));
  EXPECT_EQ(sources[0].bytes->getBuffer(), goodModule);
  EXPECT_EQ(sources[0].pipeline, "builtin.module(convert-func-to-llvm)");
  EXPECT_THAT(sources[0].error, IsEmpty());
  EXPECT_THAT(sources[1].pipeline, IsEmpty());
}

TEST(ModuleSourceTest, PathThatOccursTwiceIsReadOnce) {
  TemporaryFolder folder;
  std::string a = folder.write("m/a.mlir", "");

  EXPECT_THAT(getNames(readModules({a, folder.getPath("m"), a})),
              ElementsAre(a));
}

TEST(ModuleSourceTest, WhatCannotBeReadIsKeptWithItsError) {
  TemporaryFolder folder;
  folder.write("m/readme.md", "");

  std::vector<ModuleSource> sources =
      readModules({folder.getPath("none.mlir"), folder.getPath("m")});

  ASSERT_EQ(sources.size(), 2u);
  EXPECT_THAT(sources[0].error, HasSubstr("No such file"));
  EXPECT_FALSE(sources[0].bytes);
  EXPECT_THAT(sources[1].error, HasSubstr("ends in .mlir or .mlirbc"));
}

TEST(ModuleSourceTest, AFolderThatCannotBeSearchedIsKeptWithItsError) {
  if (geteuid() == 0)
    GTEST_SKIP() << "root may search every folder";
  TemporaryFolder folder;
  std::string a = folder.write("m/a.mlir", "");
  folder.write("m/sub/b.mlir", "");
  std::filesystem::permissions(folder.getPath("m/sub"),
                               std::filesystem::perms::none);
  std::vector<ModuleSource> sources = readModules({folder.getPath("m")});
  std::filesystem::permissions(folder.getPath("m/sub"),
                               std::filesystem::perms::owner_all);

  EXPECT_THAT(getNames(sources), ElementsAre(a, folder.getPath("m/sub")));
  EXPECT_THAT(sources.back().error, HasSubstr("cannot search the folder"));
}

TEST(ModuleSourceTest, EmptyBytecodeIsAnErrorAndEmptyTextIsNot) {
  TemporaryFolder folder;
  std::vector<ModuleSource> sources =
      readModules({folder.write("a.mlirbc", ""), folder.write("b.mlir", "")});

  EXPECT_THAT(sources[0].error, HasSubstr("the file is empty"));
  EXPECT_THAT(sources[1].error, IsEmpty());
}

TEST(ModuleSourceTest, LinksToFoldersAreNotFollowed) {
  TemporaryFolder folder;
  std::string a = folder.write("m/a.mlir", "");
  if (llvm::sys::fs::create_link(folder.getPath("m"), folder.getPath("m/loop")))
    GTEST_SKIP() << "the system has no links";

  EXPECT_THAT(getNames(readModules({folder.getPath("m")})), ElementsAre(a));
}

TEST(ModuleSourceTest, BytesAreAlignedForResources) {
  TemporaryFolder folder;
  std::vector<ModuleSource> sources =
      readModules({folder.write("a.mlir", "module {}")});
  for (ModuleSource &bundled : readBundledModules())
    sources.push_back(std::move(bundled));

  for (const ModuleSource &source : sources) {
    auto start = reinterpret_cast<uintptr_t>(source.bytes->getBufferStart());
    EXPECT_EQ(start % 64, 0u) << source.name;
    EXPECT_EQ(*source.bytes->getBufferEnd(), 0) << source.name;
  }
}

TEST(BundledModulesTest, AreSortedByNameAndCarryTheirPipelines) {
  std::vector<std::string> names = getNames(readBundledModules());

  EXPECT_TRUE(llvm::is_sorted(names));
  for (const ModuleSource &source : readBundledModules()) {
    EXPECT_THAT(source.name, testing::EndsWith(".mlir"));
    EXPECT_THAT(source.pipeline, testing::StartsWith("builtin.module("))
        << source.name;
  }
}

} // namespace

//===- TestFiles.cpp - Files and settings of tests ------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/support/TestFiles.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

namespace ctxpool::test {

std::filesystem::path sourceDir() { return CTXPOOL_TEST_SOURCE_DIR; }

std::optional<std::filesystem::path> sharedDir(llvm::StringRef folder) {
  const char *variable = std::getenv("CONTEXT_POOL_SHARED_DIR");
  std::filesystem::path base = variable ? variable : CTXPOOL_TEST_SHARED_DIR;
  std::filesystem::path path = base / folder.str();
  std::error_code error;
  if (!std::filesystem::is_directory(path, error))
    return std::nullopt;
  return path;
}

std::vector<std::filesystem::path>
moduleFiles(const std::filesystem::path &folder) {
  std::vector<std::filesystem::path> files;
  for (const auto &entry :
       std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().extension() == ".mlir")
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string readFile(const std::filesystem::path &path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

uint64_t numberFromEnvironment(const char *name, uint64_t otherwise) {
  const char *value = std::getenv(name);
  return value && *value ? std::strtoull(value, nullptr, 10) : otherwise;
}

TemporaryFolder::TemporaryFolder() {
  std::string name =
      (std::filesystem::temp_directory_path() / "ctxpool-XXXXXX").string();
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  folder = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

std::string TemporaryFolder::getPath(llvm::StringRef name) const {
  return (folder / name.str()).string();
}

std::string TemporaryFolder::write(llvm::StringRef name,
                                   llvm::StringRef contents) const {
  std::string path = getPath(name);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(),
                                      error);
  std::ofstream stream(path, std::ios::binary);
  stream << contents.str();
  EXPECT_TRUE(stream.flush()) << path;
  return path;
}

} // namespace ctxpool::test

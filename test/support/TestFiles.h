//===- TestFiles.h - Files and settings of tests -------------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_TEST_SUPPORT_TESTFILES_H
#define CONTEXT_POOL_TEST_SUPPORT_TESTFILES_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ctxpool::test {

/// The project's sources.
std::filesystem::path sourceDir();

/// Modules collected for tests, which are no part of the project: the variable
/// CONTEXT_POOL_SHARED_DIR, or `shared` beside the project. Nothing where there
/// is no such folder.
std::optional<std::filesystem::path> sharedDir(llvm::StringRef folder);

/// The `.mlir` files below the folder, sorted.
std::vector<std::filesystem::path>
moduleFiles(const std::filesystem::path &folder);

std::string readFile(const std::filesystem::path &path);

/// A folder of its own that is removed with all that is in it.
class TemporaryFolder {
public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;

  const std::filesystem::path &get() const { return folder; }
  std::string getPath(llvm::StringRef name) const;

  /// Writes a file, in folders that are made as needed, and returns its path.
  std::string write(llvm::StringRef name, llvm::StringRef contents) const;

private:
  std::filesystem::path folder;
};

/// A number from the environment.
uint64_t numberFromEnvironment(const char *name, uint64_t otherwise);

} // namespace ctxpool::test

#endif // CONTEXT_POOL_TEST_SUPPORT_TESTFILES_H

//===- CleanEnvironment.cpp - Tests without the caller's settings ---------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include <cstdlib>
#include <string>
#include <unistd.h>
#include <vector>

/// Unsets what steers caches: tests, and the tools that they run, are to do the
/// same for a caller who has settings of their own.
static bool unsetSettings() {
  std::vector<std::string> names;
  for (char **entry = environ; *entry; ++entry) {
    const std::string setting = *entry;
    if (setting.rfind("CTXPOOL_", 0) == 0)
      names.push_back(setting.substr(0, setting.find('=')));
  }
  for (const std::string &name : names)
    unsetenv(name.c_str()); // NOLINT(concurrency-mt-unsafe)
  return true;
}

[[maybe_unused]] static const bool done = unsetSettings();

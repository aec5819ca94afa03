//===- Environment.h - Environment variables of tests ---------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_TEST_SUPPORT_ENVIRONMENT_H
#define CONTEXT_POOL_TEST_SUPPORT_ENVIRONMENT_H

#include <cstdlib>
#include <optional>
#include <string>

namespace ctxpool::test {

/// A variable of the environment, which children inherit, for a scope. Then it
/// is again what it was.
class ScopedVariable {
public:
  // NOLINTBEGIN(concurrency-mt-unsafe)
  ScopedVariable(const char *theName, const std::string &value)
      : name(theName) {
    if (const char *old = std::getenv(name))
      before = old;
    setenv(name, value.c_str(), /*overwrite=*/1);
  }
  ~ScopedVariable() {
    if (before)
      setenv(name, before->c_str(), /*overwrite=*/1);
    else
      unsetenv(name);
  }
  // NOLINTEND(concurrency-mt-unsafe)
  ScopedVariable(const ScopedVariable &) = delete;
  ScopedVariable &operator=(const ScopedVariable &) = delete;

private:
  const char *const name;
  std::optional<std::string> before;
};

} // namespace ctxpool::test

#endif // CONTEXT_POOL_TEST_SUPPORT_ENVIRONMENT_H

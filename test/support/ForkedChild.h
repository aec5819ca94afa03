//===- ForkedChild.h - Code of tests that runs in a child ------ -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_TEST_SUPPORT_FORKEDCHILD_H
#define CONTEXT_POOL_TEST_SUPPORT_FORKEDCHILD_H

#include <functional>
#include <string>

namespace ctxpool::test {

/// How a child ends whose code came to its end.
enum class ChildExit {
  Quick, ///< By `_exit`: nothing is destroyed.
  Exit   ///< By `exit`: what is thread-local is destroyed, then what is static.
};

/// Forks, runs `body` in the child, and says how that ended: `exit 0` where
/// `body` returned true, `exit 1` where not, `signal <number>`, or `hangs`, after
/// which the child is killed.
std::string runInChild(const std::function<bool()> &body,
                       ChildExit how = ChildExit::Quick);

/// What crashes leaks, by design: from here on LeakSanitizer keeps quiet.
void expectLeaks();

} // namespace ctxpool::test

#endif // CONTEXT_POOL_TEST_SUPPORT_FORKEDCHILD_H

//===- StatusMatchers.h - GoogleTest matchers for absl::Status --*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// `EXPECT_THAT(x, IsOk())` and `EXPECT_THAT(x, StatusIs(code, "text"))`, for a
/// status or a status or value.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_TEST_SUPPORT_STATUSMATCHERS_H
#define CONTEXT_POOL_TEST_SUPPORT_STATUSMATCHERS_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <string>

namespace ctxpool::test {

inline absl::Status statusOf(const absl::Status &status) { return status; }
template <typename T>
absl::Status statusOf(const absl::StatusOr<T> &statusOr) {
  return statusOr.status();
}

MATCHER(IsOk, "is OK") {
  absl::Status status = statusOf(arg);
  *result_listener << "which is " << status.ToString();
  return status.ok();
}

/// A status with that code whose message contains `text`.
MATCHER_P2(StatusIs, code, text,
           "has code " + absl::StatusCodeToString(code) + " and says '" +
               std::string(text) + "'") {
  absl::Status status = statusOf(arg);
  *result_listener << "which is " << status.ToString();
  return status.code() == code &&
         std::string(status.message()).find(text) != std::string::npos;
}

} // namespace ctxpool::test

/// Defines `name` as the value of `expression`, or fails the test with the
/// status.
#define CTXPOOL_ASSERT_OK_AND_ASSIGN(name, expression)                         \
  auto name##OrStatus = (expression);                                          \
  ASSERT_THAT(name##OrStatus, ::ctxpool::test::IsOk());                        \
  auto name = *std::move(name##OrStatus)

#endif // CONTEXT_POOL_TEST_SUPPORT_STATUSMATCHERS_H

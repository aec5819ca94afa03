//===- CacheSettingsTest.cpp - Caches steered by the environment --------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/CacheSettings.h"

#include "test/support/StatusMatchers.h"

#include "gtest/gtest.h"

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

using namespace ctxpool;
using namespace ctxpool::detail;
using namespace ctxpool::test;

namespace {

/// Sets environment variables for a test, and sets them back.
class CacheSettingsTest : public testing::Test {
protected:
  CacheSettingsTest() {
    for (const char *name :
         {"CTXPOOL_MODE", "CTXPOOL_MEMORY_BYTES", "CTXPOOL_DIR",
          "CTXPOOL_DIR_BYTES", "CTXPOOL_CROSS_PROCESS_WAIT", "CTXPOOL_REMOTE",
          "CTXPOOL_REMOTE_SECRET", "CTXPOOL_REMOTE_TIMEOUT",
          "CTXPOOL_REMOTE_EXPIRY", "CTXPOOL_REMOTE_MAX_BYTES", "XDG_CACHE_HOME",
          "HOME"}) {
      const char *value = getenv(name);
      before[name] = value ? std::optional<std::string>(value) : std::nullopt;
      unsetenv(name);
    }
  }
  ~CacheSettingsTest() override {
    for (auto &[name, value] : before)
      value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
  }

  static void set(const char *name, const char *value) {
    setenv(name, value, 1);
  }

private:
  std::map<std::string, std::optional<std::string>> before;
};

} // namespace

TEST_F(CacheSettingsTest, DefaultDirectoryComesFromTheEnvironment) {
  set("CTXPOOL_DIR", "/a");
  set("XDG_CACHE_HOME", "/b");
  set("HOME", "/c");
  EXPECT_EQ(*getDefaultCacheDirectory(), "/a");

  set("CTXPOOL_DIR", "");
  EXPECT_EQ(*getDefaultCacheDirectory(), "/b/context_pool");

  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(*getDefaultCacheDirectory(), "/c/.cache/context_pool");

  unsetenv("HOME");
  EXPECT_THAT(getDefaultCacheDirectory(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "HOME"));
}

TEST_F(CacheSettingsTest, WhatTheEnvironmentDoesNotSayStays) {
  CompileCacheOptions options;
  options.directory = "/here";
  options.memoryBytes = 5;
  options.mode = CompileCacheOptions::Mode::ReadOnly;
  set("CTXPOOL_MODE", "");

  CTXPOOL_ASSERT_OK_AND_ASSIGN(read, readCacheEnvironment(options));

  EXPECT_EQ(read.directory, "/here");
  EXPECT_EQ(read.memoryBytes, 5u);
  EXPECT_EQ(read.mode, CompileCacheOptions::Mode::ReadOnly);
}

TEST_F(CacheSettingsTest, EachFieldHasItsVariable) {
  set("CTXPOOL_MODE", "recompute");
  set("CTXPOOL_MEMORY_BYTES", "512M");
  set("CTXPOOL_DIR", "/there");
  set("CTXPOOL_DIR_BYTES", "20G");
  set("CTXPOOL_CROSS_PROCESS_WAIT", "90s");
  set("CTXPOOL_REMOTE", "redis://host:1");
  set("CTXPOOL_REMOTE_SECRET", "hush");
  set("CTXPOOL_REMOTE_TIMEOUT", "500ms");
  set("CTXPOOL_REMOTE_EXPIRY", "inf");
  set("CTXPOOL_REMOTE_MAX_BYTES", "16M");

  CTXPOOL_ASSERT_OK_AND_ASSIGN(read, readCacheEnvironment());

  EXPECT_EQ(read.mode, CompileCacheOptions::Mode::Recompute);
  EXPECT_EQ(read.memoryBytes, 512u << 20);
  EXPECT_EQ(read.directory, "/there");
  EXPECT_EQ(read.directoryBytes, 20ull << 30);
  EXPECT_EQ(read.crossProcessWait, absl::Seconds(90));
  EXPECT_EQ(read.remote, "redis://host:1");
  EXPECT_EQ(read.remoteSecret, "hush");
  EXPECT_EQ(read.remoteConnectTimeout, absl::Milliseconds(500));
  EXPECT_EQ(read.remoteCallTimeout, absl::Milliseconds(500));
  EXPECT_EQ(read.remoteTotalTimeout, absl::Seconds(2));
  EXPECT_EQ(read.remoteExpiry, absl::InfiniteDuration());
  EXPECT_EQ(read.remoteMaxArtifactBytes, 16u << 20);
}

TEST_F(CacheSettingsTest, ATimeoutOfTheServerIsNotCutShortByThatOfAllItsCalls) {
  set("CTXPOOL_REMOTE_TIMEOUT", "5s");

  CTXPOOL_ASSERT_OK_AND_ASSIGN(read, readCacheEnvironment());

  EXPECT_EQ(read.remoteTotalTimeout, absl::Seconds(5));
}

TEST_F(CacheSettingsTest, AValueThatIsNotUnderstoodIsAnError) {
  for (auto [variable, value] : {std::pair("CTXPOOL_MODE", "readonly"),
                                 {"CTXPOOL_MEMORY_BYTES", "much"},
                                 {"CTXPOOL_DIR_BYTES", "-1"},
                                 {"CTXPOOL_CROSS_PROCESS_WAIT", "90"},
                                 {"CTXPOOL_REMOTE_TIMEOUT", "long"},
                                 {"CTXPOOL_REMOTE_EXPIRY", "soon"},
                                 {"CTXPOOL_REMOTE_MAX_BYTES", "1.5M"}}) {
    set(variable, value);
    absl::StatusOr<CompileCacheOptions> read = readCacheEnvironment();
    EXPECT_THAT(read, StatusIs(absl::StatusCode::kInvalidArgument, variable));
    EXPECT_THAT(read, StatusIs(absl::StatusCode::kInvalidArgument, value));
    EXPECT_THAT(read, StatusIs(absl::StatusCode::kInvalidArgument, "expected"));
    unsetenv(variable);
  }
}

TEST_F(CacheSettingsTest, EachModeHasAName) {
  using Mode = CompileCacheOptions::Mode;
  EXPECT_EQ(*parseCacheMode("read-write"), Mode::ReadWrite);
  EXPECT_EQ(*parseCacheMode("read-only"), Mode::ReadOnly);
  EXPECT_EQ(*parseCacheMode("recompute"), Mode::Recompute);
  EXPECT_EQ(*parseCacheMode("off"), Mode::Off);
}

TEST_F(CacheSettingsTest, BytesHaveUnitsOfPowersOf1024) {
  EXPECT_EQ(*parseBytes("0"), 0u);
  EXPECT_EQ(*parseBytes("1000000"), 1000000u);
  EXPECT_EQ(*parseBytes("3K"), 3u << 10);
  EXPECT_EQ(*parseBytes("2T"), 2ull << 40);
  for (const char *text : {"", "K", "1k", "1KB", "99999999999999999999",
                           "18014398509481984K", " 1", "0x10"})
    EXPECT_THAT(parseBytes(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                           "is not a number of bytes"))
        << text;
}

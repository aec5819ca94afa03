//===- RemoteAddressTest.cpp - Addresses of remote caches -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/RemoteAddress.h"

#include "test/support/StatusMatchers.h"

using namespace ctxpool;
using namespace ctxpool::detail;
using namespace ctxpool::test;

TEST(RemoteAddressTest, DefaultsAreRedissOwn) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(address, RemoteAddress::parse("redis://cache"));

  EXPECT_FALSE(address.tls);
  EXPECT_EQ(address.host, "cache");
  EXPECT_EQ(address.port, 6379);
  EXPECT_EQ(address.user, "");
  EXPECT_EQ(address.password, "");
  EXPECT_EQ(address.database, 0u);
  EXPECT_EQ(address.certificates, "");
}

TEST(RemoteAddressTest, EveryPartIsRead) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      address, RemoteAddress::parse("rediss://ci:p%40s%3as%2F%25@cache.example:"
                                    "7000/12?cacert=/etc/my%20ca.pem"));

  EXPECT_TRUE(address.tls);
  EXPECT_EQ(address.user, "ci");
  EXPECT_EQ(address.password, "p@s:s/%");
  EXPECT_EQ(address.host, "cache.example");
  EXPECT_EQ(address.port, 7000);
  EXPECT_EQ(address.database, 12u);
  EXPECT_EQ(address.certificates, "/etc/my ca.pem");
}

TEST(RemoteAddressTest, APasswordNeedsNoUser) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(address,
                               RemoteAddress::parse("redis://:secret@cache/"));

  EXPECT_EQ(address.user, "");
  EXPECT_EQ(address.password, "secret");
  EXPECT_EQ(address.database, 0u);
}

TEST(RemoteAddressTest, AnAddressOfIPv6StandsInBrackets) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(address,
                               RemoteAddress::parse("redis://[::1]:7000/1"));

  EXPECT_EQ(address.host, "::1");
  EXPECT_EQ(address.port, 7000);
  EXPECT_EQ(address.toString(), "[::1]:7000/1");
}

TEST(RemoteAddressTest, TheTextHasNoPassword) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      address, RemoteAddress::parse("redis://user:secret@cache/3"));

  EXPECT_EQ(address.toString(), "cache:6379/3");
}

TEST(RemoteAddressTest, ErrorsNameThePartAndQuoteNothing) {
  struct Case {
    const char *url;
    const char *part;
  } cases[] = {
      {"http://hunter2", "the scheme"},
      {"hunter2", "the scheme"},
      {"redis://", "no host"},
      {"redis://user:hunter2@", "no host"},
      {"redis://:hunter2@:6379", "no host"},
      {"redis://hunter2@host", "a user without a password"},
      {"redis://hunter2:@host", "the password is empty"},
      {"redis://user:hunter2%@host", "a '%'"},
      {"redis://hunter2%x1:a@host", "a '%'"},
      // Passwords that were not encoded.
      {"redis://user:hun/ter2@host", "the port"},
      {"redis://user:hun?ter2@host", "the port"},
      {"redis://user:hun#ter2@host", "a '#'"},
      {"redis://hun ter2", "the host has a character"},
      {"redis://host:", "the port"},
      {"redis://host:0", "the port"},
      {"redis://host:65536", "the port"},
      {"redis://host:hunter2", "the port"},
      {"redis://host/hunter2", "the database"},
      {"redis://host/-1", "the database"},
      {"redis://host/2147483648", "the database"},
      {"redis://host/1/2", "the database"},
      {"redis://[::1", "a '[' without a ']'"},
      {"redis://[hunter2]", "not an IPv6 address"},
      {"redis://[::1]hunter2", "something other than a port"},
      {"rediss://host?hunter2=1", "an unknown parameter"},
      {"rediss://host?cacert=", "cacert is not the name of a file"},
      {"rediss://host?cacert=hunter2%", "cacert is not the name of a file"},
      {"rediss://host?cacert=hunter2%00", "cacert is not the name of a file"},
      {"redis://host?cacert=hunter2", "cacert without TLS"},
  };
  for (const Case &each : cases) {
    absl::StatusOr<RemoteAddress> address = RemoteAddress::parse(each.url);

    EXPECT_THAT(address,
                StatusIs(absl::StatusCode::kInvalidArgument, each.part))
        << each.url;
    EXPECT_THAT(address,
                StatusIs(absl::StatusCode::kInvalidArgument, "remote: "))
        << each.url;
    for (const char *piece : {"hunter2", "hun", "ter2"})
      EXPECT_EQ(std::string(address.status().message()).find(piece),
                std::string::npos)
          << address.status().message();
  }
}

//===- RemoteAddress.cpp - Where a remote cache is ------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/RemoteAddress.h"

#include "absl/strings/str_cat.h"
#include "llvm/ADT/StringExtras.h"

#include <arpa/inet.h>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;

static absl::Status malformed(llvm::StringRef reason) {
  return absl::InvalidArgumentError(
      absl::StrCat("remote: ", reason.str(),
                   "; expected redis://[user:password@]host[:port][/database], "
                   "where each of "
                   "/ ? # @ : % in user and password is percent-encoded"));
}

/// Nothing where a % is not followed by two hexadecimal digits.
static std::optional<std::string> percentDecode(llvm::StringRef text) {
  std::string decoded;
  while (!text.empty()) {
    if (text.front() != '%') {
      decoded += text.front();
      text = text.drop_front();
      continue;
    }
    if (text.size() < 3 || !llvm::isHexDigit(text[1]) ||
        !llvm::isHexDigit(text[2]))
      return std::nullopt;
    decoded += static_cast<char>(llvm::hexFromNibbles(text[1], text[2]));
    text = text.drop_front(3);
  }
  return decoded;
}

static absl::Status parseUser(llvm::StringRef text, RemoteAddress &address) {
  size_t colon = text.find(':');
  // Some tools take a lone word as the user and some as the password.
  if (colon == llvm::StringRef::npos)
    return malformed("a user without a password; a password alone is written "
                     "':password@'");
  std::optional<std::string> user = percentDecode(text.take_front(colon));
  std::optional<std::string> password = percentDecode(text.substr(colon + 1));
  if (!user || !password)
    return malformed(
        "a '%' in user or password without two hexadecimal digits");
  if (password->empty())
    return malformed("the password is empty");
  address.user = *std::move(user);
  address.password = *std::move(password);
  return absl::OkStatus();
}

static absl::Status parseHost(llvm::StringRef text, RemoteAddress &address) {
  llvm::StringRef port;
  bool hasPort = false;
  if (text.consume_front("[")) {
    size_t bracket = text.find(']');
    if (bracket == llvm::StringRef::npos)
      return malformed("a '[' without a ']' in the host");
    address.host = text.take_front(bracket).str();
    in6_addr unused;
    if (inet_pton(AF_INET6, address.host.c_str(), &unused) != 1)
      return malformed("the host in brackets is not an IPv6 address");
    port = text.substr(bracket + 1);
    hasPort = port.consume_front(":");
    if (!hasPort && !port.empty())
      return malformed("something other than a port follows the host");
  } else {
    hasPort = text.contains(':');
    llvm::StringRef host;
    std::tie(host, port) = text.split(':');
    if (host.empty())
      return malformed("no host");
    for (char c : host)
      if (!llvm::isAlnum(c) && c != '-' && c != '.' && c != '_')
        return malformed("the host has a character that no host has");
    address.host = host.str();
  }
  if (hasPort && (port.getAsInteger(10, address.port) || address.port == 0))
    return malformed("the port is not a number from 1 to 65535");
  return absl::OkStatus();
}

static absl::Status parseQuery(llvm::StringRef text, RemoteAddress &address) {
  if (!text.consume_front("cacert="))
    return malformed("an unknown parameter; the only one is cacert=FILE");
  if (!address.tls)
    return malformed("cacert without TLS: the scheme has to be rediss");
  std::optional<std::string> file = percentDecode(text);
  if (!file || file->empty() || llvm::StringRef(*file).contains('\0'))
    return malformed("cacert is not the name of a file");
  address.certificates = *std::move(file);
  return absl::OkStatus();
}

absl::StatusOr<RemoteAddress> RemoteAddress::parse(llvm::StringRef url) {
  RemoteAddress address;
  if (url.consume_front_insensitive("rediss://"))
    address.tls = true;
  else if (!url.consume_front_insensitive("redis://"))
    return malformed("the scheme is not redis or rediss");
  if (url.contains('#'))
    return malformed("a '#'");

  llvm::StringRef query;
  bool hasQuery = url.contains('?');
  std::tie(url, query) = url.split('?');
  auto [authority, path] = url.split('/');

  if (authority.contains('@')) {
    auto [user, host] = authority.rsplit('@');
    if (absl::Status status = parseUser(user, address); !status.ok())
      return status;
    authority = host;
  }
  if (absl::Status status = parseHost(authority, address); !status.ok())
    return status;
  // Redis counts its databases in an int.
  if (!path.empty() && (path.getAsInteger(10, address.database) ||
                        address.database > std::numeric_limits<int>::max()))
    return malformed("the database is not a number");
  if (hasQuery)
    if (absl::Status status = parseQuery(query, address); !status.ok())
      return status;
  return address;
}

std::string RemoteAddress::toString() const {
  bool isIPv6 = llvm::StringRef(host).contains(':');
  return absl::StrCat(isIPv6 ? "[" : "", host, isIPv6 ? "]:" : ":", port, "/",
                      database);
}

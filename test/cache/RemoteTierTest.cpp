//===- RemoteTierTest.cpp - Artifacts shared through a server -------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/RemoteTier.h"

#include "context_pool/cache/RedisConnection.h"
#include "context_pool/cache/RemoteValue.h"
#include "context_pool/cache/Transport.h"
#include "test/cache/CacheTestSupport.h"
#include "test/cache/RedisServer.h"
#include "test/support/ForkedChild.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"

#include "llvm/Support/Program.h"

#include <netdb.h>
#include <poll.h>
#include <random>

using namespace ctxpool;
using namespace ctxpool::detail;
using namespace ctxpool::test;
using absl::StatusCode;
using testing::HasSubstr;
using testing::Not;

namespace {

//===----------------------------------------------------------------------===//
// Helpers
//===----------------------------------------------------------------------===//

/// The time of a circuit, which stands still until a test moves it.
class ManualClock {
public:
  CircuitOptions::Clock::time_point get() const {
    return CircuitOptions::Clock::time_point(std::chrono::seconds(seconds));
  }
  void advance(int64_t by) { seconds += by; }

private:
  std::atomic<int64_t> seconds{1};
};

/// Options with which nothing fails for taking long.
RemoteTierOptions makePatient(std::string url) {
  RemoteTierOptions options;
  options.url = std::move(url);
  options.connectTimeout = absl::FromChrono(deadline);
  options.callTimeout = absl::FromChrono(deadline);
  options.totalTimeout = absl::FromChrono(deadline);
  options.maxArtifactBytes = 32 << 20;
  options.circuit.patience = std::chrono::hours(1);
  return options;
}

std::string randomBytes(size_t size, unsigned seed = 1) {
  std::mt19937_64 generator(seed);
  std::string bytes;
  while (bytes.size() < size) {
    uint64_t word = generator();
    bytes.append(reinterpret_cast<const char *>(&word), sizeof(word));
  }
  bytes.resize(size);
  return bytes;
}

Artifact makeArtifact(llvm::StringRef bytes) {
  return Artifact::copyOf("object", bytes)
      .withMeaning(keyOf(77).digest)
      .withCompileCost(absl::Milliseconds(12));
}

/// The bytes under a key, or `miss`, or the error.
std::string getText(RemoteTier &tier, const CacheKey &key) {
  absl::StatusOr<std::optional<Artifact>> artifact = tier.get(key);
  if (!artifact.ok())
    return artifact.status().ToString();
  return *artifact ? (*artifact)->getBytes().str() : "miss";
}

std::string bulk(llvm::StringRef text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text.str() + "\r\n";
}

/// What a server holds for an artifact under a key, where there is no secret.
std::string makeValue(const CacheKey &key, const Artifact &artifact) {
  RemoteValueFormat format("", 32 << 20);
  return *format.encode(format.makeName(key), artifact);
}

/// Certificates that `openssl` made; that for `host` is its own authority.
class Certificates {
public:
  static bool canBeMade() {
    return static_cast<bool>(llvm::sys::findProgramByName("openssl"));
  }

  explicit Certificates(llvm::StringRef host) {
    std::string alternative = ("subjectAltName=" + host).str();
    std::string key = getKey(), file = getFile();
    int status = llvm::sys::ExecuteAndWait(
        *llvm::sys::findProgramByName("openssl"),
        {"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=context_pool",
         "-keyout", key, "-out", file, "-addext", alternative},
        std::nullopt, {std::nullopt, "", ""});
    EXPECT_EQ(status, 0);
  }

  std::string getFile() const { return folder.get() / "certificate.pem"; }
  std::string getKey() const { return folder.get() / "key.pem"; }
  std::vector<std::string> getArguments() const {
    return {"--tls-cert-file",    getFile(), "--tls-key-file",     getKey(),
            "--tls-ca-cert-file", getFile(), "--tls-auth-clients", "no"};
  }

private:
  TemporaryFolder folder;
};

/// With a real server.
class RemoteTierTest : public testing::Test {
protected:
  void SetUp() override {
    if (!RedisServer::isInstalled())
      GTEST_SKIP() << "redis-server is not installed (package redis-server)";
  }
};

/// With TLS as well.
class RemoteTierTlsTest : public RemoteTierTest {
protected:
  void SetUp() override {
    RemoteTierTest::SetUp();
    if (!Certificates::canBeMade())
      GTEST_SKIP() << "openssl is not installed (package openssl)";
    if (absl::IsUnimplemented(
            RemoteTier::create(makePatient("rediss://host")).status()))
      GTEST_SKIP() << "built without TLS (package libssl-dev)";
  }
};

} // namespace

//===----------------------------------------------------------------------===//
// Artifacts
//===----------------------------------------------------------------------===//

TEST_F(RemoteTierTest, GivesBackWhatWasPut) {
  RedisServer server;
  for (const char *secret : {"", "secret"}) {
    RemoteTierOptions options = makePatient(server.getUrl());
    options.secret = secret;
    CTXPOOL_ASSERT_OK_AND_ASSIGN(writer, RemoteTier::create(options));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(reader, RemoteTier::create(options));
    Artifact artifact = makeArtifact(randomBytes(100000));

    EXPECT_EQ(getText(*reader, keyOf(1)), "miss");
    ASSERT_THAT(writer->put(keyOf(1), artifact, false), IsOk());
    CTXPOOL_ASSERT_OK_AND_ASSIGN(found, reader->get(keyOf(1)));

    ASSERT_TRUE(found);
    EXPECT_EQ(found->getBytes(), artifact.getBytes());
    EXPECT_EQ(found->getKind(), "object");
    EXPECT_EQ(found->getMeaning(), artifact.getMeaning());
    EXPECT_EQ(found->getCompileCost(), absl::Milliseconds(12));
    EXPECT_EQ(getText(*reader, keyOf(2)), "miss");
    EXPECT_EQ(reader->getStats().rejected, 0u);
  }
}

TEST_F(RemoteTierTest, TakesLargeAndEmptyArtifacts) {
  RedisServer server;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));
  std::string large = randomBytes(20 << 20);
  ASSERT_THAT(tier->put(keyOf(1), makeArtifact(large), false), IsOk());
  ASSERT_THAT(tier->put(keyOf(2), makeArtifact(""), false), IsOk());

  EXPECT_EQ(getText(*tier, keyOf(1)), large);
  EXPECT_EQ(getText(*tier, keyOf(2)), "");
}

TEST_F(RemoteTierTest, WhatIsThereStaysUnlessReplaced) {
  RedisServer server;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));
  ASSERT_THAT(tier->put(keyOf(1), makeArtifact("first"), false), IsOk());

  EXPECT_THAT(tier->put(keyOf(1), makeArtifact("second"), false), IsOk());
  EXPECT_EQ(getText(*tier, keyOf(1)), "first");

  EXPECT_THAT(tier->put(keyOf(1), makeArtifact("third"), true), IsOk());
  EXPECT_EQ(getText(*tier, keyOf(1)), "third");
}

TEST_F(RemoteTierTest, WritesThatGoTogetherHaveAResultEach) {
  RedisServer server;
  RemoteTierOptions options = makePatient(server.getUrl());
  options.maxArtifactBytes = 1000;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));
  ASSERT_THAT(tier->put(keyOf(1), makeArtifact("first"), false), IsOk());
  std::vector<TierWrite> writes = {
      {keyOf(0), makeArtifact("zero"), false},
      {keyOf(1), makeArtifact("stays"), false},
      {keyOf(2), makeArtifact(randomBytes(1001)), false},
      {keyOf(3), makeArtifact("three"), true}};

  std::vector<absl::Status> results = tier->putAll(writes);
  ASSERT_EQ(results.size(), 4u);
  EXPECT_THAT(results[0], IsOk());
  EXPECT_THAT(results[1], IsOk());
  EXPECT_THAT(results[2], StatusIs(StatusCode::kResourceExhausted,
                                   keyOf(2).digest.toHex()));
  EXPECT_THAT(results[3], IsOk());

  EXPECT_EQ(getText(*tier, keyOf(0)), "zero");
  EXPECT_EQ(getText(*tier, keyOf(1)), "first");
  EXPECT_EQ(getText(*tier, keyOf(2)), "miss");
  EXPECT_EQ(getText(*tier, keyOf(3)), "three");
}

TEST(RemoteTierFaultTest, WritesThatGoTogetherDoNotWaitForOneAnothersReplies) {
  FalseServer server([](FalseServer::Client &client, unsigned) {
    // Answers nothing before it has the last of them.
    size_t sets = 0;
    std::string text;
    while (sets != 3) {
      std::string bytes = client.read();
      if (bytes.empty())
        return;
      text += bytes;
      sets = llvm::StringRef(text).count("$3\r\nSET\r\n");
    }
    client.write("+OK\r\n-OOM no room\r\n+OK\r\n");
    client.awaitClose();
  });
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));
  Artifact artifact = makeArtifact("bytes");

  EXPECT_THAT(
      tier->putAll({{keyOf(1), artifact, false},
                    {keyOf(2), artifact, false},
                    {keyOf(3), artifact, false}}),
      testing::ElementsAre(IsOk(),
                           StatusIs(StatusCode::kFailedPrecondition,
                                    "the server refused SET: OOM no room"),
                           IsOk()));
  EXPECT_EQ(server.getConnections(), 1u);
}

TEST_F(RemoteTierTest, ArtifactsExpire) {
  RedisServer server;
  RemoteTierOptions options = makePatient(server.getUrl());
  std::string name = RemoteValueFormat("", 1).makeName(keyOf(1));
  for (bool replace : {false, true}) {
    options.expiry = absl::Hours(1);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(mortal, RemoteTier::create(options));
    ASSERT_THAT(mortal->put(keyOf(1), makeArtifact("bytes"), replace), IsOk());
    int left = std::stoi(server.run({"TTL", name}));
    EXPECT_GT(left, 0);
    EXPECT_LE(left, 3600);
    server.run({"FLUSHDB"});
  }
  options.expiry = absl::InfiniteDuration();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(immortal, RemoteTier::create(options));
  ASSERT_THAT(immortal->put(keyOf(1), makeArtifact("bytes"), false), IsOk());
  EXPECT_EQ(server.run({"TTL", name}), "-1");
}

TEST_F(RemoteTierTest, ClearRemovesItsOwnAndNothingElse) {
  RedisServer server;
  RemoteTierOptions options = makePatient(server.getUrl());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));
  options.secret = "secret";
  CTXPOOL_ASSERT_OK_AND_ASSIGN(secretive, RemoteTier::create(options));
  ASSERT_THAT(secretive->put(keyOf(1), makeArtifact("kept"), false), IsOk());
  server.run({"SET", "foreign", "kept"});
  server.run({"SET", "ctxpool:v1:short", "kept"});
  for (unsigned i = 0; i < 2500; ++i)
    ASSERT_THAT(tier->put(keyOf(i), makeArtifact("bytes"), false), IsOk());

  ASSERT_THAT(tier->clear(), IsOk());

  EXPECT_EQ(server.run({"DBSIZE"}), "3");
  EXPECT_EQ(getText(*tier, keyOf(1)), "miss");
  EXPECT_EQ(getText(*secretive, keyOf(1)), "kept");
  EXPECT_THAT(tier->clear(), IsOk());
}

TEST_F(RemoteTierTest, ListsItsOwnByKeyWithTheirExpiry) {
  RedisServer server;
  RemoteTierOptions options = makePatient(server.getUrl());
  options.expiry = absl::Hours(1);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));
  options.expiry = absl::InfiniteDuration();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(immortal, RemoteTier::create(options));
  options.secret = "secret";
  CTXPOOL_ASSERT_OK_AND_ASSIGN(secretive, RemoteTier::create(options));
  ASSERT_THAT(secretive->put(keyOf(1), makeArtifact("other"), false), IsOk());
  server.run({"SET", "foreign", "value"});
  server.run({"SET",
              RemoteValueFormat("", 1).getPrefix() + std::string(64, '?'),
              "value"});
  // More than one page.
  for (unsigned i = 0; i < 2500; ++i)
    ASSERT_THAT(tier->put(keyOf(i), makeArtifact(std::string(i, 'x')), false),
                IsOk());
  ASSERT_THAT(immortal->put(keyOf(7), makeArtifact("1234567"), true), IsOk());

  CTXPOOL_ASSERT_OK_AND_ASSIGN(entries, tier->list());

  ASSERT_EQ(entries.size(), 2500u);
  uint64_t bytes = 0;
  const TierEntry *last = nullptr;
  for (const TierEntry &entry : entries) {
    ASSERT_TRUE(entry.key);
    EXPECT_TRUE(!last || last->key->digest < entry.key->digest);
    last = &entry;
    EXPECT_EQ(entry.kind, "object");
    EXPECT_EQ(entry.compileCost, absl::Milliseconds(12));
    bytes += entry.bytes;
    if (*entry.key == keyOf(7)) {
      EXPECT_EQ(entry.expiresIn, absl::InfiniteDuration());
    } else {
      EXPECT_GT(entry.expiresIn, absl::ZeroDuration());
      EXPECT_LE(entry.expiresIn, absl::Hours(1));
    }
  }
  EXPECT_EQ(bytes, 2500u * 2499 / 2);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(others, secretive->list());
  EXPECT_EQ(others.size(), 1u);
}

TEST_F(RemoteTierTest, VerifyNamesWhatGetWouldRejectAndLeavesIt) {
  RedisServer server;
  RemoteTierOptions options = makePatient(server.getUrl());
  options.secret = "secret";
  options.maxArtifactBytes = 100000;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));
  RemoteValueFormat format("secret", 100000);
  for (unsigned i = 0; i < 10; ++i)
    ASSERT_THAT(tier->put(keyOf(i), makeArtifact(randomBytes(1000, i)), false),
                IsOk());
  auto nameOf = [&](unsigned number) { return format.makeName(keyOf(number)); };
  server.run({"SETRANGE", nameOf(1), "700", "damage"});
  server.run({"SET", nameOf(2), "junk"});
  server.run({"SET", nameOf(3), server.run({"GET", nameOf(0)})});
  server.run(
      {"SET", nameOf(4),
       *RemoteValueFormat("", 100000).encode(nameOf(4), makeArtifact("evil"))});
  server.run({"SET", nameOf(5), std::string(1 << 20, 'x')});
  server.run({"DEL", nameOf(6)});
  server.run({"LPUSH", nameOf(6), "element"});
  std::string before = server.run({"GET", nameOf(1)});

  CTXPOOL_ASSERT_OK_AND_ASSIGN(verified, tier->verify());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(entries, tier->list());

  EXPECT_EQ(verified.entries, 10u);
  ASSERT_EQ(verified.damaged.size(), 6u);
  std::set<Fingerprint> damaged;
  for (const TierEntry &entry : verified.damaged) {
    ASSERT_TRUE(entry.key);
    damaged.insert(entry.key->digest);
    // What it says of itself, where it says something.
    EXPECT_EQ(entry.kind, *entry.key == keyOf(1) || *entry.key == keyOf(3) ||
                                  *entry.key == keyOf(4)
                              ? "object"
                              : "");
  }
  for (unsigned i = 1; i <= 6; ++i)
    EXPECT_EQ(damaged.count(keyOf(i).digest), 1u) << i;
  EXPECT_EQ(entries.size(), 10u);
  EXPECT_EQ(server.run({"GET", nameOf(1)}), before);
  EXPECT_EQ(server.run({"DBSIZE"}), "10");
  EXPECT_EQ(tier->getStats().rejected, 0u);
  EXPECT_EQ(tier->getState().circuit.failures, 0u);
}

TEST_F(RemoteTierTest, TheServerTellsWhatItHasDeleted) {
  RedisServer server(
      {"--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru"});
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(before, tier->countDeleted());
  EXPECT_EQ(before.evicted, 0u);
  constexpr unsigned count = 100;
  for (unsigned i = 0; i < count; ++i)
    ASSERT_THAT(
        tier->put(keyOf(i), makeArtifact(randomBytes(100000, i)), false),
        IsOk());

  CTXPOOL_ASSERT_OK_AND_ASSIGN(after, tier->countDeleted());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(left, tier->list());
  CTXPOOL_ASSERT_OK_AND_ASSIGN(afterList, tier->countDeleted());

  EXPECT_GT(after.evicted, 0u);
  // Also a list takes the server memory.
  EXPECT_LE(after.evicted + left.size(), count);
  EXPECT_GE(afterList.evicted + left.size(), count);
  EXPECT_EQ(afterList.expired, 0u);
}

TEST_F(RemoteTierTest, WhoMayNotAskForCountsStillReads) {
  RedisServer server;
  server.run({"ACL", "SETUSER", "ci", "on", ">hunter2", "~ctxpool:*", "+get"});
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl("ci:hunter2@"))));

  EXPECT_THAT(tier->countDeleted(),
              StatusIs(StatusCode::kFailedPrecondition, "NOPERM"));
  EXPECT_EQ(getText(*tier, keyOf(1)), "miss");
  EXPECT_EQ(tier->getState().circuit.failures, 0u);
}

TEST_F(RemoteTierTest, WhoMayNotClearOrListStillReads) {
  RedisServer server;
  server.run(
      {"ACL", "SETUSER", "reader", "on", ">hunter2", "~ctxpool:*", "+get"});
  server.run({"ACL", "SETUSER", "lister", "on", ">hunter2", "~ctxpool:*",
              "+get", "+scan"});
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      writer, RemoteTier::create(makePatient(server.getUrl())));
  ASSERT_THAT(writer->put(keyOf(1), makeArtifact("bytes"), false), IsOk());
  for (const char *user : {"reader:hunter2@", "lister:hunter2@"}) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        tier, RemoteTier::create(makePatient(server.getUrl(user))));
    for (int i = 0; i < 10; ++i) {
      EXPECT_THAT(tier->clear(),
                  StatusIs(StatusCode::kFailedPrecondition, "NOPERM"));
      EXPECT_THAT(tier->list(),
                  StatusIs(StatusCode::kFailedPrecondition, "NOPERM"));
    }
    EXPECT_EQ(getText(*tier, keyOf(1)), "bytes");
    EXPECT_EQ(tier->getState().circuit.failures, 0u);
  }
}

TEST(RemoteTierFaultTest, CountsThatAreMissingAreAnError) {
  FalseServer server([&](FalseServer::Client &client, unsigned) {
    client.read();
    client.write(bulk("# Stats\r\nevicted_keys:7\r\nexpired_keys:x\r\n"));
    client.awaitClose();
  });
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));
  EXPECT_THAT(tier->countDeleted(),
              StatusIs(StatusCode::kDataLoss, "lacks the counts"));
}

TEST(RemoteTierFaultTest, WhatDoesNotAnswerCannotBeListed) {
  ReservedPort port;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier,
                               RemoteTier::create(makePatient(port.getUrl())));
  EXPECT_THAT(tier->list(), StatusIs(StatusCode::kUnavailable, "127.0.0.1"));
  EXPECT_THAT(tier->verify(), StatusIs(StatusCode::kUnavailable, "127.0.0.1"));
}

TEST(RemoteTierFaultTest, AServerThatRepeatsNamesIsListedOnce) {
  RemoteValueFormat format("", 32 << 20);
  std::string name = format.makeName(keyOf(1));
  std::string value = makeValue(keyOf(1), makeArtifact("bytes"));
  FalseServer server([&](FalseServer::Client &client, unsigned) {
    client.read();
    client.write("*2\r\n" + bulk("0") + "*4\r\n" + bulk(name) + bulk(name) +
                 bulk("foreign") + bulk(name));
    client.read();
    client.write(":-1\r\n" + bulk(value));
    client.awaitClose();
  });
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(entries, tier->list());
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries.front().bytes, 5u);
}

TEST_F(RemoteTierTest, AnArtifactThatIsTooLargeIsRefused) {
  RedisServer server;
  RemoteTierOptions options = makePatient(server.getUrl());
  options.maxArtifactBytes = 1000;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));

  EXPECT_EQ(tier->getMaxArtifactBytes(), 1000u);
  EXPECT_THAT(tier->put(keyOf(1), makeArtifact(std::string(1001, 'x')), false),
              StatusIs(StatusCode::kResourceExhausted, "at most 1000"));
  EXPECT_THAT(tier->put(keyOf(2), makeArtifact(std::string(1000, 'x')), false),
              IsOk());

  EXPECT_EQ(getText(*tier, keyOf(1)), "miss");
  EXPECT_EQ(getText(*tier, keyOf(2)), std::string(1000, 'x'));
  EXPECT_EQ(tier->getState().circuit.failures, 0u);
}

TEST_F(RemoteTierTest, DatabasesAreSeparate) {
  RedisServer server;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      first, RemoteTier::create(makePatient(server.getUrl("", "/1"))));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      second, RemoteTier::create(makePatient(server.getUrl("", "/2"))));
  ASSERT_THAT(first->put(keyOf(1), makeArtifact("bytes"), false), IsOk());

  EXPECT_EQ(getText(*first, keyOf(1)), "bytes");
  EXPECT_EQ(getText(*second, keyOf(1)), "miss");
}

//===----------------------------------------------------------------------===//
// Trust
//===----------------------------------------------------------------------===//

TEST_F(RemoteTierTest, WhatAnAttackerPutInPlaceIsRejectedAndThenReplaced) {
  RedisServer server;
  RemoteTierOptions options = makePatient(server.getUrl());
  options.secret = "secret";
  options.maxArtifactBytes = 100000;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));
  RemoteValueFormat format("secret", 100000);
  std::string name = format.makeName(keyOf(1));
  std::string other = format.makeName(keyOf(2));
  ASSERT_THAT(tier->put(keyOf(2), makeArtifact("other"), false), IsOk());
  std::string moved = server.run({"GET", other});
  std::string unauthenticated =
      *RemoteValueFormat("", 100000).encode(name, makeArtifact("evil"));

  uint64_t rejected = 0;
  for (const std::string &evil :
       {std::string("junk"), std::string(200, '\0'), moved, unauthenticated,
        moved + moved, std::string(1 << 20, 'x')}) {
    server.run({"SET", name, evil});

    EXPECT_EQ(getText(*tier, keyOf(1)), "miss");
    EXPECT_EQ(tier->getStats().rejected, ++rejected);
    EXPECT_EQ(server.run({"GET", name}), evil) << "a reader wrote";

    EXPECT_THAT(tier->put(keyOf(1), makeArtifact("good"), false), IsOk());
    EXPECT_EQ(getText(*tier, keyOf(1)), "good");
    EXPECT_THAT(tier->put(keyOf(1), makeArtifact("late"), false), IsOk());
    EXPECT_EQ(getText(*tier, keyOf(1)), "good");
  }
  EXPECT_EQ(tier->getState().rejected, rejected);
  EXPECT_EQ(tier->getState().circuit.failures, 0u);
}

TEST_F(RemoteTierTest, DamageIsFoundWithoutASecret) {
  RedisServer server;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));
  ASSERT_THAT(tier->put(keyOf(1), makeArtifact(randomBytes(1000)), false),
              IsOk());
  server.run({"SETRANGE", RemoteValueFormat("", 1).makeName(keyOf(1)), "700",
              "damage"});

  EXPECT_EQ(getText(*tier, keyOf(1)), "miss");
  EXPECT_EQ(tier->getStats().rejected, 1u);
}

TEST_F(RemoteTierTest, AnotherTypeOfValueIsRejectedAndThenReplaced) {
  RedisServer server;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));
  server.run({"LPUSH", RemoteValueFormat("", 1).makeName(keyOf(1)), "element"});

  EXPECT_EQ(getText(*tier, keyOf(1)), "miss");
  EXPECT_EQ(tier->getStats().rejected, 1u);
  EXPECT_EQ(tier->getState().circuit.failures, 0u);

  EXPECT_THAT(tier->put(keyOf(1), makeArtifact("good"), false), IsOk());
  EXPECT_EQ(getText(*tier, keyOf(1)), "good");
}

TEST_F(RemoteTierTest, ProgramsWithDifferentSecretsDoNotMeet) {
  RedisServer server;
  RemoteTierOptions options = makePatient(server.getUrl());
  options.secret = "one";
  CTXPOOL_ASSERT_OK_AND_ASSIGN(one, RemoteTier::create(options));
  options.secret = "two";
  CTXPOOL_ASSERT_OK_AND_ASSIGN(two, RemoteTier::create(options));
  ASSERT_THAT(one->put(keyOf(1), makeArtifact("of one"), false), IsOk());

  EXPECT_EQ(getText(*two, keyOf(1)), "miss");
  EXPECT_THAT(two->put(keyOf(1), makeArtifact("of two"), false), IsOk());
  EXPECT_EQ(getText(*one, keyOf(1)), "of one");
  EXPECT_EQ(getText(*two, keyOf(1)), "of two");
  EXPECT_EQ(one->getStats().rejected + two->getStats().rejected, 0u);
}

//===----------------------------------------------------------------------===//
// Passwords
//===----------------------------------------------------------------------===//

TEST_F(RemoteTierTest, APasswordOpensTheServer) {
  RedisServer server({"--requirepass", "hunter2/@"});
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier,
      RemoteTier::create(makePatient(server.getUrl(":hunter2%2f%40@", "/1"))));

  ASSERT_THAT(tier->put(keyOf(1), makeArtifact("bytes"), false), IsOk());
  EXPECT_EQ(getText(*tier, keyOf(1)), "bytes");
}

TEST_F(RemoteTierTest, AUserOfTheServersMayDoWhatTheTierNeeds) {
  RedisServer server;
  server.run({"ACL", "SETUSER", "ci", "on", ">hunter2", "~ctxpool:*", "+get",
              "+set", "+select", "+scan", "+unlink", "+ping", "+getrange",
              "+pttl"});
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(makePatient(
                                         server.getUrl("ci:hunter2@", "/1"))));

  ASSERT_THAT(tier->put(keyOf(1), makeArtifact("bytes"), false), IsOk());
  EXPECT_EQ(getText(*tier, keyOf(1)), "bytes");
  EXPECT_THAT(tier->list(), IsOk());
  EXPECT_THAT(tier->verify(), IsOk());
  EXPECT_THAT(tier->clear(), IsOk());
  EXPECT_EQ(getText(*tier, keyOf(1)), "miss");
}

TEST_F(RemoteTierTest, AUserWhoMayOnlyReadStillReads) {
  RedisServer server;
  server.run(
      {"ACL", "SETUSER", "reader", "on", ">hunter2", "~ctxpool:*", "+get"});
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      writer, RemoteTier::create(makePatient(server.getUrl())));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(reader, RemoteTier::create(makePatient(
                                           server.getUrl("reader:hunter2@"))));
  ASSERT_THAT(writer->put(keyOf(1), makeArtifact("bytes"), false), IsOk());

  for (int i = 0; i < 10; ++i)
    EXPECT_THAT(reader->put(keyOf(2), makeArtifact("bytes"), false),
                StatusIs(StatusCode::kFailedPrecondition, "NOPERM"));
  EXPECT_EQ(getText(*reader, keyOf(1)), "bytes");
}

TEST_F(RemoteTierTest, AWrongPasswordIsNamedAndNotShown) {
  RedisServer server({"--requirepass", "correct"});
  for (const char *user : {":hunter2@", "nobody:hunter2@"}) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        tier, RemoteTier::create(makePatient(server.getUrl(user))));

    absl::Status status = tier->get(keyOf(1)).status();
    EXPECT_THAT(status, StatusIs(StatusCode::kUnauthenticated,
                                 "refused the user or password (WRONGPASS)"));
    EXPECT_THAT(tier->put(keyOf(1), makeArtifact("bytes"), false),
                StatusIs(StatusCode::kUnauthenticated, "refused"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("hunter2")));
    EXPECT_THAT(tier->getState().toString(), Not(HasSubstr("hunter2")));
    EXPECT_THAT(tier->getState().toString(), HasSubstr("WRONGPASS"));
  }
}

TEST_F(RemoteTierTest, AMissingOrNeedlessPasswordIsNamed) {
  RedisServer locked({"--requirepass", "correct"});
  RedisServer open;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      without, RemoteTier::create(makePatient(locked.getUrl())));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      with, RemoteTier::create(makePatient(open.getUrl(":hunter2@"))));

  EXPECT_THAT(without->get(keyOf(1)),
              StatusIs(StatusCode::kFailedPrecondition, "NOAUTH"));
  EXPECT_THAT(with->get(keyOf(1)),
              StatusIs(StatusCode::kUnauthenticated, "refused"));
}

TEST_F(RemoteTierTest, AWrongDatabaseIsNamed) {
  RedisServer server;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl("", "/99"))));

  EXPECT_THAT(tier->get(keyOf(1)),
              StatusIs(StatusCode::kNotFound, "refused database 99"));
}

TEST(RemoteTierFaultTest, PasswordsThatAServerRepeatsAreNotShown) {
  FalseServer server([](FalseServer::Client &client, unsigned number) {
    client.read();
    if (number == 0)
      client.write("-ERR unknown command 'AUTH', with args: 'hunter2'\r\n");
    else if (number == 1)
      client.write("-hunter2 it was\r\n");
    else
      client.write("+OK\r\n-ERR not with hunter2, nor with hunt\x01\r\n");
    client.awaitClose();
  });
  RemoteTierOptions options = makePatient(server.getUrl());
  options.url.insert(strlen("redis://"), ":hunter2@");
  options.circuit.failures = 100;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));
  for (int i = 0; i < 3; ++i) {
    absl::Status status = tier->get(keyOf(1)).status();

    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.ToString(), Not(HasSubstr("hunt")));
    EXPECT_THAT(tier->getState().toString(), Not(HasSubstr("hunt")));
    if (i == 2)
      EXPECT_THAT(status.ToString(), HasSubstr("not with ***, nor with ***?"));
  }
}

//===----------------------------------------------------------------------===//
// Connections
//===----------------------------------------------------------------------===//

TEST_F(RemoteTierTest, AConnectionIsUsedAgain) {
  RedisServer server({"--requirepass", "hunter2"});
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl(":hunter2@", "/1"))));
  for (unsigned i = 0; i < 20; ++i) {
    ASSERT_THAT(tier->put(keyOf(i), makeArtifact("bytes"), false), IsOk());
    ASSERT_EQ(getText(*tier, keyOf(i)), "bytes");
  }

  EXPECT_EQ(tier->getState().connections, 1u);
  EXPECT_EQ(tier->getState().idleConnections, 1u);
}

TEST_F(RemoteTierTest, ThreadsShareItAndKeepAFewConnections) {
  RedisServer server;
  RemoteTierOptions options = makePatient(server.getUrl());
  options.maxIdleConnections = 2;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 8; ++thread)
    threads.emplace_back([&tier = *tier, thread] {
      for (unsigned i = 0; i < 50; ++i) {
        CacheKey key = keyOf(1000 * thread + i);
        std::string bytes = randomBytes(1000 + i, 1000 * thread + i);
        EXPECT_THAT(tier.put(key, makeArtifact(bytes), false), IsOk());
        EXPECT_EQ(getText(tier, key), bytes);
      }
    });
  for (std::thread &thread : threads)
    thread.join();

  EXPECT_LE(tier->getState().idleConnections, 2u);
}

TEST_F(RemoteTierTest, ARestartedServerIsNoFailure) {
  RedisServer server;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));
  ASSERT_THAT(tier->put(keyOf(1), makeArtifact("bytes"), false), IsOk());

  server.kill();
  server.start();

  EXPECT_EQ(getText(*tier, keyOf(1)), "miss");
  EXPECT_EQ(tier->getState().circuit.failures, 0u);
  EXPECT_EQ(tier->getState().connections, 2u);
}

TEST_F(RemoteTierTest, AForkedChildDoesNotUseItsParentsConnections) {
  RedisServer server;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));
  ASSERT_THAT(tier->put(keyOf(1), makeArtifact("bytes"), false), IsOk());

  EXPECT_EQ(runInChild([&] {
              bool fails =
                  absl::IsFailedPrecondition(tier->get(keyOf(1)).status()) &&
                  tier->getState().connections == 0;
              tier.reset();
              return fails;
            }),
            "exit 0");
  EXPECT_EQ(getText(*tier, keyOf(1)), "bytes");
  EXPECT_EQ(tier->getState().connections, 1u);
}

TEST(RemoteTierFaultTest, AConnectionThatBreaksInUseIsReplacedOnce) {
  FalseServer server([](FalseServer::Client &client, unsigned number) {
    client.read();
    client.write("$-1\r\n");
    // Closes only when the next command has come.
    if (!client.read().empty() && number == 1)
      client.write("$-1\r\n");
  });
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));

  EXPECT_EQ(getText(*tier, keyOf(1)), "miss");
  EXPECT_EQ(getText(*tier, keyOf(1)), "miss");

  EXPECT_EQ(server.getConnections(), 2u);
  EXPECT_EQ(tier->getState().circuit.failures, 0u);
}

TEST(RemoteTierFaultTest, WhatComesUnaskedIsNotTheReplyToTheNextCommand) {
  PhaseGate gate;
  std::string good = makeValue(keyOf(1), makeArtifact("good"));
  FalseServer server([&](FalseServer::Client &client, unsigned number) {
    client.read();
    // In one piece with the reply, and after it.
    if (number == 0)
      client.write("$-1\r\n" + bulk(good));
    if (number == 1) {
      client.write("$-1\r\n");
      gate.await(1);
      client.write(bulk(good));
      client.awaitDelivery();
      gate.open(2);
    }
    if (number == 2)
      client.write("$-1\r\n");
    client.awaitClose();
  });
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));
  EXPECT_EQ(getText(*tier, keyOf(1)), "miss");
  EXPECT_EQ(getText(*tier, keyOf(1)), "miss");
  gate.open(1);
  gate.await(2);

  EXPECT_EQ(getText(*tier, keyOf(1)), "miss");

  EXPECT_EQ(server.getConnections(), 3u);
}

TEST(RemoteTierFaultTest, AReplyThatEndsInTheMiddleIsNotContinuedByTheNext) {
  std::string value = makeValue(keyOf(1), makeArtifact(randomBytes(300000)));
  std::string reply = bulk(value);
  FalseServer server([&](FalseServer::Client &client, unsigned number) {
    client.read();
    client.write(number == 0 ? reply.substr(0, reply.size() / 2) : reply);
    if (number > 0)
      client.awaitClose();
  });
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));

  EXPECT_THAT(tier->get(keyOf(1)), StatusIs(StatusCode::kUnavailable, ""));
  EXPECT_EQ(getText(*tier, keyOf(1)), randomBytes(300000));
}

TEST(RemoteTierFaultTest, WritingToAClosedConnectionIsAnErrorAndNoSignal) {
  FalseServer server([](FalseServer::Client &, unsigned) {});
  RemoteTierOptions options = makePatient(server.getUrl());
  options.circuit.failures = 100;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));
  Artifact large = makeArtifact(randomBytes(8 << 20));

  for (int i = 0; i < 10; ++i)
    EXPECT_THAT(tier->put(keyOf(1), large, false),
                StatusIs(StatusCode::kUnavailable, "redis at 127.0.0.1:"));
}

TEST_F(RemoteTierTest, AHostIsFoundByName) {
  RedisServer server;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient("redis://localhost:" +
                                           std::to_string(server.getPort()))));

  EXPECT_EQ(getText(*tier, keyOf(1)), "miss");
}

TEST(RemoteTierFaultTest, AHostThatDoesNotExistIsNamed) {
  // No name has a part that is this long, so nobody has to be asked.
  std::string host(70, 'a');
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient("redis://" + host)));

  EXPECT_THAT(tier->get(keyOf(1)),
              StatusIs(StatusCode::kUnavailable, "looking up " + host));
}

TEST(TransportTest, AResolverThatHangsIsLeftBehind) {
  auto gate = std::make_shared<PhaseGate>();
  auto resolve = [gate](const char *, const char *, const addrinfo *,
                        addrinfo **) {
    gate->await(1);
    return EAI_AGAIN;
  };

  EXPECT_THAT(
      connectSocket("a.host", 1,
                    TimeLimits::Clock::now() + std::chrono::milliseconds(20),
                    resolve),
      StatusIs(StatusCode::kDeadlineExceeded, "looking up a.host"));
  gate->open(1);
}

//===----------------------------------------------------------------------===//
// Servers that do not do what they should
//===----------------------------------------------------------------------===//

TEST(RemoteTierFaultTest, AServerThatNeverAnswersIsGivenUp) {
  FalseServer server(
      [](FalseServer::Client &client, unsigned) { client.awaitClose(); });
  RemoteTierOptions options = makePatient(server.getUrl());
  options.callTimeout = absl::Milliseconds(20);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));

  EXPECT_THAT(tier->get(keyOf(1)),
              StatusIs(StatusCode::kDeadlineExceeded, "did nothing for 20ms"));
  EXPECT_THAT(tier->put(keyOf(1), makeArtifact("bytes"), false),
              StatusIs(StatusCode::kDeadlineExceeded, "did nothing for 20ms"));
}

TEST(RemoteTierFaultTest, AServerThatNeverReadsIsGivenUp) {
  PhaseGate gate;
  FalseServer server([&](FalseServer::Client &, unsigned) { gate.await(1); });
  RemoteTierOptions options = makePatient(server.getUrl());
  options.callTimeout = absl::Milliseconds(20);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));

  EXPECT_THAT(tier->put(keyOf(1), makeArtifact(randomBytes(30 << 20)), false),
              StatusIs(StatusCode::kDeadlineExceeded, "writing"));
  gate.open(1);
}

TEST(RemoteTierFaultTest, AServerThatTricklesIsGivenUp) {
  FalseServer server([](FalseServer::Client &client, unsigned) {
    client.read();
    client.write("$30000000\r\n");
    while (client.write("x"))
      poll(nullptr, 0, 1);
  });
  RemoteTierOptions options = makePatient(server.getUrl());
  options.totalTimeout = absl::Milliseconds(100);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));

  EXPECT_THAT(tier->get(keyOf(1)),
              StatusIs(StatusCode::kDeadlineExceeded, "for the whole call"));
}

TEST(RemoteTierFaultTest, AnAnnouncementOfTooMuchIsRefusedAtOnce) {
  const char *announcements[] = {"$10000000000\r\n", "$9223372036854775807\r\n",
                                 "*2147483647\r\n", "*1\r\n$1\r\nx\r\n"};
  FalseServer server([&](FalseServer::Client &client, unsigned number) {
    client.read();
    client.write(announcements[number]);
    client.awaitClose();
  });
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));
  for (uint64_t i = 1; i <= 4; ++i) {
    EXPECT_EQ(getText(*tier, keyOf(1)), "miss");
    EXPECT_EQ(tier->getStats().rejected, i);
  }
}

TEST(RemoteTierFaultTest, AServerThatIsNotRedisIsNamed) {
  const std::string replies[] = {"HTTP/1.1 400 Bad Request\r\n",
                                 "+OK\r\n",
                                 ":1\r\n",
                                 "$-2\r\n",
                                 "$x\r\n",
                                 "$99999999999999999999\r\n",
                                 "\r\n",
                                 "%1\r\n",
                                 std::string("\0\r\n", 3),
                                 ":x\r\n",
                                 std::string(10000, '+')};
  FalseServer server([&](FalseServer::Client &client, unsigned number) {
    client.read();
    client.write(replies[number]);
    client.awaitClose();
  });
  RemoteTierOptions options = makePatient(server.getUrl());
  options.circuit.failures = 100;
  options.maxIdleConnections = 0;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));
  for (const std::string &reply : replies)
    EXPECT_THAT(tier->get(keyOf(1)), StatusIs(StatusCode::kDataLoss, ""))
        << reply;
}

TEST(RemoteTierFaultTest, AServerCannotHaveOtherNamesDeleted) {
  std::string name = RemoteValueFormat("", 1).makeName(keyOf(1));
  std::string unlinked;
  FalseServer server([&](FalseServer::Client &client, unsigned) {
    client.read();
    client.write("*2\r\n" + bulk("0") + "*4\r\n" + bulk("foreign") +
                 bulk(std::string(name.size(), 'x')) + bulk(name) + ":7\r\n");
    unlinked = client.read();
    client.write(":1\r\n");
    client.awaitClose();
  });
  {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        tier, RemoteTier::create(makePatient(server.getUrl())));
    EXPECT_THAT(tier->clear(), IsOk());
  }
  EXPECT_EQ(unlinked, "*2\r\n" + bulk("UNLINK") + bulk(name));
}

TEST_F(RemoteTierTest, AFullServerIsAnErrorOfWritingAlone) {
  RedisServer server({"--maxmemory", "3mb"});
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));
  ASSERT_THAT(tier->put(keyOf(0), makeArtifact("small"), false), IsOk());
  unsigned refused = 0;
  for (unsigned i = 1; i <= 20; ++i)
    if (absl::Status status =
            tier->put(keyOf(i), makeArtifact(randomBytes(500000)), false);
        !status.ok()) {
      ++refused;
      EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition, "OOM"));
    }

  EXPECT_GE(refused, 10u);
  EXPECT_EQ(getText(*tier, keyOf(0)), "small");
  EXPECT_FALSE(tier->getState().circuit.resting);
}

TEST_F(RemoteTierTest, WhatTheServerEvictsIsAMiss) {
  RedisServer server(
      {"--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru"});
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      tier, RemoteTier::create(makePatient(server.getUrl())));
  for (unsigned i = 0; i < 20; ++i)
    ASSERT_THAT(
        tier->put(keyOf(i), makeArtifact(randomBytes(500000, i)), false),
        IsOk());

  unsigned misses = 0;
  for (unsigned i = 0; i < 20; ++i) {
    std::string text = getText(*tier, keyOf(i));
    if (text == "miss")
      ++misses;
    else
      EXPECT_EQ(text, randomBytes(500000, i));
  }
  EXPECT_GE(misses, 10u);
  EXPECT_LT(misses, 20u);
}

//===----------------------------------------------------------------------===//
// Rests
//===----------------------------------------------------------------------===//

TEST(RemoteTierFaultTest, AServerThatFailsIsLeftAloneAndProbedLater) {
  ManualClock clock;
  std::atomic<bool> well{false};
  FalseServer server([&](FalseServer::Client &client, unsigned) {
    while (!client.read().empty() && well)
      client.write("$-1\r\n");
  });
  RemoteTierOptions options = makePatient(server.getUrl());
  options.circuit.now = [&] { return clock.get(); };
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));

  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(tier->checkReady(), IsOk());
    EXPECT_THAT(tier->get(keyOf(1)),
                StatusIs(StatusCode::kUnavailable, "closed the connection"));
  }
  EXPECT_THAT(tier->checkReady(),
              StatusIs(StatusCode::kUnavailable, "left alone"));
  for (int i = 0; i < 100; ++i) {
    EXPECT_THAT(tier->get(keyOf(1)),
                StatusIs(StatusCode::kUnavailable,
                         "left alone for a while, since it failed: the server "
                         "closed the connection"));
    EXPECT_THAT(tier->put(keyOf(1), makeArtifact("bytes"), false),
                StatusIs(StatusCode::kUnavailable, "left alone"));
    EXPECT_THAT(tier->clear(),
                StatusIs(StatusCode::kUnavailable, "left alone"));
  }
  EXPECT_EQ(server.getConnections(), 3u);
  EXPECT_THAT(tier->getState().toString(), HasSubstr("left alone for 1s more"));

  // A probe that fails.
  clock.advance(1);
  EXPECT_THAT(tier->checkReady(), IsOk());
  EXPECT_THAT(tier->get(keyOf(1)),
              StatusIs(StatusCode::kUnavailable, "left alone"));
  ASSERT_TRUE(eventually([&] { return tier->getState().circuit.rests == 2; }));
  EXPECT_EQ(server.getConnections(), 4u);

  // One that does not.
  well = true;
  clock.advance(1);
  EXPECT_THAT(tier->get(keyOf(1)),
              StatusIs(StatusCode::kUnavailable, "left alone"));
  EXPECT_EQ(server.getConnections(), 4u) << "the second rest is longer";
  clock.advance(1);
  EXPECT_THAT(tier->get(keyOf(1)),
              StatusIs(StatusCode::kUnavailable, "left alone"));
  ASSERT_TRUE(eventually([&] { return !tier->getState().circuit.resting; }));
  EXPECT_EQ(getText(*tier, keyOf(1)), "miss");
  EXPECT_EQ(tier->getState().circuit.failures, 0u);
  EXPECT_EQ(server.getConnections(), 5u) << "the probe's connection is used";
}

TEST(RemoteTierFaultTest, NobodyWaitsForAProbe) {
  ManualClock clock;
  PhaseGate gate;
  FalseServer server([&](FalseServer::Client &client, unsigned number) {
    // The probe, which would be waited for until the deadline of all tests.
    if (number == 3) {
      client.read();
      gate.await(1);
    }
  });
  RemoteTierOptions options = makePatient(server.getUrl());
  options.circuit.now = [&] { return clock.get(); };
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));
  for (int i = 0; i < 3; ++i)
    EXPECT_FALSE(tier->get(keyOf(1)).ok());
  clock.advance(1);

  for (int i = 0; i < 100; ++i)
    EXPECT_THAT(tier->get(keyOf(1)),
                StatusIs(StatusCode::kUnavailable, "left alone"));
  ASSERT_TRUE(eventually([&] { return server.getConnections() == 4; }));
  EXPECT_THAT(tier->get(keyOf(1)),
              StatusIs(StatusCode::kUnavailable, "left alone"));
  EXPECT_EQ(server.getConnections(), 4u);
  gate.open(1);
}

TEST_F(RemoteTierTest, AStoppedServerIsGivenUpAndFoundAgain) {
  ManualClock clock;
  RedisServer server;
  RemoteTierOptions options = makePatient(server.getUrl());
  options.callTimeout = absl::Milliseconds(500);
  options.circuit.patience = std::chrono::milliseconds(1);
  options.circuit.now = [&] { return clock.get(); };
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));
  // On a busy machine one call may take longer than it may.
  ASSERT_TRUE(eventually([&] {
    clock.advance(60);
    return tier->put(keyOf(1), makeArtifact("bytes"), false).ok();
  }));

  server.pause();
  EXPECT_THAT(tier->get(keyOf(1)),
              StatusIs(StatusCode::kDeadlineExceeded, "did nothing"));
  for (int i = 0; i < 1000; ++i)
    ASSERT_THAT(tier->get(keyOf(1)),
                StatusIs(StatusCode::kUnavailable, "left alone"));

  server.resume();
  EXPECT_TRUE(eventually([&] {
    clock.advance(60);
    return getText(*tier, keyOf(1)) == "bytes";
  }));
}

TEST_F(RemoteTierTest, AServerKilledInTheMiddleIsFoundAgainAndNothingIsMixed) {
  ManualClock clock;
  RedisServer server;
  RemoteTierOptions options = makePatient(server.getUrl());
  options.circuit.now = [&] { return clock.get(); };
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));
  std::atomic<bool> done{false};
  std::atomic<unsigned> hits{0};
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (unsigned i = 0; !done; ++i) {
        unsigned number = (thread + i) % 16;
        std::string bytes = randomBytes(200000, number);
        (void)tier->put(keyOf(number), makeArtifact(bytes), i % 3 == 0);
        absl::StatusOr<std::optional<Artifact>> found =
            tier->get(keyOf(number));
        if (found.ok() && *found) {
          EXPECT_EQ((*found)->getBytes(), bytes);
          ++hits;
        }
      }
    });
  // Each time until there are hits again.
  for (int i = 0; i < 5; ++i) {
    unsigned before = hits;
    EXPECT_TRUE(eventually([&] {
      clock.advance(60);
      return hits > before + 20;
    }));
    server.kill();
    server.start();
  }
  done = true;
  for (std::thread &thread : threads)
    thread.join();

  EXPECT_EQ(tier->getStats().rejected, 0u);
}

TEST(RemoteTierFaultTest, WhereNobodyListensFailsAtOnce) {
  ReservedPort port;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier,
                               RemoteTier::create(makePatient(port.getUrl())));
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(tier->get(keyOf(1)),
                StatusIs(StatusCode::kUnavailable, "Connection refused"));
  EXPECT_THAT(tier->get(keyOf(1)),
              StatusIs(StatusCode::kUnavailable, "left alone"));
}

//===----------------------------------------------------------------------===//
// TLS
//===----------------------------------------------------------------------===//

TEST_F(RemoteTierTlsTest, GivesBackWhatWasPut) {
  Certificates certificates("DNS:localhost,IP:127.0.0.1");
  RedisServer server(certificates.getArguments());
  std::string behind = "/1?cacert=" + certificates.getFile();
  std::string named = server.getUrl("", behind);
  named.replace(named.find("127.0.0.1"), 9, "localhost");
  for (const std::string &url : {server.getUrl("", behind), named}) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(makePatient(url)));
    std::string bytes = randomBytes(5 << 20);
    ASSERT_THAT(tier->put(keyOf(1), makeArtifact(bytes), false), IsOk());
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(getText(*tier, keyOf(1)), bytes);

    EXPECT_EQ(tier->getState().connections, 1u);
    server.kill();
    server.start();
    EXPECT_EQ(getText(*tier, keyOf(1)), "miss");
  }
}

TEST_F(RemoteTierTlsTest, AServerWithoutATrustedCertificateIsRefused) {
  Certificates certificates("IP:127.0.0.1"), others("IP:127.0.0.1");
  RedisServer server(certificates.getArguments());
  for (const std::string &behind :
       {std::string(), "/?cacert=" + others.getFile()}) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        tier, RemoteTier::create(makePatient(server.getUrl("", behind))));

    EXPECT_THAT(tier->get(keyOf(1)),
                StatusIs(StatusCode::kUnauthenticated, "does not verify"));
  }
}

TEST_F(RemoteTierTlsTest, ACertificateForAnotherHostIsRefused) {
  for (const char *host : {"DNS:localhost", "IP:127.0.0.2"}) {
    Certificates certificates(host);
    RedisServer server(certificates.getArguments());
    CTXPOOL_ASSERT_OK_AND_ASSIGN(
        tier, RemoteTier::create(makePatient(
                  server.getUrl("", "/?cacert=" + certificates.getFile()))));

    EXPECT_THAT(tier->get(keyOf(1)),
                StatusIs(StatusCode::kUnauthenticated, "IP address mismatch"));
  }
}

TEST_F(RemoteTierTlsTest, OneSideWithoutTlsIsAnError) {
  Certificates certificates("IP:127.0.0.1");
  RedisServer secure(certificates.getArguments()), open;
  std::string url = open.getUrl("", "/?cacert=" + certificates.getFile());
  url.replace(0, 5, "rediss");
  // Redis takes the greeting for half a command, and waits for the rest.
  RemoteTierOptions options = makePatient(url);
  options.callTimeout = absl::Milliseconds(20);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(toOpen, RemoteTier::create(options));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      toSecure, RemoteTier::create(makePatient(
                    "redis://127.0.0.1:" + std::to_string(secure.getPort()))));

  EXPECT_THAT(toOpen->get(keyOf(1)),
              StatusIs(StatusCode::kDeadlineExceeded, "did nothing"));
  EXPECT_FALSE(toSecure->get(keyOf(1)).ok());
}

TEST_F(RemoteTierTlsTest, AStoppedServerIsGivenUp) {
  Certificates certificates("IP:127.0.0.1");
  RedisServer server(certificates.getArguments());
  RemoteTierOptions options =
      makePatient(server.getUrl("", "/?cacert=" + certificates.getFile()));
  options.callTimeout = absl::Milliseconds(500);
  options.circuit.failures = 1000;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(tier, RemoteTier::create(options));
  // On a busy machine a handshake may take longer than it may.
  ASSERT_TRUE(eventually([&] { return getText(*tier, keyOf(1)) == "miss"; }));
  server.pause();

  // In an exchange, and in a handshake.
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(tier->get(keyOf(1)),
                StatusIs(StatusCode::kDeadlineExceeded, "did nothing"));
  server.resume();
}

TEST_F(RemoteTierTlsTest, AFileWithoutCertificatesIsAnErrorOfTheOption) {
  for (const char *file : {"/no/such/file.pem", "/dev/null"})
    EXPECT_THAT(RemoteTier::create(
                    makePatient(std::string("rediss://host?cacert=") + file)),
                StatusIs(StatusCode::kInvalidArgument, file));
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

TEST(RemoteTierOptionsTest, ErrorsNameTheField) {
  using Options = RemoteTierOptions;
  struct Case {
    std::function<void(Options &)> change;
    const char *field;
  } cases[] = {
      {[](Options &o) { o.url = "redis:hunter2@host"; }, "remote: "},
      {[](Options &o) { o.connectTimeout = absl::ZeroDuration(); },
       "remoteConnectTimeout: 0"},
      {[](Options &o) { o.callTimeout = absl::Microseconds(999); },
       "remoteCallTimeout: 999us"},
      {[](Options &o) { o.totalTimeout = absl::InfiniteDuration(); },
       "remoteTotalTimeout: inf"},
      {[](Options &o) { o.expiry = absl::Milliseconds(999); },
       "remoteExpiry: 999ms"},
      {[](Options &o) { o.expiry = absl::Hours(1000000000); },
       "remoteExpiry: "},
      {[](Options &o) { o.maxArtifactBytes = 0; }, "remoteMaxArtifactBytes: 0"},
      {[](Options &o) { o.maxArtifactBytes = (256ull << 20) + 1; },
       "remoteMaxArtifactBytes: 268435457"},
  };
  for (const Case &each : cases) {
    Options options;
    options.url = "redis://user:hunter2@host";
    options.secret = "swordfish";
    each.change(options);

    absl::Status status = RemoteTier::create(options).status();
    EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, each.field));
    EXPECT_THAT(status.ToString(), Not(HasSubstr("hunter2")));
    EXPECT_THAT(status.ToString(), Not(HasSubstr("swordfish")));
  }
}

TEST(RemoteTierOptionsTest, ABuildWithoutTlsSaysSo) {
  absl::StatusOr<std::unique_ptr<RemoteTier>> tier =
      RemoteTier::create(makePatient("rediss://host"));
  if (tier.ok())
    GTEST_SKIP() << "built with TLS";

  EXPECT_THAT(tier, StatusIs(StatusCode::kUnimplemented,
                             "CONTEXT_POOL_WITH_TLS, which needs OpenSSL"));
}

//===- CacheKeyTest.cpp - Tests of what names a result -------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/CompileCache.h"

#include "context_pool/cache/CompilerIdentity.h"
#include "test/cache/CacheTestSupport.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"
#include "test/support/TestFiles.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Program.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/Triple.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::test;

namespace {

struct CacheKeyTest : testing::Test {
  static void SetUpTestSuite() { registerPasses(); }
};

Fingerprint module(uint64_t number = 1) { return keyOf(number).digest; }

/// A recipe in which nothing has its default.
CompileRecipe fullRecipe() {
  CompileRecipe recipe;
  recipe.pipeline = "builtin.module(canonicalize)";
  recipe.target = "x86_64-unknown-linux-gnu";
  recipe.options = "object";
  recipe.extra = {"a", "b"};
  recipe.cpu = "skylake";
  recipe.features = "+avx2,-sse4a";
  recipe.codeModel = "small";
  recipe.optimizationLevel = 1;
  return recipe;
}

using Change = std::function<void(CompileRecipe &)>;

CacheKey keyWith(const Change &change) {
  CompileRecipe recipe = fullRecipe();
  change(recipe);
  auto key = makeCacheKey(module(), recipe);
  EXPECT_THAT(key, IsOk());
  return key.ok() ? *key : CacheKey();
}

std::string partOf(const std::vector<KeyPart> &parts, const std::string &name) {
  for (const KeyPart &part : parts)
    if (part.name == name)
      return part.value;
  ADD_FAILURE() << "no part '" << name << "'";
  return "";
}

std::vector<KeyPart> explain(const CompileRecipe &recipe) {
  auto parts = explainKey(module(), recipe);
  EXPECT_THAT(parts, IsOk());
  return *parts;
}

/// The names of the parts that tell two keys apart.
std::vector<std::string> differences(const std::vector<KeyPart> &lhs,
                                     const std::vector<KeyPart> &rhs) {
  std::map<std::string, std::string> left, right;
  for (const KeyPart &part : lhs)
    left[part.name] = part.value;
  for (const KeyPart &part : rhs)
    right[part.name] = part.value;
  std::vector<std::string> names;
  for (const auto &[name, value] : left)
    if (!right.count(name) || right[name] != value)
      names.push_back(name);
  for (const auto &[name, value] : right)
    if (!left.count(name))
      names.push_back(name);
  return names;
}

//===----------------------------------------------------------------------===//
// What makes another key
//===----------------------------------------------------------------------===//

struct NamedChange {
  const char *part;
  Change change;
};

std::vector<NamedChange> differentResults() {
  return {
      {"pipeline", [](auto &r) { r.pipeline = "builtin.module(cse)"; }},
      {"pipeline",
       [](auto &r) {
         r.pipeline = "builtin.module(canonicalize{max-iterations=3})";
       }},
      {"pipeline",
       [](auto &r) {
         r.pipeline = "builtin.module(canonicalize,canonicalize)";
       }},
      {"pipeline",
       [](auto &r) { r.pipeline = "builtin.module(func.func(canonicalize))"; }},
      {"pipeline", [](auto &r) { r.pipeline = "func.func(canonicalize)"; }},
      {"target", [](auto &r) { r.target = "aarch64-unknown-linux-gnu"; }},
      {"target", [](auto &r) { r.target = "x86_64-pc-linux-gnu"; }},
      {"target", [](auto &r) { r.target = "x86_64-unknown-linux-musl"; }},
      {"cpu", [](auto &r) { r.cpu = "znver4"; }},
      {"cpu", [](auto &r) { r.cpu = ""; }},
      {"features", [](auto &r) { r.features = "+avx2,+sse4a"; }},
      {"features", [](auto &r) { r.features = "+avx2"; }},
      {"features", [](auto &r) { r.features = ""; }},
      {"code model", [](auto &r) { r.codeModel = "large"; }},
      {"code model", [](auto &r) { r.codeModel = ""; }},
      {"optimization level", [](auto &r) { r.optimizationLevel = 2; }},
      {"options", [](auto &r) { r.options = "bitcode"; }},
      {"options", [](auto &r) { r.options = ""; }},
      {"extra 0", [](auto &r) { r.extra[0] = "A"; }},
      {"extra 2", [](auto &r) { r.extra.push_back(""); }},
      {"extra 1", [](auto &r) { r.extra.pop_back(); }},
  };
}

TEST_F(CacheKeyTest, EveryPartOfARecipeMakesAnotherKeyAndIsNamed) {
  auto base = makeCacheKey(module(), fullRecipe());
  ASSERT_THAT(base, IsOk());
  std::vector<CacheKey> keys = {*base};
  for (const NamedChange &change : differentResults()) {
    keys.push_back(keyWith(change.change));
    CompileRecipe recipe = fullRecipe();
    change.change(recipe);
    EXPECT_THAT(differences(explain(fullRecipe()), explain(recipe)),
                testing::ElementsAre(change.part));
  }
  for (size_t i = 0; i != keys.size(); ++i)
    for (size_t j = 0; j != i; ++j)
      EXPECT_NE(keys[i], keys[j]) << i << " and " << j;
}

TEST_F(CacheKeyTest, AnotherModuleMakesAnotherKey) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(recipe, ResolvedRecipe::create(fullRecipe()));
  EXPECT_NE(recipe.makeKey(module(1)), recipe.makeKey(module(2)));
  EXPECT_EQ(recipe.makeKey(module(1)), recipe.makeKey(module(1)));
  for (size_t bit = 0; bit != 256; ++bit) {
    Fingerprint other = module(1);
    other.bytes[bit / 8] ^= uint8_t(1u << bit % 8);
    EXPECT_NE(recipe.makeKey(module(1)), recipe.makeKey(other));
  }
}

TEST_F(CacheKeyTest, PartsAreFramed) {
  // The same text in other parts, or cut elsewhere.
  std::vector<Change> changes = {
      [](auto &r) { r.options = "ab", r.extra = {"c", "d"}; },
      [](auto &r) { r.options = "a", r.extra = {"bc", "d"}; },
      [](auto &r) { r.options = "a", r.extra = {"b", "cd"}; },
      [](auto &r) { r.options = "", r.extra = {"ab", "cd"}; },
      [](auto &r) { r.options = "", r.extra = {"abcd"}; },
      [](auto &r) { r.options = "abcd", r.extra = {}; },
      [](auto &r) { r.options = "abcd", r.extra = {""}; },
      [](auto &r) { r.options = std::string("a\0b", 3), r.extra = {"cd"}; },
      [](auto &r) { r.options = "a", r.extra = {std::string("\0bcd", 4)}; },
  };
  for (size_t i = 0; i != changes.size(); ++i)
    for (size_t j = 0; j != i; ++j)
      EXPECT_NE(keyWith(changes[i]), keyWith(changes[j])) << i << ", " << j;
}

//===----------------------------------------------------------------------===//
// What does not
//===----------------------------------------------------------------------===//

TEST_F(CacheKeyTest, WhatMeansTheSameMakesTheSameKey) {
  CacheKey base = keyWith([](auto &) {});
  std::vector<Change> changes = {
      [](auto &r) { r.pipeline = "  builtin.module( canonicalize )  "; },
      [](auto &r) { r.pipeline = "builtin.module(canonicalize{})"; },
      [](auto &r) {
        r.pipeline = "builtin.module(canonicalize{max-iterations=10})";
      },
      [](auto &r) {
        r.pipeline = "builtin.module(canonicalize{top-down=true "
                     "max-iterations=10})";
      },
      [](auto &r) {
        r.pipeline = "builtin.module(canonicalize{max-iterations=10 "
                     "top-down=true})";
      },
      [](auto &r) { r.target = "x86_64-linux-gnu"; },
      [](auto &r) { r.features = "-sse4a,+avx2"; },
      [](auto &r) { r.features = " +avx2 , -sse4a ,"; },
      [](auto &r) { r.features = "+AVX2,-SSE4a"; },
      [](auto &r) { r.features = "-avx2,+sse4a,-sse4a,+avx2"; },
  };
  for (size_t i = 0; i != changes.size(); ++i)
    EXPECT_EQ(keyWith(changes[i]), base) << i;
}

TEST_F(CacheKeyTest, ThatGoesForOptionsOfAnyPass) {
  auto key = [](const char *pipeline) {
    return keyWith([&](auto &r) { r.pipeline = pipeline; });
  };
  EXPECT_EQ(key("builtin.module(func.func(affine-loop-tile{cache-size=512 "
                "separate=false}))"),
            key("builtin.module(func.func(affine-loop-tile))"));
  EXPECT_EQ(key("builtin.module(func.func(affine-loop-tile{tile-size=4 "
                "cache-size=64}))"),
            key("builtin.module(func.func(affine-loop-tile{cache-size=64 "
                "tile-size=4}))"));
  EXPECT_NE(key("builtin.module(func.func(affine-loop-tile{tile-sizes=4,8}))"),
            key("builtin.module(func.func(affine-loop-tile{tile-sizes=8,4}))"));
}

TEST_F(CacheKeyTest, TheEmptyTargetIsThatOfThisProcess) {
  EXPECT_EQ(keyWith([](auto &r) { r.target = "", r.cpu = r.features = ""; }),
            keyWith([](auto &r) {
              r.target = llvm::sys::getProcessTriple();
              r.cpu = r.features = "";
            }));
}

TEST_F(CacheKeyTest, NativeIsThisMachinesCpuByNameWithItsFeatures) {
  CompileRecipe recipe = fullRecipe();
  recipe.target = "";
  recipe.cpu = "native";
  recipe.features = "";
  CTXPOOL_ASSERT_OK_AND_ASSIGN(native, ResolvedRecipe::create(recipe));
  EXPECT_EQ(native.get().cpu, llvm::sys::getHostCPUName());
  for (const auto &feature : llvm::sys::getHostCPUFeatures())
    EXPECT_THAT("," + native.get().features + ",",
                testing::HasSubstr((feature.second ? ",+" : ",-") +
                                   feature.first().str() + ","));
  EXPECT_THAT(explain(recipe), testing::Not(testing::Contains(
                                   testing::Field(&KeyPart::value, "native"))));

  // Spelled out, on another machine, say: the same key.
  CTXPOOL_ASSERT_OK_AND_ASSIGN(spelled, ResolvedRecipe::create(native.get()));
  EXPECT_EQ(spelled.makeKey(module()), native.makeKey(module()));
  // Without the features it would be another CPU.
  recipe.cpu = native.get().cpu;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bare, ResolvedRecipe::create(recipe));
  EXPECT_EQ(bare.makeKey(module()) == native.makeKey(module()),
            native.get().features.empty());
}

TEST_F(CacheKeyTest, FeaturesThatAreGivenCountOverThoseOfNative) {
  CompileRecipe recipe = fullRecipe();
  recipe.target = "";
  recipe.cpu = "native";
  recipe.features = "-not-a-feature,+not-a-feature";
  for (const auto &feature : llvm::sys::getHostCPUFeatures())
    recipe.features += (feature.second ? ",-" : ",+") + feature.first().str();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(native, ResolvedRecipe::create(recipe));
  std::string features = "," + native.get().features + ",";
  EXPECT_THAT(features, testing::HasSubstr(",+not-a-feature,"));
  for (const auto &feature : llvm::sys::getHostCPUFeatures())
    EXPECT_THAT(features, testing::HasSubstr((feature.second ? ",-" : ",+") +
                                             feature.first().str() + ","));
}

TEST_F(CacheKeyTest, ASettledRecipeSettlesToItself) {
  for (CompileRecipe recipe : {fullRecipe(), [] {
                                 CompileRecipe native = fullRecipe();
                                 native.target = "";
                                 native.cpu = "native";
                                 return native;
                               }()}) {
    CTXPOOL_ASSERT_OK_AND_ASSIGN(once, ResolvedRecipe::create(recipe));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(twice, ResolvedRecipe::create(once.get()));
    EXPECT_EQ(twice.get().pipeline, once.get().pipeline);
    EXPECT_EQ(twice.get().target, once.get().target);
    EXPECT_EQ(twice.get().cpu, once.get().cpu);
    EXPECT_EQ(twice.get().features, once.get().features);
    EXPECT_EQ(twice.makeKey(module()), once.makeKey(module()));
  }
}

TEST_F(CacheKeyTest, AllFunctionsAgree) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(recipe, ResolvedRecipe::create(fullRecipe()));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(key, makeCacheKey(module(), fullRecipe()));
  EXPECT_EQ(recipe.makeKey(module()), key);
  EXPECT_EQ(recipe.explainKey(module()), explain(fullRecipe()));
}

TEST_F(CacheKeyTest, ExplainKeySaysAllThatGoesIn) {
  std::vector<KeyPart> parts = explain(fullRecipe());
  EXPECT_EQ(partOf(parts, "scheme"), "ctxpool-key-1");
  EXPECT_THAT(partOf(parts, "pipeline"),
              testing::HasSubstr("builtin.module(canonicalize{"));
  EXPECT_EQ(partOf(parts, "target"), "x86_64-unknown-linux-gnu");
  EXPECT_EQ(partOf(parts, "cpu"), "skylake");
  EXPECT_EQ(partOf(parts, "features"), "+avx2,-sse4a");
  EXPECT_EQ(partOf(parts, "code model"), "small");
  EXPECT_EQ(partOf(parts, "optimization level"), "1");
  EXPECT_EQ(partOf(parts, "options"), "object");
  EXPECT_EQ(partOf(parts, "extra 0"), "a");
  EXPECT_EQ(partOf(parts, "extra 1"), "b");
  EXPECT_EQ(partOf(parts, "module"), module().toHex());
}

//===----------------------------------------------------------------------===//
// The compiler
//===----------------------------------------------------------------------===//

TEST_F(CacheKeyTest, TheCompilerIsKnownByVersionAndCode) {
  std::vector<KeyPart> parts = explain(fullRecipe());
  EXPECT_THAT(partOf(parts, "LLVM"),
              testing::StartsWith(std::to_string(LLVM_VERSION_MAJOR) + "."));
  EXPECT_THAT(partOf(parts, "code of executable"),
              testing::ContainsRegex("^(build id|contents) [0-9a-f]{16}"));
  std::vector<std::string> names;
  for (const KeyPart &part : parts)
    names.push_back(part.name);
  // MLIR's archives are linked against LLVM's library here, or both are
  // libraries; and what folds constants is the C library's.
  EXPECT_THAT(names, testing::Contains(testing::StartsWith("code of libLLVM")));
  EXPECT_THAT(names, testing::Contains(testing::StartsWith("code of libm.so")));
  EXPECT_THAT(names,
              testing::Not(testing::Contains(testing::HasSubstr("vdso"))));
}

/// A library that is loaded for a while.
class Loaded {
public:
  explicit Loaded(const char *path) : handle(dlopen(path, RTLD_NOW)) {
    EXPECT_TRUE(handle) << dlerror();
  }
  ~Loaded() {
    if (handle)
      dlclose(handle);
  }
  Loaded(const Loaded &) = delete;
  Loaded &operator=(const Loaded &) = delete;

private:
  void *handle;
};

CacheKey keyNow() {
  return keyWith([](auto &) {});
}

TEST_F(CacheKeyTest, APluginThatIsLoadedMakesOtherKeys) {
  CacheKey without = keyNow();
  std::vector<CacheKey> keys = {without};
  for (const char *path :
       {CTXPOOL_TEST_PLUGIN_1, CTXPOOL_TEST_PLUGIN_2,
        CTXPOOL_TEST_PLUGIN_WITHOUT_ID_1, CTXPOOL_TEST_PLUGIN_WITHOUT_ID_2}) {
    Loaded plugin(path);
    keys.push_back(keyNow());
    EXPECT_EQ(keyNow(), keys.back());
  }
  for (size_t i = 0; i != keys.size(); ++i)
    for (size_t j = 0; j != i; ++j)
      EXPECT_NE(keys[i], keys[j]) << i << " and " << j;
}

TEST_F(CacheKeyTest, AResolvedRecipeKeepsTheCompilerOfItsCreation) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(before, ResolvedRecipe::create(fullRecipe()));
  CacheKey key = before.makeKey(module());
  Loaded plugin(CTXPOOL_TEST_PLUGIN_1);
  EXPECT_EQ(before.makeKey(module()), key);
  EXPECT_NE(keyNow(), key);
}

TEST_F(CacheKeyTest, TheOrderInWhichPluginsAreLoadedMakesNoDifference) {
  CacheKey keys[2];
  {
    Loaded first(CTXPOOL_TEST_PLUGIN_1), second(CTXPOOL_TEST_PLUGIN_2);
    keys[0] = keyNow();
  }
  {
    Loaded first(CTXPOOL_TEST_PLUGIN_2), second(CTXPOOL_TEST_PLUGIN_1);
    keys[1] = keyNow();
  }
  EXPECT_EQ(keys[0], keys[1]);
}

TEST_F(CacheKeyTest, WhatNamesNoCompilerCountsOnlyWhereACompilerNeedsIt) {
  CacheKey without = keyNow();
  std::vector<KeyPart> parts = explain(fullRecipe());
  {
    Loaded library(CTXPOOL_TEST_PLAIN_LIBRARY);
    EXPECT_EQ(keyNow(), without);
  }
  Loaded plugin(CTXPOOL_TEST_PLUGIN_WITH_LIBRARY);
  EXPECT_THAT(differences(parts, explain(fullRecipe())),
              testing::ElementsAre(testing::HasSubstr("PlainLibrary"),
                                   testing::HasSubstr("PluginWithLibrary")));
}

TEST_F(CacheKeyTest, ALibraryForCompiledCodeMakesNoOtherKeys) {
  CacheKey without = keyNow();
  EXPECT_EQ(detail::openRuntimeLibrary("libnowhere_to_be_found.so"), nullptr);
  for (int round = 0; round != 2; ++round) {
    ASSERT_NE(detail::openRuntimeLibrary(CTXPOOL_TEST_RUNTIME_LIBRARY),
              nullptr);
    EXPECT_EQ(keyNow(), without);
  }
  // What names a compiler and is loaded otherwise counts as ever.
  Loaded plugin(CTXPOOL_TEST_PLUGIN_1);
  CacheKey with = keyNow();
  EXPECT_NE(with, without);
  void *again = detail::openRuntimeLibrary(CTXPOOL_TEST_PLUGIN_1);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(keyNow(), with);
  dlclose(again);
}

TEST_F(CacheKeyTest, ANewProcessOnTheSameMachineHasTheSameKey) {
  const char *variable = "CONTEXT_POOL_TEST_WRITE_KEY_TO";
  CompileRecipe recipe = fullRecipe();
  recipe.target = "";
  recipe.cpu = "native";
  CTXPOOL_ASSERT_OK_AND_ASSIGN(key, makeCacheKey(module(), recipe));
  // Set in the process that this one starts.
  if (const char *path =
          std::getenv(variable)) { // NOLINT(concurrency-mt-unsafe)
    std::ofstream(path) << key.digest.toHex();
    return;
  }

  llvm::SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("ctxpool-key", "txt", path));
  // And all others, such as options of sanitizers, but for those that choose
  // which tests are run.
  std::string setting = std::string(variable) + "=" + path.str().str();
  std::vector<llvm::StringRef> environment = {setting};
  for (char **entry = environ; *entry; ++entry)
    if (!llvm::StringRef(*entry).starts_with("GTEST_"))
      environment.push_back(*entry);
  std::string self = llvm::sys::fs::getMainExecutable(nullptr, nullptr);
  std::string filter =
      std::string("--gtest_filter=CacheKeyTest.") +
      testing::UnitTest::GetInstance()->current_test_info()->name();
  EXPECT_EQ(llvm::sys::ExecuteAndWait(self, {self, filter}, environment,
                                      /*Redirects=*/{std::nullopt, "", ""}),
            0);
  EXPECT_EQ(readFile(path.str().str()), key.digest.toHex());
  llvm::sys::fs::remove(path);
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

TEST_F(CacheKeyTest, ErrorsNameTheField) {
  struct Case {
    Change change;
    const char *message;
  };
  const Case cases[] = {
      {[](auto &r) { r.pipeline = "builtin.module(no-such-pass)"; },
       "no-such-pass"},
      {[](auto &r) { r.pipeline = "builtin.module(canonicalize"; },
       "pass pipeline"},
      {[](auto &r) { r.target = "z81-unknown-cpm"; }, "target 'z81"},
      {[](auto &r) { r.target = "no triple"; }, "target 'no triple'"},
      {[](auto &r) { r.target = "riscv64-linux", r.cpu = "native"; },
       "cpu 'native'"},
      {[](auto &r) { r.features = "avx2"; }, "features 'avx2'"},
      {[](auto &r) { r.features = "+avx2,+"; }, "features '+avx2,+'"},
      {[](auto &r) { r.codeModel = "huge"; }, "codeModel 'huge'"},
      {[](auto &r) { r.optimizationLevel = 4; }, "optimizationLevel '4'"},
  };
  for (const Case &bad : cases) {
    CompileRecipe recipe = fullRecipe();
    bad.change(recipe);
    auto matches = StatusIs(absl::StatusCode::kInvalidArgument, bad.message);
    EXPECT_THAT(ResolvedRecipe::create(recipe), matches);
    EXPECT_THAT(makeCacheKey(module(), recipe), matches);
    EXPECT_THAT(explainKey(module(), recipe), matches);
  }
}

} // namespace

//===- ModulesTest.cpp - Fingerprints of many modules ---------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/ir/IrTestSupport.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"

#include "context_pool/codec/Encoder.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"

#include <map>
#include <set>

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::test;

namespace {

/// Contexts that a test over many modules uses for all of them, as a server
/// does.
struct Contexts {
  std::unique_ptr<MLIRContext> first = makeContext();
  std::unique_ptr<MLIRContext> second = makeDirtyContext();
};

/// What must not change the digest does not: another context, bytecode of every
/// version, generic text, use lists, clones.
void expectNeutralRewritesAreBlind(Contexts &contexts, const std::string &text,
                                   bool fileSurvivesBytecode,
                                   std::mt19937_64 &random) {
  OwningOpRef<ModuleOp> module = tryParse(*contexts.first, text);
  OwningOpRef<ModuleOp> elsewhere = tryParse(*contexts.second, text);
  ASSERT_TRUE(module && elsewhere);
  StructuralOptions located;
  located.includeLocations = true;

  EXPECT_TRUE(isSame(*module, *elsewhere));
  EXPECT_TRUE(isSame(*module, *elsewhere, located));

  Fingerprint digest = digestOf(*module);
  shuffleUseLists(*module, random);
  EXPECT_EQ(digestOf(*module), digest);
  OwningOpRef<ModuleOp> clone = (*module).clone();
  EXPECT_TRUE(isSame(*module, *clone, located));

  // Text rounds wide floats and upstream's older bytecode drops native
  // properties (`disjoint` of affine.linearize_index, the flags of
  // llvm.getelementptr): where that happened the result reads otherwise, and so
  // must the digest.
  std::string readable = genericText(*module);
  OwningOpRef<ModuleOp> generic = tryParse(*contexts.second, readable);
  if (generic && !StringRef(text).contains("distinct[") &&
      !StringRef(text).contains("dense_resource")) {
    EXPECT_EQ(isSame(*module, *generic), genericText(*generic) == readable)
        << checkEquivalence(*module, *generic).ToString();
  }

  if (!fileSurvivesBytecode)
    return;
  for (int version = 0; version <= 6; ++version) {
    OwningOpRef<ModuleOp> read =
        throughBytecode(*module, *contexts.second, version);
    // Older versions cannot hold everything.
    if (!read)
      continue;
    // The text has the keys of resources, which change.
    if (version < 5 && StringRef(readable).contains("dense_resource"))
      continue;
    bool faithful = version >= 5 || genericText(*read) == readable;
    EXPECT_EQ(isSame(*module, *read), faithful)
        << "bytecode version " << version << ": "
        << checkEquivalence(*module, *read).ToString();
    if (version == 6) {
      EXPECT_TRUE(isSame(*module, *read, located));
    }
  }
}

/// Digest, comparison and generic text agree about a module and its mutation.
void expectMutationsAreSeen(ModuleOp module, std::mt19937_64 &random,
                            unsigned count) {
  // Text does not show which distinct attribute is which, nor resources.
  for (unsigned i = 0; i != count; ++i) {
    bool locations = random() % 4 == 0;
    StructuralOptions options;
    options.includeLocations = locations;
    OwningOpRef<ModuleOp> mutant = module.clone();
    std::string what = mutate(*mutant, random, locations);
    if (what.empty())
      continue;
    bool same = isSame(module, *mutant, options);
    bool sameText =
        genericText(module, locations) == genericText(*mutant, locations);
    EXPECT_EQ(same, sameText) << what;
  }
}

TEST(ModulesTest, BundledModulesAreBlindToNeutralRewrites) {
  Contexts contexts;
  std::mt19937_64 random(1);
  for (const auto &file : moduleFiles(sourceDir() / "bench" / "modules")) {
    SCOPED_TRACE(file.filename().string());
    expectNeutralRewritesAreBlind(contexts, readFile(file), true, random);
  }
}

TEST(ModulesTest, BundledModulesAreSensitiveToSingleMutations) {
  auto context = makeContext();
  std::mt19937_64 random(numberFromEnvironment("CONTEXT_POOL_TEST_SEED", 2));
  for (const auto &file : moduleFiles(sourceDir() / "bench" / "modules")) {
    SCOPED_TRACE(file.filename().string());
    OwningOpRef<ModuleOp> module = tryParse(*context, readFile(file));
    ASSERT_TRUE(module);
    expectMutationsAreSeen(*module, random, 60);
  }
}

/// The corpus, where there is one.
std::vector<std::filesystem::path> corpusFiles() {
  auto folder = sharedDir("corpus");
  return folder ? moduleFiles(*folder) : std::vector<std::filesystem::path>();
}

/// Names that upstream's bytecode changes by itself, after the corpus' README.
bool survivesBytecode(const std::filesystem::path &file,
                      const std::string &text) {
  return file.filename() != "LLVMIR_bytecode.01.mlir" &&
         text.find("distinct[") == std::string::npos;
}

/// Larger files are left to the long form of the test.
size_t largestFile() {
  return numberFromEnvironment("CONTEXT_POOL_TEST_CORPUS_BYTES", 24 << 10);
}

/// Whether the encoding of every attribute and type that a dialect encodes
/// refers to all of their sub-elements.
void expectRecordsHoldAllParts(ModuleOp module, AttrTypeWalker &walker) {
  module.walk([&](Operation *op) {
    walker.walk(op->getAttrDictionary());
    walker.walk(op->getLoc());
    walker.walk(DictionaryAttr(op->getRawDictionaryAttrs()));
    for (Type type : op->getResultTypes())
      walker.walk(type);
  });
}

template <typename AttributeOrType>
void expectRecordHoldsParts(AttributeOrType value) {
  codec::Record record;
  if (!codec::encode(value, record).ok() ||
      record.bytes[0] < static_cast<uint8_t>(codec::Tag::DialectAttribute))
    return;
  std::multiset<const void *> held;
  for (codec::Reference reference : record.references)
    held.insert(reference.pointer);
  auto expectHeld = [&](auto part) {
    if (!part)
      return;
    auto it = held.find(part.getAsOpaquePointer());
    EXPECT_TRUE(it != held.end()) << codec::describe(value);
    if (it != held.end())
      held.erase(it);
  };
  value.walkImmediateSubElements([&](Attribute part) { expectHeld(part); },
                                 [&](Type part) { expectHeld(part); });
}

TEST(ModulesTest, RecordsOfAllAttributesHoldAllSubElements) {
  std::vector<std::filesystem::path> files =
      moduleFiles(sourceDir() / "bench" / "modules");
  for (const auto &file : corpusFiles())
    files.push_back(file);
  auto context = makeContext();
  AttrTypeWalker walker;
  size_t seen = 0;
  walker.addWalk([&](Attribute attribute) {
    ++seen;
    expectRecordHoldsParts(attribute);
  });
  walker.addWalk([&](Type type) { expectRecordHoldsParts(type); });
  // The walker remembers addresses, and so the modules stay.
  std::vector<OwningOpRef<ModuleOp>> modules;
  for (const auto &file : files) {
    SCOPED_TRACE(file.string());
    std::string text = readFile(file);
    if (text.size() > largestFile())
      continue;
    modules.push_back(tryParse(*context, text));
    if (modules.back())
      expectRecordsHoldAllParts(*modules.back(), walker);
  }
  EXPECT_GT(seen, 100u);
}

TEST(ModulesTest, CorpusIsBlindToNeutralRewrites) {
  std::vector<std::filesystem::path> files = corpusFiles();
  if (files.empty())
    GTEST_SKIP() << "needs the folder 'corpus' in CONTEXT_POOL_SHARED_DIR";
  Contexts contexts;
  std::mt19937_64 random(3);
  for (const auto &file : files) {
    std::string text = readFile(file);
    if (text.size() > largestFile())
      continue;
    SCOPED_TRACE(file.string());
    if (!tryParse(*contexts.first, text))
      continue;
    expectNeutralRewritesAreBlind(contexts, text, survivesBytecode(file, text),
                                  random);
  }
}

TEST(ModulesTest, CorpusIsSensitiveToSingleMutations) {
  std::vector<std::filesystem::path> files = corpusFiles();
  if (files.empty())
    GTEST_SKIP() << "needs the folder 'corpus' in CONTEXT_POOL_SHARED_DIR";
  auto context = makeContext();
  std::mt19937_64 random(numberFromEnvironment("CONTEXT_POOL_TEST_SEED", 4));
  for (const auto &file : files) {
    std::string text = readFile(file);
    if (text.size() > largestFile() || text.find("distinct[") != text.npos)
      continue;
    SCOPED_TRACE(file.string());
    if (OwningOpRef<ModuleOp> module = tryParse(*context, text))
      expectMutationsAreSeen(*module, random, 6);
  }
}

TEST(ModulesTest, DifferentModulesOfTheCorpusHaveDifferentDigests) {
  std::vector<std::filesystem::path> files = corpusFiles();
  if (files.empty())
    GTEST_SKIP() << "needs the folder 'corpus' in CONTEXT_POOL_SHARED_DIR";
  auto context = makeContext();
  Fingerprinter fingerprinter(*context);
  std::map<std::string, std::string> textOfDigest;
  for (const auto &file : files) {
    std::string text = readFile(file);
    if (text.size() > largestFile())
      continue;
    OwningOpRef<ModuleOp> module = tryParse(*context, text);
    if (!module)
      continue;
    CTXPOOL_ASSERT_OK_AND_ASSIGN(digest, fingerprinter.compute(*module));
    // What it remembers, and of many other modules, changes nothing.
    EXPECT_EQ(digest, digestOf(*module)) << file;
    CTXPOOL_ASSERT_OK_AND_ASSIGN(again, fingerprinter.compute(*module));
    EXPECT_EQ(digest, again) << file;
    auto [it, isNew] =
        textOfDigest.try_emplace(digest.toHex(), genericText(*module));
    EXPECT_TRUE(isNew || it->second == genericText(*module)) << file;
  }
}

TEST(ModulesTest, WhereDigestsCollideTheComparisonTellsModulesApart) {
  // A table whose digests are cut to four bits, in which nearly all collide.
  auto context = makeContext();
  std::mt19937_64 random(numberFromEnvironment("CONTEXT_POOL_TEST_SEED", 6));
  std::vector<OwningOpRef<ModuleOp>> modules;
  std::vector<std::vector<std::pair<ModuleOp, Fingerprint>>> table(16);
  size_t collisions = 0;
  for (int made = 0; made < 150; ++made) {
    modules.push_back(parse(*context, R"(
      func.func @f(%a: i32, %b: i32) -> i32 {
        %0 = arith.addi %a, %b : i32
        %1 = arith.muli %0, %a {k = 1 : i8, l = "x"} : i32
        return %1 : i32 })"));
    for (unsigned step = random() % 3; step > 0; --step)
      mutate(*modules.back(), random);
    ModuleOp module = *modules.back();
    Fingerprint digest = digestOf(module);
    auto &bucket = table[digest.bytes[0] & 15];
    for (auto &[other, otherDigest] : bucket) {
      EXPECT_EQ(isEquivalent(module, other), digest == otherDigest);
      collisions += digest != otherDigest;
    }
    bucket.emplace_back(module, digest);
  }
  EXPECT_GT(collisions, 100u);
}

TEST(ModulesTest, RandomPairsNeverDisagree) {
  // Many small modules, a step or a few apart from one another, in a context
  // that remembers them all. CONTEXT_POOL_TEST_PAIRS=1000000 is the long form.
  uint64_t pairs = numberFromEnvironment("CONTEXT_POOL_TEST_PAIRS",
                                         isSanitized ? 300 : 6000);
  uint64_t seed = numberFromEnvironment("CONTEXT_POOL_TEST_SEED", 5);
  SCOPED_TRACE("CONTEXT_POOL_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const char *texts[] = {
      R"(func.func @f(%a: i32, %b: i32, %c: i1) -> i32 {
           %0 = arith.addi %a, %b : i32
           %1 = scf.if %c -> (i32) { %2 = arith.muli %0, %a : i32
             scf.yield %2 : i32 } else { scf.yield %b : i32 }
           return %1 : i32 })",
      R"(func.func @g(%c: i1, %x: i32, %y: i32) -> (i32, i32) {
           cf.cond_br %c, ^a(%x, %y : i32, i32), ^b(%y, %x : i32, i32)
           ^a(%p: i32, %q: i32): return %p, %q : i32, i32
           ^b(%r: i32, %s: i32): return %r, %s : i32, i32 })",
      R"("t.r"() ({ %0 = "t.a"(%1) : (i1) -> i1 %1 = "t.b"(%0) {k = 1 : i8}
           : (i1) -> i1 }, { ^x(%3: f32): "t.c"(%3) <{p = "s"}> : (f32) -> ()
           ^y: "t.d"()[^y] : () -> () }) {l = [1 : i8, "x"]} : () -> ())",
      R"(module { func.func private @p(%a: i8) -> i8 { return %a : i8 }
           func.func @q(%a: i8) -> i8 { %0 = call @p(%a) : (i8) -> i8
             %1 = call @q(%0) : (i8) -> i8 return %1 : i8 }
           "t.x"() {k = distinct[0]<1 : i8>, l = [distinct[1]<1 : i8>, @p]}
             : () -> ()
           "t.y"() {k = distinct[0]<1 : i8>, l = #dlti.map<"a" = distinct[1]<1 : i8>>}
             : () -> () })",
      R"(module { func.func private @h(i64) "t.m"() {s = @h, d = {a = 1.0 : f32}}
           : () -> () %0 = "t.v"() : () -> (tensor<4xf32>) })",
  };
  uint64_t same = 0, done = 0;
  std::unique_ptr<MLIRContext> context;
  std::unique_ptr<Fingerprinter> fingerprinter;
  std::vector<OwningOpRef<ModuleOp>> bases;
  while (done < pairs && !HasFailure()) {
    if (done % 20000 == 0) {
      fingerprinter.reset();
      bases.clear();
      context = makeContext();
      fingerprinter = std::make_unique<Fingerprinter>(*context);
      for (const char *text : texts)
        bases.push_back(parse(*context, text));
    }
    ++done;
    ModuleOp base = *bases[random() % bases.size()];
    OwningOpRef<ModuleOp> lhs = base.clone(), rhs = base.clone();
    std::string what;
    unsigned steps = 1 + random() % 3;
    for (unsigned i = 0; i != steps; ++i)
      what += mutate(*lhs, random) + "; ";
    what += "against: ";
    for (unsigned i = 0; i != steps; ++i)
      what += mutate(*rhs, random) + "; ";

    CTXPOOL_ASSERT_OK_AND_ASSIGN(left, fingerprinter->compute(*lhs));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(right, fingerprinter->compute(*rhs));
    bool sameDigest = left == right;
    EXPECT_EQ(sameDigest, isEquivalent(*lhs, *rhs)) << what;
    EXPECT_EQ(sameDigest, genericText(*lhs) == genericText(*rhs)) << what;
    same += sameDigest;

    // Under other options they agree as well, and what is the same to the
    // letter is the same with fewer.
    if (done % 4 != 0)
      continue;
    StructuralOptions options;
    options.includeDiscardableAttributes = random() % 2;
    options.symbols = static_cast<StructuralOptions::Symbols>(random() % 3);
    CTXPOOL_ASSERT_OK_AND_ASSIGN(leftRough,
                                 fingerprinter->compute(*lhs, options));
    CTXPOOL_ASSERT_OK_AND_ASSIGN(rightRough,
                                 fingerprinter->compute(*rhs, options));
    EXPECT_EQ(leftRough == rightRough, isEquivalent(*lhs, *rhs, options))
        << what;
    EXPECT_TRUE(!sameDigest || leftRough == rightRough) << what;
  }
  // Both answers were put to the test.
  EXPECT_LT(same, pairs);
  if (pairs >= 5000) {
    EXPECT_GT(same, 0u);
  }
}

//===----------------------------------------------------------------------===//
// Cases from bug reports
//===----------------------------------------------------------------------===//

std::optional<std::filesystem::path> casesDir() {
  return sharedDir("cases/inputs");
}

TEST(CasesTest, VariantsOfACaseDifferExceptWhereTheyShouldNot) {
  auto folder = casesDir();
  if (!folder)
    GTEST_SKIP()
        << "needs the folder 'cases/inputs' in CONTEXT_POOL_SHARED_DIR";
  // Those that are the same: by default, locations do not count; a resource's
  // key does not; a splat is its elements.
  const std::set<std::pair<std::string, std::string>> sameOnes = {
      {"042-locations.a", "042-locations.b"},
      {"040-resource-name-vs-content.a", "040-resource-name-vs-content.b"},
      {"043-scalars.a", "043-scalars.c"},
      // Blocks count by place: both are one change away from the first.
      {"035-successors-swapped.b", "035-successors-swapped.c"},
  };
  std::map<std::string, std::vector<std::filesystem::path>> groups;
  for (const auto &file : moduleFiles(*folder))
    if (file.parent_path() == *folder &&
        file.stem().extension().string().size() == 2)
      groups[file.filename().string().substr(0, 3)].push_back(file);
  EXPECT_GE(groups.size(), 15u);
  Contexts contexts;
  for (const auto &[group, files] : groups)
    for (size_t i = 0; i != files.size(); ++i)
      for (size_t j = i; j != files.size(); ++j) {
        SCOPED_TRACE(files[i].stem().string() + " and " +
                     files[j].stem().string());
        auto lhs = tryParse(*contexts.first, readFile(files[i]));
        auto rhs = tryParse(*contexts.second, readFile(files[j]));
        auto rhsBeside = tryParse(*contexts.first, readFile(files[j]));
        ASSERT_TRUE(lhs && rhs && rhsBeside);
        bool same = i == j || sameOnes.count({files[i].stem().string(),
                                              files[j].stem().string()});
        // The location of a text's implicit module is no matter here.
        EXPECT_EQ(isSame(*lhs, *rhs), same);
        EXPECT_EQ(isSame(*lhs, *rhsBeside), same);
      }
}

TEST(CasesTest, EveryInputIsTheSameInTwoContexts) {
  auto folder = casesDir();
  if (!folder)
    GTEST_SKIP()
        << "needs the folder 'cases/inputs' in CONTEXT_POOL_SHARED_DIR";
  Contexts contexts;
  StructuralOptions located;
  located.includeLocations = true;
  std::mt19937_64 random(6);
  for (const auto &file : moduleFiles(*folder)) {
    // These end the parser instead of failing, upstream.
    if (file.parent_path().filename() == "crash" ||
        file.filename() == "006-resource-align-zero.mlir")
      continue;
    SCOPED_TRACE(file.filename().string());
    std::string text = readFile(file);
    auto lhs = tryParse(*contexts.first, text);
    auto rhs = tryParse(*contexts.second, text);
    if (!lhs || !rhs)
      continue;
    EXPECT_TRUE(isSame(*lhs, *rhs));
    EXPECT_TRUE(isSame(*lhs, *rhs, located));
    auto again = tryParse(*contexts.first, text);
    EXPECT_TRUE(isSame(*lhs, *again, located));
    shuffleUseLists(*lhs, random);
    EXPECT_TRUE(isSame(*lhs, *again, located));
  }
}

TEST(CasesTest, LocationsOfArgumentsCountWhenAsked) {
  auto folder = casesDir();
  if (!folder)
    GTEST_SKIP()
        << "needs the folder 'cases/inputs' in CONTEXT_POOL_SHARED_DIR";
  auto context = makeContext();
  StructuralOptions located;
  located.includeLocations = true;
  auto a = tryParse(*context, readFile(*folder / "042-locations.a.mlir"));
  auto b = tryParse(*context, readFile(*folder / "042-locations.b.mlir"));
  ASSERT_TRUE(a && b);
  EXPECT_TRUE(isSame(&a->front(), &b->front()));
  EXPECT_FALSE(isSame(&a->front(), &b->front(), located));
}

} // namespace

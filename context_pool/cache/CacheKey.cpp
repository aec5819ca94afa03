//===- CacheKey.cpp - What names a result of compiling --------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/CompileCache.h"

#include "context_pool/cache/CompilerIdentity.h"
#include "context_pool/support/Pipeline.h"

#include "absl/strings/str_cat.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/Triple.h"

#include <map>

using namespace ctxpool;
using namespace ctxpool::detail;

namespace {

/// Of the way in which keys are made. Changes with anything that changes a key,
/// or that lets one key name two results.
constexpr llvm::StringLiteral keyScheme = "ctxpool-key-1";

absl::Status invalid(llvm::StringRef field, llvm::StringRef value,
                     llvm::StringRef problem) {
  return absl::InvalidArgumentError(absl::StrCat(
      "compile recipe: ", field.str(), " '", value.str(), "' ", problem.str()));
}

absl::Status settlePipeline(CompileRecipe &recipe) {
  absl::StatusOr<mlir::OpPassManager> pipeline = parsePipeline(recipe.pipeline);
  if (!pipeline.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("compile recipe: ", pipeline.status().message()));
  std::string printed;
  llvm::raw_string_ostream stream(printed);
  pipeline->printAsTextualPipeline(stream);
  recipe.pipeline = std::move(printed);
  return absl::OkStatus();
}

absl::Status settleTarget(CompileRecipe &recipe) {
  std::string normalized = recipe.target.empty()
                               ? llvm::sys::getProcessTriple()
                               : llvm::Triple::normalize(recipe.target);
  if (llvm::Triple(normalized).getArch() == llvm::Triple::UnknownArch)
    return invalid("target", recipe.target,
                   "is no target triple: its architecture is unknown");
  recipe.target = std::move(normalized);
  return absl::OkStatus();
}

/// Also settles the CPU, which may bring features with it.
absl::Status settleFeatures(CompileRecipe &recipe) {
  // Whether a feature is on, by name.
  std::map<std::string, bool> features;
  if (recipe.cpu == "native") {
    llvm::Triple host(llvm::sys::getProcessTriple());
    if (llvm::Triple(recipe.target).getArch() != host.getArch())
      return invalid("cpu", recipe.cpu,
                     absl::StrCat("is that of ", host.str(),
                                  ", and not one of target '", recipe.target,
                                  "'"));
    recipe.cpu = llvm::sys::getHostCPUName().str();
    for (const auto &feature : llvm::sys::getHostCPUFeatures())
      features[feature.first().str()] = feature.second;
  }
  llvm::SmallVector<llvm::StringRef> given;
  llvm::StringRef(recipe.features)
      .split(given, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (llvm::StringRef feature : given) {
    feature = feature.trim();
    if (feature.size() < 2 || (feature[0] != '+' && feature[0] != '-'))
      return invalid("features", recipe.features,
                     absl::StrCat("has '", feature.str(),
                                  "'; expected + or - and a name"));
    // LLVM does not tell their case apart.
    features[feature.drop_front().lower()] = feature[0] == '+';
  }
  recipe.features.clear();
  for (const auto &[name, isOn] : features)
    absl::StrAppend(&recipe.features, recipe.features.empty() ? "" : ",",
                    isOn ? "+" : "-", name);
  return absl::OkStatus();
}

absl::Status checkCodeGeneration(const CompileRecipe &recipe) {
  constexpr llvm::StringLiteral models[] = {"",       "tiny",   "small",
                                            "kernel", "medium", "large"};
  if (!llvm::is_contained(models, recipe.codeModel))
    return invalid("codeModel", recipe.codeModel,
                   "is none; expected tiny, small, kernel, medium or large");
  if (recipe.optimizationLevel > 3)
    return invalid("optimizationLevel",
                   std::to_string(recipe.optimizationLevel), "is above 3");
  return absl::OkStatus();
}

/// Adds bytes so that no two sequences of strings are one sequence of bytes.
void update(llvm::BLAKE3 &hasher, llvm::StringRef bytes) {
  uint8_t size[8];
  llvm::support::endian::write64le(size, bytes.size());
  hasher.update(size);
  hasher.update(bytes);
}

} // namespace

absl::StatusOr<ResolvedRecipe>
ResolvedRecipe::create(const CompileRecipe &recipe) {
  ResolvedRecipe resolved;
  CompileRecipe &settled = resolved.recipe;
  settled = recipe;
  for (absl::Status status :
       {settlePipeline(settled), settleTarget(settled), settleFeatures(settled),
        checkCodeGeneration(settled)})
    if (!status.ok())
      return status;

  resolved.parts = {
      {"scheme", keyScheme.str()},
      {"pipeline", settled.pipeline},
      {"target", settled.target},
      {"cpu", settled.cpu},
      {"features", settled.features},
      {"code model", settled.codeModel},
      {"optimization level", std::to_string(settled.optimizationLevel)},
      {"options", settled.options},
  };
  for (size_t i = 0; i != settled.extra.size(); ++i)
    resolved.parts.push_back({absl::StrCat("extra ", i), settled.extra[i]});
  for (KeyPart &part : getCompilerIdentity())
    resolved.parts.push_back(std::move(part));

  llvm::BLAKE3 hasher;
  for (const KeyPart &part : resolved.parts) {
    update(hasher, part.name);
    update(hasher, part.value);
  }
  resolved.digest.bytes = hasher.final<32>();
  return resolved;
}

CacheKey ResolvedRecipe::makeKey(const Fingerprint &module) const {
  llvm::BLAKE3 hasher;
  hasher.update(keyScheme);
  hasher.update(digest.bytes);
  hasher.update(module.bytes);
  CacheKey key;
  key.digest.bytes = hasher.final<32>();
  return key;
}

std::vector<KeyPart>
ResolvedRecipe::explainKey(const Fingerprint &module) const {
  std::vector<KeyPart> all = parts;
  all.push_back({"module", module.toHex()});
  return all;
}

absl::StatusOr<CacheKey> ctxpool::makeCacheKey(const Fingerprint &module,
                                               const CompileRecipe &recipe) {
  absl::StatusOr<ResolvedRecipe> resolved = ResolvedRecipe::create(recipe);
  if (!resolved.ok())
    return resolved.status();
  return resolved->makeKey(module);
}

absl::StatusOr<std::vector<KeyPart>>
ctxpool::explainKey(const Fingerprint &module, const CompileRecipe &recipe) {
  absl::StatusOr<ResolvedRecipe> resolved = ResolvedRecipe::create(recipe);
  if (!resolved.ok())
    return resolved.status();
  return resolved->explainKey(module);
}

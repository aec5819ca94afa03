//===- DeserializeFuzzer.cpp - Damaged bytes are an error -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A libFuzzer target: `deserialize` and `LazyModule` take any bytes. What they
/// accept is written again, which must work, and is cloned, which must give the
/// same. Crashes inside MLIR's reader are upstream's. Run it on a folder of
/// bytecode:
///
///     deserialize-fuzzer -rss_limit_mb=4096 -timeout=10 <folder>
///
//===----------------------------------------------------------------------===//

#include "context_pool/Equivalence.h"
#include "context_pool/ModuleTransfer.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cstdio>
#include <cstdlib>
#include <memory>

using namespace mlir;
using namespace ctxpool;

namespace {

std::unique_ptr<MLIRContext> makeContext() {
  static const DialectRegistry *registry = [] {
    auto *made = new DialectRegistry();
    registerAllDialects(*made);
    registerAllExtensions(*made);
    return made;
  }();
  auto context = std::make_unique<MLIRContext>(
      *registry, MLIRContext::Threading::DISABLED);
  context->allowUnregisteredDialects();
  return context;
}

void require(bool condition, const char *what) {
  if (condition)
    return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto loaded = loadSerialized(llvm::MemoryBuffer::getMemBufferCopy(
      llvm::StringRef(reinterpret_cast<const char *>(data), size)));
  if (!loaded.ok())
    return 0;
  std::unique_ptr<MLIRContext> context = makeContext();
  auto read = deserialize(*loaded, *context);
  if (read.ok()) {
    std::unique_ptr<MLIRContext> other = makeContext();
    auto copy = cloneInto(read->get(), *other);
    if (copy.ok())
      require(isEquivalent(read->get(), copy->get()), "a clone differs");
    auto again = serialize(read->get());
    if (again.ok())
      require(deserialize(*again, *other).ok(), "own bytes are not read");
  }
  auto lazy = LazyModule::open(*loaded, *context);
  if (lazy.ok())
    for (const std::string &symbol : (*lazy)->getSymbols())
      (void)(*lazy)->materialize(symbol);
  return 0;
}

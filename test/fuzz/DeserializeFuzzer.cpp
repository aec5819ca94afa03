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
/// same. README.md in this folder tells how to run it, and `MutationDriver.cpp`,
/// which needs no instrumentation.
///
//===----------------------------------------------------------------------===//

#include "context_pool/Equivalence.h"
#include "context_pool/ModuleTransfer.h"
#include "test/fuzz/FuzzSupport.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>

using namespace mlir;
using namespace ctxpool;
using namespace ctxpool::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // To load all dialects takes longer than most inputs; what inputs leave behind
  // in the contexts is bounded.
  static std::unique_ptr<MLIRContext> context, other;
  static unsigned inputs = 0;
  if (inputs++ % 2000 == 0) {
    context = makeContext();
    other = makeContext();
  }

  step = "load";
  auto loaded = loadSerialized(llvm::MemoryBuffer::getMemBufferCopy(
      llvm::StringRef(reinterpret_cast<const char *>(data), size)));
  if (!loaded.ok())
    return 0;
  step = "deserialize";
  auto read = deserialize(*loaded, *context);
  if (read.ok()) {
    step = "clone";
    auto copy = cloneInto(read->get(), *other);
    if (copy.ok()) {
      absl::Status same = checkEquivalence(read->get(), copy->get());
      // MLIR's verifier takes properties without their default value, which
      // `Operation::clone` puts in.
      OwningOpRef<Operation *> inContext = read->get()->clone();
      require(same.ok() || !isEquivalent(read->get(), *inContext),
              same.ToString().c_str());
    }
    step = "serialize";
    auto again = serialize(read->get());
    // What was read sees all that it uses.
    require(again.ok() || absl::IsFailedPrecondition(again.status()),
            again.status().ToString().c_str());
    step = "deserialize again";
    if (again.ok()) {
      // What a verifier says may depend on the dialects that are loaded.
      DeserializeOptions trusted;
      trusted.verify = false;
      absl::Status status = deserialize(*again, *other, trusted).status();
      require(status.ok(), status.ToString().c_str());
    }
    step = "destroy";
  }
  read = absl::CancelledError();
  step = "read lazily";
  auto lazy = LazyModule::open(*loaded, *context);
  if (lazy.ok())
    for (const std::string &symbol : (*lazy)->getSymbols())
      (void)(*lazy)->materialize(symbol);
  step = "end lazily";
  return 0;
}

//===- ModuleVariants.cpp - One module as many different ones -------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/ModuleVariants.h"

#include "bench/ModuleParser.h"
#include "context_pool/ModuleTransfer.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OperationSupport.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <cassert>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::bench;

/// The same length for every number.
static std::string makeMark(uint64_t number) {
  return llvm::formatv("ctxpool-bench variant {0,0+20}", number);
}

std::optional<std::string> bench::renumber(llvm::StringRef bytes, uint64_t from,
                                           uint64_t to) {
  std::string old = makeMark(from), replacement = makeMark(to);
  size_t position = bytes.find(old);
  if (position == llvm::StringRef::npos)
    return std::nullopt;
  std::string renumbered = bytes.str();
  do {
    renumbered.replace(position, old.size(), replacement);
    position = bytes.find(old, position + old.size());
  } while (position != llvm::StringRef::npos);
  return renumbered;
}

static absl::Status numberSource(ModuleSource &source,
                                 const mlir::DialectRegistry &registry,
                                 bool allowUnregisteredDialects) {
  absl::StatusOr<LoadedModule> loaded =
      loadModule(source, registry, allowUnregisteredDialects);
  if (!loaded.ok())
    return loaded.status();
  mlir::ModuleOp module = loaded->module.get();
  module->setAttr(
      mlir::LLVM::LLVMDialect::getIdentAttrName(),
      mlir::Builder(module.getContext()).getStringAttr(makeMark(0)));

  if (mlir::isBytecode(source.bytes->getMemBufferRef())) {
    absl::StatusOr<SerializedModule> written = serialize(module);
    if (!written.ok())
      return written.status();
    source.bytes = copyAligned(written->getBytes(), source.name);
  } else {
    std::string text;
    llvm::raw_string_ostream stream(text);
    module->print(stream, mlir::OpPrintingFlags().enableDebugInfo(
                              source.bytes->getBuffer().contains("loc(")));
    source.bytes = copyAligned(text, source.name);
  }
  return absl::OkStatus();
}

void bench::numberSources(llvm::MutableArrayRef<ModuleSource> sources,
                          const mlir::DialectRegistry &registry,
                          bool allowUnregisteredDialects) {
  for (ModuleSource &source : sources)
    if (source.error.empty())
      if (absl::Status status =
              numberSource(source, registry, allowUnregisteredDialects);
          !status.ok())
        source.error = std::string(status.message());
}

ModuleSource bench::makeVariant(const ModuleSource &numbered, uint64_t number) {
  assert(numbered.error.empty() && "there are no bytes");
  std::optional<std::string> bytes =
      renumber(numbered.bytes->getBuffer(), 0, number);
  assert(bytes && "the module has no number");
  ModuleSource variant;
  variant.name = numbered.name;
  variant.pipeline = numbered.pipeline;
  variant.bytes = copyAligned(*bytes, variant.name);
  return variant;
}

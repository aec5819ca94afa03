//===- CompileInput.cpp - What a request brings ---------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CompileInput.h"

#include "bench/CommandLine.h"
#include "bench/ModuleParser.h"
#include "context_pool/ModuleTransfer.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OperationSupport.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <memory>
#include <string>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::bench;

llvm::ArrayRef<llvm::StringRef> bench::getCompileInputNames() {
  static constexpr llvm::StringRef names[] = {"files", "text", "bytecode",
                                              "module"};
  return names;
}

std::optional<CompileInput> bench::findCompileInput(llvm::StringRef name) {
  return findByName<CompileInput>(getCompileInputNames(), name);
}

/// Whether requests bring the bytes of the file as they are.
static bool isAsWanted(const ModuleSource &source, CompileInput input) {
  bool isBytecode = mlir::isBytecode(source.bytes->getMemBufferRef());
  return input == CompileInput::Files ||
         (input == CompileInput::Text && !isBytecode) ||
         (input == CompileInput::Bytecode && isBytecode);
}

static absl::Status convert(ModuleSource &source, CompileInput input,
                            const mlir::DialectRegistry &registry,
                            bool allowUnregisteredDialects) {
  absl::StatusOr<LoadedModule> loaded =
      loadModule(source, registry, allowUnregisteredDialects);
  if (!loaded.ok())
    return loaded.status();
  if (input == CompileInput::Module) {
    // Compile threads read it at one time, and some operations make attributes
    // of their properties to be read.
    loaded->context->enableMultithreading();
    source.live = std::make_shared<const LoadedModule>(*std::move(loaded));
    return absl::OkStatus();
  }
  if (input == CompileInput::Bytecode) {
    absl::StatusOr<SerializedModule> bytes =
        serialize(loaded->module->getOperation());
    if (!bytes.ok())
      return bytes.status();
    source.bytes = copyAligned(bytes->getBytes(), source.name);
    return absl::OkStatus();
  }
  std::string text;
  llvm::raw_string_ostream stream(text);
  loaded->module->print(stream, mlir::OpPrintingFlags().enableDebugInfo());
  source.bytes = copyAligned(text, source.name);
  return absl::OkStatus();
}

void bench::convertSources(llvm::MutableArrayRef<ModuleSource> sources,
                           CompileInput input,
                           const mlir::DialectRegistry &registry,
                           bool allowUnregisteredDialects) {
  for (ModuleSource &source : sources)
    if (source.error.empty() && !isAsWanted(source, input))
      if (absl::Status status =
              convert(source, input, registry, allowUnregisteredDialects);
          !status.ok())
        source.error = std::string(status.message());
}

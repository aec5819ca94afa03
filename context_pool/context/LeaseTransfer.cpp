//===- LeaseTransfer.cpp - Bringing IR into a leased context --------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ContextPool.h"
#include "context_pool/Diagnostics.h"
#include "context_pool/ModuleTransfer.h"

#include "absl/strings/str_cat.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace ctxpool;
using namespace mlir;

/// Whether the text has a resource whose first four bytes, which are its
/// alignment, are zero.
static bool hasResourceOfNoAlignment(llvm::StringRef text) {
  size_t resources = text.find("{-#");
  return resources != llvm::StringRef::npos &&
         text.substr(resources).contains("\"0x00000000");
}

absl::StatusOr<OwningOpRef<Operation *>>
ContextLease::cloneIn(Operation *source) {
  return cloneIn(source, CloneOptions());
}

absl::StatusOr<OwningOpRef<Operation *>>
ContextLease::cloneIn(Operation *source, const CloneOptions &options) {
  CrossContextCloner cloner(*source->getContext(), *get());
  auto result = cloner.clone(source, options);
  charge(cloner.getInternedBytes());
  return result;
}

absl::StatusOr<OwningOpRef<Operation *>>
ContextLease::deserialize(const SerializedModule &bytes) {
  return deserialize(bytes, DeserializeOptions());
}

absl::StatusOr<OwningOpRef<Operation *>>
ContextLease::deserialize(const SerializedModule &bytes,
                          const DeserializeOptions &options) {
  charge(bytes.getBytes().size());
  return ctxpool::deserialize(bytes, *get(), options);
}

/// The module that the bytes are; a module around what else they are, as MLIR's
/// parser has it.
static absl::StatusOr<OwningOpRef<ModuleOp>>
readModule(llvm::StringRef bytes, MLIRContext &context, bool verify) {
  absl::StatusOr<SerializedModule> loaded =
      loadSerialized(llvm::MemoryBuffer::getMemBufferCopy(bytes));
  if (!loaded.ok())
    return loaded.status();
  DeserializeOptions options;
  options.verify = verify;
  absl::StatusOr<OwningOpRef<Operation *>> read =
      ctxpool::deserialize(*loaded, context, options);
  if (!read.ok())
    return read.status();
  Operation *op = read->release();
  if (auto module = dyn_cast<ModuleOp>(op))
    return OwningOpRef<ModuleOp>(module);
  OwningOpRef<ModuleOp> module = ModuleOp::create(op->getLoc());
  module->push_back(op);
  return module;
}

absl::StatusOr<OwningOpRef<ModuleOp>>
ContextLease::parse(llvm::StringRef text, llvm::StringRef name, bool verify) {
  charge(text.size());
  if (isBytecode(llvm::MemoryBufferRef(text, name))) {
    auto module = readModule(text, *get(), verify);
    if (module.ok())
      return module;
    return absl::Status(module.status().code(),
                        absl::StrCat("cannot parse '", name.str(),
                                     "': ", module.status().message()));
  }
  if (hasResourceOfNoAlignment(text))
    return absl::InvalidArgumentError(
        absl::StrCat("cannot parse '", name.str(),
                     "': a resource in it has an alignment of zero"));
  std::vector<CapturedDiagnostic> errors;
  // The handler of the lease gets them too.
  ScopedDiagnosticHandler handler(get(), [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
      errors.push_back(CapturedDiagnostic::capture(diagnostic));
    return failure();
  });
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(text, ParserConfig(get(), verify), name);
  if (!module)
    return absl::InvalidArgumentError(
        absl::StrCat("cannot parse '", name.str(), "': ",
                     errors.empty() ? std::string("MLIR does not say why")
                                    : toString(errors)));
  return module;
}

absl::StatusOr<OwningOpRef<ModuleOp>>
ContextLease::parseFile(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (std::error_code error = buffer.getError())
    return absl::NotFoundError(
        absl::StrCat("cannot read '", path.str(), "': ", error.message()));
  return parse((*buffer)->getBuffer(), path);
}

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
#include "context_pool/context/ContextReset.h"
#include "context_pool/context/PooledContext.h"
#include "context_pool/ir/OperationCopier.h"
#include "context_pool/ir/SerializedStorage.h"
#include "context_pool/ir/TextCheck.h"
#include "context_pool/ir/Translator.h"

#include "absl/strings/str_cat.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/MemoryBuffer.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::detail;
using namespace mlir;

namespace {

/// What comes into a context as long as this lives, of which resource blobs go
/// again when the lease ends.
class BroughtIn {
public:
  explicit BroughtIn(MLIRContext &context)
      : context(context),
        blobBytesBefore(ContextBaseline::countBlobBytes(context)) {}

  /// What stays of `bytes`, of which a byte of a blob takes `bytesOfBlobByte`.
  uint64_t getLasting(uint64_t bytes, unsigned bytesOfBlobByte = 1) const {
    uint64_t blobBytes =
        ContextBaseline::countBlobBytes(context) - blobBytesBefore;
    return bytes - std::min(bytes, blobBytes * bytesOfBlobByte);
  }

private:
  MLIRContext &context;
  const uint64_t blobBytesBefore;
};

} // namespace

absl::StatusOr<OwningOpRef<Operation *>>
ContextLease::cloneIn(Operation *source) {
  return cloneIn(source, CloneOptions());
}

absl::StatusOr<OwningOpRef<Operation *>>
ContextLease::cloneIn(Operation *source, const CloneOptions &options) {
  BroughtIn broughtIn(*get());
  Translator translator(*source->getContext(), *get());
  translator.countLargeOnce(pooled->getChargedAttributes());
  auto result = copyOperation(source, translator, options);
  charge(broughtIn.getLasting(translator.getInternedBytes()));
  return result;
}

absl::StatusOr<OwningOpRef<Operation *>>
ContextLease::deserialize(const SerializedModule &bytes) {
  return deserialize(bytes, DeserializeOptions());
}

absl::StatusOr<OwningOpRef<Operation *>>
ContextLease::deserialize(const SerializedModule &bytes,
                          const DeserializeOptions &options) {
  BroughtIn broughtIn(*get());
  auto result = ctxpool::deserialize(bytes, *get(), options);
  charge(broughtIn.getLasting(bytes.getBytes().size()));
  return result;
}

/// The module that the bytes are; a module around what else they are, as MLIR's
/// parser has it.
static absl::StatusOr<OwningOpRef<ModuleOp>>
readModule(llvm::StringRef bytes, MLIRContext &context, bool verify) {
  // A copy of its own, for resources keep it longer than the caller does.
  auto storage = SerializedStorage::allocate(bytes.size());
  std::memcpy(storage->getMemory(), bytes.data(), bytes.size());
  SerializedModule loaded = SerializedStorage::toModule(std::move(storage));
  DeserializeOptions options;
  options.verify = verify;
  absl::StatusOr<OwningOpRef<Operation *>> read =
      ctxpool::deserialize(loaded, context, options);
  if (!read.ok())
    return read.status();
  Operation *op = read->release();
  if (auto module = dyn_cast<ModuleOp>(op))
    return OwningOpRef<ModuleOp>(module);
  OwningOpRef<ModuleOp> module = ModuleOp::create(op->getLoc());
  module->push_back(op);
  return module;
}

/// The module that the text is.
static absl::StatusOr<OwningOpRef<ModuleOp>> parseText(llvm::StringRef text,
                                                       llvm::StringRef name,
                                                       MLIRContext &context,
                                                       bool verify) {
  if (absl::Status status = checkText(text); !status.ok())
    return status;
  std::vector<CapturedDiagnostic> errors;
  // The handler of the lease gets them too.
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
      errors.push_back(CapturedDiagnostic::capture(diagnostic));
    return failure();
  });
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(text, ParserConfig(&context, verify), name);
  if (!module)
    return absl::InvalidArgumentError(errors.empty()
                                          ? std::string("MLIR does not say why")
                                          : toString(errors));
  return module;
}

absl::StatusOr<OwningOpRef<ModuleOp>>
ContextLease::parse(llvm::StringRef text, llvm::StringRef name, bool verify) {
  BroughtIn broughtIn(*get());
  bool isText = !isBytecode(llvm::MemoryBufferRef(text, name));
  auto module = isText ? parseText(text, name, *get(), verify)
                       : readModule(text, *get(), verify);
  // In text, a byte of a blob is two digits.
  charge(broughtIn.getLasting(text.size(), isText ? 2 : 1));
  if (module.ok())
    return module;
  return absl::Status(module.status().code(),
                      absl::StrCat("cannot parse '", name.str(),
                                   "': ", module.status().message()));
}

absl::StatusOr<OwningOpRef<ModuleOp>>
ContextLease::parseFile(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (std::error_code error = buffer.getError())
    return absl::NotFoundError(
        absl::StrCat("cannot read '", path.str(), "': ", error.message()));
  return parse((*buffer)->getBuffer(), path);
}

//===- Serialization.cpp - Modules as bytecode ----------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/Equivalence.h"
#include "context_pool/ModuleTransfer.h"
#include "context_pool/ir/BytecodeCheck.h"
#include "context_pool/ir/OperationCopier.h"
#include "context_pool/ir/SerializedStorage.h"
#include "context_pool/ir/WritingCheck.h"
#include "context_pool/support/Thread.h"

#include "absl/strings/str_cat.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/MemAlloc.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>
#include <utility>

using namespace mlir;

namespace ctxpool {
namespace {

/// Reads the bytes in a context of their own and compares. That of the operation
/// would keep what is read, and other threads may be reading it.
absl::Status checkBytes(Operation *op, const detail::WritingSummary &summary,
                        const SerializedModule &bytes) {
  MLIRContext *context = op->getContext();
  MLIRContext scratch(context->getDialectRegistry(),
                      MLIRContext::Threading::DISABLED);
  scratch.allowUnregisteredDialects(context->allowsUnregisteredDialects());
  // A dialect that is not registered may come with one that is.
  for (Dialect *dialect : summary.dialects)
    scratch.getOrLoadDialect(dialect->getNamespace());
  for (Dialect *dialect : summary.dialects)
    if (!scratch.getLoadedDialect(dialect->getNamespace()))
      return absl::FailedPreconditionError(absl::StrCat(
          "cannot serialize the operation: whether MLIR's bytecode keeps it "
          "shows in another context, and the dialect '",
          dialect->getNamespace().str(),
          "' is loaded into its own without being in its registry"));
  DeserializeOptions options;
  options.verify = false;
  absl::StatusOr<OwningOpRef<Operation *>> read =
      deserialize(bytes, scratch, options);
  if (!read.ok())
    return absl::FailedPreconditionError(
        absl::StrCat("cannot serialize the operation: MLIR does not read what "
                     "it wrote: ",
                     read.status().message()));
  StructuralOptions located;
  located.includeLocations = true;
  absl::Status difference = checkEquivalence(op, read->get(), located);
  if (difference.ok())
    return difference;
  return absl::FailedPreconditionError(
      absl::StrCat("cannot serialize the operation: MLIR's bytecode would "
                   "change it: ",
                   difference.message()));
}

absl::StatusOr<SerializedModule>
writeOperation(Operation *op, const detail::WritingSummary &summary,
               const SerializeOptions &options) {
  OwningOpRef<Operation *> stripped;
  if (options.stripLocations) {
    detail::Translator identity(*op->getContext(), *op->getContext());
    absl::StatusOr<OwningOpRef<Operation *>> copy =
        detail::copyOperation(op, identity, {}, /*stripLocations=*/true);
    if (!copy.ok())
      return copy.status();
    stripped = *std::move(copy);
    op = *stripped;
  }

  detail::DiagnosticCapture diagnostics(*op->getContext());
  llvm::SmallString<0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  if (failed(writeBytecodeToFile(op, stream)))
    return absl::FailedPreconditionError(
        absl::StrCat("cannot serialize the operation: ", diagnostics.take()));
  auto storage = detail::SerializedStorage::allocate(bytes.size());
  std::memcpy(storage->getMemory(), bytes.data(), bytes.size());
  bytes = llvm::SmallString<0>();
  SerializedModule module =
      detail::SerializedStorage::toModule(std::move(storage));
  if (summary.mayLose)
    if (absl::Status status = checkBytes(op, summary, module); !status.ok())
      return status;
  return module;
}

absl::StatusOr<OwningOpRef<Operation *>>
readOperation(const SerializedModule &module,
              const detail::BytecodeSummary &summary, MLIRContext &context,
              const DeserializeOptions &options) {
  detail::DiagnosticCapture diagnostics(context);
  if (absl::Status known = detail::checkOperations(summary, context);
      !known.ok())
    return known;
  // Where the order does not matter, MLIR's reader is a good deal faster if it
  // reads isolated operations after what is around them: it skips the sorting of
  // uses, for which it numbers all operations.
  bool inParts = summary.readsInParts();
  ParserConfig config(&context, options.verify && !inParts);
  std::shared_ptr<llvm::SourceMgr> source = detail::makeSource(module);
  // As MLIR's own module around what it reads, for the verifier.
  OwningOpRef<ModuleOp> top = ModuleOp::create(UnknownLoc::get(&context));
  {
    BytecodeReader reader(*source->getMemoryBuffer(source->getMainFileID()),
                          config,
                          /*lazyLoad=*/inParts, source);
    // What is left for later if this fails is gone with the rest.
    if (failed(reader.readTopLevel(top->getBody())))
      return detail::readingFailed(diagnostics.take());
    if (failed(reader.finalize())) {
      detail::dropUnread(reader);
      return detail::readingFailed(diagnostics.take());
    }
  }
  if (inParts && options.verify && failed(verify(*top)))
    return detail::readingFailed(diagnostics.take());
  Block &block = *top->getBody();
  if (!llvm::hasSingleElement(block))
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot read the serialized module: it has ",
        block.getOperations().size(), " operations at the top and not one"));
  Operation *op = &block.front();
  op->remove();
  return OwningOpRef<Operation *>(op);
}

} // namespace

namespace detail {

std::shared_ptr<SerializedStorage> SerializedStorage::allocate(size_t size) {
  std::shared_ptr<SerializedStorage> storage(new SerializedStorage());
  storage->memory = static_cast<char *>(
      llvm::allocate_buffer(std::max<size_t>(size, 1), alignment));
  storage->bytes = {storage->memory, size};
  return storage;
}

std::shared_ptr<SerializedStorage>
SerializedStorage::take(std::unique_ptr<llvm::MemoryBuffer> source) {
  if (reinterpret_cast<uintptr_t>(source->getBufferStart()) % alignment != 0) {
    std::shared_ptr<SerializedStorage> storage =
        allocate(source->getBufferSize());
    std::memcpy(storage->memory, source->getBufferStart(),
                source->getBufferSize());
    return storage;
  }
  std::shared_ptr<SerializedStorage> storage(new SerializedStorage());
  storage->bytes = source->getBuffer();
  storage->buffer = std::move(source);
  return storage;
}

const absl::StatusOr<BytecodeSummary> &SerializedStorage::check() const {
  const absl::StatusOr<BytecodeSummary> *known =
      checked.load(std::memory_order_acquire);
  if (known)
    return *known;
  // No lock, which a fork might find taken: of several threads, one publishes.
  auto found = std::make_unique<const absl::StatusOr<BytecodeSummary>>(
      checkBytecode(bytes));
  if (checked.compare_exchange_strong(known, found.get(),
                                      std::memory_order_acq_rel,
                                      std::memory_order_acquire))
    return *found.release();
  return *known;
}

SerializedStorage::~SerializedStorage() {
  delete checked.load(std::memory_order_acquire);
  if (memory)
    llvm::deallocate_buffer(memory, std::max<size_t>(bytes.size(), 1),
                            alignment);
}

std::shared_ptr<llvm::SourceMgr> makeSource(const SerializedModule &module) {
  struct Source {
    explicit Source(SerializedModule bytes) : module(std::move(bytes)) {}
    SerializedModule module;
    llvm::SourceMgr manager;
  };
  auto source = std::make_shared<Source>(module);
  source->manager.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBuffer(module.getBytes(), "serialized module",
                                       /*RequiresNullTerminator=*/false),
      llvm::SMLoc());
  return std::shared_ptr<llvm::SourceMgr>(source, &source->manager);
}

absl::Status readingFailed(const std::string &reasons) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot read the serialized module: ",
                   reasons.empty() ? "MLIR does not say why" : reasons));
}

void dropUnread(BytecodeReader &reader) {
  (void)reader.finalize([](Operation *op) {
    // Of what was read around it and is not valid.
    op->dropAllUses();
    return false;
  });
}

absl::Status checkMagic(llvm::StringRef bytes) {
  if (isBytecode(llvm::MemoryBufferRef(bytes, "serialized module")))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("not MLIR bytecode: the first of ", bytes.size(),
                   " bytes are not its mark"));
}

} // namespace detail

llvm::StringRef SerializedModule::getBytes() const {
  return storage->getBytes();
}

absl::StatusOr<SerializedModule> serialize(Operation *op,
                                           const SerializeOptions &options) {
  absl::StatusOr<detail::WritingSummary> summary =
      detail::checkWriting(op, /*includeLocations=*/!options.stripLocations);
  if (!summary.ok())
    return summary.status();
  absl::StatusOr<SerializedModule> result = absl::UnknownError("");
  if (absl::Status ran = detail::runWithStack(
          summary->stackBytes,
          [&] { result = writeOperation(op, *summary, options); });
      !ran.ok())
    return ran;
  return result;
}

absl::StatusOr<OwningOpRef<Operation *>>
deserialize(const SerializedModule &module, MLIRContext &context,
            const DeserializeOptions &options) {
  if (absl::Status status = detail::checkMagic(module.getBytes()); !status.ok())
    return status;
  const absl::StatusOr<detail::BytecodeSummary> &summary =
      detail::SerializedStorage::of(module).check();
  if (!summary.ok())
    return summary.status();
  absl::StatusOr<OwningOpRef<Operation *>> result = absl::UnknownError("");
  if (absl::Status ran = detail::runWithStack(
          *summary,
          [&] { result = readOperation(module, *summary, context, options); });
      !ran.ok())
    return ran;
  return result;
}

absl::StatusOr<SerializedModule>
loadSerialized(std::unique_ptr<llvm::MemoryBuffer> buffer) {
  if (!buffer)
    return absl::InvalidArgumentError("cannot load a serialized module: no "
                                      "buffer");
  if (absl::Status status = detail::checkMagic(buffer->getBuffer());
      !status.ok())
    return status;
  return detail::SerializedStorage::toModule(
      detail::SerializedStorage::take(std::move(buffer)));
}

} // namespace ctxpool

//===- ModuleParser.cpp - From the bytes of a file to a module ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/ModuleParser.h"

#include "bench/CrashGuard.h"
#include "context_pool/ModuleTransfer.h"
#include "context_pool/ir/TextCheck.h"

#include "absl/status/status.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/IR/Block.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Alignment.h"
#include "llvm/Support/SourceMgr.h"

using namespace ctxpool;
using namespace ctxpool::bench;
using namespace mlir;

DiagnosticCollector::DiagnosticCollector(MLIRContext &observed)
    : context(observed),
      handler(observed.getDiagEngine().registerHandler(
          [this](Diagnostic &diagnostic) {
            captured.push_back(CapturedDiagnostic::capture(diagnostic));
          })) {}

DiagnosticCollector::~DiagnosticCollector() {
  context.getDiagEngine().eraseHandler(handler);
}

std::string DiagnosticCollector::toString() const {
  return formatDiagnostics(captured);
}

static void append(std::string &text, const CapturedDiagnostic &diagnostic) {
  if (!text.empty())
    text += '\n';
  llvm::StringRef location = diagnostic.location;
  // MLIR prints the place in a file as `"file":1:2`.
  if (location.consume_front("\"") && location.count('"') == 1) {
    auto [file, position] = location.split('"');
    text += file.str() + position.str();
  } else {
    text += diagnostic.location;
  }
  text += ": " + ctxpool::toString(diagnostic.severity).str() + ": " +
          diagnostic.message;
  for (const CapturedDiagnostic &note : diagnostic.notes)
    append(text, note);
}

std::string
bench::formatDiagnostics(llvm::ArrayRef<CapturedDiagnostic> diagnostics) {
  bool anyError = llvm::any_of(diagnostics, [](const auto &diagnostic) {
    return diagnostic.severity == DiagnosticSeverity::Error;
  });
  std::string text;
  for (const CapturedDiagnostic &diagnostic : diagnostics)
    if (!anyError || diagnostic.severity == DiagnosticSeverity::Error)
      append(text, diagnostic);
  return text;
}

static OwningOpRef<ModuleOp> parseText(const llvm::MemoryBuffer &bytes,
                                       MLIRContext &context, bool verify) {
  // Shared, since the reader copies resources out of a source manager that it
  // may not keep. It refers to `bytes` and does not own them.
  auto sources = std::make_shared<llvm::SourceMgr>();
  sources->AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBuffer(bytes.getMemBufferRef()), llvm::SMLoc());
  return parseSourceFile<ModuleOp>(sources, ParserConfig(&context, verify));
}

/// `op` in a module where it is none itself, as MLIR's parser does it.
static OwningOpRef<ModuleOp> wrap(OwningOpRef<Operation *> op,
                                  llvm::StringRef name) {
  MLIRContext *context = op.get()->getContext();
  Block block;
  block.push_back(op.release());
  return mlir::detail::constructContainerOpForParserIfNecessary<ModuleOp>(
      &block, context, FileLineColLoc::get(context, name, 0, 0));
}

static absl::StatusOr<OwningOpRef<Operation *>>
readBytecode(const llvm::MemoryBuffer &bytes, MLIRContext &context,
             bool verify) {
  absl::StatusOr<SerializedModule> serialized =
      loadSerialized(llvm::MemoryBuffer::getMemBuffer(bytes.getMemBufferRef()));
  if (!serialized.ok())
    return serialized.status();
  DeserializeOptions options;
  options.verify = verify;
  return deserialize(*serialized, context, options);
}

absl::StatusOr<OwningOpRef<ModuleOp>>
bench::parseModule(const llvm::MemoryBuffer &bytes, MLIRContext &context,
                   bool verify) {
  DiagnosticCollector diagnostics(context);
  OwningOpRef<ModuleOp> module;
  if (isBytecode(bytes.getMemBufferRef())) {
    absl::StatusOr<OwningOpRef<Operation *>> op =
        readBytecode(bytes, context, verify);
    if (!op.ok())
      return op.status();
    module = wrap(*std::move(op), bytes.getBufferIdentifier());
  } else {
    if (absl::Status status = ctxpool::detail::checkText(bytes.getBuffer());
        !status.ok())
      return status;
    module = parseText(bytes, context, verify);
  }
  if (module)
    return module;
  std::string reason = diagnostics.toString();
  return absl::InvalidArgumentError(reason.empty() ? "MLIR gave no reason"
                                                   : reason);
}

static absl::StatusOr<LoadedModule>
load(std::shared_ptr<const llvm::MemoryBuffer> bytes,
     const DialectRegistry &registry, bool allowUnregisteredDialects) {
  LoadedModule loaded;
  loaded.bytes = std::move(bytes);
  loaded.context =
      std::make_unique<MLIRContext>(registry, MLIRContext::Threading::DISABLED);
  loaded.context->allowUnregisteredDialects(allowUnregisteredDialects);
  absl::StatusOr<OwningOpRef<ModuleOp>> module =
      parseModule(*loaded.bytes, *loaded.context, /*verify=*/true);
  if (!module.ok())
    return module.status();
  loaded.module = *std::move(module);
  return loaded;
}

absl::StatusOr<LoadedModule> bench::loadModule(const ModuleSource &source,
                                               const DialectRegistry &registry,
                                               bool allowUnregisteredDialects) {
  if (!source.error.empty())
    return absl::NotFoundError(source.error);
  absl::StatusOr<LoadedModule> loaded = absl::UnknownError("");
  if (absl::Status status = runGuarded([&] {
        loaded = load(source.bytes, registry, allowUnregisteredDialects);
      });
      !status.ok())
    return status;
  return loaded;
}

std::unique_ptr<llvm::MemoryBuffer> bench::copyAligned(llvm::StringRef bytes,
                                                       llvm::StringRef name) {
  auto buffer = llvm::WritableMemoryBuffer::getNewUninitMemBuffer(
      bytes.size(), name, llvm::Align(moduleAlignment));
  llvm::copy(bytes, buffer->getBufferStart());
  return buffer;
}

//===- ModuleParser.cpp - From the bytes of a file to a module ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/ModuleParser.h"

#include "absl/status/status.h"
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

OwningOpRef<ModuleOp> bench::parseModule(const llvm::MemoryBuffer &bytes,
                                         MLIRContext &context, bool verify) {
  // Shared, since the reader copies resources out of a source manager that it
  // may not keep. It refers to `bytes` and does not own them.
  auto sources = std::make_shared<llvm::SourceMgr>();
  sources->AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBuffer(bytes.getMemBufferRef()), llvm::SMLoc());
  return parseSourceFile<ModuleOp>(sources, ParserConfig(&context, verify));
}

absl::StatusOr<LoadedModule> bench::loadModule(const ModuleSource &source,
                                               const DialectRegistry &registry,
                                               bool allowUnregisteredDialects) {
  if (!source.error.empty())
    return absl::NotFoundError(source.error);
  LoadedModule loaded;
  loaded.context =
      std::make_unique<MLIRContext>(registry, MLIRContext::Threading::DISABLED);
  loaded.context->allowUnregisteredDialects(allowUnregisteredDialects);
  DiagnosticCollector diagnostics(*loaded.context);
  loaded.module = parseModule(*source.bytes, *loaded.context, /*verify=*/true);
  if (!loaded.module)
    return absl::InvalidArgumentError(diagnostics.toString());
  return loaded;
}

std::unique_ptr<llvm::MemoryBuffer> bench::copyAligned(llvm::StringRef bytes,
                                                       llvm::StringRef name) {
  auto buffer = llvm::WritableMemoryBuffer::getNewUninitMemBuffer(
      bytes.size(), name, llvm::Align(moduleAlignment));
  llvm::copy(bytes, buffer->getBufferStart());
  return buffer;
}

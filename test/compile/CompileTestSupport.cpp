//===- CompileTestSupport.cpp - From text to running code -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/compile/CompileTestSupport.h"

#include "context_pool/compile/CodeGenerator.h"
#include "context_pool/support/DiagnosticCapture.h"
#include "context_pool/support/Pipeline.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestContexts.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "llvm/TargetParser/Host.h"

using namespace ctxpool;

std::shared_ptr<const ContextTemplate> test::compilingTemplate() {
  static const std::shared_ptr<const ContextTemplate> made = [] {
    ContextTemplateOptions options;
    options.name = "compiling";
    options.populate = [](mlir::DialectRegistry &registry) {
      mlir::registerAllDialects(registry);
      mlir::registerAllExtensions(registry);
      mlir::registerAllToLLVMIRTranslations(registry);
    };
    options.preload.emplace();
    auto created = ContextTemplate::create(std::move(options));
    EXPECT_THAT(created, IsOk());
    return *std::move(created);
  }();
  return made;
}

CompileRecipe test::hostRecipe() {
  CompileRecipe recipe;
  recipe.target = llvm::sys::getProcessTriple();
  return recipe;
}

mlir::OwningOpRef<mlir::ModuleOp> test::parse(mlir::MLIRContext &context,
                                              llvm::StringRef text) {
  detail::DiagnosticCapture diagnostics(context);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  EXPECT_TRUE(module) << diagnostics.take();
  return module;
}

absl::StatusOr<Artifact> test::compileObject(llvm::StringRef text,
                                             const CompileRecipe &recipe) {
  auto context = compilingTemplate()->clone();
  if (!context.ok())
    return context.status();
  auto module = parse(**context, text);
  if (!module)
    return absl::InvalidArgumentError("the module does not parse");

  if (!recipe.pipeline.empty()) {
    registerPasses();
    auto pipeline = detail::parsePipeline(recipe.pipeline);
    if (!pipeline.ok())
      return pipeline.status();
    mlir::PassManager passes(context->get(), pipeline->getOpAnchorName());
    static_cast<mlir::OpPassManager &>(passes) = *std::move(pipeline);
    detail::DiagnosticCapture diagnostics(**context);
    if (failed(passes.run(*module)))
      return absl::InternalError("lowering failed: " + diagnostics.take());
  }

  auto generator = detail::CodeGenerator::create(recipe);
  if (!generator.ok())
    return generator.status();
  auto bytes = (*generator)->emitObject(*module);
  if (!bytes.ok())
    return bytes.status();
  return Artifact::copyOf("object",
                          llvm::StringRef(bytes->data(), bytes->size()));
}

std::shared_ptr<Executable> test::loadText(llvm::StringRef text) {
  auto object = compileObject(text, hostRecipe());
  EXPECT_THAT(object, IsOk());
  if (!object.ok())
    return nullptr;
  auto executable = Executable::load(*object);
  EXPECT_THAT(executable, IsOk());
  return executable.ok() ? *std::move(executable) : nullptr;
}

std::string test::pipelineOf(llvm::StringRef text) {
  llvm::StringRef line = text.split('\n').first;
  EXPECT_TRUE(line.consume_front("// PIPELINE: "));
  return line.str();
}

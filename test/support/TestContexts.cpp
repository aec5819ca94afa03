//===- TestContexts.cpp - Templates and dialects for tests ----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test/support/TestContexts.h"

#include "context_pool/support/Fork.h"
#include "context_pool/support/Mutex.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "gtest/gtest.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::test;

static Mutex witnessMutex;
static size_t witnessesAlive = 0;
static std::vector<std::thread::id> witnessDestroyers;

[[maybe_unused]] static const int witnessMutexIsHeld =
    ctxpool::detail::holdAcrossForks<witnessMutex>();

WitnessDialect::WitnessDialect(mlir::MLIRContext *context)
    : mlir::Dialect(getDialectNamespace(), context,
                    mlir::TypeID::get<WitnessDialect>()) {
  MutexLock lock(witnessMutex);
  ++witnessesAlive;
}

WitnessDialect::~WitnessDialect() {
  MutexLock lock(witnessMutex);
  --witnessesAlive;
  witnessDestroyers.push_back(std::this_thread::get_id());
}

size_t WitnessDialect::countAlive() {
  MutexLock lock(witnessMutex);
  return witnessesAlive;
}

std::vector<std::thread::id> WitnessDialect::takeDestroyers() {
  MutexLock lock(witnessMutex);
  return std::exchange(witnessDestroyers, {});
}

ContextTemplateOptions ctxpool::test::smallTemplateOptions() {
  ContextTemplateOptions options;
  options.name = "small";
  options.populate = [](mlir::DialectRegistry &registry) {
    registry.insert<WitnessDialect, mlir::func::FuncDialect,
                    mlir::arith::ArithDialect, mlir::cf::ControlFlowDialect,
                    mlir::scf::SCFDialect>();
  };
  return options;
}

std::shared_ptr<const ContextTemplate> ctxpool::test::smallTemplate() {
  auto made = ContextTemplate::create(smallTemplateOptions());
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

std::shared_ptr<const ContextTemplate> ctxpool::test::fullTemplate() {
  static const std::shared_ptr<const ContextTemplate> full = [] {
    ContextTemplateOptions options;
    options.name = "full";
    options.populate = [](mlir::DialectRegistry &registry) {
      mlir::registerAllDialects(registry);
      mlir::registerAllExtensions(registry);
    };
    auto made = ContextTemplate::create(std::move(options));
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return *std::move(made);
  }();
  return full;
}

void ctxpool::test::registerPasses() {
  static const bool once = [] {
    mlir::registerAllPasses();
    return true;
  }();
  (void)once;
}

size_t ctxpool::test::countThreads() {
  std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

size_t ctxpool::test::residentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t pages = 0, residentPages = 0;
  statm >> pages >> residentPages;
  return residentPages * sysconf(_SC_PAGESIZE);
}

std::vector<std::string>
ctxpool::test::loadedDialects(mlir::MLIRContext &context) {
  std::vector<std::string> names;
  for (mlir::Dialect *dialect : context.getLoadedDialects())
    names.push_back(dialect->getNamespace().str());
  llvm::sort(names);
  return names;
}

//===- Registration.cpp - Dialects and passes the tool knows --------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/Registration.h"

#include "bench/CommandLine.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "llvm/Support/Error.h"

using namespace ctxpool;

bool bench::registerEverything(mlir::DialectRegistry &registry,
                               llvm::ArrayRef<std::string> dialectPlugins,
                               llvm::ArrayRef<std::string> passPlugins) {
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::registerAllPasses();
  for (const std::string &path : dialectPlugins) {
    llvm::Expected<mlir::DialectPlugin> plugin =
        mlir::DialectPlugin::load(path);
    if (!plugin) {
      printError("cannot load the dialect plugin '" + path +
                 "': " + llvm::toString(plugin.takeError()));
      return false;
    }
    plugin->registerDialectRegistryCallbacks(registry);
  }
  for (const std::string &path : passPlugins) {
    llvm::Expected<mlir::PassPlugin> plugin = mlir::PassPlugin::load(path);
    if (!plugin) {
      printError("cannot load the pass plugin '" + path +
                 "': " + llvm::toString(plugin.takeError()));
      return false;
    }
    plugin->registerPassRegistryCallbacks();
  }
  return true;
}

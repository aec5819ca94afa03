//===- ModuleSource.h - The modules that a run is about ------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_MODULESOURCE_H
#define CONTEXT_POOL_BENCH_MODULESOURCE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ctxpool::bench {

struct LoadedModule;

/// A module as the bytes of its file, text or bytecode, or why there are none.
struct ModuleSource {
  /// What reports and diagnostics call it: the path, `<stdin>`, or the file's
  /// name for a bundled module.
  std::string name;

  /// Aligned as MLIR's reader wants it, whatever resources in bytecode ask for,
  /// and followed by a zero byte. Null where the file could not be read. Shared
  /// with the modules that were loaded from them, whose resources alias them.
  std::shared_ptr<const llvm::MemoryBuffer> bytes;

  /// The same module, in a context that is only read: what a front end hands
  /// over. Null where requests bring the bytes.
  std::shared_ptr<const LoadedModule> live;

  /// The pass pipeline with its anchor. Empty: none was given.
  std::string pipeline;

  /// Why the file cannot be compiled. Empty: nothing is known against it.
  std::string error;

  /// The pipeline; where there is none, one without passes, so that a module is
  /// parsed, verified and written.
  llvm::StringRef getPipeline() const {
    return pipeline.empty() ? llvm::StringRef("builtin.module()")
                            : llvm::StringRef(pipeline);
  }
};

/// The text behind `// PIPELINE:` where that is how the first line begins.
std::optional<llvm::StringRef> findPipelineComment(llvm::StringRef contents);

/// Reads files; folders, in which it takes what ends in .mlir or .mlirbc, at
/// any depth, sorted by path; and standard input, for `-`. A path that occurs
/// twice is read once. What cannot be read, and a folder without modules, is in
/// the result with its `error` set: nothing is left out.
std::vector<ModuleSource> readModules(llvm::ArrayRef<std::string> paths);

/// The modules that are a part of the executable.
std::vector<ModuleSource> readBundledModules();

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_MODULESOURCE_H

//===- ModuleSource.cpp - The modules that a run is about -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/ModuleSource.h"

#include "bench/BundledModules.h"
#include "bench/ModuleParser.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Alignment.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <algorithm>
#include <system_error>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::bench;
namespace fs = llvm::sys::fs;

std::optional<llvm::StringRef>
bench::findPipelineComment(llvm::StringRef contents) {
  llvm::StringRef line = contents.take_until([](char c) { return c == '\n'; });
  if (!line.consume_front("//"))
    return std::nullopt;
  line = line.trim();
  if (!line.consume_front("PIPELINE:"))
    return std::nullopt;
  return line.trim();
}

static void readPipelineComment(ModuleSource &source) {
  if (std::optional<llvm::StringRef> pipeline =
          findPipelineComment(source.bytes->getBuffer()))
    source.pipeline = pipeline->str();
}

static ModuleSource readFile(std::string path) {
  ModuleSource source;
  source.name = std::move(path);
  // Volatile: the bytes are copied and not mapped, so that a file which changes
  // during the run changes nothing.
  auto buffer = llvm::MemoryBuffer::getFile(
      source.name, /*IsText=*/false, /*RequiresNullTerminator=*/true,
      /*IsVolatile=*/true, llvm::Align(moduleAlignment));
  if (!buffer) {
    source.error = "cannot read the file: " + buffer.getError().message();
    return source;
  }
  source.bytes = std::move(*buffer);
  // Empty text is a module without operations; no bytecode is empty.
  if (source.bytes->getBufferSize() == 0 &&
      llvm::sys::path::extension(source.name) == ".mlirbc")
    source.error = "the file is empty, which bytecode never is";
  readPipelineComment(source);
  return source;
}

static ModuleSource readStandardInput() {
  ModuleSource source;
  source.name = "<stdin>";
  auto buffer = llvm::MemoryBuffer::getSTDIN();
  if (!buffer) {
    source.error = "cannot read it: " + buffer.getError().message();
    return source;
  }
  source.bytes = copyAligned((*buffer)->getBuffer(), source.name);
  readPipelineComment(source);
  return source;
}

static bool isModulePath(llvm::StringRef path) {
  llvm::StringRef extension = llvm::sys::path::extension(path);
  return extension == ".mlir" || extension == ".mlirbc";
}

/// A source that stands for what could not be read.
static ModuleSource makeUnreadable(std::string name, std::string error) {
  ModuleSource source;
  source.name = std::move(name);
  source.error = std::move(error);
  return source;
}

/// Adds the modules in a folder, at any depth, to `paths`, and what could not be
/// searched to `unreadable`. Links to folders are not followed: they may form a
/// circle.
static void findModules(const std::string &folder,
                        std::vector<std::string> &paths,
                        std::vector<ModuleSource> &unreadable) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error, /*follow_symlinks=*/false);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->type() == fs::file_type::directory_file)
      findModules(entry->path(), paths, unreadable);
    else if (isModulePath(entry->path()) && !fs::is_directory(entry->path()))
      paths.push_back(entry->path());
  }
  if (error)
    unreadable.push_back(
        makeUnreadable(folder, "cannot search the folder: " + error.message()));
}

std::vector<ModuleSource>
bench::readModules(llvm::ArrayRef<std::string> paths) {
  std::vector<ModuleSource> sources;
  llvm::StringSet<> seen;
  auto addFile = [&](std::string path) {
    if (seen.insert(path).second)
      sources.push_back(readFile(std::move(path)));
  };
  for (const std::string &path : paths) {
    if (path == "-") {
      if (seen.insert(path).second)
        sources.push_back(readStandardInput());
      continue;
    }
    if (!fs::is_directory(path)) {
      addFile(path);
      continue;
    }
    std::vector<std::string> found;
    std::vector<ModuleSource> unreadable;
    findModules(path, found, unreadable);
    std::sort(found.begin(), found.end());
    if (found.empty() && unreadable.empty())
      unreadable.push_back(makeUnreadable(
          path, "no file in the folder ends in .mlir or .mlirbc"));
    for (std::string &file : found)
      addFile(std::move(file));
    for (ModuleSource &source : unreadable)
      sources.push_back(std::move(source));
  }
  return sources;
}

std::vector<ModuleSource> bench::readBundledModules() {
  std::vector<ModuleSource> sources;
  for (const BundledModule &bundled : getBundledModules()) {
    ModuleSource source;
    source.name = bundled.name.str();
    source.bytes = llvm::MemoryBuffer::getMemBuffer(bundled.text, bundled.name);
    readPipelineComment(source);
    sources.push_back(std::move(source));
  }
  return sources;
}

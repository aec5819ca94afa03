//===- StructuralFlags.cpp - What counts, as options ----------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/StructuralFlags.h"

using namespace ctxpool;
using namespace ctxpool::bench;
namespace cl = llvm::cl;

StructuralFlags::StructuralFlags(cl::SubCommand &command,
                                 cl::OptionCategory &category)
    : locations("locations", cl::sub(command), cl::cat(category),
                cl::desc("Locations of operations and block arguments count")),
      symbols("symbols", cl::sub(command), cl::cat(category),
              cl::init(Symbols::Exact),
              cl::desc("Which names of symbols count:"),
              cl::values(
                  clEnumValN(Symbols::Exact, "exact", "all (default)"),
                  clEnumValN(Symbols::NormalizePrivate, "normalize-private",
                             "those of public symbols; private ones count by\n"
                             "order of definition"),
                  clEnumValN(Symbols::NormalizeAll, "normalize-all",
                             "none; all count by order of definition"))),
      allowUnregistered("allow-unregistered-dialect", cl::sub(command),
                        cl::cat(category),
                        cl::desc("Allow operations of dialects that are not "
                                 "registered")) {}

StructuralOptions StructuralFlags::getOptions() const {
  StructuralOptions options;
  options.includeLocations = locations;
  options.symbols = symbols;
  return options;
}

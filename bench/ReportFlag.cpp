//===- ReportFlag.cpp - Where a report goes -------------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/ReportFlag.h"

#include "bench/Environment.h"

#include "llvm/Support/FileSystem.h"

using namespace ctxpool;
using namespace ctxpool::bench;
namespace cl = llvm::cl;

ReportFlag::ReportFlag(cl::SubCommand &command, cl::OptionCategory &category)
    : path("json", cl::sub(command), cl::cat(category), cl::value_desc("file"),
           cl::ValueOptional,
           cl::desc("Write the report as JSON as well; without a file, or\n"
                    "with -: to standard output, in place of the text")) {}

bool ReportFlag::Parser::parse(cl::Option &, llvm::StringRef,
                               llvm::StringRef argument,
                               std::string &value) const {
  // Null: there was no `=`.
  value = argument.data() ? argument.str() : "-";
  return false;
}

std::string ReportFlag::check(llvm::ArrayRef<std::string> inputs) const {
  if (path.getNumOccurrences() && path.empty())
    return "--json= names no file";
  // Standard output and standard input are called alike.
  if (path == "-")
    return "";
  for (const std::string &input : inputs)
    if (input != "-" && llvm::sys::fs::equivalent(input, path.getValue()))
      return "--json=" + path + ": the file is also an input";
  return "";
}

bool ReportFlag::canWrite() const {
  return path.empty() || canWriteReport(path);
}

bool ReportFlag::write(llvm::function_ref<llvm::json::Object()> make) const {
  return path.empty() || writeReport(make(), path);
}

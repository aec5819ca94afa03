//===- Environment.cpp - What a measurement was made with -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/Environment.h"

#include "bench/CommandLine.h"

#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Threading.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Host.h"

#include <cstdio>
#include <sys/utsname.h>
#include <system_error>
#include <unistd.h>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::bench;

static Environment readEnvironment() {
  Environment environment;
  environment.version = CTXPOOL_BENCH_VERSION;
  environment.mlirVersion = LLVM_VERSION_STRING;
  environment.linkMode = CTXPOOL_BENCH_LINK_MODE;
#if defined(__clang__)
  environment.compiler = "clang " __clang_version__;
#elif defined(__GNUC__)
  environment.compiler = "gcc " __VERSION__;
#endif
  // clang's version text ends in the address of its sources.
  environment.compiler =
      llvm::StringRef(environment.compiler).split(" (").first.trim().str();
  environment.buildType = CTXPOOL_BENCH_BUILD_TYPE;
  environment.sanitizer = CTXPOOL_BENCH_SANITIZER;
#if defined(__OPTIMIZE__)
  environment.optimized = true;
#endif
#if !defined(NDEBUG)
  environment.assertions = true;
#endif
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) == 0)
    environment.host = name;
  utsname system;
  if (uname(&system) == 0)
    environment.operatingSystem =
        std::string(system.sysname) + " " + system.release;
  environment.cpu = llvm::sys::getHostCPUName().str();
  environment.cpuCount = llvm::hardware_concurrency().compute_thread_count();
  return environment;
}

const Environment &bench::getEnvironment() {
  static const Environment environment = readEnvironment();
  return environment;
}

std::string Environment::describeBuild() const {
  std::string text = "MLIR " + mlirVersion + " (" + linkMode + "), " + compiler;
  text += ", " + (buildType.empty() ? std::string("no build type") : buildType);
  if (assertions)
    text += ", assertions on";
  if (!sanitizer.empty())
    text += ", sanitizer " + sanitizer;
  return text;
}

std::string Environment::describeHandicap() const {
  if (!sanitizer.empty())
    return "THIS BUILD IS SANITIZED (" + sanitizer +
           "): its times and memory mean nothing";
  if (!optimized)
    return "THIS BUILD IS NOT OPTIMISED: its times mean nothing. Configure "
           "with "
           "the preset 'release'";
  if (assertions)
    return "THIS BUILD HAS ASSERTIONS ON: its times mean little. Configure "
           "with "
           "the preset 'release'";
  return "";
}

void bench::warnOfHandicap() {
  std::string handicap = getEnvironment().describeHandicap();
  if (!handicap.empty())
    printWarning(handicap);
}

llvm::json::Object bench::makeReport(llvm::StringRef command,
                                     llvm::ArrayRef<char *> commandLine) {
  const Environment &environment = getEnvironment();
  llvm::json::Array arguments;
  for (const char *argument : commandLine)
    arguments.push_back(llvm::json::fixUTF8(hidePasswords(argument)));
  return llvm::json::Object{
      {"schema", jsonSchema},
      {"command", command},
      {"version", environment.version},
      {"mlir_version", environment.mlirVersion},
      {"link_mode", environment.linkMode},
      {"compiler", environment.compiler},
      {"build_type", environment.buildType},
      {"optimized", environment.optimized},
      {"assertions", environment.assertions},
      {"sanitizer", environment.sanitizer},
      {"host", llvm::json::Object{{"name", environment.host},
                                  {"cpu", environment.cpu},
                                  {"cpus", environment.cpuCount},
                                  {"os", environment.operatingSystem}}},
      {"command_line", std::move(arguments)}};
}

llvm::json::Object bench::reportFailedFile(llvm::StringRef file,
                                           llvm::StringRef message) {
  printError(nameFile(file, message));
  return llvm::json::Object{{"file", llvm::json::fixUTF8(file)},
                            {"error", llvm::json::fixUTF8(message)}};
}

bool bench::canWriteReport(llvm::StringRef path) {
  bool existed = path == "-" || llvm::sys::fs::exists(path);
  std::error_code error;
  {
    llvm::raw_fd_ostream stream(path, error, llvm::sys::fs::OF_Append);
  }
  // No report is better than an empty one, should the run end early.
  if (!error && !existed)
    error = llvm::sys::fs::remove(path);
  if (error)
    printError("cannot write '" + path + "': " + error.message());
  return !error;
}

bool bench::writeReport(llvm::json::Object report, llvm::StringRef path) {
  std::string text =
      llvm::formatv("{0:2}\n", llvm::json::Value(std::move(report)));
  std::error_code error;
  if (path == "-") {
    llvm::outs() << text;
    llvm::outs().flush();
    error = llvm::outs().error();
    llvm::outs().clear_error();
  } else {
    llvm::raw_fd_ostream stream(path, error, llvm::sys::fs::OF_Text);
    if (!error) {
      stream << text;
      stream.flush();
      error = stream.error();
      stream.clear_error();
    }
  }
  if (error)
    printError("cannot write '" + path + "': " + error.message());
  return !error;
}

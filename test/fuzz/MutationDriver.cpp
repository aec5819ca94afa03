//===- MutationDriver.cpp - Runs a fuzz target on mutated inputs ----------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Runs `LLVMFuzzerTestOneInput` on a stated number of mutated inputs, in
/// processes that it forks, and goes on after a crash. MLIR's archives are not
/// instrumented, so that coverage says nothing of them, and libFuzzer ends at
/// the first crash or counts what it pleases: this counts inputs.
///
/// An input depends on the seed, its number and the files alone. Crashes are
/// sorted by the first function of MLIR or of this project on the stack.
///
//===----------------------------------------------------------------------===//

#include "test/fuzz/FuzzSupport.h"

#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace mlir;
using namespace ctxpool::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace {

namespace cl = llvm::cl;
cl::list<std::string> paths(cl::Positional, cl::OneOrMore,
                            cl::desc("<files or folders: .mlirbc, .mlir>"));
cl::opt<uint64_t> runs("runs", cl::init(1000000), cl::desc("Inputs to run"));
cl::opt<uint64_t> seed("seed", cl::init(1), cl::desc("Seed of the mutations"));
cl::opt<unsigned> maxSize("max-size", cl::init(6144),
                          cl::desc("Modules with more bytes are left out"));
cl::opt<unsigned> seconds("timeout", cl::init(10),
                          cl::desc("Processor seconds that an input may take"));
cl::opt<bool> asTheyAre("replay", cl::desc("Run the files as they are"));
cl::opt<std::string> crashFolder("crashes", cl::init("crashes"),
                                 cl::desc("Folder for inputs that crash"));

constexpr uint64_t batchSize = 2000;

/// What a child tells of itself.
struct Report {
  uint64_t input;
  int signal;
  int frameCount;
  char step[32];
  void *frames[48];
};
Report *report = nullptr;

void onSignal(int signal) {
  report->signal = signal;
  std::snprintf(report->step, sizeof(report->step), "%s", step);
  report->frameCount = ::backtrace(report->frames, 48);
  ::_exit(1);
}

/// The rest of the run is in a child, which dies alone.
void becomeChild() {
  static char memory[1 << 16];
  stack_t stack = {};
  stack.ss_sp = memory;
  stack.ss_size = sizeof(memory);
  ::sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_handler = onSignal;
  action.sa_flags = SA_ONSTACK;
  for (int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGPROF})
    ::sigaction(signal, &action, nullptr);
#if !defined(__SANITIZE_ADDRESS__)
  rlimit limit = {rlim_t(4) << 30, rlim_t(4) << 30};
  ::setrlimit(RLIMIT_AS, &limit);
#endif
  if (!asTheyAre)
    (void)!std::freopen("/dev/null", "w", stderr);
}

void addFile(const std::string &path, std::vector<std::string> &inputs) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return;
  if (!llvm::StringRef(path).ends_with(".mlir")) {
    if ((*buffer)->getBufferSize() <= maxSize)
      inputs.push_back((*buffer)->getBuffer().str());
    return;
  }
  std::unique_ptr<MLIRContext> context = makeContext();
  ScopedDiagnosticHandler quiet(context.get(), [](Diagnostic &) {});
  auto module =
      parseSourceString<ModuleOp>((*buffer)->getBuffer(), context.get());
  if (!module)
    return;
  // Every version in turn, every other one the newest.
  BytecodeWriterConfig config("mutations");
  config.setDesiredBytecodeVersion(inputs.size() % 2 ? 6
                                                     : inputs.size() / 2 % 7);
  std::string bytes;
  llvm::raw_string_ostream stream(bytes);
  if (succeeded(writeBytecodeToFile(*module, stream, config)) &&
      bytes.size() <= maxSize)
    inputs.push_back(std::move(bytes));
}

std::vector<std::string> readInputs() {
  std::vector<std::string> files, inputs;
  for (const std::string &path : paths) {
    std::error_code error;
    if (!llvm::sys::fs::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (llvm::sys::fs::recursive_directory_iterator at(path, error), end;
         at != end && !error; at.increment(error)) {
      llvm::StringRef name = at->path();
      // MLIR's parser does not survive these.
      if (!name.contains("/crash/") && !name.contains("align-zero") &&
          (name.ends_with(".mlir") || name.ends_with(".mlirbc")))
        files.push_back(name.str());
    }
  }
  llvm::sort(files);
  for (const std::string &file : files)
    addFile(file, inputs);
  return inputs;
}

/// One of the inputs with one to six changes.
std::string mutated(const std::vector<std::string> &inputs, uint64_t number) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15ull + number);
  auto below = [&](size_t limit) { return limit ? random() % limit : 0; };
  std::string bytes = inputs[below(inputs.size())];
  for (size_t changes = 1 + below(6); changes && !bytes.empty(); --changes) {
    size_t at = below(bytes.size());
    size_t length = std::min(1 + below(16), bytes.size() - at);
    constexpr unsigned char marks[] = {0, 1, 2, 3, 0x7f, 0x80, 0xfe, 0xff};
    switch (below(12)) {
    case 0:
    case 1:
      bytes[at] ^= 1 << below(8);
      break;
    case 2:
    case 3:
      bytes[at] = random();
      break;
    case 4:
      bytes[at] = marks[below(sizeof(marks))];
      break;
    case 5:
    case 6:
      // A number of one byte by a little.
      bytes[at] += 2 * (below(9) - 4);
      break;
    case 7:
      std::fill_n(bytes.begin() + at, length, marks[below(sizeof(marks))]);
      break;
    case 8:
      bytes.erase(at, length);
      break;
    case 9: {
      std::string part = bytes.substr(below(bytes.size()), length);
      bytes.insert(at, part);
      break;
    }
    case 10: {
      const std::string &other = inputs[below(inputs.size())];
      std::string part = other.substr(below(other.size()), length);
      bytes.replace(at, part.size(), part);
      break;
    }
    case 11:
      if (below(20) == 0)
        bytes.resize(at);
      else
        std::swap(bytes[at], bytes[below(bytes.size())]);
      break;
    }
  }
  return bytes;
}

/// The functions of the stack, innermost first.
std::vector<std::string> symbolize(const std::vector<void *> &frames) {
  static const llvm::ErrorOr<std::string> tool = [] {
    auto found = llvm::sys::findProgramByName("llvm-symbolizer-22");
    return found ? found : llvm::sys::findProgramByName("llvm-symbolizer");
  }();
  std::vector<std::string> names;
  std::string command = tool ? *tool : "";
  command += " --no-inlines --functions=linkage --demangle --output-style=GNU";
  for (void *frame : frames) {
    Dl_info info = {};
    if (!::dladdr(frame, &info) || !info.dli_fname)
      continue;
    names.push_back(info.dli_sname ? info.dli_sname : info.dli_fname);
    auto offset =
        static_cast<char *>(frame) - static_cast<char *>(info.dli_fbase) - 1;
    llvm::raw_string_ostream(command)
        << " '" << info.dli_fname << " " << llvm::format_hex(offset, 1) << "'";
  }
  FILE *pipe = tool ? ::popen(command.c_str(), "r") : nullptr;
  if (!pipe)
    return names;
  // A line for the function, and one for its place.
  char line[1024];
  for (std::string &name : names) {
    if (!std::fgets(line, sizeof(line), pipe))
      break;
    if (line[0] != '?')
      name = llvm::StringRef(line).rtrim().str();
    if (!std::fgets(line, sizeof(line), pipe))
      break;
  }
  ::pclose(pipe);
  return names;
}

struct Crash {
  uint64_t count = 0;
  uint64_t smallest = 0;
  size_t size = ~size_t(0);
  std::vector<std::string> functions;
};

/// Sorts crashes: signal, step, and the first function that matters.
class Crashes {
public:
  void add(const Report &seen, const std::string &input) {
    std::vector<void *> frames(seen.frames, seen.frames + seen.frameCount);
    auto [known, isNew] = functions.try_emplace(frames);
    if (isNew)
      known->second = symbolize(frames);
    llvm::StringRef where = "?";
    for (llvm::StringRef function : known->second)
      if (function.contains("mlir::") || function.contains("ctxpool::")) {
        where = function;
        break;
      }
    std::string key;
    llvm::raw_string_ostream(key) << (seen.signal == SIGPROF ? "time"
                                      : seen.signal ? ::strsignal(seen.signal)
                                                    : "exit")
                                  << " in " << where << ", step " << seen.step;
    Crash &crash = crashes[key];
    ++crash.count;
    if (input.size() >= crash.size)
      return;
    crash.size = input.size();
    crash.smallest = seen.input;
    crash.functions = known->second;
    if (asTheyAre)
      return;
    std::error_code error;
    llvm::raw_fd_ostream(crashFolder + "/" + fileName(key), error) << input;
  }

  void print() const {
    for (const auto &[key, crash] : crashes) {
      llvm::outs() << crash.count << " x " << key << "\n    input "
                   << crash.smallest << ", " << crash.size
                   << " bytes: " << fileName(key) << "\n";
      for (const std::string &function : crash.functions)
        llvm::outs() << "      " << llvm::StringRef(function).take_front(110)
                     << "\n";
    }
  }

  size_t size() const { return crashes.size(); }

private:
  static std::string fileName(const std::string &key) {
    std::string name;
    llvm::raw_string_ostream(name)
        << "crash-" << llvm::format_hex_no_prefix(llvm::hash_value(key), 16)
        << ".mlirbc";
    return name;
  }

  std::map<std::vector<void *>, std::vector<std::string>> functions;
  std::map<std::string, Crash> crashes;
};

} // namespace

int main(int argc, char **argv) {
  cl::ParseCommandLineOptions(argc, argv,
                              "runs a fuzz target on mutated inputs\n");
  std::vector<std::string> inputs = readInputs();
  if (inputs.empty()) {
    llvm::errs() << "no inputs\n";
    return 2;
  }
  if (asTheyAre)
    runs = inputs.size();
  else
    llvm::sys::fs::create_directories(crashFolder);
  auto input = [&](uint64_t number) {
    return asTheyAre ? inputs[number] : mutated(inputs, number);
  };

  report = static_cast<Report *>(::mmap(nullptr, sizeof(Report),
                                        PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (report == MAP_FAILED)
    return 2;
  // Loads what children would load each for itself.
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>("ML\xefR"), 4);
  void *warmUp[1];
  ::backtrace(warmUp, 1);

  Crashes crashes;
  uint64_t crashed = 0, next = 0;
  while (next != runs) {
    uint64_t end = std::min<uint64_t>(runs, (next / batchSize + 1) * batchSize);
    *report = {};
    report->input = next;
    pid_t child = ::fork();
    if (child < 0)
      return 2;
    if (child == 0) {
      becomeChild();
      for (uint64_t number = next; number != end; ++number) {
        report->input = number;
        itimerval timer = {};
        timer.it_value.tv_sec = seconds;
        ::setitimer(ITIMER_PROF, &timer, nullptr);
        std::string bytes = input(number);
        LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(bytes.data()),
                               bytes.size());
      }
      ::_exit(0);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR)
      ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      next = end;
    } else {
      ++crashed;
      crashes.add(*report, input(report->input));
      next = report->input + 1;
    }
    if (next % (batchSize * 25) == 0 || next == runs)
      llvm::errs() << next << " inputs, " << crashed << " crashed in "
                   << crashes.size() << " ways\n";
  }
  crashes.print();
  llvm::outs() << runs << " inputs of " << inputs.size() << " files, "
               << crashed << " crashed in " << crashes.size() << " ways\n";
  return crashed ? 1 : 0;
}

//===- CommandLine.cpp - What the commands' options share -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CommandLine.h"

#include "bench/Environment.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"

#include <algorithm>
#include <fcntl.h>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

using namespace ctxpool;
using namespace ctxpool::bench;

void bench::printCommands(llvm::raw_ostream &stream,
                          llvm::ArrayRef<Command> commands) {
  for (const Command &command : commands)
    stream << "  " << llvm::left_justify(command.name, 13) << command.summary
           << "\n";
}

/// Where the next URL of a Redis server has its user and password, or `npos`. What
/// a URL looks like, which messages say, has none.
static size_t findUserInfo(llvm::StringRef text) {
  size_t first = llvm::StringRef::npos;
  for (llvm::StringRef scheme : {"redis://", "rediss://"}) {
    size_t begin = text.find(scheme);
    while (begin != llvm::StringRef::npos &&
           text.substr(begin + scheme.size()).starts_with("[user:password@]"))
      begin = text.find(scheme, begin + scheme.size());
    if (begin != llvm::StringRef::npos)
      first = std::min(first, begin + scheme.size());
  }
  return first;
}

std::string bench::hidePasswords(llvm::StringRef text) {
  std::string shown;
  size_t begin;
  while ((begin = findUserInfo(text)) != llvm::StringRef::npos) {
    shown += text.take_front(begin);
    text = text.drop_front(begin);
    // A password that was not encoded may have anything in it, quotes, white
    // space and this too: only another URL, or what one looks like, ends it.
    llvm::StringRef urls = text.take_front(text.find("://[user:password@]"));
    size_t end = urls.take_front(findUserInfo(urls)).rfind('@');
    if (end == llvm::StringRef::npos)
      end = urls.rfind('@');
    if (end == llvm::StringRef::npos)
      break;
    shown += "***";
    text = text.drop_front(end);
  }
  return shown + text.str();
}

void bench::printError(const llvm::Twine &message) {
  llvm::errs() << "ctxpool-bench: error: " << hidePasswords(message.str())
               << "\n";
}

void bench::printWarning(const llvm::Twine &message) {
  llvm::errs() << "ctxpool-bench: warning: " << hidePasswords(message.str())
               << "\n";
}

std::string bench::nameFile(llvm::StringRef file, llvm::StringRef message) {
  message = message.trim();
  if (message.starts_with((file + ":").str()))
    return message.str();
  // A compile service has it behind another word.
  message.consume_front(("compiling " + file + ": ").str());
  return (file + ": " + message).str();
}

std::string bench::checkFiles(llvm::ArrayRef<std::string> files) {
  if (llvm::is_contained(files, ""))
    return "'' names no file";
  return llvm::count(files, "-") > 1
             ? "'-' is given twice, and standard input can be read once"
             : "";
}

int bench::usageError(const llvm::Twine &message, llvm::StringRef command) {
  // MLIR's complaints about a pipeline show the text in further lines.
  std::string text = message.str();
  printError(llvm::StringRef(text).split('\n').first.rtrim(". ") +
             ". Try 'ctxpool-bench " + command + (command.empty() ? "" : " ") +
             "--help'");
  return exitUsage;
}

void bench::printVersion(llvm::raw_ostream &stream) {
  const Environment &environment = getEnvironment();
  stream << "ctxpool-bench " << environment.version << "\n"
         << environment.describeBuild() << "\n";
}

/// libLLVM and MLIR bring some hundred options of their own, such as those that
/// print passes, which every command would take. They are about other tools.
static void removeForeignOptions() {
  static constexpr llvm::StringLiteral kept[] = {
      "h", "help", "help-hidden", "help-list", "help-list-hidden", "version"};
  llvm::SmallVector<llvm::cl::Option *> foreign;
  for (auto &[name, option] : llvm::cl::getRegisteredOptions())
    if (!llvm::is_contained(kept, name))
      foreign.push_back(option);
  for (llvm::cl::Option *option : foreign)
    option->removeArgument();
}

namespace {

/// Takes in what goes to standard error. LLVM complains there of a wrong value,
/// and of one that is missing, whatever stream it is given.
class ErrorCapture {
public:
  /// Where the system refuses, all goes on to standard error.
  ErrorCapture()
      : file(memfd_create("complaints", MFD_CLOEXEC)),
        standardError(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) {
    isActive = file >= 0 && standardError >= 0 &&
               dup2(file, STDERR_FILENO) == STDERR_FILENO;
  }
  ErrorCapture(const ErrorCapture &) = delete;
  ErrorCapture &operator=(const ErrorCapture &) = delete;
  ~ErrorCapture() {
    stop();
    for (int descriptor : {file, standardError})
      if (descriptor >= 0)
        close(descriptor);
  }

  /// Ends it, and returns what came.
  std::string take() {
    stop();
    llvm::SmallString<256> text;
    if (file >= 0 && lseek(file, 0, SEEK_SET) == 0)
      llvm::consumeError(llvm::sys::fs::readNativeFileToEOF(
          llvm::sys::fs::convertFDToNativeFile(file), text));
    return text.str().str();
  }

private:
  void stop() {
    if (isActive)
      dup2(standardError, STDERR_FILENO);
    isActive = false;
  }

  const int file, standardError;
  bool isActive;
};

} // namespace

/// Whether `--help` or the like may end the process in the middle of the parsing,
/// which then has its own say on standard error.
static bool asksForText(llvm::ArrayRef<const char *> arguments) {
  return llvm::any_of(arguments, [](llvm::StringRef argument) {
    llvm::StringRef name = argument.ltrim('-');
    return argument != name && (name == "h" || name.starts_with("help") ||
                                name.starts_with("version"));
  });
}

bool bench::parseCommandLine(int argc, const char *const *argv,
                             llvm::cl::SubCommand &command,
                             llvm::cl::OptionCategory &category,
                             llvm::StringRef explanation) {
  removeForeignOptions();
  llvm::cl::HideUnrelatedOptions(category, command);
  llvm::cl::SetVersionPrinter(printVersion);
  llvm::cl::extrahelp help(explanation);

  std::string complaint;
  llvm::raw_string_ostream stream(complaint);
  std::optional<ErrorCapture> capture;
  if (!asksForText(llvm::ArrayRef(argv, argc).drop_front()))
    capture.emplace();
  bool isRight = llvm::cl::ParseCommandLineOptions(argc, argv, "", &stream);
  if (capture)
    complaint += capture->take();
  if (isRight) {
    llvm::errs() << complaint;
    return true;
  }

  // Lines that each begin with the program's name: `Unknown command line argument
  // '--x'.  Try: '... --help'`, `Did you mean '--y'?`, `for the --z option:
  // requires a value!`
  const std::string program = (llvm::sys::path::filename(argv[0]) + ": ").str();
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(complaint).split(lines, '\n', -1, /*KeepEmpty=*/false);
  std::string message;
  for (llvm::StringRef line : lines) {
    // `-h` is the nearest option to whatever is short, and no help.
    if (line.contains("Did you mean '-h'"))
      continue;
    line.consume_front(program);
    llvm::StringRef rest = line.split("  Try: ").first;
    message += (message.empty() ? "" : " ") + rest.rtrim(".!").trim().str();
    if (!rest.ends_with("?"))
      message += ".";
  }
  if (!message.empty())
    printError(llvm::Twine(message) + " Try 'ctxpool-bench " +
               command.getName() + " --help'");
  return false;
}

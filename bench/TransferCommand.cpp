//===- TransferCommand.cpp - ctxpool-bench transfer -----------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "bench/CommandLine.h"
#include "bench/Commands.h"
#include "bench/CrashGuard.h"
#include "bench/Environment.h"
#include "bench/ModuleParser.h"
#include "bench/ModuleSource.h"
#include "bench/ProcessInfo.h"
#include "bench/ProgressLine.h"
#include "bench/Registration.h"
#include "bench/ReportFlag.h"
#include "bench/Statistics.h"
#include "bench/TextTable.h"
#include "bench/ThreadTeam.h"
#include "context_pool/Equivalence.h"
#include "context_pool/ModuleTransfer.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OperationSupport.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::bench;
namespace cl = llvm::cl;

static cl::SubCommand
    transferCommand("transfer",
                    "compare the ways of a module into another context");
static cl::OptionCategory category("Options of transfer");

static cl::list<std::string> files(cl::Positional, cl::sub(transferCommand),
                                   cl::cat(category), cl::desc("FILES..."));
static ReportFlag reportFlag(transferCommand, category);
static ProgressFlag progressFlag(transferCommand, category);
static cl::opt<bool> allowUnregistered(
    "allow-unregistered-dialect", cl::sub(transferCommand), cl::cat(category),
    cl::desc("Allow operations of dialects that are not registered"));
static constexpr llvm::StringLiteral explanation = R"(
FILES are .mlir text or .mlirbc bytecode, folders of them (searched recursively),
or - for standard input. The figures are medians in microseconds, the ways in turns;
a way that takes a second or more is not repeated:

  clone cold         cloneInto a context that knows none of the attributes
  clone known        a CrossContextCloner that has copied the module before
  bytecode verified  serialize and deserialize into a context as for clone cold
  bytecode trusted   the same without verification
  text               print with locations and parse, each verified, as MLIR does
  clone()            Operation::clone within the context: what a copy costs at least

A context to copy into has the dialects of the module loaded; making it, and
destroying the copy, is in no figure. Every copy is compared with its source,
locations included, but for text: custom formats leave out operations such as
terminators, and their locations. Exits with 1 where a copy differs, where a way
refuses a module or MLIR crashes on it, and where a file cannot be read.
)";

//===----------------------------------------------------------------------===//
// Measuring a file
//===----------------------------------------------------------------------===//

namespace {

enum Way : unsigned {
  CloneCold,
  CloneKnown,
  BytecodeVerified,
  BytecodeTrusted,
  Text,
  InContextClone,
};

/// What reports call the ways, by their numbers.
constexpr llvm::StringLiteral wayNames[] = {
    "clone_cold",       "clone_known", "bytecode_verified",
    "bytecode_trusted", "text",        "in_context_clone"};
constexpr size_t wayCount = std::size(wayNames);

/// What the ways do with one file, or with all.
struct Outcome {
  uint64_t operations = 0, bytes = 0;

  /// Nothing where no module was compared.
  std::optional<bool> equivalent;

  /// Nothing where the way did not bring an equal module across.
  std::array<std::optional<double>, wayCount> microseconds;

  /// By what went wrong, the ways that it befell.
  std::map<std::string, std::vector<std::string>> complaints;
};

using Copy = absl::StatusOr<mlir::OwningOpRef<mlir::Operation *>>;

/// One module and the contexts that it is brought into.
class Transfer {
public:
  Transfer(LoadedModule loaded, const mlir::DialectRegistry &registry)
      : dialects(registry), module(std::move(loaded)), known(makeDestination()),
        cloner(*module.context, *known) {}

  /// Microseconds of one copy, which is compared with its source.
  ///
  /// Errors: the way's; Internal - the copy is not its source.
  absl::StatusOr<double> measure(Way way) {
    // Also where the way does not need it, so that all find the heap as the
    // making of a context leaves it.
    std::unique_ptr<mlir::MLIRContext> fresh = makeDestination();
    double begin = getWallSeconds();
    Copy copy = makeCopy(way, *fresh);
    double end = getWallSeconds();
    if (!copy.ok())
      return copy.status();
    StructuralOptions options;
    options.includeLocations = way != Text;
    if (absl::Status status =
            checkEquivalence(getSource(), copy->get(), options);
        !status.ok())
      return absl::InternalError(
          absl::StrCat("the copy is not its source: ", status.message()));
    return (end - begin) * 1e6;
  }

  uint64_t countOperations() {
    uint64_t count = 0;
    getSource()->walk([&](mlir::Operation *) { ++count; });
    return count;
  }

private:
  mlir::Operation *getSource() { return module.module->getOperation(); }

  /// A context that knows the dialects of the module, and nothing else of it.
  std::unique_ptr<mlir::MLIRContext> makeDestination() {
    auto context = std::make_unique<mlir::MLIRContext>(
        dialects, mlir::MLIRContext::Threading::DISABLED);
    // As a pool's contexts are: without locks for threads that it lacks.
    context->disableMultithreading();
    context->allowUnregisteredDialects(allowUnregistered);
    for (mlir::Dialect *dialect : module.context->getLoadedDialects())
      context->getOrLoadDialect(dialect->getNamespace());
    return context;
  }

  Copy makeCopy(Way way, mlir::MLIRContext &fresh) {
    switch (way) {
    case CloneCold:
      return cloneInto(getSource(), fresh);
    case CloneKnown:
      return cloner.clone(getSource());
    case BytecodeVerified:
      return copyAsBytecode(fresh, /*verify=*/true);
    case BytecodeTrusted:
      return copyAsBytecode(fresh, /*verify=*/false);
    case Text:
      return copyAsText(fresh);
    case InContextClone:
      return mlir::OwningOpRef<mlir::Operation *>(getSource()->clone());
    }
    llvm_unreachable("not a way");
  }

  Copy copyAsBytecode(mlir::MLIRContext &destination, bool verify) {
    absl::StatusOr<SerializedModule> bytes = serialize(getSource());
    if (!bytes.ok())
      return bytes.status();
    DeserializeOptions options;
    options.verify = verify;
    return deserialize(*bytes, destination, options);
  }

  Copy copyAsText(mlir::MLIRContext &destination) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    getSource()->print(stream, mlir::OpPrintingFlags().enableDebugInfo());
    absl::StatusOr<mlir::OwningOpRef<mlir::ModuleOp>> parsed =
        parseModule(*llvm::MemoryBuffer::getMemBuffer(text, "<printed>"),
                    destination, /*verify=*/true);
    if (!parsed.ok())
      return parsed.status();
    return mlir::OwningOpRef<mlir::Operation *>(parsed->release());
  }

  const mlir::DialectRegistry &dialects;
  LoadedModule module;
  std::unique_ptr<mlir::MLIRContext> known;
  CrossContextCloner cloner;
};

} // namespace

/// From here on a way is not repeated.
static constexpr double slowMicroseconds = 1e6;

namespace {

/// What one file takes, over the contexts that crashes use up.
class FileMeasurement {
public:
  FileMeasurement(const ModuleSource &measured,
                  const mlir::DialectRegistry &dialects)
      : source(measured), registry(dialects) {}

  /// What the ways do with the file. Errors: the file's.
  absl::StatusOr<Outcome> run() {
    outcome.bytes = source.bytes ? source.bytes->getBufferSize() : 0;
    outcome.equivalent = true;
    // What a crash leaves cannot be trusted: the other ways begin anew.
    for (bool crashed = true; crashed;) {
      absl::StatusOr<std::unique_ptr<Transfer>> transfer = load();
      if (!transfer.ok())
        return transfer.status();
      crashed = !measureWays(**transfer);
      if (crashed)
        // Neither can it be destroyed.
        (void)transfer->release(); // NOLINT(bugprone-unused-return-value)
    }
    for (size_t way = 0; way < wayCount; ++way)
      if (!failed[way])
        outcome.microseconds[way] = median(times[way]);
    return std::move(outcome);
  }

private:
  absl::StatusOr<std::unique_ptr<Transfer>> load() {
    absl::StatusOr<LoadedModule> loaded =
        loadModule(source, registry, allowUnregistered);
    if (!loaded.ok())
      return loaded.status();
    std::unique_ptr<Transfer> transfer;
    if (absl::Status status = runGuarded([&] {
          transfer = std::make_unique<Transfer>(*std::move(loaded), registry);
          outcome.operations = transfer->countOperations();
        });
        !status.ok()) {
      (void)transfer.release(); // NOLINT(bugprone-unused-return-value)
      return status;
    }
    return transfer;
  }

  /// Measures the ways that did not fail yet. Returns false where one crashed.
  bool measureWays(Transfer &transfer) {
    for (std::vector<double> &wayTimes : times)
      wayTimes.clear();
    std::array<bool, wayCount> done = failed;
    // Small modules take microseconds, and a million operations take seconds.
    uint64_t rounds = std::clamp<uint64_t>(20000 / outcome.operations, 5, 41);
    for (uint64_t round = 0; round <= rounds; ++round)
      for (size_t turn = 0; turn < wayCount; ++turn) {
        size_t way = (round + turn) % wayCount;
        if (done[way])
          continue;
        absl::StatusOr<double> time = absl::UnknownError("");
        absl::Status ran =
            runGuarded([&] { time = transfer.measure(Way(way)); });
        if (!ran.ok() || !time.ok()) {
          done[way] = true;
          fail(Way(way), ran.ok() ? time.status() : ran);
          if (!ran.ok())
            return false;
          continue;
        }
        // The first round pays for what the process does once, which is little
        // to a slow way, and shows the cloner the attributes.
        bool slow = *time >= slowMicroseconds;
        if (round || (slow && way != CloneKnown)) {
          times[way].push_back(*time);
          done[way] = slow;
        }
      }
    return true;
  }

  void fail(Way way, const absl::Status &status) {
    failed[way] = true;
    outcome.equivalent = false;
    outcome.complaints[std::string(status.message())].push_back(
        wayNames[way].str());
  }

  const ModuleSource &source;
  const mlir::DialectRegistry &registry;
  Outcome outcome;
  std::array<std::vector<double>, wayCount> times;
  std::array<bool, wayCount> failed = {};
};

} // namespace

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

/// Sums up the files that every way brought across, so that the ways can be
/// compared.
static void addToTotal(Outcome &total, const Outcome &file) {
  total.equivalent = total.equivalent.value_or(true) && *file.equivalent;
  if (!*file.equivalent)
    return;
  total.operations += file.operations;
  total.bytes += file.bytes;
  for (size_t way = 0; way < wayCount; ++way)
    total.microseconds[way] =
        total.microseconds[way].value_or(0) + *file.microseconds[way];
}

static void addRow(TextTable &table, std::string name, const Outcome &outcome) {
  std::vector<std::string> row = {std::move(name),
                                  std::to_string(outcome.operations),
                                  std::to_string(outcome.bytes)};
  for (std::optional<double> time : outcome.microseconds)
    row.push_back(time ? formatNumber(*time) : "-");
  row.push_back(formatAnswer(outcome.equivalent));
  table.addRow(std::move(row));
}

/// The total of each way as a part of the usual one.
static void addRatios(TextTable &table, const Outcome &total) {
  std::optional<double> usual = total.microseconds[BytecodeVerified];
  if (!usual || *usual <= 0)
    return;
  std::vector<std::string> row = {"over bytecode verified", "", ""};
  for (std::optional<double> time : total.microseconds)
    row.push_back(llvm::formatv("{0:F2} x", *time / *usual));
  table.addRow(std::move(row));
}

static llvm::json::Object makeFigures(const Outcome &outcome) {
  llvm::json::Object times;
  for (size_t way = 0; way < wayCount; ++way)
    times[wayNames[way]] = makeOptional(outcome.microseconds[way]);
  return llvm::json::Object{{"operations", outcome.operations},
                            {"bytes", outcome.bytes},
                            {"equivalent", makeOptional(outcome.equivalent)},
                            {"microseconds", std::move(times)}};
}

/// What went wrong with a file, a line for each cause.
static std::string describeComplaints(const Outcome &outcome) {
  std::vector<std::string> lines;
  for (const auto &[cause, ways] : outcome.complaints)
    lines.push_back((ways.size() == 1 ? "way '" : "ways '") +
                    llvm::join(ways, "', '") + "': " + cause);
  return llvm::join(lines, "\n");
}

namespace {

/// What became of all files.
class Report {
public:
  Report();

  /// Prints an error where there is one.
  void add(const ModuleSource &source, const absl::StatusOr<Outcome> &outcome);
  /// Ends what `add` began.
  void finish();

  bool isAllWell() const { return allWell; }
  void print() const;
  llvm::json::Object makeJson(llvm::ArrayRef<char *> commandLine) const;

private:
  TextTable table;
  llvm::json::Array entries;
  Outcome total;
  bool allWell = true;
};

} // namespace

Report::Report() {
  table.addRow({"", "", "", "clone", "clone", "bytecode", "bytecode", "text",
                "clone()", ""});
  table.addRow({"file", "operations", "bytes", "cold us", "known us",
                "verified us", "trusted us", "us", "us", "equal"});
  table.addRule();
}

void Report::add(const ModuleSource &source,
                 const absl::StatusOr<Outcome> &outcome) {
  if (!outcome.ok()) {
    allWell = false;
    llvm::json::Object entry =
        reportFailedFile(source.name, std::string(outcome.status().message()));
    entry["equivalent"] = false;
    entries.push_back(std::move(entry));
    return;
  }
  llvm::json::Object entry;
  if (*outcome->equivalent) {
    entry["file"] = llvm::json::fixUTF8(source.name);
  } else {
    allWell = false;
    entry = reportFailedFile(source.name, describeComplaints(*outcome));
  }
  for (auto &[name, value] : makeFigures(*outcome))
    entry[name] = std::move(value);
  entries.push_back(std::move(entry));
  addRow(table, shortenPath(source.name), *outcome);
  addToTotal(total, *outcome);
}

void Report::finish() {
  // A total of some says nothing of those that it lacks.
  if (!allWell && total.equivalent)
    total.equivalent = false;
  table.addRule();
  addRow(table, "total", total);
  addRatios(table, total);
}

void Report::print() const {
  llvm::outs() << "ctxpool-bench " << getEnvironment().version
               << " transfer: medians of repetitions in turns\n"
               << getEnvironment().describeBuild() << "\n\n";
  table.print(llvm::outs());
}

llvm::json::Object Report::makeJson(llvm::ArrayRef<char *> commandLine) const {
  llvm::json::Object report = makeReport("transfer", commandLine);
  report["files"] = llvm::json::Array(entries);
  report["total"] = makeFigures(total);
  return report;
}

//===----------------------------------------------------------------------===//
// The command
//===----------------------------------------------------------------------===//

static void measureFiles(const mlir::DialectRegistry &registry,
                         Report &report) {
  ProgressLine progress(progressFlag);
  std::vector<ModuleSource> sources = readModules(files);
  for (auto [number, source] : llvm::enumerate(sources)) {
    progress.show(shortenPath(source.name),
                  double(number) / double(sources.size()));
    absl::StatusOr<Outcome> outcome = FileMeasurement(source, registry).run();
    // For the message.
    if (!outcome.ok() || !*outcome->equivalent)
      progress.clear();
    report.add(source, outcome);
  }
}

int bench::runTransfer(int argc, char **argv) {
  if (!parseCommandLine(argc, argv, transferCommand, category, explanation))
    return exitUsage;
  if (files.empty())
    return usageError("no file is given", "transfer");
  for (const std::string &complaint :
       {checkFiles(files), reportFlag.check(files)})
    if (!complaint.empty())
      return usageError(complaint, "transfer");
  mlir::DialectRegistry registry;
  if (!registerEverything(registry, {}, {}))
    return exitFailure;
  if (!reportFlag.canWrite())
    return exitFailure;
  std::optional<detail::CrashHandlers> handlers = installCrashHandlers();
  if (!handlers)
    return exitFailure;
  warnOfHandicap();

  Report report;
  // Parsers recurse.
  int status = runOnLargeStack(
      [&]() -> int {
        measureFiles(registry, report);
        return report.isAllWell() ? exitSuccess : exitFailure;
      },
      exitFailure);
  report.finish();
  if (reportFlag.leavesStandardOutput())
    report.print();
  bool written = reportFlag.write(
      [&] { return report.makeJson(llvm::ArrayRef(argv, argc)); });
  return written ? status : exitFailure;
}

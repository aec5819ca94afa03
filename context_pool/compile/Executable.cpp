//===- Executable.cpp - Compiled code in this process ---------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ORC's layers for objects, without LLJIT: that also makes a target machine, the
// layers for IR and the dylibs of a platform for every instance, which cost more
// than linking a small object, and runs the constructors of IR modules only.
//
//===----------------------------------------------------------------------===//

#include "context_pool/Executable.h"

#include "context_pool/cache/CompilerIdentity.h"

#include "absl/status/status.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/Twine.h"
#include "llvm/ExecutionEngine/JITLink/JITLink.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/EHFrameRegistrationPlugin.h"
#include "llvm/ExecutionEngine/Orc/ObjectFileInterface.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/ExecutionEngine/Orc/SelfExecutorProcessControl.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/TargetParser/Host.h"

#include <cstring>
#include <dlfcn.h>
#include <initializer_list>
#include <limits>
#include <optional>
#include <tuple>

using namespace ctxpool;
namespace orc = llvm::orc;
namespace jitlink = llvm::jitlink;

//===----------------------------------------------------------------------===//
// Symbols from outside
//===----------------------------------------------------------------------===//

/// A handle on a shared library, which stays loaded. Not visible to symbols of
/// other libraries: what comes with the library does not mix with the process.
static absl::StatusOr<void *> openLibrary(const char *path) {
  if (void *handle = ctxpool::detail::openRuntimeLibrary(path))
    return handle;
  // glibc and musl keep the text for each thread.
  const char *reason = ::dlerror(); // NOLINT(concurrency-mt-unsafe)
  return absl::NotFoundError(
      ("cannot load the library '" + llvm::Twine(path) + "': " + reason).str());
}

/// MLIR's runner utilities, loaded by the first call. Where one is absent, the
/// symbols that it would have had are named as missing.
static llvm::ArrayRef<void *> getRunnerLibraries() {
  static const std::vector<void *> libraries = [] {
    const std::initializer_list<const char *> paths = {
        CTXPOOL_RUNNER_LIBRARIES};
    std::vector<void *> handles;
    for (const char *path : paths)
      if (absl::StatusOr<void *> handle = openLibrary(path); handle.ok())
        handles.push_back(*handle);
    return handles;
  }();
  return libraries;
}

static void *findIn(llvm::ArrayRef<void *> libraries, const char *name) {
  for (void *library : libraries)
    if (void *address = ::dlsym(library, name))
      return address;
  return nullptr;
}

namespace {

/// Defines what an object wants and does not have.
class OutsideSymbols : public orc::DefinitionGenerator {
public:
  explicit OutsideSymbols(std::vector<void *> libraries)
      : libraries(std::move(libraries)) {}

  llvm::Error tryToGenerate(orc::LookupState &, orc::LookupKind,
                            orc::JITDylib &dylib, orc::JITDylibLookupFlags,
                            const orc::SymbolLookupSet &wanted) override {
    orc::SymbolMap found;
    for (const auto &[name, flags] : wanted)
      if (void *address = find((*name).str().c_str()))
        found[name] = {orc::ExecutorAddr::fromPtr(address),
                       llvm::JITSymbolFlags::Exported};
    if (found.empty())
      return llvm::Error::success();
    return dylib.define(orc::absoluteSymbols(std::move(found)));
  }

private:
  void *find(const char *name) const {
    if (void *address = ::dlsym(RTLD_DEFAULT, name))
      return address;
    if (void *address = findIn(libraries, name))
      return address;
    return findIn(getRunnerLibraries(), name);
  }

  const std::vector<void *> libraries;
};

//===----------------------------------------------------------------------===//
// Constructors and destructors
//===----------------------------------------------------------------------===//

using Function = void (*)();

/// Not checked by -fsanitize=function, which looks in front of a function for a
/// mark that compiled objects do not have.
#if defined(__clang__)
__attribute__((no_sanitize("function")))
#endif
void runAll(llvm::ArrayRef<Function> functions) {
  for (Function function : functions)
    function();
}

/// The functions that sections of pointers name, in the order in which a linker
/// puts such sections: those with the lower number first, those without last.
class FunctionTable {
public:
  explicit FunctionTable(llvm::StringRef section) : section(section) {}

  /// Nothing refers to the sections, and JITLink would drop them.
  void keep(jitlink::LinkGraph &graph) const {
    for (jitlink::Section &candidate : graph.sections())
      if (getPriority(candidate))
        for (jitlink::Block *block : candidate.blocks())
          graph.addAnonymousSymbol(*block, 0, block->getSize(),
                                   /*IsCallable=*/false, /*IsLive=*/true);
  }

  /// Reads the sections once addresses are in them.
  void read(jitlink::LinkGraph &graph) {
    std::vector<std::tuple<unsigned, orc::ExecutorAddr, jitlink::Block *>>
        blocks;
    for (jitlink::Section &candidate : graph.sections())
      if (std::optional<unsigned> priority = getPriority(candidate))
        for (jitlink::Block *block : candidate.blocks())
          blocks.emplace_back(*priority, block->getAddress(), block);
    llvm::sort(blocks);
    for (auto [priority, address, block] : blocks) {
      llvm::ArrayRef<char> bytes = block->getContent();
      for (size_t at = 0; at + sizeof(Function) <= bytes.size();
           at += sizeof(Function)) {
        Function function;
        std::memcpy(static_cast<void *>(&function), bytes.data() + at,
                    sizeof(Function));
        functions.push_back(function);
      }
    }
  }

  llvm::ArrayRef<Function> get() const { return functions; }

private:
  std::optional<unsigned> getPriority(const jitlink::Section &candidate) const {
    llvm::StringRef rest = candidate.getName();
    unsigned number;
    if (!rest.consume_front(section))
      return std::nullopt;
    if (rest.consume_front(".") && !rest.getAsInteger(10, number))
      return number;
    return std::numeric_limits<unsigned>::max();
  }

  const llvm::StringRef section;
  std::vector<Function> functions;
};

class StaticsPlugin : public orc::ObjectLinkingLayer::Plugin {
public:
  void modifyPassConfig(orc::MaterializationResponsibility &,
                        jitlink::LinkGraph &,
                        jitlink::PassConfiguration &config) override {
    config.PrePrunePasses.emplace_back([this](jitlink::LinkGraph &graph) {
      constructors.keep(graph);
      destructors.keep(graph);
      return llvm::Error::success();
    });
    config.PostFixupPasses.emplace_back([this](jitlink::LinkGraph &graph) {
      constructors.read(graph);
      destructors.read(graph);
      return llvm::Error::success();
    });
  }
  llvm::Error notifyFailed(orc::MaterializationResponsibility &) override {
    return llvm::Error::success();
  }
  llvm::Error notifyRemovingResources(orc::JITDylib &,
                                      orc::ResourceKey) override {
    return llvm::Error::success();
  }
  void notifyTransferringResources(orc::JITDylib &, orc::ResourceKey,
                                   orc::ResourceKey) override {}

  FunctionTable constructors{".init_array"};
  FunctionTable destructors{".fini_array"};
};

} // namespace

//===----------------------------------------------------------------------===//
// Executable
//===----------------------------------------------------------------------===//

/// Checks that `object` is one for this machine which this file can load.
static absl::Status checkObject(const Artifact &object) {
  if (object.getKind() != "object")
    return absl::InvalidArgumentError(("cannot load an artifact of kind '" +
                                       object.getKind() +
                                       "', only of kind 'object'")
                                          .str());
  llvm::Triple host(llvm::sys::getProcessTriple());
  if (!host.isOSBinFormatELF())
    return absl::UnimplementedError("cannot load objects on '" + host.str() +
                                    "', only on systems with ELF");

  llvm::Expected<std::unique_ptr<llvm::object::ObjectFile>> file =
      llvm::object::ObjectFile::createObjectFile(
          llvm::MemoryBufferRef(object.getBytes(), "artifact"));
  if (!file)
    return absl::InvalidArgumentError("cannot read the object: " +
                                      llvm::toString(file.takeError()));
  llvm::Triple triple = (*file)->makeTriple();
  if (!(*file)->isELF() || triple.getArch() != host.getArch())
    return absl::InvalidArgumentError(
        (llvm::Twine("the object is for '") + (*file)->getFileFormatName() +
         "', and this process is '" + host.str() + "'")
            .str());
  if (!(*file)->isRelocatableObject())
    return absl::InvalidArgumentError(
        "the file is linked already, not a relocatable object");

  for (const llvm::object::SectionRef &section : (*file)->sections()) {
    llvm::Expected<llvm::StringRef> name = section.getName();
    if (!name)
      return absl::InvalidArgumentError("cannot read the object: " +
                                        llvm::toString(name.takeError()));
    if (name->starts_with(".tdata") || name->starts_with(".tbss"))
      return absl::FailedPreconditionError(
          "the object has thread-local variables, for which nobody provides");
    if (name->starts_with(".ctors") || name->starts_with(".dtors"))
      return absl::FailedPreconditionError(
          ("the object has constructors or destructors in '" + *name +
           "', only .init_array and .fini_array are run")
              .str());
  }
  return absl::OkStatus();
}

class Executable::Impl {
public:
  ~Impl() {
    runAll(destructors);
    if (!session)
      return;
    if (llvm::Error error = session->endSession())
      note(std::move(error));
  }

  absl::Status link(const Artifact &object, std::vector<void *> libraries);

  void *find(llvm::StringRef symbol) const { return symbols.lookup(symbol); }

private:
  /// Takes errors apart: a missing symbol is reported by itself, and then as
  /// everything that did not come about for want of it.
  void note(llvm::Error error) {
    llvm::handleAllErrors(
        std::move(error),
        [&](const orc::SymbolsNotFound &info) {
          for (const orc::SymbolStringPtr &name : info.getSymbols())
            missing.push_back((*name).str());
        },
        [](const orc::FailedToMaterialize &) {},
        [&](const llvm::ErrorInfoBase &info) {
          reasons.push_back(info.message());
        });
  }

  absl::Status takeFailure(llvm::Error error) {
    note(std::move(error));
    llvm::sort(missing);
    if (!missing.empty())
      return absl::NotFoundError("cannot load the object: nobody defines '" +
                                 llvm::join(missing, "', '") + "'");
    return absl::FailedPreconditionError("cannot load the object: " +
                                         llvm::join(reasons, "; "));
  }

  std::vector<std::string> missing, reasons;
  llvm::StringMap<void *> symbols;
  std::vector<Function> destructors; ///< In the order in which they run.
  std::unique_ptr<orc::ExecutionSession> session;
  std::unique_ptr<orc::ObjectLinkingLayer> layer;
};

absl::Status Executable::Impl::link(const Artifact &object,
                                    std::vector<void *> libraries) {
  // Tasks run where they arise: ORC's default is threads of its own.
  llvm::Expected<std::unique_ptr<orc::SelfExecutorProcessControl>> process =
      orc::SelfExecutorProcessControl::Create(
          nullptr, std::make_unique<orc::InPlaceTaskDispatcher>());
  if (!process)
    return takeFailure(process.takeError());
  session = std::make_unique<orc::ExecutionSession>(std::move(*process));
  session->setErrorReporter(
      [this](llvm::Error error) { note(std::move(error)); });
  layer = std::make_unique<orc::ObjectLinkingLayer>(*session);
  auto statics = std::make_shared<StaticsPlugin>();
  layer->addPlugin(statics);
  // So that exceptions and backtraces get through the code.
  llvm::Expected<std::unique_ptr<orc::EHFrameRegistrationPlugin>> frames =
      orc::EHFrameRegistrationPlugin::Create(*session);
  if (!frames)
    return takeFailure(frames.takeError());
  layer->addPlugin(std::move(*frames));

  orc::JITDylib &dylib = session->createBareJITDylib("executable");
  dylib.addGenerator(std::make_unique<OutsideSymbols>(std::move(libraries)));
  std::unique_ptr<llvm::MemoryBuffer> buffer = llvm::MemoryBuffer::getMemBuffer(
      object.getBytes(), "artifact", /*RequiresNullTerminator=*/false);
  llvm::Expected<orc::MaterializationUnit::Interface> interface =
      orc::getObjectFileInterface(*session, buffer->getMemBufferRef());
  if (!interface)
    return takeFailure(interface.takeError());

  // The lookup links: what is wrong shows now, and later ones need no lock.
  orc::SymbolLookupSet defined;
  for (const auto &[name, flags] : interface->SymbolFlags)
    // The symbol that stands for constructors has no address to be found.
    defined.add(name, flags.hasMaterializationSideEffectsOnly()
                          ? orc::SymbolLookupFlags::WeaklyReferencedSymbol
                          : orc::SymbolLookupFlags::RequiredSymbol);
  if (llvm::Error error = layer->add(dylib.getDefaultResourceTracker(),
                                     std::move(buffer), std::move(*interface)))
    return takeFailure(std::move(error));
  llvm::Expected<orc::SymbolMap> found =
      session->lookup({{&dylib, orc::JITDylibLookupFlags::MatchAllSymbols}},
                      std::move(defined));
  if (!found)
    return takeFailure(found.takeError());
  for (const auto &[name, symbol] : *found)
    symbols[*name] = symbol.getAddress().toPtr<void *>();

  runAll(statics->constructors.get());
  destructors.assign(statics->destructors.get().rbegin(),
                     statics->destructors.get().rend());
  return absl::OkStatus();
}

Executable::Executable(std::unique_ptr<Impl> theImpl)
    : impl(std::move(theImpl)) {}

Executable::~Executable() = default;

absl::StatusOr<std::shared_ptr<Executable>>
Executable::load(const Artifact &object, const ExecutableOptions &options) {
  if (absl::Status status = checkObject(object); !status.ok())
    return status;
  std::vector<void *> libraries;
  for (const std::string &path : options.libraries) {
    absl::StatusOr<void *> handle = openLibrary(path.c_str());
    if (!handle.ok())
      return handle.status();
    libraries.push_back(*handle);
  }
  auto impl = std::make_unique<Impl>();
  if (absl::Status status = impl->link(object, std::move(libraries));
      !status.ok())
    return status;
  return std::shared_ptr<Executable>(new Executable(std::move(impl)));
}

absl::StatusOr<void *> Executable::lookup(llvm::StringRef symbol) const {
  if (void *address = impl->find(symbol))
    return address;
  return absl::NotFoundError(
      ("the object defines no symbol '" + symbol + "'").str());
}

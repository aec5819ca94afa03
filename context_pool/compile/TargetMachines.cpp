//===- TargetMachines.cpp - What LLVM generates code with -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/compile/TargetMachines.h"

#include "absl/status/status.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/Twine.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetOptions.h"
#include "llvm/TargetParser/RISCVISAInfo.h"

#include <mutex>

using namespace ctxpool;
using namespace ctxpool::detail;

void detail::initializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeAllTargetInfos();
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
    llvm::InitializeAllAsmPrinters();
    llvm::InitializeAllAsmParsers(); // for inline assembly
  });
}

static absl::Status invalid(const llvm::Twine &message) {
  return absl::InvalidArgumentError(message.str());
}

/// Whether the target takes that code model. Those that do not end the process
/// when they are asked for it.
static bool takesCodeModel(const llvm::Triple &triple,
                           llvm::CodeModel::Model model) {
  switch (model) {
  case llvm::CodeModel::Small:
    return true;
  case llvm::CodeModel::Tiny:
    return triple.isAArch64() && triple.isOSBinFormatELF();
  case llvm::CodeModel::Kernel:
    return triple.isX86();
  case llvm::CodeModel::Medium:
    return !triple.isAArch64() && triple.getArch() != llvm::Triple::xcore;
  case llvm::CodeModel::Large:
    return true;
  }
  return false;
}

/// What a processor has to have, and not to have, for the words of the target,
/// of targets that end the process over it.
static llvm::StringRef getWordFeatures(const llvm::Triple &triple) {
  switch (triple.getArch()) {
  case llvm::Triple::x86_64:
    return "+64bit,+64bit-mode";
  case llvm::Triple::riscv64:
  case llvm::Triple::loongarch64:
    return "+64bit,-32bit";
  case llvm::Triple::riscv32:
  case llvm::Triple::loongarch32:
    return "+32bit,-64bit";
  case llvm::Triple::mips64:
  case llvm::Triple::mips64el:
    return "+gp64";
  case llvm::Triple::ppc64:
  case llvm::Triple::ppc64le:
    return "-spe";
  default:
    return "";
  }
}

/// RISC-V has rules of which extensions go together.
static absl::Status checkExtensions(const llvm::MCSubtargetInfo &chosen) {
  std::vector<std::string> extensions;
  for (const llvm::SubtargetFeatureKV &feature :
       chosen.getEnabledProcessorFeatures())
    if (llvm::RISCVISAInfo::isSupportedExtensionFeature(feature.Key))
      extensions.push_back(std::string("+") + feature.Key);
  unsigned wordBits = chosen.getTargetTriple().isArch64Bit() ? 64 : 32;
  auto parsed = llvm::RISCVISAInfo::parseFeatures(wordBits, extensions);
  if (!parsed)
    return invalid("features: " + llvm::toString(parsed.takeError()));
  return absl::OkStatus();
}

absl::Status detail::checkProcessor(const llvm::Target &target,
                                    const llvm::Triple &triple,
                                    llvm::StringRef cpu, llvm::StringRef tuning,
                                    llvm::StringRef features) {
  std::unique_ptr<llvm::MCSubtargetInfo> known(
      target.createMCSubtargetInfo(triple, "", ""));
  if (!known)
    return invalid("target: '" + triple.str() + "' has no processors in LLVM");
  if (!cpu.empty() && !known->isCPUStringValid(cpu))
    return invalid("cpu: '" + triple.str() + "' has no '" + cpu + "'");
  if (!tuning.empty() && !known->isCPUStringValid(tuning))
    return invalid("tuning: '" + triple.str() + "' has no '" + tuning + "'");

  for (llvm::StringRef feature : llvm::split(features, ',')) {
    if (feature.empty())
      continue;
    llvm::StringRef name = feature;
    if (!name.consume_front("+") && !name.consume_front("-"))
      return invalid("features: '" + feature + "' lacks its + or -");
    if (llvm::none_of(known->getAllProcessorFeatures(),
                      [&](const llvm::SubtargetFeatureKV &entry) {
                        return name == entry.Key;
                      }))
      return invalid("features: '" + triple.str() + "' has no '" + name + "'");
  }

  std::unique_ptr<llvm::MCSubtargetInfo> chosen(
      target.createMCSubtargetInfo(triple, cpu, features));
  llvm::StringRef words = getWordFeatures(triple);
  if (!chosen->checkFeatures(words))
    return invalid("cpu: '" + cpu + "' with the features '" + features +
                   "' does not have " + words + ", which '" + triple.str() +
                   "' needs");
  return triple.isRISCV() ? checkExtensions(*chosen) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TargetMachines>>
TargetMachines::create(const CompileRecipe &resolved) {
  if (resolved.target.empty() || resolved.cpu == "native")
    return invalid("the recipe is not resolved: its target or cpu stands for "
                   "this machine's");
  if (resolved.optimizationLevel > 3)
    return invalid(
        "optimizationLevel: " + llvm::Twine(resolved.optimizationLevel) +
        ", LLVM has 0 to 3");
  initializeTargets();

  std::unique_ptr<TargetMachines> machines(new TargetMachines());
  machines->triple = llvm::Triple(resolved.target);
  std::string reason;
  machines->target =
      llvm::TargetRegistry::lookupTarget(machines->triple, reason);
  if (!machines->target || !machines->target->hasTargetMachine())
    return invalid("target: this LLVM generates no code for '" +
                   resolved.target + "': " + reason);

  if (!resolved.codeModel.empty()) {
    auto model = llvm::StringSwitch<std::optional<llvm::CodeModel::Model>>(
                     resolved.codeModel)
                     .Case("tiny", llvm::CodeModel::Tiny)
                     .Case("small", llvm::CodeModel::Small)
                     .Case("kernel", llvm::CodeModel::Kernel)
                     .Case("medium", llvm::CodeModel::Medium)
                     .Case("large", llvm::CodeModel::Large)
                     .Default(std::nullopt);
    if (!model)
      return invalid("codeModel: '" + resolved.codeModel +
                     "' is none of tiny, small, kernel, medium, large");
    if (!takesCodeModel(machines->triple, *model))
      return invalid("codeModel: '" + resolved.target + "' has no '" +
                     resolved.codeModel + "'");
    machines->codeModel = model;
  }

  if (absl::Status status =
          checkProcessor(*machines->target, machines->triple, resolved.cpu,
                         /*tuning=*/"", resolved.features);
      !status.ok())
    return status;
  machines->cpu = resolved.cpu;
  machines->features = resolved.features;
  machines->level = *llvm::CodeGenOpt::getLevel(resolved.optimizationLevel);

  // The first machine shows whether there can be one.
  std::unique_ptr<llvm::TargetMachine> first = machines->make();
  if (!first)
    return invalid("target: this LLVM generates no code for '" +
                   resolved.target + "'");
  machines->giveBack(first.release());
  return machines;
}

std::unique_ptr<llvm::TargetMachine> TargetMachines::make() const {
  llvm::TargetOptions options;
  // Constructors in `.init_array`, where ELF's loaders look for them today.
  options.UseInitArray = true;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, cpu, features, options, llvm::Reloc::PIC_, codeModel, level));
}

TargetMachines::Loan TargetMachines::borrow() {
  {
    MutexLock lock(mutex);
    if (!idle.empty()) {
      Loan loan(idle.back().release(), GiveBack{this});
      idle.pop_back();
      return loan;
    }
  }
  return Loan(make().release(), GiveBack{this});
}

void TargetMachines::giveBack(llvm::TargetMachine *machine) {
  MutexLock lock(mutex);
  idle.emplace_back(machine);
}

//===- CodeGenerator.cpp - From the LLVM dialect to bytes -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/compile/CodeGenerator.h"

#include "context_pool/support/DiagnosticCapture.h"

#include "absl/status/status.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Target/LLVMIR/LLVMTranslationInterface.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/AutoUpgrade.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/GCStrategy.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"

#include <array>
#include <set>

using namespace ctxpool;
using namespace ctxpool::detail;

static absl::Status invalid(const llvm::Twine &message) {
  return absl::InvalidArgumentError(message.str());
}

namespace {

/// Keeps the errors that a context of LLVM's reports, one on a line, and drops
/// what is less.
class ErrorCollector : public llvm::DiagnosticHandler {
public:
  explicit ErrorCollector(std::string &errors) : errors(errors) {}

  bool handleDiagnostics(const llvm::DiagnosticInfo &info) override {
    if (info.getSeverity() != llvm::DS_Error)
      return true;
    llvm::raw_string_ostream stream(errors);
    llvm::DiagnosticPrinterRawOStream printer(stream);
    stream << (errors.empty() ? "" : "\n");
    info.print(printer);
    return true;
  }

private:
  std::string &errors;
};

/// A module on its way through LLVM.
class Emission {
public:
  Emission(llvm::TargetMachine &machine, unsigned level)
      : machine(machine), level(level) {
    context.setDiagnosticHandler(std::make_unique<ErrorCollector>(errors));
  }

  absl::Status translate(mlir::ModuleOp source);
  absl::Status optimise();
  absl::Status generateCode(llvm::raw_pwrite_stream &stream);
  void writeBitcode(llvm::raw_ostream &stream) const {
    llvm::WriteBitcodeToFile(*module, stream);
  }

private:
  absl::Status checkTarget(mlir::ModuleOp source) const;
  absl::Status checkFunctions() const;
  absl::Status checkIntrinsics() const;
  absl::Status checkErrors(llvm::StringRef stage) const {
    if (errors.empty())
      return absl::OkStatus();
    return invalid(stage + " failed: " + errors);
  }

  llvm::TargetMachine &machine;
  const unsigned level;
  std::string errors;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
};

} // namespace

absl::Status CodeGenerator::checkContext(mlir::MLIRContext &context) {
  mlir::Dialect *dialects[] = {
      context.getLoadedDialect<mlir::BuiltinDialect>(),
      context.getOrLoadDialect<mlir::LLVM::LLVMDialect>()};
  for (mlir::Dialect *dialect : dialects)
    if (!dialect
             ->getRegisteredInterface<mlir::LLVMTranslationDialectInterface>())
      return absl::FailedPreconditionError(
          ("the context cannot translate the dialect '" +
           dialect->getNamespace() +
           "' to LLVM IR: mlir::registerAllToLLVMIRTranslations was not called "
           "on its registry")
              .str());
  return absl::OkStatus();
}

/// A module that says what it was lowered for must have been lowered for this
/// target: sizes and offsets are part of it by now.
absl::Status Emission::checkTarget(mlir::ModuleOp source) const {
  const llvm::Triple &target = machine.getTargetTriple();
  if (auto attribute = source->getAttrOfType<mlir::StringAttr>(
          mlir::LLVM::LLVMDialect::getTargetTripleAttrName());
      attribute && !attribute.empty()) {
    llvm::Triple triple(attribute.getValue());
    if (triple.getArch() != target.getArch() ||
        triple.getOS() != target.getOS())
      return invalid("the module is for '" + triple.str() +
                     "', and the recipe's target is '" + target.str() + "'");
  }

  if (auto attribute = source->getAttrOfType<mlir::StringAttr>(
          mlir::LLVM::LLVMDialect::getDataLayoutAttrName());
      attribute && !attribute.empty()) {
    // As LLVM reads what older versions of it wrote.
    llvm::Expected<llvm::DataLayout> layout = llvm::DataLayout::parse(
        llvm::UpgradeDataLayoutString(attribute.getValue(), target.str()));
    if (!layout)
      return invalid("the module's data layout: " +
                     llvm::toString(layout.takeError()));
    llvm::DataLayout expected = machine.createDataLayout();
    if (*layout != expected)
      return invalid("the module has the data layout '" + attribute.getValue() +
                     "', and '" + target.str() + "' has '" +
                     expected.getStringRepresentation() + "'");
  }
  return absl::OkStatus();
}

/// Functions may ask for what LLVM prints about or ends the process for: a
/// processor of their own, and a garbage collector.
absl::Status Emission::checkFunctions() const {
  std::set<std::array<llvm::StringRef, 3>> checked;
  for (const llvm::Function &function : *module) {
    auto failed = [&](const absl::Status &status) {
      return invalid("function '" + function.getName() +
                     "': " + std::string(status.message()));
    };
    if (function.hasGC() &&
        llvm::none_of(llvm::GCRegistry::entries(), [&](const auto &entry) {
          return entry.getName() == function.getGC();
        }))
      return failed(invalid("LLVM has no garbage collector '" +
                            llvm::StringRef(function.getGC()) + "'"));

    auto get = [&](llvm::StringRef attribute, llvm::StringRef otherwise) {
      return function.hasFnAttribute(attribute)
                 ? function.getFnAttribute(attribute).getValueAsString()
                 : otherwise;
    };
    constexpr llvm::StringLiteral cpu = "target-cpu", tuning = "tune-cpu",
                                  features = "target-features";
    if (llvm::none_of(llvm::ArrayRef({cpu, tuning, features}),
                      [&](llvm::StringRef attribute) {
                        return function.hasFnAttribute(attribute);
                      }))
      continue;
    auto [processor, isNew] =
        checked.insert({get(cpu, machine.getTargetCPU()), get(tuning, ""),
                        get(features, machine.getTargetFeatureString())});
    if (!isNew)
      continue;
    auto [ownCpu, ownTuning, ownFeatures] = *processor;
    if (absl::Status status =
            checkProcessor(machine.getTarget(), machine.getTargetTriple(),
                           ownCpu, ownTuning, ownFeatures);
        !status.ok())
      return failed(status);
  }
  return absl::OkStatus();
}

absl::Status Emission::translate(mlir::ModuleOp source) {
  if (absl::Status status = CodeGenerator::checkContext(*source->getContext());
      !status.ok())
    return status;
  if (absl::Status status = checkTarget(source); !status.ok())
    return status;

  // Translation prints what the verifier of LLVM says, and so is told not to
  // call it.
  DiagnosticCapture diagnostics(*source->getContext());
  module = mlir::translateModuleToLLVMIR(source, context, "LLVMDialectModule",
                                         /*disableVerification=*/true);
  std::string refused = diagnostics.take();
  if (!module || !refused.empty())
    return invalid("translation to LLVM IR failed: " +
                   (refused.empty() ? errors : refused));
  module->setTargetTriple(machine.getTargetTriple());
  module->setDataLayout(machine.createDataLayout());

  std::string broken;
  llvm::raw_string_ostream stream(broken);
  if (llvm::verifyModule(*module, &stream))
    return invalid("LLVM's verifier refuses the translated module: " +
                   llvm::StringRef(broken).rtrim());
  if (absl::Status status = checkFunctions(); !status.ok())
    return status;
  return checkErrors("translation to LLVM IR");
}

absl::Status Emission::optimise() {
  const llvm::OptimizationLevel levels[] = {
      llvm::OptimizationLevel::O0, llvm::OptimizationLevel::O1,
      llvm::OptimizationLevel::O2, llvm::OptimizationLevel::O3};
  // As clang sets them.
  llvm::PipelineTuningOptions tuning;
  tuning.LoopInterleaving = level >= 2;
  tuning.LoopVectorization = level >= 2;
  tuning.SLPVectorization = level >= 2;

  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  builder.buildPerModuleDefaultPipeline(levels[level]).run(*module, modules);
  return checkErrors("optimisation");
}

/// Instruction selection ends the process on an intrinsic that the target does
/// not know, such as those of GPUs on a CPU.
absl::Status Emission::checkIntrinsics() const {
  llvm::StringRef own =
      llvm::Triple::getArchTypePrefix(machine.getTargetTriple().getArch());
  for (const llvm::Function &function : *module) {
    if (!function.isTargetIntrinsic() || function.use_empty())
      continue;
    auto [llvmPrefix, name] = function.getName().split('.');
    llvm::StringRef target = name.split('.').first;
    // AMD's newer GPUs have some of the intrinsics of the older.
    if (target == own || (own == "amdgcn" && target == "r600"))
      continue;
    return invalid("code generation for '" + machine.getTargetTriple().str() +
                   "' failed: '" + function.getName() +
                   "' is an intrinsic of another target");
  }
  return absl::OkStatus();
}

absl::Status Emission::generateCode(llvm::raw_pwrite_stream &stream) {
  if (absl::Status status = checkIntrinsics(); !status.ok())
    return status;
  llvm::legacy::PassManager passes;
  passes.add(new llvm::TargetLibraryInfoWrapperPass(
      llvm::TargetLibraryInfoImpl(module->getTargetTriple())));
  // Without an assembler, the call would print that there is none.
  if (!machine.getTarget().hasMCAsmBackend() ||
      machine.addPassesToEmitFile(passes, stream, nullptr,
                                  llvm::CodeGenFileType::ObjectFile))
    return invalid("target: LLVM writes no object files for '" +
                   machine.getTargetTriple().str() + "'");
  passes.run(*module);
  return checkErrors("code generation");
}

absl::StatusOr<std::unique_ptr<CodeGenerator>>
CodeGenerator::create(const CompileRecipe &resolved) {
  absl::StatusOr<std::unique_ptr<TargetMachines>> machines =
      TargetMachines::create(resolved);
  if (!machines.ok())
    return machines.status();
  return std::unique_ptr<CodeGenerator>(
      new CodeGenerator(*std::move(machines), resolved.optimizationLevel));
}

absl::StatusOr<CodeGenerator::Bytes>
CodeGenerator::emit(mlir::ModuleOp module, Output output,
                    StageHook onStage) const {
  auto begin = [&](llvm::StringLiteral stage) {
    if (onStage)
      onStage(stage);
  };
  TargetMachines::Loan machine = machines->borrow();
  Emission emission(*machine, level);
  begin("translation to LLVM IR");
  if (absl::Status status = emission.translate(module); !status.ok())
    return status;
  begin("optimisation");
  if (absl::Status status = emission.optimise(); !status.ok())
    return status;
  begin("code generation");
  Bytes bytes;
  llvm::raw_svector_ostream stream(bytes);
  if (output == Output::Bitcode) {
    emission.writeBitcode(stream);
  } else if (absl::Status status = emission.generateCode(stream);
             !status.ok()) {
    return status;
  }
  return bytes;
}

//===- CodeGeneratorTest.cpp - Tests of CodeGenerator.h -------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/compile/CodeGenerator.h"

#include "test/compile/CompileTestSupport.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"
#include "test/support/TestFiles.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Object/ObjectFile.h"

#include <thread>

using namespace ctxpool;
using namespace ctxpool::detail;
using namespace ctxpool::test;

namespace {

/// A value through memory, which optimisation takes out of it.
constexpr llvm::StringLiteral memoryText = R"(
  llvm.func @f(%a: i32) -> i32 {
    %one = llvm.mlir.constant(1 : i32) : i32
    %slot = llvm.alloca %one x i32 : (i32) -> !llvm.ptr
    llvm.store %a, %slot : i32, !llvm.ptr
    %b = llvm.load %slot : !llvm.ptr -> i32
    llvm.return %b : i32
  }
)";

CompileRecipe recipeFor(llvm::StringRef target) {
  CompileRecipe recipe;
  recipe.target = target.str();
  return recipe;
}

/// A generator and a context to parse in.
class CodeGeneratorTest : public testing::Test {
protected:
  void SetUp() override {
    auto clone = compilingTemplate()->clone();
    ASSERT_THAT(clone, IsOk());
    context = *std::move(clone);
  }

  absl::StatusOr<CodeGenerator::Bytes> emitObject(llvm::StringRef text,
                                                  const CompileRecipe &recipe) {
    auto generator = CodeGenerator::create(recipe);
    if (!generator.ok())
      return generator.status();
    module = parse(*context, text);
    return (*generator)->emitObject(*module);
  }

  /// The module that the emitted bitcode holds.
  std::unique_ptr<llvm::Module> emitIR(llvm::StringRef text,
                                       const CompileRecipe &recipe) {
    auto generator = CodeGenerator::create(recipe);
    EXPECT_THAT(generator, IsOk());
    module = parse(*context, text);
    auto bytes = (*generator)->emitLLVMIR(*module);
    EXPECT_THAT(bytes, IsOk());
    auto read = llvm::parseBitcodeFile(
        llvm::MemoryBufferRef(llvm::StringRef(bytes->data(), bytes->size()),
                              "bitcode"),
        llvmContext);
    EXPECT_TRUE(bool(read)) << llvm::toString(read.takeError());
    return std::move(*read);
  }

  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  llvm::LLVMContext llvmContext;
};

std::unique_ptr<llvm::object::ObjectFile>
readObject(const CodeGenerator::Bytes &bytes) {
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(
      llvm::StringRef(bytes.data(), bytes.size()), "object"));
  EXPECT_TRUE(bool(file)) << llvm::toString(file.takeError());
  return std::move(*file);
}

/// The symbols that the object wants of others.
std::vector<std::string> undefinedSymbols(const CodeGenerator::Bytes &bytes) {
  std::vector<std::string> names;
  auto file = readObject(bytes);
  for (const llvm::object::SymbolRef &symbol : file->symbols())
    if (llvm::cantFail(symbol.getFlags()) &
        llvm::object::SymbolRef::SF_Undefined)
      if (std::string name = llvm::cantFail(symbol.getName()).str();
          !name.empty())
        names.push_back(name);
  return names;
}

TEST_F(CodeGeneratorTest, EmitsObjectsForTheTargetOfTheRecipe) {
  for (auto [target, format] :
       {std::pair("x86_64-unknown-linux-gnu", "elf64-x86-64"),
        std::pair("aarch64-unknown-linux-gnu", "elf64-littleaarch64"),
        std::pair("riscv64-unknown-linux-gnu", "elf64-littleriscv"),
        std::pair("x86_64-pc-windows-msvc", "COFF-x86-64"),
        std::pair("arm64-apple-macosx14.0", "Mach-O arm64"),
        std::pair("wasm32-unknown-unknown", "WASM")}) {
    SCOPED_TRACE(target);
    auto bytes = emitObject(addText, recipeFor(target));
    ASSERT_THAT(bytes, IsOk());

    EXPECT_EQ(readObject(*bytes)->getFileFormatName(), format);
  }
}

TEST_F(CodeGeneratorTest, EmitsBitcodeForTheTargetOfTheRecipe) {
  auto read = emitIR(addText, recipeFor("aarch64-unknown-linux-gnu"));

  EXPECT_EQ(read->getTargetTriple().str(), "aarch64-unknown-linux-gnu");
  EXPECT_THAT(read->getDataLayoutStr(), testing::HasSubstr("i128:128"));
  EXPECT_NE(read->getFunction("add"), nullptr);
}

TEST_F(CodeGeneratorTest, OptimisesAsTheLevelSays) {
  for (unsigned level = 0; level <= 3; ++level) {
    SCOPED_TRACE(level);
    CompileRecipe recipe = hostRecipe();
    recipe.optimizationLevel = level;
    auto read = emitIR(memoryText, recipe);

    bool hasMemory = llvm::any_of(llvm::instructions(*read->getFunction("f")),
                                  [](const llvm::Instruction &i) {
                                    return llvm::isa<llvm::AllocaInst>(i);
                                  });
    EXPECT_EQ(hasMemory, level == 0);
    EXPECT_THAT(emitObject(memoryText, recipe), IsOk());
  }
}

TEST_F(CodeGeneratorTest, CompilesForTheProcessorOfTheRecipeOrTheFunction) {
  constexpr llvm::StringLiteral fma = R"(
    llvm.func @f(%a: f32) -> f32 ATTRIBUTES {
      %b = llvm.intr.fma(%a, %a, %a) : (f32, f32, f32) -> f32
      llvm.return %b : f32
    }
  )";
  auto [before, after] = fma.split("ATTRIBUTES");
  std::string plain = (before + after).str();
  std::string marked =
      (before +
       R"(attributes {target_features = #llvm.target_features<["+fma"]>})" +
       after)
          .str();
  CompileRecipe generic = recipeFor("x86_64-unknown-linux-gnu");
  CompileRecipe haswell = generic, withFeature = generic;
  haswell.cpu = "haswell";
  withFeature.features = "+fma,-sse4a";
  auto wanted = [&](llvm::StringRef text, const CompileRecipe &recipe) {
    auto bytes = emitObject(text, recipe);
    EXPECT_THAT(bytes, IsOk());
    return undefinedSymbols(*bytes);
  };

  EXPECT_THAT(wanted(plain, generic), testing::ElementsAre("fmaf"));
  EXPECT_THAT(wanted(plain, haswell), testing::IsEmpty());
  EXPECT_THAT(wanted(plain, withFeature), testing::IsEmpty());
  EXPECT_THAT(wanted(marked, generic), testing::IsEmpty());
}

TEST_F(CodeGeneratorTest, NamesTheFieldThatLLVMCannotDo) {
  auto create = [](auto change) {
    CompileRecipe recipe = recipeFor("x86_64-unknown-linux-gnu");
    change(recipe);
    return CodeGenerator::create(recipe);
  };
  using absl::StatusCode;
  const auto invalid = StatusCode::kInvalidArgument;

  testing::internal::CaptureStderr();
  EXPECT_THAT(create([](auto &r) { r.target = "pdp11-dec-unix"; }),
              StatusIs(invalid, "target: this LLVM generates no code for "
                                "'pdp11-dec-unix'"));
  EXPECT_THAT(create([](auto &r) { r.target = ""; }),
              StatusIs(invalid, "not resolved"));
  EXPECT_THAT(create([](auto &r) { r.cpu = "native"; }),
              StatusIs(invalid, "not resolved"));
  EXPECT_THAT(
      create([](auto &r) { r.cpu = "z80"; }),
      StatusIs(invalid, "cpu: 'x86_64-unknown-linux-gnu' has no 'z80'"));
  EXPECT_THAT(create([](auto &r) { r.cpu = "i386"; }),
              StatusIs(invalid,
                       "cpu: 'i386' with the features '' does not have "
                       "+64bit,+64bit-mode, which "
                       "'x86_64-unknown-linux-gnu' needs"));
  EXPECT_THAT(create([](auto &r) { r.features = "+warp"; }),
              StatusIs(invalid, "features: 'x86_64-unknown-linux-gnu' has no "
                                "'warp'"));
  EXPECT_THAT(create([](auto &r) { r.features = "avx2"; }),
              StatusIs(invalid, "features: 'avx2' lacks its + or -"));
  EXPECT_THAT(create([](auto &r) { r.codeModel = "huge"; }),
              StatusIs(invalid, "codeModel: 'huge' is none of"));
  EXPECT_THAT(create([](auto &r) { r.optimizationLevel = 4; }),
              StatusIs(invalid, "optimizationLevel: 4"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(CodeGeneratorTest, RefusesProcessorsThatEndTheProcess) {
  struct {
    llvm::StringLiteral target, cpu, features, expected;
  } const cases[] = {
      {"x86_64-unknown-linux-gnu", "", "-64bit-mode", "+64bit,+64bit-mode"},
      {"riscv64-unknown-linux-gnu", "rocket-rv32", "", "+64bit,-32bit"},
      {"riscv64-unknown-linux-gnu", "", "+32bit", "+64bit,-32bit"},
      {"riscv32-unknown-linux-gnu", "rocket-rv64", "", "+32bit,-64bit"},
      {"riscv64-unknown-linux-gnu", "", "+xqci", "only supported for 'rv32'"},
      {"loongarch64-unknown-linux-gnu", "generic-la32", "", "+64bit,-32bit"},
      {"loongarch32-unknown-linux-gnu", "generic-la64", "", "+32bit,-64bit"},
      {"mips64-unknown-linux-gnuabi64", "mips2", "", "+gp64"},
      {"powerpc64le-unknown-linux-gnu", "e500", "", "-spe"},
  };
  for (const auto &[target, cpu, features, expected] : cases) {
    SCOPED_TRACE((target + " " + cpu + " " + features).str());
    CompileRecipe recipe = recipeFor(target);
    EXPECT_THAT(emitObject(addText, recipe), IsOk());
    recipe.cpu = cpu;
    recipe.features = features;
    EXPECT_THAT(CodeGenerator::create(recipe),
                StatusIs(absl::StatusCode::kInvalidArgument, expected.str()));
  }
}

TEST_F(CodeGeneratorTest, RefusesFunctionsThatAskForWhatLLVMDoesNotHave) {
  const CompileRecipe recipe = recipeFor("x86_64-unknown-linux-gnu");
  auto emit = [&](llvm::StringRef attributes) {
    std::string text =
        ("llvm.func @plain() { llvm.return }\nllvm.func @f() attributes {" +
         attributes + "} { llvm.return }")
            .str();
    return emitObject(text, recipe);
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;

  testing::internal::CaptureStderr();
  EXPECT_THAT(emit(R"(target_cpu = "z80")"),
              StatusIs(invalid, "function 'f': cpu: "
                                "'x86_64-unknown-linux-gnu' has no 'z80'"));
  EXPECT_THAT(emit(R"(target_cpu = "i386")"),
              StatusIs(invalid, "function 'f': cpu: 'i386' with the features"));
  EXPECT_THAT(emit(R"(tune_cpu = "z80")"),
              StatusIs(invalid, "function 'f': tuning: "
                                "'x86_64-unknown-linux-gnu' has no 'z80'"));
  EXPECT_THAT(emit(R"(target_features = #llvm.target_features<["+warp"]>)"),
              StatusIs(invalid, "function 'f': features: "
                                "'x86_64-unknown-linux-gnu' has no 'warp'"));
  EXPECT_THAT(emit(R"(garbageCollector = "bin")"),
              StatusIs(invalid, "function 'f': LLVM has no garbage collector "
                                "'bin'"));
  for (llvm::StringRef known :
       {R"(target_cpu = "haswell")", R"(tune_cpu = "i386")",
        R"(target_features = #llvm.target_features<["+avx2", "-sse4a"]>)",
        R"(garbageCollector = "shadow-stack")"})
    EXPECT_THAT(emit(known), IsOk()) << known.str();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(CodeGeneratorTest, RefusesCodeModelsThatTheTargetDoesNotHave) {
  for (llvm::StringRef target : {"x86_64-unknown-linux-gnu",
                                 "aarch64-unknown-linux-gnu",
                                 "arm64-apple-macosx14.0",
                                 "riscv64-unknown-linux-gnu",
                                 "powerpc64le-unknown-linux-gnu",
                                 "s390x-unknown-linux-gnu",
                                 "loongarch64-unknown-linux-gnu",
                                 "sparc64-unknown-linux-gnu",
                                 "mips64-unknown-linux-gnu",
                                 "wasm32-unknown-unknown",
                                 "nvptx64-nvidia-cuda",
                                 "amdgcn-amd-amdhsa",
                                 "xcore-unknown-unknown",
                                 "armv7-unknown-linux-gnueabihf",
                                 "hexagon-unknown-linux-musl",
                                 "avr-unknown-unknown",
                                 "bpf-unknown-none",
                                 "ve-unknown-linux-gnu",
                                 "msp430-unknown-unknown",
                                 "m68k-unknown-linux-gnu",
                                 "lanai-unknown-unknown",
                                 "spirv64-unknown-unknown",
                                 "xtensa-unknown-unknown"})
    for (llvm::StringRef model :
         {"tiny", "small", "kernel", "medium", "large"}) {
      SCOPED_TRACE((target + " " + model).str());
      CompileRecipe recipe = recipeFor(target);
      recipe.codeModel = model.str();

      auto generator = CodeGenerator::create(recipe);

      if (!generator.ok()) {
        EXPECT_THAT(generator, StatusIs(absl::StatusCode::kInvalidArgument,
                                        "codeModel: "));
        EXPECT_NE(model, "small");
      }
    }
}

TEST_F(CodeGeneratorTest, NamesTheFirstOperationOutsideTheLLVMDialect) {
  EXPECT_THAT(emitObject("func.func @f() { return }", hostRecipe()),
              StatusIs(absl::StatusCode::kInvalidArgument, "func.func"));
}

TEST_F(CodeGeneratorTest, WantsTheTranslationsInTheContext) {
  mlir::DialectRegistry registry;
  registry.insert<mlir::LLVM::LLVMDialect>();
  mlir::MLIRContext plain(registry);
  auto untranslated = parse(plain, addText);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(generator, CodeGenerator::create(hostRecipe()));

  EXPECT_THAT(generator->emitObject(*untranslated),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "registerAllToLLVMIRTranslations"));
  EXPECT_THAT(generator->emitLLVMIR(*untranslated),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "registerAllToLLVMIRTranslations"));
}

TEST_F(CodeGeneratorTest, RefusesAModuleThatWasLoweredForAnotherTarget) {
  auto emit = [&](llvm::StringRef attributes) {
    return emitObject(
        ("module attributes {" + attributes + "} {" + addText + "}").str(),
        recipeFor("x86_64-unknown-linux-gnu"));
  };
  using absl::StatusCode;

  EXPECT_THAT(emit(R"(llvm.target_triple = "aarch64-unknown-linux-gnu")"),
              StatusIs(StatusCode::kInvalidArgument,
                       "the module is for 'aarch64-unknown-linux-gnu'"));
  EXPECT_THAT(emit(R"(llvm.data_layout = "e-p:32:32")"),
              StatusIs(StatusCode::kInvalidArgument,
                       "the module has the data layout 'e-p:32:32'"));
  // The same machine, and its layout as LLVM 15 wrote it.
  EXPECT_THAT(emit(R"(llvm.target_triple = "x86_64-pc-linux-gnu")"), IsOk());
  EXPECT_THAT(
      emit(
          R"(llvm.data_layout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-f80:128-n8:16:32:64-S128")"),
      IsOk());
}

TEST_F(CodeGeneratorTest, RefusesIntrinsicsOfAnotherTarget) {
  constexpr llvm::StringLiteral text = R"(
    llvm.func @f() -> i32 {
      %x = nvvm.read.ptx.sreg.tid.x : i32
      llvm.return %x : i32
    }
  )";

  EXPECT_THAT(emitObject(text, hostRecipe()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "'llvm.nvvm.read.ptx.sreg.tid.x' is an intrinsic of "
                       "another target"));
}

TEST_F(CodeGeneratorTest, RefusesTargetsWithoutObjectFiles) {
  CompileRecipe recipe = recipeFor("nvptx64-nvidia-cuda");

  EXPECT_THAT(
      emitObject(addText, recipe),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "LLVM writes no object files for 'nvptx64-nvidia-cuda'"));
  EXPECT_NE(emitIR(addText, recipe)->getFunction("add"), nullptr);
}

TEST_F(CodeGeneratorTest, AnswersHostCodeOfGpuModulesWithAnError) {
  std::string text = readFile(sourceDir() / "bench/modules/gpu_kernel.mlir");
  CompileRecipe recipe = hostRecipe();
  recipe.pipeline = pipelineOf(text);

  EXPECT_THAT(compileObject(text, recipe),
              StatusIs(absl::StatusCode::kInvalidArgument, "gpu.launch_func"));
}

TEST_F(CodeGeneratorTest, ErrorsOfLLVMAreInTheStatusAndNowhereElse) {
  int handled = 0;
  mlir::ScopedDiagnosticHandler handler(context.get(), [&](mlir::Diagnostic &) {
    ++handled;
    return mlir::success();
  });

  testing::internal::CaptureStderr();
  EXPECT_THAT(
      emitObject(R"(
                llvm.func @f() {
                  llvm.inline_asm has_side_effects "fly to the moon", "" : () -> ()
                  llvm.return
                }
              )",
                 hostRecipe()),
      StatusIs(absl::StatusCode::kInvalidArgument, "code generation failed: "));
  EXPECT_THAT(emitObject("func.func @f() { return }", hostRecipe()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "translation to LLVM IR failed: "));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(handled, 0);
}

TEST_F(CodeGeneratorTest, WhatLLVMsVerifierSaysIsInTheStatus) {
  // MLIR's verifier does not look at what a parameter's attribute may stand on.
  testing::internal::CaptureStderr();
  EXPECT_THAT(emitObject(R"(
                llvm.func @f(%a: !llvm.ptr {llvm.byval = i32, llvm.inreg, llvm.sret = i32}) {
                  llvm.return
                }
              )",
                         hostRecipe()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "LLVM's verifier refuses the translated module: "));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(CodeGeneratorTest, TellsTheStagesAsTheyBegin) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(generator, CodeGenerator::create(hostRecipe()));
  std::vector<std::string> stages;
  auto record = [&](llvm::StringLiteral stage) {
    stages.push_back(stage.str());
  };

  module = parse(*context, addText);
  EXPECT_THAT(generator->emitObject(*module, record), IsOk());
  EXPECT_THAT(stages, testing::ElementsAre("translation to LLVM IR",
                                           "optimisation", "code generation"));
}

TEST_F(CodeGeneratorTest, ReusedTargetMachinesGiveTheSameBytes) {
  CTXPOOL_ASSERT_OK_AND_ASSIGN(generator, CodeGenerator::create(hostRecipe()));
  auto emit = [&](llvm::StringRef text) {
    module = parse(*context, text);
    auto bytes = generator->emitObject(*module);
    EXPECT_THAT(bytes, IsOk());
    return *bytes;
  };
  CodeGenerator::Bytes first = emit(addText);
  emit(memoryText);

  EXPECT_EQ(emit(addText), first);
  EXPECT_EQ(*emitObject(addText, hostRecipe()), first);
}

// In a process of its own, as ctest runs it, these are its first compiles.
TEST_F(CodeGeneratorTest, ThirtyTwoThreadsMayMakeTheirFirstCompileAtOnce) {
  constexpr unsigned count = 32;
  auto contexts = compilingTemplate();
  std::vector<absl::StatusOr<CodeGenerator::Bytes>> results(
      count, absl::InternalError("not run"));
  PhaseGate gate;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      auto own = contexts->clone();
      ASSERT_THAT(own, IsOk());
      auto parsed = parse(**own, addText);
      gate.await(1);
      auto generator = CodeGenerator::create(hostRecipe());
      results[i] = generator.ok() ? (*generator)->emitObject(*parsed)
                                  : generator.status();
    });
  gate.open(1);
  for (std::thread &thread : threads)
    thread.join();

  for (const auto &result : results) {
    ASSERT_THAT(result, IsOk());
    EXPECT_EQ(*result, *results.front());
  }
}

TEST_F(CodeGeneratorTest, ThreadsMayShareAGenerator) {
  constexpr unsigned count = 8, rounds = 10;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(generator, CodeGenerator::create(hostRecipe()));
  module = parse(*context, addText);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(expected, generator->emitObject(*module));
  PhaseGate gate;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i)
    threads.emplace_back([&] {
      auto own = compilingTemplate()->clone();
      ASSERT_THAT(own, IsOk());
      gate.await(1);
      for (unsigned round = 0; round < rounds; ++round) {
        auto parsed = parse(**own, addText);
        auto bytes = generator->emitObject(*parsed);
        ASSERT_THAT(bytes, IsOk());
        EXPECT_EQ(*bytes, expected);
      }
    });
  gate.open(1);
  for (std::thread &thread : threads)
    thread.join();
}

} // namespace

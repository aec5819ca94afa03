//===- ExecutableTest.cpp - Tests of Executable.h -------------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/Executable.h"

#include "test/compile/CompileTestSupport.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"

#include "llvm/BinaryFormat/ELF.h"

#include <fstream>
#include <sstream>
#include <thread>
#include <unwind.h>

using namespace ctxpool;
using namespace ctxpool::test;

namespace {

/// `count` counts its own calls.
constexpr llvm::StringLiteral counterText = R"(
  llvm.mlir.global internal @counter(0 : i32) : i32
  llvm.func @count() -> i32 {
    %one = llvm.mlir.constant(1 : i32) : i32
    %address = llvm.mlir.addressof @counter : !llvm.ptr
    %old = llvm.load %address : !llvm.ptr -> i32
    %new = llvm.add %old, %one : i32
    llvm.store %new, %address : i32, !llvm.ptr
    llvm.return %new : i32
  }
)";

Artifact objectOf(llvm::StringRef text) {
  auto object = compileObject(text, hostRecipe());
  EXPECT_THAT(object, IsOk());
  return object.ok() ? *object : Artifact();
}

/// Whether `address` lies in memory whose code may run.
bool isExecutable(const void *address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::string access;
    std::istringstream(line) >> std::hex >> begin >> dash >> end >> access;
    auto wanted = reinterpret_cast<uintptr_t>(address);
    if (begin <= wanted && wanted < end)
      return access.find('x') != std::string::npos;
  }
  return false;
}

TEST(ExecutableTest, LoadsAnObjectAndFindsItsFunctions) {
  Artifact artifact = objectOf(addText);

  CTXPOOL_ASSERT_OK_AND_ASSIGN(executable, Executable::load(artifact));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(add, executable->lookup("add"));

  EXPECT_EQ((callAddress<int>(add, 1, 2)), 3);
}

TEST(ExecutableTest, TheArtifactIsNotNeededAfterwards) {
  std::string bytes = objectOf(addText).getBytes().str();
  auto artifact = std::make_unique<Artifact>(Artifact::copyOf("object", bytes));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(executable, Executable::load(*artifact));
  artifact.reset();

  EXPECT_EQ(call<int>(*executable, "add", 40, 2), 42);
}

TEST(ExecutableTest, LookupWantsTheExactNameOfWhatTheObjectDefines) {
  auto executable = loadText(R"(
    llvm.mlir.global external @answer(42 : i32) : i32
    llvm.func @puts(!llvm.ptr) -> i32
    llvm.func @f(%s: !llvm.ptr) -> i32 attributes {llvm.emit_c_interface} {
      %r = llvm.call @puts(%s) : (!llvm.ptr) -> i32
      llvm.return %r : i32
    }
    llvm.func @_mlir_ciface_f(%s: !llvm.ptr) -> i32 {
      %r = llvm.call @f(%s) : (!llvm.ptr) -> i32
      llvm.return %r : i32
    }
  )");
  ASSERT_NE(executable, nullptr);

  CTXPOOL_ASSERT_OK_AND_ASSIGN(answer, executable->lookup("answer"));
  EXPECT_EQ(*static_cast<int *>(answer), 42);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(bare, executable->lookup("f"));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(forC, executable->lookup("_mlir_ciface_f"));
  EXPECT_NE(bare, forC);
  for (llvm::StringRef absent : {"g", "F", "puts", "_mlir_ciface_puts", ""})
    EXPECT_THAT(
        executable->lookup(absent),
        StatusIs(absl::StatusCode::kNotFound,
                 "the object defines no symbol '" + absent.str() + "'"));
}

TEST(ExecutableTest, RefusesOtherKindsOfArtifacts) {
  Artifact object = objectOf(addText);

  EXPECT_THAT(Executable::load(Artifact::copyOf("llvmir", object.getBytes())),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "cannot load an artifact of kind 'llvmir', only of kind "
                       "'object'"));
  EXPECT_THAT(Executable::load(Artifact()),
              StatusIs(absl::StatusCode::kInvalidArgument, "of kind ''"));
}

TEST(ExecutableTest, RefusesObjectsForOtherMachines) {
  for (auto [target, format] :
       {std::pair("riscv64-unknown-linux-gnu", "elf64-littleriscv"),
        std::pair("armv7-unknown-linux-gnueabihf", "elf32-littlearm"),
        std::pair("x86_64-pc-windows-msvc", "COFF-x86-64"),
        std::pair("x86_64-apple-macosx14.0", "Mach-O 64-bit x86-64"),
        std::pair("wasm32-unknown-unknown", "WASM")}) {
    CompileRecipe recipe;
    recipe.target = target;
    CTXPOOL_ASSERT_OK_AND_ASSIGN(object, compileObject(addText, recipe));

    EXPECT_THAT(Executable::load(object),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         std::string("the object is for '") + format +
                             "', and this process is '"));
  }
}

TEST(ExecutableTest, RefusesBytesThatAreNoObject) {
  using absl::StatusCode;
  EXPECT_THAT(Executable::load(Artifact::copyOf("object", "")),
              StatusIs(StatusCode::kInvalidArgument, "cannot read the object"));
  EXPECT_THAT(Executable::load(Artifact::copyOf("object", "not an object")),
              StatusIs(StatusCode::kInvalidArgument, "cannot read the object"));

  std::string linked = objectOf(addText).getBytes().str();
  linked[offsetof(llvm::ELF::Elf64_Ehdr, e_type)] = llvm::ELF::ET_DYN;
  EXPECT_THAT(Executable::load(Artifact::copyOf("object", linked)),
              StatusIs(StatusCode::kInvalidArgument, "linked already"));
}

TEST(ExecutableTest, RefusesEveryTruncatedObject) {
  std::string bytes = objectOf(addText).getBytes().str();

  testing::internal::CaptureStderr();
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(
        Executable::load(Artifact::copyOf("object", bytes.substr(0, size)))
            .ok())
        << size << " bytes of " << bytes.size();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(ExecutableTest, FindsSymbolsOfTheProcess) {
  auto executable = loadText(R"(
    llvm.func @strlen(!llvm.ptr) -> i64
    llvm.func @length(%s: !llvm.ptr) -> i64 {
      %n = llvm.call @strlen(%s) : (!llvm.ptr) -> i64
      llvm.return %n : i64
    }
  )");
  ASSERT_NE(executable, nullptr);

  EXPECT_EQ(call<int64_t>(*executable, "length", "seven..."), 8);
}

TEST(ExecutableTest, LoadingTheRunnerUtilitiesLeavesTheKeysOfCompilesAlone) {
  CompileRecipe recipe;
  recipe.pipeline = "builtin.module()";
  CTXPOOL_ASSERT_OK_AND_ASSIGN(before, makeCacheKey(Fingerprint(), recipe));
  auto executable = loadText(R"(
    llvm.func @rtclock() -> f64
    llvm.func @clock() -> f64 {
      %t = llvm.call @rtclock() : () -> f64
      llvm.return %t : f64
    }
  )");
  ASSERT_NE(executable, nullptr);

  CTXPOOL_ASSERT_OK_AND_ASSIGN(after, makeCacheKey(Fingerprint(), recipe));
  EXPECT_EQ(before, after);
}

TEST(ExecutableTest, FindsSymbolsOfTheRunnerUtilities) {
  // One of mlir_c_runner_utils, one of mlir_runner_utils, and one of a library
  // that they bring: the conversion to bfloat16.
  auto executable = loadText(R"(
    llvm.func @rtclock() -> f64
    llvm.func @_mlir_ciface_nanoTime() -> i64
    llvm.func @__truncsfbf2(f32) -> bf16
    llvm.func @clock() -> f64 {
      %t = llvm.call @rtclock() : () -> f64
      llvm.return %t : f64
    }
    llvm.func @nanoseconds() -> i64 {
      %t = llvm.call @_mlir_ciface_nanoTime() : () -> i64
      llvm.return %t : i64
    }
    llvm.func @bits(%x: f32) -> i16 {
      %b = llvm.fptrunc %x : f32 to bf16
      %i = llvm.bitcast %b : bf16 to i16
      llvm.return %i : i16
    }
  )");
  ASSERT_NE(executable, nullptr);

  EXPECT_GT(call<double>(*executable, "clock"), 0.0);
  EXPECT_GT(call<int64_t>(*executable, "nanoseconds"), 0);
  EXPECT_EQ(call<uint16_t>(*executable, "bits", 1.0f), 0x3F80);
}

constexpr llvm::StringLiteral answerText = R"(
  llvm.func @contextPoolTestAnswer() -> i32
  llvm.func @f() -> i32 {
    %a = llvm.call @contextPoolTestAnswer() : () -> i32
    llvm.return %a : i32
  }
)";

TEST(ExecutableTest, FindsSymbolsOfTheLibrariesThatTheOptionsName) {
  Artifact object = objectOf(answerText);
  ExecutableOptions options;
  options.libraries = {CTXPOOL_TEST_RUNTIME_LIBRARY};

  EXPECT_THAT(Executable::load(object),
              StatusIs(absl::StatusCode::kNotFound,
                       "nobody defines 'contextPoolTestAnswer'"));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(executable, Executable::load(object, options));
  EXPECT_EQ(call<int>(*executable, "f"), 42);
}

TEST(ExecutableTest, NamesLibrariesThatAreNotThere) {
  ExecutableOptions options;
  options.libraries = {"libnowhere_to_be_found.so"};

  EXPECT_THAT(Executable::load(objectOf(addText), options),
              StatusIs(absl::StatusCode::kNotFound,
                       "cannot load the library 'libnowhere_to_be_found.so'"));
}

TEST(ExecutableTest, NamesAllMissingSymbolsAndPrintsNothing) {
  Artifact object = objectOf(R"(
    llvm.func @nobodyHasThis()
    llvm.func @norThat()
    llvm.func @f() {
      llvm.call @norThat() : () -> ()
      llvm.call @nobodyHasThis() : () -> ()
      llvm.return
    }
    llvm.func @g() {
      llvm.return
    }
  )");

  testing::internal::CaptureStderr();
  EXPECT_THAT(Executable::load(object),
              StatusIs(absl::StatusCode::kNotFound,
                       "nobody defines 'nobodyHasThis', 'norThat'"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(ExecutableTest, RunsConstructorsByPriorityAndDestructorsAtTheEnd) {
  // Constructors append their digit to `order`; the destructors append theirs to
  // what `log` points to, if anything. Volatile, or LLVM's optimiser runs the
  // constructors itself.
  auto executable = loadText(R"(
    llvm.mlir.global external @order(0 : i64) : i64
    llvm.mlir.global external @log() : !llvm.ptr {
      %null = llvm.mlir.zero : !llvm.ptr
      llvm.return %null : !llvm.ptr
    }
    llvm.func internal @append(%to: !llvm.ptr, %digit: i64) {
      %ten = llvm.mlir.constant(10 : i64) : i64
      %old = llvm.load %to : !llvm.ptr -> i64
      %moved = llvm.mul %old, %ten : i64
      %new = llvm.add %moved, %digit : i64
      llvm.store volatile %new, %to : i64, !llvm.ptr
      llvm.return
    }
    llvm.func internal @first() {
      %to = llvm.mlir.addressof @order : !llvm.ptr
      %digit = llvm.mlir.constant(1 : i64) : i64
      llvm.call @append(%to, %digit) : (!llvm.ptr, i64) -> ()
      llvm.return
    }
    llvm.func internal @second() {
      %to = llvm.mlir.addressof @order : !llvm.ptr
      %digit = llvm.mlir.constant(2 : i64) : i64
      llvm.call @append(%to, %digit) : (!llvm.ptr, i64) -> ()
      llvm.return
    }
    llvm.func internal @third() {
      %to = llvm.mlir.addressof @order : !llvm.ptr
      %digit = llvm.mlir.constant(3 : i64) : i64
      llvm.call @append(%to, %digit) : (!llvm.ptr, i64) -> ()
      llvm.return
    }
    llvm.func internal @early() {
      %log = llvm.mlir.addressof @log : !llvm.ptr
      %to = llvm.load %log : !llvm.ptr -> !llvm.ptr
      %digit = llvm.mlir.constant(5 : i64) : i64
      llvm.call @append(%to, %digit) : (!llvm.ptr, i64) -> ()
      llvm.return
    }
    llvm.func internal @late() {
      %log = llvm.mlir.addressof @log : !llvm.ptr
      %to = llvm.load %log : !llvm.ptr -> !llvm.ptr
      %digit = llvm.mlir.constant(6 : i64) : i64
      llvm.call @append(%to, %digit) : (!llvm.ptr, i64) -> ()
      llvm.return
    }
    llvm.mlir.global_ctors ctors = [@third, @first, @second],
        priorities = [65535 : i32, 7 : i32, 101 : i32], data = [#llvm.zero, #llvm.zero, #llvm.zero]
    llvm.mlir.global_dtors dtors = [@late, @early],
        priorities = [7 : i32, 65535 : i32], data = [#llvm.zero, #llvm.zero]
  )");
  ASSERT_NE(executable, nullptr);
  int64_t log = 0;
  CTXPOOL_ASSERT_OK_AND_ASSIGN(order, executable->lookup("order"));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(logPointer, executable->lookup("log"));
  EXPECT_EQ(*static_cast<int64_t *>(order), 123);
  *static_cast<int64_t **>(logPointer) = &log;

  std::shared_ptr<Executable> otherOwner = executable;
  executable.reset();
  EXPECT_EQ(log, 0);
  otherOwner.reset();

  EXPECT_EQ(log, 56);
}

TEST(ExecutableTest, EveryLoadHasItsOwnGlobals) {
  Artifact object = objectOf(counterText);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(one, Executable::load(object));
  CTXPOOL_ASSERT_OK_AND_ASSIGN(other, Executable::load(object));

  EXPECT_EQ(call<int>(*one, "count"), 1);
  EXPECT_EQ(call<int>(*one, "count"), 2);
  EXPECT_EQ(call<int>(*other, "count"), 1);
}

TEST(ExecutableTest, MemoryGoesWithTheLastOwner) {
  auto executable = loadText(addText);
  ASSERT_NE(executable, nullptr);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(add, executable->lookup("add"));
  std::shared_ptr<Executable> otherOwner = executable;

  executable.reset();
  EXPECT_TRUE(isExecutable(add));
  EXPECT_EQ((callAddress<int>(add, 1, 2)), 3);
  otherOwner.reset();

  EXPECT_FALSE(isExecutable(add));
}

TEST(ExecutableTest, DoesNotProvideThreadLocalVariables) {
  EXPECT_THAT(Executable::load(objectOf(R"(
                llvm.mlir.global external thread_local @x(1 : i32) : i32
                llvm.func @f() -> !llvm.ptr {
                  %x = llvm.mlir.addressof @x : !llvm.ptr
                  llvm.return %x : !llvm.ptr
                }
              )")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "thread-local variables"));
}

/// Looks for a function among those that are being called.
struct StackWalk {
  void *function = nullptr;
  bool foundCaller = false;
};

_Unwind_Reason_Code visitFrame(_Unwind_Context *frame, void *data) {
  auto &walk = *static_cast<StackWalk *>(data);
  walk.foundCaller |= _Unwind_FindEnclosingFunction(reinterpret_cast<void *>(
                          _Unwind_GetIP(frame))) == walk.function;
  return _URC_NO_REASON;
}

void walkStack(StackWalk *walk) { _Unwind_Backtrace(visitFrame, walk); }

__attribute__((noinline)) void callThrough(void *address, StackWalk &walk) {
  walk.function = _Unwind_FindEnclosingFunction(__builtin_return_address(0));
  callAddress<void>(address, &walkStack, &walk);
}

TEST(ExecutableTest, BacktracesGetThroughTheCode) {
  auto executable = loadText(R"(
    llvm.func @call(%f: !llvm.ptr, %x: !llvm.ptr) {
      llvm.call %f(%x) : !llvm.ptr, (!llvm.ptr) -> ()
      llvm.call %f(%x) : !llvm.ptr, (!llvm.ptr) -> ()
      llvm.return
    }
  )");
  ASSERT_NE(executable, nullptr);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(function, executable->lookup("call"));
  StackWalk walk;

  callThrough(function, walk);

  ASSERT_NE(walk.function, nullptr);
  EXPECT_TRUE(walk.foundCaller);
}

TEST(ExecutableTest, ThreadsMayLoadLookUpAndLetGoAtOnce) {
  constexpr unsigned count = 16, rounds = 20;
  Artifact object = objectOf(counterText);
  CTXPOOL_ASSERT_OK_AND_ASSIGN(shared, Executable::load(objectOf(addText)));
  PhaseGate gate;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i)
    threads.emplace_back([&, own = shared]() mutable {
      gate.await(1);
      for (unsigned round = 0; round < rounds; ++round) {
        auto executable = Executable::load(object);
        ASSERT_THAT(executable, IsOk());
        EXPECT_EQ(call<int>(**executable, "count"), 1);
        EXPECT_EQ(call<int>(*own, "add", 1, 2), 3);
      }
      own.reset();
    });
  shared.reset();
  gate.open(1);
  for (std::thread &thread : threads)
    thread.join();
}

} // namespace

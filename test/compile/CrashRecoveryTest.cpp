//===- CrashRecoveryTest.cpp - Crashes as values, rule by rule ------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/compile/CrashRecovery.h"

#include "context_pool/CompileService.h"
#include "context_pool/ContextPool.h"
#include "context_pool/ModuleTransfer.h"
#include "context_pool/support/Thread.h"
#include "test/support/ForkedChild.h"
#include "test/support/PhaseGate.h"
#include "test/support/StatusMatchers.h"

#include "mlir/Bytecode/BytecodeImplementation.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/PrettyStackTrace.h"

#include <array>
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::test;
using detail::CrashHandlers;
using detail::Recovery;
using detail::RecoveryBarrier;
using detail::runProtected;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

constexpr std::array<int, 6> recovered = {SIGSEGV, SIGBUS,  SIGILL,
                                          SIGFPE,  SIGTRAP, SIGABRT};

CrashHandlers install(bool fatalErrors = true) {
  auto handlers = CrashHandlers::install(fatalErrors);
  EXPECT_THAT(handlers, IsOk());
  return *std::move(handlers);
}

/// What ended `body`; empty where it returned.
std::string crashOf(llvm::function_ref<void()> body,
                    Recovery recovery = Recovery::Everything) {
  auto crash = runProtected(recovery, body);
  EXPECT_THAT(crash, IsOk());
  return crash->value_or("");
}

__attribute__((no_sanitize("undefined", "address"))) void writeToNull() {
  *const_cast<volatile int *>(static_cast<int *>(nullptr)) = 1;
}

__attribute__((noinline)) int overflowStack(volatile int *outer) {
  if (*outer < 0)
    return 0;
  volatile int frame[256] = {};
  frame[0] = *outer + 1;
  return overflowStack(frame) + frame[0];
}

void overflowStack() {
  volatile int bottom = 0;
  overflowStack(&bottom);
}

struct sigaction actionOf(int signal) {
  struct sigaction action = {};
  EXPECT_EQ(sigaction(signal, nullptr, &action), 0);
  return action;
}

bool isSame(const struct sigaction &lhs, const struct sigaction &rhs) {
  // The C library sets one that is its own.
  constexpr int restorer = 0x04000000;
  if (lhs.sa_sigaction != rhs.sa_sigaction ||
      (lhs.sa_flags | restorer) != (rhs.sa_flags | restorer))
    return false;
  // Without a handler the mask means nothing, and ThreadSanitizer sets all of it.
  if (lhs.sa_handler == SIG_DFL || lhs.sa_handler == SIG_IGN)
    return true;
  for (int signal = 1; signal < NSIG; ++signal)
    if (sigismember(&lhs.sa_mask, signal) != sigismember(&rhs.sa_mask, signal))
      return false;
  return true;
}

/// A handler of the host's, for a scope.
class HostHandler {
public:
  HostHandler(int signal, void (*handler)(int), int flags = 0)
      : signal(signal) {
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    EXPECT_EQ(sigaction(signal, &action, &before), 0);
  }
  ~HostHandler() { sigaction(signal, &before, nullptr); }
  struct sigaction before;

private:
  int signal;
};

//===----------------------------------------------------------------------===//
// What is recovered from
//===----------------------------------------------------------------------===//

TEST(CrashRecoveryTest, CodeThatReturnsDidNotCrash) {
  CrashHandlers handlers = install();
  bool ran = false;
  EXPECT_EQ(crashOf([&] { ran = true; }), "");
  EXPECT_TRUE(ran);
}

TEST(CrashRecoveryTest, EachSignalIsNamed) {
  CrashHandlers handlers = install();
  EXPECT_EQ(crashOf(writeToNull), "signal 11 (Segmentation fault)");
  EXPECT_EQ(crashOf([] { raise(SIGBUS); }), "signal 7 (Bus error)");
  EXPECT_EQ(crashOf([] { raise(SIGILL); }), "signal 4 (Illegal instruction)");
  EXPECT_EQ(crashOf([] { raise(SIGFPE); }), "signal 8 (Arithmetic exception)");
  EXPECT_EQ(crashOf([] { raise(SIGTRAP); }), "signal 5 (Trap)");
  EXPECT_EQ(crashOf([] { abort(); }), "signal 6 (Aborted)");
}

TEST(CrashRecoveryTest, AnOverflowOfTheStackIsToldFromOtherFaults) {
  CrashHandlers handlers = install();
  CTXPOOL_ASSERT_OK_AND_ASSIGN(
      thread, Thread::start(Thread::compilerStackBytes, [] {
        // Again and again: the first leaves nothing behind.
        for (int round = 0; round < 3; ++round)
          EXPECT_EQ(crashOf([] { overflowStack(); }),
                    "signal 11 (Segmentation fault), the stack overflowed");
      }));
  thread.join();
  EXPECT_EQ(crashOf([] { overflowStack(); }),
            "signal 11 (Segmentation fault), the stack overflowed");
}

TEST(CrashRecoveryTest, AFatalErrorOfLLVMTellsItsReason) {
  CrashHandlers handlers = install();
  EXPECT_EQ(crashOf([] { llvm::reportFatalInternalError("cannot select"); }),
            "fatal error: cannot select");
}

TEST(CrashRecoveryTest, AFatalErrorThatEndsInExitIsRecoveredFrom) {
  CrashHandlers handlers = install();
  EXPECT_EQ(crashOf([] { llvm::reportFatalUsageError("no such target"); }),
            "fatal error: no such target");
}

TEST(CrashRecoveryTest, WithoutTheFatalErrorHandlerAnInternalErrorIsASignal) {
  CrashHandlers handlers = install(/*fatalErrors=*/false);
  testing::internal::CaptureStderr();
  EXPECT_EQ(crashOf([] { llvm::reportFatalInternalError("cannot select"); }),
            "signal 6 (Aborted)");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("LLVM ERROR: cannot select"));
}

TEST(CrashRecoveryTest, ExceptionsTellWhatTheySay) {
  EXPECT_EQ(crashOf([] { throw std::runtime_error("no such shape"); }),
            "exception: no such shape");
  EXPECT_EQ(crashOf([] { throw 42; }), "exception: not of std::exception");
}

TEST(CrashRecoveryTest, TheUnwindingOfACancelledThreadGoesOn) {
  CrashHandlers handlers = install();
  std::atomic<bool> unwound{false}, returned{false};
  struct Witness {
    std::atomic<bool> &flag;
    ~Witness() { flag = true; }
  };
  CTXPOOL_ASSERT_OK_AND_ASSIGN(thread,
                               Thread::start(Thread::compilerStackBytes, [&] {
                                 Witness witness{unwound};
                                 crashOf([] { pthread_exit(nullptr); });
                                 returned = true;
                               }));
  thread.join();
  EXPECT_TRUE(unwound);
  EXPECT_FALSE(returned);
}

TEST(CrashRecoveryTest, TheInnermostCallMeetsTheCrash) {
  CrashHandlers handlers = install();
  std::string inner, after;
  std::string outer = crashOf([&] {
    inner = crashOf(writeToNull);
    after = crashOf([] {});
    abort();
  });
  EXPECT_EQ(inner, "signal 11 (Segmentation fault)");
  EXPECT_EQ(after, "");
  EXPECT_EQ(outer, "signal 6 (Aborted)");
}

TEST(CrashRecoveryTest, RecoveryFromExceptionsOnlyLeavesSignalsToTheHost) {
  EXPECT_EQ(crashOf([] { throw 42; }, Recovery::Exceptions),
            "exception: not of std::exception");
  EXPECT_EQ(runInChild([] {
              HostHandler host(SIGSEGV, [](int) { _exit(42); });
              CrashHandlers handlers = install();
              crashOf(writeToNull, Recovery::Exceptions);
              return false;
            }),
            "exit 42");
}

TEST(CrashRecoveryTest, NoSignalSkipsACallWithinOneThatRecoversFromIt) {
  CrashHandlers handlers = install();
  std::string inner;
  EXPECT_EQ(
      crashOf([&] { inner = crashOf(writeToNull, Recovery::Exceptions); }), "");
  EXPECT_EQ(inner, "signal 11 (Segmentation fault)");
}

TEST(CrashRecoveryTest, NoCrashSkipsABarrier) {
  {
    CrashHandlers handlers = install();
    std::string inner;
    std::string outer = crashOf([&] {
      {
        RecoveryBarrier barrier, another;
        inner = crashOf(writeToNull, Recovery::Exceptions);
      }
      abort();
    });
    EXPECT_EQ(inner, "signal 11 (Segmentation fault)");
    EXPECT_EQ(outer, "signal 6 (Aborted)");
  }
  for (const std::function<void()> &crash : std::vector<std::function<void()>>{
           [] {
             crashOf([] {
               RecoveryBarrier barrier;
               crashOf([] {});
               writeToNull();
             });
           },
           [] {
             crashOf([] {
               RecoveryBarrier barrier;
               (void)detail::runWithStack(uint64_t(64) << 20, writeToNull);
             });
           },
           [] {
             RecoveryBarrier barrier;
             crashOf(writeToNull, Recovery::Exceptions);
           }})
    EXPECT_EQ(runInChild([&] {
                HostHandler host(SIGSEGV, [](int) { _exit(42); });
                CrashHandlers handlers = install();
                crash();
                return false;
              }),
              "exit 42");
}

TEST(CrashRecoveryTest, ThreadsCrashTogetherAndAgain) {
  CrashHandlers handlers = install();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread)
    threads.emplace_back([thread] {
      for (int round = 0; round < 50; ++round) {
        if ((round + thread) % 3 == 0)
          EXPECT_EQ(crashOf(writeToNull), "signal 11 (Segmentation fault)");
        else if ((round + thread) % 3 == 1)
          EXPECT_EQ(crashOf([] { abort(); }), "signal 6 (Aborted)");
        else
          EXPECT_EQ(crashOf([] {}), "");
      }
    });
  for (std::thread &thread : threads)
    thread.join();
}

//===----------------------------------------------------------------------===//
// On a thread with a larger stack
//===----------------------------------------------------------------------===//

/// Has `body` run on a thread of its own, for it wants more stack than this has.
void runOnLargerStack(const std::function<void()> &body) {
  EXPECT_THAT(detail::runWithStack(uint64_t(64) << 20, body), IsOk());
}

TEST(CrashRecoveryTest, ACrashOnALargerStackIsOneOfTheCaller) {
  CrashHandlers handlers = install();
  auto crashThere = [](const std::function<void()> &body) {
    return crashOf([&] { runOnLargerStack(body); });
  };
  // Again and again: the first leaves nothing behind.
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(crashThere(writeToNull), "signal 11 (Segmentation fault)");
    EXPECT_EQ(crashThere([] { abort(); }), "signal 6 (Aborted)");
    EXPECT_EQ(crashThere([] { overflowStack(); }),
              "signal 11 (Segmentation fault), the stack overflowed");
    EXPECT_EQ(
        crashThere([] { llvm::reportFatalInternalError("cannot select"); }),
        "fatal error: cannot select");
    EXPECT_EQ(crashThere([] { llvm::reportFatalUsageError("no such target"); }),
              "fatal error: no such target");
    EXPECT_EQ(crashThere([] { throw std::runtime_error("no such shape"); }),
              "exception: no such shape");
    EXPECT_EQ(crashThere([] { throw 42; }), "exception: not of std::exception");
    EXPECT_EQ(crashThere([] {}), "");
  }
}

TEST(CrashRecoveryTest, ACrashOnALargerStackWithinAnotherIsOneOfTheCaller) {
  CrashHandlers handlers = install();
  bool returned = false;
  EXPECT_EQ(crashOf([&] {
              runOnLargerStack([&] {
                EXPECT_THAT(
                    detail::runWithStack(uint64_t(512) << 20, writeToNull),
                    IsOk());
                returned = true;
              });
            }),
            "signal 11 (Segmentation fault)");
  EXPECT_FALSE(returned);
}

TEST(CrashRecoveryTest, TheInnermostCallOnALargerStackMeetsTheCrash) {
  CrashHandlers handlers = install();
  std::string inner, after;
  EXPECT_EQ(crashOf([&] {
              runOnLargerStack([&] {
                inner = crashOf(writeToNull, Recovery::Exceptions);
                after = crashOf([] { runOnLargerStack(writeToNull); });
                abort();
              });
            }),
            "signal 6 (Aborted)");
  EXPECT_EQ(inner, "signal 11 (Segmentation fault)");
  EXPECT_EQ(after, "signal 11 (Segmentation fault)");
}

TEST(CrashRecoveryTest, RecoveryFromExceptionsReachesALargerStack) {
  EXPECT_EQ(
      crashOf([] { runOnLargerStack([] { throw 42; }); }, Recovery::Exceptions),
      "exception: not of std::exception");
  EXPECT_EQ(runInChild([] {
              HostHandler host(SIGSEGV, [](int) { _exit(42); });
              CrashHandlers handlers = install();
              crashOf([] { runOnLargerStack(writeToNull); },
                      Recovery::Exceptions);
              return false;
            }),
            "exit 42");
}

TEST(CrashRecoveryTest, OutsideOfProtectedCodeACrashOnALargerStackIsTheHosts) {
  EXPECT_EQ(runInChild([] {
              HostHandler host(SIGSEGV, [](int) { _exit(42); });
              CrashHandlers handlers = install();
              crashOf([] { runOnLargerStack(writeToNull); });
              // The thread is no longer protected.
              runOnLargerStack(writeToNull);
              return false;
            }),
            "exit 42");
}

TEST(CrashRecoveryTest, ThreadsCrashTogetherOnLargerStacks) {
  CrashHandlers handlers = install();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([] {
      for (int round = 0; round < 20; ++round)
        EXPECT_EQ(crashOf([] { runOnLargerStack(writeToNull); }),
                  "signal 11 (Segmentation fault)");
    });
  for (std::thread &thread : threads)
    thread.join();
}

//===----------------------------------------------------------------------===//
// What the thread gets back
//===----------------------------------------------------------------------===//

TEST(CrashRecoveryTest, AThreadGetsItsMaskAndSignalStackBack) {
  CrashHandlers handlers = install();
  // A fault that is blocked would end the process.
  sigset_t blocked, before, after;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGSEGV);
  sigaddset(&blocked, SIGUSR1);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
  stack_t stackBefore = {}, stackAfter = {};
  sigaltstack(nullptr, &stackBefore);

  EXPECT_EQ(crashOf(writeToNull), "signal 11 (Segmentation fault)");

  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_TRUE(sigismember(&after, SIGSEGV));
  EXPECT_TRUE(sigismember(&after, SIGUSR1));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  sigaltstack(nullptr, &stackAfter);
  EXPECT_EQ(stackAfter.ss_sp, stackBefore.ss_sp);
  EXPECT_EQ(stackAfter.ss_flags, stackBefore.ss_flags);
}

TEST(CrashRecoveryTest, EntriesOfThePrettyStackTraceThatCrashedAreForgotten) {
  CrashHandlers handlers = install();
  const void *before = llvm::SavePrettyStackState();
  crashOf([] {
    llvm::PrettyStackTraceString entry("within");
    abort();
  });
  EXPECT_EQ(llvm::SavePrettyStackState(), before);
}

//===----------------------------------------------------------------------===//
// What the host keeps
//===----------------------------------------------------------------------===//

TEST(CrashRecoveryTest, HandlersAreTheHostsAgainAfterTheLastUser) {
  HostHandler segv(SIGSEGV, [](int) {}, SA_RESTART);
  HostHandler abrt(SIGABRT, [](int) {}, SA_NODEFER);
  std::vector<struct sigaction> before;
  for (int signal : recovered)
    before.push_back(actionOf(signal));

  {
    std::optional<CrashHandlers> first(install());
    CrashHandlers second = install();
    first.reset();
    EXPECT_EQ(crashOf([] { abort(); }), "signal 6 (Aborted)");
    EXPECT_FALSE(isSame(actionOf(SIGSEGV), before[0]));
  }

  for (size_t index = 0; index < recovered.size(); ++index)
    EXPECT_TRUE(isSame(actionOf(recovered[index]), before[index]))
        << "signal " << recovered[index];
}

TEST(CrashRecoveryTest, TheHostsHandlerGetsTheHostsFaults) {
  EXPECT_EQ(runInChild([] {
              HostHandler host(SIGSEGV, [](int) { _exit(42); });
              CrashHandlers handlers = install();
              crashOf(writeToNull);
              // While another thread is in protected code.
              PhaseGate gate;
              std::atomic<bool> within{false};
              std::thread other([&] {
                crashOf([&] {
                  within = true;
                  gate.await(1);
                });
              });
              eventually([&] { return within.load(); });
              writeToNull();
              return false;
            }),
            "exit 42");
}

sigjmp_buf hostsJump;

TEST(CrashRecoveryTest, AHostThatRecoversByItselfDoesNotEndRecovery) {
  HostHandler host(SIGSEGV, [](int) { siglongjmp(hostsJump, 1); });
  CrashHandlers handlers = install();
  for (int round = 0; round < 3; ++round) {
    bool jumped = true;
    if (sigsetjmp(hostsJump, 1) == 0) {
      writeToNull();
      jumped = false;
    }
    EXPECT_TRUE(jumped);
    EXPECT_EQ(crashOf(writeToNull), "signal 11 (Segmentation fault)");
  }
}

TEST(CrashRecoveryTest, WithoutAHandlerOfTheHostsItsFaultEndsTheProcess) {
  for (int signal : recovered)
    EXPECT_EQ(runInChild([signal] {
                struct sigaction action = {};
                action.sa_handler = SIG_DFL;
                sigaction(signal, &action, nullptr);
                CrashHandlers handlers = install();
                raise(signal);
                return true;
              }),
              "signal " + std::to_string(signal));
}

TEST(CrashRecoveryTest, ASignalThatTheHostIgnoresStaysIgnored) {
  EXPECT_EQ(runInChild([] {
              HostHandler host(SIGTRAP, SIG_IGN);
              CrashHandlers handlers = install();
              raise(SIGTRAP);
              return true;
            }),
            "exit 0");
}

TEST(CrashRecoveryTest, AHandlerForOneSignalIsCalledForOne) {
  static int calls;
  EXPECT_EQ(runInChild([] {
              HostHandler host(SIGBUS, [](int) { ++calls; }, SA_RESETHAND);
              CrashHandlers handlers = install();
              raise(SIGBUS);
              if (calls != 1)
                return false;
              raise(SIGBUS);
              return true;
            }),
            "signal " + std::to_string(SIGBUS));
}

TEST(CrashRecoveryTest, ASignalFromOutsideIsTheHosts) {
  static std::atomic<int> calls;
  calls = 0;
  HostHandler host(SIGABRT, [](int) { ++calls; });
  CrashHandlers handlers = install();
  EXPECT_EQ(crashOf([] {
              kill(getpid(), SIGABRT);
              eventually([] { return calls == 1; });
            }),
            "");
  EXPECT_EQ(calls, 1);
}

TEST(CrashRecoveryTest, AHandlerInstalledMeanwhileStaysAndMayCallOurs) {
  static struct sigaction ours;
  static std::atomic<int> calls;
  calls = 0;
  static std::atomic<int> callsBeneath;
  callsBeneath = 0;
  HostHandler beneath(SIGBUS, [](int) { ++callsBeneath; });
  std::optional<CrashHandlers> handlers(install());
  struct sigaction over = {};
  over.sa_sigaction = [](int signal, siginfo_t *info, void *context) {
    ++calls;
    ours.sa_sigaction(signal, info, context);
  };
  over.sa_flags = SA_SIGINFO | SA_NODEFER;
  ASSERT_EQ(sigaction(SIGBUS, &over, &ours), 0);

  EXPECT_EQ(crashOf([] { raise(SIGBUS); }), "signal 7 (Bus error)");
  handlers.reset();
  EXPECT_TRUE(actionOf(SIGBUS).sa_sigaction == over.sa_sigaction);

  // What it calls goes to the host's handler beneath, and not round in circles.
  handlers.emplace(install());
  raise(SIGBUS);
  EXPECT_EQ(callsBeneath, 1);
  EXPECT_EQ(crashOf([] { raise(SIGBUS); }), "signal 7 (Bus error)");
  EXPECT_EQ(calls, 3);
}

TEST(CrashRecoveryTest, AFatalErrorOfTheHostsIsReportedAsLLVMDoes) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(runInChild([]() -> bool {
              CrashHandlers handlers = install();
              llvm::reportFatalUsageError("of the host");
            }),
            "exit 1");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("LLVM ERROR: of the host\n"));
}

TEST(CrashRecoveryTest, AChildRecoversAndInstallsByItself) {
  std::optional<CrashHandlers> handlers(install());
  // Forks that meet the lock of the handlers held.
  std::atomic<bool> stops{false};
  std::thread installer([&] {
    while (!stops)
      install();
  });
  for (int round = 0; round < 10; ++round)
    EXPECT_EQ(runInChild([&] {
                if (crashOf(writeToNull).empty())
                  return false;
                CrashHandlers own = install();
                handlers.reset();
                return !crashOf(writeToNull).empty();
              }),
              "exit 0");
  stops = true;
  installer.join();
}

//===----------------------------------------------------------------------===//
// MLIR's reader on a larger stack
//===----------------------------------------------------------------------===//

/// What happens where a mark is read from bytecode.
std::function<void()> &onReading() {
  static std::function<void()> action;
  return action;
}

/// An attribute of the test's dialect.
class MarkAttr : public mlir::Attribute::AttrBase<MarkAttr, mlir::Attribute,
                                                  mlir::AttributeStorage> {
public:
  using Base::Base;
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(MarkAttr)
  static constexpr llvm::StringLiteral name = "mark.mark";
};

struct MarkBytecode : mlir::BytecodeDialectInterface {
  explicit MarkBytecode(mlir::Dialect *dialect)
      : BytecodeDialectInterface(dialect) {}
  mlir::Attribute
  readAttribute(mlir::DialectBytecodeReader &reader) const override {
    uint64_t version;
    if (mlir::failed(reader.readVarInt(version)))
      return {};
    if (onReading())
      onReading()();
    return MarkAttr::get(getContext());
  }
  mlir::LogicalResult
  writeAttribute(mlir::Attribute,
                 mlir::DialectBytecodeWriter &writer) const override {
    writer.writeVarInt(0);
    return mlir::success();
  }
};

class MarkDialect : public mlir::Dialect {
public:
  explicit MarkDialect(mlir::MLIRContext *context)
      : Dialect(getDialectNamespace(), context,
                mlir::TypeID::get<MarkDialect>()) {
    addAttributes<MarkAttr>();
    addInterfaces<MarkBytecode>();
  }
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(MarkDialect)
  static constexpr llvm::StringLiteral getDialectNamespace() {
    return llvm::StringLiteral("mark");
  }
  void printAttribute(mlir::Attribute,
                      mlir::DialectAsmPrinter &printer) const override {
    printer << "mark";
  }
};

/// Reads what nests so deep that no thread of a service has the stack for it.
class CrashRecoveryOfReadersTest : public testing::Test {
protected:
  CrashRecoveryOfReadersTest() {
    expectLeaks();
    ContextTemplateOptions options;
    options.populate = [](mlir::DialectRegistry &registry) {
      registry.insert<MarkDialect>();
    };
    auto made = ContextTemplate::create(std::move(options));
    EXPECT_THAT(made, IsOk());
    contexts = *std::move(made);

    auto context = *contexts->clone();
    mlir::OwningOpRef<mlir::ModuleOp> module =
        mlir::ModuleOp::create(mlir::UnknownLoc::get(context.get()));
    mlir::Attribute nested = MarkAttr::get(context.get());
    for (int depth = 0; depth < 2500; ++depth)
      nested = mlir::ArrayAttr::get(context.get(), nested);
    (*module)->setAttr("mark.nested", nested);
    auto written = serialize(module->getOperation());
    EXPECT_THAT(written, IsOk());
    bytes = *std::move(written);
  }
  ~CrashRecoveryOfReadersTest() override { onReading() = nullptr; }

  std::unique_ptr<CompileService> makeService(bool recovers) {
    auto madePool = ContextPool::create(contexts);
    EXPECT_THAT(madePool, IsOk());
    pool = *std::move(madePool);
    CompileServiceOptions options;
    options.threads = 2;
    options.recipe.pipeline = "builtin.module()";
    options.crashRecovery = recovers;
    auto made = CompileService::create(*pool, nullptr, options);
    EXPECT_THAT(made, IsOk());
    return *std::move(made);
  }

  std::shared_ptr<const ContextTemplate> contexts;
  std::optional<SerializedModule> bytes;
  std::unique_ptr<ContextPool> pool;
};

TEST_F(CrashRecoveryOfReadersTest, ACrashIsAnErrorOfTheRequest) {
  auto service = makeService(/*recovers=*/true);
  const std::pair<std::function<void()>, const char *> crashes[] = {
      {writeToNull, "signal 11 (Segmentation fault)"},
      {[] { abort(); }, "signal 6 (Aborted)"},
      {[] { llvm::reportFatalInternalError("no mark"); },
       "fatal error: no mark"},
      {[] { throw std::runtime_error("no mark"); }, "exception: no mark"},
  };
  for (const auto &[action, reason] : crashes) {
    auto isCrash = StatusIs(absl::StatusCode::kInternal,
                            std::string("compiling deep.mlirbc: parser: "
                                        "crashed: ") +
                                reason);
    onReading() = action;
    EXPECT_THAT(service->compileSource(bytes->getBytes(), "deep.mlirbc"),
                isCrash);
    EXPECT_THAT(service->submitSource(bytes->getBytes(), "deep.mlirbc").get(),
                isCrash);
    onReading() = nullptr;
    EXPECT_THAT(service->submitSource(bytes->getBytes()).get(), IsOk());
  }
  EXPECT_EQ(service->getStats().crashes, 8u);
  EXPECT_EQ(pool->getStats().leased, 0u);
}

TEST_F(CrashRecoveryOfReadersTest,
       AnExceptionIsAnErrorOfTheRequestWithoutCrashRecovery) {
  auto service = makeService(/*recovers=*/false);
  onReading() = [] { throw std::runtime_error("no mark"); };
  EXPECT_THAT(
      service->submitSource(bytes->getBytes(), "deep.mlirbc").get(),
      StatusIs(absl::StatusCode::kInternal,
               "compiling deep.mlirbc: parser: crashed: exception: no mark"));
  onReading() = nullptr;
  EXPECT_THAT(service->submitSource(bytes->getBytes()).get(), IsOk());
}

TEST_F(CrashRecoveryOfReadersTest, AnExceptionComesToWhoDeserializes) {
  // What its frames had of the context is leaked.
  mlir::MLIRContext *context = (*contexts->clone()).release();
  onReading() = [] { throw std::runtime_error("no mark"); };
  EXPECT_THROW((void)deserialize(*bytes, *context), std::runtime_error);
}

} // namespace

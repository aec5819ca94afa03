//===- CrashRecovery.cpp - Crashes of a request as values -----------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiled with exceptions, unlike most of the library: to catch those of passes.
//
//===----------------------------------------------------------------------===//

#include "context_pool/compile/CrashRecovery.h"

#include "context_pool/support/Fork.h"
#include "context_pool/support/Mutex.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "llvm/Support/Compiler.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/PrettyStackTrace.h"

#include <algorithm>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cxxabi.h>
#include <exception>
#include <memory>
#include <new>
#include <pthread.h>
#include <string>
#include <system_error>
#include <ucontext.h>
#include <unistd.h>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;

namespace {

/// What a call of `runProtected` comes back with.
struct Region {
  Region *outer = nullptr;
  sigjmp_buf jump;
  int signal = 0;
  bool overflowed = false;
  std::string fatalError;
};

/// A signal that is recovered from.
struct Signal {
  int number;
  const char *name;
  /// The host's, to which what is not ours goes.
  struct sigaction previous;
  /// The handler that was found over ours when it was to be uninstalled, and may
  /// call ours.
  void (*over)(int, siginfo_t *, void *);
};

} // namespace

// Read by a signal handler, so that it has to be there without an allocation.
static thread_local Region *innermost
    __attribute__((tls_model("initial-exec"))) = nullptr;

/// How many barriers have a region outside.
static thread_local unsigned barriers = 0;

RecoveryBarrier::RecoveryBarrier() : region(std::exchange(innermost, nullptr)) {
  if (!region)
    return;
  ++barriers;
  guide = exchangeThreadGuide(nullptr);
}

RecoveryBarrier::~RecoveryBarrier() {
  if (!region)
    return;
  --barriers;
  exchangeThreadGuide(guide);
  innermost = static_cast<Region *>(region);
}

/// Guards what follows, but for readings of `previous` by handlers: it is
/// written before the handler that reads it is installed.
static Mutex mutex;
static size_t users ABSL_GUARDED_BY(mutex) = 0;
static size_t usersOfFatalErrors ABSL_GUARDED_BY(mutex) = 0;
static Signal signals[] = {
    {SIGSEGV, "Segmentation fault", {}, nullptr},
    {SIGBUS, "Bus error", {}, nullptr},
    {SIGILL, "Illegal instruction", {}, nullptr},
    {SIGFPE, "Arithmetic exception", {}, nullptr},
    {SIGTRAP, "Trap", {}, nullptr},
    {SIGABRT, "Aborted", {}, nullptr},
};

[[maybe_unused]] static const int isHeld = holdAcrossForks<mutex>();

static Signal &findSignal(int number) {
  return *std::find_if(
      std::begin(signals), std::end(signals),
      [&](const Signal &signal) { return signal.number == number; });
}

//===----------------------------------------------------------------------===//
// Handlers
//===----------------------------------------------------------------------===//

/// Goes back to the call of `runProtected` that meets the crash.
[[noreturn]] static void leave(Region &region) {
  innermost = region.outer;
  siglongjmp(region.jump, 1);
}

/// Whether the thread did it itself, rather than another process or thread.
static bool isOwnDoing(const siginfo_t &info) {
  // `abort` and `raise` send with tgkill.
  return info.si_code > 0 ||
         (info.si_code == SI_TKILL && info.si_pid == getpid());
}

/// Whether the address is one that a push to the stack would hit.
static bool isBesideStackPointer(const void *address, const void *context) {
  [[maybe_unused]] const auto &registers =
      static_cast<const ucontext_t *>(context)->uc_mcontext;
#if defined(__x86_64__)
  auto stackPointer = uintptr_t(registers.gregs[REG_RSP]);
#elif defined(__aarch64__)
  auto stackPointer = uintptr_t(registers.sp);
#else
  return false;
#endif
  constexpr uintptr_t frameBytes = 64 << 10;
  return uintptr_t(address) - (stackPointer - frameBytes) < 2 * frameBytes;
}

static void setDefault(int number) {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(number, &action, nullptr);
}

/// Has the host handle a signal as if there were no handler of ours.
static void forward(int number, siginfo_t *info, void *context) {
  struct sigaction previous = findSignal(number).previous;
  bool isHandler =
      (previous.sa_flags & SA_SIGINFO) ||
      (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN);
  if (!isHandler) {
    // The system does not let faults be ignored.
    if (previous.sa_handler == SIG_IGN && info->si_code <= 0)
      return;
    setDefault(number);
    raise(number);
    return;
  }

  if (previous.sa_flags & SA_RESETHAND)
    setDefault(number);
  sigset_t blocked = previous.sa_mask, before;
  if (!(previous.sa_flags & SA_NODEFER))
    sigaddset(&blocked, number);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  if (previous.sa_flags & SA_SIGINFO)
    previous.sa_sigaction(number, info, context);
  else
    previous.sa_handler(number);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

static void handleSignal(int number, siginfo_t *info, void *context) {
  int error = errno;
  Region *region = innermost;
  if (region && isOwnDoing(*info)) {
    region->signal = number;
    region->overflowed = number == SIGSEGV && info->si_code > 0 &&
                         isBesideStackPointer(info->si_addr, context);
    leave(*region);
  }
  forward(number, info, context);
  errno = error;
}

static void handleFatalError(void *, const char *reason, bool) {
  if (Region *region = innermost) {
    region->fatalError = reason;
    leave(*region);
  }
  // Not ours: what LLVM does where it has no handler. It ends the process next.
  std::string message = absl::StrCat("LLVM ERROR: ", reason, "\n");
  [[maybe_unused]] ssize_t written =
      write(STDERR_FILENO, message.data(), message.size());
}

/// The handler of a signal as it is now; null where the system does not tell.
static auto findHandler(int number) -> void (*)(int, siginfo_t *, void *) {
  struct sigaction now = {};
  sigaction(number, nullptr, &now);
  return now.sa_sigaction;
}

static void uninstallSignals() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  for (Signal &signal : signals) {
    signal.over = findHandler(signal.number);
    if (signal.over == handleSignal) {
      sigaction(signal.number, &signal.previous, nullptr);
      signal.over = nullptr;
    }
  }
}

static absl::Status installSignals() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  struct sigaction action = {};
  action.sa_sigaction = handleSignal;
  // On a stack of its own, for the thread's may have overflowed; and without a
  // mask, for the handler may not return.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  for (Signal &signal : signals) {
    // Over a handler that may call ours, ours would call that one in turn.
    auto *now = findHandler(signal.number);
    if (now == handleSignal || (now && now == signal.over))
      continue;
    if (sigaction(signal.number, nullptr, &signal.previous) == 0 &&
        sigaction(signal.number, &action, nullptr) == 0)
      continue;
    int error = errno;
    uninstallSignals();
    return absl::InternalError(absl::StrCat(
        "crash recovery: installing a handler of signal ", signal.number, ": ",
        std::generic_category().message(error)));
  }
  return absl::OkStatus();
}

absl::StatusOr<CrashHandlers> CrashHandlers::install(bool fatalErrors) {
  MutexLock lock(mutex);
  if (users == 0)
    if (absl::Status status = installSignals(); !status.ok())
      return status;
  ++users;
  if (fatalErrors && ++usersOfFatalErrors == 1)
    llvm::install_fatal_error_handler(handleFatalError);
  return CrashHandlers(fatalErrors);
}

CrashHandlers::CrashHandlers(CrashHandlers &&other) noexcept
    : owns(std::exchange(other.owns, false)),
      handlesFatalErrors(other.handlesFatalErrors) {}

CrashHandlers::~CrashHandlers() {
  if (!owns)
    return;
  MutexLock lock(mutex);
  if (handlesFatalErrors && --usersOfFatalErrors == 0)
    llvm::remove_fatal_error_handler();
  if (--users == 0)
    uninstallSignals();
}

//===----------------------------------------------------------------------===//
// Protected code
//===----------------------------------------------------------------------===//

static absl::Status guideThread(RunElsewhere elsewhere,
                                llvm::function_ref<void()> body);

namespace {

/// What the thread has while it runs protected code, and gets back afterwards
/// whatever way that ends.
class ThreadState {
public:
  explicit ThreadState(Region &region) : region(region) {}

  absl::Status enter() {
    // The stack of an outer region serves.
    if (!region.outer)
      if (absl::Status status = enterSignalStack(); !status.ok())
        return status;
    // A fault that is blocked ends the process.
    sigset_t faults;
    sigemptyset(&faults);
    for (const Signal &signal : signals)
      sigaddset(&faults, signal.number);
    pthread_sigmask(SIG_UNBLOCK, &faults, &mask);
    prettyStack = llvm::SavePrettyStackState();
    guide = exchangeThreadGuide(guideThread);
    innermost = &region;
    entered = true;
    return absl::OkStatus();
  }

  ~ThreadState() {
    if (!entered)
      return;
    innermost = region.outer;
    exchangeThreadGuide(guide);
    llvm::RestorePrettyStackState(prettyStack);
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    if (!region.outer)
      sigaltstack(&signalStack, nullptr);
  }

private:
  absl::Status enterSignalStack() {
    static thread_local std::unique_ptr<char[]> memory;
    // A handler of the host's may run on it, too.
    size_t bytes = std::max<size_t>(64 << 10, 4 * SIGSTKSZ);
    if (!memory)
      memory.reset(new (std::nothrow) char[bytes]);
    if (!memory)
      return absl::ResourceExhaustedError(absl::StrCat(
          "crash recovery: no ", bytes, " bytes for a stack of its handlers"));
    stack_t stack = {};
    stack.ss_sp = memory.get();
    stack.ss_size = bytes;
    if (sigaltstack(&stack, &signalStack) != 0)
      return absl::InternalError(
          absl::StrCat("crash recovery: entering a stack for its handlers: ",
                       std::generic_category().message(errno)));
    return absl::OkStatus();
  }

  Region &region;
  bool entered = false;
  stack_t signalStack;
  sigset_t mask;
  const void *prettyStack = nullptr;
  ThreadGuide guide = nullptr;
};

} // namespace

/// Returns false where a signal or a fatal error ended `body`. A function of its
/// own, without variables that a jump could leave behind in registers.
LLVM_ATTRIBUTE_NOINLINE static bool call(Region &region,
                                         llvm::function_ref<void()> body) {
  if (sigsetjmp(region.jump, /*savemask=*/0) != 0)
    return false;
  body();
  return true;
}

/// A crash of the other thread is one of the calling thread, which waits for it.
static absl::Status guideThread(RunElsewhere elsewhere,
                                llvm::function_ref<void()> body) {
  Region there;
  absl::Status entered;
  bool returned = false;
  absl::Status ran = elsewhere([&] {
    ThreadState state(there);
    entered = state.enter();
    if (entered.ok())
      returned = call(there, body);
  });
  if (!ran.ok())
    return ran;
  if (!entered.ok() || returned)
    return entered;
  Region &here = *innermost;
  here.signal = there.signal;
  here.overflowed = there.overflowed;
  here.fatalError = std::move(there.fatalError);
  leave(here);
}

static std::string describe(const Region &region) {
  if (!region.signal)
    return absl::StrCat("fatal error: ", region.fatalError);
  return absl::StrCat("signal ", region.signal, " (",
                      findSignal(region.signal).name, ")",
                      region.overflowed ? ", the stack overflowed" : "");
}

absl::StatusOr<std::optional<std::string>>
ctxpool::detail::runProtected(Recovery recovery,
                              llvm::function_ref<void()> body) {
  Region region;
  region.outer = innermost;
  ThreadState state(region);
  if (recovery == Recovery::Everything || region.outer || barriers != 0)
    if (absl::Status status = state.enter(); !status.ok())
      return status;
  try {
    if (call(region, body))
      return std::nullopt;
    return describe(region);
  } catch (abi::__forced_unwind &) {
    throw;
  } catch (const std::exception &exception) {
    return absl::StrCat("exception: ", exception.what());
  } catch (...) {
    return std::string("exception: not of std::exception");
  }
}

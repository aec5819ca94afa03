//===- CrashRecovery.h - Crashes of a request as values --------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Runs code that may crash, and comes back where it does.
///
/// Not `llvm::CrashRecoveryContext`: its signal handlers run on the stack that
/// overflowed, are installed for good in place of the host's, and are removed
/// altogether by the first crash of a thread outside of any recovery. Nor does
/// it know of exceptions, or of fatal errors that end in `exit`.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_COMPILE_CRASHRECOVERY_H
#define CONTEXT_POOL_COMPILE_CRASHRECOVERY_H

#include "context_pool/support/Thread.h"

#include "absl/status/statusor.h"
#include "llvm/ADT/STLExtras.h"

#include <optional>
#include <string>

namespace ctxpool::detail {

/// While one lives, crashes of code in `runProtected` are recovered from.
///
/// State of the process, shared by all that live and undone with the last:
/// - the handlers of SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP and SIGABRT.
///   Signals that are not of protected code go to the handlers that were there
///   before. Whoever replaces one meanwhile keeps his, and takes recovery from
///   that signal.
/// - if asked to, LLVM's fatal error handler, of which there is one and no way
///   to ask for it. Fatal errors that are not of protected code are reported as
///   LLVM does.
///
/// Thread safety: any thread may create and destroy one.
/// Fork:          a child has its parent's handlers, and may create, destroy
///                and use them.
class CrashHandlers {
public:
  /// Errors: Internal - the system refuses to install a handler.
  static absl::StatusOr<CrashHandlers> install(bool fatalErrors);

  CrashHandlers(CrashHandlers &&other) noexcept;
  CrashHandlers &operator=(CrashHandlers &&other) = delete;
  ~CrashHandlers();

private:
  explicit CrashHandlers(bool handlesFatalErrors)
      : handlesFatalErrors(handlesFatalErrors) {}
  bool owns = true;
  bool handlesFatalErrors;
};

enum class Recovery {
  Everything, ///< Signals, fatal errors and exceptions.
  /// ... of exceptions only, unless the call is within one that recovers from
  /// everything: a signal must not skip the frames of ours that are between.
  Exceptions
};

/// Runs `body`. Returns what ended it, where that was a crash:
/// `signal 11 (Segmentation fault)`, `fatal error: <LLVM's reason>`,
/// `exception: <what>`. Signals, overflow of the stack among them, and fatal
/// errors are recovered from while a `CrashHandlers` lives and only on this
/// thread and on those that `runWithStack` has work for it: their crash is one of
/// its own, and they end. The unwinding by which a thread is cancelled goes on.
///
/// Frames that crashed are not unwound: what they own is leaked and what they
/// locked stays locked, MLIR's and LLVM's own among it. `body` must not be
/// within a lock of ours.
///
/// Calls nest: the innermost one meets the crash. Costs some 1 us, and 64 KiB a
/// thread for the stack of the handlers.
///
/// Errors: ResourceExhausted - there is no memory for that stack; `body` did
///                             not run.
absl::StatusOr<std::optional<std::string>>
runProtected(Recovery recovery, llvm::function_ref<void()> body);

/// While one lives, code of its thread is protected by calls of `runProtected`
/// within its scope only: those around it would skip what the frames in between
/// hold and others wait for. They count for `Recovery::Exceptions` as ever.
///
/// Barriers and protected calls of a thread end in the reverse of the order in
/// which they began.
class RecoveryBarrier {
public:
  RecoveryBarrier();
  ~RecoveryBarrier();
  RecoveryBarrier(const RecoveryBarrier &) = delete;
  RecoveryBarrier &operator=(const RecoveryBarrier &) = delete;

private:
  void *const region; ///< The innermost one outside.
  ThreadGuide guide = nullptr;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_COMPILE_CRASHRECOVERY_H

//===- TargetMachines.h - What LLVM generates code with ---------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_COMPILE_TARGETMACHINES_H
#define CONTEXT_POOL_COMPILE_TARGETMACHINES_H

#include "context_pool/CompileCache.h"
#include "context_pool/support/Mutex.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Target/TargetMachine.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ctxpool::detail {

/// Makes all targets of this LLVM known to its registry, once in a process.
/// The registry is a global of LLVM's that is not guarded: whoever else
/// initialises targets must not do so at the same time.
///
/// Thread safety: any number of threads may make the first call at once.
void initializeTargets();

/// What is wrong with a processor, the one to tune for, and features,
/// comma-separated, which LLVM itself would print, or end the process for; not
/// all that MIPS wants of features. Either processor may be empty.
///
/// Errors: InvalidArgument - the message names `cpu`, `tuning` or `features`.
absl::Status checkProcessor(const llvm::Target &target,
                            const llvm::Triple &triple, llvm::StringRef cpu,
                            llvm::StringRef tuning, llvm::StringRef features);

/// Target machines of one recipe. One serves one thread at a time and keeps what
/// it computed for the next, so they are lent out and come back.
///
/// Thread safety: thread-safe. Loans must end before this does.
class TargetMachines {
public:
  /// `resolved`: as `ResolvedRecipe::get` has it, with `native` and the empty
  /// target replaced.
  ///
  /// Errors: InvalidArgument - what LLVM cannot do; the message names the field
  ///                           of the recipe.
  static absl::StatusOr<std::unique_ptr<TargetMachines>>
  create(const CompileRecipe &resolved);

  TargetMachines(const TargetMachines &) = delete;
  TargetMachines &operator=(const TargetMachines &) = delete;

  struct GiveBack {
    TargetMachines *owner;
    void operator()(llvm::TargetMachine *machine) const {
      owner->giveBack(machine);
    }
  };
  using Loan = std::unique_ptr<llvm::TargetMachine, GiveBack>;

  /// A machine for the calling thread. What a crash leaves behind is not
  /// destroyed and not lent again.
  Loan borrow();

private:
  TargetMachines() = default;
  std::unique_ptr<llvm::TargetMachine> make() const;
  void giveBack(llvm::TargetMachine *machine);

  const llvm::Target *target = nullptr;
  llvm::Triple triple;
  std::string cpu, features;
  std::optional<llvm::CodeModel::Model> codeModel;
  llvm::CodeGenOptLevel level = llvm::CodeGenOptLevel::Default;

  Mutex mutex;
  std::vector<std::unique_ptr<llvm::TargetMachine>> idle ABSL_GUARDED_BY(mutex);
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_COMPILE_TARGETMACHINES_H

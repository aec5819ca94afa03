//===- Executable.h - Compiled code in this process -------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Loads an object file that was compiled, or found in a cache, and finds its
/// functions.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_EXECUTABLE_H
#define CONTEXT_POOL_EXECUTABLE_H

#include "context_pool/CompileCache.h"

#include "absl/status/statusor.h"
#include "llvm/ADT/StringRef.h"

#include <memory>
#include <string>
#include <vector>

namespace ctxpool {

struct ExecutableOptions {
  /// Shared libraries that the object may use, besides the process and MLIR's
  /// runner utilities, searched in this order. A path, or a name for the dynamic
  /// linker. They stay loaded until the process ends.
  std::vector<std::string> libraries;
};

/// The code and data of an object file, linked into this process.
///
/// What the object does not define is looked for in the process, in
/// `ExecutableOptions::libraries`, then in MLIR's `mlir_c_runner_utils` and
/// `mlir_runner_utils`, which are loaded when an object first needs one of their
/// symbols and then stay. Static constructors run in `load`, in their order of
/// priority; static destructors when the last owner lets go, and then the memory
/// goes. Every load has globals of its own.
///
/// Not provided: thread-local variables, which are an error; and `atexit`
/// handlers of the object, which must not be: nobody notices them.
/// Code runs as it is: an object compiled for a CPU with more features than this
/// one has raises the processor's own error.
///
/// \code
///   auto executable = Executable::load(artifact);
///   if (!executable.ok())
///     return executable.status();
///   auto add = (*executable)->lookup("add");
///   if (!add.ok())
///     return add.status();
///   int sum = reinterpret_cast<int (*)(int, int)>(*add)(1, 2);
/// \endcode
///
/// Thread safety: thread-safe. What the looked-up functions may do at the same
/// time is the object's own affair.
class Executable {
public:
  /// Links `object`, whose kind is `object`, and runs its constructors. The
  /// artifact is not needed afterwards. Loads run side by side on any number of
  /// threads.
  ///
  /// Errors: InvalidArgument    - another kind of artifact, not an object file,
  ///                              or one for another machine; the message says
  ///                              which, and what this one is.
  ///         NotFound           - symbols that nobody defines, or a library; the
  ///                              message names all of them.
  ///         FailedPrecondition - the object needs what is not provided.
  ///         Unimplemented      - the objects of this system are not ELF.
  static absl::StatusOr<std::shared_ptr<Executable>>
  load(const Artifact &object, const ExecutableOptions &options = {});

  /// Runs the destructors, and frees code and data.
  ~Executable();
  Executable(const Executable &) = delete;
  Executable &operator=(const Executable &) = delete;

  /// The address of a function or variable that the object defines, by its exact
  /// name: with `llvm.emit_c_interface`, `f` is the bare function and
  /// `_mlir_ciface_f` the one that C calls. Valid as long as the executable is.
  /// Takes no lock.
  ///
  /// Errors: NotFound - the object defines no such symbol.
  absl::StatusOr<void *> lookup(llvm::StringRef symbol) const;

private:
  class Impl;
  explicit Executable(std::unique_ptr<Impl> theImpl);
  const std::unique_ptr<Impl> impl;
};

} // namespace ctxpool

#endif // CONTEXT_POOL_EXECUTABLE_H

//===- LLVMStore.h - One of LLVM's on-disk databases ------------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// All that this project asks of llvm/CAS: objects by their digest, and an
/// action cache from keys to objects, both in one folder that processes share.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_CACHE_LLVMSTORE_H
#define CONTEXT_POOL_CACHE_LLVMSTORE_H

#include "context_pool/Fingerprint.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace llvm::cas {
class ActionCache;
class CASID;
class ObjectStore;
} // namespace llvm::cas

namespace ctxpool::detail {

/// LLVM maps its files and believes them: whoever opens a store vouches that
/// nothing else than LLVM wrote to them (`getControlFiles`, `validate`). It also
/// writes through mappings of sparse files without reserving what it writes to,
/// and a full disk then ends the process with SIGBUS: whoever stores makes sure
/// of the room before.
///
/// Thread safety: every member may be called from several threads at once, and
/// any number of processes may have the folder open.
class LLVMStore {
public:
  /// Opens the store in `folder`; makes one where there is none. May wait for
  /// locks of other users of LLVM's store (`wouldBlock`).
  static absl::StatusOr<std::unique_ptr<LLVMStore>>
  open(const std::string &folder);

  /// Takes milliseconds: LLVM writes back what it has mapped.
  ~LLVMStore();

  /// The object that was published under `action`. The bytes are mapped, 8-byte
  /// aligned or better, and live as long as the store.
  ///
  /// Errors: NotFound, InvalidArgument or DataLoss - the object is damaged.
  absl::StatusOr<std::optional<llvm::StringRef>>
  find(const Fingerprint &action) const;

  /// The object with that digest, as `find`; nothing where there is none.
  absl::StatusOr<std::optional<llvm::StringRef>>
  load(const Fingerprint &object) const;

  /// Stores `bytes`, whole or not at all, and returns the object's digest. What
  /// is there already is not written again, even where it was damaged since.
  absl::StatusOr<Fingerprint> store(llvm::StringRef bytes);

  /// Makes `find(action)` give `object`. Fails where it gives another already.
  absl::Status publish(const Fingerprint &action, const Fingerprint &object);

  /// What the objects and tables take, in bytes.
  uint64_t getStorageBytes() const;

  /// Whether opening `folder` would wait for a lock that somebody holds.
  static bool wouldBlock(const std::string &folder);

  /// The files that LLVM believes what they say, relative to the folder. All
  /// others hold bytes of objects and nothing else.
  static llvm::ArrayRef<const char *> getControlFiles();

  /// Reads the whole store and recomputes every digest. May crash or hang where
  /// the store is damaged, so this is for a process that may die of it.
  static absl::Status validate(const std::string &folder);

  /// Calls `visit` with every object that is published, in no order and one at a
  /// time, on threads of LLVM's: with nothing for one that cannot be read.
  static absl::Status
  forEachPublished(const std::string &folder,
                   llvm::function_ref<void(llvm::StringRef)> visit);

private:
  LLVMStore(std::unique_ptr<llvm::cas::ObjectStore> theObjects,
            std::unique_ptr<llvm::cas::ActionCache> theActions);

  absl::StatusOr<std::optional<llvm::StringRef>>
  load(const llvm::cas::CASID &id) const;

  // The action cache refers to the database that the object store owns.
  const std::unique_ptr<llvm::cas::ObjectStore> objects;
  const std::unique_ptr<llvm::cas::ActionCache> actions;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_CACHE_LLVMSTORE_H

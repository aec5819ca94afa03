//===- ResourceTransfer.h - Resource blobs in another context ---*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Brings the resources that attributes refer to into another context, with
/// their data shared between the contexts or copied.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_IR_RESOURCETRANSFER_H
#define CONTEXT_POOL_IR_RESOURCETRANSFER_H

#include "context_pool/ModuleTransfer.h"

#include "absl/status/status.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ctxpool::detail {

/// The resources of one context that were brought into another one.
///
/// How data is shared. A blob owns its data through its deleter. The deleter of
/// the source's blob is moved into a `SharedData`, and the source and every
/// context that gets the blob keep a reference to that in place of a deleter:
/// the data is freed with the last of them, whichever context that is in. The
/// data, its address and its size stay as they are, so that other threads may
/// read the blob meanwhile, and several threads may share blobs of one context
/// at once. A blob without a deleter does not own its data, and is copied.
class ResourceTransfer {
public:
  explicit ResourceTransfer(mlir::MLIRContext &destination)
      : context(destination) {}

  using Mode = CloneOptions::Resources;

  /// Begins a call that brings resources over in that way.
  void begin(Mode mode);

  /// Finds or makes the counterpart, which is another one than that of an
  /// earlier call if the resource is no longer what it was, in either context.
  /// A blob of one key and contents is made once in a context, also by
  /// different transfers.
  absl::Status transfer(const mlir::AsmDialectResourceHandle &source,
                        mlir::AsmDialectResourceHandle &result);

  /// Takes back what was made since `begin`. The keys stay, without data: MLIR
  /// has no way to erase them.
  void abandon();

  void forget() { known.clear(); }

  /// Data that transfers brought into the context, shared data included.
  uint64_t getBytes() const { return bytes; }

private:
  struct Known {
    mlir::AsmDialectResourceHandle result;
    /// What the blobs had when the resource was brought over.
    const char *sourceData = nullptr, *resultData = nullptr;
    size_t size = 0, alignment = 0;
    Mode mode = Mode::Share;
    /// In which it was last found to be current.
    uint64_t call = 0;
    bool isBlob = false;
    /// The blob has no data, and not even an empty one.
    bool isMissing = false;
    mlir::AsmDialectResourceHandle source;
  };

  /// A resource of another kind than blobs of the builtin dialect.
  struct OtherMade {
    const mlir::OpAsmDialectInterface *interface;
    std::string key;
    mlir::AsmResourceEntryKind kind;
  };

  absl::Status transferBlob(const mlir::DenseResourceElementsHandle &source,
                            Known &entry);
  absl::Status transferOther(const mlir::AsmDialectResourceHandle &source,
                             Known &entry);
  static bool isCurrent(const Known &entry);

  mlir::MLIRContext &context;
  Mode mode = Mode::Share;
  llvm::DenseMap<const void *, Known> known;
  /// Of this call.
  uint64_t call = 0;
  llvm::SmallVector<mlir::DialectResourceBlobManager::BlobEntry *, 0> made;
  std::vector<OtherMade> otherMade;
  uint64_t bytes = 0, bytesBefore = 0;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_IR_RESOURCETRANSFER_H

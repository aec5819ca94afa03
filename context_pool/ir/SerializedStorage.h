//===- SerializedStorage.h - The bytes of a serialized module ---*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_IR_SERIALIZEDSTORAGE_H
#define CONTEXT_POOL_IR_SERIALIZEDSTORAGE_H

#include "context_pool/ModuleTransfer.h"
#include "context_pool/ir/BytecodeCheck.h"

#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

#include <atomic>
#include <memory>
#include <string>

namespace mlir {
class BytecodeReader;
} // namespace mlir

namespace ctxpool::detail {

/// Bytes in memory that is aligned for every resource that they may have.
class SerializedStorage {
public:
  /// MLIR's reader wants a resource to lie in memory as it is aligned in the
  /// file; so does the file as a whole with its largest alignment.
  static constexpr size_t alignment = 4096;

  /// Bytes to be filled in.
  static std::shared_ptr<SerializedStorage> allocate(size_t size);
  /// The buffer, or a copy of it where it is not aligned.
  static std::shared_ptr<SerializedStorage>
  take(std::unique_ptr<llvm::MemoryBuffer> buffer);

  ~SerializedStorage();
  SerializedStorage(const SerializedStorage &) = delete;
  SerializedStorage &operator=(const SerializedStorage &) = delete;

  llvm::StringRef getBytes() const { return bytes; }
  char *getMemory() const { return memory; }

  /// What `checkBytecode` says of the bytes, which do not change: it is asked
  /// when this is called first. Several threads may.
  const absl::StatusOr<BytecodeSummary> &check() const;

  static const SerializedStorage &of(const SerializedModule &module) {
    return *module.storage;
  }
  static SerializedModule
  toModule(std::shared_ptr<const SerializedStorage> storage) {
    return SerializedModule(std::move(storage));
  }

private:
  SerializedStorage() = default;

  llvm::StringRef bytes;
  /// One of the two.
  char *memory = nullptr;
  std::unique_ptr<llvm::MemoryBuffer> buffer;
  /// Null: not asked for yet.
  mutable std::atomic<const absl::StatusOr<BytecodeSummary> *> checked =
      nullptr;
};

/// A source manager for MLIR's reader, whose owners keep the bytes.
std::shared_ptr<llvm::SourceMgr> makeSource(const SerializedModule &module);

/// Erases the operations that the reader has not read: it asks for that before
/// it is destroyed.
void dropUnread(mlir::BytecodeReader &reader);

/// The error that a reader's diagnostics are, `reasons`.
absl::Status readingFailed(const std::string &reasons);

/// Whether the bytes begin as bytecode does.
absl::Status checkMagic(llvm::StringRef bytes);

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_IR_SERIALIZEDSTORAGE_H

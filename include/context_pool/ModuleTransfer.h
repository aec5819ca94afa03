//===- ModuleTransfer.h - Modules from context to context -------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Two ways to bring IR into another context: a direct copy, and bytes that
/// every MLIR tool reads.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_MODULETRANSFER_H
#define CONTEXT_POOL_MODULETRANSFER_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace llvm {
class MemoryBuffer;
} // namespace llvm

namespace mlir {
class MLIRContext;
class Operation;
} // namespace mlir

namespace ctxpool {

namespace detail {
class ClonerImpl;
class LazyModuleImpl;
class SerializedStorage;
} // namespace detail

struct CloneOptions {
  /// Whether the copy is verified. A copy of IR that verifies does.
  bool verify = false;

  /// What becomes of the data of `dense_resource` attributes. Within one
  /// context nothing does: an attribute and the data that it refers to are one
  /// there, for the source and for the copy.
  enum class Resources {
    /// The copy has data of its own.
    Copy,
    /// Source and copy refer to one data, which is freed with the last of the
    /// contexts that have it. Nothing is copied, but for data that the source
    /// does not own (a blob without a deleter). From then on the data must not
    /// be written to; the blob of the copy says that it is immutable.
    Share
  } resources = Resources::Share;
};

/// A copy of `source`, with all that is in it, in the context `destination`.
///
/// The copy is `isEquivalent` to the source with locations included, prints the
/// same text, and has its use lists and predecessors in the same order. Exact
/// are also what MLIR's text and bytecode change: distinct attributes and wide
/// floats within attributes that these formats write as text, and range
/// locations that are one point. Exceptions: an `OpaqueLoc`, which is an
/// address, becomes its fallback; a resource is renamed where `destination` has
/// another one of its name. Costs about as much as `Operation::clone` for IR
/// whose attributes the destination knows already, and a third of writing and
/// reading bytecode where it does not. No recursion follows the nesting of
/// regions, attributes or types on the caller's stack.
///
/// Contexts:      any two, also the same. `destination` loads the dialects that
///                are used and that it has registered.
/// Ownership:     the caller's; the copy does not depend on the life of the
///                source or its context. Operands and successors have to be
///                defined within `source`, unless both contexts are the same.
/// Mutation:      the source is read and nothing is interned in its context,
///                but for operations whose properties have no bytecode
///                interface. With `Share`, the bookkeeping of its blobs
///                changes; their data, address, size and flags do not.
/// Thread safety: several threads may copy out of one context that nobody
///                changes meanwhile, into a context each. Where its
///                multithreading is disabled, not if there are operations whose
///                properties have no bytecode interface: these are interned in
///                it, without locks.
/// Errors:        FailedPrecondition - the destination does not have a dialect
///                  or an operation, or has an operation that is not registered
///                  in the context of the source: it would take for a property
///                  what is an attribute there (the message names it); does not
///                  take unregistered ones, has another type of the name of a
///                  mutable one; an attribute or resource cannot be encoded;
///                  or a type that has to go through its text, as those of
///                  SPIR-V do that may refer to themselves, would lose a part
///                  that way, or would repeat its parts more often than MLIR
///                  could print in reasonable time.
///                InvalidArgument - an operand or successor is null or, unless
///                  both contexts are the same, defined outside of `source`; or
///                  the copy does not verify, where that was asked for.
///                ResourceExhausted - no thread with the stack that such a text
///                  or the verifier needs, where things nest deeply.
///                Nothing is left in the destination but interned attributes
///                and, where resources were met before the error, their names.
absl::StatusOr<mlir::OwningOpRef<mlir::Operation *>>
cloneInto(mlir::Operation *source, mlir::MLIRContext &destination,
          const CloneOptions &options = {});
absl::StatusOr<mlir::OwningOpRef<mlir::ModuleOp>>
cloneInto(mlir::ModuleOp source, mlir::MLIRContext &destination,
          const CloneOptions &options = {});

/// Copies from one context into another, again and again, and remembers which
/// attribute is which: the second copy of similar IR costs what
/// `Operation::clone` does.
///
/// A distinct attribute has one counterpart for all calls, as long as the
/// resources in it are the same: with another blob, or brought over in another
/// way, they make it another one. What is remembered grows with the attributes
/// and types that were met: about 40 bytes each. Attributes with resources in
/// them are built anew by each call that meets them, which compares data that
/// was copied with that of the source.
///
/// Contexts:      neither has to outlive the cloner. It notices, by diagnostic
///                handlers that it registers and that handle nothing, that a
///                context was destroyed or that a `ContextPool` took it back:
///                where that is the destination, further calls fail; where it
///                is the source, what was remembered is forgotten. A blob
///                that was replaced is noticed as well. Not noticed: a user
///                that replaces the blob manager of a dialect.
/// Thread safety: confined to one thread at a time, which is also the one that
///                may use the destination. Must not be destroyed while one of
///                its contexts is.
class CrossContextCloner {
public:
  CrossContextCloner(mlir::MLIRContext &from, mlir::MLIRContext &to);
  ~CrossContextCloner();
  CrossContextCloner(CrossContextCloner &&) noexcept;
  CrossContextCloner &operator=(CrossContextCloner &&) noexcept;

  /// As `cloneInto`.
  ///
  /// Errors: as `cloneInto`, and
  ///         InvalidArgument    - `source` is not of the context `from`.
  ///         FailedPrecondition - the context `to` was destroyed or recycled.
  absl::StatusOr<mlir::OwningOpRef<mlir::Operation *>>
  clone(mlir::Operation *source, const CloneOptions &options = {});
  absl::StatusOr<mlir::OwningOpRef<mlir::ModuleOp>>
  clone(mlir::ModuleOp source, const CloneOptions &options = {});

  /// An estimate of the memory, in bytes, that all calls so far brought into
  /// the destination and that stays there: interned attributes and types,
  /// and the data of resources, shared or copied.
  uint64_t getInternedBytes() const;

private:
  std::unique_ptr<detail::ClonerImpl> impl;
};

/// IR as MLIR bytecode.
///
/// A value: cheap to copy, immutable, and safe to use from several threads.
class SerializedModule {
public:
  /// The bytes, aligned to 4096 bytes. Valid as long as a copy of this object.
  llvm::StringRef getBytes() const;

private:
  friend class detail::SerializedStorage;
  explicit SerializedModule(
      std::shared_ptr<const detail::SerializedStorage> bytes)
      : storage(std::move(bytes)) {}
  std::shared_ptr<const detail::SerializedStorage> storage;
};

struct SerializeOptions {
  /// Writes unknown locations in place of those of operations and block
  /// arguments. Locations that are part of an attribute are kept.
  bool stripLocations = false;
};

/// The operation as bytecode of MLIR's newest version, for any reader of MLIR.
///
/// Bytes that would read back as other IR are not returned: where the IR has
/// what MLIR's bytecode loses, the bytes are read in a context of their own, made
/// from the registry of the operation's, and compared, locations included. All
/// other IR is not read back. The format has no
/// other place for what is lost, which every reader of MLIR would find, so that
/// these are refused:
///   - a distinct attribute in several attributes of which at least one is
///     written as text, as alias scopes are: each text makes a new one;
///   - in an attribute that is written as text, a float that is wider and more
///     precise than a double;
///   - the `splitDebugFilename` of an LLVM compile unit, which its encoding
///     leaves out.
/// Not lost is what MLIR holds for the same: a range location that is one point
/// reads back as that point, and an `OpaqueLoc`, which is an address, as its
/// fallback.
/// Not of the operation, and not written, are the external resources of whoever
/// parsed it.
///
/// MLIR writes a type or attribute that has no encoding as text, with its parts as
/// often as they occur: structs that share their parts can take exponential time.
/// Refused is text in which more than 32,768 attributes and types, and 16 times
/// those that it is made of, are there again because something around them is.
///
/// IR that nests deeply is written on a thread with the stack that it needs; the
/// caller's should have 256 KiB.
///
/// Mutation:      reads the operation. With `stripLocations`, a copy without
///                them is made and destroyed in the same context.
/// Thread safety: as `cloneInto`.
/// Errors:        FailedPrecondition - bytecode cannot hold the operation; the
///                  message names what would be lost, by operation and
///                  attribute, or the operation and the size of the text. Or
///                  whether something is lost cannot be seen, for a dialect
///                  that is used was loaded by its C++ type, or made at run
///                  time, and is not in the context's registry; the message
///                  names it.
///                InvalidArgument - an operation uses a value or branches to a
///                  block that it does not see: from outside of the whole or of
///                  an isolated operation, or from within another region.
///                ResourceExhausted - no thread with the stack that is needed.
absl::StatusOr<SerializedModule>
serialize(mlir::Operation *op, const SerializeOptions &options = {});

struct DeserializeOptions {
  /// Whether the result is verified. Leave it out for bytes that this process
  /// wrote or that a digest vouches for.
  bool verify = true;
};

/// The operation that the bytes are.
///
/// Resources are not copied: they refer to the bytes, which live as long as
/// they do.
///
/// MLIR's reader trusts what it reads more than it should. Before it, the framing
/// of the bytes is walked, and what would make the reader allocate without
/// bounds, write behind a table or never end is refused. What that found is
/// remembered with the bytes: it adds 4 to 8 percent to the first reading without
/// `verify`, more to small modules, and nothing to those that follow. Not kept out
/// are bytes on which MLIR's text parser, the properties of an operation, or, with
/// `verify`, a verifier crash. So check a digest of bytes that come from outside
/// first. test/fuzz/README.md lists what is known.
///
/// Bytes that nest deeply are read on a thread with the stack that they need; the
/// caller's should have 256 KiB. Destroying deep IR takes stack as well.
///
/// Contexts:      that of the result; its diagnostics are in the status and
///                reach no handler.
/// Errors:        InvalidArgument - not bytecode, or not valid; the message
///                  has MLIR's. The context stays usable. Also where the
///                  context does not have an operation with properties that
///                  the writer had registered, or has one that it had not.
///                ResourceExhausted - no thread with the stack that is needed.
absl::StatusOr<mlir::OwningOpRef<mlir::Operation *>>
deserialize(const SerializedModule &module, mlir::MLIRContext &context,
            const DeserializeOptions &options = {});

/// Takes bytes that were written elsewhere. A buffer that is aligned to 4096
/// bytes, as a mapped file is, is kept; any other is copied, for resources have
/// to lie in memory as they are aligned in the file.
///
/// Memory that the buffer does not own, and a mapped file, must stay as they are
/// while the module or a resource of it is in use.
///
/// Errors: InvalidArgument - null, or the bytes do not begin as bytecode does.
absl::StatusOr<SerializedModule>
loadSerialized(std::unique_ptr<llvm::MemoryBuffer> buffer);

/// Reads of a module only the functions, or other symbols, that are asked for.
///
/// Symbols that can be left out are those whose regions are isolated from above,
/// that have no results, and that are no symbol tables, into which others may
/// refer; all others are there from the beginning. So is the whole module where
/// a dialect noted its version in the bytes: the dialect may upgrade what is
/// read, and MLIR lets it do that only once, with what is read first. No dialect
/// of upstream's does.
///
/// With `verify`, what is there from the beginning is verified by `open`, and
/// each other symbol as it is read. Not verified, unless nothing is left out:
/// the module's discardable attributes, for their verifiers may look into any
/// symbol; and the references to other symbols of a symbol that is read later,
/// which the module's verifier would follow. A verifier that looks into another
/// symbol sees one that was not read as empty.
///
/// Not guaranteed: the order of use lists that the bytes have for values in a
/// symbol that was left out first. MLIR's reader does not tell it; the uses are
/// in the order of bytes that have none, the last use first.
///
/// Thread safety: confined to one thread, which is also the one that may use
///                the context. Destroy it before the context.
class LazyModule {
public:
  /// Reads the module operation and the heads of its symbols, which have no
  /// regions yet.
  ///
  /// Errors: as `deserialize`, and
  ///         InvalidArgument - the bytes are not one `builtin.module`; or what is
  ///                           there from the beginning does not verify.
  static absl::StatusOr<std::unique_ptr<LazyModule>>
  open(SerializedModule bytes, mlir::MLIRContext &context,
       const DeserializeOptions &options = {});
  ~LazyModule();
  LazyModule(const LazyModule &) = delete;
  LazyModule &operator=(const LazyModule &) = delete;

  /// The names of the module's symbols, in their order.
  const std::vector<std::string> &getSymbols() const;

  /// Reads the symbol, if it has not been read before, and verifies it if that
  /// was asked for.
  ///
  /// Ownership: the module's.
  /// Errors:    NotFound          - no such symbol.
  ///            InvalidArgument   - its bytes are not valid, or it does not
  ///                                verify. Each call for it says so again, and
  ///                                what is left of it is not to be used.
  ///            ResourceExhausted - no thread with the stack that is needed.
  absl::StatusOr<mlir::Operation *> materialize(llvm::StringRef symbol);

  /// The module with what has been read so far.
  mlir::ModuleOp getModule() const;

  /// Ends the reading, and hands out the module with what has been read; all
  /// other symbols, those that could not be read among them, are erased from it.
  /// No call but the destructor may follow.
  mlir::OwningOpRef<mlir::ModuleOp> release();

private:
  explicit LazyModule(std::unique_ptr<detail::LazyModuleImpl> implementation);
  std::unique_ptr<detail::LazyModuleImpl> impl;
};

} // namespace ctxpool

#endif // CONTEXT_POOL_MODULETRANSFER_H

//===- Fingerprint.h - A digest of IR for every context ---------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A digest of an operation and all that is nested in it, the same in every
/// context and process.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_FINGERPRINT_H
#define CONTEXT_POOL_FINGERPRINT_H

#include "absl/status/statusor.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/StringRef.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace mlir {
class MLIRContext;
class Operation;
} // namespace mlir

namespace ctxpool {

/// A 256-bit digest. A value: 32 bytes, compared and ordered by them.
struct Fingerprint {
  std::array<uint8_t, 32> bytes{};

  /// 64 lower-case hexadecimal digits.
  std::string toHex() const;

  /// The inverse of `toHex`, which takes upper-case digits as well. Nothing for
  /// text that is not exactly 64 hexadecimal digits.
  static std::optional<Fingerprint> fromHex(llvm::StringRef hex);

  friend bool operator==(const Fingerprint &lhs, const Fingerprint &rhs) {
    return lhs.bytes == rhs.bytes;
  }
  friend bool operator!=(const Fingerprint &lhs, const Fingerprint &rhs) {
    return lhs.bytes != rhs.bytes;
  }
  friend bool operator<(const Fingerprint &lhs, const Fingerprint &rhs) {
    return lhs.bytes < rhs.bytes;
  }

  /// For containers in this process; a fingerprint is uniformly distributed.
  friend llvm::hash_code hash_value(const Fingerprint &fingerprint) {
    size_t value;
    std::memcpy(&value, fingerprint.bytes.data(), sizeof(value));
    return value;
  }
  template <typename H>
  friend H AbslHashValue(H state, const Fingerprint &fingerprint) {
    return H::combine(std::move(state), fingerprint.bytes);
  }
};

/// What counts besides the structure, for `fingerprint` and `isEquivalent`
/// alike. Digests for different options never agree.
struct StructuralOptions {
  /// Whether the locations of operations and block arguments count. A location
  /// that is part of an attribute always does.
  bool includeLocations = false;

  /// Whether discardable attributes count: those of an operation that its
  /// definition does not name. Of an unregistered operation, those outside of
  /// its properties (`<{...}>` in text). An operation that was defined at run
  /// time (`DynamicOpDefinition`) names none: all of its attributes are
  /// discardable.
  bool includeDiscardableAttributes = true;

  /// Which names of symbols count. A symbol is an operation with a `sym_name`
  /// directly in a symbol table; a name that does not count is replaced by the
  /// place of the symbol among those of its table, in its definition and in the
  /// references to it. Whatever else spells a name, a string attribute, say, is
  /// left alone. What is not defined below the root counts by name: references
  /// to it, and declarations of it, private as they may be (`@sin` is not
  /// `@cos`). A symbol is known to be defined by a region that is not empty, or,
  /// for the globals of upstream's dialects, by its initial value; every other
  /// counts by name. References within attributes of dialects that are not
  /// registered are text, and count by name.
  enum class Symbols {
    /// All.
    Exact,
    /// All but those with private visibility. The root's own counts. What makes
    /// a symbol private is `sym_visibility` alone: the linkage of LLVM's
    /// functions and globals, say, does not.
    NormalizePrivate,
    /// None, the root's own included.
    NormalizeAll
  } symbols = Symbols::Exact;
};

/// The digest of `op` and everything nested in it.
///
/// Two operations have one digest exactly when `isEquivalent` holds for them.
/// What counts: the name, operands, results, types, successors, regions, blocks
/// and block arguments of every operation, in order; properties, attributes and
/// the contents of resources. What does not: the context and what else it
/// holds, SSA names, the order of use lists, the keys of resources, addresses,
/// in which order dialects were loaded, and how the IR came into being. Values
/// and blocks that are defined above `op` count by first use and type, so that
/// an operation isolated from above has the same digest in every module. An
/// operand or successor that is null, as dropped references leave it, counts as
/// that.
/// Distinct attributes count by first occurrence. A location that is an
/// `OpaqueLoc` counts as its fallback, and a range of one point as that point.
///
/// What was lost before does count as lost:
///   - bytecode before version 5 is written by upstream without the properties
///     that are no attributes (`overflow` of llvm.add, say): what was read from
///     it differs from what was written where these were not the defaults;
///   - a resource whose data was left out (`dense_resource<__elided__>`) has
///     none: all such resources of one type are equal;
///   - an operation or attribute whose dialect was not registered when it was
///     read differs from the one that was read with its dialect.
///
/// Costs: linear in the size of the IR. A `Fingerprinter` is several times as
///        fast where attributes recur between calls. No recursion: any depth.
///
/// Contexts:      `op`'s; only read. Nothing is interned in it, unless an
///                operation has properties and no `BytecodeOpInterface` (none
///                of upstream's), in which case they are converted to an
///                attribute. No operation is created.
/// Thread safety: any number of threads may read one context while nobody
///                changes it.
/// Errors:        FailedPrecondition - an attribute, type or resource cannot be
///                encoded without loss; the message names it. Never a guess.
/// Stability:     the same in every context, process and build that uses one
///                major version of LLVM and one version of this scheme.
///
/// \code
///   absl::StatusOr<ctxpool::Fingerprint> digest =
///       ctxpool::fingerprint(module);
/// \endcode
absl::StatusOr<Fingerprint> fingerprint(mlir::Operation *op,
                                        const StructuralOptions &options = {});

/// Computes fingerprints and remembers the attributes and types that it has
/// met.
///
/// `compute` gives what `fingerprint` gives, faster where attributes recur:
/// about as fast as `mlir::OperationEquivalence::computeHash` for each
/// operation.
///
/// Contexts:      one; every operation must belong to it, although an attribute
///                of another context that found its way into the IR does no
///                harm.
/// Ownership:     must not outlive the context, nor be used after attributes of
///                the context were destroyed. Types and attributes that get a
///                body after their creation are read anew by every call, and
///                so are resources, all of their bytes.
/// Thread safety: confined to one thread at a time.
/// Memory:        about 100 bytes for each attribute and type, and 32 for each
///                value of the largest operation so far.
class Fingerprinter {
public:
  explicit Fingerprinter(mlir::MLIRContext &context);
  ~Fingerprinter();
  Fingerprinter(Fingerprinter &&) noexcept;
  Fingerprinter &operator=(Fingerprinter &&) noexcept;

  /// As `fingerprint`. A failed call leaves the Fingerprinter usable.
  absl::StatusOr<Fingerprint> compute(mlir::Operation *op,
                                      const StructuralOptions &options = {});

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace ctxpool

#endif // CONTEXT_POOL_FINGERPRINT_H

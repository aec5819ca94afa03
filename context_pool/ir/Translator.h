//===- Translator.h - What is what in another context -----------*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Translates attributes, types, operation names and properties of one context
/// into those of another one, each once.
///
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_IR_TRANSLATOR_H
#define CONTEXT_POOL_IR_TRANSLATOR_H

#include "context_pool/codec/Decoder.h"
#include "context_pool/ir/OperationInfo.h"
#include "context_pool/ir/PointerTable.h"
#include "context_pool/ir/ResourceTransfer.h"
#include "context_pool/support/DiagnosticCapture.h"

#include "absl/status/status.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallVector.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace ctxpool::detail {

/// Properties that were translated, by the record of the source's.
struct KnownProperties {
  llvm::SmallVector<uint8_t, 16> bytes;
  llvm::SmallVector<const void *, 4> references;
  /// What owns properties, and destroys them without a look at the context.
  mlir::OperationState state;

  KnownProperties(mlir::Location location, mlir::OperationName name)
      : state(location, name) {}
};

/// An operation name and its counterpart.
struct NameTranslation {
  explicit NameTranslation(mlir::OperationName counterpart)
      : name(counterpart) {}

  mlir::OperationName name;
  OperationInfo source;
  mlir::BytecodeOpInterface::Concept *reader = nullptr;
  /// By a hash of the record.
  llvm::DenseMap<uint64_t, std::unique_ptr<KnownProperties>> properties;
  KnownProperties *last = nullptr;
};

/// Properties for one new operation: known ones, or some made for it.
struct TranslatedProperties {
  mlir::OpaqueProperties properties = nullptr;
  /// Owns what `properties` points to where nobody else does.
  std::optional<mlir::OperationState> state;
  mlir::Attribute attribute;
  /// To be set after the operation was made, from `attribute`.
  bool isDeferred = false;
};

/// Between two contexts, which may be the same: then everything is its own
/// counterpart.
class Translator final : private codec::Parts {
public:
  Translator(mlir::MLIRContext &source, mlir::MLIRContext &destination);
  ~Translator() override;

  mlir::MLIRContext &getDestination() const { return to; }
  bool isIdentity() const { return &from == &to; }

  /// Begins a call. Diagnostics of the destination are captured until `end`.
  void begin(CloneOptions::Resources mode);
  /// Ends it. If it failed, resources that it brought over are taken back.
  void end(bool succeeded);

  /// The source is another context now, at the same address.
  void forgetSource();

  /// The counterpart; null where there is none, see `getStatus`.
  template <typename AttributeOrType>
  AttributeOrType translate(AttributeOrType source) {
    if (isIdentity())
      return source;
    const void **found = known.find(source.getAsOpaquePointer());
    if (found && *found)
      return AttributeOrType::getFromOpaquePointer(*found);
    return AttributeOrType::getFromOpaquePointer(
        build(codec::Reference::to(source)));
  }

  mlir::DictionaryAttr translateDictionary(mlir::DictionaryAttr source) {
    if (source == emptySource)
      return emptyDestination;
    return llvm::cast_or_null<mlir::DictionaryAttr>(
        translate(mlir::Attribute(source)));
  }

  /// The empty one of the destination.
  mlir::DictionaryAttr getEmptyDictionary() const { return emptyDestination; }

  /// Null where there is none, see `getStatus`.
  NameTranslation *translate(mlir::Operation *op) {
    mlir::OperationName name = op->getName();
    if (auto **found = names.find(name.getAsOpaquePointer()))
      return *found;
    return buildName(op);
  }

  /// False: see `getStatus`.
  bool translateProperties(mlir::Operation *op, NameTranslation &name,
                           TranslatedProperties &result);

  const absl::Status &getStatus() const { return status; }

  /// Large attributes that `attributes` has are not counted, and those that are
  /// counted are added: for a destination that outlives the translator.
  void countLargeOnce(llvm::DenseSet<const void *> &attributes) {
    counted = &attributes;
  }

  uint64_t getInternedBytes() const {
    return internedBytes + resources.getBytes();
  }

private:
  /// How many sets of properties are remembered for an operation name.
  static constexpr size_t maxKnownProperties = 512;

  /// How deep `find` recurses. What it needs of the stack is small for any
  /// thread.
  static constexpr unsigned maxDepth = 16;

  const void *build(codec::Reference root);
  void beginAttempt();
  const void *buildWhole(codec::Reference root);
  const void *buildFromInside(codec::Reference root);
  bool setBodies();
  void refuse(codec::Reference source, const char *why);
  const void *buildOnce(codec::Reference source);
  void count(uint64_t bytes, const void *counterpart);
  mlir::Attribute buildDistinct(mlir::DistinctAttr source);
  const void *find(codec::Reference part);
  NameTranslation *buildName(mlir::Operation *op);
  bool translateParts(const codec::Record &record);
  bool readProperties(mlir::Operation *op, NameTranslation &name,
                      TranslatedProperties &result);
  void forget();
  void forgetHolders();
  void capture();
  void fail(const absl::Status &error);
  std::string takeReasons();

  mlir::Attribute find(mlir::Attribute part) override;
  mlir::Type find(mlir::Type part) override;
  absl::Status findResource(const mlir::AsmDialectResourceHandle &handle,
                            mlir::AsmDialectResourceHandle &result) override;
  void addBodyless(mlir::Type part, mlir::Type counterpart) override;

  mlir::MLIRContext &from;
  mlir::MLIRContext &to;
  mlir::DictionaryAttr emptySource, emptyDestination;
  /// The counterparts. Null: not built yet; `openMark`: being built.
  PointerTable<const void *> known;
  static const char openMark;
  /// The counterparts of distinct attributes, also of those that `known` does
  /// not have, as long as what they wrap has the same counterpart.
  llvm::DenseMap<mlir::Attribute, mlir::DistinctAttr> distinct;
  /// What has a resource in it, and what of that this call has built. An
  /// attribute does not tell whether the contents of its resource are others by
  /// now: the next call that meets it builds it anew, which looks.
  llvm::DenseSet<const void *> holders;
  std::vector<const void *> builtHolders;
  /// Whether what is being built has one.
  bool reachesResource = false;
  /// Whether a type has one that got its body after its creation: what has that
  /// type in it may not be among the holders.
  bool bodyReachesResource = false;
  PointerTable<NameTranslation *> names;
  std::vector<std::unique_ptr<NameTranslation>> ownedNames;
  ResourceTransfer resources;
  /// The properties that are being read, and the counterparts of what their
  /// record refers to.
  codec::Record propertiesRecord;
  llvm::SmallVector<codec::Reference, 16> references;
  llvm::SmallVector<mlir::AsmDialectResourceHandle, 1> handles;
  absl::Status status;
  /// While something is built: what has to be built first, what waits for it,
  /// the first error, how deep the recursion is, and whether it came back to
  /// something open.
  llvm::SmallVector<codec::Reference, 4> missing;
  llvm::SmallDenseSet<const void *, 4> incomplete;
  /// What still has to get its body.
  llvm::SmallVector<std::pair<mlir::Type, mlir::Type>, 0> bodyless;
  absl::Status buildError;
  unsigned depth = 0;
  bool isCyclic = false;
  std::optional<DiagnosticCapture> diagnostics;
  uint64_t internedBytes = 0;
  llvm::DenseSet<const void *> *counted = nullptr;
};

} // namespace ctxpool::detail

#endif // CONTEXT_POOL_IR_TRANSLATOR_H

//===- Translator.cpp - What is what in another context -------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ir/Translator.h"

#include "context_pool/codec/RecordReader.h"

#include "absl/strings/str_cat.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace ctxpool::detail {

const char Translator::openMark = 0;

namespace {

/// About what an attribute takes in its context, beside its parts.
uint64_t estimateBytes(codec::Reference source) {
  constexpr uint64_t storage = 64;
  if (source.kind != codec::Reference::Kind::Attribute)
    return storage;
  Attribute attribute = source.getAttribute();
  if (auto string = dyn_cast<StringAttr>(attribute))
    return storage + string.getValue().size();
  if (auto dense = dyn_cast<DenseIntOrFPElementsAttr>(attribute))
    return storage + dense.getRawData().size();
  if (auto array = dyn_cast<DenseArrayAttr>(attribute))
    return storage + array.getRawData().size();
  if (auto array = dyn_cast<ArrayAttr>(attribute))
    return storage + array.size() * sizeof(Attribute);
  if (auto dictionary = dyn_cast<DictionaryAttr>(attribute))
    return storage + dictionary.size() * sizeof(NamedAttribute);
  return storage;
}

uint64_t hashRecord(const codec::Record &record) {
  uint64_t hash = llvm::xxh3_64bits(record.bytes);
  // Most of an operation's optional attributes are absent; those that are there
  // tell records apart well enough.
  for (codec::Reference reference : record.references)
    if (reference.pointer)
      hash = (hash ^ reinterpret_cast<uintptr_t>(reference.pointer)) *
             0x9E3779B97F4A7C15ull;
  // The empty and the tombstone key of the table.
  return hash >> 2;
}

bool isSame(const codec::Record &record, const KnownProperties &known) {
  return record.bytes.size() == known.bytes.size() &&
         record.references.size() == known.references.size() &&
         std::equal(record.bytes.begin(), record.bytes.end(),
                    known.bytes.begin()) &&
         std::equal(record.references.begin(), record.references.end(),
                    known.references.begin(),
                    [](codec::Reference lhs, const void *rhs) {
                      return lhs.pointer == rhs;
                    });
}

} // namespace

Translator::Translator(MLIRContext &source, MLIRContext &destination)
    : from(source), to(destination), emptySource(DictionaryAttr::get(&source)),
      emptyDestination(DictionaryAttr::get(&destination)),
      resources(destination) {}

Translator::~Translator() = default;

void Translator::begin(CloneOptions::Resources mode) {
  status = absl::OkStatus();
  resources.begin(mode);
  forgetHolders();
}

void Translator::end(bool succeeded) {
  if (!succeeded) {
    capture();
    resources.abandon();
    forget();
  }
  diagnostics.reset();
}

void Translator::forget() {
  known.clear();
  names.clear();
  ownedNames.clear();
  bodyless.clear();
  builtHolders.clear();
  bodyReachesResource = false;
  resources.forget();
}

void Translator::forgetHolders() {
  if (bodyReachesResource) {
    forget();
    return;
  }
  for (const void *holder : builtHolders)
    known[holder] = nullptr;
  builtHolders.clear();
}

void Translator::forgetSource() {
  distinct.clear();
  holders.clear();
  forget();
  emptySource = DictionaryAttr::get(&from);
}

void Translator::capture() {
  if (!diagnostics)
    diagnostics.emplace(to);
}

std::string Translator::takeReasons() {
  std::string reasons = diagnostics ? diagnostics->take() : std::string();
  return reasons.empty() ? reasons : ": " + reasons;
}

void Translator::fail(const absl::Status &error) {
  if (status.ok())
    status = absl::Status(error.code(),
                          absl::StrCat(error.message(), takeReasons()));
}

const void *Translator::find(codec::Reference part) {
  if (const void **found = known.find(part.pointer)) {
    if (*found == &openMark) {
      isCyclic = true;
    } else if (*found) {
      reachesResource |= !holders.empty() && holders.contains(part.pointer);
      return *found;
    }
  }
  if (isCyclic || !buildError.ok())
    return nullptr;
  // A second attempt would lack the same.
  if (!incomplete.empty() && incomplete.contains(part.pointer))
    return nullptr;
  // Parts are mostly few and shallow: recursion spares a second attempt.
  const void *result = nullptr;
  if (depth == maxDepth) {
    missing.push_back(part);
  } else {
    ++depth;
    result = buildOnce(part);
    --depth;
  }
  if (!result)
    incomplete.insert(part.pointer);
  return result;
}

Attribute Translator::find(Attribute part) {
  return Attribute::getFromOpaquePointer(find(codec::Reference::to(part)));
}

Type Translator::find(Type part) {
  return Type::getFromOpaquePointer(find(codec::Reference::to(part)));
}

absl::Status Translator::findResource(const AsmDialectResourceHandle &handle,
                                      AsmDialectResourceHandle &result) {
  reachesResource = true;
  return resources.transfer(handle, result);
}

Attribute Translator::buildDistinct(DistinctAttr source) {
  Attribute wrapped = find(source.getReferencedAttr());
  if (!wrapped)
    return {};
  DistinctAttr &counterpart = distinct[source];
  if (!counterpart || counterpart.getReferencedAttr() != wrapped)
    counterpart = DistinctAttr::create(wrapped);
  return counterpart;
}

const void *Translator::buildOnce(codec::Reference source) {
  const void *result = nullptr;
  bool aroundReachesResource = std::exchange(reachesResource, false);
  // Nothing of the builtin dialect can be a part of itself without something of
  // another dialect between.
  bool isBuiltin = false;
  if (source.kind == codec::Reference::Kind::Attribute) {
    Attribute attribute = source.getAttribute();
    isBuiltin = isa<BuiltinDialect>(attribute.getDialect());
    if (!isBuiltin)
      known[source.pointer] = &openMark;
    auto distinctSource = dyn_cast<DistinctAttr>(attribute);
    result = (distinctSource ? buildDistinct(distinctSource)
                             : codec::decode(attribute, to, *this, buildError))
                 .getAsOpaquePointer();
  } else {
    Type type = source.getType();
    isBuiltin = isa<BuiltinDialect>(type.getDialect());
    if (!isBuiltin)
      known[source.pointer] = &openMark;
    result = codec::decode(type, to, *this, buildError).getAsOpaquePointer();
  }
  if (result || !isBuiltin)
    known[source.pointer] = result;
  bool isNew = true;
  if (result && reachesResource) {
    builtHolders.push_back(source.pointer);
    isNew = holders.insert(source.pointer).second;
  }
  reachesResource |= aroundReachesResource;
  if (result && isNew)
    count(estimateBytes(source), result);
  return result;
}

void Translator::count(uint64_t bytes, const void *counterpart) {
  // To look up small ones would cost more than to count them again.
  constexpr uint64_t large = 512;
  if (counted && bytes >= large && !counted->insert(counterpart).second)
    return;
  internedBytes += bytes;
}

const void *Translator::build(codec::Reference root) {
  if (!root.pointer || !status.ok())
    return nullptr;
  capture();
  buildError = absl::OkStatus();
  isCyclic = false;
  const void *result = buildWhole(root);
  return result && setBodies() ? result : nullptr;
}

void Translator::beginAttempt() {
  missing.clear();
  if (!incomplete.empty())
    incomplete.clear();
}

const void *Translator::buildWhole(codec::Reference root) {
  beginAttempt();
  if (const void *result = buildOnce(root))
    return result;
  return buildFromInside(root);
}

void Translator::refuse(codec::Reference source, const char *why) {
  fail(absl::FailedPreconditionError(
      absl::StrCat("cannot build ",
                   source.kind == codec::Reference::Kind::Attribute
                       ? "attribute '" + codec::describe(source.getAttribute())
                       : "type '" + codec::describe(source.getType()),
                   "' in the other context", why)));
}

/// `root` was tried, and parts are missing.
const void *Translator::buildFromInside(codec::Reference root) {
  // What nests deeper than the recursion goes: the innermost parts first.
  SmallVector<codec::Reference, 4> stack{root};
  llvm::SmallDenseSet<const void *, 4> waiting;
  for (bool wasTried = true; !stack.empty(); wasTried = false) {
    codec::Reference source = stack.back();
    if (!wasTried) {
      const void **found = known.find(source.pointer);
      if (found && *found) {
        stack.pop_back();
        continue;
      }
      beginAttempt();
      if (buildOnce(source)) {
        stack.pop_back();
        continue;
      }
    }
    if (!buildError.ok()) {
      fail(buildError);
      return nullptr;
    }
    if (isCyclic) {
      refuse(source, ": it is a part of itself");
      return nullptr;
    }
    if (missing.empty()) {
      refuse(source, "");
      return nullptr;
    }
    waiting.insert(source.pointer);
    for (codec::Reference part : missing) {
      if (waiting.contains(part.pointer)) {
        refuse(source, ": it is a part of itself");
        return nullptr;
      }
      stack.push_back(part);
    }
  }
  return *known.find(root.pointer);
}

void Translator::addBodyless(Type part, Type counterpart) {
  bodyless.push_back({part, counterpart});
}

bool Translator::setBodies() {
  while (!bodyless.empty()) {
    // Others may be added meanwhile.
    auto [source, counterpart] = bodyless.pop_back_val();
    beginAttempt();
    reachesResource = false;
    if (codec::setBody(source, counterpart, *this, buildError)) {
      bodyReachesResource |= reachesResource;
      continue;
    }
    if (!buildError.ok()) {
      fail(buildError);
      return false;
    }
    if (missing.empty()) {
      refuse(codec::Reference::to(source), "");
      return false;
    }
    bodyless.push_back({source, counterpart});
    SmallVector<codec::Reference, 4> parts = std::move(missing);
    for (codec::Reference part : parts) {
      const void **found = known.find(part.pointer);
      if (!(found && *found) && !buildWhole(part))
        return false;
    }
  }
  return true;
}

NameTranslation *Translator::buildName(Operation *op) {
  if (!status.ok())
    return nullptr;
  OperationName source = op->getName();
  if (!isIdentity()) {
    StringRef name = source.getStringRef();
    StringRef dialectName = source.getDialectNamespace();
    Dialect *dialect = codec::loadDialect(to, dialectName);
    bool isKnown = RegisteredOperationName::lookup(name, &to).has_value();
    if (!dialect &&
        (source.isRegistered() || !to.allowsUnregisteredDialects())) {
      fail(codec::missingDialect(dialectName, "operation", name));
      return nullptr;
    }
    if (source.isRegistered() && !isKnown) {
      fail(absl::FailedPreconditionError(
          absl::StrCat("operation '", name.str(),
                       "' is registered in the context of the source and not "
                       "in the destination")));
      return nullptr;
    }
    // As the source keeps its properties is not as the destination takes them.
    if (!source.isRegistered() && isKnown) {
      fail(absl::FailedPreconditionError(
          absl::StrCat("operation '", name.str(),
                       "' is unregistered in the context of the source and "
                       "registered in the destination")));
      return nullptr;
    }
    if (!source.isRegistered() && !isKnown && dialect &&
        !dialect->allowsUnknownOperations() &&
        !to.allowsUnregisteredDialects()) {
      fail(absl::FailedPreconditionError(absl::StrCat(
          "operation '", name.str(),
          "' is not registered, and the destination does not allow it")));
      return nullptr;
    }
  }
  auto made = std::make_unique<NameTranslation>(
      isIdentity() ? source : OperationName(source.getStringRef(), &to));
  made->source = OperationInfo::of(op);
  if (made->source.properties == PropertyKind::Native) {
    made->reader = made->name.getInterface<BytecodeOpInterface>();
    if (!made->reader)
      made->source.properties = PropertyKind::Opaque;
  }
  NameTranslation *result = made.get();
  names[source.getAsOpaquePointer()] = result;
  ownedNames.push_back(std::move(made));
  return result;
}

bool Translator::translateProperties(Operation *op, NameTranslation &name,
                                     TranslatedProperties &result) {
  if (isIdentity()) {
    result.properties = op->getPropertiesStorage();
    return true;
  }
  switch (name.source.properties) {
  case PropertyKind::None:
    return true;
  case PropertyKind::Dictionary:
  case PropertyKind::Opaque: {
    Attribute source = op->getPropertiesAsAttribute();
    if (!source)
      return true;
    result.attribute = translate(source);
    if (!result.attribute)
      return false;
    if (name.source.properties == PropertyKind::Dictionary)
      result.properties = OpaqueProperties(&result.attribute);
    else
      result.isDeferred = true;
    return true;
  }
  case PropertyKind::Native:
    return readProperties(op, name, result);
  }
  return true;
}

bool Translator::translateParts(const codec::Record &record) {
  references.clear();
  handles.clear();
  for (codec::Reference reference : record.references) {
    if (reference.pointer) {
      codec::Reference counterpart = reference;
      if (reference.kind == codec::Reference::Kind::Attribute)
        counterpart = codec::Reference::to(translate(reference.getAttribute()));
      else if (reference.kind == codec::Reference::Kind::Type)
        counterpart = codec::Reference::to(translate(reference.getType()));
      if (!counterpart.pointer)
        return false;
      reference = counterpart;
    }
    references.push_back(reference);
  }
  for (const AsmDialectResourceHandle &handle : record.handles) {
    absl::Status error = findResource(handle, handles.emplace_back());
    if (!error.ok()) {
      fail(error);
      return false;
    }
  }
  return true;
}

bool Translator::readProperties(Operation *op, NameTranslation &name,
                                TranslatedProperties &result) {
  codec::Record &record = propertiesRecord;
  record.clear();
  codec::RecordSink sink(record);
  codec::SinkWriter<codec::RecordSink> writer(sink);
  name.source.writer->writeProperties(name.source.writer, op, writer);
  if (!sink.status.ok()) {
    fail(sink.status);
    return false;
  }

  // Data that a record refers to may be other data at the next call.
  bool isLasting =
      !record.readsResource &&
      llvm::none_of(record.references, [](codec::Reference reference) {
        return reference.kind == codec::Reference::Kind::Bytes;
      });
  uint64_t hash = 0;
  if (isLasting) {
    if (name.last && isSame(record, *name.last)) {
      result.properties = name.last->state.getRawProperties();
      return true;
    }
    hash = hashRecord(record);
    auto found = name.properties.find(hash);
    if (found != name.properties.end() && isSame(record, *found->second)) {
      name.last = found->second.get();
      result.properties = name.last->state.getRawProperties();
      return true;
    }
  }

  size_t knownBefore = known.size();
  if (!translateParts(record))
    return false;

  // What has a part that nothing had before is likely to occur once.
  bool isKept = isLasting && known.size() == knownBefore &&
                name.properties.size() < maxKnownProperties &&
                (holders.empty() || llvm::none_of(
                                        record.references,
                                        [&](codec::Reference part) {
                                          return holders.contains(part.pointer);
                                        }));
  Location unknown = UnknownLoc::get(&to);
  std::unique_ptr<KnownProperties> entry;
  if (isKept)
    entry = std::make_unique<KnownProperties>(unknown, name.name);
  else
    result.state.emplace(unknown, name.name);
  OperationState &state = isKept ? entry->state : *result.state;
  codec::RecordReader reader(record, references, handles, unknown);
  if (failed(name.reader->readProperties(reader, state)) || !reader.isAtEnd()) {
    capture();
    fail(absl::FailedPreconditionError(
        absl::StrCat("operation '", name.name.getStringRef().str(),
                     "' does not read the properties that it writes")));
    return false;
  }
  result.properties = state.getRawProperties();
  if (!isKept)
    return true;
  entry->bytes.assign(record.bytes.begin(), record.bytes.end());
  for (codec::Reference reference : record.references)
    entry->references.push_back(reference.pointer);
  name.last = entry.get();
  name.properties[hash] = std::move(entry);
  return true;
}

} // namespace ctxpool::detail

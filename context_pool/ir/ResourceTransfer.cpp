//===- ResourceTransfer.cpp - Resource blobs in another context -----------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/ir/ResourceTransfer.h"

#include "context_pool/codec/Decoder.h"
#include "context_pool/codec/Encoder.h"
#include "context_pool/support/Fork.h"
#include "context_pool/support/Mutex.h"

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"
#include "llvm/Support/MathExtras.h"

#include <cstring>
#include <memory>
#include <optional>

using namespace mlir;

namespace ctxpool::detail {
namespace {

class SharedData;

/// Guards the table of shared data. A forked child frees what it inherited, and
/// shares anew: it finds the lock free, and the table whole.
Mutex tableMutex;
[[maybe_unused]] const int tableIsHeld = holdAcrossForks<tableMutex>();

/// The data that is shared by now, by its address. Global, for blobs are shared
/// between any contexts: a blob does not tell that its data is shared, and
/// without the table each transfer would put one more layer around the data of
/// the blob.
class SharedDataTable {
public:
  static SharedDataTable &get() {
    // Never destroyed: contexts may live until after the end of main.
    static auto *table = new SharedDataTable();
    return *table;
  }

  /// The shared data of the blob; null if the blob does not own its data.
  std::shared_ptr<SharedData> share(AsmResourceBlob &blob);
  void remove(const char *data, const SharedData *owner);

private:
  struct Entry {
    const SharedData *address = nullptr;
    std::weak_ptr<SharedData> owner;
  };
  llvm::DenseMap<const char *, Entry> entries ABSL_GUARDED_BY(tableMutex);
};

/// Data of blobs in several contexts, freed as its first owner would have.
class SharedData {
public:
  SharedData(ArrayRef<char> blobData, size_t blobAlignment,
             AsmResourceBlob::DeleterFn blobDeleter)
      : data(blobData), alignment(blobAlignment),
        deleter(std::move(blobDeleter)) {}
  ~SharedData() {
    // Before the address can be of other data.
    SharedDataTable::get().remove(data.data(), this);
    deleter(const_cast<char *>(data.data()), data.size(), alignment);
  }
  SharedData(const SharedData &) = delete;
  SharedData &operator=(const SharedData &) = delete;

  size_t size() const { return data.size(); }

private:
  ArrayRef<char> data;
  size_t alignment;
  AsmResourceBlob::DeleterFn deleter;
};

/// What a blob has in place of a deleter: it is destroyed with the blob.
AsmResourceBlob::DeleterFn keep(std::shared_ptr<SharedData> data) {
  return [data = std::move(data)](void *, size_t, size_t) {};
}

std::shared_ptr<SharedData> SharedDataTable::share(AsmResourceBlob &blob) {
  // Declared before the lock: where it is the last reference, its destructor
  // takes the lock itself.
  std::shared_ptr<SharedData> shared;
  MutexLock lock(tableMutex);
  auto found = entries.find(blob.getData().data());
  if (found != entries.end())
    shared = found->second.owner.lock();
  // Whoever owns it, the data is alive and will stay so.
  if (shared && shared->size() == blob.getData().size())
    return shared;
  if (shared || !blob.getDeleter())
    return nullptr;
  // Only the deleter changes. Threads that read the blob do not look at it,
  // and those that share it hold the lock.
  shared = std::make_shared<SharedData>(blob.getData(), blob.getDataAlignment(),
                                        std::move(blob.getDeleter()));
  blob.getDeleter() = keep(shared);
  entries[blob.getData().data()] = {shared.get(), shared};
  return shared;
}

void SharedDataTable::remove(const char *data, const SharedData *owner) {
  MutexLock lock(tableMutex);
  auto found = entries.find(data);
  if (found != entries.end() && found->second.address == owner)
    entries.erase(found);
}

/// The blob of a handle whose context may change it, though the handle is
/// const.
AsmResourceBlob *blobOf(const AsmDialectResourceHandle &handle) {
  return static_cast<DialectResourceBlobManager::BlobEntry *>(
             handle.getResource())
      ->getBlob();
}

/// Hands the contents of a resource that `codec::encodeResource` would read to
/// the dialect of the new context.
class ResourceEntry final : public AsmParsedResourceEntry {
public:
  ResourceEntry(StringRef entryKey, Location where)
      : key(entryKey), location(where) {}

  StringRef getKey() const override { return key; }
  InFlightDiagnostic emitError() const override {
    return mlir::emitError(location);
  }
  AsmResourceEntryKind getKind() const override { return kind; }
  FailureOr<bool> parseAsBool() const override {
    if (kind != AsmResourceEntryKind::Bool)
      return emitError() << "not a boolean resource";
    return !data.empty() && data.front() != 0;
  }
  FailureOr<std::string> parseAsString() const override {
    if (kind != AsmResourceEntryKind::String)
      return emitError() << "not a string resource";
    return std::string(data.begin(), data.end());
  }
  FailureOr<AsmResourceBlob>
  parseAsBlob(BlobAllocatorFn allocator) const override {
    if (kind != AsmResourceEntryKind::Blob)
      return emitError() << "not a resource blob";
    AsmResourceBlob blob = allocator(data.size(), alignment);
    if (!data.empty())
      std::memcpy(blob.getMutableData().data(), data.data(), data.size());
    return blob;
  }

  bool isSame(const ResourceEntry &other) const {
    return kind == other.kind && data == other.data &&
           alignment == other.alignment;
  }

  StringRef key;
  Location location;
  AsmResourceEntryKind kind = AsmResourceEntryKind::Blob;
  std::vector<char> data;
  size_t alignment = 1;
};

const OpAsmDialectInterface *interfaceOf(Dialect *dialect) {
  return dialect->getRegisteredInterface<OpAsmDialectInterface>();
}

/// False where there is nothing.
bool read(const AsmDialectResourceHandle &handle, ResourceEntry &contents) {
  return codec::readResource(
      handle,
      [&](AsmResourceEntryKind kind, ArrayRef<char> data, uint32_t alignment) {
        contents.kind = kind;
        contents.data.assign(data.begin(), data.end());
        contents.alignment = alignment;
      });
}

bool isSameOther(const AsmDialectResourceHandle &source,
                 const AsmDialectResourceHandle &result) {
  ResourceEntry left({}, UnknownLoc::get(source.getDialect()->getContext()));
  ResourceEntry right({}, UnknownLoc::get(result.getDialect()->getContext()));
  return read(source, left) == read(result, right) && left.isSame(right);
}

absl::Status refuse(const AsmDialectResourceHandle &source, const char *why) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot transfer a resource of dialect '",
                   source.getDialect()->getNamespace().str(), "': ", why));
}

} // namespace

bool ResourceTransfer::isCurrent(const Known &entry) {
  if (!entry.isBlob)
    return isSameOther(entry.source, entry.result);
  const AsmResourceBlob *source = blobOf(entry.source);
  const AsmResourceBlob *result = blobOf(entry.result);
  if (!source || !result)
    return !source && !result && entry.isMissing;
  if (entry.isMissing)
    return false;
  auto is = [&](const AsmResourceBlob &blob, const char *data) {
    return blob.getData().size() == entry.size &&
           blob.getDataAlignment() == entry.alignment &&
           (entry.size == 0 || blob.getData().data() == data);
  };
  if (!is(*source, entry.sourceData) || !is(*result, entry.resultData))
    return false;
  // The source may have been written to since it was copied.
  return entry.size == 0 || entry.sourceData == entry.resultData ||
         std::memcmp(entry.sourceData, entry.resultData, entry.size) == 0;
}

void ResourceTransfer::begin(Mode newMode) {
  mode = newMode;
  ++call;
  made.clear();
  otherMade.clear();
  bytesBefore = bytes;
}

absl::Status ResourceTransfer::transfer(const AsmDialectResourceHandle &source,
                                        AsmDialectResourceHandle &result) {
  auto found = known.find(source.getResource());
  if (found != known.end()) {
    Known &entry = found->second;
    // Once a call: nobody changes the contexts meanwhile.
    if (entry.call == call || (entry.mode == mode && isCurrent(entry))) {
      entry.call = call;
      result = entry.result;
      return absl::OkStatus();
    }
  }
  Known entry;
  entry.source = source;
  entry.mode = mode;
  entry.call = call;
  absl::Status status;
  if (auto *blob = dyn_cast<DenseResourceElementsHandle>(&source))
    status = transferBlob(*blob, entry);
  else
    status = transferOther(source, entry);
  if (!status.ok()) {
    known.erase(source.getResource());
    return status;
  }
  known[source.getResource()] = entry;
  result = entry.result;
  return absl::OkStatus();
}

absl::Status
ResourceTransfer::transferBlob(const DenseResourceElementsHandle &source,
                               Known &entry) {
  auto *dialect = context.getLoadedDialect<BuiltinDialect>();
  DialectResourceBlobManager &manager =
      DenseResourceElementsHandle::getManagerInterface(&context)
          .getBlobManager();
  AsmResourceBlob *blob = blobOf(source);
  entry.isBlob = true;
  entry.isMissing = !blob;

  std::shared_ptr<SharedData> shared;
  if (blob) {
    ArrayRef<char> data = blob->getData();
    entry.sourceData = data.data();
    entry.size = data.size();
    entry.alignment = blob->getDataAlignment();
    if (entry.alignment != 0 && !llvm::isPowerOf2_64(entry.alignment))
      return refuse(source, "its alignment is not a power of two");
    if (mode == Mode::Share && !data.empty())
      shared = SharedDataTable::get().share(*blob);
  }

  // The same resource, from an earlier transfer, under the name that MLIR gave
  // it: the key, or the key with a number.
  auto isSame = [&](const AsmResourceBlob *other) {
    if (!blob || !other)
      return !blob && !other;
    if (other->getData().size() != entry.size ||
        other->getDataAlignment() != entry.alignment)
      return false;
    if (shared)
      return other->getData().data() == entry.sourceData;
    // A copy is to be independent of the source, and of who writes to it.
    return !other->isMutable() &&
           (entry.size == 0 ||
            (other->getData().data() != entry.sourceData &&
             std::memcmp(other->getData().data(), entry.sourceData,
                         entry.size) == 0));
  };
  std::string name = source.getKey().str();
  for (size_t number = 1;; ++number) {
    DialectResourceBlobManager::BlobEntry *other = manager.lookup(name);
    if (!other)
      break;
    if (isSame(other->getBlob())) {
      entry.resultData =
          other->getBlob() ? other->getBlob()->getData().data() : nullptr;
      entry.result = DenseResourceElementsHandle(other, dialect);
      return absl::OkStatus();
    }
    name = (source.getKey() + "_" + llvm::Twine(number)).str();
  }

  std::optional<AsmResourceBlob> copy;
  if (shared)
    copy.emplace(blob->getData(), entry.alignment, keep(shared),
                 /*dataIsMutable=*/false);
  else if (blob && blob->getData().empty())
    copy.emplace(ArrayRef<char>(), entry.alignment,
                 AsmResourceBlob::DeleterFn(), /*dataIsMutable=*/false);
  else if (blob)
    copy = HeapAsmResourceBlob::allocateAndCopyWithAlign(
        blob->getData(), std::max<size_t>(entry.alignment, 1),
        /*dataIsMutable=*/false);
  DialectResourceBlobManager::BlobEntry &inserted =
      manager.insert(source.getKey(), std::move(copy));
  made.push_back(&inserted);
  bytes += entry.size;
  if (const AsmResourceBlob *result = inserted.getBlob())
    entry.resultData = result->getData().data();
  entry.result = DenseResourceElementsHandle(&inserted, dialect);
  return absl::OkStatus();
}

absl::Status
ResourceTransfer::transferOther(const AsmDialectResourceHandle &source,
                                Known &entry) {
  StringRef name = source.getDialect()->getNamespace();
  Dialect *dialect = codec::loadDialect(context, name);
  if (!dialect)
    return codec::missingDialect(name, "resource", "of an attribute");
  const OpAsmDialectInterface *reader = interfaceOf(source.getDialect());
  const OpAsmDialectInterface *writer = interfaceOf(dialect);
  if (!reader || !writer)
    return refuse(source, "the dialect has no interface that tells its "
                          "contents");

  std::string key = reader->getResourceKey(source);
  ResourceEntry contents(key, UnknownLoc::get(&context));
  bool hasContents = read(source, contents);
  FailureOr<AsmDialectResourceHandle> declared = writer->declareResource(key);
  if (failed(declared))
    return refuse(source, "the dialect does not declare such a resource");
  // The dialect may have given it another name.
  std::string newKey = writer->getResourceKey(*declared);
  contents.key = newKey;
  entry.result = *declared;
  if (!hasContents)
    return absl::OkStatus();
  // Or it has only one of each name.
  ResourceEntry present(newKey, UnknownLoc::get(&context));
  if (read(*declared, present) && !present.data.empty()) {
    if (present.isSame(contents))
      return absl::OkStatus();
    return refuse(source, "the dialect has another one of its name");
  }
  otherMade.push_back({writer, newKey, contents.kind});
  bytes += contents.data.size();
  if (failed(writer->parseResource(contents)))
    return refuse(source, "the dialect does not read what it writes");
  return absl::OkStatus();
}

void ResourceTransfer::abandon() {
  for (DialectResourceBlobManager::BlobEntry *entry : made)
    if (entry->getBlob())
      entry->setBlob(AsmResourceBlob(ArrayRef<char>(), 1, {}, false));
  made.clear();
  // Only their dialect knows where it keeps these: it is given empty ones.
  for (OtherMade &entry : otherMade) {
    ResourceEntry empty(entry.key, UnknownLoc::get(&context));
    empty.kind = entry.kind;
    (void)entry.interface->parseResource(empty);
  }
  otherMade.clear();
  bytes = bytesBefore;
  known.clear();
}

} // namespace ctxpool::detail

//===- LLVMStore.cpp - One of LLVM's on-disk databases --------------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/LLVMStore.h"

#include "context_pool/cache/FileLock.h"
#include "context_pool/support/Mutex.h"

#include "absl/strings/str_cat.h"
#include "llvm/CAS/ActionCache.h"
#include "llvm/CAS/BuiltinCASContext.h"
#include "llvm/CAS/BuiltinUnifiedCASDatabases.h"
#include "llvm/CAS/ObjectStore.h"
#include "llvm/CAS/OnDiskKeyValueDB.h"
#include "llvm/CAS/UnifiedOnDiskCache.h"
#include "llvm/Support/Error.h"

#include <algorithm>
#include <sys/resource.h>
#include <system_error>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;
namespace cas = llvm::cas;

/// LLVM maps files of this size, most of them a hole.
static constexpr uint64_t largestFile = uint64_t(24) << 30;

static absl::Status toStatus(const char *what, llvm::Error error) {
  std::error_code code;
  std::string text;
  llvm::handleAllErrors(std::move(error), [&](const llvm::ErrorInfoBase &info) {
    code = info.convertToErrorCode();
    absl::StrAppend(&text, text.empty() ? "" : "; ", info.message());
  });
  absl::StatusCode statusCode = absl::StatusCode::kInternal;
  if (code.category() == std::generic_category() ||
      code.category() == std::system_category())
    statusCode = absl::ErrnoToStatusCode(code.value());
  return absl::Status(statusCode,
                      absl::StrCat("LLVM's store: ", what, ": ", text));
}

static cas::CASID toCASID(const Fingerprint &digest) {
  return cas::CASID::create(
      &cas::builtin::BuiltinCASContext::getDefaultContext(),
      llvm::StringRef(reinterpret_cast<const char *>(digest.bytes.data()),
                      digest.bytes.size()));
}

static Fingerprint toFingerprint(const cas::CASID &id) {
  Fingerprint digest;
  llvm::ArrayRef<uint8_t> hash = id.getHash();
  std::copy_n(hash.begin(), std::min(hash.size(), digest.bytes.size()),
              digest.bytes.begin());
  return digest;
}

LLVMStore::LLVMStore(std::unique_ptr<cas::ObjectStore> theObjects,
                     std::unique_ptr<cas::ActionCache> theActions)
    : objects(std::move(theObjects)), actions(std::move(theActions)) {}

LLVMStore::~LLVMStore() = default;

absl::StatusOr<std::unique_ptr<LLVMStore>>
LLVMStore::open(const std::string &folder) {
  // To grow a file beyond this limit raises SIGXFSZ.
  rlimit limit;
  if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < largestFile)
    return absl::FailedPreconditionError(absl::StrCat(
        "the limit on file sizes (RLIMIT_FSIZE) is ", limit.rlim_cur,
        " bytes, and LLVM's store needs ", largestFile, " (mostly holes)"));

  auto databases = cas::createOnDiskUnifiedCASDatabases(folder);
  if (!databases)
    return toStatus("opening it", databases.takeError());
  return std::unique_ptr<LLVMStore>(
      new LLVMStore(std::move(databases->first), std::move(databases->second)));
}

absl::StatusOr<std::optional<llvm::StringRef>>
LLVMStore::load(const cas::CASID &id) const {
  std::optional<cas::ObjectRef> reference = objects->getReference(id);
  if (!reference)
    return std::optional<llvm::StringRef>();
  llvm::Expected<cas::ObjectProxy> object = objects->getProxy(*reference);
  if (!object)
    return toStatus("reading an object", object.takeError());
  return std::optional<llvm::StringRef>(object->getData());
}

absl::StatusOr<std::optional<llvm::StringRef>>
LLVMStore::load(const Fingerprint &object) const {
  return load(toCASID(object));
}

absl::StatusOr<std::optional<llvm::StringRef>>
LLVMStore::find(const Fingerprint &action) const {
  llvm::Expected<std::optional<cas::CASID>> id =
      actions->get(cas::CacheKey(toCASID(action)));
  if (!id)
    return toStatus("looking a key up", id.takeError());
  if (!*id)
    return std::optional<llvm::StringRef>();
  absl::StatusOr<std::optional<llvm::StringRef>> object = load(**id);
  if (object.ok() && !*object)
    return absl::DataLossError("LLVM's store: a key without its object");
  return object;
}

absl::StatusOr<Fingerprint> LLVMStore::store(llvm::StringRef bytes) {
  llvm::Expected<cas::ObjectRef> object =
      objects->storeFromString(/*Refs=*/{}, bytes);
  if (!object)
    return toStatus("storing an object", object.takeError());
  return toFingerprint(objects->getID(*object));
}

absl::Status LLVMStore::publish(const Fingerprint &action,
                                const Fingerprint &object) {
  if (llvm::Error error =
          actions->put(cas::CacheKey(toCASID(action)), toCASID(object)))
    return toStatus("publishing a key", std::move(error));
  return absl::OkStatus();
}

uint64_t LLVMStore::getStorageBytes() const {
  llvm::Expected<std::optional<uint64_t>> size = objects->getStorageSize();
  if (!size) {
    llvm::consumeError(size.takeError());
    return 0;
  }
  return size->value_or(0);
}

//===----------------------------------------------------------------------===//
// The folder
//===----------------------------------------------------------------------===//

llvm::ArrayRef<const char *> LLVMStore::getControlFiles() {
  static constexpr const char *files[] = {"v1.1/actions.v1", "v1.1/index.v1",
                                          "v1.1/data.v1"};
  return files;
}

bool LLVMStore::wouldBlock(const std::string &folder) {
  auto isHeld = [&](const std::string &name) {
    absl::StatusOr<FileLock> lock =
        FileLock::open(absl::StrCat(folder, "/", name), FileLock::Existing);
    if (!lock.ok())
      return false;
    absl::StatusOr<bool> shared = lock->tryLock(FileLock::Shared);
    return shared.ok() && !*shared;
  };
  if (isHeld("lock"))
    return true;
  return llvm::any_of(getControlFiles(), [&](const char *file) {
    return isHeld(file) || isHeld(absl::StrCat(file, ".shared"));
  });
}

absl::Status LLVMStore::validate(const std::string &folder) {
  llvm::Expected<cas::ValidationResult> result =
      cas::validateOnDiskUnifiedCASDatabasesIfNeeded(
          folder, /*CheckHash=*/true, /*AllowRecovery=*/false,
          /*ForceValidation=*/true, /*LLVMCasBinaryPath=*/std::nullopt);
  if (!result)
    return toStatus("validating it", result.takeError());
  return absl::OkStatus();
}

absl::Status
LLVMStore::forEachPublished(const std::string &folder,
                            llvm::function_ref<void(llvm::StringRef)> visit) {
  using cas::ondisk::UnifiedOnDiskCache;
  // The action cache cannot be enumerated through its interface.
  llvm::Expected<std::unique_ptr<UnifiedOnDiskCache>> cache =
      UnifiedOnDiskCache::open(folder, /*SizeLimit=*/std::nullopt,
                               cas::builtin::BuiltinCASContext::getHashName(),
                               sizeof(cas::builtin::HashType));
  if (!cache)
    return toStatus("opening it for a list", cache.takeError());

  cas::ondisk::OnDiskGraphDB &objects = (*cache)->getGraphDB();
  // LLVM visits the table on several threads at once.
  Mutex oneAtATime;
  llvm::Error error = (*cache)->getKeyValueDB().validate(
      [&](cas::FileOffset, llvm::ArrayRef<char> value) {
        llvm::Expected<std::optional<cas::ondisk::ObjectHandle>> object =
            objects.load(UnifiedOnDiskCache::getObjectIDFromValue(value));
        if (!object)
          llvm::consumeError(object.takeError());
        MutexLock lock(oneAtATime);
        visit(object && *object
                  ? llvm::toStringRef(objects.getObjectData(**object))
                  : llvm::StringRef());
        return llvm::Error::success();
      });
  if (error)
    return toStatus("listing it", std::move(error));
  return absl::OkStatus();
}

//===- DiskTier.cpp - Artifacts in a folder that processes share ----------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/DiskTier.h"

#include "absl/strings/str_cat.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/xxhash.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <unistd.h>
#include <utility>

using namespace ctxpool;
using namespace ctxpool::detail;
namespace endian = llvm::support::endian;

/// How often a key can be published in one generation.
static constexpr unsigned maxSlots = 16;

/// LLVM gives an object of 64 kB a file of its own; smaller ones are together in
/// one file, and there the header and the bytes need not be apart.
static constexpr uint64_t largestInlined = 60000;

static constexpr absl::Duration longestRest = absl::Minutes(1);

//===----------------------------------------------------------------------===//
// What is stored
//===----------------------------------------------------------------------===//

namespace {
/// Precedes the bytes, or stands alone and names the object that they are. All
/// numbers are little-endian; the parts follow each other without gaps, and then
/// zeros up to a multiple of 8.
struct Header {
  CacheKey key;
  Fingerprint digest;  ///< Of the bytes.
  Fingerprint meaning; ///< `Artifact::getMeaning`.
  Fingerprint payload; ///< The object of the bytes; zeros: they follow.
  absl::Duration compileCost;
  uint64_t bytes = 0;
  uint64_t slot = 0;
  std::string kind;

  /// The header and what follows it.
  std::string encode(llvm::StringRef following = {}) const;

  /// Takes the header off `object`. Nothing where it is damaged.
  static std::optional<Header> consume(llvm::StringRef &object);
};
} // namespace

static constexpr llvm::StringLiteral magic = "ctxpool1"; // 8 bytes

std::string Header::encode(llvm::StringRef following) const {
  std::string text = magic.str() + std::string(8, '\0');
  text.reserve(256 + kind.size() + following.size());
  auto append = [&](uint64_t number) {
    char bytes[8];
    endian::write64le(bytes, number);
    text.append(bytes, sizeof(bytes));
  };
  for (const Fingerprint *part : {&key.digest, &digest, &meaning, &payload})
    text.append(part->bytes.begin(), part->bytes.end());
  append(absl::ToInt64Nanoseconds(compileCost));
  append(bytes);
  append(slot);
  append(kind.size());
  text += kind;
  text.resize(llvm::alignTo(text.size(), 8));

  endian::write64le(&text[magic.size()],
                    llvm::xxh3_64bits(llvm::StringRef(text).drop_front(16)));
  text += following;
  return text;
}

std::optional<Header> Header::consume(llvm::StringRef &object) {
  constexpr size_t fixedSize = 4 * sizeof(Fingerprint) + 4 * sizeof(uint64_t);
  if (!object.consume_front(magic) || object.size() < 8 + fixedSize)
    return std::nullopt;
  const uint64_t check = endian::read64le(object.data());
  llvm::StringRef rest = object.drop_front(8);
  llvm::StringRef text = rest;

  Header header;
  for (Fingerprint *part :
       {&header.key.digest, &header.digest, &header.meaning, &header.payload}) {
    std::memcpy(part->bytes.data(), text.data(), sizeof(part->bytes));
    text = text.drop_front(sizeof(part->bytes));
  }
  uint64_t cost = 0;
  uint64_t kindSize = 0;
  for (uint64_t *number : {&cost, &header.bytes, &header.slot, &kindSize}) {
    *number = endian::read64le(text.data());
    text = text.drop_front(8);
  }
  if (kindSize > text.size())
    return std::nullopt;
  header.compileCost = absl::Nanoseconds(static_cast<int64_t>(cost));
  header.kind = text.take_front(kindSize).str();

  const uint64_t size = llvm::alignTo(fixedSize + kindSize, 8);
  if (size > rest.size() || llvm::xxh3_64bits(rest.take_front(size)) != check)
    return std::nullopt;
  object = rest.drop_front(size);
  return header;
}

/// What the action cache knows a slot of a key by. A key is a digest, so another
/// one's last bits make it another's as seldom as any.
static Fingerprint getAction(const CacheKey &key, unsigned slot) {
  Fingerprint action = key.digest;
  action.bytes.back() ^= static_cast<uint8_t>(slot);
  return action;
}

/// Whether a fault of LLVM's store is one of the object that was asked for.
static bool isObjectDamaged(const absl::Status &status) {
  return absl::IsNotFound(status) || absl::IsInvalidArgument(status) ||
         absl::IsDataLoss(status);
}

static bool isSame(const Artifact &lhs, const Artifact &rhs) {
  return lhs.getKind() == rhs.getKind() && lhs.getDigest() == rhs.getDigest() &&
         lhs.getMeaning() == rhs.getMeaning();
}

//===----------------------------------------------------------------------===//
// Reading and writing
//===----------------------------------------------------------------------===//

absl::StatusOr<DiskTier::Found>
DiskTier::find(const std::shared_ptr<Generation> &generation,
               const CacheKey &key) {
  const LLVMStore &store = generation->getStore();
  Found found;
  llvm::StringRef object;
  for (unsigned slot = 0; slot < maxSlots; ++slot) {
    absl::StatusOr<std::optional<llvm::StringRef>> taken =
        store.find(getAction(key, slot));
    if (!taken.ok() && !isObjectDamaged(taken.status()))
      return taken.status();
    if (taken.ok() && !*taken)
      break;
    found.presence = Presence::Damaged;
    found.slot = slot;
    object = taken.ok() ? **taken : llvm::StringRef();
  }
  if (found.presence == Presence::Missing)
    return found;

  std::optional<Header> header = Header::consume(object);
  if (!header || header->key != key || header->slot != found.slot)
    return found;
  if (header->payload != Fingerprint()) {
    absl::StatusOr<std::optional<llvm::StringRef>> payload =
        store.load(header->payload);
    if (!payload.ok() && !isObjectDamaged(payload.status()))
      return payload.status();
    if (!payload.ok() || !*payload)
      return found;
    object = **payload;
    // See `putInto`.
    header->bytes += found.slot;
  }
  if (object.size() != header->bytes)
    return found;
  if (header->payload != Fingerprint())
    object = object.drop_back(found.slot);

  Artifact artifact = Artifact::adopt(header->kind, object, generation);
  if (artifact.getDigest() != header->digest)
    return found;
  if (header->meaning != header->digest)
    artifact = artifact.withMeaning(header->meaning);
  if (header->compileCost != absl::ZeroDuration())
    artifact = artifact.withCompileCost(header->compileCost);
  found.presence = Presence::Valid;
  found.artifact = std::move(artifact);
  return found;
}

absl::StatusOr<std::optional<Artifact>> DiskTier::get(const CacheKey &key) {
  absl::StatusOr<std::shared_ptr<const OpenDirectory>> acquired = acquire();
  if (!acquired.ok())
    return acquired.status();
  const OpenDirectory &open = **acquired;

  absl::StatusOr<Found> found = find(open.getCurrent(), key);
  bool isOld = false;
  if (found.ok() && found->presence == Presence::Missing &&
      open.getPrevious()) {
    found = find(open.getPrevious(), key);
    isOld = true;
  }
  if (!found.ok())
    return found.status();
  if (found->presence == Presence::Damaged)
    ++rejected;
  // What is used outlives the generation. Where that fails, it is used all the
  // same.
  if (found->presence == Presence::Valid && isOld && !options.readOnly)
    putInto(open, key, *found->artifact, /*replace=*/false).IgnoreError();
  return std::move(found->artifact);
}

absl::Status DiskTier::put(const CacheKey &key, const Artifact &artifact,
                           bool replace) {
  absl::StatusOr<std::shared_ptr<const OpenDirectory>> acquired = acquire();
  if (!acquired.ok())
    return acquired.status();
  return putInto(**acquired, key, artifact, replace);
}

absl::Status DiskTier::putInto(const OpenDirectory &open, const CacheKey &key,
                               const Artifact &artifact, bool replace) {
  if (artifact.getBytes().size() > getMaxArtifactBytes())
    return absl::ResourceExhaustedError(absl::StrCat(
        "an artifact of ", artifact.getBytes().size(), " bytes is more than '",
        options.directory, "' may hold: half of ", options.directoryBytes));

  absl::StatusOr<Found> found = find(open.getCurrent(), key);
  if (!found.ok())
    return found.status();
  if (found->presence == Presence::Valid &&
      (!replace || isSame(*found->artifact, artifact)))
    return absl::OkStatus();
  unsigned slot = found->presence == Presence::Missing ? 0 : found->slot + 1;

  // What is kept may be older than what is offered.
  Artifact stored = artifact;
  if (found->presence == Presence::Missing && !replace && open.getPrevious()) {
    absl::StatusOr<Found> old = find(open.getPrevious(), key);
    if (old.ok() && old->presence == Presence::Valid)
      stored = *old->artifact;
  }
  const llvm::StringRef bytes = stored.getBytes();

  absl::StatusOr<std::optional<FileLock>> room =
      directory.makeRoom(bytes.size(), [&] { return stopping.load(); });
  if (!room.ok())
    return room.status();

  LLVMStore &store = open.getCurrent()->getStore();
  Header header;
  header.key = key;
  header.digest = stored.getDigest();
  header.meaning = stored.getMeaning();
  header.compileCost = stored.getCompileCost();
  header.bytes = bytes.size();
  header.kind = stored.getKind().str();
  absl::Status published;
  for (; slot < maxSlots; ++slot) {
    header.slot = slot;
    std::string object;
    if (bytes.size() > largestInlined) {
      // LLVM has the same bytes already, perhaps damaged: the first slot's end
      // with the artifact, the next one's with a zero more, and so on.
      absl::StatusOr<Fingerprint> payload =
          slot == 0 ? store.store(bytes)
                    : store.store(bytes.str() + std::string(slot, '\0'));
      if (!payload.ok())
        return payload.status();
      header.payload = *payload;
      object = header.encode();
    } else {
      object = header.encode(bytes);
    }
    absl::StatusOr<Fingerprint> id = store.store(object);
    if (!id.ok())
      return id.status();
    published = store.publish(getAction(key, slot), *id);
    if (published.ok())
      break;
    // Another one may have been faster.
    absl::StatusOr<std::optional<llvm::StringRef>> taken =
        store.find(getAction(key, slot));
    if (taken.ok() && !*taken)
      return published;
    if (!replace)
      return absl::OkStatus();
  }

  if (slot == maxSlots ||
      store.getStorageBytes() > options.directoryBytes / 2) {
    MutexLock lock(mutex);
    fullGeneration = open.getCurrent()->getNumber();
    if (wanted == Task::None)
      wanted = Task::Rotate;
    toWorker.notifyOne();
  }
  if (slot == maxSlots)
    return absl::ResourceExhaustedError(
        absl::StrCat("key ", key.digest.toHex(), " was published ", maxSlots,
                     " times; the next time it goes into a new store"));
  return absl::OkStatus();
}

//===----------------------------------------------------------------------===//
// One compile per key
//===----------------------------------------------------------------------===//

namespace {
class FileClaim final : public CompileClaim {
public:
  FileClaim(std::string thePath, FileLock theLock)
      : path(std::move(thePath)), lock(std::move(theLock)) {}

  /// Only who holds the lock may delete the file; who waits for the lock finds
  /// that its file is gone, and opens the next one.
  ~FileClaim() override {
    if (!lock.isInherited() && lock.isAt(path))
      (void)::unlink(path.c_str());
  }

private:
  const std::string path;
  const FileLock lock;
};
} // namespace

absl::StatusOr<std::unique_ptr<CompileClaim>>
DiskTier::claim(const CacheKey &key) {
  using Clock = CondVar::Clock;
  if (options.readOnly)
    return std::unique_ptr<CompileClaim>();
  absl::StatusOr<std::shared_ptr<const OpenDirectory>> acquired = acquire();
  if (!acquired.ok())
    return acquired.status();
  absl::StatusOr<std::string> path = directory.getClaimPath(key.digest);
  if (!path.ok())
    return path.status();

  const Clock::time_point begin = Clock::now();
  while (true) {
    absl::StatusOr<FileLock> lock = FileLock::open(*path);
    if (!lock.ok())
      return lock.status();
    absl::StatusOr<bool> locked = lock->tryLockFor(
        FileLock::Exclusive,
        options.crossProcessWait - absl::FromChrono(Clock::now() - begin),
        [&] { return stopping.load(); });
    if (!locked.ok())
      return locked.status();
    if (!*locked)
      return std::unique_ptr<CompileClaim>();
    if (!lock->isAt(*path))
      continue;

    auto claim = std::make_unique<FileClaim>(*path, *std::move(lock));
    // The one before may have published since the caller looked.
    absl::StatusOr<bool> isThere = contains(key);
    if (!isThere.ok())
      return isThere.status();
    if (*isThere)
      return std::unique_ptr<CompileClaim>();
    return claim;
  }
}

absl::StatusOr<bool> DiskTier::contains(const CacheKey &key) const {
  absl::StatusOr<std::shared_ptr<const OpenDirectory>> acquired = acquire();
  if (!acquired.ok())
    return acquired.status();
  for (const std::shared_ptr<Generation> &generation :
       {(*acquired)->getCurrent(), (*acquired)->getPrevious()}) {
    if (!generation)
      continue;
    absl::StatusOr<Found> found = find(generation, key);
    if (!found.ok())
      return found.status();
    if (found->presence != Presence::Missing)
      return found->presence == Presence::Valid;
  }
  return false;
}

//===----------------------------------------------------------------------===//
// The worker
//===----------------------------------------------------------------------===//

DiskTier::DiskTier(DiskTierOptions theOptions)
    : options(std::move(theOptions)),
      directory({options.directory, options.allowForeignDirectory,
                 options.lockWait, options.lookInterval,
                 options.validationWait}),
      rest(options.retryAfter) {}

absl::StatusOr<std::unique_ptr<DiskTier>>
DiskTier::create(DiskTierOptions options) {
  if (options.directory.empty())
    return absl::InvalidArgumentError("directory is empty");
  if (options.directoryBytes < minDirectoryBytes)
    return absl::InvalidArgumentError(
        absl::StrCat("directoryBytes is ", options.directoryBytes,
                     ", expected at least ", minDirectoryBytes));
  for (auto [name, duration] :
       {std::pair("crossProcessWait", options.crossProcessWait),
        {"lockWait", options.lockWait},
        {"lookInterval", options.lookInterval},
        {"validationWait", options.validationWait},
        {"retryAfter", options.retryAfter}})
    if (duration < absl::ZeroDuration())
      return absl::InvalidArgumentError(
          absl::StrCat(name, " is ", absl::FormatDuration(duration),
                       ", expected 0 or more"));

  // The process may go elsewhere. Where nobody can say what the path means, for
  // where the process is has been deleted, each call is a fault.
  llvm::SmallString<128> absolute(options.directory);
  if (!llvm::sys::fs::make_absolute(absolute))
    options.directory = absolute.str().str();

  auto tier = std::unique_ptr<DiskTier>(new DiskTier(std::move(options)));
  if (absl::Status status = tier->directory.checkTrust(); !status.ok())
    return status;
  absl::StatusOr<Thread> worker = Thread::start(
      Thread::compilerStackBytes, [raw = tier.get()] { raw->work(); });
  if (!worker.ok())
    return worker.status();
  tier->worker = *std::move(worker);
  return tier;
}

DiskTier::~DiskTier() {
  {
    MutexLock lock(mutex);
    stopping = true;
    toWorker.notifyOne();
  }
  worker.reset();
}

absl::StatusOr<std::shared_ptr<const OpenDirectory>> DiskTier::acquire() const {
  if (mark.isInherited())
    return bring(Task::Open);
  std::shared_ptr<const OpenDirectory> current;
  {
    MutexLock lock(mutex);
    current = opened;
  }
  if (current && !current->isOutdated(options.lookInterval))
    return current;
  if (absl::Status status = bring(Task::Open); !status.ok())
    return status;
  MutexLock lock(mutex);
  if (!opened)
    return absl::UnavailableError(
        absl::StrCat("'", options.directory, "' is being opened"));
  return opened;
}

absl::Status DiskTier::bring(Task task) const {
  using Clock = CondVar::Clock;
  if (mark.isInherited())
    return absl::FailedPreconditionError(
        "the cache's folder was opened before a fork, by another process");
  MutexLock lock(mutex);
  if (task == Task::Open && !lastResult.ok()) {
    // Nobody waits for what failed the last time.
    if (wanted == Task::None && !working && Clock::now() >= restUntil) {
      wanted = task;
      toWorker.notifyOne();
    }
    return lastResult;
  }
  wanted = std::max(wanted, task);
  toWorker.notifyOne();
  const Clock::time_point deadline =
      Clock::now() + absl::ToChronoNanoseconds(2 * options.lockWait);
  while (wanted != Task::None || working)
    if (!fromWorker.waitUntil(mutex, deadline))
      return absl::DeadlineExceededError(
          absl::StrCat("opening '", options.directory, "' takes long"));
  return lastResult;
}

void DiskTier::work() {
  MutexLock lock(mutex);
  while (true) {
    while (wanted == Task::None && !stopping)
      toWorker.wait(mutex);
    if (stopping)
      return;
    Task task = std::exchange(wanted, Task::None);
    std::shared_ptr<const OpenDirectory> before = opened;
    const uint64_t full = fullGeneration;
    // What is cleared is not served while that lasts, nor if it fails.
    if (task == Task::Clear)
      opened.reset();
    working = true;
    lock.unlock();

    auto giveUp = [&] { return stopping.load(); };
    absl::Status started;
    if (task == Task::Clear) {
      started = directory
                    .startGeneration(/*keepCurrent=*/false,
                                     /*expected=*/std::nullopt, giveUp)
                    .status();
      // Who clears may be in need of the room.
      before.reset();
      directory.collectGarbage().IgnoreError();
    } else if (task == Task::Rotate && before &&
               before->getCurrent()->getNumber() == full) {
      // Before anybody deletes them.
      const uint64_t unused = countUnused(*before);
      // Where that fails, the current one goes on growing, and is full again
      // with the next artifact. Another process may have been faster.
      absl::StatusOr<bool> replaced =
          directory.startGeneration(/*keepCurrent=*/true, full, giveUp);
      if (replaced.ok() && *replaced)
        evictions += unused;
    }
    absl::StatusOr<std::shared_ptr<const OpenDirectory>> after = before;
    if (!before || before->isOutdated(absl::ZeroDuration()))
      after = directory.open(giveUp);

    lock.lock();
    lastResult = started.ok() ? after.status() : started;
    opened = after.ok() ? *after : nullptr;
    if (lastResult.ok()) {
      rest = options.retryAfter;
    } else {
      restUntil = CondVar::Clock::now() + absl::ToChronoNanoseconds(rest);
      rest = std::min(2 * rest, longestRest);
    }
    working = false;
    fromWorker.notifyAll();
    lock.unlock();

    // Closes the store unless an artifact is still mapped.
    before.reset();
    after = absl::CancelledError();
    // What cannot be deleted now is found again the next time.
    directory.collectGarbage().IgnoreError();
    lock.lock();
  }
}

/// The keys of the previous generation that the current one does not have.
uint64_t DiskTier::countUnused(const OpenDirectory &open) {
  if (!open.getPrevious())
    return 0;
  const LLVMStore &current = open.getCurrent()->getStore();
  uint64_t count = 0;
  // What cannot be read is not counted.
  LLVMStore::forEachPublished(
      open.getPrevious()->getStoreFolder(),
      [&](llvm::StringRef object) {
        std::optional<Header> header = Header::consume(object);
        if (!header || header->slot != 0)
          return;
        absl::StatusOr<std::optional<llvm::StringRef>> kept =
            current.find(getAction(header->key, 0));
        if (kept.ok() && !*kept)
          ++count;
      })
      .IgnoreError();
  return count;
}

//===----------------------------------------------------------------------===//
// For people
//===----------------------------------------------------------------------===//

absl::Status DiskTier::clear() { return bring(Task::Clear); }

absl::Status DiskTier::collectGarbage() { return directory.collectGarbage(); }

bool DiskTier::isCache(llvm::StringRef directory) {
  return CacheDirectory::isCache(directory);
}

absl::StatusOr<std::vector<TierEntry>> DiskTier::list() const {
  uint64_t unreadable;
  return list(unreadable);
}

/// `unreadable`: how many were damaged so that they do not say what they are.
absl::StatusOr<std::vector<TierEntry>>
DiskTier::list(uint64_t &unreadable) const {
  unreadable = 0;
  absl::StatusOr<std::shared_ptr<const OpenDirectory>> acquired = acquire();
  if (!acquired.ok())
    return acquired.status();

  // A key of the current generation hides that of the previous one.
  std::map<Fingerprint, std::pair<uint64_t, TierEntry>> found;
  for (const std::shared_ptr<Generation> &generation :
       {(*acquired)->getPrevious(), (*acquired)->getCurrent()}) {
    if (!generation)
      continue;
    std::map<Fingerprint, std::pair<uint64_t, TierEntry>> here;
    absl::Status status = LLVMStore::forEachPublished(
        generation->getStoreFolder(), [&](llvm::StringRef object) {
          std::optional<Header> header = Header::consume(object);
          if (!header) {
            ++unreadable;
            return;
          }
          auto &[slot, entry] = here[header->key.digest];
          if (header->slot < slot)
            return;
          slot = header->slot;
          entry = {header->key, header->kind, header->bytes,
                   header->compileCost};
        });
    if (!status.ok())
      return status;
    here.merge(found);
    found = std::move(here);
  }
  std::vector<TierEntry> entries;
  entries.reserve(found.size());
  for (auto &[key, entry] : found)
    entries.push_back(std::move(entry.second));
  return entries;
}

absl::StatusOr<TierVerification> DiskTier::verify() const {
  uint64_t unreadable;
  absl::StatusOr<std::vector<TierEntry>> entries = list(unreadable);
  if (!entries.ok())
    return entries.status();
  TierVerification verification;
  verification.entries = entries->size() + unreadable;
  verification.damaged.resize(unreadable);
  for (TierEntry &entry : *entries) {
    absl::StatusOr<bool> valid = contains(*entry.key);
    if (!valid.ok())
      return valid.status();
    if (!*valid)
      verification.damaged.push_back(std::move(entry));
  }
  return verification;
}

CacheTierStats DiskTier::getStats() const {
  CacheTierStats stats;
  stats.rejected = rejected;
  stats.evictions = evictions;
  absl::StatusOr<std::vector<TierEntry>> entries = list();
  if (entries.ok())
    stats.entries = entries->size();
  std::shared_ptr<const OpenDirectory> open;
  {
    MutexLock lock(mutex);
    open = opened;
  }
  if (!open)
    return stats;
  for (const std::shared_ptr<Generation> &generation :
       {open->getCurrent(), open->getPrevious()})
    if (generation)
      stats.bytes += generation->getStore().getStorageBytes();
  return stats;
}

//===- DiskTier.cpp - Artifacts in a folder that processes share ----------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/DiskTier.h"

#include "context_pool/cache/StoredArtifact.h"

#include "absl/strings/str_cat.h"
#include "llvm/ADT/STLExtras.h"
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

/// A store with less than that in it, of which LLVM's empty tables are 16,736
/// bytes, is not replaced: that would gain nothing, and cost what is in the store
/// before it.
static constexpr uint64_t emptyStoreBytes = 20000;

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

absl::Status DiskTier::checkWritable(const char *what) const {
  if (!options.readOnly)
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": '", options.directory, "' is only read"));
}

absl::StatusOr<DiskTier::Found>
DiskTier::findIn(const std::shared_ptr<Generation> &generation,
                 const CacheKey &key, Bytes bytes) {
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
    // See `write`.
    header->bytes += found.slot;
  }
  if (object.size() != header->bytes)
    return found;
  if (header->payload != Fingerprint())
    object = object.drop_back(found.slot);

  found.artifact = restoreArtifact(
      bytes == Bytes::Mapped ? Artifact::adopt(header->kind, object, generation)
                             : Artifact::copyOf(header->kind, object),
      header->digest, header->meaning, header->compileCost);
  if (found.artifact)
    found.presence = Presence::Valid;
  return found;
}

absl::StatusOr<DiskTier::Found>
DiskTier::findIn(const OpenDirectory &open, const CacheKey &key, Bytes bytes) {
  for (const std::shared_ptr<Generation> &generation :
       {open.getCurrent(), open.getPrevious()}) {
    if (!generation)
      continue;
    absl::StatusOr<Found> found = findIn(generation, key, bytes);
    if (found.ok() && found->presence == Presence::Missing)
      continue;
    if (found.ok())
      found->isOld = generation == open.getPrevious();
    return found;
  }
  return Found();
}

absl::StatusOr<DiskTier::Found> DiskTier::lookUp(const CacheKey &key,
                                                 Bytes bytes) const {
  // The files of a generation that others have replaced are deleted while it is
  // open here: what is missing then is not damaged.
  absl::Duration lookInterval = options.lookInterval;
  absl::StatusOr<Found> found = Found();
  for (unsigned looks = 0; looks != 2; ++looks) {
    absl::StatusOr<Directory> open = acquire(lookInterval);
    if (!open.ok())
      return open.status();
    found = findIn(**open, key, bytes);
    if ((found.ok() && found->presence != Presence::Damaged) ||
        !(*open)->isOutdated(absl::ZeroDuration()))
      return found;
    lookInterval = absl::ZeroDuration();
  }
  // Replaced again meanwhile.
  return found.ok() ? Found() : found;
}

absl::StatusOr<TierFound> DiskTier::find(const CacheKey &key) {
  absl::StatusOr<Found> found =
      lookUp(key, mayMap() ? Bytes::Mapped : Bytes::Copied);
  if (!found.ok())
    return found.status();
  if (found->presence == Presence::Damaged)
    ++rejected;
  return TierFound{std::move(found->artifact), found->isOld};
}

/// What `put` has to write; nothing where what is there stays.
absl::StatusOr<std::optional<DiskTier::Plan>>
DiskTier::plan(const OpenDirectory &open, const CacheKey &key,
               const Artifact &artifact, bool replace) {
  absl::StatusOr<Found> found = findIn(open.getCurrent(), key, Bytes::Mapped);
  if (!found.ok())
    return found.status();
  if (found->presence == Presence::Valid &&
      (!replace || isSame(*found->artifact, artifact)))
    return std::optional<Plan>();
  if (found->presence != Presence::Missing)
    return Plan{artifact, found->slot + 1};

  // What is kept may be older than what is offered.
  if (!replace && open.getPrevious()) {
    absl::StatusOr<Found> old = findIn(open.getPrevious(), key, Bytes::Mapped);
    if (old.ok() && old->presence == Presence::Valid)
      return Plan{*old->artifact, /*slot=*/0};
  }
  return Plan{artifact, /*slot=*/0};
}

/// Whether another store has to take the place of the current one first.
bool DiskTier::isFullFor(const OpenDirectory &open, const Plan &plan) const {
  if (plan.slot == maxSlots)
    return true;
  const uint64_t stored = open.getCurrent()->getStore().getStorageBytes();
  return stored > emptyStoreBytes &&
         stored + plan.artifact.getBytes().size() > options.directoryBytes / 2;
}

absl::Status DiskTier::put(const CacheKey &key, const Artifact &artifact,
                           bool replace) {
  if (absl::Status fault = checkWritable("storing an artifact"); !fault.ok())
    return fault;
  if (artifact.getBytes().size() > getMaxArtifactBytes())
    return absl::ResourceExhaustedError(absl::StrCat(
        "an artifact of ", artifact.getBytes().size(), " bytes is more than '",
        options.directory, "' may hold: half of ", options.directoryBytes));

  // A store that is new is not full, but for others who were faster, and one that
  // is deleted while it is written to was replaced twice meanwhile.
  absl::Status status;
  bool mayRotate = true;
  absl::Duration lookInterval = options.lookInterval;
  for (unsigned writes = 0; writes != 2;) {
    absl::StatusOr<Directory> open = acquire(lookInterval);
    if (!open.ok())
      return open.status();
    absl::StatusOr<std::optional<Plan>> planned =
        plan(**open, key, artifact, replace);
    if (planned.ok() && !*planned)
      return absl::OkStatus();
    if (planned.ok() && mayRotate && isFullFor(**open, **planned)) {
      mayRotate = false;
      status = rotate((*open)->getCurrent()->getNumber());
      if (!status.ok())
        return status;
      continue;
    }
    status = planned.ok() ? write(**open, key, **planned, replace)
                          : planned.status();
    ++writes;
    if (status.ok() || !(*open)->isOutdated(absl::ZeroDuration()))
      return status;
    // What was open a moment ago is not believed again.
    lookInterval = absl::ZeroDuration();
  }
  return status;
}

absl::Status DiskTier::write(const OpenDirectory &open, const CacheKey &key,
                             const Plan &plan, bool replace) const {
  const llvm::StringRef bytes = plan.artifact.getBytes();
  absl::StatusOr<std::optional<FileLock>> room =
      directory.makeRoom(bytes.size(), [&] { return stopping.load(); });
  if (!room.ok())
    return room.status();

  LLVMStore &store = open.getCurrent()->getStore();
  Header header;
  header.key = key;
  header.digest = plan.artifact.getDigest();
  header.meaning = plan.artifact.getMeaning();
  header.compileCost = plan.artifact.getCompileCost();
  header.bytes = bytes.size();
  header.kind = plan.artifact.getKind().str();
  for (unsigned slot = plan.slot; slot < maxSlots; ++slot) {
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
    absl::Status published = store.publish(getAction(key, slot), *id);
    if (published.ok())
      return absl::OkStatus();
    // Another one may have been faster.
    absl::StatusOr<std::optional<llvm::StringRef>> taken =
        store.find(getAction(key, slot));
    if (taken.ok() && !*taken)
      return published;
    if (!replace)
      return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("key ", key.digest.toHex(), " was published ", maxSlots,
                   " times; the next time it goes into a new store"));
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
DiskTier::claim(const CacheKey &key, absl::Duration limit) {
  using Clock = CondVar::Clock;
  if (options.readOnly)
    return std::unique_ptr<CompileClaim>();
  absl::StatusOr<Directory> open = acquire(options.lookInterval);
  if (!open.ok())
    return open.status();
  absl::StatusOr<std::string> path = directory.getClaimPath(key.digest);
  if (!path.ok())
    return path.status();

  const absl::Duration wait = std::min(limit, options.crossProcessWait);
  const Clock::time_point begin = Clock::now();
  while (true) {
    absl::StatusOr<FileLock> lock = FileLock::open(*path);
    if (!lock.ok())
      return lock.status();
    absl::StatusOr<bool> locked = lock->tryLockFor(
        FileLock::Exclusive, wait - absl::FromChrono(Clock::now() - begin),
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
  absl::StatusOr<Found> found = lookUp(key, Bytes::Mapped);
  if (!found.ok())
    return found.status();
  return found->presence == Presence::Valid;
}

//===----------------------------------------------------------------------===//
// The worker
//===----------------------------------------------------------------------===//

static CacheDirectory::Options
getDirectoryOptions(const DiskTierOptions &options) {
  CacheDirectory::Options directory;
  directory.path = options.directory;
  directory.allowForeign = options.allowForeignDirectory;
  directory.readOnly = options.readOnly;
  directory.lockWait = options.lockWait;
  directory.lookInterval = options.lookInterval;
  directory.validationWait = options.validationWait;
  return directory;
}

/// One failure is enough for a rest.
static CircuitOptions getCircuitOptions(const DiskTierOptions &options) {
  CircuitOptions circuit;
  circuit.failures = 1;
  circuit.firstRest = absl::ToChronoNanoseconds(options.retryAfter);
  circuit.longestRest = absl::ToChronoNanoseconds(longestRest);
  return circuit;
}

DiskTier::DiskTier(DiskTierOptions theOptions)
    : options(std::move(theOptions)), directory([&] {
        CacheDirectory::Options result = getDirectoryOptions(options);
        result.close = [wayHome = wayHome](std::unique_ptr<Generation> unused) {
          close(wayHome, std::move(unused));
        };
        return result;
      }()),
      openings(getCircuitOptions(options)),
      rotations(getCircuitOptions(options)) {
  MutexLock lock(wayHome->mutex);
  wayHome->tier = this;
}

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
  // From here on, who drops a generation closes it.
  MutexLock lock(wayHome->mutex);
  wayHome->tier = nullptr;
}

void DiskTier::close(const std::shared_ptr<WayHome> &wayHome,
                     std::unique_ptr<Generation> generation) {
  // In a forked child the locks may be held for ever.
  if (generation->isInherited())
    return;
  // A generation that does not go home is closed after the lock: parameters are
  // destroyed after local variables.
  MutexLock lock(wayHome->mutex);
  if (!wayHome->tier)
    return;
  DiskTier &tier = *wayHome->tier;
  MutexLock tierLock(tier.mutex);
  tier.toClose.push_back(std::move(generation));
  tier.toWorker.notifyOne();
}

absl::StatusOr<DiskTier::Directory>
DiskTier::acquire(absl::Duration lookInterval) const {
  if (mark.isInherited())
    return bring(Task::Open);
  Directory current;
  {
    MutexLock lock(mutex);
    current = opened;
  }
  if (current && !current->isOutdated(lookInterval))
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
  if (mark.isInherited())
    return absl::FailedPreconditionError(
        "the cache's folder was opened before a fork, by another process");
  if (task == Task::Clear) {
    // From now on nothing of it is served, however the clear goes. Without the
    // lock, and before the worker starts: the room may be needed.
    Directory dropped;
    MutexLock lock(mutex);
    ++clearsWanted;
    dropped = replaceLocked(nullptr);
  }
  MutexLock lock(mutex);
  if (task == Task::Open && late)
    return tooLate();
  if (task == Task::Open) {
    // Nobody waits for what failed the last time.
    switch (openings.ask()) {
    case Circuit::Answer::Go:
      break;
    case Circuit::Answer::Probe:
      wanted = std::max(wanted, task);
      toWorker.notifyOne();
      return lastResult;
    case Circuit::Answer::Rest:
      return lastResult;
    }
  }
  wanted = std::max(wanted, task);
  toWorker.notifyOne();
  if (absl::Status status = waitForWorkerLocked(); !status.ok())
    return status;
  return lastResult;
}

/// Replaces the generation with that number, and waits for that.
absl::Status DiskTier::rotate(uint64_t number) {
  MutexLock lock(mutex);
  if (late)
    return tooLate();
  if (rotations.ask() == Circuit::Answer::Rest)
    return lastRotation;
  fullGeneration = number;
  wanted = std::max(wanted, Task::Rotate);
  toWorker.notifyOne();
  if (absl::Status status = waitForWorkerLocked(); !status.ok())
    return status;
  return lastRotation.ok() ? lastResult : lastRotation;
}

absl::Status DiskTier::tooLate() const {
  return absl::DeadlineExceededError(
      absl::StrCat("opening '", options.directory, "' takes long"));
}

absl::Status DiskTier::waitForWorkerLocked() const {
  const CondVar::Clock::time_point deadline =
      CondVar::Clock::now() + absl::ToChronoNanoseconds(options.lockWait);
  auto isBusy = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return wanted != Task::None || working;
  };
  while (isBusy()) {
    if (fromWorker.waitUntil(mutex, deadline) || !isBusy())
      continue;
    late = true;
    return tooLate();
  }
  return absl::OkStatus();
}

/// Makes `next` what is open, and returns what was, which is to be dropped
/// without the lock.
DiskTier::Directory DiskTier::replaceLocked(Directory next) const {
  Directory before = std::exchange(opened, std::move(next));
  if (before && before != opened)
    for (const std::shared_ptr<Generation> &generation :
         {before->getCurrent(), before->getPrevious()})
      if (generation)
        replaced.emplace_back(generation->getNumber(), generation);
  isPinned = isPinnedLocked();
  return before;
}

/// Whether somebody still uses a generation that made room for others.
bool DiskTier::isPinnedLocked() const {
  llvm::erase_if(replaced,
                 [](const auto &use) { return use.second.expired(); });
  std::vector<uint64_t> inUse;
  if (opened)
    for (const std::shared_ptr<Generation> &generation :
         {opened->getCurrent(), opened->getPrevious()})
      if (generation)
        inUse.push_back(generation->getNumber());
  return !llvm::all_of(replaced, [&](const auto &use) {
    return llvm::is_contained(inUse, use.first);
  });
}

bool DiskTier::mayMap() const {
  if (!isPinned)
    return true;
  MutexLock lock(mutex);
  isPinned = isPinnedLocked();
  return !isPinned;
}

/// What a try says about whether the next one is worth it.
static void note(Circuit &circuit, const absl::Status &status) {
  if (status.ok()) {
    circuit.succeeded();
    circuit.probed(true);
  } else {
    // In this order: a rest that was on is longer the next time, and only once.
    circuit.probed(false);
    circuit.failed({});
  }
}

void DiskTier::work() {
  MutexLock lock(mutex);
  while (true) {
    while (wanted == Task::None && toClose.empty() && !stopping)
      toWorker.wait(mutex);
    if (!toClose.empty()) {
      std::vector<std::unique_ptr<Generation>> closing =
          std::exchange(toClose, {});
      lock.unlock();
      closing.clear();
      lock.lock();
      continue;
    }
    if (stopping)
      return;
    Task task = std::exchange(wanted, Task::None);
    const uint64_t clears = clearsWanted;
    if (clears != clearsDone)
      task = Task::Clear;
    const uint64_t full = fullGeneration;
    Directory before = opened;
    working = true;
    lock.unlock();

    absl::Status started;
    if (task == Task::Clear)
      started = startCleared();
    else if (task == Task::Rotate)
      started = startRotation(before, full);
    absl::StatusOr<Directory> after = before;
    if (task == Task::Clear && !started.ok())
      after = started;
    else if (!before || before->isOutdated(absl::ZeroDuration()))
      after = directory.open([&] { return stopping.load(); });

    lock.lock();
    if (task == Task::Clear && started.ok())
      clearsDone = clears;
    if (task != Task::Open) {
      lastRotation = started;
      note(rotations, started);
    }
    lastResult = after.status();
    note(openings, lastResult);
    const bool isServed = after.ok() && clearsDone == clearsWanted;
    Directory dropped = replaceLocked(isServed ? *after : nullptr);
    working = late = false;
    fromWorker.notifyAll();
    lock.unlock();

    // Closes the store unless an artifact is still mapped.
    dropped.reset();
    before.reset();
    after = absl::CancelledError();
    // What cannot be deleted now is found again the next time.
    if (!options.readOnly)
      directory.collectGarbage().IgnoreError();
    lock.lock();
  }
}

absl::Status DiskTier::startCleared() const {
  if (absl::StatusOr<bool> started = directory.startGeneration(
          /*keepCurrent=*/false, /*expected=*/std::nullopt,
          [&] { return stopping.load(); });
      !started.ok())
    return started.status();
  // Who clears may be in need of the room.
  directory.collectGarbage().IgnoreError();
  return absl::OkStatus();
}

/// Another process may have been faster.
absl::Status DiskTier::startRotation(const Directory &before, uint64_t number) {
  if (!before || before->getCurrent()->getNumber() != number)
    return absl::OkStatus();
  // Before anybody deletes them.
  const uint64_t unused = countUnused(*before);
  absl::StatusOr<bool> started = directory.startGeneration(
      /*keepCurrent=*/true, number, [&] { return stopping.load(); });
  if (started.ok() && *started)
    evictions += unused;
  return started.status();
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

absl::Status DiskTier::clear() {
  if (absl::Status status = checkWritable("clearing"); !status.ok())
    return status;
  return bring(Task::Clear);
}

absl::Status DiskTier::collectGarbage() {
  if (absl::Status status = checkWritable("collecting garbage"); !status.ok())
    return status;
  return directory.collectGarbage();
}

bool DiskTier::isCache(llvm::StringRef directory) {
  return CacheDirectory::isCache(directory);
}

/// `unreadable`: how many were damaged so that they do not say what they are.
absl::StatusOr<std::vector<TierEntry>> DiskTier::list(const OpenDirectory &open,
                                                      uint64_t &unreadable) {
  unreadable = 0;
  // A key of the current generation hides that of the previous one.
  std::map<Fingerprint, std::pair<uint64_t, TierEntry>> found;
  for (const std::shared_ptr<Generation> &generation :
       {open.getPrevious(), open.getCurrent()}) {
    // LLVM would make a store where there is none.
    if (!generation || generation->isGone())
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

absl::StatusOr<std::vector<TierEntry>> DiskTier::list() const {
  absl::StatusOr<Directory> open = acquire(options.lookInterval);
  if (!open.ok())
    return open.status();
  uint64_t unreadable;
  return list(**open, unreadable);
}

absl::StatusOr<TierVerification> DiskTier::verify() const {
  absl::StatusOr<Directory> open = acquire(options.lookInterval);
  if (!open.ok())
    return open.status();
  uint64_t unreadable;
  absl::StatusOr<std::vector<TierEntry>> entries = list(**open, unreadable);
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
  if (mark.isInherited())
    return stats;
  stats.rejected = rejected;
  stats.evictions = evictions;
  Directory open;
  {
    MutexLock lock(mutex);
    open = opened;
  }
  if (!open)
    return stats;
  bool isFree = true;
  for (const std::shared_ptr<Generation> &generation :
       {open->getCurrent(), open->getPrevious()}) {
    if (!generation)
      continue;
    stats.bytes += generation->getStore().getStorageBytes();
    isFree &= !LLVMStore::wouldBlock(generation->getStoreFolder());
  }
  // To read the tables LLVM opens the stores again.
  if (isFree) {
    uint64_t unreadable;
    absl::StatusOr<std::vector<TierEntry>> entries = list(*open, unreadable);
    if (entries.ok())
      countedEntries = entries->size();
  }
  stats.entries = countedEntries;
  return stats;
}

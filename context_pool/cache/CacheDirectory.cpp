//===- CacheDirectory.cpp - A folder of generations of stores -------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/CacheDirectory.h"

#include "context_pool/cache/StoreValidation.h"

#include "absl/strings/str_cat.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/xxhash.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace ctxpool;
using namespace ctxpool::detail;

/// Of the layout of the folder and of what is stored.
static constexpr uint64_t scheme = 1;

static constexpr llvm::StringLiteral generationPrefix = "gen.";

/// What LLVM writes besides the objects themselves when it makes a store or
/// stores an object, with much to spare.
static constexpr uint64_t roomToSpare = uint64_t(16) << 20;

/// With less than this, those who write take turns: each looks at how much room
/// there is before it writes.
static constexpr uint64_t plentyOfRoom = uint64_t(1) << 30;

//===----------------------------------------------------------------------===//
// Small files
//===----------------------------------------------------------------------===//

static absl::Status toStatus(std::error_code error, const std::string &what) {
  return absl::ErrnoToStatus(error.value(), what);
}

std::string ctxpool::detail::withCheck(std::string text) {
  absl::StrAppend(&text, "check ",
                  absl::Hex(llvm::xxh3_64bits(text), absl::kZeroPad16), "\n");
  return text;
}

static std::optional<llvm::StringRef> removeCheck(llvm::StringRef text) {
  size_t check = text.rfind("check ");
  if (check == llvm::StringRef::npos ||
      withCheck(text.take_front(check).str()) != text)
    return std::nullopt;
  return text.take_front(check);
}

/// Replaces the file at once. Only one process may do so at a time.
static absl::Status replaceFile(const std::string &path,
                                const std::string &text) {
  std::string temporary = path + ".new";
  int file =
      ::open(temporary.c_str(),
             O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("writing '", path, "'"));
  ssize_t written = ::write(file, text.data(), text.size());
  int error = written < 0 ? errno : ENOSPC;
  bool closed = ::close(file) == 0;
  if (written != static_cast<ssize_t>(text.size()) || !closed)
    return absl::ErrnoToStatus(error, absl::StrCat("writing '", path, "'"));
  if (std::rename(temporary.c_str(), path.c_str()))
    return absl::ErrnoToStatus(errno, absl::StrCat("replacing '", path, "'"));
  return absl::OkStatus();
}

/// Nothing where there is no file.
static absl::StatusOr<std::optional<std::string>>
readFile(const std::string &path) {
  // As a stream, since files of /proc do not say how long they are.
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> buffer =
      llvm::MemoryBuffer::getFileAsStream(path);
  if (buffer)
    return (*buffer)->getBuffer().str();
  if (buffer.getError() == std::errc::no_such_file_or_directory)
    return std::optional<std::string>();
  return toStatus(buffer.getError(), absl::StrCat("reading '", path, "'"));
}

//===----------------------------------------------------------------------===//
// Generations
//===----------------------------------------------------------------------===//

/// What tells that LLVM's files are as it left them, without reading them.
/// Nothing where one is missing or is no regular file.
static std::optional<std::string>
describeFiles(const std::string &storeFolder) {
  std::string text;
  for (const char *name : LLVMStore::getControlFiles()) {
    struct stat status;
    if (lstat(absl::StrCat(storeFolder, "/", name).c_str(), &status) ||
        !S_ISREG(status.st_mode))
      return std::nullopt;
    absl::StrAppend(&text, name, " ", status.st_ino, " ", status.st_size, " ",
                    status.st_mtim.tv_sec, " ", status.st_mtim.tv_nsec, "\n");
  }
  return withCheck(std::move(text));
}

/// What tells one start of the machine from another; empty where nothing does.
static std::string getBootId() {
  absl::StatusOr<std::optional<std::string>> id =
      readFile("/proc/sys/kernel/random/boot_id");
  if (!id.ok() || !*id)
    return "";
  return llvm::StringRef(**id).trim().str();
}

Generation::Generation(std::string theFolder, uint64_t theNumber,
                       FileLock theUsers, std::unique_ptr<LLVMStore> theStore)
    : folder(std::move(theFolder)), number(theNumber),
      users(std::move(theUsers)), store(std::move(theStore)) {}

/// Whether `time` is less than `interval` ago.
static bool isRecent(std::chrono::steady_clock::duration time,
                     absl::Duration interval) {
  if (time == std::chrono::steady_clock::duration::min())
    return false;
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch() -
                          time) < interval;
}

bool OpenDirectory::isOutdated(absl::Duration interval) const {
  if (interval > absl::ZeroDuration() && isRecent(lookedAt, interval))
    return false;
  if ((generations && !generations->isAt(path)) ||
      (current && current->isGone()) ||
      (!awaited.empty() && llvm::sys::fs::exists(awaited)))
    return true;
  lookedAt = Clock::now().time_since_epoch();
  return false;
}

std::string Generation::getStoreFolder() const { return folder + "/cas"; }

bool Generation::isGone() const { return !users.isAt(folder + "/users"); }

Generation::~Generation() {
  // LLVM takes a store that it can lock for one that nobody uses, and cuts its
  // files off: a child that closes what it inherited would do so to its parent.
  if (users.isInherited()) {
    [[maybe_unused]] LLVMStore *leaked = store.release();
    return;
  }
  store.reset();
  // The last one to leave seals. Without a seal, or where it cannot be written,
  // the store is one that was not closed.
  absl::StatusOr<bool> alone = users.tryLock(FileLock::Exclusive);
  if (!alone.ok() || !*alone || isGone())
    return;
  if (std::optional<std::string> files = describeFiles(getStoreFolder()))
    replaceFile(folder + "/seal", *files).IgnoreError();
}

//===----------------------------------------------------------------------===//
// Opening a generation
//===----------------------------------------------------------------------===//

/// With the store to itself: nobody else has it open.
absl::Status CacheDirectory::ensureValid(const std::string &folder,
                                         GiveUp giveUp) const {
  const std::string storeFolder = folder + "/cas";
  const std::string sealFile = folder + "/seal";
  const std::string bootFile = folder + "/boot";
  const std::string bootId = withCheck(getBootId() + "\n");

  absl::StatusOr<std::optional<std::string>> seal = readFile(sealFile);
  if (!seal.ok())
    return seal.status();
  absl::StatusOr<std::optional<std::string>> boot = readFile(bootFile);
  if (!boot.ok())
    return boot.status();
  const std::optional<std::string> files = describeFiles(storeFolder);

  // After the end of a process, however it ended, LLVM's files are whole. After
  // the end of the machine they may not be, nor after somebody else wrote to
  // them.
  bool isTrusted = !llvm::sys::fs::exists(storeFolder);
  if (files)
    isTrusted |=
        *seal ? **seal == *files : *boot == bootId && !getBootId().empty();
  if (!isTrusted) {
    if (!files)
      return absl::DataLossError(
          absl::StrCat("the store in '", storeFolder, "' lacks files"));
    if (absl::Status valid =
            validateInChild(storeFolder, options.validationWait, giveUp);
        !valid.ok())
      return valid;
  }

  // In this order: in between, the seal still holds.
  if (*boot != bootId)
    if (absl::Status status = replaceFile(bootFile, bootId); !status.ok())
      return status;
  if (*seal && ::unlink(sealFile.c_str()))
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("deleting '", sealFile, "'"));
  return absl::OkStatus();
}

/// Whether a store that does not open for this reason can be thrown away.
static bool isDamage(const absl::Status &status) {
  switch (status.code()) {
  case absl::StatusCode::kDataLoss:
  case absl::StatusCode::kInvalidArgument:
  case absl::StatusCode::kOutOfRange:
  case absl::StatusCode::kInternal:
  case absl::StatusCode::kUnknown:
    return true;
  default:
    return false;
  }
}

absl::StatusOr<std::shared_ptr<Generation>>
CacheDirectory::openGeneration(uint64_t number, bool create,
                               GiveUp giveUp) const {
  const std::string folder = getGeneration(number);
  const std::string storeFolder = folder + "/cas";
  if (create) {
    if (std::error_code error = llvm::sys::fs::create_directory(
            folder, /*IgnoreExisting=*/true, llvm::sys::fs::owner_all))
      return toStatus(error, absl::StrCat("making '", folder, "'"));
  }
  if (llvm::sys::fs::exists(folder) && !llvm::sys::fs::is_directory(folder))
    return absl::DataLossError(absl::StrCat("'", folder, "' is not a folder"));
  if (options.readOnly && !llvm::sys::fs::exists(storeFolder))
    return absl::NotFoundError(
        absl::StrCat("nobody has made a store in '", folder, "' yet"));
  absl::StatusOr<FileLock> users =
      FileLock::open(folder + "/users", getPresence());
  if (!users.ok())
    return users.status();

  absl::StatusOr<bool> alone = users->tryLock(FileLock::Exclusive);
  if (!alone.ok())
    return alone.status();
  if (*alone) {
    if (absl::Status valid = ensureValid(folder, giveUp); !valid.ok())
      return valid;
  }
  // Somebody who leaves may be sealing.
  absl::StatusOr<bool> shared =
      users->tryLockFor(FileLock::Shared, options.lockWait, giveUp);
  if (!shared.ok())
    return shared.status();
  absl::StatusOr<bool> free = *shared;
  if (*shared)
    free = pollFor(options.lockWait, giveUp, [&]() -> absl::StatusOr<bool> {
      return !LLVMStore::wouldBlock(storeFolder);
    });
  if (!*free)
    return absl::DeadlineExceededError(
        absl::StrCat("another process holds the lock of '", folder, "'"));

  absl::StatusOr<std::optional<FileLock>> room = std::optional<FileLock>();
  if (!llvm::sys::fs::exists(storeFolder))
    room = makeRoom(/*bytes=*/0, giveUp);
  if (!room.ok())
    return room.status();
  absl::StatusOr<std::unique_ptr<LLVMStore>> store =
      LLVMStore::open(storeFolder);
  if (!store.ok())
    return store.status();
  if (!describeFiles(storeFolder))
    return absl::UnimplementedError(absl::StrCat(
        "LLVM lays out the store in '", storeFolder,
        "' in another way than this library knows how to protect"));
  auto generation = std::make_unique<Generation>(
      folder, number, std::move(*users), std::move(*store));
  if (!options.close)
    return generation;
  return std::shared_ptr<Generation>(
      generation.release(), [close = options.close](Generation *unused) {
        close(std::unique_ptr<Generation>(unused));
      });
}

//===----------------------------------------------------------------------===//
// The folder
//===----------------------------------------------------------------------===//

std::string CacheDirectory::getFile(const char *name) const {
  return absl::StrCat(options.path, "/", name);
}

bool CacheDirectory::isCache(llvm::StringRef path) {
  return !path.empty() && llvm::sys::fs::exists(path + "/generations");
}

std::string CacheDirectory::getGeneration(uint64_t number) const {
  return absl::StrCat(options.path, "/", generationPrefix.str(), number);
}

/// Calls `visit` with the number of every generation that has a name here.
static absl::Status
forEachGeneration(const std::string &path,
                  llvm::function_ref<void(uint64_t)> visit) {
  std::error_code error;
  for (llvm::sys::fs::directory_iterator
           entry(path, error, /*follow_symlinks=*/false),
       end;
       !error && entry != end; entry.increment(error)) {
    llvm::StringRef name = llvm::sys::path::filename(entry->path());
    uint64_t number;
    if (name.consume_front(generationPrefix) && !name.getAsInteger(10, number))
      visit(number);
  }
  if (error)
    return toStatus(error, absl::StrCat("reading the folder '", path, "'"));
  return absl::OkStatus();
}

namespace {
enum class Owner { Nobody, Us, SomebodyElse };
} // namespace

/// Whose a generation is, which may only be named like one of ours: from its
/// first moment on a store has a mark, and before that there is nothing to lose.
static Owner getOwner(const std::string &folder) {
  struct stat status;
  if (lstat(folder.c_str(), &status))
    return errno == ENOENT ? Owner::Nobody : Owner::SomebodyElse;
  if (!S_ISDIR(status.st_mode))
    return Owner::SomebodyElse;
  // Who was killed may have left a file that was to replace another.
  for (const char *name : {"users", "boot", "boot.new", "seal", "seal.new"})
    if (!lstat(absl::StrCat(folder, "/", name).c_str(), &status) &&
        S_ISREG(status.st_mode))
      return Owner::Us;
  if (!lstat((folder + "/cas").c_str(), &status) && S_ISDIR(status.st_mode))
    return Owner::Us;
  std::error_code error;
  llvm::sys::fs::directory_iterator entry(folder, error,
                                          /*follow_symlinks=*/false);
  const bool isEmpty = !error && entry == llvm::sys::fs::directory_iterator();
  return isEmpty || error == std::errc::no_such_file_or_directory
             ? Owner::Nobody
             : Owner::SomebodyElse;
}

FileLock::Presence CacheDirectory::getPresence() const {
  return options.readOnly ? FileLock::Existing : FileLock::OrCreate;
}

/// Makes the folder, unless it is only read, and looks whether it can be used.
absl::Status CacheDirectory::checkFolder() const {
  // Anything that is there is looked at, and not replaced.
  std::error_code error;
  if (!options.readOnly)
    error = llvm::sys::fs::create_directories(
        options.path, /*IgnoreExisting=*/true, llvm::sys::fs::owner_all);
  if (absl::Status status = checkTrust(); !status.ok())
    return status;
  if (error)
    return toStatus(error,
                    absl::StrCat("making the folder '", options.path, "'"));
  if (llvm::sys::fs::exists(options.path) &&
      !llvm::sys::fs::is_directory(options.path))
    return absl::FailedPreconditionError(
        absl::StrCat("'", options.path, "' is not a folder"));
  return absl::OkStatus();
}

/// What shows that the folder is somebody else's; empty where it is a cache, or
/// nothing in it would be taken for a part of one, and replaced or deleted.
absl::StatusOr<std::string> CacheDirectory::findForeign() const {
  absl::StatusOr<std::optional<std::string>> text =
      readFile(getFile("generations"));
  if (!text.ok())
    return text.status();
  if (*text && removeCheck(**text))
    return "";
  // The list was lost, or there has never been one: the stores have to tell.
  bool hasOurs = false;
  std::string foreign;
  // What cannot be read has to be read later as well.
  forEachGeneration(options.path, [&](uint64_t number) {
    const Owner owner = getOwner(getGeneration(number));
    hasOurs |= owner == Owner::Us;
    if (owner == Owner::SomebodyElse)
      foreign = getGeneration(number);
  }).IgnoreError();
  if (!foreign.empty() || hasOurs)
    return foreign;
  if (*text && !(*text)->empty())
    return getFile("generations");
  // Little is lost where the guess is wrong: nothing else in it is deleted than
  // files that are named as keys.
  if (llvm::sys::fs::exists(getFile("locks")) &&
      !llvm::sys::fs::exists(getFile("door")))
    return getFile("locks");
  return "";
}

/// FailedPrecondition where the folder is somebody else's.
absl::Status CacheDirectory::checkOwn() const {
  absl::StatusOr<std::string> foreign = findForeign();
  // A cache has a list before it has anything else, and another process may have
  // made it one since.
  if (foreign.ok() && !foreign->empty())
    foreign = findForeign();
  if (!foreign.ok())
    return foreign.status();
  if (foreign->empty())
    return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "'", options.path, "' is not used as a cache: it has '", *foreign,
      "', which is none of a cache's, and no valid file 'generations', by "
      "which caches are known"));
}

/// Nobody else opens or changes the folder while the lock is held. Nothing where
/// the folder is only read, and nobody has made the lock.
absl::StatusOr<std::optional<FileLock>>
CacheDirectory::enter(GiveUp giveUp) const {
  if (absl::Status status = checkFolder(); !status.ok())
    return status;
  if (absl::Status status = checkOwn(); !status.ok())
    return status;
  absl::StatusOr<FileLock> door = lockDoor(giveUp);
  if (options.readOnly && absl::IsNotFound(door.status()))
    return std::optional<FileLock>();
  if (!door.ok())
    return door.status();
  if (!options.readOnly && !isCache(options.path)) {
    if (absl::Status status = publish(InUse()); !status.ok())
      return status;
  }
  return std::optional<FileLock>(*std::move(door));
}

absl::Status CacheDirectory::checkTrust() const {
  const std::string &path = options.path;
  struct stat link;
  struct stat folder;
  // What cannot be seen, or is no folder, is for `open` to complain about.
  if (lstat(path.c_str(), &link) || stat(path.c_str(), &folder) ||
      !S_ISDIR(folder.st_mode) || options.allowForeign)
    return absl::OkStatus();
  // Who can write to the folder, or lead us to another, can make us run code.
  const uid_t user = geteuid();
  if (folder.st_uid != user || (link.st_uid != user && link.st_uid != 0))
    return absl::FailedPreconditionError(absl::StrCat(
        "'", path, "' belongs to user ", folder.st_uid, " (its link to ",
        link.st_uid, "), and this process runs as user ", user));
  if (folder.st_mode & (S_IWGRP | S_IWOTH))
    return absl::FailedPreconditionError(
        absl::StrCat("'", path, "' can be written to by others: its mode is ",
                     absl::Hex(folder.st_mode >> 6 & 7), // An octal digit is
                     absl::Hex(folder.st_mode >> 3 & 7), // also a hexadecimal
                     absl::Hex(folder.st_mode & 7), ", expected 700"));
  return absl::OkStatus();
}

absl::StatusOr<FileLock> CacheDirectory::lockDoor(GiveUp giveUp) const {
  absl::StatusOr<FileLock> door =
      FileLock::open(getFile("door"), getPresence());
  if (!door.ok())
    return door;
  absl::StatusOr<bool> locked =
      door->tryLockFor(FileLock::Exclusive, options.lockWait, giveUp);
  if (!locked.ok())
    return locked.status();
  if (!*locked)
    return absl::DeadlineExceededError(
        absl::StrCat("another process holds the lock '", getFile("door"), "'"));
  return door;
}

/// Nothing where there is none, or where it is damaged.
absl::StatusOr<std::optional<CacheDirectory::InUse>>
CacheDirectory::readInUse() const {
  absl::StatusOr<std::optional<std::string>> text =
      readFile(getFile("generations"));
  if (!text.ok())
    return text.status();
  std::optional<llvm::StringRef> checked;
  if (*text)
    checked = removeCheck(**text);
  if (!checked)
    return std::optional<InUse>();

  uint64_t itsScheme = 0;
  InUse inUse;
  for (auto &[name, number] :
       {std::pair<llvm::StringRef, uint64_t &>("scheme ", itsScheme),
        {"current ", inUse.current},
        {"previous ", inUse.previous}}) {
    if (!checked->consume_front(name) || checked->consumeInteger(10, number) ||
        !checked->consume_front("\n"))
      break;
    if (itsScheme != scheme)
      return absl::FailedPreconditionError(
          absl::StrCat("'", options.path, "' is a cache of version ", itsScheme,
                       ", and this library knows version ", scheme));
  }
  if (!inUse.current)
    return std::optional<InUse>();
  return inUse;
}

absl::Status CacheDirectory::publish(const InUse &inUse) const {
  return replaceFile(
      getFile("generations"),
      withCheck(absl::StrCat("scheme ", scheme, "\ncurrent ", inUse.current,
                             "\nprevious ", inUse.previous, "\n")));
}

absl::StatusOr<uint64_t> CacheDirectory::getFreeNumber() const {
  uint64_t largest = 0;
  absl::Status status = forEachGeneration(options.path, [&](uint64_t number) {
    largest = std::max(largest, number);
  });
  if (!status.ok())
    return status;
  return largest + 1;
}

absl::StatusOr<std::shared_ptr<const OpenDirectory>>
CacheDirectory::open(GiveUp giveUp) const {
  if (options.readOnly && !isCache(options.path)) {
    if (absl::Status status = checkFolder(); !status.ok())
      return status;
    return std::make_shared<const OpenDirectory>(
        getFile("generations"), std::nullopt, nullptr, nullptr,
        /*theAwaited=*/getFile("generations"));
  }
  absl::StatusOr<std::optional<FileLock>> door = enter(giveUp);
  if (!door.ok())
    return door.status();
  absl::StatusOr<std::optional<InUse>> found = readInUse();
  if (!found.ok())
    return found.status();
  InUse inUse = found->value_or(InUse());

  // Opens what is in use, without what is damaged.
  bool changed = false;
  std::shared_ptr<Generation> previous;
  if (inUse.previous) {
    absl::StatusOr<std::shared_ptr<Generation>> opened =
        openGeneration(inUse.previous, /*create=*/false, giveUp);
    if (opened.ok()) {
      previous = *std::move(opened);
    } else if (absl::IsNotFound(opened.status()) || isDamage(opened.status())) {
      inUse.previous = 0;
      changed = true;
    } else {
      return opened.status();
    }
  }
  absl::StatusOr<std::shared_ptr<Generation>> current =
      absl::DataLossError("none is in use");
  if (inUse.current)
    current = openGeneration(inUse.current, /*create=*/false, giveUp);
  std::string awaited;
  const bool isLost =
      absl::IsNotFound(current.status()) || isDamage(current.status());
  if (isLost && options.readOnly) {
    // Who may write replaces what is damaged, and makes what was never used.
    const std::string store = getGeneration(inUse.current) + "/cas";
    if (inUse.current && !llvm::sys::fs::exists(store))
      awaited = store;
    current = nullptr;
  } else if (isLost) {
    absl::StatusOr<uint64_t> number = getFreeNumber();
    if (!number.ok())
      return number.status();
    inUse.current = *number;
    changed = true;
    current = openGeneration(inUse.current, /*create=*/true, giveUp);
  }
  if (!current.ok())
    return current.status();
  if (changed && !options.readOnly) {
    if (absl::Status status = publish(inUse); !status.ok())
      return status;
  }
  absl::StatusOr<FileLock> generations =
      FileLock::open(getFile("generations"), FileLock::Existing);
  if (!generations.ok())
    return generations.status();
  return std::make_shared<const OpenDirectory>(
      getFile("generations"), std::move(*generations), *std::move(current),
      std::move(previous), std::move(awaited));
}

absl::StatusOr<bool> CacheDirectory::startGeneration(
    bool keepCurrent, std::optional<uint64_t> expected, GiveUp giveUp) const {
  absl::StatusOr<std::optional<FileLock>> door = enter(giveUp);
  if (!door.ok())
    return door.status();
  absl::StatusOr<std::optional<InUse>> found = readInUse();
  // A cache of another version is replaced as well.
  if (!found.ok() && (expected || !absl::IsFailedPrecondition(found.status())))
    return found.status();
  InUse before = found.ok() ? found->value_or(InUse()) : InUse();
  if (expected && before.current != *expected)
    return false;
  // A new store that has no room would take the place of one that serves.
  if (keepCurrent) {
    absl::StatusOr<std::optional<FileLock>> room =
        makeRoom(roomToSpare, giveUp);
    if (!room.ok())
      return room.status();
  }

  absl::StatusOr<uint64_t> number = getFreeNumber();
  if (!number.ok())
    return number.status();
  const std::string folder = getGeneration(*number);
  if (std::error_code error = llvm::sys::fs::create_directory(
          folder, /*IgnoreExisting=*/false, llvm::sys::fs::owner_all))
    return toStatus(error, absl::StrCat("making '", folder, "'"));
  if (absl::Status status =
          publish({*number, keepCurrent ? before.current : 0});
      !status.ok())
    return status;
  return true;
}

/// Whether `getClaimPath` gives a file such a name.
static bool isClaimName(llvm::StringRef name) {
  std::optional<Fingerprint> key = Fingerprint::fromHex(name);
  return key && key->toHex() == name;
}

absl::Status CacheDirectory::collectGarbage() const {
  absl::StatusOr<std::optional<InUse>> inUse = readInUse();
  if (!inUse.ok())
    return inUse.status();
  if (!*inUse)
    return absl::OkStatus();
  // Who starts a generation gives it a larger number than any that there is.
  std::vector<uint64_t> garbage;
  absl::Status status = forEachGeneration(options.path, [&](uint64_t number) {
    if (number < (*inUse)->current && number != (*inUse)->previous)
      garbage.push_back(number);
  });
  for (uint64_t number : garbage) {
    std::string path = getGeneration(number);
    // Not what a link leads to.
    const bool isFolder =
        llvm::sys::fs::get_file_type(path, /*Follow=*/false) ==
        llvm::sys::fs::file_type::directory_file;
    if (isFolder && getOwner(path) == Owner::SomebodyElse)
      continue;
    std::error_code error =
        isFolder
            ? llvm::sys::fs::remove_directories(path, /*IgnoreErrors=*/false)
            : llvm::sys::fs::remove(path);
    if (error && error != std::errc::no_such_file_or_directory)
      status.Update(toStatus(error, absl::StrCat("deleting '", path, "'")));
  }

  // Who was killed while it compiled left a file.
  std::error_code error;
  for (llvm::sys::fs::directory_iterator
           entry(getFile("locks"), error, /*follow_symlinks=*/false),
       end;
       !error && entry != end; entry.increment(error)) {
    if (!isClaimName(llvm::sys::path::filename(entry->path())))
      continue;
    absl::StatusOr<FileLock> lock =
        FileLock::open(entry->path(), FileLock::Existing);
    if (!lock.ok())
      continue;
    absl::StatusOr<bool> locked = lock->tryLock(FileLock::Exclusive);
    if (locked.ok() && *locked && lock->isAt(entry->path()))
      (void)::unlink(entry->path().c_str());
  }
  return status;
}

absl::StatusOr<std::optional<FileLock>>
CacheDirectory::makeRoom(uint64_t bytes, GiveUp giveUp) const {
  auto getFree = [&]() -> absl::StatusOr<uint64_t> {
    struct statvfs status;
    if (statvfs(options.path.c_str(), &status))
      return absl::ErrnoToStatus(
          errno, absl::StrCat("looking at '", options.path, "'"));
    return uint64_t(status.f_bavail) * status.f_frsize;
  };
  if (isRecent(hadRoomAt, options.lookInterval) &&
      bytesSince.fetch_add(bytes) + bytes < plentyOfRoom / 4)
    return std::optional<FileLock>();
  absl::StatusOr<uint64_t> free = getFree();
  if (!free.ok())
    return free.status();
  const uint64_t needed = bytes + roomToSpare;
  if (*free >= needed && *free - needed >= plentyOfRoom) {
    hadRoomAt = std::chrono::steady_clock::now().time_since_epoch();
    bytesSince = 0;
    return std::optional<FileLock>();
  }

  absl::StatusOr<FileLock> room = FileLock::open(getFile("room"));
  if (!room.ok())
    return room.status();
  absl::StatusOr<bool> locked =
      room->tryLockFor(FileLock::Exclusive, options.lockWait, giveUp);
  if (!locked.ok())
    return locked.status();
  if (!*locked)
    return absl::DeadlineExceededError(
        absl::StrCat("another process holds the lock '", getFile("room"), "'"));
  free = getFree();
  if (!free.ok())
    return free.status();
  if (*free < needed)
    return absl::ResourceExhaustedError(absl::StrCat(
        "the disk of '", options.path, "' has ", *free,
        " bytes left, and storing ", bytes, " bytes needs ", needed));
  return std::optional<FileLock>(*std::move(room));
}

absl::StatusOr<std::string>
CacheDirectory::getClaimPath(const Fingerprint &key) const {
  const std::string folder = getFile("locks");
  if (std::error_code error = llvm::sys::fs::create_directory(
          folder, /*IgnoreExisting=*/true, llvm::sys::fs::owner_all))
    return toStatus(error, absl::StrCat("making '", folder, "'"));
  return absl::StrCat(folder, "/", key.toHex());
}

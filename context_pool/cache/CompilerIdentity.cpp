//===- CompilerIdentity.cpp - Which compiler is this process? -------------===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "context_pool/cache/CompilerIdentity.h"

#include "absl/strings/str_cat.h"
#include "llvm-c/Core.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/VCSRevision.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <memory>
#include <optional>
#include <tuple>

using namespace ctxpool;
using namespace ctxpool::detail;

namespace {

/// An object file that the loader has mapped. Holds nothing of it: it may be
/// unloaded any time.
struct LoadedObject {
  const void *headers; ///< Tells it from the others, as long as it is loaded.
  uintptr_t base;      ///< As the loader calls it.
  std::string name;
  std::string code; ///< What tells its code from other code.
  std::vector<std::string> needed;
  bool namesCompiler = false;
};

/// Finds the build id among the notes of a segment.
llvm::StringRef findBuildId(llvm::StringRef notes, uint64_t alignment) {
  // Segments with notes of 8-byte alignment pad to that; all others to 4.
  uint64_t padding = alignment == 8 ? 8 : 4;
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof(header));
    uint64_t contents =
        llvm::alignTo(sizeof(header) + header.n_namesz, padding);
    uint64_t end = llvm::alignTo(contents + header.n_descsz, padding);
    if (contents + header.n_descsz > notes.size())
      break;
    if (header.n_type == NT_GNU_BUILD_ID &&
        notes.substr(sizeof(header), header.n_namesz) ==
            llvm::StringRef("GNU", 4))
      return notes.substr(contents, header.n_descsz);
    notes = notes.drop_front(std::min<uint64_t>(end, notes.size()));
  }
  return {};
}

/// A digest that was computed before. Never destroyed, and never changed once it
/// is in the list: there is no lock that a fork could leave locked.
struct KnownDigest {
  std::string path;
  const void *address;
  llvm::sys::fs::UniqueID file;
  llvm::sys::TimePoint<> modified;
  std::string digest;
  KnownDigest *next;
};
/// Of the process, like the objects that it is about.
std::atomic<KnownDigest *> knownDigests{nullptr};

/// A digest of the object's contents: of the segments that nobody writes to, as
/// they are in memory, and of the file. The file may have been replaced since it
/// was loaded, and of what is writable only the file has the initial values.
std::string digestContents(llvm::ArrayRef<llvm::StringRef> constants,
                           const std::string &path) {
  llvm::sys::fs::file_status status;
  if (llvm::sys::fs::status(path, status))
    status = llvm::sys::fs::file_status();
  auto wanted = std::make_unique<KnownDigest>();
  wanted->path = path;
  wanted->address = constants.empty() ? nullptr : constants.front().data();
  wanted->file = status.getUniqueID();
  wanted->modified = status.getLastModificationTime();
  for (KnownDigest *known = knownDigests.load(); known; known = known->next)
    if (known->path == wanted->path && known->address == wanted->address &&
        known->file == wanted->file && known->modified == wanted->modified)
      return known->digest;

  llvm::BLAKE3 hasher;
  for (llvm::StringRef segment : constants)
    hasher.update(segment);
  if (llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> file =
          llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                      /*RequiresNullTerminator=*/false))
    hasher.update((*file)->getBuffer());
  std::string digest = llvm::toHex(hasher.final<32>(), /*LowerCase=*/true);
  wanted->digest = digest;
  KnownDigest *published = wanted.release();
  published->next = knownDigests.load();
  while (!knownDigests.compare_exchange_weak(published->next, published)) {
  }
  return digest;
}

LoadedObject readObject(const dl_phdr_info &info, bool isExecutable) {
  auto at = [&](uint64_t address, uint64_t size) {
    uintptr_t start = info.dlpi_addr + address; // The loader has numbers.
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    return llvm::StringRef(reinterpret_cast<const char *>(start), size);
  };

  llvm::StringRef buildId;
  llvm::SmallVector<llvm::StringRef, 4> constants;
  const ElfW(Dyn) *dynamic = nullptr;
  for (const ElfW(Phdr) &segment :
       llvm::ArrayRef(info.dlpi_phdr, info.dlpi_phnum)) {
    if (segment.p_type == PT_NOTE && buildId.empty())
      buildId =
          findBuildId(at(segment.p_vaddr, segment.p_memsz), segment.p_align);
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_R) &&
        !(segment.p_flags & PF_W))
      constants.push_back(at(segment.p_vaddr, segment.p_filesz));
    if (segment.p_type == PT_DYNAMIC)
      dynamic = reinterpret_cast<const ElfW(Dyn) *>(
          at(segment.p_vaddr, segment.p_memsz).data());
  }

  // The executable goes by what is running, whatever has its name by now.
  std::string path = isExecutable ? "/proc/self/exe" : info.dlpi_name;
  LoadedObject object;
  object.headers = info.dlpi_phdr;
  object.base = info.dlpi_addr;
  object.name =
      isExecutable ? "executable" : llvm::sys::path::filename(path).str();
  object.code =
      buildId.empty()
          ? absl::StrCat("contents ", digestContents(constants, path))
          : absl::StrCat("build id ", llvm::toHex(buildId, /*LowerCase=*/true));
  if (!dynamic)
    return object;

  uint64_t strings = 0, stringsSize = 0;
  llvm::SmallVector<uint64_t> needed;
  std::optional<uint64_t> soname;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    switch (dynamic->d_tag) {
    case DT_STRTAB:
      strings = dynamic->d_un.d_ptr;
      break;
    case DT_STRSZ:
      stringsSize = dynamic->d_un.d_val;
      break;
    case DT_NEEDED:
      needed.push_back(dynamic->d_un.d_val);
      break;
    case DT_SONAME:
      soname = dynamic->d_un.d_val;
      break;
    default:
      break;
    }
  }
  // A loader that may write to this section turns offsets into addresses.
  if (strings >= info.dlpi_addr)
    strings -= info.dlpi_addr;
  llvm::StringRef table = at(strings, stringsSize);
  auto stringAt = [&](uint64_t offset) {
    return table.substr(offset).take_until([](char c) { return c == '\0'; });
  };
  for (uint64_t offset : needed)
    object.needed.push_back(stringAt(offset).str());
  if (soname && !isExecutable)
    object.name = stringAt(*soname).str();
  // What is rarest comes last: a word that is absent takes reading the table,
  // which is megabytes for LLVM.
  for (llvm::StringRef word : {"llvm", "mlir", "LLVM", "MLIR"})
    if (!object.namesCompiler)
      object.namesCompiler =
          memmem(table.data(), table.size(), word.data(), word.size());
  return object;
}

/// The executable comes first.
std::vector<LoadedObject> readObjects() {
  std::vector<LoadedObject> objects;
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *argument) {
        auto &found = *static_cast<std::vector<LoadedObject> *>(argument);
        // The loader names the executable first.
        found.push_back(readObject(*info, /*isExecutable=*/found.empty()));
        return 0;
      },
      &objects);
  return objects;
}

/// Which of `objects` are roots, or are needed by such, directly or not.
std::vector<bool>
findNeeded(const std::vector<LoadedObject> &objects,
           llvm::function_ref<bool(const LoadedObject &)> isRoot) {
  std::vector<bool> found(objects.size());
  llvm::SmallVector<size_t> open;
  auto add = [&](size_t i) {
    if (!found[i])
      open.push_back(i);
    found[i] = true;
  };
  for (size_t i = 0; i != objects.size(); ++i)
    if (isRoot(objects[i]))
      add(i);
  while (!open.empty()) {
    size_t user = open.pop_back_val();
    for (size_t i = 0; i != objects.size(); ++i)
      if (llvm::is_contained(objects[user].needed, objects[i].name))
        add(i);
  }
  return found;
}

/// An object that came with a runtime library. Kept as known digests are: what
/// it names is never unloaded.
struct RuntimeObject {
  const void *headers;
  RuntimeObject *next;
};
std::atomic<RuntimeObject *> runtimeObjects{nullptr};

void noteRuntimeObject(const LoadedObject &object) {
  auto *noted = new RuntimeObject{object.headers, runtimeObjects.load()};
  while (!runtimeObjects.compare_exchange_weak(noted->next, noted)) {
  }
}

bool isRuntimeObject(const LoadedObject &object) {
  for (RuntimeObject *known = runtimeObjects.load(); known; known = known->next)
    if (known->headers == object.headers)
      return true;
  return false;
}

} // namespace

void *detail::openRuntimeLibrary(const char *path) {
  constexpr int flags = RTLD_LAZY | RTLD_LOCAL;
  if (void *loaded = ::dlopen(path, flags | RTLD_NOLOAD))
    return loaded;
  std::vector<LoadedObject> before = readObjects();
  void *handle = ::dlopen(path, flags);
  link_map *library = nullptr;
  if (!handle ||
      ::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void *>(&library)) != 0)
    return handle;

  // Others may be loading something meanwhile, which is not for its sake.
  std::vector<LoadedObject> after = readObjects();
  std::vector<bool> isIts = findNeeded(after, [&](const LoadedObject &object) {
    return object.base == library->l_addr;
  });
  auto wasThere = [&](const LoadedObject &object) {
    return llvm::any_of(before, [&](const LoadedObject &other) {
      return other.headers == object.headers;
    });
  };
  for (size_t i = 0; i != after.size(); ++i)
    if (isIts[i] && !wasThere(after[i]))
      noteRuntimeObject(after[i]);
  return handle;
}

std::vector<KeyPart> detail::getCompilerIdentity() {
  std::vector<LoadedObject> objects = readObjects();
  const LoadedObject *executable = objects.data();
  std::vector<bool> counts =
      findNeeded(objects, [&](const LoadedObject &object) {
        return &object == executable ||
               (object.namesCompiler && !isRuntimeObject(object));
      });

  // The run-time version, which is not that of the headers where a newer shared
  // library was installed since.
  unsigned major, minor, patch;
  LLVMGetVersion(&major, &minor, &patch);
  std::string version = absl::StrCat(major, ".", minor, ".", patch);
#ifdef LLVM_REVISION
  absl::StrAppend(&version, " ", LLVM_REVISION);
#endif
  std::vector<KeyPart> parts = {{"LLVM", version}};
  for (size_t i = 0; i != objects.size(); ++i)
    if (counts[i])
      parts.push_back(
          {absl::StrCat("code of ", objects[i].name), objects[i].code});
  // The loader's order depends on when what was loaded.
  llvm::sort(parts.begin() + 1, parts.end(),
             [](const KeyPart &lhs, const KeyPart &rhs) {
               return std::tie(lhs.name, lhs.value) <
                      std::tie(rhs.name, rhs.value);
             });
  return parts;
}

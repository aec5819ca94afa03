# Run as a script: writes a C++ source that holds the contents of files.
#   cmake -DOUTPUT=<source> -DFILES=<file>|<file>... -P EmbedFiles.cmake
# The source defines getBundledModules() of bench/BundledModules.h. The contents
# are aligned to 64 bytes and followed by a zero byte, as MLIR's parser wants.

cmake_minimum_required(VERSION 3.21)

string(REPLACE "|" ";" files "${FILES}")
set(arrays "")
set(entries "")
set(count 0)
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME)
  file(READ "${file}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  # Lines of a length that editors and compilers' messages can cope with.
  string(REPEAT "0x..," 12 line)
  string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
  string(APPEND arrays "// ${name}\nalignas(64) const unsigned char file${count}[] = {\n${bytes}0};\n\n")
  string(APPEND entries "    {\"${name}\", asText(file${count})},\n")
  math(EXPR count "${count} + 1")
endforeach()

file(WRITE "${OUTPUT}.new"
"// Written by cmake/EmbedFiles.cmake.
#include \"bench/BundledModules.h\"

#include <cstddef>

namespace {

${arrays}template <size_t size>
llvm::StringRef asText(const unsigned char (&bytes)[size]) {
  return {reinterpret_cast<const char *>(bytes), size - 1};
}

} // namespace

llvm::ArrayRef<ctxpool::bench::BundledModule>
ctxpool::bench::getBundledModules() {
  static const BundledModule modules[] = {
${entries}  };
  return modules;
}
")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")

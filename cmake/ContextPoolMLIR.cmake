# Finds MLIR 22 or newer and defines two targets:
#   ContextPool::mlir            headers (as system headers) and compile definitions
#   context_pool_link_mlir()     links a target to MLIR, one way for the whole build
#
# One process must hold one MLIR. Everything in this build, and everything that
# links the installed library, therefore goes through context_pool_link_mlir():
# it takes either the archives or libMLIR.so, never a mixture. MLIR's own
# mlir_target_link_libraries() picks the archives whatever it is told, and
# HandleLLVMOptions rewrites global flags, so neither is used.

# No version is given to find_package: MLIR's version file accepts only an exact
# major.minor. PATHS is searched last, so that MLIR_DIR and CMAKE_PREFIX_PATH win.
find_package(MLIR CONFIG PATHS /usr/lib/llvm-22/lib/cmake/mlir)
if(NOT MLIR_FOUND)
  message(FATAL_ERROR
    "context_pool needs MLIR 22 or newer and found none: install libmlir-22-dev "
    "(cmake/bootstrap.sh does) or set MLIR_DIR to the folder of MLIRConfig.cmake.")
endif()
if(LLVM_VERSION_MAJOR LESS 22)
  message(FATAL_ERROR
    "context_pool needs MLIR 22 or newer, but MLIR_DIR=${MLIR_DIR} is version "
    "${LLVM_PACKAGE_VERSION}.")
endif()
message(STATUS "MLIR ${LLVM_PACKAGE_VERSION} in ${MLIR_DIR}")

if(CONTEXT_POOL_LINK_MLIR_DYLIB AND NOT TARGET MLIR)
  message(FATAL_ERROR
    "CONTEXT_POOL_LINK_MLIR_DYLIB=ON needs libMLIR.so, which the MLIR in "
    "${MLIR_DIR} does not have.")
endif()

if(NOT TARGET ContextPool::mlir)
  # An imported target: its include directories count as system headers.
  # Global, for projects that include this one.
  add_library(ContextPool::mlir INTERFACE IMPORTED GLOBAL)
  separate_arguments(context_pool_llvm_definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
  set_target_properties(ContextPool::mlir PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${MLIR_INCLUDE_DIRS};${LLVM_INCLUDE_DIRS}"
    INTERFACE_COMPILE_OPTIONS "${context_pool_llvm_definitions}")
endif()

# context_pool_link_mlir(<target> <PUBLIC|PRIVATE> <archives...>): the archives
# that the target needs, or libMLIR.so in their place.
function(context_pool_link_mlir target scope)
  target_link_libraries(${target} ${scope} ContextPool::mlir)
  if(CONTEXT_POOL_LINK_MLIR_DYLIB)
    target_link_libraries(${target} ${scope} MLIR LLVM)
  elseif(TARGET LLVM)
    # Where LLVM is a shared library, MLIR's archives were built against it.
    target_link_libraries(${target} ${scope} ${ARGN} LLVM)
  else()
    llvm_map_components_to_libnames(llvm_libraries
      support core bitwriter cas object orcjit passes AllTargetsAsmParsers
      AllTargetsCodeGens AllTargetsDescs AllTargetsInfos)
    target_link_libraries(${target} ${scope} ${ARGN} ${llvm_libraries})
  endif()
endfunction()

# context_pool_target(<target>): what every target of this project is compiled
# with. Nothing here reaches a user of the library: all of it is PRIVATE.

function(context_pool_target target)
  target_compile_features(${target} PUBLIC cxx_std_17)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wnon-virtual-dtor
    # GCC sees members of LLVM's containers as uninitialized where it inlines them.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
    # gcc's -Wshadow also objects to parameters of constructors that are named as
    # the members which they initialise.
    $<$<CXX_COMPILER_ID:Clang>:-Wshadow;-Wthread-safety;-Wimplicit-fallthrough>
    $<$<BOOL:${CONTEXT_POOL_WERROR}>:-Werror>
    -fno-exceptions)
  # A class that derives from one of MLIR's needs the typeinfo that MLIR was, or
  # was not, built with.
  if(NOT LLVM_ENABLE_RTTI)
    target_compile_options(${target} PRIVATE -fno-rtti)
  endif()
  if(CONTEXT_POOL_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=${CONTEXT_POOL_SANITIZE} -fno-sanitize-recover=all
      -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${CONTEXT_POOL_SANITIZE})
  endif()
endfunction()

# context_pool_layer(<name> SOURCES ... [DEPENDS <layers>...] [MLIR <archives>...]
#                    [LIBRARIES <targets>...])
# A folder of context_pool/ as the library ContextPool::<name>. Its DEPENDS are
# the layers that it may include; the README's codemap lists the same.
function(context_pool_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;MLIR;LIBRARIES" ${ARGN})
  set(target ctxpool_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(ContextPool::${name} ALIAS ${target})
  context_pool_target(${target})
  target_include_directories(${target}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    PRIVATE ${PROJECT_SOURCE_DIR})
  foreach(layer IN LISTS ARG_DEPENDS)
    target_link_libraries(${target} PUBLIC ctxpool_${layer})
  endforeach()
  target_link_libraries(${target} PUBLIC ${ARG_LIBRARIES})
  context_pool_link_mlir(${target} PUBLIC ${ARG_MLIR})
  target_link_libraries(ContextPool INTERFACE ${target})
endfunction()

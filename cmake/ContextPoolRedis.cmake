# Finds hiredis and OpenSSL, of which the library can do without either, and sets
#   CONTEXT_POOL_WITH_REDIS   whether a compile cache can be shared through Redis
#   CONTEXT_POOL_WITH_TLS     whether through rediss:// as well
# Both are on where what they need is found. Where one is set to ON by hand and
# cannot be had, configuration stops.

find_path(CONTEXT_POOL_HIREDIS_INCLUDE_DIR hiredis/hiredis.h)
find_library(CONTEXT_POOL_HIREDIS_LIBRARY hiredis)
mark_as_advanced(CONTEXT_POOL_HIREDIS_INCLUDE_DIR CONTEXT_POOL_HIREDIS_LIBRARY)
set(context_pool_has_hiredis OFF)
if(CONTEXT_POOL_HIREDIS_INCLUDE_DIR AND CONTEXT_POOL_HIREDIS_LIBRARY)
  set(context_pool_has_hiredis ON)
endif()
option(CONTEXT_POOL_WITH_REDIS "Share compile caches through Redis (needs hiredis)"
       ${context_pool_has_hiredis})
if(CONTEXT_POOL_WITH_REDIS AND NOT context_pool_has_hiredis)
  message(FATAL_ERROR
    "CONTEXT_POOL_WITH_REDIS=ON needs hiredis, which was not found: install "
    "libhiredis-dev (cmake/bootstrap.sh does).")
endif()

find_package(OpenSSL 1.1.1 QUIET COMPONENTS SSL)
option(CONTEXT_POOL_WITH_TLS "Reach Redis through TLS (needs OpenSSL)" ${OPENSSL_FOUND})
if(CONTEXT_POOL_WITH_TLS AND NOT OPENSSL_FOUND)
  message(FATAL_ERROR
    "CONTEXT_POOL_WITH_TLS=ON needs OpenSSL, which was not found: install "
    "libssl-dev (cmake/bootstrap.sh does).")
endif()

message(STATUS "Redis: ${CONTEXT_POOL_WITH_REDIS}, with TLS: ${CONTEXT_POOL_WITH_TLS}")

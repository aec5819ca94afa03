#!/usr/bin/env bash
# Installs what building, testing and measuring this project needs and this
# machine lacks. Does nothing, and asks no server, where nothing is missing.
#
#   cmake/bootstrap.sh          what bench/run and test/run need
#   cmake/bootstrap.sh --lint   also what .ci/run needs to check format and style
#
# Exit status: 0 all is there; 1 an installation failed; 2 there are no rights to
# install: the last line of the output is the command that an administrator runs.
set -euo pipefail

packages=(
  cmake ninja-build ccache git
  clang-22 lld-22 libclang-rt-22-dev
  llvm-22-dev libmlir-22-dev mlir-22-tools
  # What the CMake packages of MLIR and LLVM ask for.
  zlib1g-dev libzstd-dev libcurl4-openssl-dev libedit-dev libxml2-dev
  # A compile cache shared through Redis, and what its tests run.
  libhiredis-dev libssl-dev redis-server openssl
  libabsl-dev libgtest-dev libgmock-dev libbenchmark-dev
)
for argument in "$@"; do
  case $argument in
    --lint) packages+=(clang-format-22 clang-tidy-22) ;;
    *) echo "bootstrap.sh: unknown argument '$argument', expected --lint" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

install="apt-get install --yes --no-install-recommends ${missing[*]}"
if [ "$(id -u)" -eq 0 ]; then
  as_root=()
elif sudo --non-interactive true 2>/dev/null; then
  as_root=(sudo --non-interactive)
else
  echo "These packages are missing and this user may not install them. An administrator runs:" >&2
  echo "apt-get update && $install" >&2
  exit 2
fi

echo "Installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${as_root[@]}" apt-get update && "${as_root[@]}" $install; } >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi

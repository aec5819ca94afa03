#!/usr/bin/env bash
# Runs cmake/bootstrap.sh against stand-ins for the system's commands:
#   bootstrap-test.sh PATH-OF-BOOTSTRAP
set -euo pipefail
bootstrap=$1
stubs=$(mktemp -d)
trap 'rm -rf "$stubs"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
stub() { printf '#!/bin/sh\n%s\n' "$2" >"$stubs/$1"; chmod +x "$stubs/$1"; }
run() { PATH="$stubs:$PATH" bash "$bootstrap" "$@" >"$stubs/out" 2>&1; }

# Everything is there: nothing is installed, nothing is printed.
stub dpkg-query 'echo installed'
stub apt-get 'echo "apt-get was called"; exit 1'
run || fail "a complete machine: status $?"
[ ! -s "$stubs/out" ] || fail "a complete machine: $(cat "$stubs/out")"

# No rights: status 2, and the last line is the command.
stub dpkg-query 'exit 1'
stub id 'echo 1000'
stub sudo 'exit 1'
status=0; run || status=$?
[ "$status" -eq 2 ] || fail "without rights: status $status"
grep -q 'apt-get was called' "$stubs/out" && fail "without rights: installs"
tail -n 1 "$stubs/out" | grep -q '^apt-get update && apt-get install .* libmlir-22-dev' ||
  fail "without rights: $(cat "$stubs/out")"

# Root, and the installation fails: status 1, and what apt-get said.
stub id 'echo 0'
status=0; run || status=$?
[ "$status" -eq 1 ] || fail "a failing installation: status $status"
grep -q 'apt-get was called' "$stubs/out" || fail "a failing installation says nothing"

# An argument that it does not know.
status=0; run --nonsense || status=$?
[ "$status" -eq 2 ] || fail "an unknown argument: status $status"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the scripts do about system packages: nothing where all is present, a list and exit 3 where
# something is missing and cannot be installed. apt-get is a stub throughout.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

stub() { # NAME BODY
  rm -f "$work/bin/$1"
  printf '#!/bin/sh\necho "%s $*" >>"%s/called"\n%s\n' "$1" "$work" "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}

# expect CODE SCRIPT: runs it with --setup-only, keeps its output in $work/output.
expect() {
  local code=0
  PATH=$work/bin bash "$root/$2" --setup-only >"$work/output" 2>&1 || code=$?
  [ "$code" = "$1" ] || { cat "$work/output"; fail "$2: exit code $code, expected $1"; }
}
says() { grep -qF "$1" "$work/output" || { cat "$work/output"; fail "expected output '$1'"; }; }
called() { grep -q "$1" "$work/called" 2>/dev/null; }

for script in bench/quickstart.sh tests/run.sh; do
  echo "-- $script: all present, and an apt-get that would fail: not called"
  path_without
  stub apt-get 'exit 100'
  expect 0 "$script"
  says "all present"
  called apt-get && fail "apt-get was called"

  echo "-- $script: one missing, apt-get fails: the list, exit 3"
  path_without ninja
  stub dpkg-query 'exit 1'
  stub sudo 'exec "$@"'
  stub apt-get 'exit 100'
  expect 3 "$script"
  says "missing packages: ninja-build"
  says "installing: ninja-build"
  [ "$(grep -c 'apt-get update' "$work/called")" = 1 ] || fail "apt-get update: not exactly once"
  called "apt-get install .*ninja-build" || fail "apt-get install was not called"

  echo "-- $script: one missing, apt-get says yes and does nothing: the list, exit 3"
  stub apt-get 'exit 0'
  expect 3 "$script"
  says "missing packages: ninja-build"

  echo "-- $script: one missing, no apt-get: the list, exit 3"
  rm "$work/bin/apt-get"
  expect 3 "$script"
  says "missing packages: ninja-build"
  says "no apt-get"

  echo "-- $script: one missing, apt-get installs it, also when update fails: goes on"
  path_without ninja
  stub dpkg-query 'exit 1'
  stub sudo 'exec "$@"'
  stub apt-get "[ \"\$1\" = install ] || exit 100; ln -sf /bin/true '$work/bin/ninja'"
  expect 0 "$script"
  says "installing: ninja-build"

  echo "-- $script: one missing, not root, no sudo: the list, exit 3, apt-get not called"
  path_without ninja sudo
  stub dpkg-query 'exit 1'
  stub apt-get 'exit 100'
  stub id 'echo 1000'
  expect 3 "$script"
  says "missing packages: ninja-build"
  called apt-get && fail "apt-get was called"
done
echo "-- two missing: both in the list"
path_without ninja pkg-config
stub dpkg-query 'exit 1'
stub sudo 'exec "$@"'
stub apt-get 'exit 100'
expect 3 tests/run.sh
says "missing packages: ninja-build pkg-config"

echo "-- dpkg knows a package that the probe does not find: present"
path_without ninja
stub dpkg-query 'printf installed'
expect 0 tests/run.sh

echo "-- TANDEM_SKIP_SETUP=1: nothing is looked at"
stub dpkg-query 'exit 1'
TANDEM_SKIP_SETUP=1 expect 0 tests/run.sh
says "not looking"

echo "-- bad options: exit 2"
for call in "bench/quickstart.sh --steps 0" "bench/quickstart.sh --bogus" "tests/run.sh --only none"; do
  code=0
  # shellcheck disable=SC2086
  bash "$root"/$call >/dev/null 2>&1 || code=$?
  [ "$code" = 2 ] || fail "$call: exit code $code, expected 2"
done
echo "all as expected"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# links_no_cuda_test.sh COMPILER: what links_no_cuda.sh must refuse is refused, without a toolkit.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

refuse() { # FILE TEXT
  if output=$(bash "$here/links_no_cuda.sh" "$1"); then
    echo "$1 was accepted"
    exit 1
  fi
  grep -qF "$2" <<<"$output" || { echo "$1: expected '$2', got: $output"; exit 1; }
}

echo 'int plain() { return 0; }' | "$1" -x c++ -c -o plain.o -
ar rc plain.a plain.o
bash "$here/links_no_cuda.sh" plain.a

echo 'extern "C" int cudnnCreate(void*); int f() { return cudnnCreate(nullptr); }' |
  "$1" -x c++ -c -o uses.o -
ar rc uses.a plain.o uses.o
refuse uses.a "uses cudnnCreate"

# A stand-in for the shared library, so that the name is in the dynamic section.
echo 'extern "C" int stand_in() { return 0; }' |
  "$1" -x c++ -shared -fPIC -Wl,-soname,libcublasLt.so.13 -o libcublasLt.so -
echo 'extern "C" int stand_in(); int main() { return stand_in(); }' |
  "$1" -x c++ -o needs - -L. -lcublasLt
refuse needs "needs libcublasLt.so.13"

refuse missing.a "nm finds no symbol"

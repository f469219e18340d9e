#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# must_not_compile.sh COMPILER INCLUDE_DIR CASE.cpp
# The case compiles without -DMUST_NOT_COMPILE, so whatever fails with it is the guarded line; and
# the compiler's message has the text that the case's line "// expect: TEXT" names.
set -euo pipefail
export LC_ALL=C
compiler=$1 include=$2 case=$3
compile() { "$compiler" -std=c++17 -fsyntax-only -I "$include" "$@" "$case" 2>&1; }

if ! output=$(compile); then
  echo "$case: does not compile even without the line that must not compile"
  echo "$output"
  exit 1
fi
if output=$(compile -DMUST_NOT_COMPILE); then
  echo "$case: compiles, and must not"
  exit 1
fi
# The text is g++'s; of another compiler the pair of results above has to do.
"$compiler" --version | grep -q "Free Software Foundation" || exit 0
expected=$(sed -n 's|^// expect: ||p' "$case")
[ -n "$expected" ] || { echo "$case: has no line '// expect: TEXT'"; exit 1; }
grep -qF -- "$expected" <<<"$output" || {
  echo "$case: fails for another reason than '$expected'"
  echo "$output"
  exit 1
}

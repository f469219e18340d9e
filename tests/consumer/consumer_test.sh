#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# consumer_test.sh BUILD_DIR COMPILER GENERATOR
# Installs the build into a fresh prefix, and builds and runs the consumer project against it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$1 compiler=$2 generator=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >/dev/null
# Moved after the installation: nothing may remember where it was.
mv "$work/prefix" "$work/moved"
cmake -G "$generator" -S "$here" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
  "-DCMAKE_CXX_COMPILER=$compiler" "-DCMAKE_PREFIX_PATH=$work/moved"
cmake --build "$work/build"
"$work/build/consumer"

# No installed file leads back to the source or the build tree.
root=$(cd "$here/../.." && pwd)
if grep -rIl -e "$root/" -e "$build/" "$work/moved"; then
  echo "the files above name the source or the build tree"
  exit 1
fi

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# configure_test.sh COMPILER: what CMake says and does with and without CUDA. Configures only.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
export CXX=$1 CMAKE_GENERATOR=Ninja
unset CUDACXX CUDA_PATH CUDAToolkit_ROOT CUDAARCHS

# configures OPTION...: into a new directory, with the default preset, as a user does.
configures() {
  rm -rf "$work/build"
  (cd "$root" && PATH=$path cmake --preset default -B "$work/build" "$@") >"$work/output" 2>&1 ||
    { cat "$work/output"; fail "does not configure: $*"; }
}
refuses() {
  rm -rf "$work/build"
  ! (cd "$root" && PATH=$path cmake --preset default -B "$work/build" "$@") >"$work/output" 2>&1 ||
    { cat "$work/output"; fail "configures, and must not: $*"; }
}
says() { # CMake breaks long lines
  tr -s ' \n' ' ' <"$work/output" | grep -qF "$1" || { cat "$work/output"; fail "expected '$1'"; }
}
host_only_because() {
  says "CUDA: off ($1); everything runs on the host backend"
  [ -e "$work/build/engine/CMakeFiles/tandem_engine_host.dir" ] || fail "no host library"
  [ ! -e "$work/build/engine/CMakeFiles/tandem_engine.dir" ] || fail "the CUDA half is built"
}

path_without nvcc
path=$work/bin
echo "-- no nvcc on PATH: host only"
configures
host_only_because "nvcc is not on PATH"
grep -q 'build bin/tandem:' "$work/build/build.ninja" || fail "the program is not bin/tandem"

echo "-- no nvcc, TANDEM_CUDA=ON: an error"
refuses -DTANDEM_CUDA=ON
says "TANDEM_CUDA=ON, but nvcc is not on PATH"

echo "-- values that are not allowed"
refuses -DTANDEM_CUDA_ARCHITECTURES=
says "TANDEM_CUDA_ARCHITECTURES is empty"
refuses -DTANDEM_CUDA=MAYBE
says "TANDEM_CUDA is 'MAYBE'; allowed: AUTO, ON, OFF"
refuses -DTANDEM_SANITIZE=everything
says "TANDEM_SANITIZE is 'everything'"
refuses -DTANDEM_NVTX=MAYBE
says "TANDEM_NVTX is 'MAYBE'; allowed: AUTO, ON, OFF"
refuses -DTANDEM_NVTX=ON -DTANDEM_NVTX_INCLUDE_DIR=
says "TANDEM_NVTX=ON, but nvtx3/nvToolsExt.h is not found"

echo "-- without the header of NVTX, and with NVTX switched off"
configures -DTANDEM_NVTX_INCLUDE_DIR=
says "NVTX: off (nvtx3/nvToolsExt.h is not found)"
configures -DTANDEM_NVTX=OFF
says "NVTX: off (TANDEM_NVTX=OFF)"

echo "-- an nvcc that does not work: host only"
printf '#!/bin/sh\nexit 1\n' >"$work/bin/nvcc"
chmod +x "$work/bin/nvcc"
configures
host_only_because "nvcc was found, but cannot compile with this C++ compiler"

path=$PATH
if ! command -v nvcc >/dev/null; then
  echo "no nvcc on this machine: the cases with one are not run"
  exit 0
fi
echo "-- nvcc is there, TANDEM_CUDA=OFF: host only"
configures -DTANDEM_CUDA=OFF
host_only_because "TANDEM_CUDA=OFF"

echo "-- a cuDNN that is too old: host only"
mkdir "$work/cudnn"
printf '#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 9\n#define CUDNN_PATCHLEVEL 7\n' \
  >"$work/cudnn/cudnn_version.h"
touch "$work/cudnn/libcudnn.so"
configures -DTANDEM_CUDA_ARCHITECTURES=90 "-DcuDNN_INCLUDE_DIR=$work/cudnn" \
  "-DcuDNN_LIBRARY=$work/cudnn/libcudnn.so"
host_only_because "cuDNN 8.9 is older than 9.0"
echo "all as expected"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# links_no_cuda.sh FILE...: fails, naming file and symbol or library, if an archive or program uses
# CUDA, cuDNN or cuBLAS: linked dynamically, or linked in (the static CUDA runtime).
set -euo pipefail
[ $# -gt 0 ] || { echo "no file given"; exit 1; }
failed=0
for file in "$@"; do
  symbols=$(nm "$file" 2>/dev/null) && [ -n "$symbols" ] || { echo "$file: nm finds no symbol"; exit 1; }
  # Symbols the file uses or defines; C names, so nothing of ours matches by accident.
  if found=$(grep -E ' [A-Za-z] (__cuda|cuda[A-Z]|cudnn[A-Z]|cublas)' <<<"$symbols"); then
    echo "$file: uses $(awk '{ print $NF }' <<<"$found" | head -n 3 | paste -sd ' ')"
    failed=1
  fi
  # Empty for an archive, which has no dynamic section.
  if found=$(readelf -d "$file" 2>/dev/null | grep -E 'NEEDED.*lib(cuda|cudnn|cublas|nv)'); then
    echo "$file: needs $(sed 's/.*\[\(.*\)\]/\1/' <<<"$found" | paste -sd ' ')"
    failed=1
  fi
done
exit $failed

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job from nothing: installs what is missing, builds the program, trains the segmenter on
# real pictures with the stages one after the other and overlapped, and compares the two runs.
set -euo pipefail

usage() {
  cat <<'TEXT'
bash bench/quickstart.sh [options]
  --steps N     training steps of each run (default 1900; the scores are held to their minimum only
                from 1900 on)
  --out DIR     logs, weights and the picture (default build/quickstart)
  --build DIR   build directory (default build)
  --setup-only  stop after the check of the system packages
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
steps=1900 build=$root/build out="" setup_only=0
while [ $# -gt 0 ]; do
  case $1 in
    --steps | --out | --build)
      [ $# -ge 2 ] || { echo "$1 needs a value" >&2; exit 2; }
      case $1 in
        --steps) steps=$2 ;;
        --out) out=$2 ;;
        --build) build=$2 ;;
      esac
      shift 2
      ;;
    --setup-only) setup_only=1; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
done
[[ $steps =~ ^[1-9][0-9]*$ ]] || { echo "--steps is '$steps'; allowed: a whole number from 1" >&2; exit 2; }
out=${out:-$root/build/quickstart}

# shellcheck source=../tests/setup.sh
. "$root/tests/setup.sh"
ensure_packages
[ "$setup_only" = 0 ] || exit 0

configure default "$build"
say "building the program"
cmake --build "$build" --target tandem_program --parallel "$(nproc)"
tandem=$build/bin/tandem

mkdir -p "$out"
for schedule in serial overlap; do
  say "training $steps steps, schedule $schedule"
  rm -rf "${out:?}/$schedule" "$out/$schedule.jsonl"
  "$tandem" train segment --data fashion-scenes --image 32 --batch 32 --steps "$steps" --lr 0.1 \
    --momentum 0.9 --schedule "$schedule" --seed 0 --device host --precision fp32 \
    --log "$out/$schedule.jsonl" --out "$out/$schedule"
done

"$tandem" predict segment --weights "$out/overlap" --data fashion-scenes --image 32 \
  --out "$out/predictions.png"

say "comparing the two runs"
python3 "$root/bench/compare_runs.py" "$out/serial.jsonl" "$out/overlap.jsonl" --full-run-steps 1900
say "picture, truth and prediction: $out/predictions.png"

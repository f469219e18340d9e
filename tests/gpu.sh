#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs a GPU: builds, runs all tests, runs the GPU tests under compute-sanitizer,
# measures Tandem and PyTorch in turn, and prints short tables. Logs go to $OUT (build-gpu/logs).
# Exits 0 if all parts that were asked for passed, 1 if one failed, 2 for wrong usage, 3 if packages are
# missing and cannot be installed.
set -uo pipefail

usage() {
  cat <<'TEXT'
bash tests/gpu.sh [parts] [options]     no part: all of them, in this order
  --tests       all tests; a GPU test that would skip fails
  --sanitize    GPU tests under memcheck, racecheck, initcheck, synccheck; the list of kernels seen
  --bench       Tandem and PyTorch on the segmenter at batch 8, 32 and 128, input on the device, with
                PyTorch's graphs and torch.compile
  --bench-classify  the same on the classifier with augmentation; the augmentation alone
  --bench-more  the segmenter at batch 4, 16 and 64; both jobs with a loader
  --bench-tricks  both jobs in bf16 at batch 8 and 32 with each fusion alone, and with all but one
  --quick       short forms: labels gpu only; memcheck only; two blocks at batch 8, eager rows only
  --built DIR   takes the build folder DIR as it is, and builds nothing
  --help
Each part should take less than ten minutes on an H200 with 16 cores; on a host with two and 32 cores --bench took
3.5 minutes, --bench-classify four, with the code of torch.compile there already. It is made while the build runs (80 s), and stays in
build-gpu/torch-caches for the next run. Where there are several GPUs, the tools of --sanitize spread over them.
Environment: OUT (logs and results), PYTHON (an interpreter that has PyTorch; python3), TANDEM_COMMIT (what
results are said to be of, where git does not know),
TORCHINDUCTOR_CACHE_DIR, CUDA_VISIBLE_DEVICES.
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build-gpu
parts=() quick=0 built=0
while [ $# -gt 0 ]; do
  case $1 in
    --tests | --sanitize | --bench | --bench-classify | --bench-more | --bench-tricks) parts+=("${1#--}") ;;
    --quick) quick=1 ;;
    --built)
      [ -f "${2:-}/CTestTestfile.cmake" ] || { echo "--built ${2:-}: that is no build folder" >&2; exit 2; }
      build=$(cd "$2" && pwd) built=1
      shift
      ;;
    -h | --help) usage; exit 0 ;;
    *) echo "unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
[ ${#parts[@]} -gt 0 ] || parts=(tests sanitize bench bench-classify bench-more bench-tricks)

# shellcheck source=setup.sh
. "$root/tests/setup.sh"
OUT=${OUT:-$build/logs}
PYTHON=${PYTHON:-python3}
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
jobs=$(nproc)
failed=()
# Both the command that warms the caches and those that measure use them.
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$build/torch-caches}
fail() { say "FAILED $*"; failed+=("$*"); }

# For the sanitizers. Only our kernels are instrumented: a mangled name of ours holds its namespace,
# and no kernel of cuBLASLt or cuDNN does. Theirs are not ours to repair, report what is meant to be
# (reads of padding), and take minutes each when instrumented.
filter=(--kernel-name kns=tandem)
# API errors are not the sanitizers' subject here: every call of ours checks its status, tests provoke
# errors on purpose (a device that does not exist, memory that is not there), and the libraries probe
# for functions that a driver may lack.
common=(--error-exitcode 1 --report-api-errors no --print-limit 20)
# What is left out: suites named *Large*, hundreds of millions of elements in the same code as the
# others, and *Heavy*, hundreds of steps, which take minutes under a tool. What they launch has a short form
# in another suite, but for what takes its size: more elements than a grid has threads, memory in use.
# *BesideABusyStream* sees nothing there: a tool runs kernels one after the other.
left_out='*Large*:*Heavy*:*BesideABusyStream*'
# racecheck follows every access to shared memory: it takes a quarter of an hour for *Repeats*, which launch
# the same kernels hundreds of times. The list of kernels needs them no more.
without_repeats="$left_out:*Repeats*"
# Tests in which only our kernels and copies run, all of them (kernels_seen holds them to the list). memcheck
# takes every test, since addresses depend on the plan; the others look into a kernel or its inputs:
# - initcheck (before 2025.4) does not see the bulk stores of library kernels, and would call what they wrote
#   uninitialised. With the library, poisoned workspaces and outputs find a read of what nobody wrote.
# - racecheck and synccheck follow shared memory and barriers, which begin and end with a launch. Beside
#   kernels of the library racecheck 2025.3 ends in an internal error.
our_kernels=(augment conv1x1_few conv3x3_loss kernels sgd weight_update)
# They launch no kernel of ours, or all their tests are *Heavy*.
not_sanitized='^tandem_test_(library_contract|cuda_info|gpu_environment)$'
# Programs with so many tests that each tool runs a sixth of them at a time.
many_tests='^tandem_test_gpu_(backend|ops|parity|training)$'
# Programs that hold kernels up. No kernel may be loaded behind such a one: all are loaded at the start, which
# takes a tool half a minute for each library.
with_gates='^tandem_test_gpu_(backend|memory|training)$'
# Programs that want the GPU for themselves.
alone='^tandem_test_gpu_memory$'
# Not launched by these tests: spin_kernel takes time and touches no memory.
not_seen='^spin_kernel$'
seconds_each=420

build_all() {
  has_command nvcc || { fail "build: there is no nvcc on the PATH"; return 1; }
  ensure_packages
  configure gpu "$build" ${TANDEM_COMMIT:+"-DTANDEM_COMMIT=$TANDEM_COMMIT"} || { fail "build: cmake"; return 1; }
  say "building"
  if ! cmake --build "$build" --parallel "$jobs" >"$OUT/build.log" 2>&1; then
    grep -E -A 5 'error|FAILED' "$OUT/build.log" | head -n 60
    fail "build: see $OUT/build.log"
    return 1
  fi
  nvidia-smi --query-gpu=index,name,driver_version,memory.used,clocks.sm --format=csv,noheader ||
    say "nvidia-smi does not run here"
}

# run_ctest NAME ARGUMENT...: one run of ctest, with its counts.
run_ctest() {
  local name=$1 status=0 started=$SECONDS
  shift
  rm -f "$OUT/$name.xml"
  TANDEM_REQUIRE_GPU=1 ctest --test-dir "$build" --output-on-failure --no-tests=error \
    --output-junit "$OUT/$name.xml" "$@" >"$OUT/$name.log" 2>&1 || status=$?
  python3 "$root/tests/count_results.py" "$OUT/$name.xml" --name "$name" --ctest-status "$status" |
    sed '$d'
  say "$name: $((SECONDS - started)) s"
  [ "$status" = 0 ] || fail "$name: see $OUT/$name.log"
}

part_tests() {
  [ "$quick" = 1 ] || run_ctest tests-cpu -LE gpu --parallel "$jobs"
  # PyTorch's own ten steps on this GPU, which the parity tests compare ours with.
  export TANDEM_TORCH_PARITY=$OUT/torch_parity.json
  python3 "$root/tests/golden/parity/torch_on_gpu.py" "$TANDEM_TORCH_PARITY" \
    >"$OUT/torch_parity.log" 2>&1 || fail "PyTorch's parity run: see $OUT/torch_parity.log"
  # One at a time: tests of overlap and of memory in use want the GPU for themselves.
  run_ctest tests-gpu -L gpu --parallel 1
}

# gpu_programs: prints the executables that hold the tests of label gpu, one a line.
gpu_programs() {
  ctest --test-dir "$build" -L gpu --show-only=json-v1 | python3 -c '
import json, sys
tests = json.load(sys.stdin)["tests"]
print("\n".join(sorted({test["command"][0] for test in tests if test.get("command")})))'
}

# The GPUs that tools may use, one job after the other.
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
  IFS=, read -r -a gpus <<<"$CUDA_VISIBLE_DEVICES"
else
  mapfile -t gpus < <(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null)
fi
[ ${#gpus[@]} -gt 0 ] || gpus=(0)

# sanitize NAME TOOL PROGRAM SHARD SHARDS GPU: the report is in NAME.log, the tool's exit code in NAME.status.
sanitize() {
  local without=$left_out status=0 loading=LAZY
  [ "$2" != racecheck ] || without=$without_repeats
  [[ ! $(basename "$3") =~ $with_gates ]] || loading=EAGER
  TANDEM_REQUIRE_GPU=1 OPENBLAS_NUM_THREADS=1 CUDA_MODULE_LOADING=$loading \
    GTEST_SHARD_INDEX=$4 GTEST_TOTAL_SHARDS=$5 CUDA_VISIBLE_DEVICES=$6 timeout "$seconds_each" \
    compute-sanitizer --tool "$2" "${common[@]}" "${filter[@]}" \
    "$3" --gtest_brief=1 --gtest_filter="-$without" >"$OUT/$1.log" 2>&1 || status=$?
  echo "$status" >"$OUT/$1.status"
}

# is_ours PROGRAM: it launches kernels of ours only.
is_ours() { [[ " ${our_kernels[*]/#/tandem_test_gpu_} " == *" $1 "* ]]; }

# judge NAME: says what sanitize found.
judge() {
  local log=$OUT/$1.log status
  status=$(cat "$OUT/$1.status" 2>/dev/null || echo none)
  rm -f "$OUT/$1.status"
  if [ "$status" = 124 ]; then
    fail "$1: not done after $seconds_each s; see $log"
  elif [ "$status" != 0 ]; then
    fail "$1: exit $status; see $log"
    grep -E '^=========|\[  FAILED  \]|Failure' "$log" | head -n 12
  elif ! grep -qE '^=+ (ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards)' "$log"; then
    fail "$1: no summary of 0 errors in $log"
  else
    good=$((good + 1))
  fi
}

part_sanitize() {
  has_command compute-sanitizer || { fail "sanitize: there is no compute-sanitizer on the PATH"; return; }
  local tools=(memcheck racecheck initcheck synccheck) tool program name programs status log
  [ "$quick" = 0 ] || tools=(memcheck)

  # Each tool has to find a planted fault, through the same filter.
  nvcc -arch=native -lineinfo -o "$OUT/planted_faults" "$root/tests/gpu/planted_faults.cu" ||
    { fail "sanitize: planted_faults.cu does not compile"; return; }
  for tool in "${tools[@]}"; do
    status=0
    timeout 60 compute-sanitizer --tool "$tool" "${common[@]}" "${filter[@]}" \
      "$OUT/planted_faults" "$tool" >"$OUT/planted-$tool.log" 2>&1 || status=$?
    # 1 is also the exit code of a tool that could not start; the report has to name the kernel.
    if [ "$status" = 1 ] && grep -q "${tool}_kernel" "$OUT/planted-$tool.log"; then
      say "$tool: finds the planted fault"
    else
      fail "$tool: does not find the planted fault (exit $status); see $OUT/planted-$tool.log"
    fi
  done

  mapfile -t programs < <(gpu_programs)
  [ ${#programs[@]} -gt 0 ] || { fail "sanitize: there is no test of label gpu"; return; }
  # Beside each other, since most of the time is the tools', on the CPU; tests that read how much memory is
  # free come last, alone.
  local -a names=()
  local shared shard shards most=$((jobs > 3 ? jobs - 2 : 1)) good=0
  for shared in yes no; do
    for program in "${programs[@]}"; do
      name=$(basename "$program")
      [[ $name =~ $not_sanitized ]] && continue
      if [[ $name =~ $alone ]]; then [ "$shared" = no ] || continue; else [ "$shared" = yes ] || continue; fi
      shards=1
      [[ ! $name =~ $many_tests ]] || shards=6
      for tool in "${tools[@]}"; do
        [ "$tool" = memcheck ] || is_ours "$name" || continue
        for ((shard = 0; shard < shards; ++shard)); do
          while [ "$(jobs -rp | wc -l)" -ge "$most" ]; do wait -n; done
          names+=("$tool-$name-$shard")
          sanitize "$tool-$name-$shard" "$tool" "$program" "$shard" "$shards" \
            "${gpus[${#names[@]} % ${#gpus[@]}]}" &
          [ "$shared" = yes ] || wait $!
        done
      done
    done
    wait
  done
  for name in "${names[@]}"; do judge "$name"; done
  say "sanitize: $good of ${#names[@]} runs without an error"
  kernels_seen
}

# kernels_seen: the kernels of ours that the tests launch are those of the list.
kernels_seen() {
  if ! has_command ncu; then
    say "kernels seen: skipped: there is no ncu on the PATH"
    return
  fi
  local log=$OUT/kernels.csv i=0 program failed_tools=0
  local -a running=()
  rm -f "$OUT"/kernels-*.csv
  for program in "${our_kernels[@]}"; do
    TANDEM_REQUIRE_GPU=1 CUDA_VISIBLE_DEVICES=${gpus[$((i++ % ${#gpus[@]}))]} timeout "$seconds_each" \
      ncu --clock-control none --metrics launch__grid_size --kernel-name-base demangled \
      --kernel-name regex:tandem --csv --page raw "$build/tests/tandem_test_gpu_$program" --gtest_brief=1 \
      --gtest_filter="-$without_repeats" >"$OUT/kernels-$program.csv" 2>&1 &
    running+=($!)
  done
  for i in "${running[@]}"; do wait "$i" || failed_tools=$((failed_tools + 1)); done
  [ "$failed_tools" = 0 ] || fail "kernels seen: $failed_tools runs of ncu failed; see $OUT/kernels-*.csv"
  cat "$OUT"/kernels-*.csv >"$log"
  # A launch is a quoted line. Its kernel is the only name of ours that ends in _kernel.
  grep '^"' "$log" | grep -oE '[a-z0-9_]+_kernel\b' | sort -u >"$OUT/kernels_seen.txt"
  grep -vE '^(#|$)' "$root/tests/gpu/kernel_list.txt" | grep -vE "$not_seen" | sort -u \
    >"$OUT/kernels_listed.txt"
  if diff "$OUT/kernels_listed.txt" "$OUT/kernels_seen.txt" >"$OUT/kernels.diff"; then
    say "kernels seen: $(wc -l <"$OUT/kernels_seen.txt"), those of tests/gpu/kernel_list.txt"
  else
    sed -n 's/^</    listed, not seen:/p; s/^>/    seen, not listed:/p' "$OUT/kernels.diff"
    fail "kernels seen: they are not those of tests/gpu/kernel_list.txt"
  fi
}

# Which rows --bench and --bench-classify measure.
segment_rows=(--segment "8,32,128") classify_rows=(--classify "8,32,128")

# start_warming: in the background, beside the build, what torch.compile makes for those rows.
warming=''
start_warming() {
  local rows=()
  [[ " ${parts[*]} " == *" bench "* ]] && rows+=("${segment_rows[@]}")
  [[ " ${parts[*]} " == *" bench-classify "* ]] && rows+=("${classify_rows[@]}")
  [ ${#rows[@]} -gt 0 ] && [ "$quick" = 0 ] || return 0
  "$PYTHON" "$root/bench/compare_gpu.py" --warm "${rows[@]}" >"$OUT/warm.log" 2>&1 &
  warming=$!
}

# end_warming: tests and measurements want the GPU for themselves. Without the caches the rows are the same,
# they only take longer to start.
end_warming() {
  [ -n "$warming" ] || return 0
  wait "$warming" || say "not all of torch.compile's code could be made beforehand: see $OUT/warm.log"
  say "torch.compile's caches and the build: $((SECONDS - started)) s"
}

# compare NAME ARGUMENT...: exit code 3 (nothing wrong, but only a part of a run) is good here; the page
# says whether the whole counts.
compare() {
  local name=$1 status=0
  shift
  "$PYTHON" -c 'import torch' 2>/dev/null ||
    { fail "$name: $PYTHON has no PyTorch; set PYTHON"; return; }
  : >"$OUT/$name.log"  # notes on the way, then the table
  "$PYTHON" "$root/bench/compare_gpu.py" --tandem "$build/bin/tandem" --json "$OUT/$name.json" "$@" \
    2>>"$OUT/$name.log" | tee -a "$OUT/$name.log" || status=$?
  [ "$status" = 0 ] || [ "$status" = 3 ] || fail "$name: exit $status; see $OUT/$name.log"
}

# augmentation_alone: its times, without a model.
augmentation_alone() {
  local program=$build/bin/bench_augment
  [ -x "$program" ] || { fail "augmentation alone: there is no $program"; return; }
  timeout 180 "$program" --benchmark_repetitions=5 --benchmark_report_aggregates_only=true \
    --benchmark_min_time=0.05 --benchmark_out_format=json --benchmark_out="$OUT/augment.json" ||
    fail "augmentation alone: exit $?"
}

part_bench() {
  if [ "$quick" = 1 ]; then
    compare bench --segment 8 --blocks 2 --eager-only
  else
    compare bench --tune "${segment_rows[@]}"
  fi
}

part_bench_classify() {
  augmentation_alone
  if [ "$quick" = 1 ]; then
    compare bench-classify --classify 8 --blocks 2 --eager-only
  else
    compare bench-classify --tune "${classify_rows[@]}"
  fi
}

part_bench_more() {
  [ "$quick" = 1 ] && { say "bench-more: left out by --quick"; return; }
  compare bench-more --tune --segment 4,16,64 --segment-loader 8 --classify-loader 8,32,128 --blocks 3 --eager-only
}

# trick JOB NAME FUSE [OPTION...]: prints a line, steps a second at batch 8 and 32.
trick() {
  local json=$OUT/trick.json
  "$build/bin/tandem" bench "$1" --device cuda:0 --input device --init-scheme he --observe 0 --batch 8,32 \
    --precision bf16 --schedule graph --warmup 50 --steps 200 --fuse "${@:3}" --json "$json" --quiet \
    >"$OUT/trick.log" 2>&1 || { fail "tricks: $1, $2: see $OUT/trick.log"; return; }
  python3 -c '
import json, sys
rates = [row["steps_per_s"] for row in json.load(open(sys.argv[3]))["rows"]]
print("| {} | {} |".format(sys.argv[1] + ", " + sys.argv[2], " | ".join(
    "{median:.0f} ({min:.0f} .. {max:.0f})".format(**rate) for rate in rates)))' "$1" "$2" "$json"
}

part_bench_tricks() {
  local tricks=(pointwise update many head products) job name others
  [ "$quick" = 0 ] || { say "bench-tricks: left out by --quick"; return; }
  printf '| fused | batch 8 | batch 32 |\n| --- | --- | --- |\n' >"$OUT/tricks.md"
  for job in segment classify; do
    trick "$job" nothing none
    for name in "${tricks[@]}"; do trick "$job" "only $name" "$name"; done
    for name in "${tricks[@]}"; do
      others=$(printf '%s\n' "${tricks[@]}" | grep -vx "$name" | paste -sd ,)
      trick "$job" "all but $name" "$others"
    done
    trick "$job" all all
    trick "$job" "all, no side lanes" all --side-lanes off
  done >>"$OUT/tricks.md"
  cat "$OUT/tricks.md"
}

started=$SECONDS
start_warming
[ "$built" = 1 ] || { build_all && built=1; }
end_warming
if [ "$built" = 1 ]; then
  for part in "${parts[@]}"; do
    say "=== $part"
    part_started=$SECONDS
    "part_${part//-/_}"
    say "=== $part: $((SECONDS - part_started)) s"
  done
fi
if [ -s "$OUT/bench.json" ]; then
  results=()
  for name in bench bench-classify bench-more augment; do
    [ ! -s "$OUT/$name.json" ] || results+=("$OUT/$name.json")
  done
  "$PYTHON" "$root/bench/compare_gpu.py" --render "${results[@]}" >"$OUT/benchmarks.md" &&
    say "page of ${results[*]##*/}: $OUT/benchmarks.md"
fi
say "logs: $OUT; $((SECONDS - started)) s"
for text in "${failed[@]}"; do say "FAILED $text"; done
[ ${#failed[@]} = 0 ] && say "all passed"
[ ${#failed[@]} = 0 ]

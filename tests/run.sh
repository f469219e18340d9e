#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs every test that this machine can run: all of them in a
# release build, then the host tests under address and under thread sanitizer.
# Last line: "N passed, N failed, N skipped". Exits 1 if a test failed or none ran.
set -euo pipefail

usage() {
  cat <<'TEXT'
bash tests/run.sh [options]
  --only BUILD  only this build: normal, asan or tsan
  --setup-only  stop after the check of the system packages
Environment: TANDEM_WERROR=ON makes warnings errors; TANDEM_SKIP_SETUP=1 does not look at packages.
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
builds=(normal asan tsan) setup_only=0
while [ $# -gt 0 ]; do
  case $1 in
    --only)
      [[ ${2:-} =~ ^(normal|asan|tsan)$ ]] ||
        { echo "--only is '${2:-}'; allowed: normal, asan, tsan" >&2; exit 2; }
      builds=("$2")
      shift 2
      ;;
    --setup-only) setup_only=1; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
done

# shellcheck source=setup.sh
. "$root/tests/setup.sh"
ensure_packages
[ "$setup_only" = 0 ] || exit 0

jobs=$(nproc)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
counts=$scratch/counts # one line a build: passed failed skipped

# One architecture is enough to compile for; with a GPU here, its own, and no GPU test may skip.
normal_preset() {
  if has_command nvcc && [ -e /dev/nvidiactl ]; then echo gpu; else echo ci; fi
}

# sanitizer_prefix FLAG: prints what a program built with that sanitizer must be started through:
# nothing, or `setarch -R` where address randomisation is too strong for it. Fails if neither works.
sanitizer_prefix() {
  local program=$scratch/probe prefix run
  echo 'int main() {}' | ${CXX:-c++} -x c++ "-fsanitize=$1" -o "$program" - >&2 || return 1
  for prefix in "" "setarch -R"; do
    for run in 1 2 3 4 5 6 7 8 9 10; do # the addresses differ from run to run
      $prefix "$program" >/dev/null 2>&1 || continue 2
    done
    echo "$prefix"
    return
  done
  return 1
}

# run_build PRESET [PREFIX]: configures, builds, tests, and adds a line to $counts.
run_build() {
  local preset=$1 prefix=${2:-} directory=$root/build-$1 status=0
  say "$preset: configuring"
  if ! configure "$preset" "$directory" "-DTANDEM_WERROR=${TANDEM_WERROR:-OFF}"; then
    echo "0 1 0" >>"$counts"
    return
  fi
  say "$preset: building"
  if ! cmake --build "$directory" --parallel "$jobs" >"$directory/build.log" 2>&1; then
    tail -n 60 "$directory/build.log" >&2
    say "$preset: does not build; all output is in $directory/build.log" >&2
    echo "0 1 0" >>"$counts"
    return
  fi
  say "$preset: testing"
  rm -f "$directory/junit.xml"
  (cd "$root" && $prefix ctest --preset "$preset" --parallel "$jobs" \
    --output-junit "$directory/junit.xml") >"$directory/test.log" 2>&1 || status=$?
  python3 "$root/tests/count_results.py" "$directory/junit.xml" --name "$preset" \
    --ctest-status "$status" >"$scratch/report" || echo "0 1 0" >>"$scratch/report"
  sed '$d' "$scratch/report"
  tail -n 1 "$scratch/report" >>"$counts"
}

for build in "${builds[@]}"; do
  started=$SECONDS
  case $build in
    normal) run_build "$(normal_preset)" ;;
    asan | tsan)
      flag=address
      [ "$build" = asan ] || flag=thread
      if prefix=$(sanitizer_prefix "$flag"); then
        [ -z "$prefix" ] || say "$build: started through '$prefix'"
        run_build "$build" "$prefix"
      else
        say "$build: skipped: a program with -fsanitize=$flag does not start here, nor through" \
          "setarch -R (address randomisation, or the sanitizer is not installed)"
        echo "0 0 1" >>"$counts"
      fi
      ;;
  esac
  say "$build: $((SECONDS - started)) s"
done

awk '{ p += $1; f += $2; s += $3 }
     END { print p + 0 " passed, " f + 0 " failed, " s + 0 " skipped"
           exit !(f == 0 && p > 0) }' "$counts"

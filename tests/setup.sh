# SPDX-License-Identifier: Apache-2.0
# Sourced by bench/quickstart.sh and tests/run.sh: finds what the build needs, installs what is
# missing where that is possible, and otherwise says what is missing and exits 3.
#
# A thing is present if it can be used (a command runs, a header compiles), or else if dpkg says so.
# TANDEM_SKIP_SETUP=1 skips all of it, for machines whose libraries live in unusual places that only
# CMake is told about.

say() { printf '[tandem] %s\n' "$*"; }

has_command() { command -v "$1" >/dev/null 2>&1; }
has_header() { printf '#include <%s>\n' "$1" | ${CXX:-c++} -x c++ -E - >/dev/null 2>&1; }
has_library() { has_command pkg-config && pkg-config --exists "$1" >/dev/null 2>&1; }
has_compiler() { printf '#include <version>\n' | ${CXX:-c++} -std=c++20 -x c++ -E - >/dev/null 2>&1; }
has_debian_package() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Package names are the same in Debian 12 and Ubuntu 24.04.
has_package() {
  case $1 in
    g++) has_compiler ;;
    cmake) has_command cmake ;;
    ninja-build) has_command ninja ;;
    pkg-config) has_command pkg-config ;;
    python3) has_command python3 ;;
    libopenblas-dev) has_library openblas ;;
    nlohmann-json3-dev) has_header nlohmann/json.hpp ;;
    libfmt-dev) has_header fmt/core.h ;;
    libcli11-dev) has_header CLI/CLI.hpp ;;
    zlib1g-dev) has_header zlib.h ;;
    libjpeg-dev) has_header jpeglib.h ;;
    libpng-dev) has_header png.h ;;
    libgtest-dev) has_header gtest/gtest.h ;;
    dataset-fashion-mnist) [ -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] ;;
    *) false ;;
  esac || has_debian_package "$1"
}

packages=(g++ cmake ninja-build pkg-config python3 libopenblas-dev nlohmann-json3-dev libfmt-dev
  libcli11-dev zlib1g-dev libjpeg-dev libpng-dev libgtest-dev dataset-fashion-mnist)

# missing_packages: prints those that are not present.
missing_packages() {
  local package
  for package in "${packages[@]}"; do
    has_package "$package" || printf '%s ' "$package"
  done
}

# give_up PACKAGES REASON
give_up() {
  say "missing packages: $1" >&2
  say "$2; install them, for example: apt-get install $1" >&2
  exit 3
}

# ensure_packages: calls apt-get only if something is missing.
ensure_packages() {
  if [ "${TANDEM_SKIP_SETUP:-0}" = 1 ]; then
    say "TANDEM_SKIP_SETUP=1: not looking at system packages"
    return
  fi
  local missing as_root=""
  missing=$(missing_packages)
  missing=${missing% }
  if [ -z "$missing" ]; then
    say "system packages: all present"
    return
  fi
  has_command apt-get || give_up "$missing" "there is no apt-get here"
  if [ "$(id -u)" != 0 ]; then
    has_command sudo || give_up "$missing" "not root, and there is no sudo"
    as_root=sudo
  fi
  say "installing: $missing"
  # An update that fails (no network) may still leave lists good enough to install from.
  $as_root apt-get update -q || say "apt-get update failed; trying with the lists there are"
  # shellcheck disable=SC2086  # one word a package
  $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends $missing ||
    give_up "$missing" "apt-get could not install them"
  missing=$(missing_packages)
  [ -z "$missing" ] || give_up "${missing% }" "apt-get ran, but they are still missing"
}

# configure PRESET DIRECTORY [ARGUMENT...]: quiet, except for the summary, and for all if it fails.
configure() {
  local preset=$1 directory=$2 log
  shift 2
  mkdir -p "$directory"
  log=$directory/configure.log
  # Ninja for a new directory; one that exists keeps the generator it has.
  if ! (cd "$root" && CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja} \
    cmake --preset "$preset" -B "$directory" "$@") >"$log" 2>&1; then
    cat "$log" >&2
    say "cmake failed; its output is above and in $log" >&2
    return 1
  fi
  sed -n 's/^-- \(tandem [0-9].*\)/[tandem] \1/p; s/^-- \(  [A-Za-z]*: .*\)/[tandem] \1/p' "$log"
}

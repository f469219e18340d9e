# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of this folder: $root, $work (removed at the end), and a PATH of their own.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*"; exit 1; }

# path_without NAME...: makes $work/bin, which has the commands of this machine except those.
path_without() {
  rm -rf "$work/bin" "$work/called"
  mkdir "$work/bin"
  local directory name
  # The first of a name wins, as in a search of PATH.
  while IFS= read -r -d : directory; do
    [ -d "$directory" ] || continue
    find "$directory/" -maxdepth 1 ! -type d -print0 |
      xargs -0 -r ln -s -t "$work/bin" 2>/dev/null || true
  done <<<"$PATH:"
  for name in "$@"; do rm -f "$work/bin/$name"; done
}

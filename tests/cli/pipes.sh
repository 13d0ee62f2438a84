#!/usr/bin/env bash
# Job files from pipes, results into pipes, and a file that may not grow. Usage: pipes.sh PROGRAM
set -uo pipefail
program=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/inputs" || exit 1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0
check() {  # check WHAT COMMAND...
  local what=$1
  shift
  if ! "$@"; then
    echo "$what"
    failed=$((failed + 1))
  fi
}

from_a_pipe() { timeout 20 "$program" simulate <(cat good.yaml) --json "$tmp/a.json" >/dev/null; }
into_a_pipe() {
  mkfifo "$tmp/pipe"
  timeout 20 cat "$tmp/pipe" >"$tmp/b.json" &
  timeout 20 "$program" simulate good.yaml --json "$tmp/pipe" >/dev/null && wait && [[ -s $tmp/b.json ]]
}
no_room() {  # status 3, a word, and nothing left behind
  (ulimit -f 1 && "$program" simulate good.yaml --timeline "$tmp/c.pftrace" >/dev/null 2>"$tmp/said")
  [[ $? == 3 ]] && grep -q 'File too large' "$tmp/said" && ! compgen -G "$tmp/c.pftrace*" >/dev/null
}
check 'a job from a pipe is not read' from_a_pipe
check 'a result does not come through a named pipe' into_a_pipe
check 'ulimit -f is not said' no_room
echo "$((3 - failed)) passed, $failed failed"
exit "$failed"

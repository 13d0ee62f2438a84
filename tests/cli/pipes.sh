#!/usr/bin/env bash
# Job files from pipes, results into pipes, a file that may not grow, exit codes, and inputs without an end.
# Usage: pipes.sh PROGRAM
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
signalled() {  # the shell's code for what ended it
  mkfifo "$tmp/silent"
  sleep 20 >"$tmp/silent" &
  timeout -s TERM --preserve-status 1 "$program" simulate "$tmp/silent" 2>/dev/null
  [[ $? == 143 ]] || return 1
  timeout -s INT --preserve-status 1 "$program" simulate "$tmp/silent" 2>/dev/null
  [[ $? == 130 ]]
}
help_into_a_full_disk() {
  "$program" simulate --help >/dev/full 2>"$tmp/said"
  [[ $? == 3 ]] && grep -q 'No space left' "$tmp/said" && "$program" --help >/dev/null
}
read_only() {  # where the machine has such a file system that root could write to otherwise
  if touch /sys/orrery 2>&1 | grep -q 'Read-only file system'; then
    "$program" simulate good.yaml --json /sys/orrery.json >/dev/null 2>"$tmp/said"
    [[ $? == 3 ]] && grep -q 'read-only' "$tmp/said"
  fi
}
short_help() {  # 40 lines at most, three examples, for every command
  local verb lines
  for verb in $("$program" --help | sed -n '/^Subcommands/,$p' | awk '/^  [a-z]/{print $1}'); do
    lines=$("$program" "$verb" --help | wc -l)
    if ((lines > 40)) || [[ $("$program" "$verb" --help | grep -c "^  orrery $verb") != 3 ]]; then
      echo "$verb --help: $lines lines"
      return 1
    fi
  done
  [[ -n ${verb:-} ]]
}
# Two GiB of zeros that take no disk, as a file of every kind, and a device that never ends: all are
# refused in 1 GB of memory, addresses included. A GOAL schedule is mapped: its 2 GiB count there.
truncate -s 2G "$tmp/zeros" "$tmp/zeros.cm" "$tmp/zeros.goal" "$tmp/zeros.xml"
endless() {  # endless GiB COMMAND...
  (ulimit -v $(($1 << 20)) && shift && timeout 20 "$program" "$@" >/dev/null 2>"$tmp/said")
  local status=$?
  [[ $status == 2 ]] && grep -q '^orrery: ' "$tmp/said" || {
    echo "orrery ${*:2}: status $status, $(head -c 300 "$tmp/said")"
    return 1
  }
}
never_ends() {
  local bad=0
  for file in /dev/zero "$tmp/zeros"; do
    for words in "inspect $file" "simulate $file" "compare $file $file" "explain $file" \
      "validate $file" "traffic all-to-all --shares $file" "traffic alltoall --shares $file" \
      "traffic all-reduce --compare $file" "traffic all-reduce --calibration $file" \
      "traffic poisson --sizes $file" "calibrate nccl-tests $file" \
      "simulate good.yaml --set model=$file" "plan $file" "import $file"; do
      # shellcheck disable=SC2086
      endless 1 $words || bad=1
    done
  done
  endless 1 traffic "$tmp/zeros.cm" || bad=1
  endless 1 traffic all-reduce --cluster "$tmp/zeros.xml" || bad=1
  endless 4 simulate "$tmp/zeros.goal" || bad=1
  endless 1 inspect <(yes 'G 8 3 1 0 1 64') || bad=1
  return $bad
}
check 'a job from a pipe is not read' from_a_pipe
check 'SIGTERM and SIGINT are not told apart' signalled
check '--help >/dev/full is not said' help_into_a_full_disk
check 'a read-only file system is not status 3' read_only
check 'a --help is longer than 40 lines, or has not three examples' short_help
check 'a result does not come through a named pipe' into_a_pipe
check 'ulimit -f is not said' no_room
checks=7
if ! grep -q __asan_init "$program"; then  # which takes terabytes of addresses
  checks=8
  check 'an endless input is read to the end' never_ends
fi
echo "$((checks - failed)) passed, $failed failed"
exit "$failed"

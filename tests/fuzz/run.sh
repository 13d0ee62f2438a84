#!/usr/bin/env bash
# Fuzzes every target for a while, with ASan and UBSan, on one core. A crash is a file in tests/fuzz/corpus of its target
# from then on: mend it and keep the file. Usage: run.sh SECONDS_A_TARGET [TARGET...]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 3
seconds=${1:?usage: run.sh SECONDS_A_TARGET [TARGET...]}
shift
cmake --preset fuzz >build/fuzz.log 2>&1 && cmake --build --preset fuzz --target fuzz_readers fuzz_jobs fuzz_traces >>build/fuzz.log 2>&1 ||
  { tail -n 20 build/fuzz.log; exit 3; }
crashes=0
for program in build/fuzz/tests/fuzz/fuzz_{readers,jobs,traces}; do
  for target in $(ORRERY_FUZZ_TARGET=none "$program" 2>&1 | tail -n +2); do
    if (($# > 0)) && [[ " $* " != *" $target "* ]]; then continue; fi
    work=build/fuzz/work/$target
    mkdir -p "$work"
    log=build/fuzz/$target.log
    ORRERY_FUZZ_TARGET=$target nice "$program" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -max_len=65536 \
      -artifact_prefix="tests/fuzz/corpus/$target/" "$work" "tests/fuzz/corpus/$target" >"$log" 2>&1
    status=$?
    runs=$(grep -oE 'Done [0-9]+ runs|^#[0-9]+' "$log" | grep -oE '[0-9]+' | tail -n 1)
    echo "$target: $runs executions, $([[ $status == 0 ]] && echo 'no crash' || echo "status $status, see $log")"
    if [[ $status != 0 ]]; then crashes=$((crashes + 1)); fi
  done
done
echo "$crashes crashes"
exit "$((crashes > 0))"

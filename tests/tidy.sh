#!/usr/bin/env bash
# Holds the C++ sources, and the headers they include, to .clang-tidy. Counts as one test.
#
#   tests/tidy.sh           the files that the last commit touched and a tenth of the others, drawn by the
#                           commit's hash: a file takes some 5 s of a core
#   tests/tidy.sh --all     every file
#   tests/tidy.sh FILE...   these
#
# REQUIRES: build/release is built.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 3
readonly PARTS=10

# faults.cc stands in for the C library: its names and parameters are the library's.
mapfile -t every < <(git ls-files '*.cc' 2>/dev/null | grep -vE '_test\.cc$|/faults\.cc$')
if ((${#every[@]} == 0)); then
  mapfile -t every < <(find src apps cli bench python tests -name '*.cc' ! -name '*_test.cc' ! -name faults.cc | sort)
fi
files=()
if (($# == 0)); then
  hash=$(git rev-parse HEAD 2>/dev/null)
  part=$((0x0${hash:0:7} % PARTS))
  mapfile -t touched < <(git diff --name-only HEAD~1 -- '*.cc' 2>/dev/null)
  for i in "${!every[@]}"; do
    if ((i % PARTS == part)) || [[ " ${touched[*]} " == *" ${every[i]} "* ]]; then files+=("${every[i]}"); fi
  done
elif [[ $1 == --all ]]; then
  files=("${every[@]}")
else
  files=("$@")
fi

# One command a file, though the build may compile folders as one; and without gcc's precompiled headers, which
# clang cannot read.
mkdir -p build/tidy
if ! cmake --preset release -B build/tidy/plain -DCMAKE_UNITY_BUILD=OFF -DORRERY_PYTHON=ON >build/tidy/log 2>&1 ||
  ! sed -E -e 's/ -Winvalid-pch -include [^ ]*cmake_pch\.hxx//' -e 's/build\/tidy\/plain/build\/release/g' \
    build/tidy/plain/compile_commands.json >build/tidy/compile_commands.json; then
  tail -n 20 build/tidy/log
  echo "0 passed, 1 failed"
  exit 1
fi
if printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy-14 --quiet -p build/tidy >build/tidy/log 2>&1; then
  echo "${#files[@]} of ${#every[@]} files"
  echo "1 passed, 0 failed"
else
  grep -E 'error:|warning:|Error ' build/tidy/log | sort -u
  echo "0 passed, 1 failed"
  exit 1
fi

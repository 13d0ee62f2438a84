#!/usr/bin/env bash
# The table of fingerprints (tests/spine/fingerprints.txt) under another compiler and another build type at
# once: what gcc's release build wrote must come out of clang's with assertions and little optimised, to the bit.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 3
if cmake --preset clang-debug -DCMAKE_UNITY_BUILD=ON && cmake --build --preset clang-debug --target spine_test &&
  build/clang-debug/tests/spine/spine_test --gtest_filter='Table.*'; then
  echo "1 passed, 0 failed"
else
  echo "clang's debug build disagrees or does not build"
  echo "0 passed, 1 failed"
  exit 1
fi

#!/usr/bin/env bash
# The table of fingerprints (tests/spine/fingerprints.txt) under another compiler and another build type:
# what gcc's release build wrote must come out of clang's, and of a build with assertions, to the bit.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 3
passed=0
failed=0
for preset in clang debug; do
  if cmake --preset "$preset" && cmake --build --preset "$preset" --target spine_test &&
    "build/$preset/tests/spine/spine_test" --gtest_filter='Table.*'; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "the $preset build disagrees or does not build"
  fi
done
echo "$passed passed, $failed failed"
exit $((failed > 0))

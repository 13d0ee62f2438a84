#!/usr/bin/env bash
# A wheel is built from what CMake has built, goes into a fresh environment and simulates there.
# Usage: test_wheel.sh PYTHON, which has setuptools and wheel.
set -euo pipefail
python=${1:?usage: test_wheel.sh PYTHON}
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp" "$source/build" "$source/orrery.egg-info"' EXIT
"$python" -m pip wheel -q --no-deps --no-build-isolation -w "$tmp" "$source"
"$python" -m venv "$tmp/fresh"
"$tmp/fresh/bin/python" -m pip install -q --no-index --no-deps "$tmp"/orrery-*.whl
cd "$tmp"  # away from the sources
env -u PYTHONPATH "$tmp/fresh/bin/python" - "$source/../examples/gpt3-175b-8k-h100.yaml" <<'P'
import sys
import orrery

result = orrery.simulate(sys.argv[1])
assert result.step_time_s > 0, result
assert orrery.__file__.startswith(sys.prefix), orrery.__file__
assert not [name for name in __import__("os").listdir(orrery.__path__[0]) if name.startswith("test_")]
try:
    orrery.simulate({"model": "nonesuch"})
    sys.exit("an unknown model passed")
except orrery.Error as error:
    assert "nonesuch" in str(error), error
P
echo "1 passed, 0 failed"

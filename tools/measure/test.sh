#!/bin/sh
# Runs the kit's tests on the CPU, in under three minutes on two cores.
# PYTHON: a python with the packages of requirements.txt (default python3). Arguments go to pytest.
set -eu
here=$(dirname "$0")
: "${PYTHON:=python3}"
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} PYTHONDONTWRITEBYTECODE=1 \
  exec "$PYTHON" -m pytest -q -p no:cacheprovider "$here/tests" "$@"

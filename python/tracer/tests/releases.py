#!/usr/bin/env python3
"""Runs the tests that need PyTorch alone under other releases of it: a line for each.

    python3 python/tracer/tests/releases.py --venvs DIRECTORY [2.4.1 2.5.1 ...]

Each release gets a virtual environment in DIRECTORY, from PyPI, unless it is there; those are CUDA
builds of 5 to 7 GB with NVIDIA's libraries, traced as on a machine without a driver. Left out are
other frameworks, which ask for one release of PyTorch each, the package's own checks, and the
tests that an adapter is still needed, which hold for the release of requirements.txt.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

RELEASES = ("2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.8.0", "2.9.1")
BESIDE = ("numpy==2.2.6", "pytest==9.2.0", "pytest-xdist==3.8.0", "setuptools")
LEFT_OUT = ("megatron", "deepspeed", "transformers", "torchtitan", "test_package", "test_without")
HERE = Path(__file__).resolve().parent


def python_of(release: str, venvs: Path) -> Path:
    """The Python of an environment with this release, made if it is missing."""
    folder = venvs / release
    python = folder / "bin/python"
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        command = [python, "-m", "pip", "install", "-q", "--no-cache-dir", f"torch=={release}"]
        subprocess.run([*command, *BESIDE], check=True)
        (folder / "complete").touch()
    return python


def tested(python: Path) -> str:
    """`N passed, N failed` and the names of those that failed."""
    chosen = " and ".join(f"not {word}" for word in LEFT_OUT)
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "-k", chosen]
    done = subprocess.run(
        [*command, HERE], capture_output=True, text=True, check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    counts = re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout.splitlines()[-1])
    if not counts:
        return done.stdout[-2000:] + done.stderr[-2000:]
    failed = re.findall(r"^FAILED \S+::(\S+)", done.stdout, re.MULTILINE)
    said = ", ".join(f"{count} {what}" for count, what in counts)
    return f"{said}{': ' if failed else ''}{', '.join(failed)}"


def main() -> None:
    """Prints the table."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--venvs", type=Path, required=True, metavar="DIRECTORY")
    p.add_argument("releases", nargs="*", default=RELEASES)
    options = p.parse_args()
    for release in options.releases:
        print(f"{release}: {tested(python_of(release, options.venvs))}", flush=True)


if __name__ == "__main__":
    main()

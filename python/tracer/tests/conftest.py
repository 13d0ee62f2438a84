"""Runs `orrery-trace` as a user does, in a process of its own, and gives the trace."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import TypeVar

import pytest

TRACER = Path(__file__).parent.parent
EXAMPLES = TRACER / "examples"

sys.path.insert(0, str(TRACER))

from orrery_trace.trace import Trace, read_directory  # noqa: E402

Item = TypeVar("Item")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def drawn(items: Sequence[Item], count: int) -> list[Item]:
    """A few of costly cases, others every day; all of them where ORRERY_ALL_TESTS is set."""
    if os.environ.get("ORRERY_ALL_TESTS"):
        return list(items)
    first = date.today().toordinal() * count
    return [items[(first + i) % len(items)] for i in range(count)]


def run_cli(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`orrery-trace ARGUMENTS`."""
    environment = {**os.environ, "PYTHONPATH": str(TRACER), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "orrery_trace", *map(str, arguments)],
        capture_output=True, text=True, check=False, env=environment, cwd=cwd,
    )  # fmt: skip


def traced(
    folder: Path, options: list[str], *command: str | Path, cwd: Path | None = None
) -> dict[int, Trace]:
    """Traces a command that must succeed; the traces by rank."""
    done = run_cli(*options, "--out", folder, "--", "python", *command, cwd=cwd)
    assert done.returncode == 0, done.stderr[-3000:]
    return read_directory(folder)


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a script into the test's folder."""

    def write(text: str) -> Path:
        path = tmp_path / "script.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write

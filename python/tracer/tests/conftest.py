"""Runs `orrery-trace` as a user does, a process a command, and gives the trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import date
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import pytest

TRACER = Path(__file__).parent.parent
EXAMPLES = TRACER / "examples"

sys.path.insert(0, str(TRACER))

from orrery_trace.trace import Trace, read_directory  # noqa: E402

Item = TypeVar("Item")
Done = subprocess.CompletedProcess[str]


def drawn(items: Sequence[Item], count: int) -> list[Item]:
    """A few of costly cases, others every day; all of them where ORRERY_ALL_TESTS is set."""
    if os.environ.get("ORRERY_ALL_TESTS"):
        return list(items)
    first = date.today().toordinal() * count
    return [items[(first + i) % len(items)] for i in range(count)]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(TRACER), "OMP_NUM_THREADS": "1"}


def run_alone(*arguments: str | Path, cwd: Path | None = None) -> Done:
    """`orrery-trace ARGUMENTS` in a Python of its own, as a user starts it."""
    return subprocess.run(
        [sys.executable, "-m", "orrery_trace", *map(str, arguments)],
        capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd=cwd,
    )  # fmt: skip


def pytest_unconfigure() -> None:
    """Ends the process that forks."""
    if _server.cache_info().currsize:
        _server().communicate()


@cache
def _server() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, TRACER / "tests/forked.py"], env=ENVIRONMENT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip


def run_cli(*arguments: str | Path, cwd: Path | None = None, without: str = "") -> Done:
    """`orrery-trace ARGUMENTS` in a fork of a process with PyTorch loaded, which saves seconds.

    `without` names an adapter to leave out.
    """
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        said = [Path(folder) / name for name in ("out", "err")]
        request = {
            "arguments": [*map(str, arguments)], "cwd": str(cwd or Path.cwd()),
            "out": str(said[0]), "err": str(said[1]), "without": without,
        }  # fmt: skip
        print(json.dumps(request), file=server.stdin, flush=True)
        status = int(server.stdout.readline())
        return Done(list(map(str, arguments)), status, *(path.read_text() for path in said))


def traced(
    folder: Path, options: list[str], *command: str | Path, cwd: Path | None = None
) -> dict[int, Trace]:
    """Traces a command that must succeed; the traces by rank."""
    done = run_cli(*options, "--out", folder, "--", "python", *command, cwd=cwd)
    assert done.returncode == 0, done.stderr[-3000:]
    return read_directory(folder)


def skip_without(file: str, text: str) -> None:
    """Skips a test of what this release of PyTorch does not have: a file, and a text in it."""
    spec = find_spec("torch")
    assert spec is not None and spec.origin is not None
    path = Path(spec.origin).parent / file
    if not path.exists() or text not in path.read_text(encoding="utf-8"):
        pytest.skip(f"this PyTorch has no {text}")


def release_of(trace: Trace) -> tuple[int, ...]:
    """PyTorch's, as in (2, 13)."""
    return tuple(int(word) for word in trace.header["torch"].split(".")[:2])


def awaited(trace: Trace) -> list[int]:
    """Communications that are waited for, those of a call that is waited for included."""
    ids = [line["comm"] for line in trace.of("wait")]
    calls: dict[int, list[int]] = {}
    inside: list[int] = []
    for line in trace.of("call_begin", "comm", "call_end"):
        if line["t"] == "comm":
            inside.append(line["id"])
        elif line["t"] == "call_begin":
            inside = []
        elif "id" in line:
            calls[line["id"]] = inside
    return [number for id_ in ids for number in calls.get(id_, [id_])]


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a script into the test's folder."""

    def write(text: str) -> Path:
        path = tmp_path / "script.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write

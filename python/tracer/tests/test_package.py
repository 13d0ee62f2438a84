"""The package itself: a wheel that carries what is compiled on first use; types; style."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from conftest import TRACER


def run(*arguments: str | Path, cwd: Path = TRACER) -> None:
    """`python -m ARGUMENTS`, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], capture_output=True, text=True, check=False,
        cwd=cwd,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_a_wheel_builds_and_holds_every_file(tmp_path: Path) -> None:
    """Every module, the guard's source, the mark of typed packages; the command."""
    source = tmp_path / "source"
    shutil.copytree(TRACER, source, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    run("pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, source)
    (wheel,) = tmp_path.glob("orrery_trace-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    package = TRACER / "orrery_trace"
    files = {p for p in package.rglob("*") if p.suffix in (".py", ".cpp", ".typed")}
    files.add(package / "py.typed")
    assert {str(p.relative_to(TRACER)) for p in files} <= names
    (entry,) = [n for n in names if n.endswith("entry_points.txt")]
    assert b"orrery-trace = orrery_trace.cli:main" in zipfile.ZipFile(wheel).read(entry)


def test_types_and_style() -> None:
    """mypy and ruff have no complaint."""
    run("mypy", "--no-incremental", "orrery_trace")
    run("ruff", "check", "--no-cache", ".")
    run("ruff", "format", "--no-cache", "--check", ".")

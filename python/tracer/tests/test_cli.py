"""What a user can get wrong is said by name, with exit status 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import EXAMPLES, run_alone, run_cli, traced


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--", "python", "x.py"], "--world-size and a command are needed"),
        (["--world-size", "4"], "--world-size and a command are needed"),
        (["--world-size", "4", "--rank", "4", "--", "python", "x.py"], "ranks of a world of 4"),
        (["--world-size", "4", "--", "python", "x.py"], "x.py: no such script"),
        (["--world-size", "4", "--", "python"], "no script to run"),
        (["--world-size", "4", "--mesh", "pp=2", "--", "python", "x.py"], "has 2 places"),
        (["--world-size", "4", "--mesh", "pp=2,dp=2", "--distinct", "tp", "--", "x.py"],
         "--distinct tp: no dimension"),
        (["--show", "nowhere"], "nowhere"),
    ],
)  # fmt: skip
def test_mistakes(tmp_path: Path, options: list[str], said: str) -> None:
    """One line on standard error, no traceback, nothing written."""
    done = run_alone(*options, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_program_that_ends_too_early(tmp_path: Path, script: Callable[[str], Path]) -> None:
    """The message says how far it came and what to do."""
    path = script("import torch\ntorch.ones(2, device='cuda').sum()\n")
    done = run_alone("--world-size", "2", "--out", tmp_path / "out", "--", "python", path)
    assert done.returncode == 2
    assert "the program ended in training step 0, and step 1 (counted from 0)" in done.stderr


def test_pytorch_imported_too_early(tmp_path: Path, script: Callable[[str], Path]) -> None:
    """In a script of one's own, the order of imports matters, and the message says so."""
    import subprocess
    import sys

    from conftest import ENVIRONMENT

    path = script("import torch, orrery_trace\nwith orrery_trace.rank(2, 0): pass\n")
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, check=False, cwd=tmp_path,
        env=ENVIRONMENT,
    )  # fmt: skip
    assert "import orrery_trace first" in done.stderr


def test_one_rank_for_each_stage_stands_for_the_others(tmp_path: Path) -> None:
    """Found out: pp 2 by dp 2, of which pp makes two programs; two more traced, to compare."""
    options = ["--world-size", "4", "--rank", "all"]
    traces = traced(tmp_path / "t", options, EXAMPLES / "hybrid.py")
    assert sorted(traces) == [0, 2]
    import json

    index = json.loads((tmp_path / "t" / "trace.json").read_text())
    assert [row["ranks"] for row in index["programs"]] == [[[0, 2, 1]], [[2, 2, 1]]]
    assert index["mesh"] == [["pp", 2], ["dp", 2]]
    assert index["checked"] == [1, 3] and "assumed" not in index
    assert sorted(p.name for p in (tmp_path / "t").iterdir()) == [
        "rank-0.jsonl.gz", "rank-2.jsonl.gz", "trace.json",
    ]  # fmt: skip
    along = [row["groups"] for row in index["programs"]]
    assert all(sorted(map(tuple, groups)) == [("dp",), ("pp",)] for groups in along)
    shown = run_cli("--show", tmp_path / "t")
    assert "rank 2 of 4" in shown.stdout and "x send" in shown.stdout


def test_ranks_that_are_not_equal_are_found_out(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    """A mesh that says too little: pipeline stages named as data parallel."""
    done = run_cli(
        "--world-size", "2", "--mesh", "dp=2", "--out", tmp_path / "t", "--", "python",
        EXAMPLES / "pipeline.py",
    )  # fmt: skip
    assert done.returncode == 2
    assert "ranks 0 and 1 do not run equal programs" in done.stderr

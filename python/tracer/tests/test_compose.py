"""A step with more micro-batches than were traced is the step that has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import EXAMPLES, drawn, run_cli, traced
from orrery_trace.compose import Rounds, extend
from orrery_trace.errors import TraceError
from orrery_trace.trace import Trace, read_directory


def events(trace: Trace) -> list[Any]:
    """The step line by line, without names that only identify."""
    found: list[Any] = []
    for line in trace.lines:
        row = {k: v for k, v in line.items() if k in ("t", "stream", "pass", "mb", "by", "bytes")}
        if line["t"] == "op":
            signature = trace.signatures[line["sig"]]
            row |= {"name": signature["name"], "out": signature["out"]}
        elif line["t"] == "comm":
            row |= {k: line.get(k) for k in ("kind", "send", "recv", "peer")}
            row["ranks"] = trace.ranks(line)
        elif line["t"] == "mark":
            row["name"] = line["name"]
        if line["t"] not in ("assumed", "resident"):
            found.append(row)
    return found


def names_in_order(trace: Trace) -> None:
    """Nothing is freed that does not live, awaited that was not issued, or made twice."""
    live = {line["storage"] for line in trace.of("resident")}
    issued: set[int] = set()
    for line in trace.of("alloc", "free", "comm", "call_end", "wait"):
        if line["t"] == "alloc":
            assert line["storage"] not in live
            live.add(line["storage"])
        elif line["t"] == "free":
            live.remove(line["storage"])
        elif line["t"] == "wait":
            assert line["comm"] in issued
        elif line.get("id") is not None:
            assert line["id"] not in issued
            issued.add(line["id"])


# Options; a command, its last word traced and wanted; bytes of a micro-batch in the batch.
CASES = [
    (["--world-size", "4", "--rank", "2"], ["pipeline.py", "1F1B"], 10, 13, 8 * 128),
    (["--world-size", "4", "--rank", "2"], ["pipeline.py", "Interleaved1F1B"], 24, 28, 8 * 128),
    (["--world-size", "8"], ["mpt.py", "--layers", "1", "--hidden", "256", "--heads", "4",
                             "--accumulate"], 4, 6, 0),
]  # fmt: skip


@pytest.mark.parametrize(("options", "command", "few", "many", "batch"), drawn(CASES, 1))
def test_a_longer_step_is_the_one_that_is_traced(
    tmp_path: Path, options: list[str], command: list[str], few: int, many: int, batch: int
) -> None:
    """Line by line: order, sizes, partners, streams, micro-batches; the peak, but for the batch."""
    for count in (few, many):
        traced(tmp_path / str(count), options, *command, str(count), cwd=EXAMPLES)
    done = run_cli(
        "--extend", tmp_path / str(few), "--micro-batches", many, "--out", tmp_path / "x"
    )
    assert done.returncode == 0, done.stderr
    (made,) = read_directory(tmp_path / "x").values()
    (real,) = read_directory(tmp_path / str(many)).values()
    assert events(made) == events(real)
    assert made.end["peak_bytes"] == real.end["peak_bytes"] - (many - few) * batch
    names_in_order(made)


def accumulated(micro_batches: int, first: str = "") -> Trace:
    """A product a micro-batch, whose output lives to the next; a gradient that all add to."""
    trace = Trace({"rank": 0}, end={"steps": 2})
    trace.signatures = [{"name": "aten::mm"}, {"name": "aten::add_"}]
    trace.lines = [{"t": "resident", "storage": 0, "bytes": 100, "what": "parameter"}]
    for mb in range(micro_batches):
        trace.lines.append({"t": "alloc", "storage": 1 + mb, "bytes": 10})
        place = {"pass": first if first and mb == 0 else "forward", "mb": mb}
        trace.lines.append({"t": "op", "sig": 0, "in": [0], "out": [1 + mb]} | place)
        if mb > 0:
            trace.lines.append({"t": "free", "storage": mb})
    trace.lines.append({"t": "free", "storage": micro_batches})
    return trace


def test_what_a_round_makes_is_new_in_each() -> None:
    """Rounds begin where the step settles; the end frees what the last one made."""
    trace = accumulated(5)
    rounds = Rounds(trace)
    assert (rounds.length, rounds.step) == (3, 1) and rounds.count >= 3
    longer = extend(trace, 9)
    assert [{k: v for k, v in line.items() if k != "storage"} for line in longer.lines if
            line["t"] != "op"] == [
        {k: v for k, v in line.items() if k != "storage"} for line in accumulated(9).lines if
        line["t"] != "op"]  # fmt: skip
    assert [op["mb"] for op in longer.of("op")] == list(range(9))
    assert longer.end["peak_bytes"] == 120
    names_in_order(longer)


def test_what_does_not_repeat_is_refused() -> None:
    """A step of one micro-batch, and fewer than were traced."""
    with pytest.raises(TraceError, match="rank 0, 1 micro-batches: no stretch of the step repeats"):
        extend(accumulated(1), 4)
    with pytest.raises(TraceError, match="goes on by 1 at a time from there, which never makes 3"):
        extend(accumulated(5), 3)


def test_the_command_line(tmp_path: Path) -> None:
    """What is missing, and a directory that would be written over."""
    done = run_cli("--extend", tmp_path)
    assert done.returncode == 2 and "--extend needs --micro-batches N" in done.stderr
    done = run_cli("--extend", tmp_path, "--micro-batches", 4, "--out", tmp_path)
    assert done.returncode == 2 and "written over: name another --out" in done.stderr

"""The timing pass: a profile's kernels find their ops, and what is not the trace's is said."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import ENVIRONMENT, TRACER, run_cli
from orrery_trace import timing
from orrery_trace.errors import TraceError
from orrery_trace.trace import Trace, Writer, rank_file, read, write_index

GPU = "NVIDIA H200"


def small(folder: Path) -> Path:
    """A trace of four ops: a product, a view, an addition, a copy."""
    path = folder / rank_file(0)
    writer = Writer(path, {"rank": 0, "world_size": 1, "torch": "2.13.0"})
    writer.line({"t": "step", "index": 1})
    for number, name in enumerate(("aten::mm", "aten::view", "aten::add", "aten::_to_copy")):
        view = {"kernel": False} if name == "aten::view" else {}
        writer.line({"t": "sig", "id": number, "name": name, "in": [], "out": []} | view)
        writer.line({"t": "op", "sig": number, "in": [], "out": []})
    writer.close(steps=2, peak_bytes=0)
    write_index(folder, {"world_size": 1, "programs": [
        {"rank": 0, "file": path.name, "ranks": [[0, 1, 1]]}]})  # fmt: skip
    return path


def event(name: str, kind: str, start: float, length: float, **args: Any) -> dict[str, Any]:
    """A complete event of a Kineto profile, host and device on threads of their own."""
    tid = 7 if kind in ("kernel", "gpu_memcpy") else 1
    return {"ph": "X", "cat": kind, "name": name, "ts": start, "dur": length, "tid": tid,
            "args": args}  # fmt: skip


def profile(path: Path, steps: int = 1, extra: list[dict[str, Any]] | None = None) -> Path:
    """The same program as a GPU runs it: autograd adds in place, a copy is a copy within a call."""
    events = list(extra or ())
    for step in range(steps):
        at = 1000.0 * step
        events += [
            event("ProfilerStep#" + str(step), "user_annotation", at, 100),
            event("aten::matmul", "cpu_op", at + 1, 20),
            event("aten::mm", "cpu_op", at + 2, 18),
            event("cudaLaunchKernel", "cuda_runtime", at + 5, 2, correlation=10 * step + 1),
            event("product", "kernel", at + 50, 300 + step, correlation=10 * step + 1),
            event("aten::view", "cpu_op", at + 30, 1),
            event("aten::add_", "cpu_op", at + 40, 10),
            event("cudaLaunchKernel", "cuda_runtime", at + 42, 2, correlation=10 * step + 2),
            event("sum", "kernel", at + 380, 20, correlation=10 * step + 2),
            event("aten::to", "cpu_op", at + 60, 10),
            event("aten::_to_copy", "cpu_op", at + 61, 9),
            event("aten::copy_", "cpu_op", at + 62, 7),
            event("cudaMemcpyAsync", "cuda_runtime", at + 63, 2, correlation=10 * step + 3),
            event("Memcpy DtoD", "gpu_memcpy", at + 402, 5, correlation=10 * step + 3),
        ]
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump({"deviceProperties": [{"name": GPU}], "traceEvents": events}, file)
    return path


def times(trace: Trace) -> list[int | None]:
    """Nanoseconds of each op."""
    return [line.get("ns") for line in trace.of("op")]


def test_each_kernel_finds_its_op(tmp_path: Path) -> None:
    """Kernels that run after their step, in place and within other calls; the median of steps.

    The copy waited for the sum, 2 us; before the sum the device waited for the host, and behind the
    copy: there the same gap stands in.
    """
    path = small(tmp_path)
    before = read(path)
    found = timing.read_profile(profile(tmp_path / "p.json.gz", 3))
    assert found.gpu == GPU
    joined = timing.add_times(path, found)
    assert [one.share for one in joined] == [1.0, 1.0, 1.0]
    assert [one.missing for one in joined] == [[], [], []]
    trace = read(path)
    assert times(trace) == [303_000, None, 22_000, 7_000]
    assert trace.header["gpu"] == GPU
    assert trace.end == before.end
    timing.add_times(path, found)  # once more: the same
    assert read(path).lines == trace.lines


def test_another_program_is_refused(tmp_path: Path) -> None:
    """Device time of a call that the trace lacks, with what it was; little of it is let pass."""
    path = small(tmp_path)
    whole = path.read_bytes()
    for length, share in ((30.0, 91.5), (1.0, None)):
        stray = [
            event("aten::sort", "cpu_op", 70, 10),
            event("cudaLaunchKernel", "cuda_runtime", 72, 2, correlation=99),
            event("radix", "kernel", 500, length, correlation=99),
        ]
        found = timing.read_profile(profile(tmp_path / "p.json.gz", extra=stray))
        if share is None:
            assert timing.add_times(path, found)[0].left == {"radix by aten::sort": 1000}
            continue
        with pytest.raises(TraceError, match=rf"{share} % .* radix by aten::sort \(30.0 us\)"):
            timing.add_times(path, found)
        assert path.read_bytes() == whole


def test_a_call_that_launched_nothing_takes_no_op(tmp_path: Path) -> None:
    """Checkpointing ends a recomputation by an exception within the next call."""
    path = small(tmp_path)
    ended = [event("aten::mm", "cpu_op", 0.2, 0.5)]
    found = timing.read_profile(profile(tmp_path / "p.json.gz", extra=ended))
    timing.add_times(path, found)
    assert times(read(path)) == [302_000, None, 22_000, 7_000]


def test_faults_of_a_profile_are_named(tmp_path: Path) -> None:
    """No JSON, no marked step, no GPU; and the command line says so."""
    small(tmp_path)
    bad = tmp_path / "bad.json"
    bad.write_text("{", encoding="utf-8")
    with pytest.raises(TraceError, match="no Kineto profile"):
        timing.read_profile(bad)
    good = profile(tmp_path / "p.json.gz")
    with pytest.raises(TraceError, match="nothing in it is marked 'mine'"):
        timing.read_profile(good, "mine")
    found = timing.read_profile(good)
    with pytest.raises(TraceError, match="has no GPU"):
        timing.add_times(tmp_path / rank_file(0), timing.Profile(found.steps, ""))
    done = run_cli("--times", good, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 ops with 3 kernels on NVIDIA H200, 1 steps, 100.00 %" in done.stdout
    done = run_cli("--times", bad, "--out", tmp_path)
    assert done.returncode == 2
    assert "no Kineto profile" in done.stderr


def test_the_gpu_script_on_a_cpu(tmp_path: Path) -> None:
    """tests/gpu_pass.py with tiny sizes: recorder and profiler see the same ops."""
    done = subprocess.run(
        [sys.executable, TRACER / "tests/gpu_pass.py", "--out", tmp_path, "--device", "cpu",
         "--tiny", "--cases", "llama4-recompute,moe4", "--budget-s", "900"],
        capture_output=True, text=True, check=False, env=ENVIRONMENT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [row["case"] for row in rows] == ["moe4", "llama4-recompute"], done.stdout
    for row in rows:
        assert row["join"]["missing"] == [[], [], []], row
        assert min(row["join"]["shares"]) > 0.95, row

"""Fake tensors take and give back what real ones do, byte for byte, on CPU streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from conftest import TRACER, drawn
from orrery_trace.trace import Trace, read

BOTH = """
import sys
import orrery_trace
from gpu_models import CASES, Trainer
folder, *names = sys.argv[1:]
for case in CASES:
    if case.name in names:
        for kind in ("fake", "real"):
            out = f"{folder}/{kind}/{case.name}"
            with orrery_trace.rank(1, 0, out, fake=kind == "fake", device="cpu"):
                trainer = Trainer(case.tiny(), "cpu")
                for _ in range(3):
                    trainer.step()
"""


def memory(trace: Trace) -> list[tuple[object, ...]]:
    """Every allocation, change of size and free, before the step and in it, storages renumbered.

    Numbers of Python's (8 bytes at most) are left out: a fake one is made anew where it is lifted.
    """
    kinds = ("alloc", "resize", "free", "resident")
    lines = [line for line in (*trace.setup, *trace.lines) if line["t"] in kinds]
    small = {line["storage"] for line in lines if line["t"] == "alloc" and line["bytes"] <= 8}
    small |= {line["storage"] for line in lines if line["t"] == "resident" and line["bytes"] <= 8}
    numbers: dict[int, int] = {}
    found: list[tuple[object, ...]] = []
    freed: list[int] = []
    for line in lines:
        if line["storage"] in small:
            continue
        number = numbers.setdefault(line["storage"], len(numbers))
        if line["t"] == "free":  # of several in a row no order is promised
            freed.append(number)
            continue
        found += [("free", *sorted(freed))] if freed else []
        freed.clear()
        found.append((line["t"], number, line["bytes"]))
    return found


def test_memory_of_fake_tensors_is_that_of_real_ones(tmp_path: Path) -> None:
    """Thirteen programs: precisions, optimizers, recomputation, experts, accumulation."""
    names = [row["name"] for row in json.loads(_cases())]
    assert len(names) >= 10
    chosen = drawn(names, 3)
    _python("-c", BOTH, str(tmp_path), *chosen)
    for name in chosen:
        fake, real = (read(tmp_path / kind / name / "rank-0.jsonl.gz") for kind in ("fake", "real"))
        assert memory(fake) == memory(real), name
        assert fake.end["peak_bytes"] == real.end["peak_bytes"] > 100_000


def _cases() -> str:
    return _python("-c", "import json, gpu_models as m; "
                   "print(json.dumps([{'name': c.name} for c in m.CASES]))")  # fmt: skip


def _python(*arguments: str) -> str:
    path = os.pathsep.join((str(TRACER), str(Path(__file__).parent)))
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout

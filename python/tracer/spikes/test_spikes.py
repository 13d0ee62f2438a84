"""Keeps the answers of docs/tracing.md true: reruns the cheap spikes on the CPU wheel of PyTorch.

Each spike runs in a process of its own, since the guard must come before `import torch`. Needs a
C++ compiler; about a minute on two cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def run(script: str, *arguments: str, status: int = 0) -> str:
    """Standard output of a spike."""
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr[-2000:]
    return done.stdout


def findings(script: str, *arguments: str) -> dict[str, Any]:
    """The JSON that a spike prints last."""
    return dict(json.loads(run(script, *arguments, "--json").splitlines()[-1]))


def test_fake_cuda_needs_the_guard_before_torch() -> None:
    """Bare and late fail with the texts in the document; guard and kernels run."""
    ways = {way["way"]: way for way in findings("spike1_fake_cuda.py", "--small")["ways"]}
    assert "not linked with support for cuda" in str(ways["bare"]["error"])
    assert "guard status 2" in ways["late"]["error"]
    assert "decomposed" in ways["guard"]["norm"]
    assert "aten::_scaled_dot_product_flash_attention" in ways["kernels"]["attention"]
    assert "aten::_fused_rms_norm" in ways["kernels"]["norm"]
    # Two layers, counted by hand from the model: see "Op identity" in the document.
    assert ways["kernels"]["saved_MB"] < ways["cpu"]["saved_MB"] < ways["guard"]["saved_MB"]


def test_collectives_equal_the_hand_count_and_comm_debug_mode() -> None:
    """DDP, FSDP2, TP and SP: three counts agree."""
    cases = [json.loads(line) for line in run("spike2_parallel.py", "--json").splitlines()]
    assert [got["case"] for got in cases] == ["ddp", "fsdp", "tp", "sp"]
    for got in cases:
        case = got["case"]
        assert got["recorded"] == got["by_hand"], case
        assert sum(got["recorded"].values()) == sum(got["comm_debug_mode"].values()), case
        if case == "ddp":
            assert sorted(size for _, size in got["bytes_each"]) == sorted(got["buckets_by_hand"])
        if case == "fsdp":
            assert got["streams_of_comms"] == [2, 3]


def test_pipeline_sends_equal_the_hand_count() -> None:
    """ZBV, rank 1 of four: sends, receives and waits, in the planned order."""
    found = findings("spike2_pipeline.py", "--schedule", "ZBVZeroBubble", "--rank", "1")
    (line,) = found["pipeline"]
    assert line["sends"] == line["receives"] == line["by_hand"] == 32
    assert line["waits"] == line["sends"] + line["receives"]
    assert line["as_planned"]


def test_fake_memory_equals_real_memory() -> None:
    """Ops, allocations, frees and saved tensors in order, and the allocator's own peak."""
    cpu = findings("spike5_memory.py")["cpu"]
    assert cpu["ops"]["equal"] and cpu["memory"]["equal"] and cpu["saved"]["equal"]
    assert cpu["recorded_peak_bytes"] == [cpu["allocator"]["peak_bytes"]] * 2


def test_every_communication_op_is_mapped_or_refused() -> None:
    """The table covers this PyTorch, and an unknown op is an error."""
    run("spike6_ops.py")
    run("spike6_ops.py", "--demo", status=1)


def test_tracing_a_layer_is_fast_and_small() -> None:
    """Two layers of a 405B rank: well under a minute and a hundred MB."""
    got = findings("spike4_pace.py", "--model", "405b", "--layers", "2")
    assert got["next_microbatch_cpu_s"] < 30 and got["rss_growth_MB"] < 200
    assert got["comms"] == 20

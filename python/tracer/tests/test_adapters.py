"""Each adapter is still needed: without it, its example cannot be traced, or is traced wrong.

A test that fails here says that the adapter can go.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import EXAMPLES, Done, drawn, run_cli
from orrery_trace.trace import read

TITAN = ["--module", "torchtitan_llama", "--config", "debugmodel", "--dump_folder", "DUMP"]
TITAN += ["--parallelism.spmd_backend", "partial_dtensor"]


def without(adapter: str, folder: Path, world: int, *command: str | Path) -> Done:
    """Traces rank 0 with one adapter left out."""
    options = ["--world-size", world, "--out", folder, "--"]
    return run_cli(*map(str, options), *command, cwd=EXAMPLES, without=adapter)


@pytest.mark.parametrize(
    ("adapter", "command", "said"),
    drawn(
        [
            ("ddp", ["ddp.py"], "Error"),
            ("device_mesh", ["fsdp2.py"], "DynamicOutputShapeException"),
            ("pipelining", ["pipeline.py"], "Error"),
            ("megatron", ["megatron_core.py"], "Error"),
            ("deepspeed", ["deepspeed_zero.py", "3"], "Error"),
            ("data", ["transformers_llama.py"], "Error"),
            ("fsdp1", ["mpt.py", "--layers", "1"], "record_stream"),
            ("torchtitan", ["-m", "torchtitan.train", *TITAN], "graph_pool_handle"),
        ],
        3,
    ),
)
def test_without_it_the_program_cannot_be_traced(
    tmp_path: Path, adapter: str, command: list[str], said: str
) -> None:
    """The error that the adapter is there for."""
    words = [str(tmp_path / "dump") if word == "DUMP" else word for word in command]
    done = without(adapter, tmp_path, 4, *words)
    assert done.returncode != 0
    assert said in done.stderr


def test_without_dtensor_shapes_are_recorded_as_work(tmp_path: Path) -> None:
    """Each op once more when it is first met, on tensors of global shape."""
    allocations = []
    for adapter in ("none", "dtensor"):
        done = without(adapter, tmp_path, 8, EXAMPLES / "tensor_parallel.py")
        assert done.returncode == 0, done.stderr[-2000:]
        setup = read(tmp_path / "rank-0.jsonl.gz").setup
        allocations.append(sum(line["t"] == "alloc" for line in setup))
    assert allocations[1] > allocations[0] + 50


FLEX = """
import torch
from torch.nn.attention.flex_attention import flex_attention
attend = torch.compile(flex_attention)
layer = torch.nn.Linear(64, 64, device="cuda")
optimizer = torch.optim.SGD(layer.parameters())
for _ in range(3):
    x = layer(torch.randn(2, 4, 128, 64, device="cuda"))
    attend(x, x, x, score_mod=lambda score, *_: 2 * score).sum().backward()
    optimizer.step()
"""


def test_without_flex_attention_its_score_function_is_recorded(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    """One kernel forward and one backward, causal as assumed; and nothing of the derivative."""
    path = script(FLEX)
    counts = []
    for adapter in ("none", "flex_attention"):
        done = without(adapter, tmp_path, 1, path)
        assert done.returncode == 0, done.stderr[-2000:]
        trace = read(tmp_path / "rank-0.jsonl.gz")
        kernels = {s["name"]: s for s in trace.signatures}
        assert kernels["higher_order::flex_attention"]["flops"] == 4 * 2 * 4 * 128 * 128 * 64
        assert kernels["higher_order::flex_attention_backward"]["args"] == {"is_causal": True}
        counts.append(len(trace.of("op")))
    assert counts[1] > counts[0]


def test_without_transformers_attention_reads_a_mask(tmp_path: Path) -> None:
    """That a GPU run drops."""
    done = without("transformers", tmp_path, 4, EXAMPLES / "transformers_llama.py")
    assert done.returncode == 0, done.stderr[-2000:]
    trace = read(tmp_path / "rank-0.jsonl.gz")
    attention = [s for s in trace.signatures if s["name"].endswith("_cudnn_attention")]
    assert [len(s["in"]) for s in attention] == [4]


def test_without_fsdp_storages_never_shrink(tmp_path: Path) -> None:
    """Parameters that were gathered would seem to live on."""
    done = without("fsdp", tmp_path, 8, EXAMPLES / "fsdp2.py")
    assert done.returncode == 0, done.stderr[-2000:]
    assert not read(tmp_path / "rank-0.jsonl.gz").of("resize")

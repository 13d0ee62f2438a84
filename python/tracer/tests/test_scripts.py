"""Habits of training scripts as people write them: each was refused, or traced wrong, once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import run_cli, traced

START = """
import os
import torch
import torch.distributed as dist
torch.distributed.init_process_group("nccl")
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
"""

SCALER = START + """
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for _ in range(4):
    with torch.autocast("cuda", torch.float16):
        loss = model(torch.randn(8, 64, device="cuda")).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""

LOGGED = START + """
for i in range(4):
    loss = model(torch.randn(8, 64, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = torch.zeros(3).mean()
    print(f"{i}: {loss:.4f} {mean:.2f}", loss.detach().cpu().numpy().item())
"""

MIXED = START + """
for _ in range(4):
    share = torch.distributions.Beta(torch.tensor(0.2), torch.tensor(0.2)).sample().item()
    (model(torch.randn(8, 64, device="cuda")) * share).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

SAVED = START + """
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(8, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    dcp.save({"model": model.state_dict()}, checkpoint_id="sharded")
    torch.save({"loss": torch.zeros(2)}, "whole.pt")
"""

BACKEND = START + """
assert dist.get_backend() == "nccl"
assert dist.get_backend(dist.new_group(backend="gloo")) == "gloo"
for _ in range(3):
    model(torch.randn(8, 64, device="cuda")).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("adapter", "text", "said"),
    [
        ("amp", SCALER, "ended in training step 0"),
        ("host_values", LOGGED, "format"),
        ("distributions", MIXED, "invalid values"),
        ("checkpoints", SAVED, "Failed to validate global plan"),
    ],
)
def test_a_habit_is_traced_and_its_adapter_is_needed(
    tmp_path: Path, script: Callable[[str], Path], adapter: str, text: str, said: str
) -> None:
    """With the adapter a step with its optimizer is recorded; without it there is none."""
    path = script(text)
    trace = traced(tmp_path / "trace", ["--world-size", "2"], path)[0]
    assert any(line.get("pass") == "optimizer" for line in trace.of("op"))
    options = ["--world-size", "2", "--out", str(tmp_path / "without"), "--"]
    done = run_cli(*options, path, without=adapter)
    assert done.returncode != 0
    assert said in done.stderr


def test_a_number_that_is_printed_is_a_wait_of_the_host(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    """The formatted loss and the copy to NumPy; what lies on the CPU costs none."""
    trace = traced(tmp_path / "trace", ["--world-size", "2"], script(LOGGED))[0]
    assert len(trace.of("sync")) == 2


def test_a_checkpoint_is_not_written(tmp_path: Path, script: Callable[[str], Path]) -> None:
    """It would replace the user's with one of no values."""
    options = ["--world-size", "2"]
    trace = traced(tmp_path / "trace", options, script(SAVED), cwd=tmp_path)[0]
    assert not [*tmp_path.glob("sharded*"), *tmp_path.glob("whole*")]
    assert any("checkpoint" in line["what"] for line in (*trace.setup, *trace.of("assumed"))
               if line["t"] == "assumed")  # fmt: skip


def test_a_program_learns_the_backend_that_it_asked_for(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    """Scripts choose the device by it."""
    traced(tmp_path / "trace", ["--world-size", "2"], script(BACKEND))

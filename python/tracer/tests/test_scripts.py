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

SCALER = (
    START
    + """
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
)

LOGGED = (
    START
    + """
for i in range(4):
    loss = model(torch.randn(8, 64, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = torch.zeros(3).mean()
    print(f"{i}: {loss:.4f} {mean:.2f}", loss.detach().cpu().numpy().item())
"""
)

MIXED = (
    START
    + """
for _ in range(4):
    share = torch.distributions.Beta(torch.tensor(0.2), torch.tensor(0.2)).sample().item()
    (model(torch.randn(8, 64, device="cuda")) * share).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)

SAVED = (
    START
    + """
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
)

NORM = (
    START
    + """
norm = torch.nn.SyncBatchNorm(64).cuda()
for _ in range(3):
    norm(model(torch.randn(8, 64, device="cuda"))).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)

UNUSED = """
class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

    def forward(self, x):
        return self.one(x) + (self.other(x) if USED else 0)

model = torch.nn.parallel.DistributedDataParallel(Two().cuda(), find_unused_parameters=True)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(4):
    model(torch.randn(8, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

MOVED = """
import functools
import torch
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
torch.distributed.init_process_group("nccl")
model = FullyShardedDataParallel(
    torch.nn.Linear(64, 64), device_id=torch.cuda.current_device(), sync_module_states=True,
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(8, 64, device="cuda")).square().mean().backward()
    optimizer.step()
"""

ZERO = """
import deepspeed
import torch
config = {"train_micro_batch_size_per_gpu": 2, "fp16": {"enabled": True},
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}}
model = torch.nn.Linear(64, 64)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(3):
    engine.backward(engine(torch.randn(8, 64, device="cuda").half()).square().mean())
    engine.step()
"""

GENERATED = (
    START
    + """
generator = torch.Generator(device="cuda")
generator.manual_seed(7)
loader = torch.Generator()
state = loader.get_state().cuda()
dist.broadcast(state, 0)
loader.set_state(state.cpu())
assert generator.device.type == "cuda" and isinstance(torch.default_generator, torch.Generator)
for _ in range(4):
    model(torch.randn(8, 64, device="cuda", generator=generator)).square().mean().backward()
    optimizer.step()
"""
)

FINITE = (
    START
    + """
for _ in range(4):
    loss = model(torch.randn(8, 64, device="cuda")).square().mean()
    if not torch.isfinite(loss) or not loss.isfinite().all():
        raise SystemExit("the loss diverged")
    loss.backward()
    optimizer.step()
"""
)

BACKEND = (
    START
    + """
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
begin.record()
end.record()
assert begin.elapsed_time(end) == 1.0
assert dist.get_backend() == "nccl"
assert dist.get_backend(dist.new_group(backend="gloo")) == "gloo"
for _ in range(3):
    model(torch.randn(8, 64, device="cuda")).square().mean().backward()
    optimizer.step()
"""
)


@pytest.mark.parametrize(
    ("adapter", "text", "said"),
    [
        ("amp", SCALER, "ended in training step 0"),
        ("host_values", LOGGED, "format"),
        ("host_values", FINITE, "the loss diverged"),
        ("generators", GENERATED, "Generator"),
        ("distributions", MIXED, "invalid values"),
        ("sync_batch_norm", NORM, "batch_norm_stats"),
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


def test_parameters_move_by_their_data(tmp_path: Path, script: Callable[[str], Path]) -> None:
    """FSDP1 moves a model by `device_id` so; nothing of it stays on the CPU."""
    pytest.importorskip("torch.distributed.fsdp")
    trace = traced(tmp_path / "trace", ["--world-size", "2"], script(MOVED))[0]
    assert [c["recv"] for c in trace.of("comm") if c["kind"] == "all_gather"] == [4 * 64 * 65]
    assert not [line for line in trace.of("resident") if line.get("what") == "parameter"
                and line.get("device")]  # fmt: skip


def test_batches_are_normalised_across_ranks(tmp_path: Path, script: Callable[[str], Path]) -> None:
    """Mean, deviation and count are gathered forward, two sums reduced backward, in fp32."""
    trace = traced(tmp_path / "trace", ["--world-size", "2"], script(NORM))[0]
    said = [(c["kind"], c["send"]) for c in trace.of("comm")]
    assert said == [("all_gather", 4 * (2 * 64 + 1)), ("all_reduce", 4 * 2 * 64)]


def test_ddp_asks_which_parameters_are_used(tmp_path: Path, script: Callable[[str], Path]) -> None:
    """Its map of them is reduced behind the bucket; where one is unused, the remedy is said."""
    options = ["--world-size", "2"]
    trace = traced(tmp_path / "trace", options, script(START + "USED = True" + UNUSED))[0]
    said = [(c["kind"], c["send"]) for c in trace.of("comm")]
    assert said == [("all_reduce", 2 * 4 * 64 * 65), ("all_reduce", 4 * 4)]
    path = script(START + "USED = False" + UNUSED)
    done = run_cli(*options, "--out", str(tmp_path / "without"), "--", path)
    assert done.returncode == 2
    assert "2 parameters under DDP with find_unused_parameters, from 'other.weight'" in done.stderr


def test_deepspeed_takes_its_own_adam(tmp_path: Path, script: Callable[[str], Path]) -> None:
    """One kernel over this rank's half of the fp32 parameters, which nvcc need not compile."""
    pytest.importorskip("deepspeed")
    trace = traced(tmp_path / "trace", ["--world-size", "2"], script(ZERO))[0]
    kernels = [trace.signatures[line["sig"]] for line in trace.of("op")]
    adam = [row for row in kernels if row["name"] == "aten::_fused_adamw_"]
    assert len(adam) == 1
    assert adam[0]["written"] == 3 * 4 * 64 * 65 // 2


def test_a_program_learns_its_backend_and_the_time_of_events(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    """Scripts choose the device by the one, and divide by the other."""
    traced(tmp_path / "trace", ["--world-size", "2"], script(BACKEND))


def test_a_static_graph_of_ddp_is_its_steady_state(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    """One bucket of 64 x 64 weights and 64 biases, in fp32."""
    wrapped = (
        START
        + """
model = torch.nn.parallel.DistributedDataParallel(model, static_graph=True)
for _ in range(4):
    model(torch.randn(8, 64, device="cuda")).square().mean().backward()
    optimizer.step()
"""
    )
    trace = traced(tmp_path / "trace", ["--world-size", "2"], script(wrapped))[0]
    assert [(c["kind"], c["send"]) for c in trace.of("comm")] == [("all_reduce", 4 * 64 * 65)]

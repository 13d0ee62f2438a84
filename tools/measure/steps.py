#!/usr/bin/env python3
"""Item 6: whole eager training steps of llama-, gpt- and MoE-like models, as ground truth.

Time of the step and of its parts, list of kernels from the profiler, peak memory and the
allocator's history. Models are also cut to one rank of a tensor- or expert-parallel job,
collectives left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch

from kit import runner, step_trace
from kit.device import Device
from kit.errors import Refused
from kit.layers import Layer
from kit.models import Decoder, Shape, build
from kit.pool import TORCH_TYPES
from kit.runner import Case, Context, Item, Measured
from kit.schemas import Row

MODELS = (
    Shape("llama", 4, 4096, 32, 8, 14336, 128256, 8192, 1),
    Shape("llama", 4, 8192, 64, 8, 28672, 128256, 8192, 1, tp=4),
    Shape("gpt", 12, 2048, 16, 16, 8192, 51200, 1024, 2),
    Shape("moe", 4, 4096, 32, 8, 14336, 32000, 4096, 1, experts=8, topk=2, ep=8),
    Shape("gpt", 24, 1024, 16, 16, 4096, 51200, 1024, 2),
    Shape("gpt", 2, 12288, 96, 96, 49152, 51200, 2048, 1, tp=8),
    Shape("moe", 4, 2048, 32, 4, 768, 151936, 4096, 1, experts=128, topk=8, ep=8),
    Shape("llama", 2, 16384, 128, 8, 53248, 128256, 8192, 1, tp=8),
    Shape("llama", 8, 4096, 32, 32, 11008, 32000, 4096, 2),
    Shape("gpt", 12, 768, 12, 12, 3072, 50368, 2048, 8),
    Shape("moe", 2, 7168, 56, 56, 2048, 129280, 4096, 1, experts=256, topk=8, ep=64),
    Shape("gpt", 12, 2048, 16, 16, 8192, 51200, 1024, 8),
    Shape("gpt", 12, 2048, 16, 16, 8192, 51200, 1024, 2, tp=4),
    Shape("llama", 2, 8192, 64, 8, 28672, 128256, 4096, 1, tp=8),
    Shape("gpt", 4, 512, 8, 8, 2048, 51200, 1024, 4),
    Shape("moe", 2, 4096, 32, 8, 14336, 32000, 4096, 1, experts=8, topk=2),
)
TINY = (
    Shape("llama", 2, 64, 4, 2, 96, 128, 32, 1),
    Shape("gpt", 1, 64, 4, 4, 128, 128, 32, 1),
    Shape("moe", 1, 64, 4, 2, 64, 128, 32, 1, experts=4, topk=2, ep=2),
)
STEPS = 10
MOST_EVENTS = 20_000


def key_of(s: Shape, mode: str) -> Row:
    """Key columns of a model's whole step."""
    return {
        "op": "step",
        "dtype": "bf16",
        "model": s.family,
        "layers": s.layers,
        "hidden": s.hidden,
        "heads": s.heads,
        "kv_heads": s.kv_heads,
        "ffn": s.ffn,
        "vocab": s.vocab,
        "experts": s.experts,
        "topk": s.topk,
        "seq": s.seq,
        "micro_batch": s.micro_batch,
        "tp": s.tp,
        "ep": s.ep,
        "part": "step",
        "mode": mode,
    }


def cases(layers: list[Layer], device: Device | None, options: argparse.Namespace) -> list[Case]:
    """The models above, first ones first."""
    listed = TINY if options.tiny else MODELS
    return [
        Case(
            key_of(s, options.mode),
            100.0 - i,
            50_000.0,
            f"{s.family} h={s.hidden} l={s.layers} tp={s.tp} ep={s.ep}",
            cost_s=4.0,
        )
        for i, s in enumerate(listed)
    ]


def shape_of(key: Row) -> Shape:
    """The model behind key columns."""
    n = {k: int(v) for k, v in key.items() if k not in ("op", "dtype", "model", "part", "mode")}
    return Shape(str(key["model"]), **n)


@dataclass
class Trainer:
    """A model with optimizer and a batch; `step` runs one training step, marking its parts."""

    model: Decoder
    optimizer: torch.optim.Optimizer
    tokens: torch.Tensor
    targets: torch.Tensor
    device: Device
    marks: list[list[Any]] = field(default_factory=list)
    host_us: list[list[float]] = field(default_factory=list)

    def step(self) -> None:
        """Forward, backward, optimizer; events and host times are kept per step."""
        marks = [self.device.event() for _ in range(4)]
        host = []
        begun = time.perf_counter()
        marks[0].record()
        loss = self.model(self.tokens, self.targets)
        marks[1].record()
        host.append(time.perf_counter())
        loss.backward()
        marks[2].record()
        host.append(time.perf_counter())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        marks[3].record()
        host.append(time.perf_counter())
        self.marks.append(marks)
        ends = [begun, *host]
        self.host_us.append([(b - a) * 1e6 for a, b in pairwise(ends)])


def trainer_of(s: Shape, dtype: torch.dtype, device: Device) -> Trainer:
    """Builds model, fused AdamW and a random batch."""
    where = device.torch_device
    model = build(s, dtype, where)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batch = [torch.randint(0, model.vocab, (s.micro_batch, s.seq), device=where) for _ in range(2)]
    return Trainer(model, optimizer, batch[0], batch[1], device)


def measure(context: Context, case: Case) -> Measured:
    """Times steps, then one step under the profiler, then one with the allocator's history."""
    device, s = context.device, shape_of(case.key)
    if s.experts and s.micro_batch * s.seq * s.topk % (16 * max(1, s.experts // s.ep)):
        raise Refused("tokens do not divide among experts")
    trainer = trainer_of(s, TORCH_TYPES[str(case.key["dtype"])], device)
    for _ in range(3):
        trainer.step()
    device.synchronize()
    trainer.marks.clear()
    trainer.host_us.clear()
    if device.kind == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for _ in range(3 if device.tiny else STEPS):
        trainer.step()
    device.synchronize()
    rows = _step_rows(case, trainer, device)
    rows += [("step_kernels", r) for r in _kernels(trainer, s.label(), device)]
    rows += [("step_memory", r) for r in _memory(trainer, s.label(), device)]
    del trainer
    device.release()
    return rows


def _step_rows(case: Case, trainer: Trainer, device: Device) -> Measured:
    """The step (start to start, so with whatever the device waited for) and its parts."""
    cuda = device.kind == "cuda"
    peaks = {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated() if cuda else 0,
        "peak_reserved_bytes": torch.cuda.max_memory_reserved() if cuda else 0,
    }
    timed = step_trace.part_rows(case.key, trainer.marks, trainer.host_us)
    return [("steps", {**row, **peaks}) for row in timed]


def _kernels(trainer: Trainer, label: str, device: Device) -> list[Row]:
    """One step's kernels (on the CPU: operators) in order of start."""
    events = step_trace.profiled(trainer.step, device)
    events.sort(key=lambda e: e.start_ns())
    first = events[0].start_ns() if events else 0
    return [
        {
            "op": "step_kernel",
            "model": label,
            "index": i,
            "name": e.name()[:200] or "unnamed",
            "stream": max(0, int(e.device_resource_id())),
            "start_us": (e.start_ns() - first) / 1e3,
            "duration_us": e.duration_ns() / 1e3,
        }
        for i, e in enumerate(events[:MOST_EVENTS])
    ]


def _memory(trainer: Trainer, label: str, device: Device) -> list[Row]:
    """One step's allocations and frees in order; nothing on the CPU."""
    if device.kind != "cuda":
        return []
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=200_000)
    try:
        trainer.step()
        device.synchronize()
        traces = torch.cuda.memory._snapshot()["device_traces"]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    return memory_rows(traces[0] if traces else [], label)


def memory_rows(trace: list[dict[str, Any]], label: str) -> list[Row]:
    """Rows of the allocator's events; addresses become numbers in order of first use."""
    blocks: dict[int, int] = {}
    streams: dict[int, int] = {}
    rows: list[Row] = []
    for i, entry in enumerate(trace[:MOST_EVENTS]):
        address, stream = int(entry.get("addr", 0)), int(entry.get("stream", 0))
        rows.append(
            {
                "op": "step_memory",
                "model": label,
                "index": i,
                "action": str(entry["action"]),
                "block": blocks.setdefault(address, len(blocks)),
                "size_bytes": int(entry.get("size", 0)),
                "stream": streams.setdefault(stream, len(streams)),
            }
        )
    return rows


ITEM = Item(
    "steps",
    "Whole eager training steps with kernels and memory.",
    ("steps", "step_kernels", "step_memory"),
    cases,
    measure,
)

if __name__ == "__main__":
    sys.exit(runner.main(ITEM))

#!/usr/bin/env python3
"""Item 7: steps of fine-tuning with transformers, peft and bitsandbytes, as ground truth.

Full fine-tuning, LoRA, QLoRA and LLM.int8 of real architectures with random weights: time of the
step and of its parts, memory, kernels by name, and the blocks alive at the step's peak.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch

from kit import finetune_models as models
from kit import runner, step_trace
from kit.device import Device
from kit.finetune_models import Job
from kit.layers import Layer
from kit.runner import Case, Context, Item, Measured
from kit.schemas import Row

B1, B3, B8, Q7, MOE = "llama3.2-1b", "llama3.2-3b", "llama3.1-8b", "qwen2.5-7b", "olmoe-1b-7b"


def full(model: str, weights: str, optimizer: str, checkpoint: int, seq: int, batch: int) -> Job:
    """All parameters: fp32 ones under autocast, or bf16 ones without."""
    autocast = int(weights == "fp32")
    return Job(model, "full", weights, autocast, 0, 0.0, optimizer, checkpoint, seq, batch)


def adapters(
    model: str,
    method: str,
    checkpoint: int,
    seq: int,
    batch: int,
    *,
    autocast: int = 1,
    prepared: int = 0,
    dropout: float = 0.0,
    optimizer: str = "adamw_fused",
) -> Job:
    """Adapters beside bf16 or quantised weights."""
    return Job(
        model, method, "bf16", autocast, prepared, dropout, optimizer, checkpoint, seq, batch
    )


JOBS = (
    adapters(B8, "nf4", 1, 2048, 1, prepared=1),
    adapters(B8, "lora", 1, 4096, 1),
    full(B8, "bf16", "adamw_8bit", 1, 4096, 1),
    full(B1, "fp32", "adamw_fused", 0, 4096, 1),
    full(B3, "bf16", "adamw_fused", 1, 4096, 1),
    adapters(B8, "nf4", 0, 2048, 1, autocast=0),
    adapters(B8, "lora", 0, 2048, 2, autocast=0),
    adapters(B8, "int8", 1, 2048, 1, prepared=1),
    full(MOE, "bf16", "adamw_fused", 1, 4096, 1),
    full(B8, "bf16", "adafactor", 1, 4096, 1),
    adapters(B3, "lora", 0, 4096, 1),
    adapters(Q7, "nf4", 1, 4096, 2, prepared=1),
    full(B1, "bf16", "adamw_fused", 0, 4096, 1),
    full(Q7, "bf16", "adamw_8bit", 1, 4096, 1),
    full(B3, "bf16", "in_backward_8bit", 1, 4096, 1),
    adapters(B1, "lora", 0, 2048, 1, autocast=0),
    adapters(B1, "nf4", 0, 4096, 1),
    full(B3, "fp32", "adamw_fused", 1, 2048, 2),
    adapters(MOE, "lora", 0, 4096, 1),
    adapters(B8, "lora", 0, 2048, 1, dropout=0.05),
    adapters(B8, "nf4", 1, 4096, 2),
    full(B1, "bf16", "adamw_foreach", 1, 2048, 4),
    adapters(B8, "lora", 1, 8192, 1, autocast=0),
    full(B3, "bf16", "adamw_8bit", 0, 4096, 1),
    adapters(B3, "int8", 0, 2048, 1),
    adapters(B8, "nf4_single", 1, 8192, 1, optimizer="paged_adamw_8bit"),
    adapters(Q7, "lora", 1, 8192, 1),
    full(B8, "bf16", "adamw_fused", 1, 8192, 1),
    adapters(B1, "lora", 0, 4096, 4),
    adapters(B3, "nf4", 1, 4096, 4, prepared=1),
    # Few tokens: the host's own time.
    full(B1, "bf16", "adamw_fused", 0, 64, 1),
    full(B1, "fp32", "adamw_fused", 0, 64, 1),
    full(B1, "bf16", "adamw_fused", 1, 64, 1),
    adapters(B1, "lora", 0, 64, 1, autocast=0),
    adapters(B1, "lora", 0, 64, 1),
    adapters(B1, "lora", 1, 64, 1),
    adapters(B1, "nf4", 0, 64, 1, autocast=0),
    adapters(B1, "nf4", 1, 64, 1, prepared=1),
    adapters(B1, "int8", 0, 64, 1, autocast=0),
    full(B1, "bf16", "adamw_8bit", 0, 64, 1),
    full(B1, "bf16", "adafactor", 0, 64, 1),
    full(MOE, "bf16", "adamw_fused", 0, 64, 1),
)
TINY = (
    full("tiny", "fp32", "adamw_fused", 0, 32, 1),
    full("tiny", "bf16", "adamw_foreach", 1, 32, 1),
    full("tiny", "bf16", "adafactor", 0, 32, 2),
    adapters("tiny", "lora", 1, 32, 1, dropout=0.05),
    adapters("tiny", "nf4", 1, 32, 1, prepared=1),
    adapters("tiny", "nf4", 0, 32, 2, autocast=0),
)
STEPS, WARM = 6, 3


def key_of(job: Job, mode: str) -> Row:
    """Key columns of a job's whole step."""
    return {"op": "finetune", "dtype": "bf16", **asdict(job), "part": "step", "mode": mode}


def job_of(key: Row) -> Job:
    """The job behind key columns."""
    rest = {k: v for k, v in key.items() if k not in ("op", "dtype", "part", "mode")}
    return Job(**rest)  # type: ignore[arg-type]


def cases(layers: list[Layer], device: Device | None, options: argparse.Namespace) -> list[Case]:
    """The jobs above, first ones first."""
    return [
        Case(
            key_of(job, options.mode),
            100.0 - i,
            300_000.0,
            f"{job.model} {job.method}",
            cost_s=8.0 if job.seq > 64 else 3.0,
        )
        for i, job in enumerate(TINY if options.tiny else JOBS)
    ]


@dataclass
class Trainer:
    """A job in hand; `step` runs one training step as transformers' Trainer does."""

    job: Job
    model: torch.nn.Module
    optimizer: Any
    trained: list[torch.Tensor]
    tokens: torch.Tensor
    device: Device
    marks: list[list[Any]] = field(default_factory=list)
    host_us: list[list[float]] = field(default_factory=list)
    forward_bytes: int = 0
    loss: float = 0.0

    def step(self) -> None:
        """Forward, backward, clipping and optimizer; events and host times are kept."""
        marks = [self.device.event() for _ in range(4)]
        ends = [time.perf_counter()]
        marks[0].record()
        loss = self.forward()
        marks[1].record()
        ends.append(time.perf_counter())
        if self.device.kind == "cuda":
            self.forward_bytes = torch.cuda.memory_allocated()
        loss.backward()
        marks[2].record()
        ends.append(time.perf_counter())
        self.finish(loss)
        marks[3].record()
        ends.append(time.perf_counter())
        self.marks.append(marks)
        self.host_us.append([(b - a) * 1e6 for a, b in pairwise(ends)])

    def forward(self) -> torch.Tensor:
        """The loss of the batch."""
        with models.precision(self.job, self.device.torch_device):
            loss: torch.Tensor = self.model(input_ids=self.tokens, labels=self.tokens).loss
        return loss

    def finish(self, loss: torch.Tensor) -> None:
        """What follows the backward pass."""
        self.loss = float(loss.detach())  # the Trainer looks whether it is a number
        if self.job.optimizer != "in_backward_8bit":
            torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def trainer_of(job: Job, device: Device) -> Trainer:
    """Builds model, optimizer and a random batch."""
    torch.manual_seed(1)
    where = device.torch_device
    model = models.model_of(job, where)
    gc.collect()
    device.release()
    if device.kind == "cuda":
        torch.cuda.reset_peak_memory_stats()
    trained = [p for p in model.parameters() if p.requires_grad]
    vocab = model.config.vocab_size
    tokens = torch.randint(0, vocab, (job.micro_batch, job.seq), device=where)
    return Trainer(job, model, models.optimizer_of(job, model), trained, tokens, device)


def measure(context: Context, case: Case) -> Measured:
    """Times steps, then one step under the profiler, then one with the allocator's history."""
    device, job = context.device, job_of(case.key)
    trainer = trainer_of(job, device)
    try:
        for _ in range(1 if device.tiny else WARM):
            trainer.step()
        device.synchronize()
        trainer.marks.clear()
        trainer.host_us.clear()
        memory = {"parameters": sum(p.numel() for p in trainer.trained), "static_bytes": 0}
        if device.kind == "cuda":
            memory["static_bytes"] = torch.cuda.memory_allocated()
            memory["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
            torch.cuda.reset_peak_memory_stats()
        for _ in range(2 if device.tiny else STEPS):
            trainer.step()
        device.synchronize()
        memory["forward_bytes"] = trainer.forward_bytes
        memory["peak_allocated_bytes"] = (
            torch.cuda.max_memory_allocated() if device.kind == "cuda" else 0
        )
        memory["peak_reserved_bytes"] = max(
            memory.get("peak_reserved_bytes", 0),
            torch.cuda.max_memory_reserved() if device.kind == "cuda" else 0,
        )
        marks, host = list(trainer.marks), list(trainer.host_us)
        events = step_trace.kernels(trainer.step, device)
        memory["busy_us"] = step_trace.busy_us(events)  # type: ignore[assignment]
        timed = step_trace.part_rows(case.key, marks, host)
        rows: Measured = [("finetune", {**row, **memory}) for row in timed]
        rows += [("finetune_kernels", r) for r in step_trace.by_name(events, job.label())]
        blocks = step_trace.peak_blocks(trainer.step, device, job.label())
        return rows + [("finetune_blocks", r) for r in blocks]
    finally:
        models.release(trainer.optimizer)
        del trainer
        gc.collect()
        device.release()


ITEM = Item(
    "finetune",
    "Steps of fine-tuning with transformers, peft and bitsandbytes.",
    ("finetune", "finetune_kernels", "finetune_blocks"),
    cases,
    measure,
    start_s=40.0,
    libraries=models.libraries,
)

if __name__ == "__main__":
    sys.exit(runner.main(ITEM))

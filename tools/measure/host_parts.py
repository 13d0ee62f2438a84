#!/usr/bin/env python3
"""Counts what parts of transformers' layers ask of the host: the rows of data/host_calls.csv.

    python3 tools/measure/host_parts.py > data/host_calls.csv

Runs on the CPU with transformers, peft and bitsandbytes: a step of one layer and of two, of models
that differ by one part. What bitsandbytes does on a GPU alone is read off
data/measured/h200/host_steps.csv, whose other counts are equal to those made here.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from torch import nn

import finetune
import host_steps
from kit import finetune_models as models
from kit import host_calls
from kit.device import open_device
from kit.finetune_models import Job
from kit.host_models import declare
from kit.schemas import Row
from kit.tables import load

MEASURED = Path(__file__).resolve().parents[2] / "data/measured/h200/host_steps.csv"
NAMES = ("operators", "views", "modules", "functions")


@dataclass(frozen=True)
class Counts:
    """Of the forward pass, then of the backward pass."""

    values: tuple[float, ...]

    def __add__(self, other: Counts) -> Counts:
        return Counts(tuple(a + b for a, b in zip(self.values, other.values, strict=True)))

    def __sub__(self, other: Counts) -> Counts:
        return self + other * -1

    def __mul__(self, n: float) -> Counts:
        return Counts(tuple(a * n for a in self.values))


def counts_of(parts: dict[str, Row]) -> Counts:
    """Of a counted step."""
    return Counts(tuple(float(parts[p][n]) for p in ("forward", "backward") for n in NAMES))


def layer(job: Job, targets: tuple[str, ...] = models.PROJECTIONS) -> Counts:
    """A layer's calls: those of two layers less those of one."""
    device = open_device("cpu", True)
    family, *rest = job.model.split()
    attention = "eager" if "eager" in rest else "sdpa"
    kept, models.PROJECTIONS = models.PROJECTIONS, targets
    found = []
    try:
        for layers in (2, 3):
            name = declare(family, 128, layers, attention)
            trainer = finetune.trainer_of(replace(job, model=name, seq=8), device)
            trainer.step()
            found.append(counts_of(host_steps.count(trainer)))
    finally:
        models.PROJECTIONS = kept
    return found[1] - found[0]


def module(made: nn.Module, x: torch.Tensor) -> Counts:
    """The calls of one frozen module, without those of a loop around it."""
    made.requires_grad_(False)

    def ran(run: nn.Module) -> Counts:
        leaf = x.clone().requires_grad_()
        inside = leaf * 1
        with host_calls.counted() as forward:
            y = run(inside)
        gradient = torch.ones_like(y)
        with host_calls.counted() as backward:
            y.backward(gradient)
        return counts_of({"forward": forward.columns(), "backward": backward.columns()})

    nothing = nn.Identity()
    call = Counts((0.0, 0.0, 1.0) + (0.0,) * 5)
    return ran(made) - ran(nothing) + call


def measured(job: Job, than: Job) -> Counts:
    """What a product's calls on the GPU are above another job's. In front of the first layer's
    queries, keys and values nothing is trained: they have no backward pass."""
    rows = load(MEASURED).rows

    def of(wanted: Job) -> Counts:
        parts: dict[str, Row] = {}
        for row in rows:
            if row["loop"] == "own" and host_steps.job_of(row) == wanted:
                parts[str(row["part"])] = row
        return counts_of(parts)

    more, half = (of(job) - of(than)).values, len(NAMES)
    forward, backward = 7 * 8, 7 * 8 - 3
    return Counts((*(v / forward for v in more[:half]), *(v / backward for v in more[half:])))


def both_ways(counts: Counts) -> Counts:
    """With a function's call in the forward pass beside that in the backward pass."""
    half = len(NAMES)
    forward, backward = counts.values[:half], counts.values[half:]
    return Counts((*forward[:-1], backward[-1], *backward))


def model_ends(job: Job) -> Counts:
    """What a model has beside its layers: a layer's calls taken from those of a model with one."""
    device = open_device("cpu", True)
    made = replace(job, model=declare("llama", 128, 2), seq=8)
    trainer = finetune.trainer_of(made, device)
    trainer.step()
    return counts_of(host_steps.count(trainer)) - layer(job) * 2


def parts() -> dict[str, Counts]:
    """All rows."""
    job, lora = host_steps.job, host_steps.LORA
    transformers: Any = models.needs("transformers")
    config = transformers.LlamaConfig(
        hidden_size=128, intermediate_size=256, num_attention_heads=2, num_key_value_heads=1
    )
    x = torch.randn(1, 8, 128)
    linear = module(nn.Linear(128, 128, bias=False), x)
    one, whole = layer(job("llama", lora), ("q_proj",)), layer(job("llama", lora))
    adapter = (whole - one) * (1 / 6)
    frozen, full = one - adapter, layer(job("llama"))
    norm = (layer(job("qwen3", lora), ("q_proj",)) - one) * 0.5
    norm_weight = (layer(job("qwen3")) - full) * 0.5 - norm
    linear_weight = (full - frozen - norm_weight * 2) * (1 / 7)
    llama_mlp = transformers.models.llama.modeling_llama.LlamaMLP(config)
    mlp = module(llama_mlp, x) - linear * 3
    eight = {"method": "int8"}
    dense = mlp + (linear + linear_weight) * 3
    experts = layer(job("olmoe")) - (full - dense) - (norm + norm_weight) * 2
    again = layer(job("llama", host_steps.CHECKPOINT)) - full
    again_lora = layer(job("llama", lora, host_steps.CHECKPOINT)) - whole

    def beside_forward(extra: Counts, ran: Counts) -> Counts:
        half = len(NAMES)
        return Counts((0.0,) * half + tuple((extra - ran_again(ran)).values[half:]))

    def ran_again(ran: Counts) -> Counts:
        return Counts((0.0,) * len(NAMES) + ran.values[: len(NAMES)])

    checkpoint = beside_forward(again, full)
    neox = transformers.models.gpt_neox.modeling_gpt_neox
    small = transformers.GPTNeoXConfig(hidden_size=128, intermediate_size=256)
    plain_mlp = module(neox.GPTNeoXMLP(small), x) - module(nn.Linear(128, 128), x) * 2
    return {
        "linear": linear,
        "linear_weight": linear_weight,
        "rms_norm": norm,
        "rms_norm_weight": norm_weight,
        "layer_norm": module(nn.LayerNorm(128), x),
        "layer_norm_weight": Counts((0.0,) * 8),  # of the same kernel
        "bias": (layer(job("qwen2")) - full) * (1 / 3),
        "attention": frozen - norm * 2 - linear * 7 - mlp,
        "eager_attention": layer(job("llama", attention="eager")) - full,
        "gated_mlp": mlp,
        "plain_mlp": plain_mlp,
        "experts": experts,
        "adapter": adapter,
        "adapter_autocast": (layer(job("llama", lora, host_steps.AUTOCAST)) - whole) * (1 / 7),
        "weight_autocast": (layer(job("llama", host_steps.FP32)) - full) * (1 / 7),
        "nf4": both_ways(measured(job("llama", {"method": "nf4_single"}), job("llama", lora))),
        "double_scales": measured(
            job("llama", host_steps.NF4), job("llama", {"method": "nf4_single"})
        ),
        "int8": both_ways(measured(job("llama", eight), job("llama", lora))),
        "checkpoint": checkpoint,
        "model": model_ends(job("llama")),
        "adapter_checkpoint": (beside_forward(again_lora, whole) - checkpoint) * (1 / 7),
    }


def main() -> None:
    """Prints the table."""
    out = csv.writer(sys.stdout, lineterminator="\n")
    head = [f"{p}_{n}" for p in ("forward", "backward") for n in NAMES]
    out.writerow(["part", *head, "source"])
    found = models.libraries()
    source = ", ".join(f"{k} {v}" for k, v in found.items())
    for name, counts in parts().items():
        cells = [f"{v:.2f}".rstrip("0").rstrip(".") for v in counts.values]
        out.writerow([name, *("0" if c == "-0" else c for c in cells), source])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Item 1: matrix products of real layers, C = A.B, through torch (cuBLAS, or cuBLASLt on request).

Layouts name how A (m x k) and B (k x n) lie in row-major memory: n as written, t transposed. A
linear layer's forward is nt, its input gradient nn, its weight gradient tn. `fp8` is e4m3 with one
scale per tensor and fast accumulation, `fp8_split` without it; both write bf16. groups > 1 is a
grouped product over experts with equal shares: m (in tn: k) counts rows over all groups.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch

from kit import runner, shapes
from kit.device import Device
from kit.errors import Refused
from kit.layers import Layer
from kit.pool import Pool, make_pools
from kit.runner import Case, Context, Item, Measured
from kit.shapes import Gemm
from kit.timing import Call, rotation

# Rates for the plan only, FLOP/s of an H200 in practice and its HBM in byte/s.
PLAN_RATE = {
    "bf16": 650e12,
    "fp16": 650e12,
    "tf32": 330e12,
    "fp32": 45e12,
    "fp8": 1100e12,
    "fp8_split": 900e12,
}
PLAN_BANDWIDTH = 4.0e12
SUSTAINED_CASES = 240
TINY_CASES = (
    Gemm("bf16", "nt", 32, 48, 64),
    Gemm("bf16", "nn", 32, 48, 64),
    Gemm("bf16", "tn", 32, 48, 64),
    Gemm("fp16", "nt", 32, 32, 32),
    Gemm("tf32", "nn", 32, 32, 32),
    Gemm("fp32", "tn", 32, 32, 32),
    Gemm("fp8", "nt", 32, 32, 32),
    Gemm("fp8_split", "nt", 32, 32, 32),
    Gemm("bf16", "nt", 64, 32, 32, 2),
    Gemm("bf16", "nn", 64, 32, 32, 2),
    Gemm("bf16", "tn", 32, 32, 64, 2),
    Gemm("fp8", "nt", 64, 32, 32, 2),
)


def key_of(g: Gemm, mode: str) -> dict[str, str | int | float]:
    """The key columns of a product."""
    return {
        "op": "gemm",
        "dtype": g.dtype,
        "layout": g.layout,
        "m": g.m,
        "n": g.n,
        "k": g.k,
        "groups": g.groups,
        "mode": mode,
    }


def plan_us(g: Gemm) -> float:
    """Roofline estimate of one call in microseconds."""
    inputs, output = shapes.gemm_bytes(g)
    return 4.0 + 1e6 * max(g.flops / PLAN_RATE[g.dtype], (inputs + output) / PLAN_BANDWIDTH)


def cases(layers: list[Layer], device: Device | None, options: argparse.Namespace) -> list[Case]:
    """Products by worth; in sustained mode the most valuable ones only."""
    listed = [(g, 1.0) for g in TINY_CASES] if options.tiny else shapes.gemms(layers)
    if options.mode == "sustained":
        listed = [(g, w) for g, w in listed if g.dtype in ("bf16", "fp8", "fp8_split")]
        listed = listed[:SUSTAINED_CASES]
    names = {"nt": "forward", "nn": "input gradient", "tn": "weight gradient"}
    return [
        Case(
            key_of(g, options.mode),
            w,
            plan_us(g),
            f"{g.dtype} {'grouped ' if g.groups > 1 else ''}"
            f"{'fp8 layout' if g.dtype.startswith('fp8') else names[g.layout]}",
        )
        for g, w in listed
    ]


def operands(g: Gemm, inputs: Pool) -> tuple[torch.Tensor, torch.Tensor]:
    """A and B as torch sees them, with the memory layout of `g`. Grouped weights are 3-D."""
    rows, cols = (g.m, g.k)
    a = inputs.view(cols, rows).t() if g.layout[0] == "t" else inputs.view(rows, cols)
    if g.groups > 1 and g.layout != "tn":
        if g.layout[1] == "t":
            return a, inputs.view(g.groups, g.n, g.k).transpose(1, 2)
        return a, inputs.view(g.groups, g.k, g.n)
    b = inputs.view(g.n, g.k).t() if g.layout[1] == "t" else inputs.view(g.k, g.n)
    return a, b


def call_of(g: Gemm, inputs: Pool, outputs: Pool, device: Device) -> Call:
    """One product on its own operands."""
    a, b = operands(g, inputs)
    where = device.torch_device
    fp8 = g.dtype.startswith("fp8")
    if g.groups > 1:
        return _grouped(g, a, b, where)
    c = outputs.view(g.m, g.n)
    if fp8:
        one = torch.ones((), dtype=torch.float32, device=where)
        fast = g.dtype == "fp8"
        return lambda: torch._scaled_mm(
            a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast, out=c
        )
    return lambda: torch.mm(a, b, out=c)


def _grouped(g: Gemm, a: torch.Tensor, b: torch.Tensor, where: torch.device) -> Call:
    """A grouped product with equal shares; its output comes from the caching allocator."""
    total = g.k if g.layout == "tn" else g.m
    if total % (g.groups * shapes.ALIGN):
        raise Refused("rows per expert are no multiple of 16")
    share = total // g.groups
    ends = torch.arange(share, total + 1, share, dtype=torch.int32, device=where)
    if g.dtype.startswith("fp8"):
        scale_a = torch.ones(g.m, dtype=torch.float32, device=where)
        scale_b = torch.ones(g.groups, g.n, dtype=torch.float32, device=where)
        return lambda: torch._scaled_grouped_mm(
            a, b, scale_a, scale_b, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    grouped: Callable[..., torch.Tensor] = getattr(
        torch.nn.functional, "grouped_mm", torch._grouped_mm
    )
    return lambda: grouped(a, b, offs=ends)


def build(g: Gemm, context: Context) -> list[Call]:
    """Calls on enough operand sets to leave the L2, as far as the pools reach."""
    inputs, outputs = make_pools(context.device, context.cache, g.dtype)
    inputs.rewind()
    outputs.rewind()
    torch.backends.cuda.matmul.allow_tf32 = g.dtype == "tf32"
    sets = rotation(sum(shapes.gemm_bytes(g)), context.device)
    return [call_of(g, inputs, outputs, context.device) for _ in range(sets)]


def gemm_of(key: dict[str, str | int | float]) -> Gemm:
    """The product behind key columns."""
    return Gemm(
        str(key["dtype"]),
        str(key["layout"]),
        int(key["m"]),
        int(key["n"]),
        int(key["k"]),
        int(key["groups"]),
    )


def measure(context: Context, case: Case) -> Measured:
    """Times one product."""
    blas = context.options.blas
    if blas != "default" and context.device.kind == "cuda":
        torch.backends.cuda.preferred_blas_library(blas)
    timing = context.bench.time(build(gemm_of(case.key), context))
    return [("gemm", {**case.key, **timing.columns(context.bench.mode)})]


def arguments(parser: argparse.ArgumentParser) -> None:
    """The script's own options."""
    parser.add_argument(
        "--blas",
        choices=("default", "cublas", "cublaslt"),
        default="default",
        help="library behind torch.mm; anything but default goes to a folder of its own",
    )


ITEM = Item(
    "gemm",
    "Matrix products of real layers.",
    ("gemm",),
    cases,
    measure,
    modes=("hot", "sustained"),
    arguments=arguments,
    start_s=25.0,
)

if __name__ == "__main__":
    sys.exit(runner.main(ITEM))

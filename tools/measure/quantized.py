#!/usr/bin/env python3
"""Item 8: kernels of fine-tuning alone: dequantisation, 8-bit optimizers, products of adapters.

`bytes` is the least traffic of the kernel, so bytes / time is a lower bound of the bandwidth it
reached. Needs bitsandbytes; without it the products and PyTorch's optimizers are measured alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kit import finetune_models, runner
from kit.device import Device
from kit.errors import Refused
from kit.layers import Layer
from kit.pool import TORCH_TYPES
from kit.quantized_kernels import BY_NAME, Make
from kit.runner import Case, Context, Item, Measured
from kit.timing import Options, rotation

PLAN_BANDWIDTH = 2.5e12
# Weights (out x in) of Llama 3.1 8B, 3.2 1B and 3B, Qwen2.5 7B, Llama 3.1 70B.
WEIGHTS = (
    (4096, 4096), (1024, 4096), (14336, 4096), (4096, 14336),
    (2048, 2048), (512, 2048), (8192, 2048), (2048, 8192),
    (3072, 3072), (1024, 3072), (8192, 3072), (3072, 8192),
    (3584, 3584), (512, 3584), (18944, 3584), (3584, 18944),
    (8192, 8192), (28672, 8192),
)  # fmt: skip
TENSORS = (
    (1, 1 << 12), (1, 1 << 14), (1, 1 << 16), (1, 1 << 18), (1, 1 << 20), (1, 1 << 22),
    (1, 1 << 24), (1, 14336 * 4096), (1, 1 << 28), (1, 128256 * 4096),
    (64, 1 << 16), (64, 1 << 20), (16, 1 << 24),
)  # fmt: skip
TOKENS, WIDTHS, RANKS = (2048, 4096, 8192), (1024, 2048, 4096, 14336), (16, 64)

Size = tuple[str, str, int, int, int, float]  # kernel, dtype, rows, cols, inner, worth


def weights() -> Iterator[Size]:
    """Dequantisation and products of the weights above, what LLM.int8 does to activations."""
    for i, (out, into) in enumerate(WEIGHTS):
        worth = 1.0 - 0.02 * i
        for name in ("nf4_dequantize_double", "nf4_dequantize", "int8_weight_cast"):
            yield name, "bf16", out, into, 0, worth
        yield "fp4_dequantize", "bf16", out, into, 0, worth / 8
        for name, share in (("nf4_linear", 0.6), ("int8_product", 0.8)):
            yield name, "bf16", 4096, out, into, worth * share
    for tokens, width in product(TOKENS, WIDTHS):
        for name in ("int8_quantize", "int8_quantize_outliers", "int8_scale"):
            yield name, "bf16", tokens, width, 0, 0.55


def optimizers() -> Iterator[Size]:
    """Steps over one tensor and over lists of them."""
    for i, (count, elements) in enumerate(TENSORS):
        worth = 0.95 - 0.02 * i
        for dtype in ("bf16", "fp32"):
            yield "adamw_8bit", dtype, count, elements, 0, worth
            yield "adamw_fused", dtype, count, elements, 0, worth / 2
            yield "adamw_foreach", dtype, count, elements, 0, worth / 4
        yield "adamw_32bit", "bf16", count, elements, 0, worth / 2


def products() -> Iterator[Size]:
    """An adapter's six products: x times A, that times B, and their gradients."""
    types = (("bf16", 1.0), ("fp32", 0.5))
    for rank, tokens, width, (dtype, share) in product(RANKS, TOKENS, WIDTHS, types):
        worth = share * (0.7 if rank == RANKS[0] else 0.3)
        yield "product_nt", dtype, tokens, rank, width, worth
        yield "product_nt", dtype, tokens, width, rank, worth
        yield "product_nn", dtype, tokens, rank, width, worth
        yield "product_nn", dtype, tokens, width, rank, worth
        yield "product_tn", dtype, width, rank, tokens, worth
        yield "product_tn", dtype, rank, width, tokens, worth


TINY: tuple[Size, ...] = (
    ("nf4_dequantize_double", "bf16", 64, 64, 0, 1.0),
    ("nf4_linear", "bf16", 32, 64, 64, 1.0),
    ("adamw_fused", "fp32", 2, 64, 0, 1.0),
    ("adamw_foreach", "bf16", 2, 64, 0, 1.0),
    ("product_nt", "bf16", 32, 16, 64, 1.0),
    ("product_tn", "fp32", 64, 16, 32, 1.0),
)


def cases(layers: list[Layer], device: Device | None, options: argparse.Namespace) -> list[Case]:
    """Sizes above by worth."""
    listed = TINY if options.tiny else chain(weights(), optimizers(), products())
    result = []
    for name, dtype, rows, cols, inner, worth in listed:
        element = TORCH_TYPES[dtype].itemsize
        traffic = BY_NAME[name].bytes_of(rows, cols, inner, element)
        key = {
            "op": "quantized",
            "dtype": dtype,
            "kernel": name,
            "rows": rows,
            "cols": cols,
            "inner": inner,
            "mode": options.mode,
        }
        us = 4.0 + 1e6 * traffic / PLAN_BANDWIDTH + 2e6 * rows * cols * inner / 5e14
        result.append(Case(key, worth, us, name))
    return result


def measure(context: Context, case: Case) -> Measured:
    """Times one kernel on enough input sets to leave the L2, as far as memory allows."""
    key, kernel = case.key, BY_NAME[str(case.key["kernel"])]
    dtype = TORCH_TYPES[str(key["dtype"])]
    rows, cols, inner = (int(key[k]) for k in ("rows", "cols", "inner"))
    make = Make(rows, cols, inner, dtype, context.device.torch_device)
    traffic = int(kernel.bytes_of(rows, cols, inner, dtype.itemsize))
    room = context.device.free_bytes()
    if 3 * traffic > room:
        raise Refused("inputs exceed the device's memory")
    sets = min(rotation(traffic, context.device, 16), max(1, int(0.3 * room / traffic)))
    calls = [kernel.make(make) for _ in range(sets)]
    timing = context.bench.time(calls, hold=kernel.holds)
    return [("quantized", {**key, "bytes": traffic, **timing.columns(context.bench.mode)})]


ITEM = Item(
    "quantized",
    "Dequantisation, 8-bit optimizers, products of adapters.",
    ("quantized",),
    cases,
    measure,
    timing=Options(target_us=8_000.0, max_samples=20, idle_fraction=0.5),
    start_s=20.0,
    libraries=finetune_models.libraries,
)

if __name__ == "__main__":
    sys.exit(runner.main(ITEM))

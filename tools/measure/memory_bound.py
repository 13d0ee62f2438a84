#!/usr/bin/env python3
"""Item 3: norms, activations, rotary, losses, embeddings, optimizers, casts and MoE routing.

Sizes are those of real layers, and a ladder from launch-bound (4 KiB) to gigabytes. `bytes` is the
least traffic of the kernel, so bytes / time is a lower bound of the bandwidth it reached.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kit import runner, shapes
from kit.device import Device
from kit.errors import Refused
from kit.layers import Layer
from kit.pool import TORCH_TYPES
from kit.row_kernels import BY_NAME, KERNELS, Make, RowKernel
from kit.runner import Case, Context, Item, Measured
from kit.timing import Call, rotation

PLAN_BANDWIDTH = 2.5e12
LADDER = tuple((4**i, 2048) for i in range(0, 11))  # 4 KiB .. 4 GiB of bf16
FLAT = tuple((4**i, 4096) for i in range(1, 10))  # 16k .. 1.07G elements
PER_ROLE = 40  # real sizes of each kernel
MOST_BYTES = 24 << 30


def sizes(kernel: RowKernel, layers: list[Layer]) -> list[tuple[int, int, float]]:
    """(rows, cols, worth) of one kernel, most valuable first."""
    real = shapes.row_shapes(layers)
    top = max(w for _, w in real)

    def of(role: str) -> list[tuple[int, int, float]]:
        return [(s.rows, s.cols, w / top) for s, w in real if s.role == role][:PER_ROLE]

    if kernel.role in ("hidden", "table"):
        listed = of("hidden")
    elif kernel.role in ("ffn", "vocab"):
        listed = of(kernel.role)
    elif kernel.role == "heads":
        listed = [(r * max(1, c // 128), 128, w) for r, c, w in of("hidden")]
    elif kernel.role == "experts":
        listed = [(r, c, 0.3) for r in (1024, 4096, 8192, 32768, 131072) for c in (8, 64, 128, 256)]
    else:
        listed = []
    steps = FLAT if kernel.role == "flat" else LADDER
    if kernel.role not in ("experts", "table", "vocab", "heads"):
        listed += [(r, c, 0.25) for r, c in steps]
    best: dict[tuple[int, int], float] = {}
    for r, c, w in listed:
        best[r, c] = max(w, best.get((r, c), 0.0))
    return [(r, c, w) for (r, c), w in sorted(best.items(), key=lambda i: (-i[1], i[0]))]


def cases(layers: list[Layer], device: Device | None, options: argparse.Namespace) -> list[Case]:
    """Every kernel over its sizes in bf16; a third of them in fp16 at a tenth of the worth."""
    result: list[Case] = []
    for kernel in KERNELS:
        listed = [(32, 32, 1.0)] if options.tiny else sizes(kernel, layers)
        for i, (rows, cols, worth) in enumerate(listed):
            for dtype, share in ((kernel.only or "bf16", 1.0), ("fp16", 0.1)):
                if dtype == "fp16" and (i % 3 or options.tiny or kernel.only):
                    continue
                traffic = kernel.bytes_of(rows, cols, 2)
                if traffic > MOST_BYTES:
                    continue
                key = {
                    "op": "memory_bound",
                    "dtype": dtype,
                    "kernel": kernel.name,
                    "rows": rows,
                    "cols": cols,
                    "mode": options.mode,
                }
                us = 4.0 + 1e6 * traffic / PLAN_BANDWIDTH
                compiled = 0.2 if kernel.name.endswith(".triton") else 0.0  # each new block size
                result.append(
                    Case(key, worth * share * kernel.weight, us, kernel.name, extra_s=compiled)
                )
    return result


def build(key: dict[str, str | int | float], context: Context) -> list[Call]:
    """Calls on enough input sets to leave the L2, as far as memory allows."""
    kernel = BY_NAME[str(key["kernel"])]
    make = Make(
        int(key["rows"]),
        int(key["cols"]),
        TORCH_TYPES[str(key["dtype"])],
        context.device.torch_device,
    )
    if kernel.name == "transpose" and 1 in (make.rows, make.cols):
        raise Refused("a transpose of one row or column copies nothing")
    traffic = kernel.bytes_of(make.rows, make.cols, make.dtype.itemsize)
    room = context.device.free_bytes()
    if 3 * traffic > room:
        raise Refused("inputs exceed the device's memory")
    sets = min(rotation(traffic, context.device), max(1, int(0.3 * room / traffic)))
    return [kernel.make(make) for _ in range(sets)]


def measure(context: Context, case: Case) -> Measured:
    """Times one kernel."""
    kernel = BY_NAME[str(case.key["kernel"])]
    traffic = kernel.bytes_of(int(case.key["rows"]), int(case.key["cols"]), 2)
    timing = context.bench.time(build(case.key, context))
    return [("memory_bound", {**case.key, "bytes": traffic, **timing.columns(context.bench.mode)})]


ITEM = Item(
    "memory_bound",
    "Memory-bound kernels from launch-bound sizes to gigabytes.",
    ("memory_bound",),
    cases,
    measure,
)

if __name__ == "__main__":
    sys.exit(runner.main(ITEM))

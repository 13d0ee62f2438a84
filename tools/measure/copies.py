#!/usr/bin/env python3
"""Item 7: copies between host and device and within the device, by size and stride.

h2d and d2h from pinned and pageable memory, both directions at once, device-to-device copies, reads
(sum) and writes (fill), and strided copies whose rows lie apart. `bytes` is the payload one way;
`moved_bytes` what device memory reads plus writes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch

from kit import runner
from kit.device import Device
from kit.errors import Refused
from kit.layers import Layer
from kit.runner import Case, Context, Item, Measured
from kit.schemas import Row
from kit.timing import Call, rotation

HOST_KINDS = ("h2d_pinned", "d2h_pinned", "h2d_pageable", "d2h_pageable", "h2d_d2h_pinned")
DEVICE_KINDS = ("d2d_copy", "read", "write")
LINK = 50e9  # PCIe 5 x16 in practice, for the plan
HBM = 3.5e12
HOST_SIZES = tuple(4**i << 10 for i in range(0, 11))  # 1 KiB .. 1 GiB
DEVICE_SIZES = tuple(2**i for i in range(12, 34, 1))  # 4 KiB .. 8 GiB
ROWS = (64, 256, 1024, 4096, 65536)  # bytes per row of a strided copy
SPREAD = (2, 4, 16)  # stride over row


def _case(kind: str, size: int, row: int, stride: int, worth: float, mode: str) -> Case:
    moved = {"d2d_copy": 2, "strided_copy": 2, "h2d_d2h_pinned": 2}.get(kind, 1) * size
    key: Row = {
        "op": "copy",
        "kernel": kind,
        "bytes": size,
        "row_bytes": row,
        "stride_bytes": stride,
        "mode": mode,
    }
    us = 10.0 + 1e6 * (size / LINK if kind in HOST_KINDS else moved / HBM)
    # Pinning and filling host memory goes at about 1 GB/s.
    return Case(key, worth, us, kind, extra_s=size / 1e9 if kind in HOST_KINDS else 0.0)


def cases(layers: list[Layer], device: Device | None, options: argparse.Namespace) -> list[Case]:
    """Large sizes first: they give the ceilings."""
    m = options.mode
    host_sizes = (4096, 65536) if options.tiny else HOST_SIZES
    device_sizes = (4096, 65536) if options.tiny else DEVICE_SIZES
    result = [
        _case(k, s, s, s, 10.0 + i / 10 - 3 * ("pageable" in k), m)
        for k in HOST_KINDS
        for i, s in enumerate(host_sizes)
    ]
    result += [
        _case(k, s, s, s, 12.0 + i / 10, m)
        for k in DEVICE_KINDS
        for i, s in enumerate(device_sizes)
    ]
    strided = 1 << 16 if options.tiny else 1 << 28
    result += [
        _case("strided_copy", strided, r, r * f, 8.0, m)
        for r in (ROWS[:2] if options.tiny else ROWS)
        for f in SPREAD
    ]
    return result


def _host_call(kind: str, size: int, where: torch.device) -> Call:
    cuda = where.type == "cuda"
    pinned = "pinned" in kind and cuda
    host = torch.empty(size, dtype=torch.uint8, pin_memory=pinned).fill_(113)
    device = torch.randint(0, 256, (size,), dtype=torch.uint8, device=where)
    if kind.startswith("h2d_d2h"):
        other = torch.empty(size, dtype=torch.uint8, pin_memory=pinned).fill_(113)
        target = torch.empty_like(device)
        side = torch.cuda.Stream() if cuda else None

        def both() -> None:
            target.copy_(host, non_blocking=pinned)
            if side is None:
                other.copy_(device)
                return
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                other.copy_(device, non_blocking=pinned)
            torch.cuda.current_stream().wait_stream(side)

        return both
    if kind.startswith("h2d"):
        return lambda: device.copy_(host, non_blocking=pinned)
    return lambda: host.copy_(device, non_blocking=pinned)


def _device_call(kind: str, size: int, row: int, stride: int, where: torch.device) -> Call:
    if kind == "strided_copy":
        rows = size // row
        words = 4  # float32 elements move rows of 64 bytes and more in wide accesses
        big = torch.randn(rows, stride // words, device=where)
        out = torch.empty(rows, row // words, device=where)
        return lambda: out.copy_(big[:, : row // words])
    source = torch.randn(size // 4, device=where)
    if kind == "d2d_copy":
        target = torch.empty_like(source)
        return lambda: target.copy_(source)
    if kind == "read":
        return source.sum
    return lambda: source.fill_(1.5)


def build(key: dict[str, str | int | float], context: Context) -> list[Call]:
    """Calls on enough buffers to leave the L2 (host copies: one buffer, the link is the limit)."""
    kind, size = str(key["kernel"]), int(key["bytes"])
    where = context.device.torch_device
    if kind in HOST_KINDS:
        return [_host_call(kind, size, where)]
    row, stride = int(key["row_bytes"]), int(key["stride_bytes"])
    kept = size * 2 * max(1, stride // row)
    if kept > 0.7 * context.device.free_bytes():
        raise Refused("buffers exceed the device's memory")
    sets = min(
        rotation(2 * size, context.device), max(1, int(0.5 * context.device.free_bytes() / kept))
    )
    return [_device_call(kind, size, row, stride, where) for _ in range(sets)]


def measure(context: Context, case: Case) -> Measured:
    """Times one copy."""
    kind, size = str(case.key["kernel"]), int(case.key["bytes"])
    moved = {"d2d_copy": 2, "strided_copy": 2, "h2d_d2h_pinned": 2}.get(kind, 1) * size
    timing = context.bench.time(build(case.key, context), hold="pageable" not in kind)
    return [("copies", {**case.key, "moved_bytes": moved, **timing.columns(context.bench.mode)})]


ITEM = Item(
    "copies", "Copies between host and device and within the device.", ("copies",), cases, measure
)

if __name__ == "__main__":
    sys.exit(runner.main(ITEM))

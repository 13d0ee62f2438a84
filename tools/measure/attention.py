#!/usr/bin/env python3
"""Item 2: attention forward and backward, by implementation.

flash, cudnn, efficient and math are the back ends of torch's scaled_dot_product_attention; unfused
is the older sequence of products, mask and softmax over stored scores. Backward is timed alone,
from a kept graph. Values have the same head size as keys (latent attention: padded to it).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from kit import runner, shapes
from kit.device import Device
from kit.errors import Refused
from kit.layers import Layer
from kit.pool import TORCH_TYPES
from kit.runner import Case, Context, Item, Measured
from kit.shapes import Attention
from kit.timing import Call, rotation

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
# Worth of an implementation beside flash's, and its rate for the plan (FLOP/s of an H200, bf16).
WEIGHT = {"flash": 1.0, "cudnn": 0.7, "unfused": 0.25, "efficient": 0.06, "math": 0.03}
PLAN_RATE = {"flash": 350e12, "cudnn": 500e12, "efficient": 200e12, "math": 40e12, "unfused": 60e12}
EXTRA_S = {"cudnn": 0.15}  # cuDNN plans each new shape
FEW = {"efficient": 60, "math": 30}  # cases enough to know them by
STORED_SCORES = ("math", "unfused")
MOST_SCORE_BYTES = 8 << 30
MOST_US = 60_000.0  # one call; longer sequences follow the quadratic law
TINY_CASES = (Attention(1, 4, 4, 64, 64, 16, 1), Attention(2, 4, 2, 64, 64, 16, 0))
KEYS = ("b", "h", "kv_heads", "s_q", "s_kv", "d", "causal")


def plan_us(a: Attention, kernel: str, direction: str) -> float:
    """Estimate of one call in microseconds; backward has five products where forward has two."""
    work = a.flops * (2.5 if direction == "bwd" else 1.0)
    if kernel in STORED_SCORES and a.causal:
        work *= 2
    return 6.0 + work / PLAN_RATE[kernel] * 1e6


def cases(layers: list[Layer], device: Device | None, options: argparse.Namespace) -> list[Case]:
    """Sizes by worth, forward and backward, over implementations; fp16 for a sample."""
    listed = [(a, 1.0) for a in TINY_CASES] if options.tiny else shapes.attentions(layers)
    result: list[Case] = []
    for kernel, weight in WEIGHT.items():
        for i, (a, worth) in enumerate(listed[: FEW.get(kernel, len(listed))]):
            scores = a.b * a.h * a.s_q * a.s_kv * 4
            if kernel in STORED_SCORES and scores > MOST_SCORE_BYTES:
                continue
            for dtype in ("bf16", "fp16"):
                if dtype == "fp16" and (i >= 20 or kernel == "math"):
                    continue
                for direction in ("fwd", "bwd"):
                    us = plan_us(a, kernel, direction)
                    if us > MOST_US:
                        continue
                    key = {
                        "op": "attention",
                        "dtype": dtype,
                        "kernel": kernel,
                        **dict(zip(KEYS, astuple(a), strict=True)),
                        "pass": direction,
                        "mode": options.mode,
                    }
                    share = weight * (0.1 if dtype == "fp16" else 1.0)
                    group = f"{kernel} {direction} {dtype}"
                    result.append(
                        Case(key, worth * share, us, group, extra_s=EXTRA_S.get(kernel, 0.0))
                    )
    if options.mode == "sustained":
        result = [c for c in result if c.key["kernel"] in ("flash", "cudnn")]
        result = sorted(result, key=lambda c: -c.worth)[:120]
    return result


def forward_of(kernel: str, causal: bool, grouped: bool) -> Callable[..., torch.Tensor]:
    """A function of q [b, h, s_q, d], k and v [b, kv_heads, s_kv, d]."""
    if kernel == "unfused":
        masks: dict[int, torch.Tensor] = {}  # made in the first, untimed call

        def stored(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if causal and not masks:
                ones = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
                masks[0] = ones.triu(1)
            return unfused(q, k, v, masks.get(0))

        return stored
    backend = BACKENDS[kernel]

    def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=grouped
            )

    return fused


def unfused(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Scores, mask, softmax in fp32, products: what frameworks ran before fused attention."""
    if k.shape[1] != q.shape[1]:
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        v = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
    scores = torch.matmul(q, k.transpose(2, 3)) * (q.shape[-1] ** -0.5)
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    return torch.matmul(torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), v)


def build(key: dict[str, str | int | float], context: Context) -> list[Call]:
    """Calls on enough input sets to leave the L2."""
    a = Attention(*(int(key[k]) for k in KEYS))
    dtype, where = TORCH_TYPES[str(key["dtype"])], context.device.torch_device
    kernel, backward = str(key["kernel"]), key["pass"] == "bwd"
    bytes_once = 2 * a.d * a.b * (2 * a.h * a.s_q + 2 * a.kv_heads * a.s_kv)
    kept = bytes_once * (3 if backward else 2)
    if kernel in STORED_SCORES:
        kept += 8 * a.b * a.h * a.s_q * a.s_kv
    if kept > 0.6 * context.device.free_bytes():
        raise Refused("inputs and scores exceed the device's memory")
    sets = min(
        rotation(bytes_once, context.device), max(1, int(0.5 * context.device.free_bytes() / kept))
    )
    forward = forward_of(kernel, bool(a.causal), a.h != a.kv_heads)
    calls: list[Call] = []
    for _ in range(sets):
        shape_q, shape_k = (a.b, a.h, a.s_q, a.d), (a.b, a.kv_heads, a.s_kv, a.d)
        q, k, v = (
            torch.randn(s, dtype=dtype, device=where, requires_grad=backward)
            for s in (shape_q, shape_k, shape_k)
        )
        calls.append(
            _backward_call(forward, q, k, v) if backward else _forward_call(forward, q, k, v)
        )
    return calls


def _forward_call(
    forward: Callable[..., torch.Tensor], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> Call:
    return lambda: forward(q, k, v)


def _backward_call(
    forward: Callable[..., torch.Tensor], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> Call:
    out = forward(q, k, v)
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


def measure(context: Context, case: Case) -> Measured:
    """Times one attention."""
    timing = context.bench.time(build(case.key, context))
    return [("attention", {**case.key, **timing.columns(context.bench.mode)})]


ITEM = Item(
    "attention",
    "Attention forward and backward by implementation.",
    ("attention",),
    cases,
    measure,
    modes=("hot", "sustained"),
)

if __name__ == "__main__":
    sys.exit(runner.main(ITEM))

"""Fused row-wise kernels in Triton, as training frameworks use them: one pass over the data.

Each program works on one row (norms, SwiGLU) or a block of pairs (rotary). Importing this module
needs Triton; without a GPU its interpreter runs them (TRITON_INTERPRET=1).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _rmsnorm_kernel(x, w, y, rstd, cols, eps, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    mask = at < cols
    v = tl.load(x + row * cols + at, mask=mask, other=0.0).to(tl.float32)
    r = 1.0 / tl.sqrt(tl.sum(v * v, axis=0) / cols + eps)
    tl.store(rstd + row, r)
    g = tl.load(w + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + row * cols + at, (v * r * g).to(y.dtype.element_ty), mask=mask)


@triton.jit
def _rmsnorm_grad_kernel(dy, x, w, rstd, dx, cols, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    mask = at < cols
    v = tl.load(x + row * cols + at, mask=mask, other=0.0).to(tl.float32)
    d = tl.load(dy + row * cols + at, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(w + at, mask=mask, other=0.0).to(tl.float32)
    r = tl.load(rstd + row)
    scaled = d * g
    mean = tl.sum(scaled * v, axis=0) / cols
    out = r * scaled - v * (r * r * r) * mean
    tl.store(dx + row * cols + at, out.to(dx.dtype.element_ty), mask=mask)


@triton.jit
def _swiglu_kernel(gate, up, y, cols, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < cols
    g = tl.load(gate + row * cols + at, mask=mask, other=0.0).to(tl.float32)
    u = tl.load(up + row * cols + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + row * cols + at, (g * tl.sigmoid(g) * u).to(y.dtype.element_ty), mask=mask)


@triton.jit
def _rotary_kernel(x, cos, sin, y, pairs, seq, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    mask = at < pairs
    position = row % seq
    c = tl.load(cos + position * pairs + at, mask=mask, other=0.0)
    s = tl.load(sin + position * pairs + at, mask=mask, other=0.0)
    first = tl.load(x + row * 2 * pairs + at, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x + row * 2 * pairs + pairs + at, mask=mask, other=0.0).to(tl.float32)
    kind = y.dtype.element_ty
    tl.store(y + row * 2 * pairs + at, (first * c - second * s).to(kind), mask=mask)
    tl.store(y + row * 2 * pairs + pairs + at, (second * c + first * s).to(kind), mask=mask)


def _block(cols: int) -> tuple[int, int]:
    """Power of two that covers a row, and warps for it."""
    block = triton.next_power_of_2(cols)
    return block, min(16, max(1, block // 512))


def rmsnorm(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, rstd: torch.Tensor) -> None:
    """y[rows, cols] = x / rms(x) * w, rstd[rows] kept for the backward."""
    block, warps = _block(x.shape[1])
    _rmsnorm_kernel[(x.shape[0],)](x, w, y, rstd, x.shape[1], 1e-6, BLOCK=block, num_warps=warps)


def rmsnorm_grad(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, rstd: torch.Tensor, dx: torch.Tensor
) -> None:
    """dx[rows, cols] of rmsnorm; the weight's gradient is left to a reduction elsewhere."""
    block, warps = _block(x.shape[1])
    _rmsnorm_grad_kernel[(x.shape[0],)](
        dy, x, w, rstd, dx, x.shape[1], BLOCK=block, num_warps=warps
    )


def swiglu(gate: torch.Tensor, up: torch.Tensor, y: torch.Tensor) -> None:
    """y[rows, cols] = silu(gate) * up."""
    block = min(4096, triton.next_power_of_2(gate.shape[1]))
    grid = (gate.shape[0], triton.cdiv(gate.shape[1], block))
    _swiglu_kernel[grid](
        gate, up, y, gate.shape[1], BLOCK=block, num_warps=max(1, min(8, block // 256))
    )


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, y: torch.Tensor) -> None:
    """Rotates x[rows, 2 * pairs] (halves form pairs); cos and sin are fp32 [seq, pairs]."""
    pairs = x.shape[1] // 2
    _rotary_kernel[(x.shape[0],)](
        x, cos, sin, y, pairs, cos.shape[0], BLOCK=triton.next_power_of_2(pairs), num_warps=1
    )

"""Memory-bound kernels by name: what each does, and the least bytes it must move.

A kernel is made for a main tensor of rows x cols and gives one call on inputs of its own.
`bytes_of` counts each input read once and each output written once, at an element size e (bf16,
fp16: 2): a kernel that torch runs as several shows in its bandwidth as what fusing would win. Names
end in `.triton` for the fused kernels of triton_kernels; every other runs what torch runs eagerly.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from kit.errors import Refused
from kit.timing import Call

Tensor = torch.Tensor
Maker = Callable[["Make"], Call]


@dataclass
class Make:
    """Sizes and type for one call. Tensors are normal random, on `where`."""

    rows: int
    cols: int
    dtype: torch.dtype
    where: torch.device

    def x(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A random tensor, rows x cols unless told."""
        return torch.randn(
            shape or (self.rows, self.cols), dtype=dtype or self.dtype, device=self.where
        )

    def index(self, high: int, *shape: int) -> Tensor:
        """Random int64 below `high`."""
        return torch.randint(0, high, shape, device=self.where)


@dataclass(frozen=True)
class RowKernel:
    """One kernel. `role` says which sizes it takes; `bytes_of(rows, cols, e)` its least traffic."""

    name: str
    role: str  # hidden | ffn | vocab | heads | flat | experts | table
    make: Maker
    bytes_of: Callable[[int, int, int], int]
    weight: float = 1.0
    only: str = ""  # the one dtype of kernels that work on fp32 state


def backward(
    function: Callable[..., Tensor], *inputs: Tensor, kept: tuple[Tensor, ...] = ()
) -> Call:
    """A call of the gradient of `function` for `inputs`, from a kept graph."""
    for t in inputs:
        t.requires_grad_()
    out = function(*inputs, *kept)
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)


def _binary(function: Callable[[Tensor, Tensor], Any]) -> Maker:
    def make(m: Make) -> Call:
        a, b = m.x(), m.x()
        return lambda: function(a, b)

    return make


def _unary(function: Callable[[Tensor], Any]) -> Maker:
    def make(m: Make) -> Call:
        a = m.x()
        return lambda: function(a)

    return make


def _grad_unary(function: Callable[[Tensor], Tensor]) -> Maker:
    return lambda m: backward(function, m.x())


def _rms(x: Tensor, w: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), w, 1e-6)


def _layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def _norm_inputs(m: Make, count: int) -> tuple[Tensor, ...]:
    return (m.x(), *(m.x(m.cols) for _ in range(count)))


def _norm(function: Callable[..., Tensor], weights: int) -> Maker:
    def make(m: Make) -> Call:
        inputs = _norm_inputs(m, weights)
        return lambda: function(*inputs)

    return make


def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def _rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


ROTARY_HEADS = 16  # heads that share one position's cos and sin


def _rotary_make(m: Make) -> Call:
    heads = ROTARY_HEADS if m.rows % ROTARY_HEADS == 0 else 1
    x = m.x(m.rows // heads, heads, m.cols)
    cos, sin = (m.x(m.rows // heads, 1, m.cols) for _ in range(2))
    return lambda: _rotary(x, cos, sin)


def _dropout_add(x: Tensor, residual: Tensor) -> Tensor:
    return F.dropout(x, 0.1, training=True) + residual


def _cross_entropy(m: Make, gradient: bool) -> Call:
    x, target = m.x(), m.index(m.cols, m.rows)
    if gradient:
        return backward(F.cross_entropy, x, kept=(target,))
    return lambda: F.cross_entropy(x, target)


def _softmax32(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1, dtype=torch.float32)


def _embedding(m: Make, gradient: bool) -> Call:
    table = m.x(EMBEDDING_ROWS if m.cols >= 512 else 64, m.cols)
    index = m.index(table.shape[0], m.rows)
    if gradient:
        return backward(lambda t: F.embedding(index, t), table)
    return lambda: F.embedding(index, table)


EMBEDDING_ROWS = 51200


def _adam(m: Make, **how: Any) -> Call:
    count = 16  # tensors, so that foreach has something to group
    rows = max(1, m.rows // count)
    parameters = [m.x(rows, m.cols, dtype=torch.float32).requires_grad_() for _ in range(count)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, **how)
    return optimizer.step


def _accumulate(m: Make) -> Call:
    main, gradient = m.x(dtype=torch.float32), m.x()
    return lambda: main.add_(gradient)


def _cast(source: torch.dtype | None, target: torch.dtype | None) -> Maker:
    def make(m: Make) -> Call:
        a = m.x(dtype=source)
        return lambda: a.to(target or m.dtype)

    return make


def _permute(m: Make) -> Call:
    tokens, order = m.x(), m.index(m.rows, 2 * m.rows)
    return lambda: tokens.index_select(0, order)


def _unpermute(m: Make) -> Call:
    rows, order = m.x(2 * m.rows, m.cols), m.index(m.rows, 2 * m.rows)
    out = torch.zeros(m.rows, m.cols, dtype=m.dtype, device=m.where)
    return lambda: out.index_add_(0, order, rows)


def _route(m: Make) -> Call:
    logits, k = m.x(dtype=torch.float32), min(8, m.cols)
    return lambda: torch.topk(torch.softmax(logits, dim=-1), k, dim=-1)


def _sort_tokens(m: Make) -> Call:
    chosen = m.index(max(2, m.cols), m.rows)
    return lambda: torch.argsort(chosen, stable=True)


def _norm_of_gradients(m: Make) -> Call:
    parts = [m.x(max(1, m.rows // 16), m.cols, dtype=torch.float32) for _ in range(16)]
    return lambda: torch.linalg.vector_norm(torch.stack(torch._foreach_norm(parts)))


def _triton(name: str) -> Any:
    try:
        from kit import triton_kernels
    except ImportError as error:
        raise Refused("triton is not installed") from error
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        raise Refused("triton needs a GPU, or TRITON_INTERPRET=1")
    return getattr(triton_kernels, name)


def _rms_triton(m: Make) -> Call:
    kernel, x, w = _triton("rmsnorm"), m.x(), m.x(m.cols)
    y, rstd = torch.empty_like(x), m.x(m.rows, dtype=torch.float32)
    return lambda: kernel(x, w, y, rstd)


def _rms_grad_triton(m: Make) -> Call:
    kernel, dy, x, w = _triton("rmsnorm_grad"), m.x(), m.x(), m.x(m.cols)
    dx, rstd = torch.empty_like(x), m.x(m.rows, dtype=torch.float32)
    return lambda: kernel(dy, x, w, rstd, dx)


def _swiglu_triton(m: Make) -> Call:
    kernel, gate, up = _triton("swiglu"), m.x(), m.x()
    y = torch.empty_like(up)
    return lambda: kernel(gate, up, y)


def _rotary_triton(m: Make) -> Call:
    kernel, x = _triton("rotary"), m.x()
    seq = min(4096, m.rows)
    cos, sin = (m.x(seq, m.cols // 2, dtype=torch.float32) for _ in range(2))
    y = torch.empty_like(x)
    return lambda: kernel(x, cos, sin, y)


def _per_element(reads_writes: int, fixed: int = 0) -> Callable[[int, int, int], int]:
    """`reads_writes` elements of the working type per element, and `fixed` bytes."""
    return lambda r, c, e: r * c * (reads_writes * e + fixed)


def _plus_row(reads_writes: int, weights: int) -> Callable[[int, int, int], int]:
    """As above, and `weights` vectors of cols."""
    return lambda r, c, e: (r * c * reads_writes + c * weights) * e


KERNELS = (
    RowKernel("rmsnorm_fwd", "hidden", _norm(_rms, 1), _plus_row(2, 1)),
    RowKernel("rmsnorm_fwd.triton", "hidden", _rms_triton, _plus_row(2, 1)),
    RowKernel(
        "rmsnorm_bwd", "hidden", lambda m: backward(_rms, *_norm_inputs(m, 1)), _plus_row(3, 2)
    ),
    RowKernel("rmsnorm_bwd.triton", "hidden", _rms_grad_triton, _plus_row(3, 1)),
    RowKernel("layernorm_fwd", "hidden", _norm(_layer_norm, 2), _plus_row(2, 2)),
    RowKernel(
        "layernorm_bwd",
        "hidden",
        lambda m: backward(_layer_norm, *_norm_inputs(m, 2)),
        _plus_row(3, 3),
    ),
    RowKernel("add", "hidden", _binary(torch.add), _per_element(3)),
    RowKernel("dropout_add_fwd", "hidden", _binary(_dropout_add), _per_element(3, 1)),
    RowKernel(
        "dropout_add_bwd",
        "hidden",
        lambda m: backward(_dropout_add, m.x(), m.x()),
        _per_element(2, 1),
        0.5,
    ),
    RowKernel("swiglu_fwd", "ffn", _binary(_swiglu), _per_element(3)),
    RowKernel("swiglu_fwd.triton", "ffn", _swiglu_triton, _per_element(3)),
    RowKernel("swiglu_bwd", "ffn", lambda m: backward(_swiglu, m.x(), m.x()), _per_element(5)),
    RowKernel("gelu_fwd", "ffn", _unary(lambda x: F.gelu(x, approximate="tanh")), _per_element(2)),
    RowKernel(
        "gelu_bwd", "ffn", _grad_unary(lambda x: F.gelu(x, approximate="tanh")), _per_element(3)
    ),
    RowKernel("rotary_fwd", "heads", _rotary_make, _per_element(2), 0.5),
    RowKernel("rotary_fwd.triton", "heads", _rotary_triton, _per_element(2), 0.5),
    RowKernel("softmax_fwd", "vocab", _unary(lambda x: torch.softmax(x, -1)), _per_element(2), 0.5),
    RowKernel(
        "softmax_bwd", "vocab", _grad_unary(lambda x: torch.softmax(x, -1)), _per_element(3), 0.5
    ),
    RowKernel("softmax_fp32_fwd", "vocab", _unary(_softmax32), _per_element(1, 4), 0.3),
    RowKernel("cross_entropy_fwd", "vocab", lambda m: _cross_entropy(m, False), _per_element(1)),
    RowKernel("cross_entropy_bwd", "vocab", lambda m: _cross_entropy(m, True), _per_element(2)),
    RowKernel("embedding_fwd", "table", lambda m: _embedding(m, False), _per_element(2)),
    RowKernel(
        "embedding_bwd",
        "table",
        lambda m: _embedding(m, True),
        lambda r, c, e: (r + EMBEDDING_ROWS) * c * e,
    ),
    RowKernel(
        "adamw_fused",
        "flat",
        lambda m: _adam(m, fused=True),
        lambda r, c, e: r * c * 28,
        only="fp32",
    ),
    RowKernel(
        "adamw_foreach",
        "flat",
        lambda m: _adam(m, foreach=True),
        lambda r, c, e: r * c * 28,
        0.6,
        "fp32",
    ),
    RowKernel("gradient_norm", "flat", _norm_of_gradients, lambda r, c, e: r * c * 4, 0.6, "fp32"),
    RowKernel("gradient_accumulate_fp32", "flat", _accumulate, _per_element(1, 8)),
    RowKernel("cast_to_fp32", "flat", _cast(None, torch.float32), _per_element(1, 4)),
    RowKernel("cast_from_fp32", "flat", _cast(torch.float32, None), _per_element(1, 4)),
    RowKernel("cast_to_fp8", "flat", _cast(None, torch.float8_e4m3fn), _per_element(1, 1), 0.7),
    RowKernel("copy", "flat", _unary(torch.clone), _per_element(2)),
    RowKernel("fill", "flat", _unary(lambda x: x.zero_()), _per_element(1), 0.6),
    RowKernel("sum", "flat", _unary(lambda x: x.sum()), _per_element(1), 0.5),
    RowKernel("transpose", "hidden", _unary(lambda x: x.t().contiguous()), _per_element(2), 0.4),
    RowKernel("moe_permute", "hidden", _permute, lambda r, c, e: 3 * r * c * e, 0.6),
    RowKernel("moe_unpermute", "hidden", _unpermute, lambda r, c, e: 4 * r * c * e, 0.6),
    RowKernel(
        "moe_route", "experts", _route, lambda r, c, e: r * (4 * c + 12 * min(8, c)), 0.5, "fp32"
    ),
    RowKernel("moe_sort", "experts", _sort_tokens, lambda r, c, e: 16 * r, 0.4),
)
BY_NAME = {k.name: k for k in KERNELS}

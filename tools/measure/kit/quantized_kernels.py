"""Kernels of fine-tuning alone: dequantisation, small optimizer states, products of adapters.

`bytes_of(rows, cols, inner, e)` is the least device-memory traffic, each input read and each output
written once, at an element size e. Optimizers have `rows` tensors of `cols` elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kit.finetune_models import needs
from kit.timing import Call

THRESHOLD = 6.0  # of LLM.int8's outliers


@dataclass
class Make:
    """Sizes and type of one call."""

    rows: int
    cols: int
    inner: int
    dtype: torch.dtype
    where: torch.device

    def x(self, rows: int, cols: int) -> torch.Tensor:
        """A normal random matrix."""
        return torch.randn(rows, cols, dtype=self.dtype, device=self.where)


@dataclass(frozen=True)
class QuantizedKernel:
    """One kernel; `holds` false where the call waits for the device, so that none can queue."""

    name: str
    make: Callable[[Make], Call]
    bytes_of: Callable[[int, int, int, int], float]
    holds: bool = True


def _dequantize(kind: str, double: bool) -> Callable[[Make], Call]:
    def make(m: Make) -> Call:
        f = needs("bitsandbytes").functional
        codes, state = f.quantize_4bit(
            m.x(m.rows, m.cols), blocksize=64, compress_statistics=double, quant_type=kind
        )
        return lambda: f.dequantize_4bit(codes, state)

    return make


def _linear4(m: Make) -> Call:
    bnb = needs("bitsandbytes")
    codes, state = bnb.functional.quantize_4bit(
        m.x(m.cols, m.inner), blocksize=64, compress_statistics=True, quant_type="nf4"
    )
    x = m.x(m.rows, m.inner)
    return lambda: bnb.matmul_4bit(x, codes.t(), quant_state=state)


def _int8(m: Make) -> tuple[Any, torch.Tensor, torch.Tensor]:
    f = needs("bitsandbytes").functional
    codes, scales, _ = f.int8_vectorwise_quant(m.x(m.rows, m.cols).half())
    return f, codes, scales


def _int8_cast(m: Make) -> Call:
    """What MatMul8bitLt's backward makes of a weight."""
    _, codes, scales = _int8(m)
    dtype = m.dtype
    return lambda: codes.to(dtype, copy=True).mul_(scales.unsqueeze(1).mul(1.0 / 127.0))


def _int8_quantize(m: Make) -> Call:
    f = needs("bitsandbytes").functional
    x = m.x(m.rows, m.cols).half()
    return lambda: f.int8_vectorwise_quant(x)


def _int8_search(m: Make) -> Call:
    """As above with the search for outliers, whose columns the host reads."""
    f = needs("bitsandbytes").functional
    x = m.x(m.rows, m.cols).half()
    return lambda: f.int8_vectorwise_quant(x, threshold=THRESHOLD)


def _int8_product(m: Make) -> Call:
    f = needs("bitsandbytes").functional
    a, _, _ = f.int8_vectorwise_quant(m.x(m.rows, m.inner).half())
    b, _, _ = f.int8_vectorwise_quant(m.x(m.cols, m.inner).half())
    return lambda: f.int8_linear_matmul(a, b)


def _int8_scale(m: Make) -> Call:
    """The product's 32-bit result to 16 bits."""
    f = needs("bitsandbytes").functional
    out = torch.randint(-(2**20), 2**20, (m.rows, m.cols), dtype=torch.int32, device=m.where)
    rows = torch.rand(m.rows, dtype=torch.float32, device=m.where)
    cols = torch.rand(m.cols, dtype=torch.float32, device=m.where)
    return lambda: f.int8_mm_dequant(out, rows, cols)


def _optimizer(build: Callable[[list[torch.Tensor]], Any]) -> Callable[[Make], Call]:
    def make(m: Make) -> Call:
        tensors = [m.x(1, m.cols).flatten().requires_grad_() for _ in range(m.rows)]
        for p in tensors:
            p.grad = torch.randn_like(p)
        optimizer = build(tensors)
        optimizer.step()
        return lambda: optimizer.step()

    return make


def _bnb(kind: str) -> Callable[[list[torch.Tensor]], Any]:
    def build(tensors: list[torch.Tensor]) -> Any:
        optim = needs("bitsandbytes").optim
        return getattr(optim, kind)(
            tensors, lr=1e-5, **({"min_8bit_size": 4096} if "8" in kind else {})
        )

    return build


def _torch(**how: Any) -> Callable[[list[torch.Tensor]], Any]:
    return lambda tensors: torch.optim.AdamW(tensors, lr=1e-5, **how)


def _product(layout: str) -> Callable[[Make], Call]:
    """C = A·B in the layouts of docs/formats/measured-kernels.md (`gemm`)."""

    def make(m: Make) -> Call:
        a = m.x(m.inner, m.rows).t() if layout[0] == "t" else m.x(m.rows, m.inner)
        b = m.x(m.cols, m.inner).t() if layout[1] == "t" else m.x(m.inner, m.cols)
        return lambda: a @ b

    return make


def _product_bytes(r: int, c: int, k: int, e: int) -> float:
    return (r * c + r * k + k * c) * e


KERNELS = (
    QuantizedKernel(
        "nf4_dequantize", _dequantize("nf4", False), lambda r, c, k, e: r * c * (0.5 + 4 / 64 + e)
    ),
    QuantizedKernel(
        "nf4_dequantize_double",
        _dequantize("nf4", True),
        lambda r, c, k, e: r * c * (0.5 + 1 / 64 + e),
    ),
    QuantizedKernel(
        "fp4_dequantize", _dequantize("fp4", False), lambda r, c, k, e: r * c * (0.5 + 4 / 64 + e)
    ),
    QuantizedKernel(
        "nf4_linear",
        _linear4,
        lambda r, c, k, e: (r * c + r * k) * e + k * c * (0.5 + 1 / 64),
    ),
    QuantizedKernel("int8_weight_cast", _int8_cast, lambda r, c, k, e: r * c * (1 + e)),
    QuantizedKernel("int8_quantize", _int8_quantize, lambda r, c, k, e: r * c * 3),
    QuantizedKernel(
        "int8_quantize_outliers", _int8_search, lambda r, c, k, e: r * c * 3, holds=False
    ),
    QuantizedKernel("int8_product", _int8_product, lambda r, c, k, e: r * k + k * c + 4 * r * c),
    QuantizedKernel("int8_scale", _int8_scale, lambda r, c, k, e: r * c * 6),
    QuantizedKernel(
        "adamw_8bit",
        _optimizer(_bnb("AdamW8bit")),
        lambda r, c, k, e: r * c * (3 * e + 4 + 16 / 256),
    ),
    QuantizedKernel(
        "adamw_32bit", _optimizer(_bnb("AdamW")), lambda r, c, k, e: r * c * (3 * e + 16)
    ),
    QuantizedKernel(
        "adamw_fused", _optimizer(_torch(fused=True)), lambda r, c, k, e: r * c * 7 * e
    ),
    QuantizedKernel(
        "adamw_foreach", _optimizer(_torch(foreach=True)), lambda r, c, k, e: r * c * 7 * e
    ),
    QuantizedKernel("product_nt", _product("nt"), _product_bytes),
    QuantizedKernel("product_nn", _product("nn"), _product_bytes),
    QuantizedKernel("product_tn", _product("tn"), _product_bytes),
)
BY_NAME = {k.name: k for k in KERNELS}

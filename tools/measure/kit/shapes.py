"""The kernels that real layers launch, most valuable first.

From each layer of layers.csv follow its matrix products (forward, input gradient, weight gradient),
its attention and its row-wise kernels. Worth of a shape = sum over layers that use it of (runs of
the layer) x (share of the layer's work): what an error in this number would cost the predictions. A
second part, of lower worth, spans the space around them for models not seen yet.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kit.layers import Layer

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "nt", "nn", "tn"
ALIGN = 16  # rows of one expert's share: fp8 and grouped kernels need multiples of 16


@dataclass(frozen=True)
class Gemm:
    """C = A.B with C of m x n and inner size k, over all groups. Layouts are in the format text."""

    dtype: str
    layout: str
    m: int
    n: int
    k: int
    groups: int = 1

    @property
    def flops(self) -> float:
        """Multiply-adds count two; groups share m (or, in a weight gradient, k)."""
        return 2.0 * self.m * self.n * self.k


@dataclass(frozen=True)
class Product:
    """One linear operator of a layer: y[tokens, n] = x[tokens, k] . w[n, k]^T, `groups` experts."""

    rows: int
    n: int
    k: int
    groups: int = 1


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _share(value: int, parts: int) -> int:
    return max(1, value // parts)


def products(layer: Layer) -> list[Product]:
    """Linear operators of one layer on one rank, the output projection to the vocabulary last."""
    t, h, tp = layer.tokens, layer.hidden, layer.tp
    heads, d = _share(layer.heads, tp), layer.head_dim
    if layer.attention == "mla":
        # DeepSeek-V3's sizes: query rank 1536, key/value rank 512 + 64 rotary, value heads of 128.
        result = [
            Product(t, 1536, h),
            Product(t, heads * d, 1536),
            Product(t, 576, h),
            Product(t, heads * 256, 512),
            Product(t, h, heads * 128),
        ]
    else:
        kv = _share(layer.kv_heads, tp)
        result = [Product(t, (heads + 2 * kv) * d, h), Product(t, h, heads * d)]
    wide = 2 if layer.gated else 1
    if layer.experts:
        groups = _share(layer.experts, layer.ep)
        rows = max(ALIGN, t * max(1, layer.topk) // groups // ALIGN * ALIGN) * groups
        result += [
            Product(t, layer.experts, h),
            Product(rows, wide * layer.ffn, h, groups),
            Product(rows, h, layer.ffn, groups),
        ]
        if layer.shared:
            ffn = _share(layer.ffn * layer.shared, tp)
            result += [Product(t, wide * ffn, h), Product(t, h, ffn)]
    else:
        ffn = _share(layer.ffn, tp)
        result += [Product(t, wide * ffn, h), Product(t, h, ffn)]
    return result + [Product(t, _up(layer.vocab, 128 * tp) // tp, h)]


def passes(product: Product, dtype: str) -> list[Gemm]:
    """Forward, input gradient, weight gradient of one linear operator.

    fp8 tensor cores read both operands along k, so frameworks transpose beforehand: all three are
    `nt`; gradients add up in the slower exact way (fp8_split).
    """
    t, n, k, g = product.rows, product.n, product.k, product.groups
    if dtype == "fp8":
        if min(t, n, k) < ALIGN or any(x % ALIGN for x in (t, n, k)):
            return []
        forward = [Gemm("fp8", FORWARD, t, n, k, g)]
        if g > 1:
            return forward
        return forward + [Gemm("fp8_split", FORWARD, t, k, n), Gemm("fp8_split", FORWARD, n, k, t)]
    return [
        Gemm(dtype, FORWARD, t, n, k, g),
        Gemm(dtype, INPUT_GRADIENT, t, k, n, g),
        Gemm(dtype, WEIGHT_GRADIENT, n, k, t, g),
    ]


def dtypes_of(layer: Layer) -> tuple[tuple[str, float], ...]:
    """(element type, weight): every layer in bf16, its own type fully, tf32 for a little."""
    own = {
        "bf16": (("bf16", 1.0), ("fp16", 0.05)),
        "fp16": (("fp16", 0.6), ("bf16", 0.8)),
        "fp8": (("fp8", 0.9), ("bf16", 0.9)),
        "fp32": (("tf32", 1.0), ("fp32", 0.5)),
    }
    return (*own[layer.precision], ("tf32", 0.03), ("fp32", 0.01))


def gemm_worth(layers: Iterable[Layer]) -> dict[Gemm, float]:
    """Worth of every product of `layers`. The vocabulary product counts as a tenth of a layer's."""
    worth: dict[Gemm, float] = {}
    for layer in layers:
        ops = products(layer)
        flops = [2.0 * p.rows * p.n * p.k for p in ops]
        total = sum(flops[:-1]) or 1.0
        for i, (op, f) in enumerate(zip(ops, flops, strict=True)):
            share = min(1.0, f / total) * (0.1 if i == len(ops) - 1 else 1.0)
            for dtype, weight in dtypes_of(layer):
                if dtype in ("tf32", "fp32") and op.groups > 1:
                    continue
                for gemm in passes(op, dtype):
                    worth[gemm] = worth.get(gemm, 0.0) + layer.runs * weight * (share + 0.02)
    return worth


TOKENS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
SHARDS = (1, 2, 4, 8, 16)


def around(layers: Iterable[Layer]) -> Iterator[Layer]:
    """The same models at other token counts and tensor splits, one layer each."""
    seen: set[Layer] = set()
    for layer in layers:
        for tokens, tp in itertools.product(TOKENS, SHARDS):
            if layer.heads % tp or layer.ffn % tp or layer.hidden < 512 * tp:
                continue
            variant = replace(
                layer,
                model="",
                tp=tp,
                cp=1,
                micro_batch=1,
                seq=tokens,
                runs=1,
                vocab=51200 if layer.vocab < 64000 else 128256,
            )
            if variant not in seen:
                seen.add(variant)
                yield variant


# Most shapes of one element type. bf16 carries most runs; fp16 runs at the same rate on every GPU
# since A100, so a sample of it shows whether that holds; fp32 matters to optimizers and routers.
QUOTA = {"bf16": 1750, "fp16": 330, "tf32": 130, "fp32": 40, "fp8": 420, "fp8_split": 330}


def gemms(layers: list[Layer], quota: dict[str, int] | None = None) -> list[tuple[Gemm, float]]:
    """About 3,000 products with their worth, most valuable first.

    Four fifths of each element type's quota are products of `layers`; the rest is drawn evenly, by
    size, from the space around them, for models not seen yet.
    """
    quota = quota or QUOTA
    worth = {g: w for g, w in gemm_worth(layers).items() if fits_pool(g)}
    wider = [g for g in gemm_worth(around(layers)) if g not in worth and fits_pool(g)]
    result: list[tuple[Gemm, float]] = []
    for dtype, most in quota.items():
        real = sorted(
            ((g, w) for g, w in worth.items() if g.dtype == dtype),
            key=lambda item: (-item[1], _sort_key(item[0])),
        )
        extra = sorted(
            (g for g in wider if g.dtype == dtype), key=lambda g: (g.flops, _sort_key(g))
        )
        count = min(len(real), most - min(most // 5, len(extra)))
        result += real[:count]
        low = 0.5 * real[count - 1][1] if count else 0.01
        result += [(g, low) for g in _evenly(extra, most - count)]
    return sorted(result, key=lambda item: (-item[1], _sort_key(item[0])))


def _evenly(items: list[Gemm], count: int) -> list[Gemm]:
    """`count` of `items` at equal distances, in an order that halves the gaps."""
    count = min(count, len(items))
    picked = [items[i * len(items) // count] for i in range(count)]
    order = sorted(range(count), key=lambda i: int(f"{i:016b}"[::-1], 2))
    return [picked[i] for i in order]


POOL_BYTES = 8 << 30  # random inputs of one element type; outputs take half as much
ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "tf32": 4, "fp8": 1, "fp8_split": 1}


def gemm_bytes(g: Gemm) -> tuple[int, int]:
    """Bytes of A and B together, and of C (fp8 products write bf16)."""
    size = ELEMENT_BYTES[g.dtype]
    out = 2 if size == 1 else size
    if g.layout == WEIGHT_GRADIENT and g.groups > 1:
        return size * (g.m * g.k + g.k * g.n), out * g.groups * g.m * g.n
    return size * (g.m * g.k + g.groups * g.k * g.n), out * g.m * g.n


def fits_pool(g: Gemm) -> bool:
    """True if one set of operands fits the pools of a large GPU."""
    inputs, output = gemm_bytes(g)
    return inputs <= POOL_BYTES - (1 << 20) and output <= POOL_BYTES // 2 - (1 << 20)


def _sort_key(g: Gemm) -> tuple[str, str, int, int, int, int]:
    return (g.dtype, g.layout, g.m, g.n, g.k, g.groups)


@dataclass(frozen=True)
class Attention:
    """Attention of one rank; sizes in elements, `causal` 0 or 1."""

    b: int
    h: int
    kv_heads: int
    s_q: int
    s_kv: int
    d: int
    causal: int

    @property
    def flops(self) -> float:
        """Forward: two products over the scores; a causal mask halves square ones."""
        full = 4.0 * self.b * self.h * self.s_q * self.s_kv * self.d
        return full / 2 if self.causal and self.s_q == self.s_kv else full


def attentions(layers: list[Layer]) -> list[tuple[Attention, float]]:
    """Attention sizes with their worth, most valuable first."""
    worth: dict[Attention, float] = {}

    def add(a: Attention, value: float) -> None:
        worth[a] = worth.get(a, 0.0) + value

    for layer in layers:
        h, kv = _share(layer.heads, layer.tp), _share(layer.kv_heads, layer.tp)
        h = h // kv * kv
        s = max(16, layer.seq // layer.cp)
        base = Attention(layer.micro_batch, h, kv, s, s, layer.head_dim, 1)
        add(base, float(layer.runs))
        if layer.cp > 1:  # ring attention: other ranks' keys, unmasked
            add(replace(base, causal=0), 0.5 * layer.runs)
    for s, d, h, kv in itertools.product(
        (512, 1024, 2048, 4096, 8192, 16384, 32768), (64, 128), (4, 8, 16, 32), (1, 4)
    ):
        kv_heads = max(1, h // kv) if kv > 1 else h
        for causal in (1, 0):
            add(
                Attention(max(1, 8192 // s), h, kv_heads, s, s, d, causal),
                (0.4 if causal else 0.2) * (1.0 if d == 128 else 0.7),
            )
    return sorted(worth.items(), key=lambda item: (-item[1], str(item[0])))


@dataclass(frozen=True)
class RowShape:
    """A row-wise kernel's main tensor, rows x cols."""

    role: str  # hidden | ffn | vocab | scores
    rows: int
    cols: int


def row_shapes(layers: list[Layer]) -> list[tuple[RowShape, float]]:
    """Sizes of norms, activations, rotary and losses of `layers`, most valuable first."""
    worth: dict[RowShape, float] = {}
    for layer in layers:
        t, tp = layer.tokens, layer.tp
        ffn = _share(layer.ffn, tp)
        for role, rows, cols in (
            ("hidden", t, layer.hidden),
            ("ffn", t, ffn),
            ("hidden", _share(t, tp), layer.hidden),
            ("vocab", t, _up(layer.vocab, 128 * tp) // tp),
        ):
            shape = RowShape(role, rows, cols)
            worth[shape] = worth.get(shape, 0.0) + layer.runs * (1.0 if role != "vocab" else 0.5)
    return sorted(worth.items(), key=lambda item: (-item[1], str(item[0])))

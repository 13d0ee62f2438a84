"""Memory that kernels take for themselves and give back: what an allocator sees beside tensors.

Only what is large enough to move a peak or a fragment. Sizes are those of PyTorch's reduction
kernel (Reduce.cuh) and of cuDNN's attention, as an H200's allocator recorded them under PyTorch
2.11 (data/measured/h200/tracer); the reduction's grid is that of a GPU with 132 SMs. cuBLAS keeps
its workspaces: one for the forward pass's thread, one for autograd's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

SMS = 132  # an H100's or H200's
THREADS_OF_SM = 2048
_BLOCK = 512  # threads of a reduction, divided by the outputs that one thread makes
_LEAST_VALUES, _MOST_VALUES = 16, 256  # that a thread adds


def _up(value: int, by: int) -> int:
    return -(-value // by)


def _power(value: int) -> int:
    """The last power of two that is not above `value`."""
    return 1 << (value.bit_length() - 1)


def column_sum(rows: int, columns: int) -> int:
    """Bytes that PyTorch stages to add the rows of a [rows, columns] tensor in fp32.

    Blocks of a column share their partial sums through memory where a thread would have to add 256
    values and more; a stage is laid out for each thread and output of a block, not for each block.
    """
    vector = next(n for n in (4, 2, 1) if columns % n == 0)
    most = _BLOCK // vector
    width = min(_power(max(1, columns // vector)), 32)
    height = min(_power(rows), most // width)
    width = min(_power(max(1, columns // vector)), most // height)
    values = _up(rows, height)
    grid = _up(columns // vector, width)
    target = SMS * (THREADS_OF_SM // (width * height))
    if values < _MOST_VALUES or grid > target:
        return 0
    blocks = max(min(_up(target, grid), _up(values, _LEAST_VALUES)), _up(values, _MOST_VALUES))
    return 4 * columns * blocks * width * vector if blocks > 1 else 0


def _sum(args: tuple[Any, ...]) -> list[int]:
    source, dims = args[0], args[1] if len(args) > 1 else None
    if not dims or source.dim() < 2 or not source.is_contiguous():
        return []
    leading = sorted(dim % source.dim() for dim in dims)
    if leading != list(range(len(leading))) or len(leading) == source.dim():
        return []  # along rows, or of everything: small
    rows = 1
    for dim in leading:
        rows *= source.shape[dim]
    columns = source.numel() // max(1, rows)
    return [column_sum(rows, columns)] if rows and columns else []


def _cudnn_backward(args: tuple[Any, ...]) -> list[int]:
    """Query gradients and row sums in fp32; keys' and values' gradients for each query head."""
    query, key = args[1], args[2]
    batch, heads, rows, head = query.shape
    stage = 4 * batch * heads * rows * (head + 1) + 256
    if key.shape[1] != heads:
        stage += 2 * key.element_size() * batch * heads * key.shape[2] * head
    return [stage]


_RULES: dict[str, Callable[[tuple[Any, ...]], list[int]]] = {
    "aten::sum": _sum,
    "aten::_scaled_dot_product_cudnn_attention_backward": _cudnn_backward,
}


PRODUCTS = frozenset(f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm"))
_CUBLAS_BYTES = 32 << 20  # of compute capability 9.0
_CUBLASLT_BYTES = 1 << 20


def cublas(name: str, args: tuple[Any, ...]) -> Iterator[tuple[str, int]]:
    """Workspaces that a product asks for, by the handle that keeps them.

    Autograd runs backward in a thread of its own, whose handle is another. A product with a bias
    goes through cuBLASLt.
    """
    if args[0].device.type != "cuda":
        return
    thread = "forward" if torch._C._current_graph_task_id() == -1 else "backward"
    yield f"cuBLAS {thread}", _CUBLAS_BYTES
    if name == "aten::addmm":
        yield f"cuBLASLt {thread}", _CUBLASLT_BYTES


def inner(name: str, args: tuple[Any, ...]) -> list[int]:
    """Bytes of each buffer that the op's kernels hold while they run."""
    rule = _RULES.get(name)
    if rule is None or not isinstance(args[0], torch.Tensor) or args[0].device.type != "cuda":
        return []
    return [size for size in rule(args) if size]

"""Operators that hold functions of their own (PyTorch's higher-order operators)."""

from __future__ import annotations

from typing import Any

from orrery_trace.errors import TraceError

ATTENTION = ("flex_attention", "flex_attention_backward")


def plain(func: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The op and the arguments that `func` wraps.

    `run_dtensor_rng_op`: a random op of DTensor's behind two offsets into the stream of numbers.
    """
    if func.name() != "run_dtensor_rng_op":
        raise TraceError(
            f"the operator {func.name()} holds functions of its own, which cannot be traced"
        )
    return args[2], args[3:]


def flops(name: str, args: tuple[Any, ...]) -> int:
    """Of all pairs of a query and a key, as PyTorch counts fused attention.

    Two products forward; backward the scores once more, and the gradients of scores, queries, keys
    and values.
    """
    query, key, value = args[:3]
    pairs = query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2]
    wide, values = query.shape[3], value.shape[3]
    if name == "flex_attention":
        return int(2 * pairs * (wide + values))
    return int(2 * pairs * (3 * wide + 2 * values))

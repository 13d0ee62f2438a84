"""What an op is: one table row for each distinct (name, shapes, types, layouts, scalars).

The row carries all that a cost model needs: every tensor's type, shape and, where it is not
contiguous, its strides; the scalar arguments; bytes read and written; floating-point operations by
PyTorch's own formulas. An op with `kernel: false` launches nothing (views, empty tensors).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from orrery_trace.trace import Line, Writer

# Ops that move no data although they are not marked as views.
_NO_KERNEL = frozenset(
    f"aten::{name}"
    for name in (
        "empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "detach",
        "detach_", "alias", "_unsafe_view", "_reshape_alias", "lift_fresh", "lift", "resize_",
        "set_", "is_pinned", "is_same_size", "_has_same_storage_numel",
    )
)  # fmt: skip
# Ops whose first argument is written and not read.
_OVERWRITES = frozenset(
    f"aten::{name}" for name in ("zero_", "fill_", "copy_", "normal_", "uniform_", "random_")
)
_LAYOUT_ARGUMENTS = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking"})


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in nested lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def type_name(dtype: torch.dtype) -> str:
    """`bfloat16`."""
    return str(dtype)[6:]


def bytes_of(value: Any) -> int:
    """Bytes of every tensor in `value`."""
    return sum(t.numel() * t.element_size() for t in tensors_in(value))


def _touched(tensor: torch.Tensor) -> int:
    """Bytes that a kernel touches: a broadcast dimension (stride 0) is stored once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride or size == 0 else 1
    return count * tensor.element_size()


def _scalar(value: Any) -> Any:
    """A value that JSON holds; None for what is no scalar."""
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, torch.dtype):
        return type_name(value)
    if isinstance(value, (torch.device, complex)):
        return str(value)
    if isinstance(value, (list, tuple)):
        items = [_scalar(item) for item in value]
        return items if any(item is not None for item in items) else None
    return None


class Signatures:
    """Numbers signatures in order of first use and writes each row once."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._numbers: dict[Any, int] = {}

    def number(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> int:
        """The number of this op's signature."""
        inputs = list(tensors_in((args, kwargs)))
        outputs = list(tensors_in(result))
        key = (
            func,
            tuple((t.dtype, t.shape, t.stride(), t.device.type) for t in inputs),
            tuple((t.shape, t.stride()) for t in outputs),
            _frozen(args),
            _frozen(kwargs),
        )
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            self._writer.line(self._row(number, func, args, kwargs, result, inputs, outputs))
        return number

    def kernel(
        self, name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor],
        scalars: Line, flops: int,
    ) -> int:  # fmt: skip
        """The number of a kernel that is no op of the dispatcher's and has no schema."""
        described = [[_described(t) for t in tensors] for tensors in (inputs, outputs)]
        key = (name, repr(described), repr(scalars))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            row: Line = {"t": "sig", "id": number, "name": name}
            row |= {"in": described[0], "out": described[1], "args": scalars, "flops": flops}
            row["read"], row["written"] = (sum(map(_touched, t)) for t in (inputs, outputs))
            self._writer.line(row)
        return number

    def _row(
        self, number: int, func: Any, args: Any, kwargs: dict[str, Any], result: Any,
        inputs: list[torch.Tensor], outputs: list[torch.Tensor],
    ) -> Line:  # fmt: skip
        name = func._schema.name
        row: Line = {"t": "sig", "id": number, "name": name}
        if func._schema.overload_name:
            row["overload"] = func._schema.overload_name
        row["in"] = [_described(t) for t in inputs]
        row["out"] = [_described(t) for t in outputs]
        scalars = _scalars(func, args, kwargs)
        if scalars:
            row["args"] = scalars
        if func.is_view or name in _NO_KERNEL or not any(t.numel() for t in (*inputs, *outputs)):
            row["kernel"] = False
            return row
        row["read"], row["written"] = _traffic(func, args, kwargs, inputs, outputs)
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            row["flops"] = int(formula(*_even_heads(name, args), **kwargs, out_val=result))
        return row


def _even_heads(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Attention's arguments as PyTorch's formulas want them: grouped keys count for each query.

    Formulas before 2.13 refuse grouped heads.
    """
    if not name.startswith("aten::_scaled_dot_product"):
        return args
    heads = max(t.shape[1] for t in args if isinstance(t, torch.Tensor) and t.dim() == 4)
    return tuple(
        torch.empty((t.shape[0], heads, *t.shape[2:]), device="meta", dtype=t.dtype)
        if isinstance(t, torch.Tensor) and t.dim() == 4 and t.shape[1] != heads
        else t
        for t in args
    )


def _described(tensor: torch.Tensor) -> list[Any]:
    """`[type, shape]`, then strides where not contiguous, then the device where not cuda."""
    row: list[Any] = [type_name(tensor.dtype), list(tensor.shape)]
    device = tensor.device.type
    if not tensor.is_contiguous() or device != "cuda":
        row.append(None if tensor.is_contiguous() else list(tensor.stride()))
    if device != "cuda":
        row.append(device)
    return row


def _scalars(func: Any, args: Any, kwargs: dict[str, Any]) -> Line:
    named = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    defaults = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    found: Line = {}
    for name, value in named.items():
        if name in _LAYOUT_ARGUMENTS or next(tensors_in(value), None) is not None:
            continue
        if name in defaults and defaults[name] == value:
            continue
        scalar = _scalar(value)
        if scalar is not None:
            found[name] = scalar
    return found


def _traffic(
    func: Any, args: Any, kwargs: dict[str, Any],
    inputs: list[torch.Tensor], outputs: list[torch.Tensor],
) -> tuple[int, int]:  # fmt: skip
    """Bytes read and written, each tensor once; what is changed in place is read and written."""
    named = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    changed: list[torch.Tensor] = []
    for argument in func._schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            changed += tensors_in(named.get(argument.name))
    overwritten = {id(t) for t in changed} if func._schema.name in _OVERWRITES else set()
    if "out" in func._schema.overload_name:
        overwritten = {id(t) for t in changed}
    read = sum(_touched(t) for t in inputs if id(t) not in overwritten)
    fresh = [t for t in outputs if not any(t is c for c in changed)]
    return read, sum(_touched(t) for t in (*changed, *fresh))


def _frozen(value: Any) -> Any:
    """A hashable stand-in for the scalars of `value`; tensors are seen elsewhere."""
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, float):
        return repr(value)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return (type(value).__name__, value)

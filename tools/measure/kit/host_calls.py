"""What a step asks of the host, counted: operators, views, modules, nodes of autograd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from kit.device import Device
from kit.schemas import Row

MOST_CALLS = 40  # of a profile
# Results that share their argument's memory and that no schema calls views.
ALIASES = frozenset({"aten::_unsafe_view", "aten::_reshape_alias", "aten::lift_fresh"})


class _Operators(TorchDispatchMode):
    """Counts what reaches the dispatcher below autograd, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.views: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._schema.name
        view = getattr(func, "is_view", False) or name in ALIASES
        (self.views if view else self.seen)[name] += 1
        return func(*args, **(kwargs or {}))


@dataclass
class Calls:
    """Counts of one stretch of a step."""

    operators: Counter[str]
    views: Counter[str]
    modules: Counter[str]
    nodes: int = 0
    functions: int = 0

    def columns(self) -> Row:
        """As columns of `host_steps`."""
        return {
            "operators": sum(self.operators.values()),
            "views": sum(self.views.values()),
            "modules": sum(self.modules.values()),
            "nodes": self.nodes,
            "functions": self.functions,
        }


@contextmanager
def counted() -> Iterator[Calls]:
    """Counts what runs inside."""
    modules: Counter[str] = Counter()

    def enters(module: torch.nn.Module, _: Any) -> None:
        modules[type(module).__name__] += 1

    hook = register_module_forward_pre_hook(enters)
    mode = _Operators()
    calls = Calls(mode.seen, mode.views, modules)
    try:
        with mode:
            yield calls
    finally:
        hook.remove()


def graph_of(loss: torch.Tensor) -> tuple[int, int]:
    """Nodes of the autograd graph behind a tensor, and how many of them are Python's."""
    seen: set[Any] = set()
    todo = [loss.grad_fn]
    python = 0
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        python += isinstance(node, BackwardCFunction)
        todo.extend(n for n, _ in node.next_functions)
    return len(seen), python


def host_calls(step: Callable[[], None], device: Device, label: str) -> list[Row]:
    """Host time of one profiled step by operator and call of the driver, most first."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.kind == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as p:
        step()
        device.synchronize()
    found = [e for e in p.key_averages() if e.self_cpu_time_total > 0]
    found.sort(key=lambda e: -e.self_cpu_time_total)
    return [
        {
            "op": "host_call",
            "model": label,
            "index": i,
            "name": (e.key or "unnamed")[:160],
            "count": e.count,
            "self_us": float(e.self_cpu_time_total),
        }
        for i, e in enumerate(found[:MOST_CALLS])
    ]

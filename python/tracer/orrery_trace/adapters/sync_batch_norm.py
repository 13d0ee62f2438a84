"""`SyncBatchNorm`: its operators have no rule for fake tensors. Tried on 2.13."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from orrery_trace.groups import Patches
from orrery_trace.recorder import Recorder

MODULE = "torch.nn.modules._functions"
REASON = "its operators have no Meta kernel, and it drops ranks without samples by their counts"


def _statistic(like: torch.Tensor) -> torch.Tensor:
    return like.new_empty(like.shape[1], dtype=torch.float32)


def _reduced(_: Any, x: torch.Tensor, mean: Any, invstd: Any, weight: Any, *wanted: bool) -> Any:
    sums, weights = wanted[0], wanted[1:]
    of_sums = [_statistic(x) if sums else x.new_empty(0) for _ in range(2)]
    dtype = x.dtype if weight is None else weight.dtype
    return (*of_sums, *(x.new_empty(x.shape[1] if w else 0, dtype=dtype) for w in weights))


SHAPES = {
    "batch_norm_stats": lambda x, *_: (_statistic(x), _statistic(x)),
    "batch_norm_gather_stats_with_counts": lambda x, *_: (_statistic(x), _statistic(x)),
    "batch_norm_elemt": lambda x, *_: torch.empty_like(x),
    "batch_norm_backward_reduce": _reduced,
    "batch_norm_backward_elemt": lambda _, x, *__: torch.empty_like(x),
}
_libraries: list[torch.library.Library] = []


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Gives the operators their shapes; every rank has samples, as within a captured graph."""
    if not _libraries:
        _libraries.append(torch.library.Library("aten", "IMPL"))
        known = torch._C._dispatch_has_kernel_for_dispatch_key
        for name, shapes in SHAPES.items():
            if not known(f"aten::{name}", "Meta"):
                _libraries[0].impl(name, shapes, "Meta")
    forward = module.SyncBatchNorm.forward

    def all_have_samples(*args: Any) -> Any:
        recorder.assume("SyncBatchNorm: every rank has samples")
        capturing = torch.cuda.is_current_stream_capturing
        torch.cuda.is_current_stream_capturing = lambda: True
        try:
            return forward(*args)
        finally:
            torch.cuda.is_current_stream_capturing = capturing

    patches.replace(module.SyncBatchNorm, "forward", staticmethod(all_have_samples))

"""DTensor: its questions about shapes are no work, and where shards lie is known by value."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from orrery_trace.groups import Patches
from orrery_trace.recorder import Recorder
from orrery_trace.releases import TENSORS

MODULE = f"{TENSORS}._sharding_prop"
REASON = "DTensor runs each op once more on tensors of global shape, only to learn the shape"
METHODS = ("_propagate_tensor_meta_non_cached", "propagate_op_sharding_non_cached")


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Mutes the recorder while a shape is looked up."""
    kind = module.ShardingPropagator
    for method in METHODS:
        original = getattr(kind, method, None)
        if original is None:
            continue

        def muted(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
            with recorder.mute():
                return _original(*args, **kwargs)

        patches.replace(kind, method, muted)
    _strided_shards(patches)


def _strided_shards(patches: Patches) -> None:
    """FSDP over tensor parallelism finds its part of a tensor in a tensor of indices."""
    from torch.utils._python_dispatch import _disable_current_modes

    kind = getattr(importlib.import_module(f"{TENSORS}.placement_types"), "_StridedShard", None)
    if kind is None:  # before 2.5
        return
    for method in ("_local_shard_size_and_offset", "local_shard_size_and_offset"):
        original = getattr(kind, method, None)
        if original is None:
            continue

        def real(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
            with _disable_current_modes():
                return _original(*args, **kwargs)

        patches.replace(kind, method, real)

"""DTensor: its questions about shapes are no work."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from orrery_trace.groups import Patches
from orrery_trace.recorder import Recorder

MODULE = "torch.distributed.tensor._sharding_prop"
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

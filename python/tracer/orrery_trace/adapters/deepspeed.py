"""DeepSpeed's ZeRO-1, 2 and 3 on fake tensors. Tried on 0.19.8."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from orrery_trace.groups import Patches
from orrery_trace.imports import when_imported
from orrery_trace.recorder import Recorder

MODULE = "deepspeed"
REASON = "ZeRO-3 compares its order of parameters with other ranks' by value"


def before() -> None:
    """DeepSpeed takes CUDA only where it finds NVIDIA's management library; this says it."""
    os.environ.setdefault("DS_ACCELERATOR", "cuda")


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Patches the parts as they are imported."""

    def same_order(part: ModuleType) -> None:
        patches.replace(part, "assert_ints_same_as_other_ranks", lambda *_: None)

    when_imported("deepspeed.runtime.zero.partitioned_param_coordinator", same_order)
    when_imported("deepspeed.runtime.engine", lambda part: _engine(part, recorder, patches))


def _engine(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Casts, clipping and the gather of parameters belong to the optimizer's pass."""
    where = recorder.where
    step = module.DeepSpeedEngine._take_model_step

    def take(self: Any, *args: Any, **kwargs: Any) -> Any:
        before, where.part = where.part, "optimizer"
        try:
            return step(self, *args, **kwargs)
        finally:
            where.part = before

    patches.replace(module.DeepSpeedEngine, "_take_model_step", take)

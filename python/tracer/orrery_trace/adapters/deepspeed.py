"""DeepSpeed's ZeRO-1, 2 and 3, and its own Adam, on fake tensors. Tried on 0.19.8."""

from __future__ import annotations

import os
from types import ModuleType, SimpleNamespace
from typing import Any

from orrery_trace.groups import Patches
from orrery_trace.imports import when_imported
from orrery_trace.recorder import Recorder

MODULE = "deepspeed"
REASON = "ZeRO-3 compares parameters with other ranks' by value; Adam is compiled by nvcc"


def before() -> None:
    """DeepSpeed takes CUDA only where it finds NVIDIA's management library; this says it."""
    os.environ.setdefault("DS_ACCELERATOR", "cuda")


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Patches the parts as they are imported."""

    def same_order(part: ModuleType) -> None:
        patches.replace(part, "assert_ints_same_as_other_ranks", lambda *_: None)

    when_imported("deepspeed.runtime.zero.partitioned_param_coordinator", same_order)
    when_imported("deepspeed.ops.adam.fused_adam", lambda part: _adam(part, recorder, patches))
    when_imported("deepspeed.ops.adam.cpu_adam", lambda part: _cpu_adam(part, recorder, patches))
    when_imported("deepspeed.runtime.engine", lambda part: _engine(part, recorder, patches))


def _adam(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Its kernel, which DeepSpeed compiles with nvcc on first use, is recorded as PyTorch's."""

    def kernel(_: int, __: Any, lists: list[list[Any]], *___: Any) -> None:
        gradients, *changed = lists
        every = [tensor for held in changed for tensor in held]
        recorder.fused("aten::_fused_adamw_", [*gradients, *every], every)

    built = SimpleNamespace(load=lambda: SimpleNamespace(multi_tensor_adam=kernel))
    patches.replace(module, "FusedAdamBuilder", lambda: built)


def _cpu_adam(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Its C++ works on memory, which a fake tensor has not."""

    def update(*_: Any, **__: Any) -> None:
        recorder.assume("DeepSpeed's Adam on the CPU takes no time")

    nothing = {"create_adam": lambda *_: None, "destroy_adam": lambda *_: None}
    built = SimpleNamespace(load=lambda: SimpleNamespace(adam_update=update, **nothing))
    patches.replace(module, "CPUAdamBuilder", lambda: built)


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

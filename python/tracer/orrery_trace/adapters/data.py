"""Data loading and compilation, which a trace leaves out."""

from __future__ import annotations

import functools
from types import FunctionType, ModuleType
from typing import Any

from orrery_trace import fused
from orrery_trace.groups import Patches
from orrery_trace.recorder import Recorder

MODULE = "torch.utils.data"
REASON = "fake tensors cannot cross to worker processes, and compiled code is not traced"


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Loads in this process; of what is compiled, element-wise functions alone are fused."""
    import torch

    construct = module.DataLoader.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("num_workers"):
            kwargs["num_workers"] = 0
            for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context"):
                kwargs.pop(name, None)
            recorder.assume("DataLoader works in this process, without workers")
        construct(self, *args, **kwargs)

    def compile_nothing(model: Any = None, *_: Any, **__: Any) -> Any:
        if getattr(model, "__name__", "") == "create_block_mask":
            return mask_of_one_kernel(model)
        if model is None:
            return compile_nothing
        if isinstance(model, FunctionType):
            return fused.compiled(model, recorder)
        recorder.assume("torch.compile is left out: operators are recorded unfused")
        return model

    def mask_of_one_kernel(make: Any) -> Any:
        @functools.wraps(make)
        def call(*args: Any, **kwargs: Any) -> Any:
            recorder.assume("create_block_mask, compiled, takes no time and no memory between")
            with recorder.mute():
                return make(*args, **kwargs)

        return call

    def compile_module(self: Any, *_: Any, **__: Any) -> None:
        recorder.assume("torch.compile is left out: operators are recorded unfused")

    patches.replace(module.DataLoader, "__init__", init)
    patches.replace(torch, "compile", compile_nothing)
    patches.replace(torch.nn.Module, "compile", compile_module)

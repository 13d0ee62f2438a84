"""FSDP2 runs unpatched; the storages that it frees and refills must be seen."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from orrery_trace.groups import Patches
from orrery_trace.recorder import Recorder

MODULE = "torch"
REASON = "UntypedStorage.resize_ is no dispatched op, and FSDP2 frees parameters by it"


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Tells the recorder when a storage changes its size."""
    resize = module.UntypedStorage.resize_

    def resize_(self: Any, size: int) -> Any:
        result = resize(self, size)
        recorder.resized(self)
        return result

    patches.replace(module.UntypedStorage, "resize_", resize_)

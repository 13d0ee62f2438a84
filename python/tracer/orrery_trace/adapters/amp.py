"""Mixed precision with a scaled loss: `torch.amp.GradScaler` and those derived from it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from orrery_trace.groups import Patches
from orrery_trace.recorder import Recorder

MODULE = "torch.amp.grad_scaler"
REASON = "a flag read from a fake tensor says that gradients overflowed, and no optimizer steps"


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """The flag is read, as on a GPU, and says that no gradient overflowed."""

    def step(self: Any, optimizer: Any, state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        with recorder.answers(0.0):
            overflowed = sum(flag.item() for flag in state["found_inf_per_device"].values())
        return None if overflowed else optimizer.step(*args, **kwargs)

    patches.replace(module.GradScaler, "_maybe_opt_step", step)

"""flex_attention: what it asks of its score function is no work of the device."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from orrery_trace.groups import Patches
from orrery_trace.recorder import Recorder

MODULE = "torch._higher_order_ops.flex_attention"
REASON = "the derivative of its score function is made by running it, on tensors of one number"


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Mutes the recorder while the derivative is made."""
    create = module.create_fw_bw_graph

    @functools.wraps(create)
    def muted(*args: Any, **kwargs: Any) -> Any:
        with recorder.mute():
            return create(*args, **kwargs)

    patches.replace(module, "create_fw_bw_graph", muted)

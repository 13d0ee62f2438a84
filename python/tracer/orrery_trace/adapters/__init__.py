"""Patches that frameworks need, one file a framework; each runs when its framework is imported.

An adapter is a module with `MODULE`, the module whose import calls it, `REASON`, one sentence, and
`install(module, recorder, patches)`; `before()` runs before that import. A test for each shows
that it is still needed.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from orrery_trace.adapters import (
    amp,
    checkpoints,
    data,
    ddp,
    deepspeed,
    device_mesh,
    distributions,
    dtensor,
    flex_attention,
    fsdp,
    fsdp1,
    generators,
    host_values,
    megatron,
    pipelining,
    sync_batch_norm,
    torchtitan,
    transformers,
)
from orrery_trace.imports import before_import, when_imported

if TYPE_CHECKING:
    from orrery_trace.groups import Patches
    from orrery_trace.recorder import Recorder

ADAPTERS = (
    data,
    host_values,
    generators,
    checkpoints,
    amp,
    distributions,
    sync_batch_norm,
    fsdp,
    fsdp1,
    device_mesh,
    dtensor,
    flex_attention,
    ddp,
    pipelining,
    megatron,
    deepspeed,
    transformers,
    torchtitan,
)


def install(recorder: Recorder, patches: Patches) -> None:
    """Installs what is imported already, and the rest when it is."""
    for adapter in ADAPTERS:

        def call(module: ModuleType, adapter: ModuleType = adapter) -> None:
            adapter.install(module, recorder, patches)

        if hasattr(adapter, "before"):
            before_import(adapter.MODULE, adapter.before)
        when_imported(adapter.MODULE, call)

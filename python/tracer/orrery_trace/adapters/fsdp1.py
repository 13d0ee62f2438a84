"""FSDP1 (FullyShardedDataParallel): the use of a storage on another stream."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from orrery_trace.groups import Patches
from orrery_trace.recorder import Recorder

MODULE = "torch.distributed.fsdp._common_utils"
REASON = "it calls record_stream past the dispatcher, and a CPU build has no such op for cuda"


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Records the use, wherever the function is held."""

    def record_stream(tensor: Any, stream: Any) -> None:
        recorder.add("use", storage=recorder.number_of(tensor), stream=int(stream.stream_id))

    patches.everywhere(module._no_dispatch_record_stream, record_stream)

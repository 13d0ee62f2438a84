"""Checkpoints: what has no values is not written, so that no file of the user's is replaced."""

from __future__ import annotations

from concurrent.futures import Future
from types import ModuleType
from typing import Any

from orrery_trace.groups import Patches
from orrery_trace.imports import when_imported
from orrery_trace.recorder import Recorder

MODULE = "torch"
REASON = "a checkpoint of fake tensors holds nothing, and ranks that say the same share no tensor"


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Saving does nothing, by PyTorch, safetensors or transformers."""

    def left_out(*_: Any, **__: Any) -> None:
        recorder.assume("the checkpoint is not written, and takes no time")

    def left_out_later(*_: Any, **__: Any) -> Future[None]:
        left_out()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def distributed(part: ModuleType) -> None:
        for name in ("save", "save_state_dict"):
            patches.everywhere(getattr(part, name), left_out)
        patches.everywhere(part.async_save, left_out_later)

    def safetensors(part: ModuleType) -> None:
        patches.replace(part, "save_file", left_out)

    def transformers(part: ModuleType) -> None:
        patches.replace(part.PreTrainedModel, "save_pretrained", left_out)

    patches.replace(module, "save", left_out)
    when_imported("torch.distributed.checkpoint", distributed)
    when_imported("safetensors.torch", safetensors)
    when_imported("transformers.modeling_utils", transformers)

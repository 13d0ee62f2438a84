"""torch.distributed.pipelining: shapes without a vote; each action of the schedule is marked."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from orrery_trace.errors import TraceError
from orrery_trace.groups import Patches
from orrery_trace.recorder import Recorder

MODULE = "torch.distributed.pipelining.schedules"
REASON = (
    "stages vote on shape inference by message (2.13) and read the answer, which a fake has not"
)


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Settles the vote, marks actions, and lets a schedule's step open the training step."""
    from torch.distributed.pipelining import stage as stages

    modes: Any = getattr(module, "InferenceMode", None)

    def settle(self: Any, stages: list[Any], *_: Any) -> None:
        for stage in stages:
            meta = getattr(stage, "_user_meta", None)
            if meta is not None and modes.needs_dynamic(meta, self._has_backward):
                raise TraceError(
                    f"pipeline stage {stage.stage_index} sends its shapes at run time, which a "
                    "single process cannot: give PipelineStage input_args and output_args (with "
                    "requires_grad on what takes a gradient)"
                )
            stage._inference_mode = modes.STATIC

    if modes is not None:
        patches.replace(module._PipelineSchedule, "_warmup_p2p", settle)

    where = recorder.where

    def marked(method: str, letter: str, part: str) -> None:
        original = getattr(stages._PipelineStageBase, method, None)
        if original is None:  # the weights' part, before 2.5
            return

        def call(self: Any, chunk: int, *args: Any, **kwargs: Any) -> Any:
            kind, now = letter, part
            if method == "backward_one_chunk" and not kwargs.get("full_backward", True):
                kind, now = "I", "backward_input"
            before = where.part, where.micro_batch
            where.part, where.micro_batch = now, chunk
            recorder.mark(f"{self.stage_index}{kind}{chunk}")
            try:
                return original(self, chunk, *args, **kwargs)
            finally:
                where.part, where.micro_batch = before

        patches.replace(stages._PipelineStageBase, method, call)

    marked("forward_one_chunk", "F", "forward")
    marked("backward_one_chunk", "B", "backward")
    marked("backward_weight_one_chunk", "W", "backward_weight")

    for kind in (module.PipelineScheduleSingle, module.PipelineScheduleMulti):
        step = kind.step

        def opened(self: Any, *args: Any, _step: Any = step, **kwargs: Any) -> Any:
            where.opens_step()
            return _step(self, *args, **kwargs)

        patches.replace(kind, "step", opened)

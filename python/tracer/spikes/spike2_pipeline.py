"""Spike 2b: torch pipelining under the fake process group, one rank at a time.

    python spike2_pipeline.py [--schedule 1F1B|ZBVZeroBubble|...] [--rank R] [--json]

Four ranks, eight micro-batches, fake cuda with the no-device guard. Prints for each rank the sends,
receives, waits and NCCL groups, beside a hand count, and the actions in the order in which they
ran beside the schedule's own list.
"""

from __future__ import annotations

import sys
from typing import Any

import common

common.start("cuda")

import torch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.distributed.pipelining import PipelineStage, schedules  # noqa: E402

import llama  # noqa: E402
from record import Recorder, Trace  # noqa: E402

PIPELINE, MICRO = 4, 8
ALL = ("1F1B", "GPipe", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
V_SHAPED = ("ZBVZeroBubble", "DualPipeV")


def stages_of(schedule: str, rank: int) -> list[int]:
    """Which stages a rank holds: one, two in a loop, or two in a V."""
    if schedule in ("1F1B", "GPipe"):
        return [rank]
    second = 2 * PIPELINE - 1 - rank if schedule in V_SHAPED else rank + PIPELINE
    return [rank, second]


def static_metadata() -> None:
    """Skips the vote on shape inference: it reads a received number, and a fake one has no value.

    PyTorch 2.13 asks every stage by send and receive; the shapes given by hand are complete.
    """
    modes = getattr(schedules, "InferenceMode", None)
    if modes is None:
        return  # before the vote existed (2.11), shapes given by hand were enough

    def settle(self: Any, stages: list[Any], *_: Any) -> None:
        for stage in stages:
            stage._inference_mode = modes.STATIC

    schedules._PipelineSchedule._warmup_p2p = settle


def build_stage(index: int, total: int, config: llama.Config) -> PipelineStage:
    """One stage with its shapes given by hand."""
    first, last = index == 0, index == total - 1
    module = llama.Llama(config, "cuda", first, last)
    tokens = torch.zeros(1, config.seq, dtype=torch.int64)
    # requires_grad says that a gradient comes back; without it the backward receive is left out.
    hidden = torch.zeros(1, config.seq, config.hidden, requires_grad=True)
    out = torch.zeros(1, config.seq, config.vocab, requires_grad=True) if last else hidden
    return PipelineStage(
        module,
        index,
        total,
        torch.device("cuda:0"),
        input_args=(tokens if first else hidden,),
        output_args=(out,),
    )


def watch(stage: PipelineStage, recorder: Recorder) -> None:
    """Marks every action of a stage: F(orward), B(ackward), I(nput) and W(eight) gradients."""

    def marked(method: str, letter: str) -> None:
        original = getattr(stage, method)

        def call(chunk: int, *args: Any, **kwargs: Any) -> Any:
            kind = letter
            if method == "backward_one_chunk" and not kwargs.get("full_backward", True):
                kind = "I"
            recorder.mark(f"{stage.stage_index}{kind}{chunk}")
            return original(chunk, *args, **kwargs)

        setattr(stage, method, call)

    marked("forward_one_chunk", "F")
    marked("backward_one_chunk", "B")
    marked("backward_weight_one_chunk", "W")


def trace(name: str, rank: int, vote: bool = False) -> tuple[Trace, Any]:
    """Second step of one rank under one schedule (the first also sets the stages up)."""
    common.fake_job(rank, PIPELINE)
    if not vote:
        static_metadata()
    config = llama.SMALL.with_layers(1)
    torch.set_default_dtype(torch.bfloat16)
    held = stages_of(name, rank)
    total = PIPELINE * len(held)
    with FakeTensorMode(), torch.device("cuda"):
        stages = [build_stage(i, total, config) for i in held]
        kind = schedules.get_schedule_class(name)
        argument: Any = stages[0] if len(stages) == 1 else stages
        schedule = kind(argument, n_microbatches=MICRO, loss_fn=llama.loss_of)
        tokens = torch.zeros(MICRO, config.seq, dtype=torch.int64)
        last = total - 1 in held
        recorder = Recorder()
        for step in range(2):
            recorder = Recorder(memory=False)
            if step == 1:
                for stage in stages:
                    watch(stage, recorder)
            with recorder:
                args = (tokens,) if 0 in held else ()
                schedule.step(*args, target=tokens if last else None)
    return recorder.trace, schedule


def hand_count(name: str, rank: int) -> int:
    """Sends of one rank: a message leaves for every micro-batch at each border crossed.

    Forward out of every stage but the last and backward out of every stage but the first, unless
    the neighbour stage lies on the same rank (the turn of a V). Receives are the same number.
    """
    held = stages_of(name, rank)
    total = PIPELINE * len(held)
    borders = [(i, j) for i in held for j in (i - 1, i + 1) if 0 <= j < total and j not in held]
    return MICRO * len(borders)


def report(name: str) -> list[dict[str, Any]]:
    """One line per rank."""
    lines = []
    one = "--rank" in sys.argv
    ranks = [int(sys.argv[sys.argv.index("--rank") + 1])] if one else range(PIPELINE)
    for rank in ranks:
        recorded, schedule = trace(name, rank)
        sends = [e for e in recorded.of("comm") if e.name == "send"]
        receives = [e for e in recorded.of("comm") if e.name == "recv"]
        actions = [e.name for e in recorded.of("mark")]
        order = getattr(schedule, "pipeline_order", None)
        planned = [str(a) for a in order[rank] if a is not None] if order else actions
        planned = [a for a in planned if "REDUCE" not in a and "RESHARD" not in a]
        lines.append(
            {
                "schedule": name,
                "rank": rank,
                "sends": len(sends),
                "receives": len(receives),
                "by_hand": hand_count(name, rank),
                "waits": len([e for e in recorded.of("wait") if e.number >= 0]),
                "unmatched_waits": len([e for e in recorded.of("wait") if e.number < 0]),
                "groups": len([e for e in recorded.of("group") if e.name == "end"]),
                "tags": sorted({e.tag for e in sends + receives}),
                "actions": len(actions),
                "as_planned": actions == planned,
                "first_actions": " ".join(actions[:10]),
            }
        )
    return lines


def main() -> None:
    """All schedules, or one; `--vote` shows what the unpatched vote does."""
    if "--vote" in sys.argv:
        trace("1F1B", 1, vote=True)
        return
    chosen = [sys.argv[sys.argv.index("--schedule") + 1]] if "--schedule" in sys.argv else ALL
    lines: list[Any] = []
    for name in chosen:
        try:
            lines += report(name)
        except Exception as error:  # noqa: BLE001 - the error is the finding
            lines.append({"schedule": name, "error": common.brief(error)})
            if "--raise" in sys.argv:
                raise
    common.emit({"torch": torch.__version__, "pipeline": lines})


if __name__ == "__main__":
    main()

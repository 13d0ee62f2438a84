"""torch.distributed.pipelining, any of its schedules; the number of micro-batches is 8 or said.

orrery-trace --world-size 4 --rank 0,1,2,3 -- python examples/pipeline.py ZBVZeroBubble
"""

import inspect
import sys

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, schedules

import llama

MICRO_BATCHES = int(sys.argv[2]) if len(sys.argv) > 2 else 8
CONFIG = llama.SMALL.with_layers(1)
V_SHAPED = ("ZBVZeroBubble", "DualPipeV")


def stages_of(schedule: str, rank: int, ranks: int) -> list[int]:
    """Which stages a rank holds: one, two in a loop, or two in a V."""
    if schedule in ("1F1B", "GPipe"):
        return [rank]
    return [rank, 2 * ranks - 1 - rank if schedule in V_SHAPED else rank + ranks]


def build_stage(index: int, total: int) -> PipelineStage:
    """One stage with its shapes given by hand."""
    first, last = index == 0, index == total - 1
    module = llama.Llama(CONFIG, "cuda", first, last).cuda()
    tokens = torch.zeros(1, CONFIG.seq, dtype=torch.int64, device="cuda")
    # requires_grad says that a gradient comes back; without it the backward receive is left out.
    hidden = torch.zeros(1, CONFIG.seq, CONFIG.hidden, device="cuda", requires_grad=True)
    out = torch.zeros(1, CONFIG.seq, CONFIG.vocab, device="cuda", requires_grad=True)
    return PipelineStage(
        module, index, total, torch.device("cuda"),
        input_args=(tokens if first else hidden,), output_args=(out if last else hidden,),
    )  # fmt: skip


def main() -> None:
    """Trains three steps."""
    name = sys.argv[1] if len(sys.argv) > 1 else "1F1B"
    dist.init_process_group("nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.set_default_dtype(torch.bfloat16)
    held = stages_of(name, rank, ranks)
    total = ranks * len(held)
    stages = [build_stage(i, total) for i in held]
    kind = getattr(schedules, f"Schedule{name}")
    more = {}
    if "stage_index_to_group_rank" in inspect.signature(kind).parameters:  # 2.5 and 2.6
        every = [(stage, r) for r in range(ranks) for stage in stages_of(name, r, ranks)]
        more["stage_index_to_group_rank"] = dict(every)
    schedule = kind(
        stages[0] if len(stages) == 1 else stages, n_microbatches=MICRO_BATCHES,
        loss_fn=llama.loss_of, **more,
    )  # fmt: skip
    parameters = [p for stage in stages for p in stage.submod.parameters()]
    optimizer = torch.optim.AdamW(parameters, fused=True)
    tokens = torch.zeros(MICRO_BATCHES, CONFIG.seq, dtype=torch.int64, device="cuda")
    for _ in range(3):
        schedule.step(
            *((tokens,) if 0 in held else ()), target=tokens if total - 1 in held else None
        )
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

"""A 1F1B pipeline of two stages whose replicas share gradients by FSDP2: two programs in all.

orrery-trace --world-size 16 --mesh pp=2,dp=8 -- python examples/hybrid.py
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import llama
from names import fully_shard

MICRO_BATCHES, STAGES = 4, 2
CONFIG = llama.SMALL


def main() -> None:
    """Trains three steps."""
    dist.init_process_group("nccl")
    replicas = dist.get_world_size() // STAGES
    mesh = init_device_mesh("cuda", (STAGES, replicas), mesh_dim_names=("pp", "dp"))
    torch.set_default_dtype(torch.bfloat16)
    stage = mesh["pp"].get_local_rank()
    first, last = stage == 0, stage == STAGES - 1
    module = llama.Llama(CONFIG.with_layers(CONFIG.layers // STAGES), "cuda", first, last).cuda()
    for layer in module.layers:
        fully_shard(layer, mesh=mesh["dp"], reshard_after_forward=False)
    fully_shard(module, mesh=mesh["dp"], reshard_after_forward=False)
    tokens = torch.zeros(1, CONFIG.seq, dtype=torch.int64, device="cuda")
    hidden = torch.zeros(1, CONFIG.seq, CONFIG.hidden, device="cuda", requires_grad=True)
    out = torch.zeros(1, CONFIG.seq, CONFIG.vocab, device="cuda", requires_grad=True)
    part = PipelineStage(
        module, stage, STAGES, torch.device("cuda:0"), group=mesh.get_group("pp"),
        input_args=(tokens if first else hidden,), output_args=(out if last else hidden,),
    )  # fmt: skip
    schedule = Schedule1F1B(part, n_microbatches=MICRO_BATCHES, loss_fn=llama.loss_of)
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)
    batch = torch.zeros(MICRO_BATCHES, CONFIG.seq, dtype=torch.int64, device="cuda")
    for _ in range(3):
        schedule.step(*((batch,) if first else ()), target=batch if last else None)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

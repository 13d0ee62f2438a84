"""PyTorch's context parallelism: each rank holds a part of the sequence; FSDP2 shards the model.

orrery-trace --world-size 4 -- python examples/context_parallel.py
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel

import llama
from names import fully_shard

CONFIG = llama.SMALL


def main() -> None:
    """Trains three steps."""
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("cp",))
    torch.set_default_dtype(torch.bfloat16)
    model = llama.Llama(CONFIG, "cuda").cuda()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.zeros(1, CONFIG.seq, dtype=torch.int64, device="cuda")
    for _ in range(3):
        with context_parallel(mesh, buffers=(tokens, model.rope), buffer_seq_dims=(1, 1)):
            llama.loss_of(model(tokens), tokens).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

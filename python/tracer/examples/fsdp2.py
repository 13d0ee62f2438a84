"""Sharded data parallelism with FSDP2's fully_shard.

orrery-trace --world-size 8 --rank 0 -- python examples/fsdp2.py
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import llama
from names import fully_shard

CONFIG = llama.Config(kv_heads=8)


def main() -> None:
    """Trains three steps."""
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    torch.set_default_dtype(torch.bfloat16)
    model = llama.Llama(CONFIG, "cuda").cuda()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(3):
        tokens = torch.randint(0, CONFIG.vocab, (1, CONFIG.seq), device="cuda")
        loss = llama.loss_of(model(tokens), tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

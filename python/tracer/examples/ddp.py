"""Data parallelism with DistributedDataParallel; with --amp parameters are fp32 under autocast.

orrery-trace --world-size 8 --rank 0 -- python examples/ddp.py
"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import llama

CONFIG = llama.Config(kv_heads=8)


def main() -> None:
    """Trains four steps."""
    dist.init_process_group("nccl")
    amp = "--amp" in sys.argv
    model = llama.Llama(CONFIG, "cuda").to("cuda", torch.float32 if amp else torch.bfloat16)
    model = DistributedDataParallel(model, bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(4):
        tokens = torch.randint(0, CONFIG.vocab, (1, CONFIG.seq), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
            loss = llama.loss_of(model(tokens), tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""DTensor tensor parallelism; with --sequence norms and residuals are sharded by token.

orrery-trace --world-size 8 --rank 0 -- python examples/tensor_parallel.py --sequence
"""

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import llama
from names import Replicate, Shard

CONFIG = llama.Config(kv_heads=8)


def layer_plan(sequence: bool) -> dict[str, Any]:
    """How the modules of one layer are sharded."""
    outer = Shard(1) if sequence else Replicate()
    plan: dict[str, Any] = {f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")}
    plan |= {f"feed_forward.{name}": ColwiseParallel() for name in ("w1", "w3")}
    plan |= {
        "attention.wo": RowwiseParallel(output_layouts=outer),
        "feed_forward.w2": RowwiseParallel(output_layouts=outer),
    }
    if sequence:
        plan |= {
            "attention_norm": SequenceParallel(),
            "ffn_norm": SequenceParallel(),
            "attention": PrepareModuleInput(
                input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
            ),
            "feed_forward": PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            ),
        }
    return plan


def parallelize(model: nn.Module, mesh: DeviceMesh, sequence: bool) -> nn.Module:
    """The whole model."""
    outer = Shard(1) if sequence else Replicate()
    for layer in model.layers:
        parallelize_module(layer, mesh, layer_plan(sequence))
    ends: dict[str, Any] = {}
    if model.embed is not None:
        ends["embed"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=outer)
    if model.head is not None:
        ends["head"] = ColwiseParallel(input_layouts=outer, output_layouts=Replicate())
        if sequence:
            ends["norm"] = SequenceParallel()
    return parallelize_module(model, mesh, ends) if ends else model


def main() -> None:
    """Trains three steps."""
    sequence = "--sequence" in sys.argv
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    torch.set_default_dtype(torch.bfloat16)
    model = parallelize(llama.Llama(CONFIG, "cuda").cuda(), mesh, sequence)
    # Without sequence parallelism norm weights are no DTensors, and no kernel of many tensors mixes
    # them.
    optimizer: torch.optim.Optimizer = (
        torch.optim.AdamW(model.parameters(), fused=True)
        if sequence
        else torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    )
    for _ in range(3):
        tokens = torch.randint(0, CONFIG.vocab, (1, CONFIG.seq), device="cuda")
        loss = llama.loss_of(model(tokens), tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

"""Llama-3-70B as a 1F1B pipeline of four stages, tensor-parallel over eight by DTensor.

orrery-trace --world-size 32 --mesh pp=4,tp=8 -- python examples/llama_70b.py
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import llama
import tensor_parallel

STAGES, TP, MICRO_BATCHES = 4, 8, 8
CONFIG = llama.LLAMA_70B


def main() -> None:
    """Trains three steps."""
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (STAGES, TP), mesh_dim_names=("pp", "tp"))
    torch.set_default_dtype(torch.bfloat16)
    stage = mesh["pp"].get_local_rank()
    first, last = stage == 0, stage == STAGES - 1
    with torch.device("meta"):
        whole = llama.Llama(CONFIG.with_layers(CONFIG.layers // STAGES), "meta", first, last)
    module = tensor_parallel.parallelize(whole, mesh["tp"], sequence=False)
    module.to_empty(device="cuda")
    module.rope = llama.rope_table(CONFIG.seq, CONFIG.head_dim, "cuda")
    tokens = torch.zeros(1, CONFIG.seq, dtype=torch.int64, device="cuda")
    hidden = torch.zeros(1, CONFIG.seq, CONFIG.hidden, device="cuda", requires_grad=True)
    out = torch.zeros(1, CONFIG.seq, CONFIG.vocab, device="cuda", requires_grad=True)
    part = PipelineStage(
        module, stage, STAGES, torch.device("cuda:0"), group=mesh.get_group("pp"),
        input_args=(tokens if first else hidden,), output_args=(out if last else hidden,),
    )  # fmt: skip
    schedule = Schedule1F1B(part, n_microbatches=MICRO_BATCHES, loss_fn=llama.loss_of)
    # A list of plain tensors (norms) and DTensors cannot be one multi-tensor call.
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, foreach=False)
    batch = torch.zeros(MICRO_BATCHES, CONFIG.seq, dtype=torch.int64, device="cuda")
    for _ in range(3):
        schedule.step(*((batch,) if first else ()), target=batch if last else None)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

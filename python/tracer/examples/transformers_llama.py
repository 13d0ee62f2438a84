"""A Llama of Hugging Face's transformers in a loop as its Trainer writes it, under DDP.

pip install transformers==5.24.0
orrery-trace --world-size 4 -- python examples/transformers_llama.py
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, get_linear_schedule_with_warmup

SEQ, ACCUMULATE = 128, 2


def main() -> None:
    """Trains four steps of two micro-batches."""
    dist.init_process_group("nccl")
    config = LlamaConfig(
        hidden_size=256, intermediate_size=688, vocab_size=1024, num_hidden_layers=2,
        num_attention_heads=8, num_key_value_heads=4, attn_implementation="sdpa",
    )  # fmt: skip
    model = LlamaForCausalLM(config).to("cuda", torch.bfloat16)
    model.gradient_checkpointing_enable()
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    schedule = get_linear_schedule_with_warmup(optimizer, 10, 100)
    texts = [{"input_ids": torch.zeros(SEQ, dtype=torch.int64)} for _ in range(64)]
    for i, batch in enumerate(DataLoader(texts, batch_size=1, num_workers=2, pin_memory=True)):
        tokens = batch["input_ids"].to("cuda", non_blocking=True)
        last = i % ACCUMULATE == ACCUMULATE - 1
        wrapped.require_backward_grad_sync = last
        loss = wrapped(input_ids=tokens, labels=tokens).loss / ACCUMULATE
        loss.backward()
        if last:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()

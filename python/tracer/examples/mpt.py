"""MPT under FSDP1, as LLM Foundry wraps it: a unit a layer, checkpoints, clipping, AdamW.

orrery-trace --world-size 8 -- python examples/mpt.py --layers 24 --hidden 2048 --micro-batch 7
"""

import argparse

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCAB = 50368


class Block(nn.Module):
    """Pre-norm, no biases; attention with ALiBi would cost the same."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = (nn.LayerNorm(hidden, bias=False) for _ in range(2))
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.up = nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, seq, hidden] to the same."""
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for t in self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class Mpt(nn.Module):
    """Tied embeddings."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.recompute = options.recompute
        self.embed = nn.Embedding(VOCAB, options.hidden)
        heads = options.heads or options.hidden // 128
        self.blocks = nn.ModuleList(Block(options.hidden, heads) for _ in range(options.layers))
        self.norm = nn.LayerNorm(options.hidden, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens to logits."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return functional.linear(self.norm(x), self.embed.weight)


def main() -> None:
    """Trains three steps."""
    p = argparse.ArgumentParser()
    for name, value in (("layers", 12), ("hidden", 768), ("heads", 0), ("seq", 2048),
                        ("micro-batch", 4), ("accumulate", 1)):  # fmt: skip
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--recompute", action="store_true")
    p.add_argument("--reduce-fp32", action="store_true")
    options = p.parse_args()
    dist.init_process_group("nccl")
    bf16 = torch.bfloat16
    model = FullyShardedDataParallel(
        Mpt(options).cuda(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        mixed_precision=MixedPrecision(
            param_dtype=bf16, reduce_dtype=torch.float32 if options.reduce_fp32 else bf16
        ),
        limit_all_gathers=True,
        use_orig_params=False,
    )
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(3):
        for _ in range(options.accumulate):
            shape = (options.micro_batch, options.seq)
            tokens = torch.zeros(shape, dtype=torch.int64, device="cuda")
            logits = model(tokens).flatten(0, 1)
            loss = functional.cross_entropy(logits.float(), tokens.flatten())
            (loss / options.accumulate).backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

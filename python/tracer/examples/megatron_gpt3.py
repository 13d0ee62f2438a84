"""Megatron-Core: GPT-3 175B on 8,192 GPUs, TP8 PP8, or any other GPT that the arguments tell.

pip install --no-deps megatron-core==0.16.1
orrery-trace --world-size 8192 --rank all -- python examples/megatron_gpt3.py
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import optimizer as optimizers
from megatron.core import parallel_state
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn
from torch.nn import functional

import megatron_core

NUMBERS = {
    "layers": 96, "hidden": 12288, "heads": 96, "seq": 2048, "vocab": 51200, "batch": 1536,
    "micro_batch": 1, "tp": 8, "pp": 8, "chunks": 1,
}  # fmt: skip
SWITCHES = {
    "fp16": "weights and products in fp16, the loss scaled, instead of bf16",
    "fused": "fused kernels: Apex's softmax with mask and Adam, bias with GeLU, with dropout",
    "flash": "flash attention instead of products and softmax",
    "no_sequence_parallel": "",
    "no_sharding": "the optimizer's state is whole on each rank",
    "no_overlap": "gradients are reduced behind the last backward pass",
    "reduce_fp32": "gradients are summed in fp32",
}


class FusedAdam(torch.optim.AdamW):
    """In place of Apex's, which PyTorch's own fused one is alike: one pass over all tensors."""

    def __init__(self, params: Any, adam_w_mode: bool = True, **options: Any) -> None:
        super().__init__(params, fused=True, **options)


class FlashAttention(nn.Module):
    """What Transformer Engine takes in place of Megatron's own attention: a kernel of PyTorch."""

    def __init__(self, config: TransformerConfig, **_: Any) -> None:
        super().__init__()
        self.dropout = config.attention_dropout

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """[seq, batch, heads, channels] thrice to [seq, batch, heads * channels]."""
        q, k, v = (t.permute(1, 2, 0, 3) for t in (query, key, value))
        out = functional.scaled_dot_product_attention(q, k, v, None, self.dropout, is_causal=True)
        return out.permute(2, 0, 1, 3).flatten(-2)


def configuration(options: argparse.Namespace) -> TransformerConfig:
    """The transformer of these arguments."""
    precision = torch.float16 if options.fp16 else torch.bfloat16
    more: dict[str, Any] = {}
    if options.recompute != "none":
        more["recompute_granularity"] = options.recompute
    if options.recompute == "full":
        more |= {"recompute_method": "uniform", "recompute_num_layers": 1}
    if options.chunks > 1:
        more |= {"virtual_pipeline_model_parallel_size": options.chunks}
        more |= {"overlap_p2p_comm": True, "batch_p2p_comm": False}
    return TransformerConfig(
        num_layers=options.layers, hidden_size=options.hidden, num_attention_heads=options.heads,
        fp16=options.fp16, bf16=not options.fp16,
        params_dtype=precision, pipeline_dtype=precision,
        tensor_model_parallel_size=options.tp, pipeline_model_parallel_size=options.pp,
        sequence_parallel=options.tp > 1 and not options.no_sequence_parallel,
        hidden_dropout=options.dropout, attention_dropout=options.dropout,
        masked_softmax_fusion=options.fused, bias_activation_fusion=options.fused,
        bias_dropout_fusion=options.fused, **more,
    )  # fmt: skip


def main() -> None:
    """Trains three steps."""
    p = argparse.ArgumentParser(description=__doc__)
    for name, value in NUMBERS.items():
        p.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    for name, text in SWITCHES.items():
        p.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--recompute", choices=("none", "selective", "full"), default="selective")
    options = p.parse_args()
    dist.init_process_group("nccl")
    if options.fused:
        optimizers.Adam = FusedAdam
        optimizers.USING_PYTORCH_OPTIMIZER = False
    chunks = options.chunks
    parallel_state.initialize_model_parallel(options.tp, options.pp, chunks if chunks > 1 else None)
    models, optimizer = megatron_core.build(
        configuration(options), options.vocab, options.seq, chunks,
        attention=FlashAttention if options.flash else None,
        overlap=not options.no_overlap, sharded=not options.no_sharding,
        reduce_fp32=options.reduce_fp32,
        position_embedding_type="learned_absolute", share_embeddings_and_output_weights=True,
    )  # fmt: skip
    replicas = dist.get_world_size() // (options.tp * options.pp)
    micro_batches = options.batch // (replicas * options.micro_batch)
    megatron_core.train(models, optimizer, options.seq, micro_batches, options.micro_batch)


if __name__ == "__main__":
    main()

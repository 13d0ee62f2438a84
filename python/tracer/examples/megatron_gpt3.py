"""Megatron-Core: GPT-3 175B on 8,192 GPUs, TP8 PP8 DP128, its embedding shared by both ends.

pip install --no-deps megatron-core==0.16.1
orrery-trace --world-size 8192 --rank all -- python examples/megatron_gpt3.py
"""

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.transformer.transformer_config import TransformerConfig

import megatron_core

TP, PP = 8, 8
LAYERS, HIDDEN, HEADS, SEQ, VOCAB, BATCH = 96, 12288, 96, 2048, 51200, 1536


def main() -> None:
    """Trains three steps on a global batch of 1,536 sequences."""
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(TP, PP)
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS,
        bf16=True, params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16,
        tensor_model_parallel_size=TP, pipeline_model_parallel_size=PP, sequence_parallel=True,
        hidden_dropout=0.0, attention_dropout=0.0, recompute_granularity="selective",
    )  # fmt: skip
    models, optimizer = megatron_core.build(
        config, VOCAB, SEQ, position_embedding_type="learned_absolute",
        share_embeddings_and_output_weights=True,
    )  # fmt: skip
    replicas = dist.get_world_size() // (TP * PP)
    megatron_core.train(models, optimizer, SEQ, BATCH // replicas)


if __name__ == "__main__":
    main()

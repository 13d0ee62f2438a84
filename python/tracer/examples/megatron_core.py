"""Megatron-Core: a GPT with experts, TP2 PP2 EP2 DP2, sequence parallel, distributed optimizer.

pip install --no-deps megatron-core==0.16.1
orrery-trace --world-size 8 --mesh pp=2,dp=2,tp=2 -- python examples/megatron_core.py
"""

import sys
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig

TP, PP, EP = 2, 2, 2
LAYERS, HIDDEN, SEQ, MICRO_BATCHES, EXPERTS, TOPK, VOCAB = 4, 256, 128, 4, 4, 2, 1024


def configuration(dense: bool, chunks: int, context: int) -> TransformerConfig:
    """The transformer; dense, or with experts; `context` ranks share a sequence."""
    experts: dict[str, Any] = {} if dense else {
        "num_moe_experts": EXPERTS, "moe_router_topk": TOPK,
        "moe_token_dispatcher_type": "alltoall", "expert_model_parallel_size": EP,
        "expert_tensor_parallel_size": 1,
    }  # fmt: skip
    if chunks > 1:
        experts["virtual_pipeline_model_parallel_size"] = chunks
        experts |= {"overlap_p2p_comm": True, "batch_p2p_comm": False}
    return TransformerConfig(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=8, ffn_hidden_size=2 * HIDDEN,
        bf16=True, params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16,
        tensor_model_parallel_size=TP, pipeline_model_parallel_size=PP, sequence_parallel=True,
        context_parallel_size=context, add_bias_linear=False, gated_linear_unit=True,
        hidden_dropout=0.0, attention_dropout=0.0,
        **experts,
    )  # fmt: skip


def build(
    config: TransformerConfig, vocab: int, seq: int, chunks: int = 1,
    attention: type | None = None, overlap: bool = True, sharded: bool = True,
    reduce_fp32: bool = False, **model: Any,
) -> tuple[list[Any], Any]:  # fmt: skip
    """Wrapped model chunks and optimizer of this rank; `model` goes to GPTModel.

    `attention` takes the place of Megatron's own; `sharded` is its distributed optimizer.
    """
    model_parallel_cuda_manual_seed(1)
    spec = get_gpt_layer_local_spec(num_experts=config.num_moe_experts, moe_grouped_gemm=False)
    if attention is not None:
        spec.submodules.self_attention.submodules.core_attention = attention
    reduction = DistributedDataParallelConfig(
        overlap_grad_reduce=overlap, use_distributed_optimizer=sharded,
        grad_reduce_in_fp32=reduce_fp32,
    )  # fmt: skip
    models = []
    for chunk in range(chunks):
        at = {"vp_stage": chunk} if chunks > 1 else {}
        part = GPTModel(
            config, spec, vocab, seq,
            pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=chunks == 1, **at),
            post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=chunks == 1, **at),
            **at, **model,
        )  # fmt: skip
        part = part.cuda(torch.cuda.current_device()).to(config.params_dtype)
        models.append(DistributedDataParallel(config, reduction, part))
    options = OptimizerConfig(
        optimizer="adam", lr=1e-4, bf16=config.bf16, fp16=config.fp16,
        params_dtype=config.params_dtype, use_distributed_optimizer=sharded,
    )  # fmt: skip
    optimizer = get_megatron_optimizer(options, models)
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    no_sync = [part.no_sync for part in models]
    config.no_sync_func = no_sync if chunks > 1 else no_sync[0]
    # As Megatron-LM's own loop does (--no-align-grad-reduce leaves it out): stages begin together.
    if overlap:
        reduce = [part.start_grad_sync for part in models]
        config.grad_sync_func = reduce if chunks > 1 else reduce[0]
    return models, optimizer


def train(
    models: list[Any], optimizer: Any, seq: int, micro_batches: int, micro_batch: int = 1,
    context: int = 1,
) -> None:  # fmt: skip
    """Trains three steps, as a training script does; a rank has `context`'s part of a sequence."""
    part = seq // context

    def forward_step(_: Any, model: Any) -> tuple[torch.Tensor, Any]:
        tokens = torch.zeros(micro_batch, part, dtype=torch.int64, device="cuda")
        positions = torch.arange(part, device="cuda").unsqueeze(0).expand(micro_batch, -1)
        output = model(tokens, positions, None, labels=tokens)

        def loss(out: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
            mean = out.float().mean()
            return mean, {"loss": mean}

        return output, loss

    for _ in range(3):
        for model in models:
            model.zero_grad_buffer()
        optimizer.zero_grad()
        get_forward_backward_func()(
            forward_step_func=forward_step, data_iterator=[None] * len(models), model=models,
            num_microbatches=micro_batches, seq_length=seq, micro_batch_size=micro_batch,
            decoder_seq_length=seq, forward_only=False,
        )  # fmt: skip
        optimizer.step()


def main() -> None:
    """`dense` leaves the experts out, `interleaved` gives a rank two chunks.

    `context` lets two ranks share a sequence.
    """
    dense = "dense" in sys.argv
    context = 2 if "context" in sys.argv else 1
    attention = None
    if context > 1:
        from megatron_context import RingAttention

        attention = RingAttention
    chunks = 2 if "interleaved" in sys.argv else 1
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(
        TP, PP, chunks if chunks > 1 else None, context_parallel_size=context,
        expert_model_parallel_size=1 if dense else EP, expert_tensor_parallel_size=1,
    )  # fmt: skip
    models, optimizer = build(
        configuration(dense, chunks, context), VOCAB, SEQ, chunks, attention,
        position_embedding_type="rope", share_embeddings_and_output_weights=False,
    )  # fmt: skip
    train(models, optimizer, SEQ, MICRO_BATCHES, context=context)


if __name__ == "__main__":
    main()

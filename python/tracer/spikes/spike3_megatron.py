"""Spike 3a: Megatron-Core 0.16.1, TP2·PP2·EP2·DP2, local layer spec, on a machine with no GPU.

    pip install --no-deps --target EXTRA megatron-core==0.16.1
    python spike3_megatron.py EXTRA [--rank 0..7] [--raw] [--json]

A GPT of four MoE layers (four experts, top 2, all-to-all dispatcher), sequence parallel, bf16,
distributed optimizer, 1F1B with four micro-batches. Prints collectives beside a hand count.
`--raw` leaves the patches out, to show what fails first.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

import common

common.start("cuda")

import torch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from record import Recorder, Trace  # noqa: E402

TP, PP, EP, WORLD = 2, 2, 2, 8
LAYERS, HIDDEN, SEQ, MICRO, EXPERTS, TOPK, VOCAB = 4, 256, 128, 4, 4, 2, 1024


def patch() -> int:
    """Applies the patches; returns how many lines they are."""
    import megatron_patches as patches

    patches.objects()
    patches.random_numbers()
    patches.norms()
    patches.optimizer()
    patches.router()
    patches.routing(TOPK, EXPERTS)
    lines = inspect.getsource(patches).splitlines()
    return len([line for line in lines if line.strip() and not line.strip().startswith("#")])


def build() -> tuple[Any, Any, Any]:
    """Configuration, wrapped model and optimizer of this rank, as training code makes them."""
    from megatron.core import parallel_state
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    from megatron.core.transformer.transformer_config import TransformerConfig

    model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=8, ffn_hidden_size=2 * HIDDEN,
        bf16=True, params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16,
        tensor_model_parallel_size=TP, pipeline_model_parallel_size=PP,
        expert_model_parallel_size=EP, expert_tensor_parallel_size=1, num_moe_experts=EXPERTS,
        moe_router_topk=TOPK, moe_token_dispatcher_type="alltoall", sequence_parallel=True,
        add_bias_linear=False, gated_linear_unit=True, hidden_dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    spec = get_gpt_layer_local_spec(num_experts=EXPERTS, moe_grouped_gemm=False)
    model = GPTModel(
        config, spec, VOCAB, SEQ, position_embedding_type="rope",
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
    )  # fmt: skip
    model = model.cuda(torch.cuda.current_device()).to(torch.bfloat16)
    sharded = DistributedDataParallelConfig(
        overlap_grad_reduce=True, use_distributed_optimizer=True
    )
    wrapped = DistributedDataParallel(config, sharded, model)
    options = OptimizerConfig(
        optimizer="adam", lr=1e-4, bf16=True, params_dtype=torch.bfloat16,
        use_distributed_optimizer=True,
    )  # fmt: skip
    optimizer = get_megatron_optimizer(options, [wrapped], use_gloo_process_groups=False)
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    config.no_sync_func = wrapped.no_sync
    return config, wrapped, optimizer


def forward_step(_: Any, model: Any) -> tuple[torch.Tensor, Any]:
    """One micro-batch, as a training script writes it."""
    tokens = torch.zeros(1, SEQ, dtype=torch.int64, device="cuda")
    positions = torch.arange(SEQ, device="cuda").unsqueeze(0)
    output = model(tokens, positions, None, labels=tokens)

    def loss(out: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        mean = out.float().mean()
        return mean, {"loss": mean}

    return output, loss


def trace(rank: int) -> Trace:
    """The second step of one rank."""
    from megatron.core import parallel_state
    from megatron.core.pipeline_parallel.schedules import get_forward_backward_func

    common.fake_job(rank, WORLD)
    parallel_state.initialize_model_parallel(
        TP, PP, expert_model_parallel_size=EP, expert_tensor_parallel_size=1,
        create_gloo_process_groups=False,
    )  # fmt: skip
    recorder = Recorder()
    with FakeTensorMode(allow_non_fake_inputs=True):
        _, model, optimizer = build()
        for _ in range(2):
            recorder = Recorder()
            recorder.host_value = lambda t: 1.0 if t.dtype.is_floating_point else 0
            with recorder:
                model.zero_grad_buffer()
                optimizer.zero_grad()
                get_forward_backward_func()(
                    forward_step_func=forward_step, data_iterator=None, model=[model],
                    num_microbatches=MICRO, seq_length=SEQ, micro_batch_size=1,
                    decoder_seq_length=SEQ, forward_only=False,
                )  # fmt: skip
                recorder.mark("optimizer")
                optimizer.step()
    return recorder.trace


def hand_count(rank: int) -> dict[str, int]:
    """What the step must issue, by Megatron's rules.

    A layer and micro-batch: attention gathers and scatters the sequence both ways (2 + 1 gathers
    with the one repeated for the weight gradient, 1 + 1 scatters); the router gathers token counts
    (forward); tokens, their probabilities and the results go all-to-all, both ways. The embedding
    scatters forward and gathers backward. Last stage: the output layer gathers twice and scatters
    once, and the vocabulary-parallel loss reduces three times. Once a step: norm gradients of the
    tensor-parallel ranks, the gradient norm, and for dense and expert parameters a reduce-scatter
    and, because each of the two optimizers asks for both, two gathers.
    """
    layers = LAYERS // PP
    last = rank >= WORLD // PP
    per_layer = {"all_gather": 3 + 1, "reduce_scatter": 2, "all_to_all": 6}
    count = {kind: n * layers * MICRO for kind, n in per_layer.items()}
    ends = {"all_gather": 2 if last else 1, "reduce_scatter": 1, "all_reduce": 3 if last else 0}
    for kind, n in ends.items():
        count[kind] = count.get(kind, 0) + n * MICRO
    count["all_reduce"] += 2
    count["reduce_scatter"] += 2
    count["all_gather"] += 4
    return dict(sorted(count.items() | {"send": MICRO, "recv": MICRO}.items()))


def main() -> None:
    """One rank."""
    sys.path.append(sys.argv[1])
    rank = int(sys.argv[sys.argv.index("--rank") + 1]) if "--rank" in sys.argv else 0
    lines = 0 if "--raw" in sys.argv else patch()
    with common.clock() as time:
        recorded = trace(rank)
    split = {(e.sent, str(e.splits)) for e in recorded.of("comm") if e.name == "all_to_all"}
    common.emit(
        {
            "rank": rank,
            "recorded": recorded.comm_counts(),
            "by_hand": hand_count(rank),
            "all_to_all": sorted(split),
            "ops": len(recorded.of("op")),
            "host_syncs": len(recorded.of("sync")),
            "stream_entries": len(recorded.of("stream")),
            "patch_lines": lines,
            "seconds": round(time.seconds, 1),
        }
    )


if __name__ == "__main__":
    main()

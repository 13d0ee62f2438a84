"""Megatron-Core on fake tensors, no file of it changed. Tried on 0.16.1 with the local layer spec.

Each patch says why it is there. Experts are routed evenly, and each layer's facts are recorded, so
that a simulator can draw uneven shares.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from orrery_trace.groups import Patches
from orrery_trace.imports import when_imported
from orrery_trace.recorder import Recorder

MODULE = "megatron.core"
REASON = "random state, torch's norms, the gradient norm and routing read values of the device"
SOFTMAX = "megatron::scaled_upper_triang_masked_softmax"
SCHEDULES = (
    "forward_backward_no_pipelining",
    "forward_backward_pipelining_with_interleaving",
    "forward_backward_pipelining_without_interleaving",
)


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Patches the parts as they are imported."""
    parts = {
        "tensor_parallel.random": _random_numbers,
        "transformer.torch_norm": _norms,
        "optimizer.clip_grads": _gradient_norm,
        "fusions.fused_softmax": _fused_softmax,
        "optimizer.optimizer": _optimizers,
        "transformer.moe.moe_utils": _router,
        "transformer.moe.token_dispatcher": _routing,
        "pipeline_parallel.schedules": _schedules,
    }
    for name, patch in parts.items():
        call = functools.partial(patch, recorder=recorder, patches=patches)
        when_imported(f"{MODULE}.{name}", call)


def _random_numbers(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """The fork compares states of generators by value, and no number is drawn here."""

    @contextlib.contextmanager
    def fork(self: Any, name: str = "") -> Iterator[None]:
        yield

    patches.replace(module.CudaRNGStatesTracker, "fork", fork)


def _norms(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """The torch norm of the local spec refuses sequence parallelism, which MoE with TP demands."""
    import torch

    def build(cls: type, config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> Any:
        layer_norm = config.normalization == "LayerNorm"
        kind = torch.nn.LayerNorm if layer_norm else torch.nn.RMSNorm
        norm: Any = kind(hidden_size, eps=eps, device="cuda")
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel
        return norm

    patches.replace(module.WrappedTorchNorm, "__new__", staticmethod(build))


def _gradient_norm(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Without Apex the norm makes a tensor from numbers read back one by one."""
    import torch

    def norm(_: int, flag: Any, lists: list[list[Any]], *__: Any) -> tuple[Any, None]:
        each = [torch.norm(t) for tensors in lists for t in tensors]
        return torch.stack(each).norm().reshape(1), None

    patches.replace(module, "l2_norm_impl", norm)


def _fused_softmax(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Apex's extension, which needs a GPU to be built: two kernels with the shapes of its own."""
    import torch

    def forward(ctx: Any, inputs: torch.Tensor, scale: float) -> torch.Tensor:
        with recorder.mute():
            out = torch.empty_like(inputs)
        recorder.fused(f"{SOFTMAX}.forward", [inputs], [out])
        ctx.save_for_backward(out)
        return out

    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (out,) = ctx.saved_tensors
        recorder.fused(f"{SOFTMAX}.backward", [gradient, out], [gradient])  # in place
        return gradient, None

    def rows_of_a_block(sq: int, sk: int, b: int, np: int) -> int:
        """A power of two that divides the rows of every shape that Megatron lets through."""
        return 1

    kind = module.ScaledUpperTriangMaskedSoftmax
    patches.replace(kind, "forward", staticmethod(forward))
    patches.replace(kind, "backward", staticmethod(backward))
    patches.replace(
        module.FusedScaleMaskSoftmax, "get_batch_per_block", staticmethod(rows_of_a_block)
    )


def _optimizers(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Clipping, casts and the gather of parameters belong to the optimizer's pass.

    With a scaled loss (fp16) no gradient overflows.
    """
    where = recorder.where
    mixed = module.MixedPrecisionOptimizer
    unscale = mixed._unscale_main_grads_and_check_for_nan

    def no_overflow(self: Any) -> Any:
        with recorder.answers(0.0):
            return unscale(self)

    patches.replace(mixed, "_unscale_main_grads_and_check_for_nan", no_overflow)
    for kind in (module.MixedPrecisionOptimizer, module.FP32Optimizer, module.ChainedOptimizer):
        step = kind.step

        def timed(self: Any, *args: Any, _step: Any = step, **kwargs: Any) -> Any:
            before, where.part = where.part, "optimizer"
            try:
                return _step(self, *args, **kwargs)
            finally:
                where.part = before

        patches.replace(kind, "step", timed)


def _router(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """A name that is bound only where TransformerEngine is (a bug of 0.16.1)."""
    if not hasattr(module, "te_general_gemm"):
        module.te_general_gemm = None  # type: ignore[attr-defined]


def _routing(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Token counts must be known on the host: every expert gets tokens * topk / experts.

    The dispatcher's own arithmetic runs twice: on fake tensors, recorded, and on a real balanced
    routing map, unrecorded, for the numbers. `masked_select` has a length that only values know;
    here it is the share of the mask that is set.
    """
    import numpy as np
    import torch
    from torch._subclasses import fake_impls
    from torch.utils._python_dispatch import _disable_current_modes

    kind = module.MoEAlltoAllTokenDispatcher
    preprocess, construct = kind.preprocess, kind.__init__
    counts = (
        "input_splits",
        "output_splits",
        "output_splits_tp",
        "num_global_tokens_per_local_expert",
    )
    share = [1, 1]  # topk of experts, of the dispatcher that ran last

    def balanced(self: Any, routing_map: torch.Tensor) -> Any:
        preprocess(self, routing_map)
        tokens, experts = routing_map.shape
        topk = self.config.moe_router_topk
        share[:] = [topk, experts]
        recorder.add(
            "routing",
            tokens=tokens,
            topk=topk,
            experts=experts,
            local_experts=self.num_local_experts,
            bytes_per_token=self.config.hidden_size * 2,
            capacity=getattr(self.config, "moe_expert_capacity_factor", None),
            group=recorder.group_number(self.ep_group),
            **recorder.place(),
        )
        recorder.assume("expert routing is balanced")
        gather = module.gather_from_sequence_parallel_region
        with _disable_current_modes():
            chosen = torch.arange(tokens * topk, device="cpu")
            real = torch.zeros(tokens, experts, dtype=torch.bool, device="cpu")
            real[chosen // topk, chosen % experts] = True
            module.gather_from_sequence_parallel_region = (  # type: ignore[attr-defined]
                lambda t, group: t.repeat(group.size())
            )
            try:
                per_expert = preprocess(self, real).numpy()
            finally:
                module.gather_from_sequence_parallel_region = gather  # type: ignore[attr-defined]
            for name in counts:
                value = getattr(self, name, None)
                if isinstance(value, torch.Tensor):
                    setattr(self, name, value.numpy())
        return per_expert

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        chunks = np.arange(self.num_experts * self.tp_size)
        local = self.num_local_experts
        self.sort_input_by_local_experts = chunks.reshape(-1, local).T.ravel()
        self.restore_output_by_local_experts = chunks.reshape(local, -1).T.ravel()

    def select(mode: Any, func: Any, x: Any, mask: Any) -> Any:
        topk, experts = share
        return x.new_empty((mask.numel() * topk // experts,))

    patches.replace(kind, "preprocess", balanced)
    patches.replace(kind, "__init__", init)
    fake_impls.op_implementations_dict[torch.ops.aten.masked_select.default] = select


def _schedules(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """A step begins with the schedule, whose first act on a later stage is a receive."""
    for name in SCHEDULES:
        run = getattr(module, name)

        @functools.wraps(run)
        def opened(*args: Any, _run: Any = run, **kwargs: Any) -> Any:
            recorder.where.opens_step()
            return _run(*args, **kwargs)

        patches.replace(module, name, opened)

"""What Megatron-Core 0.16.1 needs to run on fake cuda tensors, besides the no-device guard.

Each function is one patch and says why. No file of Megatron is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses import fake_impls
from torch.utils._python_dispatch import _disable_current_modes


def objects() -> None:
    """`all_gather_object` moves pickles in tensors: every rank is taken to say the same."""

    def gather(out: list[Any], value: Any, group: Any = None) -> None:
        out[:] = [value] * len(out)

    dist.all_gather_object = gather


def random_numbers() -> None:
    """The RNG fork compares CPU generator states by value, and draws nothing here."""
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker

    @contextlib.contextmanager
    def fork(self: Any, name: str = "") -> Iterator[None]:
        yield

    CudaRNGStatesTracker.fork = fork


def norms() -> None:
    """The torch norm of the local spec refuses sequence parallelism, which MoE with TP demands."""
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    def build(cls: type, config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> Any:
        layer_norm = config.normalization == "LayerNorm"
        kind = torch.nn.LayerNorm if layer_norm else torch.nn.RMSNorm
        norm = kind(hidden_size, eps=eps, device="cuda")
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel
        return norm

    WrappedTorchNorm.__new__ = staticmethod(build)


def optimizer() -> None:
    """The fallback norm builds a tensor from Python numbers of device tensors, one sync each."""
    from megatron.core.optimizer import clip_grads

    def norm(_: int, flag: Tensor, lists: list[list[Tensor]], *__: Any) -> tuple[Tensor, None]:
        each = [torch.norm(t) for tensors in lists for t in tensors]
        return torch.stack(each).norm().reshape(1), None

    clip_grads.l2_norm_impl = norm


def router() -> None:
    """A name that is only bound when TransformerEngine is there (a bug of 0.16.1)."""
    from megatron.core.transformer.moe import moe_utils

    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None


def routing(topk: int, experts: int) -> None:
    """Token counts must be known on the host: every expert gets tokens * topk / experts.

    The dispatcher's own arithmetic runs twice: once on fake tensors, recorded, and once on a real
    balanced routing map, unrecorded, for the numbers. `masked_select` has a length only values
    know; here it is the share of the mask that is set.
    """
    from megatron.core.transformer.moe import token_dispatcher as module

    kind = module.MoEAlltoAllTokenDispatcher
    preprocess, construct = kind.preprocess, kind.__init__
    splits = ("input_splits", "output_splits", "output_splits_tp")
    counts = (*splits, "num_global_tokens_per_local_expert")

    def balanced(self: Any, routing_map: Tensor) -> np.ndarray:
        preprocess(self, routing_map)
        tokens = routing_map.shape[0]
        gather = module.gather_from_sequence_parallel_region
        with _disable_current_modes():
            chosen = torch.arange(tokens * topk, device="cpu")
            real = torch.zeros(tokens, experts, dtype=torch.bool, device="cpu")
            real[chosen // topk, chosen % experts] = True
            module.gather_from_sequence_parallel_region = lambda t, group: t.repeat(group.size())
            per_expert = preprocess(self, real).numpy()
            module.gather_from_sequence_parallel_region = gather
            for name in counts:
                value = getattr(self, name, None)
                if isinstance(value, Tensor):
                    setattr(self, name, value.numpy())
        return per_expert

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        chunks = np.arange(self.num_experts * self.tp_size)
        local = self.num_local_experts
        self.sort_input_by_local_experts = chunks.reshape(-1, local).T.ravel()
        self.restore_output_by_local_experts = chunks.reshape(local, -1).T.ravel()

    kind.preprocess, kind.__init__ = balanced, init

    def select(mode: Any, func: Any, x: Tensor, mask: Tensor) -> Tensor:
        return x.new_empty((mask.numel() * topk // experts,))

    fake_impls.op_implementations_dict[torch.ops.aten.masked_select.default] = select

"""Gives a CPU-only PyTorch the *op identities* of a CUDA build, for fake `cuda` tensors.

A fake tensor needs no kernel to run, but the dispatcher looks at which kernels are registered: an
op with a composite form and no CUDA kernel is decomposed, where a CUDA build calls one kernel. By
`native_functions.yaml` (see `composite_with_cuda_kernel`) that is so for `_fused_rms_norm`,
`silu_backward` and `mish_backward`. A kernel that only throws is enough to turn each whole again.
Attention chooses its kernel in C++ by asking the device; `_attention` restates that choice.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import fake_impls

KERNELS = ("_fused_rms_norm", "silu_backward", "mish_backward")

_libraries: list[torch.library.Library] = []


def composite_with_cuda_kernel() -> list[str]:
    """Ops that decompose here and do not on CUDA, from the declarations shipped with PyTorch."""
    import torchgen
    import yaml

    path = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    functions = yaml.safe_load(path.read_text(encoding="utf-8"))
    by_name = {f["func"].split("(")[0]: f for f in functions}

    def keys(function: dict[str, Any]) -> set[str]:
        dispatch = function.get("dispatch") or {}
        return {key.strip() for names in dispatch for key in names.split(",")}

    found = []
    for name, function in by_name.items():
        own = keys(function)
        delegate = function.get("structured_delegate")
        cuda = own | (keys(by_name[delegate]) if delegate else set())
        if "CompositeImplicitAutograd" in own and "CUDA" in cuda:
            found.append(name)
    return found


def _no_device(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a real cuda tensor reached a kernel that exists in name only")


def _cudnn_first() -> bool:
    """Whether this PyTorch asks cuDNN before flash attention, as its CUDA build on an H100 does."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    refused = os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1"
    return version >= (2, 11) and not refused and torch.backends.cuda.cudnn_sdp_enabled()


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The choice of a CUDA build on an H100: cuDNN, else flash, else memory-efficient, else math.

    cuDNN (first since PyTorch 2.11, measured there on an H200) wants half precision and a head of
    at most 128, a multiple of 8. Flash wants half precision, no mask and a head of at most 256,
    padded to a multiple of 8; memory-efficient wants equal head counts. Not modelled: the limits of
    other architectures, and cuDNN's heads of 192 and 256.
    """
    head = query.shape[-1]
    half = query.dtype in (torch.float16, torch.bfloat16)
    grad = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if half and head <= 128 and head % 8 == 0 and key.shape[-2] > 1 and _cudnn_first():
        return torch.ops.aten._scaled_dot_product_cudnn_attention(
            query, key, value, attn_mask, grad, dropout_p, is_causal, False, scale=scale
        )[0]
    if half and attn_mask is None and head <= 256:
        scale = scale if scale is not None else 1 / math.sqrt(head)
        if head % 8:
            pad = (0, 8 - head % 8)
            query, key, value = (torch.nn.functional.pad(t, pad) for t in (query, key, value))
        out = torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
        return out[..., :head] if head % 8 else out
    if query.shape[-3] == key.shape[-3]:
        return torch.ops.aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, grad, dropout_p, is_causal, scale=scale
        )[0]
    grouped = {"enable_gqa": True} if enable_gqa else {}  # since 2.5
    return torch.ops.aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **grouped
    )[0]


def install_kernels() -> tuple[str, ...]:
    """Registers the names; returns what was registered."""
    library = torch.library.Library("aten", "IMPL")
    if torch.version.cuda is None:
        for name in KERNELS:
            library.impl(name, _no_device, "CUDA")
    for key in ("AutogradCUDA", "CUDA"):
        library.impl("scaled_dot_product_attention", _attention, key)
    _libraries.append(library)
    # Ops that FakeTensorMode would run for real: they only talk to the allocator.
    answers = fake_impls.op_implementations_dict
    answers[torch.ops.aten.record_stream.default] = lambda mode, func, x, stream: None
    answers[torch.ops.aten._pin_memory.default] = lambda mode, func, x, device=None: x
    answers[torch.ops.aten.is_pinned.default] = lambda mode, func, x, device=None: False
    # Before 2.5 the fused optimizers have no Meta kernel; they change their arguments only.
    known = torch._C._dispatch_has_kernel_for_dispatch_key
    for name in ("_fused_adagrad_", "_fused_adam_", "_fused_adamw_", "_fused_sgd_"):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            op = getattr(packet, overload)
            if not known(op.name(), "Meta"):
                answers[op] = lambda mode, func, *_, **__: None
    return (*KERNELS, "scaled_dot_product_attention")

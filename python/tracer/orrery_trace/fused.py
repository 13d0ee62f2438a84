"""Functions that `torch.compile` makes one kernel: those that work element by element.

A compiler turns such a function into one kernel forward and, under autograd, one backward that
reads the inputs and the gradient and computes what lies between anew; nothing between takes memory.
So it is recorded: `fused::pointwise`, with the tensors that go in and come out. What a backward
pass sums up (the gradient of a bias, of anything broadcast) is an operator of its own behind it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import _len_torch_dispatch_stack
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _pop_mode, _push_mode
from torch.utils.checkpoint import _CachedTorchDispatchMode, _CachingTorchDispatchMode

from orrery_trace.recorder import Recorder
from orrery_trace.signatures import tensors_in

NAME = "fused::pointwise"
# Element by element too, or moves that a compiler folds into what reads them; PyTorch has no tag
# for these.
_FOLDED = frozenset(
    f"aten::{name}"
    for name in (
        "_to_copy", "_unsafe_view", "alias", "bernoulli_", "cat", "clone", "constant_pad_nd",
        "copy_", "detach", "empty_like", "full_like", "gelu_backward", "native_dropout",
        "native_dropout_backward", "ones_like", "silu_backward", "slice_backward", "zero_",
        "zeros_like",
    )
)  # fmt: skip


class _Otherwise(Exception):
    """An operator that is not element-wise."""


def is_pointwise(func: Any) -> bool:
    """Whether an operator yields each element from elements at its place."""
    if not isinstance(func, OpOverload):
        return False
    return func.is_view or torch.Tag.pointwise in func.tags or func._schema.name in _FOLDED


def compiled(function: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    """The function as a compiler would run it, if it works element by element; else as it is."""
    kinds: dict[Any, bool] = {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        tensors = [leaves[i] for i in places]
        if recorder.muted or recorder.done or not tensors:
            return function(*args, **kwargs)

        def run(*given: torch.Tensor) -> Any:
            filled = list(leaves)
            for i, tensor in zip(places, given, strict=True):
                filled[i] = tensor
            again, named = pytree.tree_unflatten(filled, spec)
            return function(*again, **named)

        key = (repr(spec), len(tensors))
        if key not in kinds:
            kinds[key] = _works_by_element(run, tensors, recorder)
        if not kinds[key]:
            recorder.assume("torch.compile is left out: operators are recorded unfused")
            return function(*args, **kwargs)
        recorder.assume("a compiled function of element-wise operators is one kernel")
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            result = _Fused.apply(recorder, run, *tensors)
        else:
            with torch.no_grad(), recorder.mute():
                result = run(*tensors)
        recorder.fused(NAME, tensors, list(tensors_in(result)))
        return result

    return call


@contextmanager
def _outside_checkpoints() -> Iterator[None]:
    """Without the modes of selective checkpointing, which count every operator that runs."""
    saving = (_CachedTorchDispatchMode, _CachingTorchDispatchMode)
    popped = [_pop_mode() for _ in range(_len_torch_dispatch_stack())]  # the last entered first
    kept = [mode for mode in reversed(popped) if not isinstance(mode, saving)]
    for mode in kept:
        _push_mode(mode)
    try:
        yield
    finally:
        for _ in kept:
            _pop_mode()
        for mode in reversed(popped):
            _push_mode(mode)


def _works_by_element(run: Any, tensors: list[torch.Tensor], recorder: Recorder) -> bool:
    """Runs the function aside, on tensors of its own, to its first operator that does not.

    Its results must be new tensors, and hang on no parameter but what it is given.
    """
    works = False

    def look_at(func: Any) -> None:
        nonlocal works
        if not is_pointwise(func):
            raise _Otherwise
        works = works or not func.is_view

    with _outside_checkpoints(), torch.enable_grad(), recorder.mute():
        given = [torch.empty_like(t, requires_grad=False) for t in tensors]
        try:
            with recorder.mute(look_at):
                result = run(*given)
        except _Otherwise:
            return False
    old = {t.untyped_storage()._cdata for t in given}

    def is_new(value: Any) -> bool:
        tensor = isinstance(value, torch.Tensor) and not value.requires_grad
        return tensor and value.untyped_storage()._cdata not in old

    return works and all(map(is_new, result if isinstance(result, tuple) else (result,)))


class _Fused(torch.autograd.Function):
    """Keeps the inputs and computes the rest anew, as a compiler's partitioner decides."""

    @staticmethod
    def forward(ctx: Any, recorder: Recorder, run: Any, *tensors: torch.Tensor) -> Any:
        """The function; `compiled` records it."""
        ctx.recorder, ctx.run = recorder, run
        ctx.save_for_backward(*tensors)
        with recorder.mute():
            return run(*tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """One kernel, and one more for each input whose gradient is a sum."""
        recorder: Recorder = ctx.recorder
        saved = ctx.saved_tensors
        with recorder.mute():
            inputs = [t.detach().requires_grad_(t.requires_grad) for t in saved]
            wanted = [t for t in inputs if t.requires_grad]
            with torch.enable_grad():
                outputs = list(tensors_in(ctx.run(*inputs)))
            found = list(torch.autograd.grad(outputs, wanted, gradients))
        largest = max(found, key=torch.Tensor.numel)
        whole = [t for t in found if t.numel() == largest.numel()]
        recorder.fused(NAME, [*gradients, *saved], whole)
        for i, gradient in enumerate(found):
            if gradient.numel() < largest.numel():
                found[i] = _sum(largest, gradient)
        each = iter(found)
        return None, None, *(next(each) if t.requires_grad else None for t in saved)


def _sum(whole: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A sum of `whole` to the shape of `like`, recorded as the operator that it is."""
    lead = whole.dim() - like.dim()
    of = [i for i in range(whole.dim()) if i < lead or like.shape[i - lead] != whole.shape[i]]
    return whole.sum(of, keepdim=True).reshape(like.shape)

"""Values that a script prints, hands to NumPy or asks to be finite."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from orrery_trace.groups import Patches
from orrery_trace.recorder import Recorder, is_marked_as_true, mark_as_true

MODULE = "torch"
REASON = 'PyTorch refuses f"{loss:.4f}" and numpy() on fake tensors, and a loss is finite'


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Each is the read of a value that it is on a GPU, answered by the rule for such reads."""
    from torch._subclasses.fake_tensor import FakeTensor

    tensor = module.Tensor
    plain_format, plain_numpy = tensor.__format__, tensor.numpy

    def form(self: Any, spec: str) -> str:
        if isinstance(self, FakeTensor) and self.dim() == 0:
            return format(self.detach().item(), spec)
        return str(plain_format(self, spec))

    def numpy(self: Any, *, force: bool = False) -> Any:
        if not isinstance(self, FakeTensor):
            return plain_numpy(self, force=force)
        import numpy as np

        flat = self.detach().reshape(-1)
        value = flat[0].item() if self.numel() else 0
        return np.full(tuple(self.shape), value, dtype=str(self.dtype).removeprefix("torch."))

    def true_where(plain: Any, holds: Callable[[Any], bool]) -> Any:
        def marked(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = plain(self, *args, **kwargs)
            if isinstance(result, FakeTensor) and holds(self):
                mark_as_true(result)
            return result

        return marked

    for place in (module, tensor):
        patches.replace(place, "isfinite", true_where(place.isfinite, lambda _: True))
        patches.replace(place, "all", true_where(place.all, is_marked_as_true))
    patches.replace(tensor, "__format__", form)
    patches.replace(tensor, "numpy", numpy)

"""What has another place or no name in older releases of PyTorch, from 2.4."""

from __future__ import annotations

from typing import Any

from torch._C import _distributed_c10d as c10d

try:
    from torch.distributed.tensor import DTensor

    TENSORS = "torch.distributed.tensor"
except ImportError:  # before 2.5
    from torch.distributed._tensor import DTensor  # type: ignore[assignment]

    TENSORS = "torch.distributed._tensor"


class _DoneWork(c10d.Work):
    """A communication that is over at once; PyTorch names its own `FakeWork` from 2.6 on."""

    def __init__(self) -> None:
        super().__init__()
        _works.append(self)  # C++ holds it, and asks the Python object

    def wait(self, timeout: Any = None) -> bool:
        """Nothing to wait for."""
        return True


_works: list[_DoneWork] = []
FakeWork: Any = getattr(c10d, "FakeWork", _DoneWork)

__all__ = ["TENSORS", "DTensor", "FakeWork"]

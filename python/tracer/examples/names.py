"""Names of PyTorch's, from where each release since 2.4 keeps them."""

from __future__ import annotations

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # before 2.6
    from torch.distributed._composable.fsdp import fully_shard
try:
    from torch.distributed.tensor import Replicate, Shard
except ImportError:  # before 2.5
    from torch.distributed._tensor import Replicate, Shard  # type: ignore[assignment]

__all__ = ["Replicate", "Shard", "fully_shard"]

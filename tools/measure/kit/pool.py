"""Random inputs, made once: cases take views at different places instead of filling tensors.

Data are normal with unit variance: the power a GPU draws, hence its clock, depends on the data, and
zeros run faster than anything that a model holds.
"""

from __future__ import annotations

from math import prod

import torch

from kit.device import Device
from kit.errors import Refused
from kit.shapes import POOL_BYTES

ALIGN_ELEMENTS = 1024
TORCH_TYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp8": torch.float8_e4m3fn,
    "fp8_split": torch.float8_e4m3fn,
}


class Pool:
    """A long random vector of one type that hands out views, going round."""

    def __init__(self, device: Device, dtype: torch.dtype, size_bytes: int) -> None:
        count = max(1, size_bytes // dtype.itemsize)
        where = device.torch_device
        if dtype.itemsize == 1:
            self._data = torch.empty(count, dtype=dtype, device=where)
            step = 1 << 26
            for at in range(0, count, step):
                n = min(step, count - at)
                self._data[at : at + n] = torch.randn(n, device=where).to(dtype)
        else:
            self._data = torch.randn(count, dtype=dtype, device=where)
        self._at = 0

    def rewind(self) -> None:
        """Starts handing out views from the beginning."""
        self._at = 0

    def view(self, *shape: int) -> torch.Tensor:
        """The next view of `shape`, aligned; raises Refused if it never fits."""
        count = prod(shape)
        if count > self._data.numel():
            raise Refused("larger than the pool of random inputs")
        if self._at + count > self._data.numel():
            self._at = 0
        part = self._data[self._at : self._at + count].view(*shape)
        self._at += -(-count // ALIGN_ELEMENTS) * ALIGN_ELEMENTS
        return part


def pool_bytes(device: Device) -> int:
    """Bytes of an input pool: 8 GiB on a large GPU, a twelfth of memory on a small one."""
    return 1 << 22 if device.tiny else min(POOL_BYTES, device.memory_bytes // 12)


def make_pools(device: Device, cache: dict[str, object], dtype: str) -> tuple[Pool, Pool]:
    """Pools of inputs and of outputs for an element type, made on first use."""
    kind = TORCH_TYPES[dtype]
    out = torch.bfloat16 if kind.itemsize == 1 else kind
    keys = (f"inputs {kind}", f"outputs {out}")
    size = pool_bytes(device)
    for key, t, n in ((keys[0], kind, size), (keys[1], out, size // 2)):
        if key not in cache:
            cache[key] = Pool(device, t, n)
    first, second = cache[keys[0]], cache[keys[1]]
    assert isinstance(first, Pool) and isinstance(second, Pool)
    return first, second

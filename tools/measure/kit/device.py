"""The device under test: a GPU, or the CPU standing in for it in tests (same calls, no data).

Nothing here changes the device: no clock, power or compute-mode setting is ever touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kit.errors import DeviceLost, OutOfMemory, Refused, UserError

CYCLES_PER_US = (
    2000  # for torch.cuda._sleep; an H200 boosts to 1980 MHz, slower clocks sleep longer
)


class _CpuEvent:
    """Looks like torch.cuda.Event; the CPU has no queue, so recording reads the clock."""

    def __init__(self) -> None:
        self._at = 0.0

    def record(self) -> None:
        self._at = time.perf_counter()

    def elapsed_time(self, end: _CpuEvent) -> float:
        """Milliseconds until `end`."""
        return (end._at - self._at) * 1e3


@dataclass(frozen=True)
class Device:
    """What the scripts need to know of a device. `l2_bytes` sizes the rotation of inputs."""

    kind: str  # cuda | cpu
    tiny: bool
    name: str
    slug: str
    sm_count: int
    l2_bytes: int
    memory_bytes: int

    @property
    def torch_device(self) -> torch.device:
        """Device 0: select another GPU with CUDA_VISIBLE_DEVICES."""
        return torch.device("cuda", 0) if self.kind == "cuda" else torch.device("cpu")

    @property
    def label(self) -> str:
        """The header's `device`."""
        return f"{self.kind} (tiny, not data)" if self.tiny else self.kind

    def event(self) -> Any:
        """A new timing event."""
        return torch.cuda.Event(enable_timing=True) if self.kind == "cuda" else _CpuEvent()

    def synchronize(self) -> None:
        """Waits for the current stream, and only for it: a companion may run on another one."""
        if self.kind == "cuda":
            torch.cuda.current_stream().synchronize()

    def alive(self) -> bool:
        """False once a fault has made the device's context unusable: then even a sum fails."""
        if self.kind == "cuda":
            try:
                torch.zeros(1, device=self.torch_device).add_(1)
                torch.cuda.current_stream().synchronize()
            except RuntimeError:
                return False
        return True

    def hold(self, microseconds: float) -> None:
        """Keeps the device's stream busy, so that the host can queue work behind it."""
        if self.kind == "cuda" and microseconds > 0:
            torch.cuda._sleep(int(microseconds * CYCLES_PER_US))

    def free_bytes(self) -> int:
        """Memory that a case may take. On the CPU a small bound keeps tests small."""
        if self.kind == "cuda":
            free, _ = torch.cuda.mem_get_info()
            kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
            return free + kept
        return 1 << 30

    def release(self) -> None:
        """Gives cached memory back before a case of another shape needs it."""
        if self.kind == "cuda":
            torch.cuda.empty_cache()


def open_device(kind: str, tiny: bool) -> Device:
    """Opens device 0 of `kind`; REQUIRES tiny on the CPU, whose times are never data."""
    if kind == "cpu":
        if not tiny:
            raise UserError(
                "command line",
                "--device",
                "cpu",
                "a CPU run gives no data",
                "add --tiny to try the scripts, or use --device cuda",
            )
        return Device("cpu", True, "cpu", "cpu", 1, 1 << 20, 1 << 30)
    if not torch.cuda.is_available():
        raise UserError(
            "command line",
            "--device",
            kind,
            "torch sees no CUDA device here",
            "run on a GPU machine, or try the scripts with --device cpu --tiny",
        )
    p = torch.cuda.get_device_properties(0)
    return Device(
        "cuda",
        tiny,
        p.name,
        slug_of(p.name),
        p.multi_processor_count,
        int(getattr(p, "L2_cache_size", 0)) or (64 << 20),
        p.total_memory,
    )


def slug_of(name: str) -> str:
    """`NVIDIA H200` -> `h200`, `NVIDIA A100-SXM4-80GB` -> `a100-sxm4-80gb`."""
    words = [w for w in name.lower().split() if w not in ("nvidia", "tesla", "geforce")]
    return "-".join("".join(c for c in w if c.isalnum() or c == "-") for w in words)


def guarded(call: Callable[[], Any], device: Device) -> Any:
    """Runs `call` to its end on the device; what torch cannot do there becomes Refused.

    A fault (illegal address, launch failure) leaves the device's context unusable: DeviceLost.
    Texts do not tell one from the other ("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED"), a probe does.
    """
    try:
        result = call()
        device.synchronize()
        return result
    except torch.OutOfMemoryError as error:
        raise OutOfMemory("out of device memory") from error
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if not device.alive():
            raise DeviceLost(text) from error
        raise Refused(text[:200]) from error

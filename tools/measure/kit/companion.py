"""What runs beside a kernel in the overlap measurements.

copy_kernel, reduce_kernel: the resident kernel of persistent.cu on a stream of its own. memcpy_*:
copies queued on a stream of their own, which the driver gives to the copy engines (for memcpy_d2d
it may take SMs instead; ncu or a profile of the machine tells). On the CPU a thread that copies
stands in.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from kit.device import Device
from kit.errors import DeviceLost, Refused

SOURCE = Path(__file__).resolve().parent / "persistent.cu"
BLOCK_BYTES = 8 << 20  # slice of one block: 32 blocks go round 3 x 256 MiB, far over the L2
MOST_BLOCKS = 32
LINK_COPY_BYTES = 32 << 20  # one queued copy between host and device, 0.7 ms on PCIe 5
DEVICE_COPY_BYTES = 1 << 30  # one queued copy within the device, about as long
HANG_LIMIT_S = 5.0  # a companion ends by itself after this


@dataclass(frozen=True)
class Load:
    """A companion: its kind, its blocks, its payload rate in GB/s (0: as fast as it goes)."""

    kind: str
    ctas: int = 0
    rate: float = 0.0


def find_nvcc() -> str:
    """The CUDA compiler, or Refused."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    for candidate in (shutil.which("nvcc"), f"{home}/bin/nvcc"):
        if candidate and Path(candidate).exists():
            return candidate
    raise Refused("nvcc is not installed: no resident companion")


def build_command(nvcc: str, target: Path, capability: tuple[int, int]) -> list[str]:
    """How persistent.cu becomes a shared library for one architecture."""
    arch = f"{capability[0]}{capability[1]}"
    return [
        nvcc,
        "-O3",
        "-std=c++17",
        "-shared",
        "-Xcompiler",
        "-fPIC",
        "-gencode",
        f"arch=compute_{arch},code=sm_{arch}",
        "-o",
        str(target),
        str(SOURCE),
    ]


def load_library() -> ctypes.CDLL:
    """Builds (a few seconds) and loads the resident kernel."""
    target = Path(tempfile.mkdtemp(prefix="orrery-measure-")) / "companion.so"
    command = build_command(find_nvcc(), target, torch.cuda.get_device_capability(0))
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        raise Refused(f"nvcc failed: {done.stderr.strip().splitlines()[-1:]}")
    library = ctypes.CDLL(str(target))
    library.orrery_companion_chunk_bytes.restype = ctypes.c_uint64
    library.orrery_companion_error.restype = ctypes.c_char_p
    pointer, word = ctypes.c_void_p, ctypes.c_uint64
    library.orrery_companion_launch.argtypes = [
        ctypes.c_int,
        pointer,
        pointer,
        pointer,
        word,
        ctypes.c_int,
        ctypes.c_double,
        word,
        pointer,
        pointer,
        pointer,
    ]
    return library


class Companion:
    """A context in which `load` runs; afterwards `rate_got` is its payload rate in GB/s.

    For memcpy kinds `lasting_us` says how long to queue copies for; `lasted` is false afterwards if
    they ended before the timed kernel did.
    """

    def __init__(
        self, load: Load, device: Device, cache: dict[str, Any], lasting_us: float
    ) -> None:
        self.load, self.device, self.cache = load, device, cache
        self.lasting_us = lasting_us
        self.rate_got = 0.0
        self.lasted = True
        self._thread: threading.Thread | None = None
        self._end = threading.Event()

    def __enter__(self) -> Companion:
        if self.load.kind == "none":
            return self
        if self.device.kind == "cpu":
            self._thread = threading.Thread(target=self._copy_on_cpu)
            self._thread.start()
        elif self.load.kind.startswith("memcpy"):
            self._queue_copies()
        else:
            self._launch()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.load.kind == "none":
            return
        if self._thread is not None:
            self._end.set()
            self._thread.join()
        elif self.load.kind.startswith("memcpy"):
            self._finish_copies()
        else:
            self._finish_launch()

    def _buffer(self, name: str, size: int, *, pinned: bool = False) -> torch.Tensor:
        """A random buffer of at least `size` bytes, made once."""
        held = self.cache.get(name)
        if not isinstance(held, torch.Tensor) or held.nbytes < size:
            if pinned:
                held = torch.empty(size, dtype=torch.uint8, pin_memory=True).fill_(113)
            else:
                held = torch.randn(size // 2, device=self.device.torch_device).to(torch.bfloat16)
            self.cache[name] = held
        return held

    def _stream(self, name: str) -> torch.cuda.Stream:
        stream = self.cache.get(name)
        if not isinstance(stream, torch.cuda.Stream):
            stream = self.cache[name] = torch.cuda.Stream()
        return stream

    def prepare(self) -> None:
        """Makes buffers, streams and the library first: allocating may wait for what runs."""
        if self.device.kind == "cpu" or self.load.kind == "none":
            return
        self._stream("companion stream"), self._stream("stop stream")
        if self.load.kind.startswith("memcpy"):
            self._copy_ends()
            return
        for name in ("companion a", "companion b", "companion c"):
            self._buffer(name, MOST_BLOCKS * BLOCK_BYTES)
        if "companion library" not in self.cache:
            self.cache["companion library"] = load_library()
            where = self.device.torch_device
            self.cache["companion stop"] = torch.zeros(1, dtype=torch.int32, device=where)
            self.cache["companion one"] = torch.ones(1, dtype=torch.int32).pin_memory()
            self.cache["companion counters"] = torch.zeros(
                3 * MOST_BLOCKS, dtype=torch.int64, device=where
            )
            self._warm()

    def _warm(self) -> None:
        """Runs the kernel for an instant: its module is loaded while nothing is resident."""
        for reduce in (0, 1):
            self._start(reduce, 1, 0.0, 1000)
        torch.cuda.synchronize()

    def _start(self, reduce: int, blocks: int, ns_per_chunk: float, max_ns: int) -> None:
        cache, library = self.cache, self.cache["companion library"]
        a, b, c, stop, counters = (
            cache[f"companion {n}"] for n in ("a", "b", "c", "stop", "counters")
        )
        stop.zero_()
        torch.cuda.synchronize()
        code = library.orrery_companion_launch(
            reduce,
            c.data_ptr(),
            a.data_ptr(),
            b.data_ptr(),
            BLOCK_BYTES,
            blocks,
            ns_per_chunk,
            max_ns,
            stop.data_ptr(),
            counters.data_ptr(),
            self._stream("companion stream").cuda_stream,
        )
        if code:
            raise DeviceLost(f"companion launch: {library.orrery_companion_error(code).decode()}")

    def _launch(self) -> None:
        library = self.cache["companion library"]
        chunk = library.orrery_companion_chunk_bytes()
        pace = (
            chunk * self.load.ctas / self.load.rate if self.load.rate else 0.0
        )  # bytes / (GB/s) = ns
        limit_ns = int(1e9 * HANG_LIMIT_S + 10e3 * self.lasting_us)
        self._start(int(self.load.kind == "reduce_kernel"), self.load.ctas, pace, limit_ns)
        time.sleep(0.001)  # resident before the timed kernel comes

    def _finish_launch(self) -> None:
        stop, one, counters = (self.cache[f"companion {n}"] for n in ("stop", "one", "counters"))
        self.lasted = not self._stream("companion stream").query()
        with torch.cuda.stream(self._stream("stop stream")):
            stop.copy_(one, non_blocking=True)
        self._stream("companion stream").synchronize()
        library = self.cache["companion library"]
        chunk = library.orrery_companion_chunk_bytes()
        rows = counters.cpu().view(MOST_BLOCKS, 3)[: self.load.ctas]
        span_ns = max(1, int(rows[:, 2].max()) - int(rows[:, 1].min()))
        self.rate_got = float(rows[:, 0].sum()) * chunk / span_ns

    def _copy_bytes(self) -> int:
        if self.load.kind != "memcpy_d2d":
            return LINK_COPY_BYTES
        return min(DEVICE_COPY_BYTES, self.device.memory_bytes // 64)

    def _copy_ends(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Target and source of the queued copies."""
        size = self._copy_bytes()
        if self.load.kind == "memcpy_d2d":
            return self._buffer("memcpy one", size), self._buffer("memcpy other", size)
        on_device = self._buffer("memcpy device", size).view(torch.uint8)
        host = self._buffer("memcpy host", size, pinned=True)
        return (on_device, host) if self.load.kind == "memcpy_h2d" else (host, on_device)

    def _queue_copies(self) -> None:
        target, source = self._copy_ends()
        guess = 1500e9 if self.load.kind == "memcpy_d2d" else 50e9
        self._copies = max(
            2, min(800, int(1.5 * self.lasting_us * 1e-6 * guess / self._copy_bytes()))
        )
        self._marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        with torch.cuda.stream(self._stream("companion stream")):
            self._marks[0].record()
            for _ in range(self._copies):
                target.copy_(source, non_blocking=True)
            self._marks[1].record()

    def _finish_copies(self) -> None:
        self.lasted = not self._marks[1].query()
        self._marks[1].synchronize()
        milliseconds = self._marks[0].elapsed_time(self._marks[1])
        self.rate_got = self._copies * self._copy_bytes() / max(milliseconds, 1e-3) / 1e6

    def _copy_on_cpu(self) -> None:
        a, b = torch.randn(4096), torch.empty(4096)
        start, moved = time.perf_counter(), 0
        while not self._end.is_set():
            b.copy_(a)
            moved += a.nbytes
            time.sleep(0.0001)
        self.rate_got = moved / max(time.perf_counter() - start, 1e-9) / 1e9

"""What every spike shares: the start of a process, a fake job, and measuring seconds and memory."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from contextlib import contextmanager
from typing import Any

import guard

os.environ.setdefault("OMP_NUM_THREADS", "1")


def start(device: str) -> None:
    """Call before `import torch`. With device "cuda" and no CUDA, loads the no-device guard."""
    if device == "cuda" and not guard.loaded():
        status = guard.preload()
        if status == 2:
            raise RuntimeError("PyTorch was imported before the guard; import order matters")
        if status == 1:
            return  # a CUDA build has guard, names and kernels of its own
        from guard import kernels, names

        names.install_names()
        kernels.install_kernels()


def fake_job(rank: int, world: int) -> None:
    """This process becomes one rank of a job that has no other process."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        dist.destroy_process_group()
    os.environ["LOCAL_RANK"] = "0"
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)


def rss_mb() -> float:
    """Resident memory now, MB."""
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_rss_mb() -> float:
    """Largest resident memory of this process so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


class Clock:
    """Seconds of a `with` block: by the wall, and of processor time, which load does not move."""

    seconds = 0.0
    cpu = 0.0


@contextmanager
def clock() -> Any:
    """Measures the block; processor time counts all threads, so also autograd's."""
    result = Clock()
    begin, cpu = time.perf_counter(), time.process_time()
    try:
        yield result
    finally:
        result.seconds = time.perf_counter() - begin
        result.cpu = time.process_time() - cpu


def emit(findings: dict[str, Any]) -> None:
    """Prints findings as JSON (`--json`), or as lines."""
    if "--json" in sys.argv:
        print(json.dumps(findings))
        return
    for key, value in findings.items():
        if isinstance(value, list):
            print(f"{key}:")
            for item in value:
                print(f"  {item}")
        else:
            print(f"{key}: {value}")


def brief(error: BaseException) -> str:
    """Type and first line of an error."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"

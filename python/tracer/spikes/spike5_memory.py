"""Spike 5: saved tensors and allocations of a small model, fake against real, op by op.

    python spike5_memory.py [--json]                real cpu tensors against fake cpu tensors
    python spike5_memory.py --cuda TORCH STUBS      also fake cuda (this PyTorch) against real cuda
                                                    tensors and the real caching allocator of a
                                                    CUDA build on stubs (see stubs/build.py)

The step is forward, backward and AdamW of a two-layer Llama. Compared in order: every op, every
allocation and free that the recorder sees, every tensor saved for backward; then the totals of the
allocator itself, which also sees what kernels allocate inside.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import Any

import common


def saved_stream(step: Any) -> list[tuple[int, ...]]:
    """Shapes of the tensors saved for backward, in order."""
    import torch

    shapes: list[tuple[int, ...]] = []

    def pack(t: torch.Tensor) -> torch.Tensor:
        shapes.append((*t.shape, t.element_size()))
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        step()
    return shapes


def allocator_of_cpu(step: Any) -> dict[str, int]:
    """What the real CPU allocator did in `step`: allocations, and the peak above the start."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    count = live = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]" and event.device_type() == torch.autograd.DeviceType.CPU:
            count += event.nbytes() > 0
            live += event.nbytes()
            peak = max(peak, live)
    return {"allocations": count, "peak_bytes": peak}


def allocator_of_cuda(step: Any) -> dict[str, int]:
    """The same of the caching allocator, whose blocks are multiples of 512 bytes."""
    import torch

    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()
    step()
    after = torch.cuda.memory_stats()
    name = "allocation.all.allocated"
    return {
        "allocations": after[name] - before[name],
        "peak_bytes": after["allocated_bytes.all.peak"] - before["allocated_bytes.all.current"],
        "requested_peak_bytes": after["requested_bytes.all.peak"]
        - before["requested_bytes.all.current"],
        "reserved_bytes": after["reserved_bytes.all.peak"],
    }


def observe(device: str, fake: bool) -> dict[str, Any]:
    """The streams of the second step on one substrate."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import llama
    from record import Recorder

    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    mode = FakeTensorMode() if fake else contextlib.nullcontext()
    with mode, torch.device(device):
        model = llama.Llama(llama.SMALL, device)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        tokens = torch.zeros(1, llama.SMALL.seq, dtype=torch.int64)

        def step() -> None:
            llama.loss_of(model(tokens), tokens).backward()
            optimizer.step()
            optimizer.zero_grad()

        step()
        saved = saved_stream(lambda: llama.loss_of(model(tokens), tokens))
        recorder = Recorder()
        with recorder:
            step()
        allocator = {}
        if not fake:
            allocator = (allocator_of_cpu if device == "cpu" else allocator_of_cuda)(step)
    entries = recorder.trace.entries
    return {
        "ops": [[e.name, e.shapes] for e in entries if e.what == "op"],
        "memory": [[e.what, e.number] for e in entries if e.what in ("alloc", "free")],
        "saved": saved,
        "peak_bytes": recorder.trace.peak_bytes(),
        "rounded_peak_bytes": rounded_peak(entries),
        "allocator": allocator,
    }


def rounded_peak(entries: list[Any]) -> int:
    """The recorder's peak if every block were rounded up to 512 bytes, as CUDA's allocator does."""
    live = peak = 0
    for e in entries:
        size = -(-e.number // 512) * 512
        live += size if e.what == "alloc" else 0
        live -= size if e.what == "free" and e.name == "alloc" else 0
        peak = max(peak, live)
    return peak


def child(device: str, fake: bool, extra: dict[str, str]) -> dict[str, Any]:
    """`observe` in a process of its own."""
    command = [sys.executable, __file__, "--observe", device, str(int(fake))]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **extra}
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(real: dict[str, Any], fake: dict[str, Any]) -> dict[str, Any]:
    """Where two substrates differ."""
    result: dict[str, Any] = {}
    for stream in ("ops", "memory", "saved"):
        a, b = real[stream], fake[stream]
        first = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
        if first is None and len(a) != len(b):
            first = min(len(a), len(b))
        result[stream] = {"real": len(a), "fake": len(b), "equal": a == b}
        if first is not None:
            result[stream]["first_difference"] = [first, a[first : first + 1], b[first : first + 1]]
    result["recorded_peak_bytes"] = [real["peak_bytes"], fake["peak_bytes"]]
    result["rounded_peak_bytes"] = fake["rounded_peak_bytes"]
    result["allocator"] = real["allocator"]
    result["recorded_allocations"] = sum(e[0] == "alloc" for e in real["memory"])
    return result


def main() -> None:
    """All comparisons."""
    if "--observe" in sys.argv:
        device, fake = sys.argv[-2], sys.argv[-1] == "1"
        if device == "cuda" and fake:
            common.start("cuda")
        print(json.dumps(observe(device, fake)))
        return
    findings: dict[str, Any] = {
        "cpu": compare(child("cpu", False, {}), child("cpu", True, {})),
    }
    if "--cuda" in sys.argv:
        torch, stubs = sys.argv[sys.argv.index("--cuda") + 1 :][:2]
        extra = {"PYTHONPATH": torch, "LD_LIBRARY_PATH": stubs}
        findings["cuda"] = compare(child("cuda", False, extra), child("cuda", True, {}))
    common.emit(findings)


if __name__ == "__main__":
    main()

"""Spike 1: forward, backward and Adam of a Llama on a PyTorch without CUDA, six ways.

    python spike1_fake_cuda.py [--small] [--json]     all ways, one child process each
    python spike1_fake_cuda.py --way kernels          one way, in this process
    python spike1_fake_cuda.py --cuda TORCH STUBS     also a CUDA build on stubs (stubs/build.py)

Ways: `bare` fake cuda and nothing else; `late` the guard loaded after `import torch`; `guard` the
guard before it; `kernels` the same with the op identities of a CUDA build; `cpu` fake cpu;
`meta` the meta device with no FakeTensor; `stub-fake` and `stub-real` fake and real cuda tensors
of a CUDA build of PyTorch over a CUDA runtime that does nothing. The model is Llama-8B cut to one
layer, bf16, one sequence of 8192 tokens (`--small`: a toy), AdamW fused.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import common
import guard

WAYS = ("bare", "late", "guard", "kernels", "cpu", "meta")


def prepare(way: str) -> str:
    """Does what `way` needs before and after `import torch`; returns the device."""
    if way in ("guard", "kernels"):
        status = guard.preload()
    import torch  # noqa: F401 - here, because the order is what is being tried

    if way == "late":
        status = guard.preload()
        print(f"guard status {status}", file=sys.stderr)
    if way in ("late", "guard", "kernels"):
        from guard import kernels, names

        names.install_names()
        if way == "kernels":
            kernels.install_kernels()
    if way == "stub-fake":
        from torch._subclasses.fake_tensor import FakeTensorMode

        FakeTensorMode.avoid_device_init = property(lambda self: True)  # type: ignore[assignment]
    return way if way in ("cpu", "meta") else "cuda"


def saved_bytes(step: Any, owned: set[int]) -> int:
    """Bytes of distinct storages saved for backward in `step()`, parameters apart."""
    import torch

    kept: dict[int, torch.UntypedStorage] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        storage = t.untyped_storage()
        if storage._cdata not in owned:
            kept[storage._cdata] = storage
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        step()
    return sum(s.nbytes() for s in kept.values())


def optimizer_of(model: Any) -> tuple[Any, str]:
    """Fused AdamW, or what this device allows."""
    import torch

    try:
        return torch.optim.AdamW(model.parameters(), fused=True), "fused"
    except RuntimeError as error:
        return torch.optim.AdamW(model.parameters()), f"not fused: {common.brief(error)}"


def run(way: str, small: bool) -> dict[str, Any]:
    """One way: counts per phase, attention and optimizer ops, saved bytes, seconds."""
    device = prepare(way)
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import llama
    from record import Recorder

    config = llama.SMALL if small else llama.LLAMA_8B.with_layers(1)
    torch.set_default_dtype(torch.bfloat16)
    fake = contextlib.nullcontext() if way in ("meta", "stub-real") else FakeTensorMode()
    with fake, torch.device(device):
        model = llama.Llama(config, device)
        tokens = torch.zeros(1, config.seq, dtype=torch.int64)
        optimizer, kind = optimizer_of(model)
        owned = {t.untyped_storage()._cdata for t in (*model.parameters(), tokens)}
        saved = saved_bytes(lambda: llama.loss_of(model(tokens), tokens), owned)
        with common.clock() as time, Recorder() as recorder:
            loss = llama.loss_of(model(tokens), tokens)
            forward = len(recorder.trace.entries)
            loss.backward()
            backward = len(recorder.trace.entries)
            try:
                optimizer.step()
            except Exception as error:  # a finding of its own: say it, keep the rest
                kind += f"; step failed: {common.brief(error)}"
    entries = recorder.trace.entries
    phases = (entries[:forward], entries[forward:backward], entries[backward:])
    real = [[e.name for e in p if e.what == "op" and not e.view] for p in phases]
    names = Counter(name for phase in real for name in phase)
    attention = sorted(n for n in names if "attention" in n) or ["math: bmm, softmax, bmm"]
    return {
        "way": way,
        "torch": torch.__version__,
        "ops": [len(p) for p in real],
        "attention": attention,
        "norm": sorted(n for n in names if "norm" in n) or ["decomposed"],
        "silu": "silu_backward" if names["aten::silu_backward"] else "silu_backward decomposed",
        "adam": sorted(n for n in {*real[2]} if "adam" in n or "foreach" in n) or [kind],
        "saved_MB": round(saved / 1e6, 1),
        "peak_MB": round(recorder.trace.peak_bytes() / 1e6, 1),
        "cpu_seconds": round(time.cpu, 2),
    }


def child(way: str, small: bool, extra: dict[str, str] | None = None) -> dict[str, Any]:
    """Runs one way in a process of its own, since some abort."""
    command = [sys.executable, __file__, "--way", way, "--json"] + ["--small"] * small
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, **(extra or {})},
    )
    if done.returncode == 0:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    lines = [line for line in done.stderr.splitlines() if "what():" in line or "Error:" in line]
    status = [line for line in done.stderr.splitlines() if line.startswith("guard status")]
    return {"way": way, "exit": done.returncode, "error": [*status, *lines[:2]]}


def main() -> None:
    """One way, or all."""
    small = "--small" in sys.argv
    if "--way" in sys.argv:
        print(json.dumps(run(sys.argv[sys.argv.index("--way") + 1], small)))
        return
    results = [child(way, small) for way in WAYS]
    if "--cuda" in sys.argv:
        torch, stubs = sys.argv[sys.argv.index("--cuda") + 1 :][:2]
        extra = {"PYTHONPATH": torch, "LD_LIBRARY_PATH": stubs}
        results += [child(way, small, extra) for way in ("stub-fake", "stub-real")]
    common.emit({"ways": results})


if __name__ == "__main__":
    main()

"""Spike 4: seconds and MB to trace one rank of a 70B and a 405B model; the cost of the hook per op.

    python spike4_pace.py [--model 70b|405b|8b] [--layers N] [--json]
    python spike4_pace.py --hook               what each layer of the machinery costs per op

One rank of TP8 (DTensor, sequence parallel) x PP x DP: the model is one middle pipeline stage of
`layers` layers (70b: 80 layers over PP 4, so 20; 405b: 126 over PP 8 and rounded up, 16), one
micro-batch of 8192 tokens in bf16, forward, backward and fused AdamW over the stage. Seconds are
processor time of all threads.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import common

common.start("cuda")

import torch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import llama  # noqa: E402
from record import Recorder  # noqa: E402
from spike2_parallel import tensor_parallel  # noqa: E402

MODELS = {"8b": (llama.LLAMA_8B, 8), "70b": (llama.LLAMA_70B, 20), "405b": (llama.LLAMA_405B, 16)}


class Empty(TorchDispatchMode):
    """A dispatch mode that does nothing but count."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Counts and passes on."""
        self.calls += func._schema.name != "prim::device"
        return func(*args, **(kwargs or {}))


def trace_rank(name: str, layers: int) -> dict[str, Any]:
    """Builds and traces the stage; the second micro-batch shows the pace with warm caches."""
    config = MODELS[name][0].with_layers(layers)
    common.fake_job(0, 8)
    mesh = init_device_mesh("cuda", (8,))
    torch.set_default_dtype(torch.bfloat16)
    before = common.rss_mb()
    with FakeTensorMode(), torch.device("cuda"):
        with common.clock() as build:
            model = llama.Llama(config, "cuda", first=False, last=False)
            for layer in model.layers:
                shard(layer, mesh)
            optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        x = torch.zeros(1, config.seq // 8, config.hidden, requires_grad=True)
        seconds, recorder = [], Recorder()
        for _ in range(2):
            recorder = Recorder()
            with common.clock() as step, recorder:
                y = model(x)
                y.backward(torch.zeros_like(y))
            seconds.append(round(step.cpu, 2))
        with common.clock() as update, recorder:
            optimizer.step()
    ops = len(recorder.trace.of("op"))
    return {
        "model": name,
        "layers": layers,
        "parameters_of_rank": sum(p.to_local().numel() for p in model.parameters()),
        "build_cpu_s": round(build.cpu, 2),
        "first_microbatch_cpu_s": seconds[0],
        "next_microbatch_cpu_s": seconds[1],
        "optimizer_cpu_s": round(update.cpu, 2),
        "ops": ops,
        "entries": len(recorder.trace.entries),
        "comms": len(recorder.trace.of("comm")),
        "ops_per_cpu_s": round(ops / (seconds[1] + update.cpu)),
        "rss_growth_MB": round(common.rss_mb() - before),
        "peak_rss_MB": round(common.peak_rss_mb()),
        "device_peak_GB": round(recorder.trace.peak_bytes() / 1e9, 2),
    }


def shard(layer: torch.nn.Module, mesh: Any) -> None:
    """Sequence-parallel TP of one layer, by spike 2's plan."""
    holder = torch.nn.Module()
    holder.layers = torch.nn.ModuleList([layer])
    with contextlib.suppress(ValueError):  # the holder has no embedding and no head to shard
        tensor_parallel(holder, mesh, sequence=True)


def hook_cost() -> dict[str, Any]:
    """Microseconds per op of each substrate, bare, under an empty mode and under the recorder."""
    config = llama.SMALL
    torch.set_default_dtype(torch.bfloat16)
    result: dict[str, Any] = {}

    def steps(device: str, mode: Any, repeat: int = 10) -> float:
        model = llama.Llama(config, device)
        tokens = torch.zeros(1, config.seq, dtype=torch.int64)
        llama.loss_of(model(tokens), tokens).backward()
        with mode, common.clock() as time:
            for _ in range(repeat):
                llama.loss_of(model(tokens), tokens).backward()
        return time.cpu / repeat * 1e6

    for substrate in ("fake cuda", "meta"):
        fake = FakeTensorMode() if substrate == "fake cuda" else contextlib.nullcontext()
        device = "cuda" if substrate == "fake cuda" else "meta"
        with fake, torch.device(device):
            count = Empty()
            steps(device, count, 1)
            bare = steps(device, contextlib.nullcontext())
            result[substrate] = {
                "ops": count.calls,
                "bare_us": round(bare / count.calls, 1),
                "empty_mode_us": round(steps(device, Empty()) / count.calls, 1),
                "recorder_us": round(steps(device, Recorder()) / count.calls, 1),
                "recorder_no_memory_us": round(
                    steps(device, Recorder(memory=False)) / count.calls, 1
                ),
            }
    return result


def main() -> None:
    """One model, or the cost of the hook."""
    if "--hook" in sys.argv:
        common.emit(hook_cost())
        return
    name = sys.argv[sys.argv.index("--model") + 1] if "--model" in sys.argv else "70b"
    layers = MODELS[name][1]
    if "--layers" in sys.argv:
        layers = int(sys.argv[sys.argv.index("--layers") + 1])
    common.emit(trace_rank(name, layers))


if __name__ == "__main__":
    main()

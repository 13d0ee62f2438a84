#!/usr/bin/env python3
"""Item 4: launch costs: host time per operator, device gaps, CUDA graphs, a kernel's floor.

path `host`: host time to issue one launch, the device idle at the start and the queue never full;
`device`: start-to-start time of back-to-back launches on the device; `roundtrip`: issue one, then
wait for it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from torch.nn import functional as F

from kit import runner
from kit.device import Device
from kit.errors import Refused
from kit.layers import Layer
from kit.runner import Case, Context, Item, Measured
from kit.schemas import Row
from kit.timing import Call, Timing, summarise

REPEATS = 15
HOST_COUNT = 200  # launches per host sample: below the queue's depth of about 1,000 kernels
GRAPH_NODES = (1, 10, 100, 1000)


def operators(where: torch.device) -> dict[str, Call]:
    """Operators on tensors so small that only launching them takes time."""
    dtype = torch.bfloat16
    x, w = (
        torch.randn(16, 64, device=where, dtype=dtype),
        torch.randn(64, 64, device=where, dtype=dtype),
    )
    out = torch.empty_like(x)
    q = torch.randn(1, 1, 16, 16, device=where, dtype=dtype)
    g = torch.randn(16, 64, device=where, dtype=dtype, requires_grad=True)
    index = torch.tensor([1, 2], device=where)
    layer = torch.nn.Linear(64, 64, device=where, dtype=dtype)
    parameters = [torch.randn(64, device=where).requires_grad_() for _ in range(8)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    fused = torch.optim.AdamW(parameters, fused=True)
    foreach = torch.optim.AdamW(parameters, foreach=True)

    def forward_backward() -> None:
        layer(g).sum().backward()

    return {
        "add_out": lambda: torch.add(x, x, out=out),
        "add": lambda: x + x,
        "fill": lambda: out.zero_(),
        "view": lambda: x.view(64, 16),
        "empty": lambda: torch.empty(64, 64, device=where),
        "copy": lambda: out.copy_(x),
        "mm": lambda: torch.mm(x, w),
        "linear": lambda: F.linear(x, w),
        "linear_module": lambda: layer(x),
        "linear_forward_backward": forward_backward,
        "gelu": lambda: F.gelu(x),
        "softmax": lambda: torch.softmax(x, -1),
        "layer_norm": lambda: F.layer_norm(x, (64,)),
        "rms_norm": lambda: F.rms_norm(x, (64,)),
        "sdpa": lambda: F.scaled_dot_product_attention(q, q, q),
        "cat": lambda: torch.cat((x, x)),
        "index_select": lambda: x.index_select(0, index),
        "adamw_fused_8": fused.step,
        "adamw_foreach_8": foreach.step,
    }


def _cases(names: list[tuple[str, str, int]], mode: str) -> list[Case]:
    result = []
    for i, (kernel, path, count) in enumerate(names):
        key: Row = {"op": "launch", "kernel": kernel, "path": path, "count": count, "mode": mode}
        result.append(Case(key, 1000.0 - i, 10.0, path, cost_s=0.4))
    return result


def cases(layers: list[Layer], device: Device | None, options: argparse.Namespace) -> list[Case]:
    """A fixed list: host and device paths of each operator, graphs, round trips, events."""
    count = 5 if options.tiny else HOST_COUNT
    names = [(n, "host", count) for n in operators(torch.device("cpu"))]
    names += [(n, "device", count) for n in ("add_out", "fill", "mm", "copy", "layer_norm")]
    names += [("sleep_floor", "device", count)]
    for nodes in (1, 4) if options.tiny else GRAPH_NODES:
        names += [(f"graph_add_{nodes}", "host", 20), (f"graph_add_{nodes}", "device", nodes)]
    names += [
        ("add_out", "roundtrip", 1),
        ("synchronize", "roundtrip", 1),
        ("item", "roundtrip", 1),
    ]
    names += [("event_record", "host", count), ("event_wait", "host", count)]
    return _cases(names, options.mode)


def measure(context: Context, case: Case) -> Measured:
    """Times one launch path."""
    kernel, path, count = str(case.key["kernel"]), str(case.key["path"]), int(case.key["count"])
    if "operators" not in context.cache:
        context.cache["operators"] = operators(context.device.torch_device)
    known = context.cache["operators"]
    assert isinstance(known, dict)
    if kernel.startswith("graph_add_"):
        timing = _graph(context, int(kernel.rsplit("_", 1)[1]), path)
    elif path == "roundtrip":
        timing = _roundtrip(context, known, kernel)
    elif path == "host":
        call = known.get(kernel) or _stream_call(context.device, kernel)
        timing = _of(context.bench.host_time(call, count, 3 if context.device.tiny else REPEATS))
    else:
        call = known.get(kernel) or (lambda: context.device.hold(0.001))
        timing = context.bench.time([call])
    return [("launch", {**case.key, **timing.columns(context.bench.mode)})]


def _of(samples: list[float]) -> Timing:
    median, q1, q3 = summarise([max(s, 1e-3) for s in samples])
    return Timing(median, q1, q3, len(samples))


def _stream_call(device: Device, kernel: str) -> Call:
    """Recording an event, or making the stream wait for one."""
    if device.kind != "cuda":
        event = device.event()
        return event.record
    stream, event = torch.cuda.current_stream(), torch.cuda.Event()
    event.record()
    return event.record if kernel == "event_record" else lambda: stream.wait_event(event)


def _roundtrip(context: Context, known: dict[str, Call], kernel: str) -> Timing:
    """Host time from issuing to knowing that it ended."""
    flag = torch.ones((), device=context.device.torch_device)
    wait = context.device.synchronize
    actions: dict[str, Callable[[], Any]] = {
        "synchronize": wait,
        "item": flag.item,
        "add_out": lambda: (known["add_out"](), wait()),
    }
    action = actions[kernel]
    action()
    samples = []
    for _ in range(3 if context.device.tiny else 100):
        wait()
        start = time.perf_counter()
        action()
        samples.append((time.perf_counter() - start) * 1e6)
    return _of(samples)


def _graph(context: Context, nodes: int, path: str) -> Timing:
    """A graph of `nodes` small kernels: host time per replay, device time per node."""
    device = context.device
    x = torch.randn(16, 64, device=device.torch_device)
    out = torch.empty_like(x)

    def body() -> None:
        for _ in range(nodes):
            torch.add(x, x, out=out)

    if device.kind == "cuda":
        body()
        device.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                body()
        except RuntimeError as error:
            raise Refused(f"capture: {error}") from error
        replay: Call = graph.replay
    else:
        replay = body  # no graphs on the CPU: the same loop, replayed by hand
    if path == "host":
        return _of(context.bench.host_time(replay, 20, 3 if device.tiny else REPEATS))
    t = context.bench.time([replay])
    return Timing(
        max(t.time_us / nodes, 1e-3),
        max(t.time_us_q1 / nodes, 1e-3),
        max(t.time_us_q3 / nodes, 1e-3),
        t.samples,
        t.starved,
    )


ITEM = Item(
    "launch", "Launch costs of eager operators and CUDA graphs.", ("launch",), cases, measure
)

if __name__ == "__main__":
    sys.exit(runner.main(ITEM))

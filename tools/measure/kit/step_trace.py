"""What a step's profile and allocator history come to, where whole lists would be too long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import torch

from kit.device import Device
from kit.schemas import Row
from kit.timing import summarise

PARTS = ("forward", "backward", "optimizer")
MOST_KERNELS = 45  # the rest goes into one row
MOST_BLOCKS = 40


def part_rows(key: Row, marks: list[list[Any]], host_us: list[list[float]]) -> list[Row]:
    """Rows of a step (start to start, so with whatever the device waited for) and of its parts.

    `marks`: of each step, events before, between and behind its parts; `host_us`: of each step,
    the host's time to issue each part.
    """
    spans = {"step": [a[0].elapsed_time(b[0]) * 1e3 for a, b in pairwise(marks)]}
    for i, part in enumerate(PARTS):
        spans[part] = [m[i].elapsed_time(m[i + 1]) * 1e3 for m in marks]
    rows: list[Row] = []
    for part in (*PARTS, "step"):
        at = PARTS.index(part) if part in PARTS else -1
        host = [sum(h) if at < 0 else h[at] for h in host_us]
        median, q1, q3 = summarise(spans[part])
        times = {"time_us": median, "time_us_q1": q1, "time_us_q3": q3}
        samples = {"host_us": summarise(host)[0], "samples": len(spans[part])}
        rows.append({**key, "part": part, **times, **samples})
    return rows


def profiled(step: Callable[[], None], device: Device) -> list[Any]:
    """One step's kernels (on the CPU: operators) as the profiler's events, in no order."""
    activity = torch.profiler.ProfilerActivity
    kind = "CUDA" if device.kind == "cuda" else "CPU"
    with torch.profiler.profile(activities=[getattr(activity, kind)]) as p:
        step()
        device.synchronize()
    results = p.profiler.kineto_results if p.profiler else None
    wanted = getattr(torch.autograd.DeviceType, kind)
    return [
        e
        for e in (results.events() if results else [])
        if e.device_type() == wanted
        and e.duration_ns() > 0
        and not e.name().startswith(("Optimizer.", "ProfilerStep"))
    ]


def kernels(step: Callable[[], None], device: Device) -> list[tuple[str, float, float]]:
    """One step's kernels (on the CPU: operators) as (name, start, duration) in us."""
    return [
        (e.name() or "unnamed", e.start_ns() / 1e3, e.duration_ns() / 1e3)
        for e in profiled(step, device)
    ]


def busy_us(events: Iterable[tuple[str, float, float]]) -> float:
    """Time in which at least one kernel ran."""
    total = end = 0.0
    for _, start, duration in sorted(events, key=lambda e: e[1]):
        total += max(0.0, start + duration - max(start, end))
        end = max(end, start + duration)
    return total


def by_name(events: Iterable[tuple[str, float, float]], label: str) -> list[Row]:
    """Kernels of one name together, those with most time first."""
    count: Counter[str] = Counter()
    time: Counter[str] = Counter()
    for name, _, duration in events:
        short = name[:160]
        count[short] += 1
        time[short] += duration  # type: ignore[assignment]
    order = sorted(time, key=lambda n: -time[n])
    rows = [(f"{i}", n, count[n], float(time[n])) for i, n in enumerate(order[:MOST_KERNELS])]
    rest = order[MOST_KERNELS:]
    if rest:
        rows.append(("rest", "all others", sum(count[n] for n in rest), sum(time[n] for n in rest)))
    return [
        {
            "op": "finetune_kernel",
            "model": label,
            "index": i,
            "name": name,
            "count": number,
            "total_us": total,
        }
        for i, (_, name, number, total) in enumerate(rows)
    ]


def peak_blocks(step: Callable[[], None], device: Device, label: str) -> list[Row]:
    """Sizes of the blocks alive at a step's peak that this step made, and bytes from before it."""
    if device.kind != "cuda":
        return []
    before = torch.cuda.memory_allocated()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=400_000)
    try:
        step()
        device.synchronize()
        traces = torch.cuda.memory._snapshot()["device_traces"]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    return blocks_at_peak(traces[0] if traces else [], before, label)


def blocks_at_peak(trace: list[dict[str, Any]], before: int, label: str) -> list[Row]:
    """Replays a history; blocks freed in it that it did not see made count as from before."""
    alive: dict[int, int] = {}
    now = peak = before
    at_peak: dict[int, int] = {}
    old = old_at_peak = before
    grown = False
    for entry in trace:
        address, size = int(entry.get("addr", 0)), int(entry.get("size", 0))
        if entry["action"] == "alloc":
            alive[address] = size
            now += size
            grown = True
        elif entry["action"] == "free_completed":
            if grown and now > peak:  # a peak ends where something is freed
                peak, at_peak, old_at_peak = now, dict(alive), old
            grown = False
            if address in alive:
                now -= alive.pop(address)
            else:
                now -= size
                old -= size
    if now > peak:
        at_peak, old_at_peak = dict(alive), old
    sizes = Counter(at_peak.values())
    order = sorted(sizes, key=lambda s: -s * sizes[s])
    listed = [(old_at_peak, 1, "before")]
    listed += [(s, sizes[s], "made") for s in order[:MOST_BLOCKS]]
    rest = sum(s * sizes[s] for s in order[MOST_BLOCKS:])
    listed += [(rest, 1, "rest")] if rest else []
    return [
        {
            "op": "finetune_block",
            "model": label,
            "index": i,
            "what": what,
            "size_bytes": size,
            "count": count,
        }
        for i, (size, count, what) in enumerate(listed)
    ]

"""The timing pass: what each op of a trace took on a GPU, from a Kineto profile of the same step.

A trace says in which order a program calls ops; a profile says when each kernel ran and which call
launched it. Both come from one program, so the profile's calls, read in order, contain the trace's:
`join` walks the profile's calls from the outside in, takes the first that the trace knows as well,
and lines the two sequences up. A kernel belongs to the innermost such call around its launch. On a
profile without kernels (a CPU's) such calls stand in for kernels, so that all of this runs without
a GPU.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import Any

from orrery_trace.errors import TraceError
from orrery_trace.trace import TABLES, Line, Trace, Writer, lines_of, read

_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
STEP = "ProfilerStep"
MOST_GAP_US = 4.0  # between a kernel and one that waits for it in its stream; an H200: 1 to 2.5
LEAST_SHARE = 0.99  # of the device's time that must belong to ops of the trace


@dataclass
class Call:
    """One call of an op in a profile, with the calls inside it."""

    name: str
    start: float  # microseconds
    end: float
    parent: Call | None = None
    inner: list[Call] = field(default_factory=list)


@dataclass
class Kernel:
    """One kernel, copy or fill of the device."""

    name: str
    start: float
    microseconds: float
    stream: int
    call: Call | None  # innermost op around its launch; None where the profile names none


@dataclass
class Step:
    """One marked stretch of a profile."""

    roots: list[Call]
    kernels: list[Kernel]


@dataclass
class Profile:
    """What a Kineto profile says of training steps."""

    steps: list[Step]
    gpu: str  # its name, as the driver gives it; empty on a CPU


@dataclass
class Joined:
    """Kernel times of a trace's ops, by the place of the line in `Trace.lines`.

    `nanoseconds` count the gap behind each kernel, in which the device starts the next.
    """

    nanoseconds: dict[int, int]
    kernels: dict[int, int]
    total_ns: int
    left: Counter[str]  # nanoseconds that no op of the trace owns, by kernel and call
    missing: list[str]  # ops of the trace that the profile has no call for

    @property
    def share(self) -> float:
        """Part of the device's time that is attributed."""
        return 1.0 - sum(self.left.values()) / self.total_ns if self.total_ns else 0.0


def read_profile(path: str | Path, mark: str = STEP) -> Profile:
    """The stretches that the program named `mark` with `record_function`, in order.

    PyTorch's profiler marks its steps `ProfilerStep#7`, which is the default. A kernel belongs to
    the stretch in which it was launched, whenever it ran.
    """
    path = Path(path)
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            whole = json.load(file)
            events = whole["traceEvents"]
            gpu = next((str(d["name"]) for d in whole.get("deviceProperties", [])), "")
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{path}: no Kineto profile: {error!r}") from error
    timed = [e for e in events if e.get("ph") == "X" and "dur" in e]
    marks = sorted(
        (e["ts"], e["ts"] + e["dur"])
        for e in timed
        if e["name"].partition("#")[0] == mark and e.get("cat") in ("user_annotation", "cpu_op")
    )
    if not marks:
        raise TraceError(f"{path}: nothing in it is marked {mark!r}")
    threads = _threads(timed)
    launches = {
        e["args"]["correlation"]: (e["tid"], e["ts"])
        for e in timed
        if e.get("cat") in _LAUNCHES and "correlation" in e.get("args", {})
    }
    steps = [Step([], []) for _ in marks]
    starts = [start for start, _ in marks]
    for roots in threads.values():
        for call in roots:
            at = bisect_right(starts, call.start) - 1
            if at >= 0 and call.end <= marks[at][1]:
                steps[at].roots.append(call)
    for event in timed:
        if event.get("cat") not in _ON_DEVICE:
            continue
        args = event.get("args", {})
        tid, launched = launches.get(args.get("correlation"), (None, event["ts"]))
        at = bisect_right(starts, launched) - 1
        if at < 0 or launched > marks[at][1]:
            continue
        launcher = _around(threads.get(tid, []), launched)
        stream = args.get("stream", 0)
        kernel = Kernel(event["name"], event["ts"], event["dur"], stream, launcher)
        steps[at].kernels.append(kernel)
    for step in steps:
        step.roots.sort(key=lambda call: call.start)
        step.kernels.sort(key=lambda kernel: kernel.start)
    return Profile(steps, gpu)


def _threads(events: list[Line]) -> dict[Any, list[Call]]:
    """The outermost calls of each thread, in order, each with the calls inside it."""
    threads: dict[Any, list[Call]] = {}
    open_calls: dict[Any, list[Call]] = {}
    calls = [e for e in events if e.get("cat") == "cpu_op"]
    for event in sorted(calls, key=lambda e: (e["ts"], -e["dur"])):
        call = Call(event["name"], event["ts"], event["ts"] + event["dur"])
        stack = open_calls.setdefault(event["tid"], [])
        while stack and stack[-1].end <= call.start:
            stack.pop()
        if stack:
            call.parent = stack[-1]
            stack[-1].inner.append(call)
        else:
            threads.setdefault(event["tid"], []).append(call)
        stack.append(call)
    return threads


def _around(calls: list[Call], time: float) -> Call | None:
    """The innermost call that runs at `time`."""
    found = None
    while True:
        at = bisect_right(calls, time, key=lambda call: call.start) - 1
        if at < 0 or calls[at].end < time:
            return found
        found = calls[at]
        calls = found.inner


# Autograd works in place where it may, and never under a dispatch mode, as the recorder is one.
_SAME = {"aten::_index_put_impl_": "aten::index_put", "aten::new_zeros": "aten::zeros"}


def _plain(name: str) -> str:
    """The op's name without the underscore of its form in place."""
    return _SAME.get(name, name.rstrip("_"))


def _known(calls: list[Call], names: set[str]) -> Iterator[Call]:
    """The outermost calls of these names; not one that only casts for a call of its own name."""
    for call in calls:
        wraps = any(inner.name == call.name for inner in call.inner)
        if _plain(call.name) in names and not wraps:
            yield call
        else:
            yield from _known(call.inner, names)


def join(trace: Trace, step: Step) -> Joined:
    """Gives each op of the trace's step the time of its kernels in `step`."""
    places = [
        at
        for at, line in enumerate(trace.lines)
        if line["t"] == "op" and trace.signatures[line["sig"]].get("kernel", True)
    ]
    names = [_plain(trace.signatures[trace.lines[at]["sig"]]["name"]) for at in places]
    calls = list(_known(step.roots, set(names)))
    called = [_plain(call.name) for call in calls]
    place_of: dict[int, int] = {}
    found = [False] * len(places)
    blocks = [(0, 0, len(names))]
    if names != called:
        if step.kernels:  # a checkpoint ends recomputing by an exception within a call
            busy = _around_kernels(step)
            calls = [call for call in calls if id(call) in busy]
            called = [_plain(call.name) for call in calls]
        matcher = SequenceMatcher(None, names, called, autojunk=False)
        blocks = [(block.a, block.b, block.size) for block in matcher.get_matching_blocks()]
    for mine, theirs, count in blocks:
        for i in range(count):
            place_of[id(calls[theirs + i])] = places[mine + i]
            found[mine + i] = True
    joined = Joined({}, {}, 0, Counter(), [])
    joined.missing = [name for name, known in zip(names, found, strict=True) if not known]
    kernels = step.kernels or list(_stand_ins(calls))
    gaps = _gaps(step.kernels) if step.kernels else [0] * len(kernels)
    for kernel, gap in zip(kernels, gaps, strict=True):
        spent = round(kernel.microseconds * 1000)
        joined.total_ns += spent
        call = kernel.call
        while call is not None and id(call) not in place_of:
            call = call.parent
        if call is None:
            inner = kernel.call.name if kernel.call is not None else "no op"
            joined.left[f"{kernel.name[:60]} by {inner}"] += spent
            continue
        at = place_of[id(call)]
        joined.nanoseconds[at] = joined.nanoseconds.get(at, 0) + spent + gap
        joined.kernels[at] = joined.kernels.get(at, 0) + 1
    return joined


def _gaps(kernels: list[Kernel]) -> list[int]:
    """Nanoseconds from each kernel's end to the start of the next one that was waiting for it.

    Where the next came later, the device waited for the host: the typical gap stands in.
    """
    after: list[int | None] = []
    for kernel, following in pairwise(kernels):
        gap = following.start - kernel.start - kernel.microseconds
        queued = following.stream == kernel.stream and 0 <= gap < MOST_GAP_US
        after.append(round(gap * 1000) if queued else None)
    after.append(None)
    known = sorted(gap for gap in after if gap is not None)
    typical_gap = known[(len(known) - 1) // 2] if known else 0
    return [typical_gap if gap is None else gap for gap in after]


def _around_kernels(step: Step) -> set[int]:
    """Calls that launched something, by id."""
    busy: set[int] = set()
    for kernel in step.kernels:
        call = kernel.call
        while call is not None and id(call) not in busy:
            busy.add(id(call))
            call = call.parent
    return busy


def _stand_ins(calls: list[Call]) -> Iterator[Kernel]:
    """Without a device, each call that the trace might know is a kernel of its own duration."""
    for call in calls:
        yield Kernel(call.name, call.start, call.end - call.start, 0, call)


def typical(joined: list[Joined]) -> dict[int, int]:
    """Nanoseconds of each op: the median over steps (the lower one of an even number)."""
    times: dict[int, list[int]] = {}
    for one in joined:
        for at, spent in one.nanoseconds.items():
            times.setdefault(at, []).append(spent)
    return {at: sorted(spent)[(len(spent) - 1) // 2] for at, spent in times.items()}


def add_times(path: str | Path, profile: Profile) -> list[Joined]:
    """Writes the time of each op's kernels into a rank's file (key `ns`), and the GPU's name.

    An op without a kernel of its own in the profile takes 0. Refuses a profile of a CPU, and one
    of another program: too much of its device time belongs to no op of the trace.
    """
    path = Path(path)
    trace = read(path)
    if not profile.gpu:
        raise TraceError("the profile has no GPU: profile with ProfilerActivity.CUDA")
    joined = [join(trace, step) for step in profile.steps]
    share = min(one.share for one in joined)
    if share < LEAST_SHARE:
        left = joined[0].left.most_common(5)
        raise TraceError(
            f"{path}: {100 * share:.1f} % of the profile's device time belongs to ops of it, "
            f"and {100 * LEAST_SHARE:.0f} % are needed; it does not know "
            + "; ".join(f"{name} ({spent / 1000:.1f} us)" for name, spent in left)
        )
    spent = typical(joined)
    at = -1  # of the step's lines, as in Trace.lines
    writer = Writer(path, {k: v for k, v in trace.header.items() if k not in ("t", "version")}
                    | {"gpu": profile.gpu})  # fmt: skip
    try:
        for line in lines_of(path)[1:]:
            if line["t"] == "step":
                at = 0
            elif line["t"] == "end":
                kept = {k: v for k, v in line.items() if k not in ("t", "counts")}
                writer.close(**kept)
                break
            elif at >= 0 and line["t"] not in TABLES:
                if line["t"] == "op":
                    line.pop("ns", None)
                    if trace.signatures[line["sig"]].get("kernel", True):
                        line["ns"] = spent.get(at, 0)
                at += 1
            writer.line(line)
    finally:
        writer.discard()
    return joined

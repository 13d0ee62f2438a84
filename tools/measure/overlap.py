#!/usr/bin/env python3
"""Item 5: kernels alone and beside a companion: resident copy or reduce kernels, copy engines.

For each subject (a product, an attention, a row-wise kernel) and repeat: alone, then beside each
companion. time_us is the subject's time per call while the companion runs throughout. With --ncu
the counters of each subject alone go to ncu.csv.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch

import attention
import gemm
import memory_bound
from kit import ncu, runner
from kit.budget import Budget
from kit.companion import Companion, Load
from kit.device import Device
from kit.errors import Refused
from kit.layers import Layer
from kit.runner import Case, Context, Item, Measured
from kit.schemas import Row
from kit.tables import load
from kit.timing import Call, Options, Timing

REPEATS = 3
COUNTS = {"gemm": 26, "attention": 8, "memory_bound": 12}
LOADS = (
    *(Load("copy_kernel", n) for n in (1, 2, 4, 8, 16, 24, 32)),
    *(Load("copy_kernel", 16, r) for r in (50.0, 150.0, 350.0)),
    *(Load("reduce_kernel", n) for n in (4, 16, 32)),
    Load("reduce_kernel", 16, 150.0),
    *(Load(f"memcpy_{d}") for d in ("h2d", "d2h", "d2d")),
)
TINY_LOADS = (
    Load("copy_kernel", 2),
    Load("copy_kernel", 2, 50.0),
    Load("reduce_kernel", 1),
    Load("memcpy_h2d"),
)
LEAST_US, MOST_US = 15.0, 20_000.0  # subjects worth overlapping


def _plain(table: str, key: dict[str, str | int | float]) -> dict[str, str | int | float]:
    """dtype, kernel and shape text of a subject from its own table's key."""
    sizes: tuple[str, ...]
    if table == "gemm":
        kernel, sizes = str(key["layout"]), ("m", "n", "k", "groups")
    elif table == "attention":
        kernel, sizes = f"{key['kernel']}_{key['pass']}", attention.KEYS
    else:
        kernel, sizes = str(key["kernel"]), ("rows", "cols")
    return {
        "dtype": key["dtype"],
        "subject": table,
        "kernel": kernel,
        "shape": ";".join(f"{s}={key[s]}" for s in sizes),
    }


def subjects(layers: list[Layer], device: Device | None, tiny: bool) -> list[tuple[Case, str]]:
    """The most valuable cases of items 1 to 3 that last long enough to meet a companion."""
    chosen: list[tuple[Case, str]] = []
    for module, count in (
        (gemm, COUNTS["gemm"]),
        (attention, COUNTS["attention"]),
        (memory_bound, COUNTS["memory_bound"]),
    ):
        name = module.__name__
        plain = argparse.Namespace(tiny=tiny, mode="hot", limit=0)
        listed = runner.select(module.ITEM, module.cases(layers, device, plain), plain)
        if tiny:
            chosen += [(c, name) for c in listed if "triton" not in str(c.key.get("kernel"))][:2]
            continue
        long = [c for c in listed if LEAST_US <= c.est_us <= MOST_US]
        chosen += [(c, name) for c in _varied(long, count, name)]
    return chosen


def _varied(listed: Iterable[Case], count: int, table: str) -> list[Case]:
    """The first `count`, but no kernel of one kind more than a third of them."""
    used: dict[str, int] = {}
    result: list[Case] = []
    for case in listed:
        kind = case.group if table != "memory_bound" else str(case.key["kernel"])
        if len(result) < count and used.get(kind, 0) < (
            1 if table == "memory_bound" else -(-count // 3)
        ):
            used[kind] = used.get(kind, 0) + 1
            result.append(case)
    return result


def loads(tiny: bool) -> tuple[Load, ...]:
    """Companions of a subject."""
    return TINY_LOADS if tiny else LOADS


def cases(layers: list[Layer], device: Device | None, options: argparse.Namespace) -> list[Case]:
    """All subjects once, then all again: a case is one subject and repeat with every companion."""
    result: list[Case] = []
    repeats = 1 if options.tiny else REPEATS
    for repeat in range(1, repeats + 1):
        for i, (case, table) in enumerate(subjects(layers, device, options.tiny)):
            key: Row = {
                "op": "overlap",
                **_plain(table, case.key),
                "beside": "none",
                "ctas": 0,
                "rate_set_GBps": 0.0,
                "repeat": repeat,
                "mode": options.mode,
            }
            one = 0.045 + 12 * case.est_us / 1e6
            cost = 0.3 + len(loads(options.tiny)) * (one + 0.02)
            result.append(
                Case(
                    key,
                    1000.0 * (REPEATS - repeat) - i,
                    case.est_us,
                    f"{table}, repeat {repeat}",
                    cost_s=cost,
                )
            )
    return result


def subject_calls(context: Context, key: dict[str, str | int | float]) -> list[Call]:
    """Calls of the subject behind an overlap key."""
    sizes = dict(part.split("=") for part in str(key["shape"]).split(";"))
    table, kernel = str(key["subject"]), str(key["kernel"])
    own: dict[str, str | int | float] = {"dtype": key["dtype"], **sizes}
    if table == "gemm":
        return gemm.build(gemm.gemm_of({**own, "layout": kernel}), context)
    if table == "attention":
        name, _, direction = kernel.rpartition("_")
        return attention.build({**own, "kernel": name, "pass": direction}, context)
    return memory_bound.build({**own, "kernel": kernel}, context)


def measure(context: Context, case: Case) -> Measured:
    """Times one subject beside every companion, and alone."""
    calls = subject_calls(context, case.key)
    alone = context.bench.time(calls)
    rows = []
    for other in loads(context.device.tiny):
        try:
            timing, rate = _beside(context, calls, other, alone)
        except Refused as reason:
            print(f"overlap: {other.kind} of {other.ctas}: {reason}", file=sys.stderr)
            continue
        rows.append(_row(case, other, timing, rate))
    rows.append(
        _row(case, Load("none"), alone, 0.0)
    )  # last: its presence says that the case is done
    if _wants_counters(context):
        return [("overlap", r) for r in rows] + _counters(context)
    return [("overlap", r) for r in rows]


def _wants_counters(context: Context) -> bool:
    """Once a run, if asked for, in time, and not there yet."""
    options = context.options
    if not options.ncu or "ncu" in context.cache or not context.budget.fits(options.ncu_s):
        return False
    context.cache["ncu"] = True
    return not load(options.out / "ncu.csv", allow_torn=True).rows


def _row(case: Case, load: Load, timing: Timing, rate: float) -> Row:
    return {
        **case.key,
        "beside": load.kind,
        "ctas": load.ctas,
        "rate_set_GBps": load.rate,
        "rate_got_GBps": rate,
        **timing.columns("hot"),
    }


def _beside(context: Context, calls: list[Call], load: Load, alone: Timing) -> tuple[Timing, float]:
    """Times `calls` while `load` runs; once more with a longer load if it ended too early."""
    o = context.bench.options
    # All device time of one timing (warm-up, span, samples), with room for a threefold slowdown.
    lasting_us = (
        3.0 * (8 * alone.time_us + max(o.target_us, o.min_samples * alone.time_us)) + 10_000.0
    )
    for _ in range(2):
        companion = Companion(load, context.device, context.cache, lasting_us)
        companion.prepare()
        with companion:
            timing = context.bench.time(calls)
        if companion.lasted:
            return timing, companion.rate_got
        lasting_us *= 4
    raise Refused("the companion ended before the kernel")


def _counters(context: Context) -> Measured:
    """Runs all subjects once under ncu."""
    if context.device.kind != "cuda":
        return []
    options = context.options
    script = str(Path(__file__).resolve())
    arguments = [
        "run",
        "--under-ncu",
        "--layers",
        str(options.layers),
        *(["--tiny"] if options.tiny else []),
    ]
    try:
        done = subprocess.run(
            ncu.command(script, arguments),
            capture_output=True,
            text=True,
            timeout=options.ncu_s,
            check=False,
        )
        listed = [
            dict(_plain(t, c.key))
            for c, t in subjects(runner.load_layers(options.layers), context.device, options.tiny)
        ]
        return [("ncu", r) for r in ncu.parse(done.stdout, listed)]
    except (Refused, subprocess.TimeoutExpired) as error:
        print(f"overlap: no counters: {error}", file=sys.stderr)
        return []


def run_under_ncu(argv: list[str]) -> int:
    """The process that ncu watches: each subject once, a marker kernel before it."""
    parser = runner.parser_of(ITEM)
    options = parser.parse_args(argv)
    device = runner.open_device(options.device, options.tiny)
    # ncu saves and restores memory around each kernel: keep the pools small.
    device = replace(device, memory_bytes=device.memory_bytes // 4)
    context = Context(device, runner.Bench(device), options, Budget(options.budget_s))
    for case, table in subjects(runner.load_layers(options.layers), device, options.tiny):
        try:
            key: Row = {**_plain(table, case.key)}
            call = subject_calls(context, key)[0]
            call()
            call()
        except (Refused, RuntimeError):

            def call() -> None:
                return None

        device.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
        device.hold(10)
        call()
        device.synchronize()
        torch.cuda.cudart().cudaProfilerStop()
    return 0


def arguments(parser: argparse.ArgumentParser) -> None:
    """The script's own options."""
    parser.add_argument(
        "--ncu", action="store_true", help="also read hardware counters of each subject"
    )
    parser.add_argument("--ncu-s", type=float, default=120.0, help="seconds that ncu may take")
    parser.add_argument("--under-ncu", action="store_true", help=argparse.SUPPRESS)


ITEM = Item(
    "overlap",
    "Kernels alone and beside resident kernels and copies.",
    ("overlap", "ncu"),
    cases,
    measure,
    arguments=arguments,
    timing=Options(idle_fraction=0.0),
    start_s=30.0,
)

if __name__ == "__main__":
    if "--under-ncu" in sys.argv:
        sys.exit(run_under_ncu(sys.argv[1:]))
    sys.exit(runner.main(ITEM))

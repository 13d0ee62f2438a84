"""What every measuring script does: parse the command line, plan, run by worth, stop in time,
resume.

A script gives an `Item`; `main` does the rest. `plan` prints what would run and how long it should
take; `run` measures the cases that the output does not hold yet, most valuable first, until they or
the budget end.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from kit import header as header_module
from kit.budget import Budget
from kit.device import Device, guarded, open_device
from kit.errors import (
    EXIT_BAD_INPUT,
    EXIT_FAULT,
    EXIT_INTERRUPTED,
    EXIT_OK,
    DeviceLost,
    OutOfMemory,
    Refused,
    UserError,
)
from kit.layers import DEFAULT_PATH, Layer, load_layers
from kit.schemas import TABLES, Row, Value
from kit.tables import Appender
from kit.timing import Bench, Options

RAMP_S = 0.5  # load before the first case, which brings an idle GPU to its clock
CASE_OVERHEAD_S = 0.012  # host work around one case: views, events, quartiles


@dataclass(frozen=True)
class Case:
    """One thing to measure. `key` holds the key columns that identify its (first) row."""

    key: dict[str, Value]
    worth: float
    est_us: float  # of one call, from a roofline
    group: str  # line of the plan
    cost_s: float = 0.0  # seconds, where the samples are no guide
    extra_s: float = 0.0  # seconds besides the samples: compiling, filling


@dataclass
class Context:
    """What `measure` gets."""

    device: Device
    bench: Bench
    options: argparse.Namespace
    budget: Budget
    cache: dict[str, object] = field(default_factory=dict)  # pools, libraries: made once, kept


Measured = list[tuple[str, Row]]  # (table, row)


@dataclass(frozen=True)
class Item:
    """A measuring script: its main table, its cases, how to measure one."""

    name: str
    doc: str
    tables: tuple[str, ...]  # the first one holds the cases' keys
    cases: Callable[[list[Layer], Device | None, argparse.Namespace], list[Case]]
    measure: Callable[[Context, Case], Measured]
    modes: tuple[str, ...] = ("hot",)
    arguments: Callable[[argparse.ArgumentParser], None] | None = None
    timing: Options = Options()
    start_s: float = 15.0  # start-up: import, context, pools, warm-up
    libraries: Callable[[], dict[str, str]] | None = None  # versions that the header names besides


def parser_of(item: Item) -> argparse.ArgumentParser:
    """The command line that all scripts share, plus the script's own."""
    p = argparse.ArgumentParser(description=item.doc)
    p.add_argument("action", nargs="?", choices=("run", "plan"), default="run")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument(
        "--tiny", action="store_true", help="tiny sizes: tries the script, gives no data"
    )
    p.add_argument("--budget-s", type=float, default=540.0, help="seconds this run may take")
    p.add_argument("--out", type=Path, default=Path("measured"), help="folder of the CSV files")
    p.add_argument("--layers", type=Path, default=DEFAULT_PATH, help="layers to take shapes from")
    p.add_argument("--limit", type=int, default=0, help="at most this many cases, 0 = all")
    p.add_argument("--mode", choices=item.modes, default=item.modes[0])
    if "sustained" in item.modes:
        p.add_argument("--heat-s", type=float, default=60.0, help="load before sustained samples")
    if item.arguments:
        item.arguments(p)
    return p


def main(item: Item, argv: Sequence[str] | None = None) -> int:
    """Runs a script to its exit status."""
    options = parser_of(item).parse_args(argv)
    try:
        if not options.budget_s > 0:
            raise UserError(
                "command line",
                "--budget-s",
                options.budget_s,
                "must be over 0",
                "give the seconds that the run may take",
            )
        layers = load_layers(options.layers)
        if options.action == "plan":
            cases = select(item, item.cases(layers, None, options), options)
            print_plan(item, cases, options)
            return EXIT_OK
        return _run(item, layers, options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print(
            "interrupted; rows measured before are kept, the same command goes on", file=sys.stderr
        )
        return EXIT_INTERRUPTED
    except DeviceLost as error:
        print(
            f"error: the device failed: {error}; rows measured before are kept. Run it again: it "
            "resumes",
            file=sys.stderr,
        )
        return EXIT_FAULT
    except OSError as error:
        print(
            f"error: {error.filename or options.out}: {error.strerror}; check --out and the disk",
            file=sys.stderr,
        )
        return EXIT_FAULT


def select(item: Item, cases: list[Case], options: argparse.Namespace) -> list[Case]:
    """Most valuable first (the sort is stable, so equal worth keeps the script's order)."""
    chosen = sorted(cases, key=lambda c: -c.worth)
    keys = [tuple(c.key.items()) for c in chosen]
    assert len(keys) == len(set(keys)), f"{item.name}: two cases with one key"
    return chosen[: options.limit] if options.limit else chosen


def cost_s(item: Item, case: Case, options: argparse.Namespace) -> float:
    """Seconds that a case should take: warm-up, samples, rest, host work."""
    if case.cost_s:
        return case.cost_s
    o = item.timing
    busy = o.busy_us(case.est_us) / 1e6
    fixed = CASE_OVERHEAD_S + case.extra_s
    if options.mode == "sustained":
        return 2 * busy + 0.04 + fixed
    return busy + min(o.max_idle_s, o.idle_fraction * busy) + fixed


def start_s(item: Item, options: argparse.Namespace) -> float:
    """Seconds before the first case."""
    return item.start_s + (options.heat_s if options.mode == "sustained" else 0.0)


def print_plan(item: Item, cases: list[Case], options: argparse.Namespace) -> None:
    """Prints the groups of cases with their time, and where the budget would end."""
    total = start_s(item, options)
    left = options.budget_s - total
    groups: dict[str, list[float]] = {}
    within = 0
    for case in cases:
        seconds = cost_s(item, case, options)
        total += seconds
        left -= seconds
        within += left >= 0
        entry = groups.setdefault(case.group, [0, 0.0])
        entry[0] += 1
        entry[1] += seconds
    print(f"{item.name}: {item.doc}")
    print(f"{'cases':>8} {'seconds':>9}  what")
    print(f"{'':>8} {start_s(item, options):9.1f}  start-up")
    for name, (count, seconds) in groups.items():
        print(f"{int(count):8d} {seconds:9.1f}  {name}")
    print(
        f"{len(cases):8d} {total:9.1f}  all; a budget of {options.budget_s:g} s covers "
        f"the {within} most valuable"
    )


def _run(item: Item, layers: list[Layer], options: argparse.Namespace) -> int:
    budget = Budget(options.budget_s)
    device = open_device(options.device, options.tiny)
    cases = select(item, item.cases(layers, device, options), options)
    header = header_module.describe(device, item.name, getattr(options, "blas", "default"))
    if item.libraries:
        header |= item.libraries()
    writers: dict[str, Appender] = {}
    tally = _Tally()
    try:
        for name in item.tables:
            writers[name] = Appender(options.out / f"{name}.csv", TABLES[name], header)
        with _Stop() as stop:
            status = _loop(item, cases, writers, budget, device, options, stop, tally)
        tally.report(item, len(cases), budget)
        return status
    finally:
        final = {
            "clocks_after": header_module.clocks() if device.kind == "cuda" else "none",
            "date_after": header_module.now(),
            "refused": str(sum(tally.refused.values())),
            "starved": str(tally.starved),
        }
        for writer in writers.values():
            writer.close(final)


class _Stop:
    """Ctrl-C and SIGTERM end the run after the case in hand, so that no row is half written."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Stop:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:  # the second time at once
            raise KeyboardInterrupt
        self.asked = True


@dataclass
class _Tally:
    """What became of the cases of one run."""

    kept: int = 0
    measured: int = 0
    starved: int = 0  # measured, but the device waited for the host
    interrupted: bool = False
    refused: Counter[str] = field(default_factory=Counter)

    def report(self, item: Item, total: int, budget: Budget) -> None:
        """Prints one line on stdout, reasons on stderr."""
        refused = sum(self.refused.values())
        left = total - self.kept - self.measured - refused
        print(
            f"{item.name}: {self.measured} cases measured, {self.kept} kept from before, "
            f"{refused} refused, {left} left, {budget.used_s():.1f} s"
        )
        for reason, count in self.refused.most_common(5):
            print(f"  refused {count}: {reason}", file=sys.stderr)
        if self.starved:
            print(f"  in {self.starved} cases the device waited for the host", file=sys.stderr)
        if left:
            why = "interrupted" if self.interrupted else "the budget ended"
            print(f"{item.name}: {why}; the same command goes on", file=sys.stderr)


def _loop(
    item: Item,
    cases: list[Case],
    writers: dict[str, Appender],
    budget: Budget,
    device: Device,
    options: argparse.Namespace,
    stop: _Stop,
    tally: _Tally,
) -> int:
    main_writer = writers[item.tables[0]]
    todo = [c for c in cases if _case_key(main_writer, c) not in main_writer.done]
    tally.kept = len(cases) - len(todo)
    bench = Bench(device, None if device.tiny else item.timing)
    context = Context(device, bench, options, budget)
    if options.mode == "sustained" and todo:
        bench.heat(0.01 if device.tiny else max(0.0, min(options.heat_s, budget.left_s())))
    elif todo and device.kind == "cuda":
        bench.ramp(RAMP_S)
    shown = time.monotonic()
    for position, case in enumerate(todo):
        if stop.asked:
            tally.interrupted = True
            return EXIT_INTERRUPTED
        if not budget.fits(0.001 if device.tiny else cost_s(item, case, options)):
            continue  # a shorter one may still fit
        try:
            rows = _measure(item, context, case)
            # The main table last: a case counts as done once its row stands there.
            for table in reversed(item.tables):
                writers[table].append([row for name, row in rows if name == table])
            tally.measured += 1
        except Refused as reason:
            tally.refused[str(reason)] += 1
        tally.starved = bench.starved
        if time.monotonic() - shown > 10.0:
            shown = time.monotonic()
            done = f"{position + 1} of {len(todo)}"
            print(f"{item.name}: {done}, {budget.left_s():.0f} s left", file=sys.stderr, flush=True)
    return EXIT_OK


def _measure(item: Item, context: Context, case: Case) -> Measured:
    """One case; where memory ran out, once more with the cache given back."""
    try:
        rows: Measured = guarded(partial(item.measure, context, case), context.device)
        return rows
    except OutOfMemory:
        pass  # out of the handler first: the traceback holds the case's tensors
    context.device.release()
    rows = guarded(partial(item.measure, context, case), context.device)
    return rows


def _case_key(writer: Appender, case: Case) -> tuple[str, ...]:
    return writer.table.key_of({name: case.key.get(name, "") for name in writer.table.keys})

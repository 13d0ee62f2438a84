"""`orrery-trace`: traces the ranks of a training command, or shows what a trace holds."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from orrery_trace import compose, job, routing, session, timing
from orrery_trace.errors import TraceError
from orrery_trace.trace import Trace, rank_file, read, read_directory

USAGE = """orrery-trace [OPTIONS] -- python train.py ARGS...
       orrery-trace --times PROFILE --out DIRECTORY
       orrery-trace --extend DIRECTORY --micro-batches N --out DIRECTORY
       orrery-trace --route DIRECTORY --shares dirichlet:1 --seed 1 --out DIRECTORY
       orrery-trace --show DIRECTORY"""


def parser() -> argparse.ArgumentParser:
    """The options."""
    p = argparse.ArgumentParser(
        prog="orrery-trace",
        usage=USAGE,
        description="Records ranks of a PyTorch training command, each in one process, no GPU.",
        epilog="exit status: 0 traced; 1 the command failed; 2 bad input, or it cannot be traced",
    )
    p.add_argument("--world-size", type=int, metavar="N", help="ranks of the job")
    p.add_argument(
        "--rank",
        default="0",
        metavar="R,...",
        help="ranks to trace (default 0), or all: finds out which ranks run equal programs and "
        "traces one of each kind",
    )
    p.add_argument(
        "--mesh",
        metavar="NAME=SIZE,...",
        help="how ranks are numbered, outermost first, as in pp=4,dp=8,tp=8: traces one rank for "
        "each place along the dimensions of --distinct, and lets it stand for the others",
    )
    p.add_argument(
        "--distinct",
        default="pp",
        metavar="NAME,...",
        help="dimensions of --mesh along which programs differ (default pp)",
    )
    p.add_argument(
        "--most",
        type=int,
        default=64,
        metavar="N",
        help="with --rank all, the most programs that may be distinct (default 64)",
    )
    p.add_argument(
        "--check",
        type=int,
        default=1,
        metavar="N",
        help="also traces N other ranks of one class (with --rank all: one of each of N classes) "
        "and compares (default 1)",
    )
    p.add_argument("--jobs", type=int, default=0, metavar="N", help="processes at once")
    p.add_argument("--out", default="trace", metavar="DIRECTORY", help="default: trace")
    p.add_argument(
        "--step", type=int, default=1, metavar="N", help="training step to record, from 0"
    )
    p.add_argument(
        "--real", action="store_true", help="real tensors, on the devices that there are"
    )
    p.add_argument("--device", default="cuda", help="whose memory is the peak (default cuda)")
    p.add_argument(
        "--times",
        metavar="PROFILE",
        help="a Kineto profile of the same step on a GPU: writes what each op took into the trace "
        "of --rank in --out, and ends",
    )
    p.add_argument(
        "--mark",
        default=timing.STEP,
        metavar="NAME",
        help=f"record_function around the profile's steps (default {timing.STEP}, the profiler's)",
    )
    p.add_argument(
        "--extend",
        metavar="DIRECTORY",
        help="writes its traces with --micro-batches N, more than were traced, into --out",
    )
    p.add_argument("--micro-batches", type=int, metavar="N", help="of a step, with --extend")
    p.add_argument(
        "--route",
        metavar="DIRECTORY",
        help="writes its traces with experts of unequal load into --out, a program for each place "
        "of the experts' group",
    )
    p.add_argument(
        "--shares",
        default="dirichlet:1",
        metavar="WHAT",
        help="with --route: dirichlet:ALPHA, zipf:EXPONENT (of experts in drawn order), or a file, "
        "a line a layer with each expert's share or tokens (default dirichlet:1)",
    )
    p.add_argument("--seed", type=int, default=1, metavar="N", help="of --shares (default 1)")
    p.add_argument("--show", metavar="DIRECTORY", help="says what a trace holds, and ends")
    p.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return p


def summary(trace: Trace) -> list[str]:
    """What a rank's trace holds, in lines."""
    ops = [trace.signatures[line["sig"]] for line in trace.of("op")]
    kernels = [row for row in ops if row.get("kernel", True)]
    lines = [
        f"rank {trace.header['rank']} of {trace.header['world_size']}, "
        f"PyTorch {trace.header['torch']}: {len(ops)} ops, {len(kernels)} with a kernel",
    ]
    for (kind, size), count in sorted(comms_by_size(trace).items()):
        lines.append(f"  {count:6} x {kind:15} {size:>14,} B")
    flops = sum(row.get("flops", 0) for row in kernels)
    lines.append(f"  {flops / 1e12:.3f} TFLOP in matrix products and attention")
    lines.append(f"  peak of live tensors {trace.end['peak_bytes'] / 1e9:.3f} GB")
    syncs = Counter(f"{s['why']} {s.get('at', '')}".strip() for s in trace.of("sync"))
    lines += [f"  {count:6} x the host waits: {what}" for what, count in sorted(syncs.items())]
    assumed = dict.fromkeys(
        f"{row['what']}{' at ' + row['at'] if 'at' in row else ''}"
        for row in (*trace.setup, *trace.lines)
        if row["t"] == "assumed"
    )
    lines += [f"  assumed: {what}" for what in assumed]
    return lines


def comms_by_size(trace: Trace) -> Counter[tuple[str, int]]:
    """How often each kind of communication of each size (bytes that leave or arrive)."""
    return Counter((c["kind"], max(c["send"], c["recv"])) for c in trace.of("comm"))


def program_of(command: Sequence[str]) -> list[str]:
    """`SCRIPT ARGS` or `-m MODULE ARGS`, with or without `python` before it."""
    words = list(command)
    if words and Path(words[0]).name.startswith("python"):
        words = words[1:]
    if words[:1] == ["-m"] and len(words) > 1:
        return words
    if not words or words[0].startswith("-"):
        raise TraceError(f"no script to run: say {USAGE.splitlines()[0]}")
    if not Path(words[0]).is_file():
        raise TraceError(f"{words[0]}: no such script (a launcher such as torchrun is left out)")
    return words


def run_program(words: list[str]) -> None:
    """Runs the program in this process, as Python would."""
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path.insert(0, "")
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).resolve().parent))
    runpy.run_path(words[0], run_name="__main__")


def trace_here(options: argparse.Namespace, rank: int, index: bool) -> int:
    """Traces one rank in this process; the exit status."""
    try:
        with session.rank(
            options.world_size, rank, options.out, step=options.step, index=index,
            fake=not options.real, device=options.device,
        ) as traced:  # fmt: skip
            try:
                run_program(options.command)
            except SystemExit as end:  # a script may end so; anything but success is its own error
                if end.code not in (None, 0):
                    raise TraceError(f"the command ended with status {end.code}") from None
    except TraceError as error:
        return _complain(error)
    print(f"wrote {traced.path}", file=sys.stderr)
    return 0


def _complain(error: TraceError) -> int:
    print(f"orrery-trace: {error}", file=sys.stderr)
    return 2


def add_times(options: argparse.Namespace) -> None:
    """Joins a profile with a trace, and says how much of it was found."""
    if not options.rank.isdecimal():
        raise TraceError("--times takes one traced rank: --rank R")
    path = Path(options.out) / rank_file(int(options.rank))
    profile = timing.read_profile(options.times, options.mark)
    joined = timing.add_times(path, profile)
    last = joined[-1]
    print(
        f"{path}: {len(last.nanoseconds)} ops with {sum(last.kernels.values())} kernels on "
        f"{profile.gpu}, {len(joined)} steps, {100 * min(j.share for j in joined):.2f} % of the "
        f"device's time; a step keeps it busy for {last.total_ns / 1e6:.3f} ms"
    )
    for name, spent in last.left.most_common(5):
        print(f"  not of the trace: {name}, {spent / 1000:.1f} us")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    p = parser()
    options = p.parse_args(arguments)
    if options.command[:1] == ["--"]:
        options.command = options.command[1:]
    try:
        if options.times:
            add_times(options)
            return 0
        if options.extend:
            if options.micro_batches is None:
                p.error("--extend needs --micro-batches N")
            compose.extend_directory(Path(options.extend), options.micro_batches, Path(options.out))
            return 0
        if options.route:
            out = Path(options.out)
            print(routing.redraw_directory(Path(options.route), options.shares, options.seed, out))
            return 0
        if options.show:
            path = Path(options.show)
            traces = read_directory(path) if path.is_dir() else {0: read(path)}
            for _, trace in sorted(traces.items()):
                print("\n".join(summary(trace)))
            return 0
        if options.world_size is not None and options.world_size < 1:
            p.error(f"--world-size {options.world_size}: give 1 or more")
        if options.world_size is None or not options.command:
            p.error("--world-size and a command are needed, as in "
                    "orrery-trace --world-size 8 -- python train.py")  # fmt: skip
        ranks = job.said_ranks(options)
        options.command = program_of(options.command)
        if ranks is not None and ranks.mesh is None and len(ranks.members) == 1:
            return trace_here(options, ranks.traced[0], index=True)
        job.trace_all(options, ranks, lambda rank: trace_here(options, rank, index=False))
        return 0
    except TraceError as error:
        return _complain(error)

#!/usr/bin/env python3
"""Finish times of LogGOPSim beside ours, on Schedgen's own schedules and on public traces of MPI programs.

Usage: beside_loggopsim.py FOLDER [--traces TRACE0,…] [--only PATTERN,…] [--program PROGRAM] [--goal FOLDER]
  FOLDER:  has LogGOPSim, txt2bin and schedgen (github.com/spcl/LogGOPSim, built elsewhere)
  TRACE0:  the file of rank 0 of a trace that Schedgen reads; it becomes a schedule by Schedgen and by `orrery convert`
  PROGRAM: build/release/orrery unless said
  --goal:  keeps the schedules there

LogGOPSim orders operations that become ready at once by an unstable sort, and deadlocks on some of its own schedules; build it with the
comparison of ready operations (gnp_op_comp_func) extended from `type` to `type`, then `offset`.

Every pattern runs with 2 to 100 ranks, sizes of 8 to 70,000 bytes, four sets of parameters and, where it has one, two roots. Compared are the
finish times of all ranks up to 16, of the last one above, in ns. Prints a row a pattern: cases, equal ones, and the largest difference.
"""

import argparse
import collections
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Schedgen's name: whether it has a root, further arguments.
PATTERNS = {
    "binomialtreebcast": (True, []),
    "binomialtreereduce": (True, []),
    "binarytreebcast": (False, []),
    "nwaydissemination": (False, ["--nway", "2"]),
    "dissemination": (False, []),
    "pipelinedring": (True, ["--segmentsize", "4096"]),
    "pipelinedringdep": (True, ["--segmentsize", "4096"]),
    "doublering": (False, []),
    "gather": (True, []),
    "scatter": (True, []),
    "linbarrier": (False, []),
    "linear_alltoall": (False, []),
    "allreduce_recdoub": (False, []),
    "allreduce_ring": (False, []),
}
POWERS_OF_TWO = {"allreduce_recdoub"}
# They cut their bytes by the ranks; LogGOPSim charges -1 byte for a message of none.
DIVIDED = {"allreduce_recdoub", "allreduce_ring"}
RANKS, SIZES, ROOTS = (2, 3, 8, 13, 16, 32, 100), (8, 1000, 70_000), (0, 1)
PARAMETERS = (
    {"L": 2500, "o": 1500, "g": 1000, "G": 6, "O": 0, "S": 65535},
    {"L": 3000, "o": 6000, "g": 0, "G": 1, "O": 0, "S": 256000},
    {"L": 3700, "o": 200, "g": 5, "G": 1, "O": 1, "S": 1000},
    {"L": 1000, "o": 50, "g": 4000, "G": 2, "O": 3, "S": 0},
)


def run(command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr or done.stdout}")
    return done.stdout


def theirs(folder, schedule, parameters):
    """Finish times in ns, by rank; the last one's alone above 16 ranks."""
    command = [folder / "LogGOPSim", "-f", schedule]
    out = run(command + [f"-{key}{value}" for key, value in parameters.items()])
    hosts = [int(line.split(":")[1]) for line in out.splitlines() if line.startswith("Host ")]
    if hosts:
        return hosts
    return [int(line.split(":")[1].split()[0]) for line in out.splitlines() if line.startswith("Maximum finishing time")]


def ours(program, schedule, parameters, count):
    command = [program, "simulate", schedule, "--json", "-"]
    for key, value in parameters.items():
        command += ["--set", f"loggops.{key}={value}"]
    result = json.loads(run(command))
    ranks = [rank["finish_time_ps"] // 1000 for rank in result["goal"]["ranks"]]
    return ranks if count > 1 else [max(ranks)]


def compare(folder, program, schedule, parameters):
    expected = theirs(folder, schedule, parameters)
    found = ours(program, schedule, parameters, len(expected))
    return max(abs(a - b) for a, b in zip(expected, found, strict=True)), max(expected)


def pattern_rows(options, folder):
    rows = collections.OrderedDict()
    for name, (rooted, more) in PATTERNS.items():
        if options.only and name not in options.only:
            continue
        differences = []
        for ranks, size, root in itertools.product(RANKS, SIZES, ROOTS if rooted else (0,)):
            if name in POWERS_OF_TWO and ranks & (ranks - 1):
                continue
            if name in DIVIDED and size < ranks:
                continue
            stem = folder / f"{name}-{ranks}-{size}-{root}"
            arguments = ["-p", name, "-s", ranks, "-d", size, "-o", f"{stem}.goal"] + more
            if rooted:
                arguments += ["--root", root]
            run([options.folder / "schedgen"] + arguments)
            run([options.folder / "txt2bin", "-i", f"{stem}.goal", "-o", f"{stem}.bin"])
            differences += [compare(options.folder, options.program, f"{stem}.bin", p)[0] for p in PARAMETERS]
        rows[name] = differences
        print(f"| `{name}` | {len(differences)} | {sum(d == 0 for d in differences)} | {max(differences)} |", flush=True)
    return rows


def trace_rows(options, folder):
    for number, trace in enumerate(options.traces):
        by_schedgen, by_orrery = folder / f"trace{number}.goal", folder / f"trace{number}-orrery.bin"
        run([options.folder / "schedgen", "-p", "trace", "--traces", trace, "-o", by_schedgen])
        run([options.folder / "txt2bin", "-i", by_schedgen, "-o", by_schedgen.with_suffix(".bin")])
        run([options.program, "convert", trace, "-o", by_orrery, "--to", "goal-binary"])
        for whose, schedule in (("Schedgen", by_schedgen.with_suffix(".bin")), ("Orrery", by_orrery)):
            for parameters in PARAMETERS:
                difference, last = compare(options.folder, options.program, schedule, parameters)
                print(f"{trace}, schedule by {whose}, {parameters}: last finish {last} ns, largest difference {difference} ns")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--traces", type=lambda text: text.split(","), default=[])
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--program", default=str(ROOT / "build" / "release" / "orrery"))
    parser.add_argument("--goal", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.goal or pathlib.Path(scratch)
        trace_rows(options, folder)
        if options.only != ["none"]:
            rows = pattern_rows(options, folder)
            every = [d for row in rows.values() for d in row]
            print(f"{len(every)} cases, {sum(d == 0 for d in every)} equal")


if __name__ == "__main__":
    main()

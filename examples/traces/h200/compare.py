#!/usr/bin/env python3
"""Traces that were made without a GPU against an H200 that ran the same programs: a table.

    python3 examples/traces/h200/compare.py build/release/orrery

The programs are those of python/tracer/tests/gpu_models.py; `gpu_pass.py` beside it measured them
(measured.csv) and traced them here (--fake); `orrery-trace --times` gave the traces their kernels'
times. A step is the median of ten by events, or, where step_from says so, the mean of two under the
profiler.
"""

import csv
import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def simulated(orrery, case, *options):
    """`orrery simulate` of a trace, as JSON."""
    command = [orrery, "simulate", HERE / case, "--cluster", "h200-ib-400g", "--json", "-", *options]
    if case.endswith("expandable"):
        command += ["--set", "memory.allocator=expandable_segments:True"]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def step_ms(result):
    """Its step in milliseconds."""
    return result["step_time_s"] * 1e3


def main():
    """Prints the table and what it comes to."""
    orrery = sys.argv[1]
    errors = {"step": [], "priced": [], "allocated": [], "reserved": []}
    print("| program | step, ms | from measured kernels | priced by the model | peak allocated, GiB "
          "| simulated | peak reserved, GiB | simulated |\n|" + "---|" * 8)  # fmt: skip
    for row in csv.DictReader((HERE / "measured.csv").open(encoding="utf-8")):
        with_times = simulated(orrery, row["case"])
        # Times of another GPU do not count: the model prices every kernel.
        priced = simulated(orrery, row["case"], "--set", "trace.gpu=A100-SXM4-80GB")
        memory = with_times["memory"][0]
        cells = [row["case"]]
        if row["step_ms"]:
            true = float(row["step_ms"])
            cells.append(f"{true:.2f}" + ("*" if row["step_from"] == "profile" else ""))
            for name, result in (("step", with_times), ("priced", priced)):
                off = step_ms(result) / true - 1
                errors[name].append(off)
                cells.append(f"{step_ms(result):.2f} ({100 * off:+.1f} %)")
        else:
            cells += ["", f"{step_ms(with_times):.2f}", f"{step_ms(priced):.2f}"]
        for name in ("allocated", "reserved"):
            true = int(row[f"peak_{name}_bytes"])
            off = memory[f"peak_{name}_bytes"] / true - 1
            errors[name].append(off)
            cells += [f"{true / 2**30:.3f}", f"{100 * off:+.2f} %"]
        print("| " + " | ".join(cells) + " |")
    print()
    for name, off in errors.items():
        sizes = [100 * abs(x) for x in off]
        print(f"{name}: {len(off)}, mean {statistics.mean(sizes):.2f} %, worst {max(sizes):.2f} %")


if __name__ == "__main__":
    main()

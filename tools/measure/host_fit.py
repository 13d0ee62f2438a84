#!/usr/bin/env python3
"""What a call takes the host: slopes of the steps in host_steps.csv over their calls.

    python3 tools/measure/host_fit.py data/measured/h200/host_steps.csv

Times are multiples of the addition that was timed beside each step, so that a host whose speed
changes does not matter. An operator takes what Orrery's launches take; views, forward and backward,
are to each other as in the chains of views of the same file. Rows kept back are predicted only.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np

from kit.schemas import Row
from kit.tables import load

# us on a host whose cpu_relative_speed is 1: the mean launch of a layer's operators.
OPERATOR_FORWARD, OPERATOR_BACKWARD = 7.9, 5.8
NAMES = ("additions a us of launches", "view", "module", "function")
Parts = dict[str, Row]


def jobs(rows: list[Row]) -> list[Parts]:
    """Rows of own loops by job."""
    keys = [k for k in rows[0] if k in KEYS]
    found: dict[tuple[object, ...], Parts] = {}
    for row in rows:
        if row["loop"] == "own":
            found.setdefault(tuple(row[k] for k in keys), {})[str(row["part"])] = row
    return list(found.values())


KEYS = (
    *("model", "method", "weights", "autocast", "prepared", "dropout", "optimizer", "checkpoint"),
    *("seq", "micro_batch"),
)


def chain(rows: list[Row], part: str) -> float:
    """Additions that a view of a chain takes."""
    of = [r for r in rows if r["model"] in ("chain view", "chain transpose") and r["part"] == part]
    return float(np.mean([float(r["adds"]) for r in of])) / 300


def calls(parts: Parts, part: str, views: tuple[float, float]) -> list[float]:
    """Launches in us, views, modules and functions of a pass."""
    forward, backward = parts["forward"], parts["backward"]
    functions = float(backward["functions"])
    again = float(backward["modules"]) > 0  # checkpoints run the forward pass again
    ahead = [float(forward[k]) for k in ("operators", "views", "modules")]
    if part == "forward":
        return [OPERATOR_FORWARD * ahead[0], views[0] * ahead[1], ahead[2], functions]
    behind = [float(backward[k]) - (a if again else 0) for k, a in zip(BEHIND, ahead, strict=False)]
    row = [OPERATOR_BACKWARD * behind[0], views[1] * behind[1], float(backward["modules"])]
    if again:
        row[0] += OPERATOR_FORWARD * ahead[0]
        row[1] += views[0] * ahead[1]
    return [*row, functions * (2 if again else 1)]


BEHIND = ("operators", "views")


def main() -> None:
    """Prints times a call and how far they are off."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("measured", type=Path)
    rows = load(p.parse_args().measured).rows
    views = (chain(rows, "forward"), chain(rows, "backward"))
    matrix, times, taught = [], [], []
    for parts in jobs(rows):
        if float(parts["step"]["busy_us"]) > 0.5 * float(parts["step"]["time_us"]):
            continue  # where the queue is full, issuing waits for the GPU
        for part in ("forward", "backward"):
            matrix.append(calls(parts, part, views))
            times.append(float(parts[part]["adds"]))
            taught.append(bool(parts[part]["taught"]))
    a, b, teaches = np.array(matrix), np.array(times), np.array(taught)
    weighted, ones = (a / b[:, None])[teaches], np.ones(teaches.sum())
    slopes = np.linalg.lstsq(weighted, ones, rcond=None)[0]
    add_us = 1 / slopes[0]
    print(f"an addition: {add_us:.2f} us; a view {views[0]:.2f}, {views[1]:.2f} of it in a chain")
    print(f"view forward {slopes[1] * views[0] * add_us:.1f} us, backward", end=" ")
    print(f"{slopes[1] * views[1] * add_us:.1f} us")
    for name, slope in zip(NAMES[2:], slopes[2:], strict=True):
        print(f"{name} {slope * add_us:.1f} us")
    off = a @ slopes / b - 1
    for name, chosen in (("taught", teaches), ("kept back", ~teaches)):
        print(f"{name}: {chosen.sum()} passes, {100 * np.abs(off[chosen]).mean():.1f} % off")


if __name__ == "__main__":
    main()

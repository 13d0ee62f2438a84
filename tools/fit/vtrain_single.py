#!/usr/bin/env python3
"""Shows that vTrain's single-node table (rows vtrain-s of training_measured.csv) is a simulator's output, not measurements.

    tools/fit/vtrain_single.py                     # needs numpy
    tools/fit/vtrain_single.py --vtrain CHECKOUT   # of github.com/VIA-Research/vTrain at f8dda84

First: rows of one stage (pp 1) of each (hidden, tp, micro-batch) are fitted as sums

    step = micro-batches * (layers * s + head) + layers * o + c + [dp] * (layers * e_dp + f_dp)

A machine repeats a step within a per cent; a sum of table entries repeats to the last printed digit.
Second: steps that differ in dp alone differ by what vTrain's own simulator adds for the all-reduce of gradients, from its
table of measured all-reduces (trace/a100/AR_GPU*_LUT) for its model's parameters (src/predictor.py: model_params,
compute_comm_time; 50,257 words, 2 bytes each), its fall-back beyond the table, where four ranks take less than two, included.
"""

import argparse
import collections
import csv
import glob
import os

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORDS, POSITIONS, BYTES = 50257, 1024, 2  # of vTrain's ShardedGptModel

Row = collections.namedtuple("Row", "layers hidden tp dp micro count step_ms")


def rows():
    """Rows without stages; count: micro-batches of a replica."""
    with open(os.path.join(ROOT, "validation", "training_measured.csv"), newline="") as f:
        for r in csv.DictReader(f):
            if not r["id"].startswith("vtrain-s") or r["pp"] != "1":
                continue
            dp, micro = int(r["dp"]), int(r["micro_batch"])
            yield Row(int(r["layers"]), int(r["hidden"]), int(r["tp"]), dp, micro, int(r["global_batch"]) // (dp * micro),
                      float(r["step_time_s"]) * 1e3)


def sums():
    groups = collections.defaultdict(list)
    for r in rows():
        groups[(r.hidden, r.tp, r.micro)].append(r)
    print("hidden tp micro-batch   rows  unknowns   steps, ms        largest residual, us")
    for key, group in sorted(groups.items()):
        dps = sorted({r.dp for r in group})[1:]
        a = np.array([[r.count * r.layers, r.count, r.layers, 1, *(x * (r.dp == d) for d in dps for x in (r.layers, 1))]
                      for r in group], dtype=float)
        steps = np.array([r.step_ms for r in group])
        found, _, rank, _ = np.linalg.lstsq(a, steps, rcond=None)
        if len(group) <= rank + 1:
            continue  # a sum always fits
        print(f"{key[0]:6d} {key[1]:2d} {key[2]:11d} {len(group):6d} {rank:9d}   {steps.min():6.0f} to {steps.max():6.0f} "
              f"{1e3 * np.abs(a @ found - steps).max():12.1f}")


def parameter_mb(r):
    h, t = r.hidden, r.tp
    layer = 4 * h + 3 * h * (h // t) + 3 * h // t + h * (h // t) + h + 2 * h * (4 * h // t) + 4 * h // t + h
    return round(BYTES * (r.layers * layer + (2 * (WORDS // t) + POSITIONS) * h) / 2**20)


def all_reduces(checkout):
    times = collections.defaultdict(dict)  # ranks, MB: ms, GB/s
    for path in glob.glob(os.path.join(checkout, "trace", "a100", "AR_GPU*_LUT")):
        ranks = int(os.path.basename(path).split("_")[1][len("GPU"):])
        with open(path) as f:
            for line in list(f)[1:]:
                fields = line.split(",")
                times[ranks][int(fields[0]) >> 20] = float(fields[-2]) / 1e6, float(fields[-1])

    def time_ms(r):
        if r.dp == 1:
            return 0.0
        mb = parameter_mb(r)
        return times[r.dp][mb][0] if mb in times[r.dp] else mb / (times[r.dp][1024][1] * 1024) * 1e3

    groups = collections.defaultdict(list)
    for r in rows():
        groups[r._replace(dp=0, step_ms=0)].append(r)
    worst, pairs = 0.0, 0
    for group in groups.values():
        group.sort(key=lambda r: r.dp)
        for a, b in zip(group, group[1:]):
            pairs += 1
            worst = max(worst, abs((b.step_ms - a.step_ms) - (time_ms(b) - time_ms(a))))
    print(f"{pairs} pairs of rows that differ in dp alone: the table's all-reduces are off by at most {1e3 * worst:.1f} us")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vtrain", help="a checkout of vTrain, for its table of all-reduces")
    arguments = parser.parse_args()
    sums()
    if arguments.vtrain:
        all_reduces(arguments.vtrain)


if __name__ == "__main__":
    main()

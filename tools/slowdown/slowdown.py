#!/usr/bin/env python3
"""Learns how much longer kernels take beside communication, and says what that is worth.

    python3 tools/slowdown/slowdown.py data/measured/h200/overlap.csv --out data/slowdown/h200.json

Gradient-boosted trees (xgboost) on the measuring kit's `overlap` tables. What is fitted is the
duration together, as its logarithm above that of the duration alone; time may only grow with the
SMs and the bandwidth that the communication takes. Errors are of kernels that were left out: the
distinct kernels are dealt into five parts, and each is predicted by a model of the other four.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import xgboost

sys.path.insert(0, str(Path(__file__).resolve().parent))

from features import Device, Row, base, constant, features, read, table

FOLDS = 5
CHECKED = 60  # rows of --check
ROUNDS = 60
SETTINGS = {
    "objective": "reg:squarederror", "max_depth": 4, "eta": 0.15, "min_child_weight": 8,
    "subsample": 0.8, "seed": 42, "nthread": 1, "tree_method": "exact", "base_score": 0.0,
}  # fmt: skip
Data = list[tuple[Row, Device]]


def matrix(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Features and the logarithm of together over alone."""
    x = np.array([features(base(row, device)) for row, device in data], dtype=np.float32)
    y = np.array([math.log(row.together_us / row.alone_us) for row, _ in data])
    return x, y


def fit(x: np.ndarray, y: np.ndarray) -> xgboost.Booster:
    """A model of all rows given."""
    rows = table()
    monotone = "(" + ",".join(row["monotone"] for row in rows) + ")"
    names = [row["name"] for row in rows]
    settings = SETTINGS | {"monotone_constraints": monotone}
    return xgboost.train(settings, xgboost.DMatrix(x, y, feature_names=names), ROUNDS)


def predicted(model: xgboost.Booster, x: np.ndarray) -> np.ndarray:
    """Times longer than alone, at least 1."""
    names = [row["name"] for row in table()]
    return np.maximum(1.0, np.exp(model.predict(xgboost.DMatrix(x, feature_names=names))))


def parts(data: Data) -> np.ndarray:
    """The part of each row: kernels of one kind are dealt round, so that each part has some."""
    kernels = sorted({row.kernel for row, _ in data})
    part = {kernel: i % FOLDS for i, kernel in enumerate(kernels)}
    return np.array([part[row.kernel] for row, _ in data])


def left_out(data: Data) -> np.ndarray:
    """Each row's factor by a model that has not seen its kernel."""
    x, y = matrix(data)
    part = parts(data)
    found = np.zeros(len(data))
    for fold in range(FOLDS):
        out = part == fold
        found[out] = predicted(fit(x[~out], y[~out]), x[out])
    return found


def report(title: str, factor: np.ndarray, data: Data, kinds: tuple[str, ...]) -> str:
    """Shares of rows within 5, 10 and 15 % of the duration together, and the factor's RMSE."""
    chosen = np.array([row.kernel[0] in kinds for row, _ in data])
    true = np.array([row.together_us / row.alone_us for row, _ in data])
    error = np.abs(factor / true - 1)[chosen]
    within = [100 * float(np.mean(error <= limit)) for limit in (0.05, 0.10, 0.15)]
    rmse = float(np.sqrt(np.mean((factor - true)[chosen] ** 2)))
    return (
        f"{title:34} {int(chosen.sum()):5} {within[0]:7.1f} {within[1]:7.1f} {within[2]:7.1f} "
        f"{100 * float(error.mean()):7.2f} {rmse:8.4f}"
    )


def write_check(path: Path, data: Data, model: xgboost.Booster) -> None:
    """Some rows with their features and what xgboost itself answers (ln of the factor)."""
    chosen = data[:: max(1, len(data) // CHECKED)]
    x, _ = matrix(chosen)
    names = [row["name"] for row in table()]
    answers = model.predict(xgboost.DMatrix(x, feature_names=names), output_margin=True)
    columns = ["subject", "kernel", "dtype", "shape", "alone_us", "ctas", "beside_Bps"]
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join([*columns, *names, "answer"]) + "\n")
        for (row, _), values, answer in zip(chosen, x, answers, strict=True):
            numbers = [row.alone_us, row.ctas, row.beside_bps, *values, answer]
            file.write(",".join([*row.kernel, *(repr(float(n)) for n in numbers)]) + "\n")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", type=Path, nargs="+", help="overlap.csv of the measuring kit")
    parser.add_argument("--out", type=Path, help="model file (JSON)")
    parser.add_argument("--check", type=Path, help="rows of what xgboost answers, for our tests")
    options = parser.parse_args()
    data: Data = []
    for path in options.tables:
        device, rows = read(path)
        data += [(row, device) for row in rows]
    learned = left_out(data)
    fixed = np.array([constant(row, device) for row, device in data])
    print(f"{len({row.kernel for row, _ in data})} kernels; errors of the duration together\n")
    print(f"{'':34} {'rows':>5} {'<= 5 %':>7} {'<= 10 %':>7} {'<= 15 %':>7} {'mean %':>7} {'RMSE':>8}")
    for kinds in (("gemm",), ("attention",), ("memory_bound",), ("gemm", "attention", "memory_bound")):
        name = kinds[0] if len(kinds) == 1 else "all"
        print(report(f"{name}: learned, left out", learned, data, kinds))
        print(report(f"{name}: constant model", fixed, data, kinds))
        print(report(f"{name}: no slowdown", np.ones(len(data)), data, kinds))
    x, y = matrix(data)
    model = fit(x, y)
    gain = model.get_score(importance_type="total_gain")
    total = sum(gain.values())
    print("\nimportance (share of the total gain)")
    for name, value in sorted(gain.items(), key=lambda item: -item[1]):
        print(f"  {name:18} {100 * value / total:5.1f} %")
    if options.out:
        options.out.write_text(json.dumps(json.loads(model.save_raw("json")), separators=(",", ":")) + "\n")
        print(f"\nwrote {options.out}")
    if options.check:
        write_check(options.check, data, model)
    return 0


if __name__ == "__main__":
    sys.exit(main())

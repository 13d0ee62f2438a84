"""What the measured tables say: rates by class, ceilings against the data sheet, outliers."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from kit.schemas import Row
from kit.shapes import Attention
from kit.tables import Loaded

# Dense peaks from the vendors' data sheets: TFLOP/s by type without sparsity, memory in GB/s.
DATA_SHEET: dict[str, dict[str, float]] = {
    "h200": {
        "bf16": 989.5,
        "fp16": 989.5,
        "fp8": 1979.0,
        "fp8_split": 1979.0,
        "tf32": 494.7,
        "fp32": 66.9,
        "memory_GBps": 4800.0,
    },
    "h100": {
        "bf16": 989.5,
        "fp16": 989.5,
        "fp8": 1979.0,
        "fp8_split": 1979.0,
        "tf32": 494.7,
        "fp32": 66.9,
        "memory_GBps": 3350.0,
    },
    "a100": {"bf16": 312.0, "fp16": 312.0, "tf32": 156.0, "fp32": 19.5, "memory_GBps": 2039.0},
}
WIDE_SPREAD = 0.15  # (q3 - q1) / median above which a row is noisy
SLOW_SHARE = 0.5  # of its class' median rate, below which a row is an outlier
LARGE_BYTES = 64 << 20


def sheet_of(slug: str) -> dict[str, float]:
    """The data sheet of a GPU slug such as h100-80gb-hbm3, or nothing."""
    return DATA_SHEET.get(slug.split("-")[0], {})


def num(row: Row, name: str) -> float:
    """A numeric cell."""
    return float(row[name])


def gemm_tflops(row: Row) -> float:
    """TFLOP/s; m (in tn: k) counts rows over all groups, so groups do not enter."""
    return 2e-6 * num(row, "m") * num(row, "n") * num(row, "k") / num(row, "time_us")


def attention_tflops(row: Row) -> float:
    """TFLOP/s by what must be computed: a causal mask halves, backward takes 2.5 times forward."""
    a = Attention(*(int(row[k]) for k in ("b", "h", "kv_heads", "s_q", "s_kv", "d", "causal")))
    return a.flops * (2.5 if row["pass"] == "bwd" else 1.0) / num(row, "time_us") / 1e6


def bandwidth(row: Row, column: str = "bytes") -> float:
    """GB/s of `column`."""
    return num(row, column) / num(row, "time_us") / 1e3


def size_class(flops: float) -> str:
    """Four sizes: a product under 2 GFLOP is launch-bound on any GPU of this decade."""
    for limit, name in ((2e9, "under 2 GFLOP"), (5e10, "2-50 GFLOP"), (1e12, "0.05-1 TFLOP")):
        if flops < limit:
            return name
    return "over 1 TFLOP"


@dataclass(frozen=True)
class ClassRate:
    """Rates of one class of rows."""

    name: str
    count: int
    best: float
    median: float
    low: float  # 10th percentile
    unit: str


def class_of(table: str, row: Row) -> tuple[str, float, str]:
    """(class, rate, unit) of a row of a timed table with a rate."""
    if table == "gemm":
        flops = 2.0 * num(row, "m") * num(row, "n") * num(row, "k")
        grouped = " grouped" if num(row, "groups") > 1 else ""
        name = f"{row['dtype']} {row['layout']}{grouped} {row['mode']}, {size_class(flops)}"
        return name, gemm_tflops(row), "TFLOP/s"
    if table == "attention":
        length = "s < 2048" if num(row, "s_q") < 2048 else "s >= 2048"
        d = num(row, "d")
        heads = "d <= 64" if d <= 64 else "d <= 128" if d <= 128 else "d > 128"
        name = f"{row['kernel']} {row['pass']} {row['dtype']} {row['mode']}, {heads}, {length}"
        return name, attention_tflops(row), "TFLOP/s"
    if table == "memory_bound":
        large = "large" if num(row, "bytes") >= LARGE_BYTES else "small"
        return f"{row['kernel']} {row['dtype']}, {large}", bandwidth(row), "GB/s"
    large = "large" if num(row, "bytes") >= LARGE_BYTES else "small"
    return f"{row['kernel']}, {large}", bandwidth(row, "moved_bytes"), "GB/s"


RATED = ("gemm", "attention", "memory_bound", "copies")


def rates(loaded: Loaded) -> list[ClassRate]:
    """Rates by class, in order of first appearance."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in loaded.rows:
        name, rate, unit = class_of(loaded.table.name, row)
        groups[name, unit].append(rate)
    return [
        ClassRate(name, len(v), max(v), statistics.median(v), percentile(v, 0.1), unit)
        for (name, unit), v in sorted(groups.items())
    ]


def percentile(values: Iterable[float], share: float) -> float:
    """Nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(frozen=True)
class Outlier:
    """A row to look at, and why."""

    row: Row
    reason: str
    size: float  # how far off, for sorting


def outliers(loaded: Loaded) -> list[Outlier]:
    """Noisy rows, rows far below their class, and rows faster than the data sheet allows."""
    found: list[Outlier] = []
    rated = loaded.table.name in RATED
    medians = {c.name: c.median for c in rates(loaded)} if rated else {}
    sheet = sheet_of(loaded.header.get("gpu", ""))
    for row in loaded.rows:
        if not loaded.table.timed:
            break
        spread = (num(row, "time_us_q3") - num(row, "time_us_q1")) / num(row, "time_us")
        if spread > WIDE_SPREAD:
            found.append(Outlier(row, f"quartiles span {spread:.0%} of the median", spread))
        if not rated:
            continue
        name, rate, unit = class_of(loaded.table.name, row)
        if unit == "TFLOP/s" and "under 2 GFLOP" not in name and rate < SLOW_SHARE * medians[name]:
            found.append(
                Outlier(
                    row,
                    f"{rate:.3g} {unit}, class median {medians[name]:.3g}",
                    medians[name] / max(rate, 1e-9),
                )
            )
        peak = sheet.get(str(row.get("dtype")) if unit == "TFLOP/s" else "memory_GBps")
        inside = unit == "TFLOP/s" or "large" in name
        if peak and inside and rate > 1.02 * peak:
            found.append(
                Outlier(
                    row, f"{rate:.4g} {unit} is over the data sheet's {peak:g}", 100 * rate / peak
                )
            )
    return sorted(found, key=lambda o: -o.size)


def ceilings(tables: Iterable[Loaded]) -> list[tuple[str, float, float, str]]:
    """(what, reached, data sheet or 0, unit): best matrix rate by type and mode, bandwidths."""
    best: dict[tuple[str, str], tuple[float, float]] = {}

    def keep(what: str, value: float, peak: float, unit: str) -> None:
        if value > best.get((what, unit), (0.0, 0.0))[0]:
            best[what, unit] = (value, peak)

    for loaded in tables:
        sheet = sheet_of(loaded.header.get("gpu", ""))
        for row in loaded.rows:
            if loaded.table.name == "gemm":
                keep(
                    f"matrix product {row['dtype']} {row['mode']}",
                    gemm_tflops(row),
                    sheet.get(str(row["dtype"]), 0.0),
                    "TFLOP/s",
                )
            elif loaded.table.name == "copies" and num(row, "bytes") >= LARGE_BYTES:
                peak = (
                    sheet.get("memory_GBps", 0.0)
                    if row["kernel"] in ("d2d_copy", "read", "write")
                    else 0
                )
                keep(f"{row['kernel']}", bandwidth(row, "moved_bytes"), float(peak), "GB/s")
            elif loaded.table.name == "memory_bound" and num(row, "bytes") >= LARGE_BYTES:
                keep(
                    "best memory-bound kernel",
                    bandwidth(row),
                    sheet.get("memory_GBps", 0.0),
                    "GB/s",
                )
    return [(what, value, peak, unit) for (what, unit), (value, peak) in sorted(best.items())]


def slowdowns(loaded: Loaded) -> dict[str, list[tuple[str, float]]]:
    """Per companion: (subject kind, time together / alone of the same repeat)."""
    identity = ("dtype", "subject", "kernel", "shape", "repeat")
    alone = {
        tuple(row[k] for k in identity): num(row, "time_us")
        for row in loaded.rows
        if row["beside"] == "none"
    }
    result: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for row in loaded.rows:
        base = alone.get(tuple(row[k] for k in identity))
        if row["beside"] == "none" or base is None:
            continue
        rate = num(row, "rate_set_GBps")
        name = f"{row['beside']} {row['ctas']} blocks" if num(row, "ctas") else str(row["beside"])
        name += f" at {rate:g} GB/s" if rate else ""
        result[name].append((str(row["subject"]), num(row, "time_us") / base))
    return dict(result)


def sustained_ratios(loaded: Loaded) -> list[float]:
    """Sustained over hot time of the shapes that a gemm or attention table has in both modes."""
    keys = [k for k in loaded.table.keys if k != "mode"]
    hot = {tuple(r[k] for k in keys): num(r, "time_us") for r in loaded.rows if r["mode"] == "hot"}
    return [
        num(r, "time_us") / hot[key]
        for r in loaded.rows
        if r["mode"] == "sustained" and (key := tuple(r[k] for k in keys)) in hot
    ]

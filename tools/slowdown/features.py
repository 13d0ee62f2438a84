"""Features of a kernel beside communication, by the one table that the simulator reads as well.

data/slowdown/features.csv has a row a feature: a product of base quantities over another. Base
quantities follow from a row of the measuring kit's `overlap` table (docs/formats/measured-kernels.md)
here, and from a graph's kernel in src/orrery/interference/features.cc; a test compares the two.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "data/slowdown/features.csv"

ELEMENT = {"bf16": 2, "fp16": 2, "fp8": 1, "fp8_split": 1, "fp32": 4, "tf32": 4}
MOVED = {"copy_kernel": 2.0, "reduce_kernel": 3.0}  # bytes of memory a byte of payload
# Least traffic of the row-wise kernels of tools/measure/kit/row_kernels.py: tensors of rows x cols
# elements (a test compares).
TENSORS = {
    "add": 3, "dropout_add_fwd": 3.5, "embedding_fwd": 2, "layernorm_fwd": 2, "layernorm_bwd": 3,
    "rmsnorm_fwd": 2, "rmsnorm_fwd.triton": 2, "rmsnorm_bwd": 3, "rmsnorm_bwd.triton": 3,
    "moe_permute": 3, "moe_unpermute": 4,
}  # fmt: skip
EMBEDDING_ROWS = 50304


@dataclass(frozen=True)
class Device:
    """Of a GPU what features need: data/devices.yaml."""

    sms: int
    hbm_bps: float
    fp16_flops: float
    fp8_flops: float


DEVICES = {
    "h200": Device(132, 4800e9, 989.4e12, 1978.9e12),
    "h100-80gb-hbm3": Device(132, 3352e9, 989.4e12, 1978.9e12),
}


@dataclass(frozen=True)
class Row:
    """One measured overlap."""

    kernel: tuple[str, ...]  # which kernel: subject, name, type, shape
    alone_us: float
    together_us: float
    ctas: int
    beside_bps: float  # memory traffic of the companion


def read(path: Path) -> tuple[Device, list[Row]]:
    """Rows beside resident kernels, each with the time alone of its own repeat.

    Copy engines are left out: no communication of NCCL's looks like them.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    header = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    if header.get("table") != "overlap" or "not data" in header.get("device", ""):
        raise SystemExit(f"{path}: no overlap table of a GPU (table {header.get('table')})")
    if header["gpu"] not in DEVICES:
        raise SystemExit(f"{path}: GPU {header['gpu']} is none of {', '.join(DEVICES)}")
    table = list(csv.DictReader(line for line in lines if not line.startswith("#")))

    def kernel(row: dict[str, str]) -> tuple[str, ...]:
        return row["subject"], row["kernel"], row["dtype"], row["shape"]

    alone = {
        (kernel(row), row["repeat"]): float(row["time_us"])
        for row in table
        if row["beside"] == "none"
    }
    rows = [
        Row(kernel(row), alone[kernel(row), row["repeat"]], float(row["time_us"]),
            int(row["ctas"]), MOVED[row["beside"]] * float(row["rate_got_GBps"]) * 1e9)
        for row in table
        if row["beside"] in MOVED and (kernel(row), row["repeat"]) in alone
    ]  # fmt: skip
    return DEVICES[header["gpu"]], rows


def base(row: Row, device: Device) -> dict[str, float]:
    """The base quantities of a row."""
    subject, name, dtype, shape = row.kernel
    n = {key: int(value) for key, value in (part.split("=") for part in shape.split(";"))}
    flops = moved = tiles = 0.0
    e = ELEMENT[dtype]
    if subject == "gemm":
        flops = 2.0 * n["m"] * n["n"] * n["k"]
        out = 2  # products of fp8 write bf16
        moved = e * (n["m"] + n["n"]) * n["k"] + out * n["m"] * n["n"]
        tiles = -(-n["m"] // 128) * -(-n["n"] // 256)
    elif subject == "attention":
        backward = name.endswith("_bwd")
        flops = 4.0 * n["b"] * n["h"] * n["s_q"] * n["s_kv"] * n["d"]
        flops *= (0.5 if n["causal"] else 1.0) * (2.5 if backward else 1.0)
        q, kv = n["h"] * n["s_q"], n["kv_heads"] * n["s_kv"]
        moved = e * n["b"] * n["d"] * (4 * (q + kv) if backward else 2 * (q + kv))
        tiles = n["b"] * n["h"] * -(-n["s_q"] // 128)
    elif name == "embedding_bwd":
        moved = (n["rows"] + EMBEDDING_ROWS) * n["cols"] * e
    else:
        moved = TENSORS[name] * n["rows"] * n["cols"] * e
    peak = device.fp8_flops if e == 1 else device.fp16_flops
    return {
        "flops": flops, "bytes": moved, "tiles": tiles, "alone_s": row.alone_us * 1e-6,
        "ctas": float(row.ctas), "beside_Bps": row.beside_bps, "sms": float(device.sms),
        "hbm_Bps": device.hbm_bps, "peak_flops": peak, "million": 1e6,
        "is_product": float(subject == "gemm"), "is_attention": float(subject == "attention"),
    }  # fmt: skip


def table() -> list[dict[str, str]]:
    """The rows of features.csv."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def features(of: dict[str, float]) -> list[float]:
    """A row's features, in the table's order."""

    def product(names: str) -> float:
        value = 1.0
        for name in names.split("*") if names else ():
            value *= of[name]
        return value

    return [product(row["over"]) / product(row["under"]) for row in table()]


def constant(row: Row, device: Device) -> float:
    """The simulator's constant model of the same companion (src/orrery/interference)."""
    lost = row.beside_bps / device.hbm_bps
    if row.kernel[0] in ("gemm", "attention"):
        lost = row.ctas / device.sms
    return 1 / (1 - min(lost, 0.5))

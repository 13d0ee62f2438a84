"""Hardware counters of a kernel alone, read by Nsight Compute in a process of its own.

One ncu process runs all subjects. A marker kernel (torch's sleep, `spin_kernel`) between subjects
splits ncu's list of kernels, so no option of ncu that names ranges is needed.
"""

from __future__ import annotations

import csv
import io
import shutil
import sys
from collections.abc import Sequence

from kit.errors import Refused
from kit.schemas import Row

MARKER = "spin_kernel"
METRICS = (
    "gpu__time_duration.sum",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l1tex__t_sector_hit_rate.pct",
    "lts__t_sector_hit_rate.pct",
    "launch__grid_size",
    "launch__block_size",
    "launch__registers_per_thread",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
)


def command(script: str, arguments: Sequence[str]) -> list[str]:
    """The ncu call around `script`. Clocks stay as they are; only marked stretches count."""
    ncu = shutil.which("ncu")
    if ncu is None:
        raise Refused("ncu is not installed")
    return [
        ncu,
        "--csv",
        "--page",
        "raw",
        "--clock-control",
        "none",
        "--profile-from-start",
        "off",
        "--metrics",
        ",".join(METRICS),
        sys.executable,
        script,
        *arguments,
    ]


def parse(text: str, subjects: Sequence[Row]) -> list[Row]:
    """Rows of the table `ncu` from ncu's CSV. The i-th stretch of kernels belongs to subject i."""
    lines = text.splitlines()
    first = next((i for i, ln in enumerate(lines) if ln.startswith('"ID"')), None)
    if first is None:
        last = lines[-1] if lines else "no output"
        raise Refused(f"ncu printed no table: {last[:160]}")
    table = list(csv.reader(io.StringIO("\n".join(lines[first:]))))
    names, units, body = table[0], table[1], table[2:]
    name_at = names.index("Kernel Name")
    at, index = -1, 0
    rows: list[Row] = []
    for cells in body:
        if len(cells) != len(names):
            continue
        if MARKER in cells[name_at]:
            at, index = at + 1, 0
            continue
        if not 0 <= at < len(subjects):
            continue
        subject = subjects[at]
        for column, (name, unit) in enumerate(zip(names, units, strict=True)):
            value = number(cells[column])
            if name in METRICS and value is not None:
                rows.append(
                    {
                        "op": "ncu",
                        "dtype": subject["dtype"],
                        "subject": subject["subject"],
                        "kernel": subject["kernel"],
                        "shape": subject["shape"],
                        "launch": cells[name_at][:200],
                        "index": index,
                        "metric": name,
                        "value": value,
                        "unit": unit or "1",
                    }
                )
        index += 1
    return rows


def number(text: str) -> float | None:
    """A number that may have thousands separators."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None

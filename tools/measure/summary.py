#!/usr/bin/env python3
"""Checks measured tables and says what they hold: rates by class, ceilings, outliers, plots.

    python3 tools/measure/summary.py data/measured/h200 --plots build/plots

Files of tiny or CPU runs are refused (exit 2): their times are no data. --allow-tiny shows them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kit import analysis
from kit.errors import EXIT_BAD_INPUT, EXIT_OK, UserError
from kit.schemas import Row
from kit.tables import Loaded, load

SHOWN_OUTLIERS = 10


def files_of(paths: list[Path]) -> list[Path]:
    """CSV files named, or lying in folders named."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.csv")) if path.is_dir() else [path]
        if not inside:
            raise UserError(
                str(path), "folder", path.name, "holds no CSV file", "name another folder"
            )
        found += inside
    return found


def load_data(paths: list[Path], allow_tiny: bool) -> list[Loaded]:
    """Loads and checks; refuses what is not data."""
    tables = []
    for path in files_of(paths):
        loaded = load(path)
        if not loaded.is_data and not allow_tiny:
            raise UserError(
                f"{path}",
                "device",
                loaded.header["device"],
                "is a trial run, not data",
                "measure on a GPU without --tiny, or add --allow-tiny to look at it",
            )
        tables.append(loaded)
    return tables


def describe(loaded: Loaded) -> list[str]:
    """Lines about one table."""
    h = loaded.header
    lines = [
        f"{loaded.path.name}: {len(loaded.rows)} rows, {h.get('gpu_name', '?')}, {h['device']}, "
        f"torch {h.get('torch', '?')}, cuBLAS {h.get('cublas', '?')}, {h.get('date', '?')}",
        f"  clocks before: {h.get('clocks_before', '?')}",
        f"  clocks after:  {h.get('clocks_after', '?')}",
    ]
    name = loaded.table.name
    if name in analysis.RATED:
        lines.append(f"  {'rows':>6} {'best':>9} {'median':>9} {'p10':>9}  class")
        lines += [
            f"  {c.count:6d} {c.best:9.4g} {c.median:9.4g} {c.low:9.4g}  {c.name} ({c.unit})"
            for c in analysis.rates(loaded)
        ]
    ratios = analysis.sustained_ratios(loaded) if name in ("gemm", "attention") else []
    if ratios:
        lines.append(
            f"  sustained / hot time: median {statistics.median(ratios):.3f}, "
            f"largest {max(ratios):.3f}, {len(ratios)} shapes"
        )
    if name == "launch":
        lines += [
            f"  {r['time_us']:9.3f} us  {r['kernel']}, {r['path']}, {r['count']} a sample"
            for r in loaded.rows
        ]
    if name == "overlap":
        lines += [
            f"  together / alone: median {statistics.median(v for _, v in p):.3f}, "
            f"largest {max(v for _, v in p):.3f}, {len(p)} rows  {load_name}"
            for load_name, p in analysis.slowdowns(loaded).items()
        ]
    if name == "steps":
        lines += [_step_line(r) for r in loaded.rows if r["part"] == "step"]
    return lines + _outlier_lines(loaded)


def _step_line(r: Row) -> str:
    whole, host = analysis.num(r, "time_us") / 1e3, analysis.num(r, "host_us") / 1e3
    peak = analysis.num(r, "peak_allocated_bytes") / 2**30
    return (
        f"  {whole:9.3f} ms, host {host:.3f} ms, peak {peak:.2f} GiB  {r['model']} h={r['hidden']} "
        f"l={r['layers']} tp={r['tp']} ep={r['ep']} b={r['micro_batch']}"
    )


def _outlier_lines(loaded: Loaded) -> list[str]:
    found = analysis.outliers(loaded)
    lines = [f"  outliers: {len(found)}"] if found else []
    for o in found[:SHOWN_OUTLIERS]:
        key = ",".join(loaded.table.key_of(o.row)[1:])
        lines.append(f"    {key}: {o.row['time_us']} us: {o.reason}")
    return lines


def ceiling_lines(tables: list[Loaded]) -> list[str]:
    """What the best rows reached, beside the data sheet."""
    lines = ["ceilings reached:"]
    for what, value, peak, unit in analysis.ceilings(tables):
        share = f", {value / peak:.0%} of the data sheet's {peak:g}" if peak else ""
        lines.append(f"  {value:9.4g} {unit:8s} {what}{share}")
    return lines


def as_json(tables: list[Loaded]) -> dict[str, object]:
    """The summary as one document."""
    return {
        "schema": "orrery.measured-summary/1",
        "tables": [
            {
                "file": t.path.name,
                "table": t.table.name,
                "rows": len(t.rows),
                "header": t.header,
                "classes": [vars(c) for c in analysis.rates(t)]
                if t.table.name in analysis.RATED
                else [],
                "outliers": [{"row": o.row, "reason": o.reason} for o in analysis.outliers(t)],
            }
            for t in tables
        ],
        "ceilings": [
            {"what": w, "reached": v, "data_sheet": p, "unit": u}
            for w, v, p, u in analysis.ceilings(tables)
        ],
    }


def draw(tables: list[Loaded], folder: Path) -> list[Path]:
    """Plots of the tables that have one."""
    try:
        from kit import plots
    except ImportError as error:
        raise UserError(
            "command line",
            "--plots",
            str(folder),
            "matplotlib is not installed",
            "pip install matplotlib, or leave --plots out",
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    return [
        plots.PLOTS[t.table.name](t, folder)
        for t in tables
        if t.table.name in plots.PLOTS and t.rows
    ]


def main(argv: list[str] | None = None) -> int:
    """Runs to the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, help="CSV files or folders of them")
    parser.add_argument("--plots", type=Path, help="folder for PNG plots")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document instead of text"
    )
    parser.add_argument(
        "--allow-tiny", action="store_true", help="also show trial runs, which are no data"
    )
    options = parser.parse_args(argv)
    try:
        tables = load_data(options.paths, options.allow_tiny)
        drawn = draw(tables, options.plots) if options.plots else []
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    if options.json:
        print(json.dumps(as_json(tables)))
        return EXIT_OK
    for loaded in tables:
        print("\n".join(describe(loaded)))
    print("\n".join(ceiling_lines(tables)))
    for path in drawn:
        print(f"plot: {path}", file=sys.stderr)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())

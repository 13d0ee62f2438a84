"""Plots of measured tables as PNG. Needs matplotlib."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from kit import analysis
from kit.tables import Loaded

# A palette that the common colour-vision deficiencies tell apart (Okabe and Ito).
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")


def _figure(title: str, x: str, y: str, loaded: Loaded) -> tuple[Any, Any]:
    figure, axes = plt.subplots(figsize=(9, 5.5), dpi=110)
    mark = "" if loaded.is_data else "  [tiny, not data]"
    axes.set_title(f"{title}: {loaded.header.get('gpu_name', '?')}{mark}", fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True, which="major", alpha=0.3)
    return figure, axes


def _save(figure: Any, axes: Any, path: Path, columns: int = 1) -> Path:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, ncol=columns, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)
    return path


def gemm(loaded: Loaded, folder: Path) -> Path:
    """Rate over work, by element type, with the data sheet's peaks dashed."""
    figure, axes = _figure("Matrix products", "work of one call (FLOP)", "TFLOP/s", loaded)
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in loaded.rows:
        kind = f"{row['dtype']}{' grouped' if analysis.num(row, 'groups') > 1 else ''}"
        kind += " sustained" if row["mode"] == "sustained" else ""
        flops = 2.0 * analysis.num(row, "m") * analysis.num(row, "n") * analysis.num(row, "k")
        groups[kind].append((flops, analysis.gemm_tflops(row)))
    for i, (kind, points) in enumerate(sorted(groups.items())):
        axes.scatter(
            *zip(*points, strict=True),
            s=9,
            alpha=0.6,
            label=f"{kind} ({len(points)})",
            color=COLORS[i % len(COLORS)],
            marker="ox+^s"[i // len(COLORS) % 5],
            linewidths=0.8,
        )
    types = {str(r["dtype"]) for r in loaded.rows}
    peaks = {v for k, v in analysis.sheet_of(loaded.header.get("gpu", "")).items() if k in types}
    for peak in peaks:
        axes.axhline(peak, ls="--", lw=0.8, color="#666666")
        axes.annotate(
            f"data sheet {peak:g}",
            (0.01, peak),
            xycoords=("axes fraction", "data"),
            fontsize=7,
            va="bottom",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    return _save(figure, axes, folder / "gemm.png")


def _lines(
    loaded: Loaded,
    folder: Path,
    name: str,
    title: str,
    x: str,
    y: str,
    points: dict[str, dict[float, list[float]]],
    peak: float = 0.0,
) -> Path:
    """One line per kind through the medians at each x."""
    figure, axes = _figure(title, x, y, loaded)
    for i, (kind, at) in enumerate(sorted(points.items())):
        xs = sorted(at)
        ys = [analysis.statistics.median(at[v]) for v in xs]
        axes.plot(
            xs,
            ys,
            marker="o",
            ms=3,
            lw=1.0,
            label=kind,
            color=COLORS[i % len(COLORS)],
            ls=("-", "--", ":", "-.")[i // len(COLORS) % 4],
        )
    if peak:
        axes.axhline(peak, ls="--", lw=0.8, color="#666666")
        axes.annotate(
            f"data sheet {peak:g}",
            (0.01, peak),
            xycoords=("axes fraction", "data"),
            fontsize=7,
            va="bottom",
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    return _save(figure, axes, folder / name, 1 if len(points) < 24 else 2)


def attention(loaded: Loaded, folder: Path) -> Path:
    """Median rate over sequence length, by implementation and pass."""
    points: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in loaded.rows:
        kind = f"{row['kernel']} {row['pass']} {row['dtype']}"
        points[kind][analysis.num(row, "s_q")].append(analysis.attention_tflops(row))
    return _lines(
        loaded,
        folder,
        "attention.png",
        "Attention, median over shapes",
        "query length",
        "TFLOP/s",
        points,
    )


PANELS = {
    "norms, residual": ("rmsnorm", "layernorm", "add", "dropout", "transpose"),
    "activations, rotary": ("swiglu", "gelu", "rotary"),
    "losses, softmax, embedding": ("softmax", "cross_entropy", "embedding"),
    "optimizer, gradients": ("adamw", "gradient"),
    "casts, copies": ("cast", "copy", "fill", "sum"),
    "experts' routing": ("moe",),
}


def memory_bound(loaded: Loaded, folder: Path) -> Path:
    """Bandwidth over traffic, by kernel, a panel for each family."""
    points: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in loaded.rows:
        size = 2.0 ** (int(row["bytes"]) - 1).bit_length()
        points[str(row["kernel"])][size].append(analysis.bandwidth(row))
    peak = analysis.sheet_of(loaded.header.get("gpu", "")).get("memory_GBps", 0.0)
    mark = "" if loaded.is_data else "  [tiny, not data]"
    figure, grid = plt.subplots(2, 3, figsize=(15, 8), dpi=90, sharex=True, sharey=True)
    figure.suptitle(f"Memory-bound kernels: {loaded.header.get('gpu_name', '?')}{mark}")
    for axes, (family, starts) in zip(grid.flat, PANELS.items(), strict=True):
        kinds = sorted(k for k in points if k.startswith(starts))
        for i, kind in enumerate(kinds):
            xs = sorted(points[kind])
            ys = [analysis.statistics.median(points[kind][x]) for x in xs]
            style = ("-", "--", ":")[i // len(COLORS) % 3]
            axes.plot(xs, ys, style, marker="o", ms=2.5, lw=1.0, label=kind, color=COLORS[i % 8])
        if peak:
            axes.axhline(peak, ls="--", lw=0.8, color="#666666")
        axes.set_title(family, fontsize=10)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.grid(True, alpha=0.3)
        if kinds:
            axes.legend(fontsize=7, loc="lower right")
    figure.supxlabel("least traffic of one call (B)", fontsize=10)
    figure.supylabel("least traffic / time (GB/s); dashed: data sheet", fontsize=10)
    figure.tight_layout()
    figure.savefig(folder / "memory_bound.png")
    plt.close(figure)
    return folder / "memory_bound.png"


def copies(loaded: Loaded, folder: Path) -> Path:
    """Bandwidth over payload, by kind of copy."""
    points: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in loaded.rows:
        if row["kernel"] != "strided_copy":
            points[str(row["kernel"])][analysis.num(row, "bytes")].append(
                analysis.bandwidth(row, "moved_bytes")
            )
    peak = analysis.sheet_of(loaded.header.get("gpu", "")).get("memory_GBps", 0.0)
    return _lines(
        loaded,
        folder,
        "copies.png",
        "Copies",
        "payload (B)",
        "device-memory traffic (GB/s)",
        points,
        peak,
    )


def overlap(loaded: Loaded, folder: Path) -> Path:
    """Slowdown of each subject beside each companion."""
    figure, axes = _figure("Kernels beside a companion", "time together / time alone", "", loaded)
    found = analysis.slowdowns(loaded)
    kinds = sorted({kind for points in found.values() for kind, _ in points})
    for y, (_, points) in enumerate(found.items()):
        for i, kind in enumerate(kinds):
            values = [v for k, v in points if k == kind]
            axes.scatter(
                values,
                [y + 0.2 * (i - 1)] * len(values),
                s=12,
                alpha=0.6,
                color=COLORS[i % len(COLORS)],
                label=kind if y == 0 else None,
            )
    axes.set_yticks(range(len(found)), list(found), fontsize=8)
    axes.axvline(1.0, lw=0.8, color="#666666")
    axes.invert_yaxis()
    return _save(figure, axes, folder / "overlap.png")


def clock(loaded: Loaded, folder: Path) -> Path:
    """SM clock and power over the run."""
    figure, axes = _figure("Clock and power", "row (two a second)", "SM clock (MHz)", loaded)
    axes.plot(
        [analysis.num(r, "sm_mhz") for r in loaded.rows], lw=0.8, color=COLORS[0], label="SM clock"
    )
    power = axes.twinx()
    power.plot([analysis.num(r, "power_w") for r in loaded.rows], lw=0.8, color=COLORS[1])
    power.set_ylabel("power (W)", color=COLORS[1])
    axes.set_ylabel("SM clock (MHz)", color=COLORS[0])
    figure.savefig(folder / "clock.png", bbox_inches="tight")
    plt.close(figure)
    return folder / "clock.png"


PLOTS = {
    "gemm": gemm,
    "attention": attention,
    "memory_bound": memory_bound,
    "copies": copies,
    "overlap": overlap,
    "clock": clock,
}

#!/usr/bin/env python3
"""Runs the example of docs/formats/storage.md and draws its picture into docs/pictures.

Usage: tools/pictures/storage.py [PROGRAM]   (build/release/orrery)
"""

import html
import json
import math
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build" / "release" / "orrery")
EXAMPLE = ROOT / "examples" / "storage" / "oltp.yaml"
PICTURE = ROOT / "docs" / "pictures" / "storage.svg"
FABRICS = (("1:1", 1), ("8:1", 8))
FABRIC = (
    "cluster.topology=fat-tree-2",
    "cluster.nodes_per_leaf=8",
    "cluster.gpus_per_node=1",
    "cluster.nics_per_node=1",
    "cluster.gpus_per_nvlink_domain=1",
    "cluster.nic_bandwidth=100Gb/s",
)
CONTROLS = ("mprdma", "ndp", "nscc")
COLOURS = {"mprdma": "#3b6ea5", "ndp": "#6aa56a", "nscc": "#e08a3c"}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 360, 64, 52, 46


def run(oversubscription, control):
    """Times of requests in us, sorted, and the result."""
    with tempfile.TemporaryDirectory() as folder:
        csv = pathlib.Path(folder) / "requests.csv"
        command = [PROGRAM, "simulate", str(EXAMPLE), "--network", "packet", "--csv", str(csv), "--json", "-"]
        command += ["--cluster", "h100-ib-400g"]
        for key in FABRIC + (f"cluster.oversubscription={oversubscription}", f"packet.congestion_control={control}"):
            command += ["--set", key]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        lines = csv.read_text().splitlines()
    column = lines[0].split(",").index("time_ps")
    return sorted(int(line.split(",")[column]) / 1e6 for line in lines[1:]), json.loads(done.stdout)


def percentile(times, share):
    return times[max(0, math.ceil(share * len(times)) - 1)]


class Plot:
    """Times on a logarithmic scale, a shape a run: as wide as its share of requests."""

    def __init__(self, least, most):
        self.low, self.high = math.log10(least) - 0.05, math.log10(most) + 0.05
        self.parts = [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' "
            f"height='{HEIGHT}' font-family='sans-serif' font-size='11'>",
            "<rect width='100%' height='100%' fill='white'/>",
            "<text x='12' y='18' font-size='14'>Completion times of 5,000 storage requests</text>",
        ]
        for exponent in range(int(self.low), int(self.high) + 1):
            for step in (1, 2, 5):
                value = step * 10**exponent
                if self.low <= math.log10(value) <= self.high:
                    self.line(value)

    def y(self, time):
        share = (math.log10(time) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)

    def line(self, value):
        text = f"{value:g} us" if value < 1000 else f"{value / 1000:g} ms"
        self.parts.append(
            f"<line x1='{LEFT}' x2='{WIDTH - 12}' y1='{self.y(value):.1f}' y2='{self.y(value):.1f}' stroke='#dddddd'/>"
            f"<text x='{LEFT - 6}' y='{self.y(value) + 4:.1f}' text-anchor='end'>{text}</text>"
        )

    def text(self, x, y, text, anchor="middle"):
        self.parts.append(f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'>{html.escape(text)}</text>")

    def shape(self, x, width, times, colour):
        bins, counts = 60, [0] * 60
        for time in times:
            share = (math.log10(time) - self.low) / (self.high - self.low)
            counts[min(bins - 1, int(share * bins))] += 1
        most = max(counts)
        right, left = [], []
        last = max(i for i, count in enumerate(counts) if count)
        for i, count in enumerate(counts[: last + 1]):
            y = HEIGHT - BOTTOM - (i + 0.5) / bins * (HEIGHT - BOTTOM - TOP)
            half = width / 2 * count / most
            if count or right:
                right.append(f"{x + half:.1f},{y:.1f}")
                left.append(f"{x - half:.1f},{y:.1f}")
        points = " ".join(right + left[::-1])
        self.parts.append(f"<polygon points='{points}' fill='{colour}' fill-opacity='0.55' stroke='{colour}'/>")

    def mark(self, x, time, kind):
        y = self.y(time)
        shapes = {
            "mean": f"<rect x='{x - 3:.1f}' y='{y - 3:.1f}' width='6' height='6' fill='black'/>",
            "p99": f"<path d='M{x - 4:.1f} {y - 4:.1f} l8 8 m0 -8 l-8 8' stroke='black' stroke-width='1.5'/>",
            "longest": f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.5' fill='white' stroke='black'/>",
        }
        self.parts.append(shapes[kind])


def main():
    runs = [(f, c, *run(o, c)) for f, o in FABRICS for c in CONTROLS]
    plot = Plot(min(r[2][0] for r in runs), max(r[2][-1] for r in runs))
    slot = (WIDTH - 12 - LEFT) / len(runs)
    for i, (fabric, control, times, result) in enumerate(runs):
        x = LEFT + (i + 0.5) * slot
        plot.shape(x, 0.8 * slot, times, COLOURS[control])
        mean = sum(times) / len(times)
        for kind, time in (("mean", mean), ("p99", percentile(times, 0.99)), ("longest", times[-1])):
            plot.mark(x, time, kind)
        plot.text(x, HEIGHT - 28, control)
        rows = {row["kind"]: row for row in result["requests"]["kinds"]}
        values = [percentile(times, s) for s in (0.5, 0.99, 0.999)]
        print(f"{fabric} {control}: mean {mean:.1f}, p50 {values[0]:.1f}, p99 {values[1]:.1f}, p99.9 {values[2]:.1f}, "
              f"longest {times[-1]:.1f} us; {rows['all']['requests_per_s']:,.0f} requests/s; "
              f"{result['simulation']['wall_s']:.1f} s")
    for i, (fabric, _) in enumerate(FABRICS):
        plot.text(LEFT + (i + 0.5) * slot * len(CONTROLS), HEIGHT - 10, f"leaves {fabric}")
    for i, (kind, text) in enumerate((("mean", "mean"), ("p99", "99th percentile"), ("longest", "longest"))):
        plot.mark(LEFT + 10 + 120 * i, 10 ** (plot.high + 0.06 * (plot.high - plot.low)), kind)
        plot.text(LEFT + 20 + 120 * i, 38, text, "start")
    PICTURE.write_text("\n".join(plot.parts + ["</svg>"]) + "\n")


if __name__ == "__main__":
    main()

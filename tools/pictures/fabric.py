#!/usr/bin/env python3
"""Runs the examples of examples/fabric/README.md and draws their pictures into docs/pictures.

Usage: tools/pictures/fabric.py [PROGRAM]   (build/release/orrery)
"""

import html
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "fabric"
PICTURES = ROOT / "docs" / "pictures"
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build" / "release" / "orrery")
COLOURS = ["#3b6ea5", "#e08a3c", "#6aa56a", "#b0413e"]


def simulate(job, *settings, heat_map=None):
    command = [PROGRAM, "simulate", str(job), "--json", "-"]
    for setting in settings:
        command += ["--set", setting]
    if heat_map:
        command += ["--heat-map", str(PICTURES / heat_map)]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode not in (0, 1):  # 1: does not fit, which is no matter here
        sys.exit(run.stderr)
    return json.loads(run.stdout)


class Plot:
    """A frame with a scale of step times from 0, and what stands in it."""

    WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 560, 300, 60, 46, 40

    def __init__(self, title, unit, most, names):
        self.most, self.names = most, names
        self.parts = [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.WIDTH} {self.HEIGHT}' "
            f"width='{self.WIDTH}' height='{self.HEIGHT}' font-family='sans-serif' font-size='11'>",
            "<rect width='100%' height='100%' fill='white'/>",
            f"<text x='12' y='18' font-size='14'>{html.escape(title)}</text>",
        ]
        step = next(s * 10.0**e for e in range(-6, 6) for s in (1, 2, 5) if most / (s * 10.0**e) <= 6)
        value = 0.0
        while value <= most:
            y = self.y(value)
            self.parts.append(
                f"<line x1='{self.LEFT}' x2='{self.WIDTH - 12}' y1='{y:.1f}' y2='{y:.1f}' stroke='#dddddd'/>"
                f"<text x='{self.LEFT - 6}' y='{y + 4:.1f}' text-anchor='end'>{value:g} {unit}</text>"
            )
            value = round(value + step, 9)
        for i, name in enumerate(names):
            self.text(self.x(i), self.HEIGHT - 20, name)

    def x(self, i):
        return self.LEFT + (i + 0.5) * (self.WIDTH - 12 - self.LEFT) / len(self.names)

    def y(self, value):
        return self.HEIGHT - self.BOTTOM - value / self.most * (self.HEIGHT - self.BOTTOM - self.TOP - 10)

    def text(self, x, y, words, anchor="middle"):
        self.parts.append(f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'>{html.escape(words)}</text>")

    def legend(self, names):
        x = self.LEFT
        for name, colour in zip(names, COLOURS):
            self.parts.append(f"<rect x='{x}' y='28' width='12' height='12' fill='{colour}'/>")
            self.text(x + 17, 38, name, "start")
            x += 30 + 7 * len(name)

    def bars(self, i, values, labels, stacked):
        """One place's bars: on top of each other, or side by side with their values above."""
        width = 46 if stacked else 52
        base = 0.0
        for k, value in enumerate(values):
            x = self.x(i) + (-width / 2 if stacked else (k - len(values) / 2) * (width + 6))
            top, bottom = self.y(base + value), self.y(base)
            self.parts.append(
                f"<rect x='{x:.1f}' y='{top:.1f}' width='{width}' height='{bottom - top:.1f}' fill='{COLOURS[k]}'/>"
            )
            if stacked:
                base += value
            else:
                self.text(x + width / 2, top - 4, labels[k])
        if stacked:
            self.text(self.x(i), self.y(base) - 4, labels[0])

    def line(self, k, values):
        points = [(self.x(i), self.y(v)) for i, v in enumerate(values) if v is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f"<polyline points='{path}' fill='none' stroke='{COLOURS[k]}' stroke-width='2'/>")
        for x, y in points:
            self.parts.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.5' fill='{COLOURS[k]}'/>")

    def write(self, name):
        (PICTURES / name).write_text("\n".join(self.parts + ["</svg>", ""]), encoding="utf-8")


def nic_bandwidth():
    rates = [100, 200, 400]
    names = ["kernels", "host", "gradients not hidden", "rest"]
    rows = []
    for rate in rates:
        run = simulate(EXAMPLES / "oversubscription.yaml", f"cluster.nic_bandwidth={rate}Gb/s")
        part = run["breakdown"]["overall"]
        kernels = part["compute_s"] + part["optimizer_s"] + part["interference_s"]
        seen = [kernels, part["host_s"], part["exposed_dp_s"]]
        rows.append([1e3 * v for v in [*seen, part["total_s"] - sum(seen)]])
        print(f"nic_bandwidth {rate} Gb/s: {1e3 * run['step_time_s']:.1f} ms")
    plot = Plot("Step time by bandwidth of a GPU's NIC", "ms", 1000, [f"{r} Gb/s" for r in rates])
    plot.legend(names)
    for i, row in enumerate(rows):
        plot.bars(i, row, [f"{sum(row):.1f} ms"], stacked=True)
    plot.write("nic-bandwidth.svg")


def tp_by_host():
    hosts, widths = [8, 16, 32, 64], [4, 8, 16, 32]
    plot = Plot("Step time by GPUs a host, for each tensor parallelism", "s", 14, [f"{h} GPUs" for h in hosts])
    plot.legend([f"TP {tp}" for tp in widths])
    for k, tp in enumerate(widths):
        steps = []
        for host in hosts:
            if tp > host:
                steps.append(None)
                continue
            shape = [f"cluster.{key}={host}" for key in ("gpus_per_node", "gpus_per_nvlink_domain", "nics_per_node")]
            run = simulate(EXAMPLES / "tp-by-host.yaml", *shape, f"nodes={512 // host}", f"parallel.tp={tp}")
            steps.append(run["step_time_s"])
            print(f"tp_by_host {host} GPUs, TP {tp}: {steps[-1]:.3f} s")
        plot.line(k, steps)
    plot.write("tp-by-host.svg")


def victim():
    text = (EXAMPLES / "victim.yaml").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        alone = pathlib.Path(folder) / "alone.yaml"
        alone.write_text(text[: text.index("- name: ring")], encoding="utf-8")
        before = simulate(alone)
    beside = simulate(EXAMPLES / "victim.yaml", heat_map="victim-links.svg")
    steps = [1e3 * (before["jobs"][0] if "jobs" in before else before)["step_time_s"], 1e3 * beside["jobs"][0]["step_time_s"]]
    print("victim: alone {:.1f}, beside {:.1f} ms".format(*steps))
    plot = Plot("Step time of the pipeline", "ms", 1000, ["alone", "beside the ring"])
    for i, step in enumerate(steps):
        plot.bars(i, [step], [f"{step:.1f} ms"], stacked=True)
    plot.write("victim.svg")


def placement():
    names = ["packed", "random"]
    plot = Plot("Step times of two jobs", "ms", 1200, names)
    plot.legend(["job a", "job b"])
    for i, name in enumerate(names):
        run = simulate_placed(name)
        steps = [1e3 * job["step_time_s"] for job in run["jobs"]]
        print(f"placement {name}: {steps[0]:.1f}, {steps[1]:.1f} ms")
        plot.bars(i, steps, [f"{s:.0f} ms" for s in steps], stacked=False)
    plot.write("placement.svg")


def simulate_placed(name):
    text = (EXAMPLES / "two-jobs.yaml").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder) / "jobs.yaml"
        job.write_text(text.replace("placement: packed", f"placement: {name}"), encoding="utf-8")
        return simulate(job, heat_map=f"placement-{name}.svg")


if __name__ == "__main__":
    nic_bandwidth()
    tp_by_host()
    victim()
    placement()

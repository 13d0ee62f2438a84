#!/usr/bin/env python3
"""Runs the stories of docs/packets.md and draws their pictures into docs/pictures.

Usage: tools/pictures/packets.py [PROGRAM [STORY…]]   (build/release/orrery; all of: step core eight-to-one bandwidth incast)

Prints the tables' figures. `bandwidth` takes minutes, each of the others a few.
"""

import json
import math
import subprocess
import sys
import tempfile

from fabric import COLOURS, PICTURES, PROGRAM, ROOT, Plot

EXAMPLES = ROOT / "examples" / "packets"
CONTROLS = ["none", "dcqcn", "hpcc", "timely", "dctcp", "swift", "mprdma", "ndp", "eqds", "nscc"]
HOSTS = EXAMPLES / "hosts.yaml"


def run(verb, *words):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [PROGRAM, verb, *map(str, words), "--json", out.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):  # 1: does not fit the memory, which is no matter here
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        return json.load(open(out.name))


def settings(**keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


def simulate(job, network, control=None, *more):
    words = ["--no-advice", "--network", network, *more]
    if control:
        words += settings(packet__congestion_control=control)
    return run("simulate", EXAMPLES / job, *words)


def flows(pattern, control, oversubscription=1, size="4MiB", *more):
    words = ["--cluster", HOSTS, "--nodes", 16, "--size", size, "--network", "packet", *more]
    words += settings(packet__congestion_control=control, cluster__oversubscription=oversubscription)
    return run("traffic", *pattern.split(), *words)


def mean_us(result):
    return sum(result["completion_ps"]) / len(result["completion_ps"]) / 1e6


def percentile_us(result, share):
    times = sorted(result["completion_ps"])
    return times[max(0, math.ceil(share * len(times)) - 1)] / 1e6


def step_ms(result):
    return 1e3 * (result["jobs"][0] if "jobs" in result else result)["step_time_s"]


class Signed(Plot):
    """Bars up and down from a middle line, in per cent."""

    def __init__(self, title, most, names):
        self.reach = most
        super().__init__(title, "", 2 * most, [""] * len(names))
        self.parts = [part for part in self.parts if "text-anchor='end'" not in part]
        for value in range(-int(most), int(most) + 1, 4):
            y = self.y(value + most)
            self.parts.append(
                f"<line x1='{self.LEFT}' x2='{self.WIDTH - 12}' y1='{y:.1f}' y2='{y:.1f}' stroke='{'#888888' if value == 0 else '#dddddd'}'/>"
                f"<text x='{self.LEFT - 6}' y='{y + 4:.1f}' text-anchor='end'>{value:+d} %</text>"
            )
        for i, name in enumerate(names):
            for k, line in enumerate(name.split("|")):
                self.text(self.x(i), self.HEIGHT - 28 + 13 * k, line)

    def bar(self, i, value):
        zero, top = self.y(self.reach), self.y(self.reach + value)
        colour = COLOURS[2] if value < 0 else COLOURS[3]
        self.parts.append(
            f"<rect x='{self.x(i) - 23:.1f}' y='{min(zero, top):.1f}' width='46' height='{max(abs(top - zero), 0.5):.1f}' fill='{colour}'/>"
        )
        self.text(self.x(i), top + (14 if value < 0 else -5), f"{value:+.1f} %")


def step():
    """ATLAHS, Figure 1: two controls that an incast and a permutation find equal, and a training step."""
    rows = []
    for name, pattern in (("incast|8 to 1", "incast --degree 8"), ("permutation|of 16", "permutation")):
        times = [mean_us(flows(pattern, control)) for control in ("swift", "mprdma")]
        rows.append((name, times, "us"))
    for ratio in (1, 4):
        for stages in (2, 4):
            keys = settings(cluster__oversubscription=ratio, parallel__pp=stages, parallel__dp=16 // stages)
            times = [step_ms(simulate("training-step.yaml", "packet", control, *keys)) for control in ("swift", "mprdma")]
            rows.append((f"step, PP {stages}|core {ratio}:1", times, "ms"))
    plot = Signed("Swift's time beside MPRDMA's: below 0 % it is faster", 12, [row[0] for row in rows])
    for i, (name, (swift, mprdma), unit) in enumerate(rows):
        plot.bar(i, 100 * (swift / mprdma - 1))
        print(f"step | {name.replace('|', ' ')} | swift {swift:.1f} {unit} | mprdma {mprdma:.1f} {unit} | {100 * (swift / mprdma - 1):+.1f} %", flush=True)
    plot.write("packet-step.svg")
    keys = settings(cluster__oversubscription=4, parallel__pp=4, parallel__dp=4)
    simulate("training-step.yaml", "packet", "swift", *keys, "--heat-map", PICTURES / "packet-step-links.svg")


def core():
    """ATLAHS, Figure 12: a full and a 4:1 core, LogGOPS beside packets, and what was lost."""
    steps, lost = [], {}
    for ratio in (1, 4):
        keys = settings(cluster__oversubscription=ratio, packet__load_balancing="spray")
        blind = simulate("oversubscribed-llama.yaml", "loggops", None, *settings(cluster__oversubscription=ratio))
        seen = simulate("oversubscribed-llama.yaml", "packet", "mprdma", *keys)
        steps.append([step_ms(blind), step_ms(seen)])
        packets = seen["network"]["packets"]
        lost[ratio] = packets
        print(f"core | {ratio}:1 | loggops {steps[-1][0]:.1f} ms | packets {steps[-1][1]:.1f} ms | {packets['lost']:,} of {packets['sent']:,} lost, {packets['timeouts']:,} timeouts", flush=True)
    plot = Plot("Step time of a part of Llama 2 7B, LogGOPS and packets under MPRDMA", "ms", 1.15 * max(max(row) for row in steps), ["full core", "4:1 core"])
    plot.legend(["LogGOPS", "packets"])
    for i, row in enumerate(steps):
        plot.bars(i, row, [f"{value:.0f} ms" for value in row], stacked=False)
        plot.text(plot.x(i), plot.HEIGHT - 5, f"{lost[(1, 4)[i]]['lost']:,} of {lost[(1, 4)[i]]['sent'] / 1e6:.1f} million packets lost")
    plot.write("packet-core.svg")


def eight_to_one():
    """Every control where the core has an eighth of the hosts' bandwidth."""
    rows = {}
    for control in CONTROLS:
        full, thin = (flows("permutation", control, ratio) for ratio in (1, 8))
        rows[control] = [mean_us(full), percentile_us(full, 0.99), mean_us(thin), percentile_us(thin, 0.99)]
        packets = thin["packets"]
        print(f"eight-to-one | {control} | " + " | ".join(f"{v:.0f}" for v in rows[control]) + f" | {packets['lost']:,} / {packets['trimmed']:,} / {packets['pauses']:,}", flush=True)
    most = max(row[3] for row in rows.values())
    plot = Plot("A permutation of 4 MiB, 16 hosts under a core of 8:1", "us", 1.05 * most, CONTROLS)
    plot.legend(["mean", "last"])
    for i, row in enumerate(rows.values()):
        for k, value in enumerate(row[2:]):
            x = plot.x(i) - 18 + 18 * k
            plot.parts.append(f"<rect x='{x:.1f}' y='{plot.y(value):.1f}' width='16' height='{plot.y(0) - plot.y(value):.1f}' fill='{COLOURS[k]}'/>")
    plot.write("packet-8to1.svg")


def bandwidth():
    """SimAI, Figure 10: GPT-3 175B on 1,024 H100 and H20 by the NICs' bandwidth; packets on 128 GPUs."""
    rates = [100, 200, 400]
    lines = {
        "1,024 H100, flow": ("h100-ib-400g", "flow", {"training__global_batch": 256}),
        "1,024 H20, flow": ("h20-ib-400g", "flow", {"training__global_batch": 256}),
        "128 H100, packet": ("h100-ib-400g", "packet", {"training__global_batch": 64, "parallel__pp": 4, "parallel__dp": 4, "nodes": 16}),
    }
    job = ROOT / "examples" / "fabric" / "gpt3-175b-1k.yaml"
    steps = {name: [] for name in lines}
    for name, (preset, network, more) in lines.items():
        for rate in rates:
            keys = settings(cluster__preset=preset, cluster__nic_bandwidth=f"{rate}Gb/s", **more)
            steps[name].append(run("simulate", job, "--no-advice", "--network", network, *keys)["step_time_s"])
            print(f"bandwidth | {name} | {rate} Gb/s | {steps[name][-1]:.3f} s", flush=True)
    most = 1.1 * max(value for line in steps.values() for value in line)
    plot = Plot("GPT-3 175B by bandwidth of a GPU's NIC", "s", most, [f"{rate} Gb/s" for rate in rates])
    plot.legend(list(lines))
    for k, line in enumerate(steps.values()):
        plot.line(k, line)
    plot.write("packet-bandwidth.svg")


def incast():
    """HPCC, section 5: the queue before the receiver under an incast, and how fast it drains."""
    runs = {}
    for control in ("hpcc", "dcqcn", "dcqcn-mellanox"):
        with tempfile.TemporaryDirectory() as folder:
            runs[control] = flows("incast --degree 15", control, 1, "2MB", "--queues", f"{folder}/queues.svg")
        packets = runs[control]["packets"]
        port = max(packets["links"], key=lambda link: link["longest_queue_bytes"])
        runs[control] = (port["queue_bytes"], packets["queue_step_s"], port["longest_queue_bytes"], max(runs[control]["completion_ps"]) / 1e6, mean_us(runs[control]))
        print(f"incast | {control} | most {runs[control][2] / 1024:,.0f} KiB | mean {runs[control][4]:.0f} us | last {runs[control][3]:.0f} us", flush=True)
    end = max(len(queue) * width for queue, width, *_ in runs.values()) * 1e6
    most = 1.1 * max(longest for _, _, longest, *_ in runs.values()) / 1024
    plot = Plot("15 to 1, 2 MB each over 200 Gb/s: the queue before the receiver", "KiB", most, [f"{end * (i + 0.5) / 5:.0f} us" for i in range(5)])
    plot.legend(list(runs))
    for k, (queue, width, *_) in enumerate(runs.values()):
        span = plot.WIDTH - 12 - plot.LEFT
        points = [(plot.LEFT + span * (i + 0.5) * width * 1e6 / end, plot.y(bytes_ / 1024)) for i, bytes_ in enumerate(queue)]
        plot.parts.append(f"<polyline fill='none' stroke='{COLOURS[k]}' stroke-width='1.5' points='" + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + "'/>")
    plot.write("packet-incast.svg")


STORIES = {"step": step, "core": core, "eight-to-one": eight_to_one, "bandwidth": bandwidth, "incast": incast}

if __name__ == "__main__":
    for story in sys.argv[2:] or STORIES:
        STORIES[story]()

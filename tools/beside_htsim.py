#!/usr/bin/env python3
"""Completion times and CPU of htsim's programs beside ours, on the same flows over the same fat tree.

Usage: beside_htsim.py FOLDER [--nodes 16|128|1024] [--seeds N] [--only NAME,…] [--program PROGRAM]
  FOLDER:  has htsim_uec, htsim_ndp, htsim_eqds, htsim_roce (github.com/ultraethernet/uet-htsim), htsim_swift, htsim_hpcc
           (github.com/Broadcom/csg-htsim), built elsewhere; those that are not there are left out
  PROGRAM: build/release/orrery unless said
  NAME:    nscc, ndp, eqds, roce, swift, hpcc

The fat tree is htsim's own: 100 Gb/s, 1 us a link, three tiers, no oversubscription. A seed draws a permutation of 2 MB; the incast
is 15 flows of 2 MB into one host. htsim ends a flow when its last acknowledgement is back, we when its last byte is there: the
way back on an idle network is added to ours. Prints mean, 99th percentile and last completion in us, the difference of means, user
CPU of both, and the hops that we counted.
"""

import argparse
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BYTES, RATE, LATENCY_US, CONTROL = 2_000_000, 12_500.0, 1.0, 64  # B, B/us, us, B
FINISHED = re.compile(r"^Flow \S+ .*?finished at ([0-9.]+)", re.M)

# htsim's arguments; payload and header; our keys under `packet`.
KINDS = {
    "nscc": (
        ["htsim_uec", "-sender_cc_only", "-paths", "128"],
        (4086, 64),
        {"congestion_control": "nscc", "queue": 178450, "ecn_min": 37350, "ecn_max": 145250, "paths": 128, "ack_every": 4},
    ),
    "ndp": (
        ["htsim_ndp", "-strat", "perm", "-mtu", "4000", "-q", "8", "-cwnd", "23"],
        (4000, 64),
        {"congestion_control": "ndp", "queue": 8 * 4064, "window": 23 * 4064, "paths": 128},
    ),
    "eqds": (
        ["htsim_eqds", "-strat", "ecmp_host", "-paths", "128", "-mtu", "4000", "-q", "35", "-cwnd", "50"],
        (3936, 64),
        {"congestion_control": "eqds", "queue": 35 * 4000, "window": 50 * 4000, "paths": 128, "ack_every": 4},
    ),
    "roce": (
        ["htsim_roce", "-strat", "ecmp_host", "-paths", "128", "-mtu", "4000", "-q", "10000"],
        (4000, 0),
        {"congestion_control": "none", "pfc_xoff": 15 * 4000, "pfc_xon": 12 * 4000, "ack_every": 1},
    ),
    # Its target is 20 us and 3 us a hop, ours 1.25 times the path's own round trip.
    "swift": (
        ["htsim_swift", "-mtu", "4000", "-q", "100", "-cwnd", "12", "-flowsize", str(BYTES // 4000)],
        (4000, 0),
        {"congestion_control": "swift", "queue": 100 * 4000, "window": 12 * 4000},
    ),
    # W_AI is a packet each 12 us there.
    "hpcc": (
        ["htsim_hpcc", "-strat", "ecmp_host", "-paths", "128", "-mtu", "4000", "-q", "10000"],
        (4000, 0),
        {"congestion_control": "hpcc", "pfc_xoff": 15 * 4000, "pfc_xon": 12 * 4000, "rate_ai": "2667Mb/s", "additive_stages": 5},
    ),
}


def run(command, folder):
    """What it printed, and its user CPU seconds."""
    out = folder / "out"
    with open(out, "wb") as file:
        child = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=folder)
        _, status, usage = os.wait4(child.pid, 0)
    text = out.read_text(errors="replace")
    if status != 0:
        sys.exit(f"{' '.join(map(str, command))}: status {status}\n{text[-2000:]}")
    return text, usage.ru_utime


def flows(pattern, nodes, seed):
    draw = random.Random(seed)
    if pattern == "incast":
        return [(source, 0) for source in range(1, 16)]
    while True:
        to = list(range(nodes))
        draw.shuffle(to)
        if all(a != b for a, b in enumerate(to)):
            return list(enumerate(to))


def cluster(nodes, payload, header):
    half = round((nodes / 2) ** (1 / 3))  # k/2: k^3/4 hosts
    return f"""preset: h100-roce-400g
gpus_per_node: 1
gpus_per_nvlink_domain: 1
nics_per_node: 1
nic_bandwidth: 100Gb/s
nic_latency: 1us
nic_mtu_bytes: {payload}
nic_header_bytes: {header}
pcie_bandwidth: 4000GB/s
pcie_latency: 0us
nodes_per_leaf: {half}
topology: {{name: fat-tree-3, nodes_per_pod: {half * half}, spines: {half}, cores: {half}, uplink_bandwidth: 100Gb/s, core_bandwidth: 100Gb/s}}
""", half


def way_back(a, b, half):
    hops = 2 if a // half == b // half else 4 if a // half**2 == b // half**2 else 6
    return hops * (LATENCY_US + CONTROL / RATE)


def summary(times):
    times = sorted(times)
    return sum(times) / len(times), times[max(0, math.ceil(0.99 * len(times)) - 1)], times[-1]


def compare(kind, pattern, options, folder):
    arguments, (payload, header), keys = KINDS[kind]
    text, half = cluster(options.nodes, payload, header)
    (folder / "cluster.yaml").write_text(text)
    theirs, ours, cpu, hops = [], [], [0.0, 0.0], 0
    for seed in range(1, 2 if pattern == "incast" else options.seeds + 1):
        pairs = flows(pattern, options.nodes, seed)
        lines = [f"Nodes {options.nodes}", f"Connections {len(pairs)}"]
        lines += [f"{a}->{b} start 0 size {BYTES}" for a, b in pairs]
        (folder / "flows.cm").write_text("\n".join(lines) + "\n")
        command = [str(options.folder / arguments[0]), *arguments[1:], "-nodes", str(options.nodes), "-tm", "flows.cm"]
        seeded = [] if kind == "swift" else ["-seed", str(seed)]  # the flows are drawn anew all the same
        text, used = run([*command, "-end", "100000", *seeded], folder)
        times = [float(t) for t in FINISHED.findall(text)]
        if len(times) != len(pairs):
            sys.exit(f"{kind}, {pattern}, seed {seed}: {len(times)} of {len(pairs)} flows ended in htsim")
        theirs += times
        cpu[0] += used
        command = [options.program, "traffic", "flows.cm", "--cluster", "cluster.yaml", "--nodes", str(options.nodes)]
        command += ["--network", "packet", "--seed", str(seed), "--json", "ours.json"]
        for key, value in keys.items():
            command += ["--set", f"packet.{key}={value}"]
        _, used = run(command, folder)
        cpu[1] += used
        result = json.loads((folder / "ours.json").read_text())
        ours += [t / 1e6 + way_back(a, b, half) for t, (a, b) in zip(result["completion_ps"], pairs)]
        hops += result["packets"]["hops"]
    a, b = summary(theirs), summary(ours)
    print(
        f"| {kind} | {pattern} | {a[0]:.1f} / {a[1]:.1f} / {a[2]:.1f} | {b[0]:.1f} / {b[1]:.1f} / {b[2]:.1f} "
        f"| {100 * (b[0] / a[0] - 1):+.1f} % | {100 * (b[1] / a[1] - 1):+.1f} % | {cpu[0]:.2f} | {cpu[1]:.2f} | {hops:,} |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--nodes", type=int, choices=[16, 128, 1024], default=128)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--program", default=str(ROOT / "build" / "release" / "orrery"))
    options = parser.parse_args()
    options.program = str(pathlib.Path(options.program).resolve())
    print("| | pattern | htsim: mean / p99 / last, us | ours | mean | p99 | htsim's CPU, s | ours, s | our hops |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.only.split(","):
            if not (options.folder / KINDS[kind][0][0]).exists():
                print(f"no {KINDS[kind][0][0]} in {options.folder}: {kind} is left out", file=sys.stderr)
                continue
            for pattern in ("permutation", "incast"):
                compare(kind, pattern, options, pathlib.Path(folder))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs each congestion control in its own paper's scenario: the table and the picture of docs/packets.md.

Usage: tools/pictures/controls.py [PROGRAM [NAME…]]   (build/release/orrery; names as in the first column)

Throughput over a long run is the bytes of longer flows less those of flows half as long, over the difference of their ends: so the start
does not count. A settled queue is the longest before the receiver from 30 to 90 % of the first completion.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from fabric import COLOURS, PROGRAM, Plot

FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="controls-"))


def cluster(nodes, gbps, payload, header, latency_us=1.0, leaf=None, extra=""):
    (FOLDER / "cluster.yaml").write_text(f"""preset: h100-roce-400g
gpus_per_node: 1
gpus_per_nvlink_domain: 1
nics_per_node: 1
nic_bandwidth: {gbps}Gb/s
nic_latency: {latency_us}us
nic_mtu_bytes: {payload}
nic_header_bytes: {header}
pcie_bandwidth: 4000GB/s
pcie_latency: 0us
rail_optimised: false
nodes_per_leaf: {leaf or nodes}
{extra}""")
    return nodes


def traffic(pattern, nodes, control, size=None, queues=False, **keys):
    command = [PROGRAM, "traffic", *map(str, pattern), "--nodes", str(nodes), "--network", "packet", "--cluster", str(FOLDER / "cluster.yaml")]
    command += ["--json", str(FOLDER / "out.json"), "--set", f"packet.congestion_control={control}"]
    if size:
        command += ["--size", f"{size}B"]
    if queues:
        command += ["--queues", str(FOLDER / "queues.svg")]
    for key, value in keys.items():
        command += ["--set", f"packet.{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads((FOLDER / "out.json").read_text())


def ends(result):
    return sorted(t * 1e-12 for t in result["completion_ps"])


def long_run(senders, nodes, control, size, gbps, **keys):
    """Share of the link's rate that is payload, Jain's index, settled queue in bytes, packets lost."""
    half, whole = (traffic(["incast", "--degree", senders], nodes, control, s, s == size, **keys) for s in (size // 2, size))
    rate = senders * (size - size // 2) / (ends(whole)[-1] - ends(half)[-1])
    rates = [size / t for t in ends(whole)]
    packets = whole["packets"]
    port = max(packets["links"], key=lambda link: link["longest_queue_bytes"])
    step, first = packets["queue_step_s"], ends(whole)[0]
    settled = port.get("queue_bytes", [])[int(0.3 * first / step) : int(0.9 * first / step)]
    jain = sum(rates) ** 2 / (senders * sum(r * r for r in rates))
    return rate / (gbps / 8 * 1e9), jain, max(settled, default=0), packets["lost"]


def dctcp():
    """Two and twenty long flows at 10 Gb/s, marks above 65 packets of 1,500 B."""
    for n in (2, 20):
        nodes = cluster(32, 10, 1460, 40, latency_us=10)
        share, _, queue, _ = long_run(n, nodes, "dctcp", 20_000_000 if n == 2 else 4_000_000, 10, ecn_min=65 * 1500, ecn_max=65 * 1500)
        yield f"{n} flows, 10 Gb/s, K 65: throughput", 0.973, share, "%", "DCTCP, SIGCOMM'10: the whole link"
        yield f"{n} flows: longest settled queue, packets", 65 + n, queue / 1500, "", "its analysis: K + N"


def dcqcn():
    """2 to 1 and 8 to 1 at 40 Gb/s."""
    for n in (2, 8):
        nodes = cluster(16, 40, 1000, 48)
        share, jain, queue, _ = long_run(n, nodes, "dcqcn", 200_000_000 if n == 2 else 60_000_000, 40)
        yield f"{n} to 1, 40 Gb/s: throughput", 39 / 40 * 1000 / 1048, share, "%", "DCQCN, SIGCOMM'15: above 39 Gb/s *"
        yield f"{n} to 1: longest settled queue, KB", 100, queue / 1000, "", "below 100 KB *"
        yield f"{n} to 1: Jain's index", 1.0, jain, "", "one fixed point, equal shares"


def hpcc():
    """16 to 1 at 100 Gb/s."""
    for control in ("hpcc", "pint"):
        nodes = cluster(32, 100, 1000, 48)
        share, jain, queue, _ = long_run(16, nodes, control, 10_000_000, 100)
        yield f"{control}: 16 to 1, 100 Gb/s: throughput", 0.95 * 1000 / 1048, share, "%", "HPCC, SIGCOMM'19: eta 95 % of the payload's share"
        yield f"{control}: longest settled queue, KB", 0, queue / 1000, "", "near 0; PINT, SIGCOMM'20: as HPCC"


def timely():
    """10 to 1 at 10 Gb/s."""
    nodes = cluster(16, 10, 1000, 48)
    share, jain, queue, _ = long_run(10, nodes, "timely", 4_000_000, 10)
    yield "10 to 1, 10 Gb/s: queueing delay, us", 500, queue / 1.25e9 * 1e6, "", "TIMELY, SIGCOMM'15: between T_low 50 and T_high 500"


def swift():
    """2,000 to 1 at 50 Gb/s: windows below a packet."""
    nodes = cluster(2001, 50, 4096, 64, leaf=64, extra="topology: fat-tree-2\n")
    result = traffic(["incast", "--degree", 2000], nodes, "swift", 200_000, queues=True, window=4160)
    packets = result["packets"]
    port = max(packets["links"], key=lambda link: link["longest_queue_bytes"])
    step, last = packets["queue_step_s"], ends(result)[-1]
    settled = port["queue_bytes"][int(0.3 * last / step) : int(0.6 * last / step)]
    yield "2,000 to 1, 50 Gb/s: throughput", 49.5 / 50 * 4096 / 4160, 2000 * 200_000 / last / 6.25e9, "%", "Swift, SIGCOMM'20: 49.5 Gb/s at 5,000 to 1 *"
    yield "2,000 to 1: queueing delay, us", 110, sum(settled) / max(len(settled), 1) / 6.25e9 * 1e6, "", "round trips of 110 us at 5,000 to 1 *"
    yield "2,000 to 1: lost", 0.000003, packets["lost"] / packets["sent"], "%", "0.0003 % *"


def ndp():
    """A permutation of 432 hosts at 10 Gb/s, an incast, and an outcast beside it."""
    tree = "topology: {name: fat-tree-3, nodes_per_pod: 36, spines: 6, cores: 6, uplink_bandwidth: 10Gb/s, core_bandwidth: 10Gb/s}\n"
    for control, paper, keys in (
        ("ndp", 0.92, {"queue": 8 * 9000, "window": 30 * 9000, "paths": 256}),
        ("dctcp", 0.40, {"queue": 200 * 9000, "ecn_min": 30 * 9000, "ecn_max": 30 * 9000}),
    ):
        nodes = cluster(432, 10, 8936, 64, leaf=6, extra=tree)
        shares = [8_936_000 / t / 1.25e9 for t in ends(traffic(["permutation"], nodes, control, 8_936_000, **keys))]
        yield f"{control}: 432 hosts, permutation: mean throughput", paper, sum(shares) / len(shares), "%", "NDP, SIGCOMM'17 *"
    nodes = cluster(432, 10, 8936, 64, leaf=6, extra=tree)
    result = traffic(["incast", "--degree", 431], nodes, "ndp", 446_800, queue=8 * 9000, window=23 * 9000, paths=256)
    yield "431 to 1, 450 KB: last, of the link's time", 1.0, ends(result)[-1] / (431 * 50 * 9000 / 1.25e9), "", "NDP: within a few % *"
    nodes = cluster(16, 10, 8936, 64)
    size = 20_000_000
    flows = [(0, 1), (0, 2), (0, 3), (0, 4), (5, 4)]
    lines = ["Nodes 16", f"Connections {len(flows)}"] + [f"{a}->{b} start 0 size {size * (1 if a == 0 else 4)}" for a, b in flows]
    (FOLDER / "flows.cm").write_text("\n".join(lines) + "\n")
    result = traffic([FOLDER / "flows.cm"], nodes, "ndp", queue=8 * 9000, window=23 * 9000)
    times = [t * 1e-12 for t in result["completion_ps"]]
    yield "A to B, C, D, E, and F to E: A to B, Gb/s", 2.51, size * 8 / times[0] / 1e9 * 9000 / 8936, "", "csg-htsim's examples"
    yield "the same: A to E, Gb/s", 2.377, size * 8 / times[3] / 1e9 * 9000 / 8936, "", "csg-htsim's examples"


SCENARIOS = {"dctcp": dctcp, "dcqcn": dcqcn, "hpcc": hpcc, "timely": timely, "swift": swift, "ndp": ndp}


def shown(value, unit):
    return f"{100 * value:.3g} %" if unit == "%" else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def main():
    rows = []
    print("| control | scenario | paper | ours | source |\n|---|---|---|---|---|")
    for name in sys.argv[2:] or SCENARIOS:
        for what, paper, ours, unit, source in SCENARIOS[name]():
            print(f"| `{name}` | {what} | {shown(paper, unit)} | {shown(ours, unit)} | {source} |", flush=True)
            if unit == "%" and paper > 0.01:
                first = what.replace(",", "").split()[0]
                rows.append((first[:-1] if first.endswith(":") else f"{name} {first}", paper, ours))
    if len(sys.argv) > 2:
        return
    plot = Plot("Throughput in each control's own scenario, % of the link", "%", 115, [row[0] for row in rows])
    plot.legend(["paper", "ours"])
    for i, (_, paper, ours) in enumerate(rows):
        for k, value in enumerate((paper, ours)):
            x = plot.x(i) - 15 + 15 * k
            plot.parts.append(f"<rect x='{x:.1f}' y='{plot.y(100 * value):.1f}' width='14' height='{plot.y(0) - plot.y(100 * value):.1f}' fill='{COLOURS[k]}'/>")
    plot.write("controls-papers.svg")


if __name__ == "__main__":
    main()

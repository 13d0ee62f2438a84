#!/usr/bin/env python3
"""Runs every congestion control on one bottleneck: the table and the picture of docs/packets.md.

Usage: tools/pictures/congestion.py [PROGRAM]   (build/release/orrery)

Two and eight senders of 20 MB each share one link of 100 Gb/s (packets of 1,000 + 48 B, 1 us a link). Throughput is of
payload, over the time until the last flow ends; Jain's index is of the flows' mean rates; the queue is that before the receiver.
Draws docs/pictures/congestion.svg, prints the table's rows.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build" / "release" / "orrery")
CONTROLS = ["none", "dcqcn", "dcqcn-mellanox", "hpcc", "pint", "timely", "dctcp", "swift", "mprdma", "ndp", "eqds", "nscc"]
SIZE, RATE = 20_000_000, 12.5e9  # bytes, byte/s
CLUSTER = """preset: h100-roce-400g
gpus_per_node: 1
gpus_per_nvlink_domain: 1
nics_per_node: 1
nic_bandwidth: 100Gb/s
nic_latency: 1us
nic_mtu_bytes: 1000
nic_header_bytes: 48
pcie_bandwidth: 4000GB/s
pcie_latency: 0us
rail_optimised: false
nodes_per_leaf: 64
"""


def run(folder, control, senders):
    out = folder / "out.json"
    command = [PROGRAM, "traffic", "incast", "--degree", str(senders), "--size", f"{SIZE}B", "--nodes", "16", "--network", "packet"]
    command += ["--cluster", str(folder / "cluster.yaml"), "--set", f"packet.congestion_control={control}"]
    command += ["--queues", str(folder / "queues.svg"), "--json", str(out)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stderr)
    return json.loads(out.read_text())


def row(result, senders):
    ends = [t * 1e-12 for t in result["completion_ps"]]
    rates = [SIZE / t for t in ends]
    jain = sum(rates) ** 2 / (len(rates) * sum(r * r for r in rates))
    packets = result["packets"]
    port = max(packets["links"], key=lambda l: l["longest_queue_bytes"])
    step = packets["queue_step_s"]
    queue = port.get("queue_bytes", [])
    settled = queue[int(0.3 * min(ends) / step) : int(0.9 * min(ends) / step)]
    mean = sum(settled) / len(settled) if settled else 0
    return {
        "throughput": senders * SIZE / max(ends) / RATE,
        "jain": jain,
        "most": port["longest_queue_bytes"],
        "settled": mean,
        "marks": sum(l["marked"] for l in packets["links"]),
        "trims": packets["trimmed"],
        "pauses": packets["pauses"],
        "queue": queue,
        "step": step,
        "end": max(ends),
    }


def kib(n):
    return f"{n / 1024:,.0f}"


def picture(rows):
    """A small frame for each control: the queue before the receiver over time, bytes by decades."""
    columns, width, height, left, top, low, high = 4, 230, 150, 46, 40, 3.0, 7.5
    lines = math.ceil(len(rows) / columns)
    w, h = left + columns * width, top + lines * height + 10
    end = max(r["end"] for r in rows.values()) * 1e3
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {w} {h}' width='{w}' height='{h}' font-family='sans-serif' font-size='11'>",
        "<rect width='100%' height='100%' fill='white'/>",
        "<text x='12' y='18' font-size='14'>Eight to one, 20 MB each over 100 Gb/s: longest queue before the receiver in each step</text>",
    ]
    for i, (name, r) in enumerate(rows.items()):
        x0, y0 = left + (i % columns) * width, top + (i // columns) * height
        inner_w, inner_h = width - 24, height - 40

        def y(value):
            return y0 + 14 + inner_h * (1 - (math.log10(max(value, 10**low)) - low) / (high - low))

        parts.append(f"<text x='{x0}' y='{y0 + 8}' font-weight='bold'>{name}</text>")
        for decade, label in ((3, "1 KB"), (4, "10 KB"), (5, "100 KB"), (6, "1 MB"), (7, "10 MB")):
            level = y(10**decade)
            parts.append(f"<line x1='{x0}' x2='{x0 + inner_w}' y1='{level:.1f}' y2='{level:.1f}' stroke='#dddddd'/>")
            if i % columns == 0:
                parts.append(f"<text x='{x0 - 4}' y='{level + 4:.1f}' text-anchor='end' font-size='9'>{label}</text>")
        points = [(x0 + inner_w * (k + 0.5) * r["step"] * 1e3 / end, y(q)) for k, q in enumerate(r["queue"])]
        parts.append("<polyline fill='none' stroke='#3b6ea5' points='" + " ".join(f"{a:.1f},{b:.1f}" for a, b in points) + "'/>")
        done = x0 + inner_w * r["end"] * 1e3 / end
        parts.append(f"<line x1='{done:.1f}' x2='{done:.1f}' y1='{y0 + 14}' y2='{y0 + 14 + inner_h}' stroke='#b0413e' stroke-dasharray='3 2'/>")
        parts.append(f"<text x='{x0}' y='{y0 + 26 + inner_h}' font-size='9'>0</text>")
        parts.append(f"<text x='{x0 + inner_w}' y='{y0 + 26 + inner_h}' text-anchor='end' font-size='9'>{end:.0f} ms</text>")
    parts.append("</svg>")
    (ROOT / "docs" / "pictures" / "congestion.svg").write_text("\n".join(parts) + "\n")


def main():
    eight = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "cluster.yaml").write_text(CLUSTER)
        for control in CONTROLS:
            two = row(run(folder, control, 2), 2)
            r = eight[control] = row(run(folder, control, 8), 8)
            print(
                f"| `{control}` | {100 * two['throughput']:.1f} % | {two['jain']:.3f} | {kib(two['settled'])} | "
                f"{100 * r['throughput']:.1f} % | {r['jain']:.3f} | {kib(r['settled'])} | {kib(r['most'])} | {r['marks']:,} / {r['trims']:,} / {r['pauses']:,} |",
                flush=True,
            )
    picture(eight)


if __name__ == "__main__":
    main()

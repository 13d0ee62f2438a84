#!/usr/bin/env python3
"""Draws two pictures of docs/atlahs.md into docs/pictures.

Usage: tools/pictures/atlahs.py sizes [--program PROGRAM]
       tools/pictures/atlahs.py hpc TRACE0 LOGGOPSIM [--program PROGRAM]
  sizes:   the size of one job's trace in each format that `orrery convert` writes: trace-sizes.svg
  hpc:     a traced MPI program's time, predicted and as the trace's own clocks have it: hpc.svg
  TRACE0:  the file of rank 0 of a liballprof trace, others beside it
  LOGGOPSIM: LogGOPSim's program, which runs the schedule that `orrery convert` makes of the trace
  PROGRAM: build/release/orrery unless said
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
JOBS = (
    ("Llama 2 7B, DP 16", "examples/sizes/llama2-7b-dp16.yaml", []),
    ("Llama 3.1 8B, TP 4 PP 2", "examples/sizes/llama3.1-8b-tp4-pp2.yaml", []),
    ("Mixtral 8x7B, EP 8 PP 2", "examples/sizes/mixtral-8x7b-ep8.yaml", []),
    ("DDP, traced, 4 GPUs", "examples/pytorch/ddp-4", ["--cluster", "h100-ib-400g"]),
)
FORMATS = (
    ("goal", "GOAL, text", "#9db8d2"),
    ("goal-binary", "GOAL, binary", "#3b6ea5"),
    ("chakra", "Chakra", "#e08a3c"),
    ("graph-text", "Orrery, text", "#a9cfa9"),
    ("graph", "Orrery, binary", "#4f9a4f"),
)
NETWORKS = (
    ("no network", {"L": "0ns", "o": "0ns", "g": "0ns", "G": "0"}),
    ("ATLAHS' cluster", {"L": "3000ns", "o": "6000ns", "g": "0ns", "G": "0.18", "S": "256000B"}),
    ("defaults", {}),
)
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 680, 340, 64, 58, 44


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def start(title, subtitle):
    return [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}' "
        "font-family='sans-serif' font-size='11'>",
        "<rect width='100%' height='100%' fill='white'/>",
        f"<text x='12' y='18' font-size='14'>{title}</text>",
        f"<text x='12' y='34' fill='#555'>{subtitle}</text>",
    ]


def text(x, y, words, anchor="middle", more=""):
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' {more}>{words}</text>"


def human(size):
    for unit in ("B", "KiB", "MiB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"


def sizes(program):
    table = []
    for title, source, more in JOBS:
        row = []
        for name, _, _ in FORMATS:
            with tempfile.TemporaryDirectory() as folder:
                run([program, "convert", ROOT / source, "-o", f"{folder}/trace", "--to", name, *more])
                row.append(sum(file.stat().st_size for file in pathlib.Path(folder).iterdir()))
        print(f"{title}: " + ", ".join(f"{form[1]} {human(size)}" for form, size in zip(FORMATS, row)))
        table.append(row)
    low, high = 3, math.ceil(math.log10(max(map(max, table))))

    def y(size):
        return HEIGHT - BOTTOM - (math.log10(size) - low) / (high - low) * (HEIGHT - BOTTOM - TOP)

    parts = start("Size of one job's trace", "16 GPUs, one step; all ranks' files together; logarithmic")
    for exponent in range(low, high + 1):
        at = y(10**exponent)
        label = f"{10 ** (exponent % 3)} {('B', 'kB', 'MB', 'GB')[exponent // 3]}"
        parts += [
            f"<line x1='{LEFT}' x2='{WIDTH - 12}' y1='{at:.1f}' y2='{at:.1f}' stroke='#ddd'/>",
            text(LEFT - 6, at + 4, label, "end"),
        ]
    slot = (WIDTH - 12 - LEFT) / len(JOBS)
    for column, ((title, _, _), row) in enumerate(zip(JOBS, table)):
        for i, ((_, _, colour), size) in enumerate(zip(FORMATS, row)):
            x = LEFT + column * slot + 12 + i * (slot - 24) / len(FORMATS)
            parts.append(
                f"<rect x='{x:.1f}' y='{y(size):.1f}' width='{(slot - 24) / len(FORMATS) - 3:.1f}' "
                f"height='{y(10**low) - y(size):.1f}' fill='{colour}'/>"
            )
        parts.append(text(LEFT + (column + 0.5) * slot, HEIGHT - BOTTOM + 16, title))
        parts.append(text(LEFT + (column + 0.5) * slot, HEIGHT - BOTTOM + 32, f"GOAL {row[1] / row[2]:.3g} × Chakra", more="fill='#555'"))
    for i, (_, title, colour) in enumerate(FORMATS):
        parts.append(f"<rect x='{LEFT + 118 * i}' y='42' width='10' height='10' fill='{colour}'/>")
        parts.append(text(LEFT + 14 + 118 * i, 51, title, "start"))
    (PICTURES / "trace-sizes.svg").write_text("\n".join(parts + ["</svg>"]) + "\n")


def measured(trace0):
    """Of the last rank: from the end of MPI_Init to the start of MPI_Finalize, and what of it was not in MPI, in s."""
    spans = []
    for file in sorted(trace0.parent.iterdir()):
        calls = [line.strip().split(":") for line in file.read_text().splitlines() if line.startswith("MPI_")]
        outside, ended = 0.0, None
        for call in calls:
            if ended is not None:
                outside += float(call[1]) - ended
            ended = float(call[-1]) if call[-1] != "-" else None
        spans.append(((float(calls[-1][1]) - float(calls[0][-1])) / 1e6, outside / 1e6))
    return max(spans), max(outside for _, outside in spans)


def hpc(program, trace0, loggopsim):
    (total, _), outside = measured(trace0)
    bars = [("measured", total, "#777")]
    for title, keys in NETWORKS:
        command = [program, "simulate", trace0, "--json", "-"]
        for key, value in keys.items():
            command += ["--set", f"loggops.{key}={value}"]
        bars.append((title, json.loads(run(command))["finish_time_ps"] / 1e12, "#3b6ea5"))
    with tempfile.TemporaryDirectory() as folder:
        run([program, "convert", trace0, "-o", f"{folder}/trace.bin", "--to", "goal-binary"])
        hosts = [line for line in run([loggopsim, "-f", f"{folder}/trace.bin"]).splitlines() if line.startswith("Host")]
        bars.append(("LogGOPSim, defaults", max(int(line.split(":")[1]) for line in hosts) / 1e9, "#e08a3c"))
    most = 1.15 * total

    def y(seconds):
        return HEIGHT - BOTTOM - seconds / most * (HEIGHT - BOTTOM - TOP)

    parts = start("Sweep3D on 2 × 2 ranks, predicted from its trace", "dark line: computation outside MPI of the rank with most of it")
    for i in range(0, int(most) + 1, 10):
        parts += [
            f"<line x1='{LEFT}' x2='{WIDTH - 12}' y1='{y(i):.1f}' y2='{y(i):.1f}' stroke='#ddd'/>",
            text(LEFT - 6, y(i) + 4, f"{i} s", "end"),
        ]
    slot = (WIDTH - 12 - LEFT) / len(bars)
    for i, (title, seconds, colour) in enumerate(bars):
        x = LEFT + (i + 0.5) * slot
        error = "" if i == 0 else f", {100 * (seconds / total - 1):+.2f} %"
        parts += [
            f"<rect x='{x - 30:.1f}' y='{y(seconds):.1f}' width='60' height='{y(0) - y(seconds):.1f}' fill='{colour}'/>",
            text(x, y(seconds) - 6, f"{seconds:.3f} s{error}"),
            text(x, HEIGHT - BOTTOM + 16, title),
        ]
        print(f"{title}: {seconds:.4f} s{error}")
    parts.append(f"<line x1='{LEFT}' x2='{WIDTH - 12}' y1='{y(outside):.1f}' y2='{y(outside):.1f}' stroke='black'/>")
    print(f"computation {outside:.4f} s")
    (PICTURES / "hpc.svg").write_text("\n".join(parts + ["</svg>"]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", choices=("sizes", "hpc"))
    parser.add_argument("trace0", nargs="?", type=pathlib.Path)
    parser.add_argument("loggopsim", nargs="?")
    parser.add_argument("--program", default=str(ROOT / "build" / "release" / "orrery"))
    options = parser.parse_args()
    if options.picture == "sizes":
        sizes(options.program)
    elif options.trace0 is None or options.loggopsim is None:
        parser.error("hpc needs TRACE0 and LOGGOPSIM")
    else:
        hpc(options.program, options.trace0, options.loggopsim)


if __name__ == "__main__":
    main()

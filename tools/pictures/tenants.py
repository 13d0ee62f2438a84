#!/usr/bin/env python3
"""Runs the example of docs/tenants.md and draws its picture into docs/pictures.

Usage: tools/pictures/tenants.py [PROGRAM]   (build/release/orrery)
"""

import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build" / "release" / "orrery")
PICTURE = ROOT / "docs" / "pictures" / "tenants.svg"
SEEDS = range(1, 12)
JOBS = (("llama", "Llama 2 7B, 128 GPUs"), ("lulesh", "LULESH's exchange, 128 GPUs"))
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 560, 320, 60, 56, 44


def times(placement, seed):
    """Completion times in seconds, by job."""
    example = ROOT / "examples" / "tenants" / f"llama-lulesh-{placement}.yaml"
    command = [PROGRAM, "simulate", str(example), "--json", "-"]
    command += ["--set", f"simulation.seed={seed}", "--set", "interference.alone=false"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return {job["name"]: job["completion_time_ps"] / 1e12 for job in json.loads(done.stdout)["jobs"]}


def main():
    packed = times("packed", 1)
    drawn = [times("random", seed) for seed in SEEDS]
    most = 1.1 * max(max(run.values()) for run in drawn)
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' "
        f"height='{HEIGHT}' font-family='sans-serif' font-size='11'>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>",
        f"<text x='{LEFT}' y='20' font-size='13'>Two jobs under a core with 4:1 oversubscription</text>",
        f"<text x='{LEFT}' y='36' fill='#555'>two steps, 300 exchanges; random: median of {len(drawn)} "
        f"placements, circles: each</text>",
    ]

    def y(seconds):
        return HEIGHT - BOTTOM - seconds / most * (HEIGHT - TOP - BOTTOM)

    step = 0.5 if most > 1.2 else 0.2
    for i in range(int(most / step) + 1):
        at = y(i * step)
        parts.append(f"<line x1='{LEFT}' x2='{WIDTH - 16}' y1='{at:.1f}' y2='{at:.1f}' stroke='#ddd'/>")
        parts.append(f"<text x='{LEFT - 6}' y='{at + 4:.1f}' text-anchor='end'>{i * step:.1f} s</text>")
    for column, (name, title) in enumerate(JOBS):
        values = [run[name] for run in drawn]
        median = statistics.median(values)
        left = LEFT + 40 + column * 240
        for offset, value, colour in ((0, packed[name], "#3b6ea5"), (80, median, "#e08a3c")):
            parts.append(
                f"<rect x='{left + offset}' y='{y(value):.1f}' width='60' height='{y(0) - y(value):.1f}' fill='{colour}'/>"
            )
            parts.append(f"<text x='{left + offset + 4}' y='{y(0) - 6:.1f}' fill='white'>{value:.3f} s</text>")
            parts.append(
                f"<text x='{left + offset + 30}' y='{HEIGHT - BOTTOM + 15}' text-anchor='middle'>"
                f"{'packed' if offset == 0 else 'random'}</text>"
            )
        for value in values:
            parts.append(
                f"<circle cx='{left + 148}' cy='{y(value):.1f}' r='3' fill='none' stroke='#b05a10'/>"
            )
        parts.append(
            f"<text x='{left + 70}' y='{HEIGHT - 10}' text-anchor='middle'>{title}: "
            f"{100 * (median / packed[name] - 1):+.1f} %</text>"
        )
        print(f"{name}: packed {packed[name]:.4f} s, random {min(values):.4f} to {max(values):.4f} s, median {median:.4f} s")
    parts.append("</svg>")
    PICTURE.write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Which splits of a 485B model over 8,192 GPUs fit: Moye's Figure 13 and Table 8.

Usage: grid.py [--check] [PROGRAM]    PROGRAM: build/release/orrery unless said

Runs job.yaml for every pipeline size PP and tensor size TP with DP = 8192 / (PP · TP) and prints the
peak memory of the fullest GPU, or OOM. Then the six rows of Table 8 with their step times. --check
compares both with those in README.md; ORRERY_UPDATE_GOLDEN=1 rewrites these.
"""

import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGE = HERE / "README.md"

GPUS = 8192
LAYERS = 96
PIPELINES = (1, 2, 4, 8, 16, 32, 64, 96)
TENSORS = (1, 2, 4, 8, 16)
# Table 8: (PP, TP, DP), micro-batches of a replica, peak GB, TFLOP/s a GPU.
TABLE_8 = (
    ((16, 8, 64), 160, 73.6, 152),
    ((32, 8, 32), 320, 38.4, 165),
    ((64, 8, 16), 640, 15.0, 171),
    ((32, 4, 64), 320, 76.0, 180),
    ((64, 4, 32), 640, 29.1, 180),
    ((64, 2, 64), 640, 57.3, 195),
)


def layers_per_stage(pp):
    """Spare layers in the middle, away from embedding and loss."""
    base, spare = divmod(LAYERS, pp)
    first = (pp - spare) // 2
    return [base + (first <= i < first + spare) for i in range(pp)]


def run(program, pp, tp, dp):
    """The result of one split; ten micro-batches a stage, as Table 8's batch sizes have it."""
    sets = {
        "parallel.pp": pp,
        "parallel.tp": tp,
        "parallel.dp": dp,
        "training.global_batch": 10 * pp * dp,
        "parallel.layers_per_stage": str(layers_per_stage(pp)),
    }
    command = [program, "simulate", str(HERE / "job.yaml"), "--json", "-"]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    result = json.loads(done.stdout)
    if "memory" not in result:
        raise SystemExit(f"PP {pp}, TP {tp}: {result['error']['message']}")
    return result


def peak_gib(result):
    return max(program["total_bytes"] for program in result["memory"]) / 2**30


def fits(result):
    return not any(program.get("oom") for program in result["memory"])


def grid(program):
    lines = ["| PP \\ TP | " + " | ".join(str(tp) for tp in TENSORS) + " |"]
    lines.append("|---" * (len(TENSORS) + 1) + "|")
    for pp in PIPELINES:
        cells = [f"**{pp}**"]
        for tp in TENSORS:
            if GPUS % (pp * tp) != 0:
                cells.append("")
                continue
            result = run(program, pp, tp, GPUS // (pp * tp))
            cells.append(f"{peak_gib(result):.1f}" if fits(result) else "OOM")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def table_8(program):
    lines = [
        "| (PP, TP, DP) | Moye, GB | here, GB | Moye, TFLOP/s a GPU | here | step here, s |",
        "|---|---|---|---|---|---|",
    ]
    for (pp, tp, dp), _, gigabytes, tflops in TABLE_8:
        result = run(program, pp, tp, dp)
        cells = (
            f"({pp}, {tp}, {dp})",
            gigabytes,
            f"{peak_gib(result) * 2**30 / 1e9:.1f}" + ("" if fits(result) else ", OOM"),
            tflops,
            f"{result['model_tflops_per_gpu']:.0f}",
            f"{result['step_time_s']:.1f}",
        )
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def check(name, text):
    begin, end = f"<!-- {name}: begin (examples/moye-485b/grid.py) -->\n", f"<!-- {name}: end -->"
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(begin)
    old, _, tail = rest.partition(end)
    if old == text:
        return 0
    if os.environ.get("ORRERY_UPDATE_GOLDEN") == "1":
        PAGE.write_text(head + begin + text + end + tail, encoding="utf-8")
        return 0
    print(f"{PAGE}: the {name} is not the program's; ORRERY_UPDATE_GOLDEN=1 rewrites it")
    return 1


def main(arguments):
    checks = "--check" in arguments
    programs = [a for a in arguments if not a.startswith("--")]
    program = programs[0] if programs else str(ROOT / "build" / "release" / "orrery")
    text, table = grid(program), table_8(program)
    if checks:
        return check("grid", text) | check("table", table)
    print("Peak memory of the fullest GPU, GiB\n")
    print(text, end="")
    print("\nTable 8\n")
    print(table, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

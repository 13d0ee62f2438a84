#!/usr/bin/env python3
"""Measured runs of MPT under FSDP1, from a trace and from the generator: a table.

    python3 examples/traces/measured_rows.py build/release/orrery [--rows mpt-057,mpt-201] [--keep DIR]

Each row's job is that of `orrery validate --export`: its shapes, batch and machine. The trace is of
python/tracer/examples/mpt.py with these shapes, made by the Python that runs this script (PyTorch's
CPU build, PyYAML), with flash attention, since PyTorch takes cuDNN's only from 2.11 on; the
generator takes the same program, framework fsdp1@torch2.1. What `orrery
validate` predicts is in the last column: there the program is LLM Foundry's of 2023.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "validation/training_measured.csv"
ROWS = ("mpt-057 mpt-011 mpt-032 mpt-065 mpt-055 mpt-213 mpt-201 mpt-180 mpt-169 mpt-148 mpt-110 "
        "mpt-103")  # fmt: skip


def run(*command, **options):
    """A command that must succeed; what it says."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done.stdout


def trace(job, folder):
    """Traces rank 0 of a row's program; any rank runs the same."""
    model, training = job["model"], job["training"]
    ranks = job["parallel"]["dp"]
    accumulate = training["global_batch"] // (training["micro_batch"] * ranks)
    words = ["--layers", model["layers"], "--hidden", model["hidden"], "--heads", model["heads"]]
    words += ["--seq", training["seq_len"], "--micro-batch", training["micro_batch"]]
    words += ["--accumulate", accumulate]
    words += [] if training["recompute"] == "none" else ["--recompute"]
    words += ["--reduce-fp32"] if job["framework_options"]["grad_reduce_fp32"] else []
    path = os.pathsep.join([str(ROOT / "python/tracer"), os.environ.get("PYTHONPATH", "")])
    run(sys.executable, "-m", "orrery_trace", "--world-size", ranks, "--out", folder, "--", "python",
        ROOT / "python/tracer/examples/mpt.py", *words,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1",
             "TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"})  # fmt: skip


def simulated(orrery, folder, job):
    """Step in seconds and peak allocated in GiB: traced, generated, and as `validate` has it."""
    # The plain program keeps logits in fp32, and some rows would not fit: memory is no limit here.
    job["cluster"]["device"]["memory"] = "1TB"
    cluster = folder / "cluster.yaml"
    cluster.write_text(yaml.safe_dump(job["cluster"]))
    result = json.loads(run(orrery, "simulate", folder / "trace", "--cluster", cluster, "--json", "-"))
    found = [(result["step_time_s"], result["memory"][0]["peak_allocated_bytes"] / 2**30)]
    plain = {key: job[key] for key in job if key not in ("framework_options", "assume")}
    for name, content in (("plain", plain | {"framework": "fsdp1@torch2.1"}), ("row", job)):
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content))
        result = json.loads(run(orrery, "simulate", path, "--json", "-", "--no-advice"))
        peak = max(stage["peak_allocated_bytes"] for stage in result["memory"])
        found.append((result["step_time_s"], peak / 2**30))
    return found


def main():
    """Prints the table and its mean errors."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("orrery")
    p.add_argument("--rows", default=ROWS.replace(" ", ","), metavar="ID,...")
    p.add_argument("--keep", type=Path, metavar="DIR", help="traces and jobs stay there")
    options = p.parse_args()
    measured = {row["id"]: row for row in csv.DictReader(TABLE.open(encoding="utf-8"))}
    errors = ([], [], [])
    print("| row | GPUs | measured s | traced s | generated s | peak GiB, traced | generated | "
          "`validate` s |\n|" + "---|" * 8)  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        jobs = Path(scratch) / "jobs"
        run(options.orrery, "validate", TABLE, "--export", jobs)
        for name in options.rows.split(","):
            folder = (options.keep or Path(scratch)) / name
            folder.mkdir(parents=True, exist_ok=True)
            job = yaml.safe_load((jobs / f"{name}.yaml").read_text())
            if not (folder / "trace/trace.json").exists():
                trace(job, folder / "trace")
            found = simulated(options.orrery, folder, job)
            true = float(measured[name]["step_time_s"])
            for error, (step, _) in zip(errors, found):
                error.append(abs(step / true - 1))
            (traced, peak), (generated, other), (validated, _) = found
            gpu = measured[name]["gpu"].split("-")[0]
            print(f"| {name} | {measured[name]['gpus']} {gpu} | {true:.3f} | {traced:.3f} | "
                  f"{generated:.3f} | {peak:.2f} | {other:.2f} | {validated:.3f} |", flush=True)  # fmt: skip
    means = [f"{100 * statistics.mean(error):.1f} %" for error in errors]
    print(f"| mean error | | | {means[0]} | {means[1]} | | | {means[2]} |")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measured runs, from a trace and from the generator: a table for each framework.

    python3 examples/traces/measured_rows.py build/release/orrery [--rows mpt-057,...] [--keep DIR]

Each row's job is that of `orrery validate --export`: its shapes, batch and machine. The trace is of
an example of python/tracer/examples with these shapes, made by the Python that runs this script
(PyTorch's CPU build, PyYAML, Megatron-Core). Attention is PyTorch's flash, since cuDNN's
is taken from 2.11 on only. `generated` is our generator for the same program; what `orrery
validate` predicts is in the last column: there the program is the row's own release.
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
ROWS = (
    "mpt-057 mpt-011 mpt-032 mpt-065 mpt-055 mpt-213 mpt-201 mpt-180 mpt-169 mpt-148 mpt-110 "
    "mpt-103",
    "mlm20-A100-1B-1 mlm20-A100-2B-2 mlm20-A100-2B-256 mlm20-A100-4B-4 mlm20-A100-4B-512 "
    "mlm20-A100-8B-8 mlm-jan21-3.6B sc21-t1-1.7B sc21-t1-7.5B mcore08-h100-1.7B "
    "mcore08-h100-7.1B",
)


def run(*command, **options):
    """A command that must succeed; what it says."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done.stdout


def mpt(job):
    """MPT under FSDP1: any rank runs the same. Beside it, the generator's plain FSDP1."""
    model, training = job["model"], job["training"]
    accumulate = training["global_batch"] // (training["micro_batch"] * job["parallel"]["dp"])
    words = ["mpt.py", "--layers", model["layers"], "--hidden", model["hidden"]]
    words += ["--heads", model["heads"], "--seq", training["seq_len"]]
    words += ["--micro-batch", training["micro_batch"], "--accumulate", accumulate]
    words += [] if training["recompute"] == "none" else ["--recompute"]
    words += ["--reduce-fp32"] if job["framework_options"]["grad_reduce_fp32"] else []
    plain = {key: job[key] for key in job if key not in ("framework_options", "assume")}
    return [], words, plain | {"framework": "fsdp1@torch2.1"}


def megatron(job):
    """A GPT under Megatron-Core with its own layers, a rank a stage.

    Beside it, the generator's newest Megatron with what Megatron-Core has without Apex and
    Transformer Engine: no sums of weights' gradients within the product.
    """
    model, training, parallel = job["model"], job["training"], job["parallel"]
    own = job["framework_options"]
    tp = parallel["tp"]
    multiple = 128 * tp
    numbers = {
        "layers": model["layers"], "hidden": model["hidden"], "heads": model["heads"],
        "seq": training["seq_len"], "vocab": -(-model["vocab"] // multiple) * multiple,
        "batch": training["global_batch"], "micro-batch": training["micro_batch"],
        "tp": tp, "pp": parallel["pp"], "chunks": parallel["vpp"],
        "recompute": training["recompute"], "dropout": model["dropout"],
    }  # fmt: skip
    switches = {
        "fp16": training["precision"] == "fp16",
        "fused": own["fused_softmax"] or own["fused_bias_activation"],
        "flash": own["attention"] != "unfused",
        "no-sequence-parallel": not parallel["sequence_parallel"],
        "no-sharding": training["sharding"] == "none",
        "no-overlap": not own["overlap_grad_reduce"],
        "reduce-fp32": own["grad_reduce_fp32"],
    }
    words = ["megatron_gpt3.py", *(w for name in numbers for w in (f"--{name}", numbers[name]))]
    words += [f"--{name}" for name, on in switches.items() if on]
    mesh = f"pp={parallel['pp']},dp={parallel['dp']},tp={tp}"
    kept = ("attention", "overlap_grad_reduce", "grad_reduce_fp32", "fused_softmax",
            "fused_bias_activation", "overlap_param_gather")  # fmt: skip
    plain = {key: job[key] for key in job if key not in ("framework_options", "assume")}
    options = {key: own[key] for key in kept} | {"fused_weight_gradient": False}
    plain |= {"framework": "megatron", "framework_options": options}
    return ["--mesh", mesh], words, plain


def trace(job, options, words, folder):
    """Traces one rank of each kind."""
    ranks = job["parallel"]["dp"] * job["parallel"]["tp"] * job["parallel"]["pp"]
    path = os.pathsep.join([str(ROOT / "python/tracer"), os.environ.get("PYTHONPATH", "")])
    run(sys.executable, "-W", "ignore", "-m", "orrery_trace", "--world-size", ranks, *options,
        "--check", 0, "--out", folder, "--",
        "python", ROOT / "python/tracer/examples" / words[0], *words[1:],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1",
             "TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"})  # fmt: skip


def simulated(orrery, folder, job, plain):
    """Step in seconds and peak allocated in GiB: traced, generated, and as `validate` has it."""
    # A plain program keeps logits in fp32, and some rows would not fit: memory is no limit here.
    for each in (job, plain):
        each["cluster"]["device"]["memory"] = "1TB"
    cluster = folder / "cluster.yaml"
    cluster.write_text(yaml.safe_dump(job["cluster"]))
    command = (orrery, "simulate", folder / "trace", "--cluster", cluster, "--json", "-")
    result = json.loads(run(*command))
    peak = max(stage["peak_allocated_bytes"] for stage in result["memory"])
    found = [(result["step_time_s"], peak / 2**30)]
    for name, content in (("plain", plain), ("row", job)):
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content))
        result = json.loads(run(orrery, "simulate", path, "--json", "-", "--no-advice"))
        peak = max(stage["peak_allocated_bytes"] for stage in result["memory"])
        found.append((result["step_time_s"], peak / 2**30))
    return found


PROGRAMS = {"composer": mpt, "megatron": megatron}


def table(names, orrery, jobs, keep):
    """Prints a table of these rows and its mean errors."""
    measured = {row["id"]: row for row in csv.DictReader(TABLE.open(encoding="utf-8"))}
    errors = ([], [], [])
    print("| row | GPUs | measured s | traced s | generated s | peak GiB, traced | generated | "
          "`validate` s |\n|" + "---|" * 8)  # fmt: skip
    for name in names:
        folder = keep / name
        folder.mkdir(parents=True, exist_ok=True)
        job = yaml.safe_load((jobs / f"{name}.yaml").read_text())
        options, words, plain = PROGRAMS[job["framework"].split("@")[0]](job)
        if not (folder / "trace/trace.json").exists():
            trace(job, options, words, folder / "trace")
        found = simulated(orrery, folder, job, plain)
        true = float(measured[name]["step_time_s"])
        for error, (step, _) in zip(errors, found):
            error.append(abs(step / true - 1))
        (traced, peak), (generated, other), (validated, _) = found
        gpu = measured[name]["gpu"].split("-")[0]
        print(f"| {name} | {measured[name]['gpus']} {gpu} | {true:.3f} | {traced:.3f} | "
              f"{generated:.3f} | {peak:.2f} | {other:.2f} | {validated:.3f} |", flush=True)  # fmt: skip
    means = [f"{100 * statistics.mean(error):.1f} %" for error in errors]
    print(f"| mean error | | | {means[0]} | {means[1]} | | | {means[2]} |\n")


def main():
    """Prints the tables."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("orrery")
    p.add_argument("--rows", default=" ".join(ROWS).replace(" ", ","), metavar="ID,...")
    p.add_argument("--keep", type=Path, metavar="DIR", help="traces and jobs stay there")
    options = p.parse_args()
    wanted = options.rows.split(",")
    with tempfile.TemporaryDirectory() as scratch:
        jobs = Path(scratch) / "jobs"
        run(options.orrery, "validate", TABLE, "--export", jobs)
        known = [name for rows in ROWS for name in rows.split()]
        groups = [rows.split() for rows in ROWS] + [[name for name in wanted if name not in known]]
        for names in ([name for name in group if name in wanted] for group in groups):
            if names:
                table(names, options.orrery, jobs, options.keep or Path(scratch))


if __name__ == "__main__":
    main()

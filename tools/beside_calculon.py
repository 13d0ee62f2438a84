#!/usr/bin/env python3
"""The plan that Calculon would choose beside ours, on one space.

Usage: beside_calculon.py CALCULON [PROGRAM]
  CALCULON: a checkout of github.com/calculon-ai/calculon; this Python needs its packages (psutil, pandas)
  PROGRAM:  build/release/orrery unless said

GPT-3 175B on 128 H100 in hosts of 8, batch 128, no offload, nothing hidden behind compute but what Megatron hides. The space:
tp 2, 4, 8 with sequence parallelism; pp divisors of the GPUs; chunks; micro-batch 1, 2, 4; recompute none, selective, full; ZeRO-1.
Calculon also chooses which of its two networks each degree uses, the best of which counts. Prints how long each search takes,
the best five of each, and each plan's tokens a second under both.
"""

import json
import logging
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GPUS, BATCH, LAYERS, SEQUENCE = 128, 128, 96, 2048
TENSORS, MICRO, TOP = (2, 4, 8), (1, 2, 4), 5
RECOMPUTE = {"none": "none", "selective": "attn_only", "full": "full"}

JOB = f"""
model: gpt3-175b
cluster: h100-ib-400g
nodes: {GPUS // 8}
framework: megatron
parallel: {{tp: 8, pp: 8, sequence_parallel: true}}
training: {{global_batch: {BATCH}, micro_batch: 1, seq_len: {SEQUENCE}, precision: bf16, recompute: full, sharding: zero1}}
"""


def plans():
    for tp in TENSORS:
        for pp in (p for p in range(1, GPUS + 1) if GPUS % (p * tp) == 0 and LAYERS % p == 0):
            for vpp in (v for v in range(1, 9) if LAYERS % (pp * v) == 0 and (pp > 1 or v == 1)):
                dp = GPUS // (tp * pp)
                for micro in (m for m in MICRO if BATCH % (m * dp) == 0):
                    if vpp > 1 and BATCH // (dp * micro) % pp != 0:
                        continue
                    for recompute in RECOMPUTE:
                        yield (tp, pp, vpp, micro, recompute)


class Calculon:
    def __init__(self, folder):
        sys.path.insert(0, folder)
        from calculon import io
        from calculon.llm import Llm
        from calculon.system import System

        system = io.read_json_file(f"{folder}/systems/h100_80g_nvl8.json")
        system["mem2"]["GiB"] = 0
        self.llm, self.system = Llm, System(system)
        self.app = Llm.Application(io.read_json_file(f"{folder}/models/gpt3-175B.json"))
        self.runs = 0

    def tokens_per_s(self, plan):
        """None: it does not fit, or is none for Calculon."""
        tp, pp, vpp, micro, recompute = plan
        best = None
        for tensor_net in (0, 1):
            for pipeline_net in (0, 1) if pp > 1 else (0,):
                for data_net in (0, 1) if GPUS > tp * pp else (0,):
                    execution = {
                        "num_procs": GPUS, "tensor_par": tp, "pipeline_par": pp, "data_par": GPUS // (tp * pp),
                        "tensor_par_net": tensor_net, "pipeline_par_net": pipeline_net, "data_par_net": data_net,
                        "batch_size": BATCH, "microbatch_size": micro, "datatype": "float16", "fused_activation": True,
                        "attention_type": "multihead", "activation_recompute": RECOMPUTE[recompute],
                        "pipeline_interleaving": vpp, "optimizer_sharding": GPUS > tp * pp,
                        "tensor_par_comm_type": "rs_ag", "tensor_par_overlap": "none", "seq_par_ag_redo": False,
                        "data_par_overlap": GPUS > tp * pp, "weight_offload": False, "activations_offload": False,
                        "optimizer_offload": False, "training": True,
                    }
                    self.runs += 1
                    try:
                        model = self.llm(self.app, logging.Logger("calculon"))
                        model.compile(self.system, self.llm.Execution.from_json(execution))
                        model.run(self.system)
                    except self.llm.Error:
                        continue
                    rate = model.get_stats_json(False)["sample_rate"] * SEQUENCE
                    best = max(best or 0, rate)
        return best


def orrery(program, job, verb, *options):
    done = subprocess.run([program, verb, job, *options, "--json", "-"], capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


def ours(program, job, plan):
    tp, pp, vpp, micro, recompute = plan
    sets = {"parallel.tp": tp, "parallel.pp": pp, "parallel.vpp": vpp, "parallel.dp": GPUS // (tp * pp),
            "training.micro_batch": micro, "training.recompute": recompute}
    result = orrery(program, job, "simulate", *(f"--set={key}={value}" for key, value in sets.items()))
    if "error" in result or "tokens_per_s" not in result:
        return None
    return None if any(one["oom"] for one in result["memory"]) else result["tokens_per_s"]


def shown(plan):
    tp, pp, vpp, micro, recompute = plan
    return f"tp {tp} pp {pp} vpp {vpp} micro-batch {micro} recompute {recompute}"


def rate(value):
    return "does not fit" if value is None else f"{value:,.0f}"


def main(arguments):
    calculon = Calculon(arguments[0])
    program = arguments[1] if len(arguments) > 1 else str(ROOT / "build/release/orrery")
    space = list(plans())
    start = time.process_time()
    rated = sorted(((calculon.tokens_per_s(plan) or 0, plan) for plan in space), reverse=True)
    took = time.process_time() - start
    print(f"{len(space)} plans. Calculon: {calculon.runs} calculations, {took:.1f} s of CPU, {calculon.runs / took:.0f} a second")
    with tempfile.TemporaryDirectory() as folder:
        job = f"{folder}/job.yaml"
        pathlib.Path(job).write_text(JOB)
        start = time.monotonic()
        keys = ("parallel.tp", "parallel.pp", "parallel.vpp", "training.micro_batch", "training.recompute")
        opened = [f"--vary={key}={','.join(map(str, sorted({plan[i] for plan in space}, key=str)))}" for i, key in enumerate(keys)]
        found = orrery(program, job, "plan", *opened, f"--top={TOP}", "--threads=1")
        print(f"orrery plan: {time.monotonic() - start:.2f} s on one thread, {found['search']['evaluated']} simulated, "
              f"{'proven' if found['proven'] else 'not proven'}")
        best = [tuple(row["values"][key] if key.endswith("recompute") else int(row["values"][key]) for key in keys)
                for row in found["plans"]]
        for title, chosen in (("Calculon's", [plan for _, plan in rated[:TOP]]), ("Orrery's", best)):
            print(f"\n{title} best, tokens/s under Calculon and under Orrery")
            for plan in chosen:
                print(f"  {shown(plan):52} {rate(calculon.tokens_per_s(plan)):>14} {rate(ours(program, job, plan)):>14}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])

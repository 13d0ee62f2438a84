#!/usr/bin/env python3
"""Measured steps of fine-tuning beside what Orrery predicts for the same jobs: a table.

    python3 tools/measure/finetune_jobs.py build/release/orrery data/measured/h200/finetune.csv

Each row of the file (or of host_steps.csv) becomes a job as `orrery import` makes it of the
Trainer's arguments: the model, one GPU, and what the row says. `--write FOLDER` keeps the job
files. `--cpu-speed` is the host's cpu_relative_speed; rows of host_steps.csv have it beside them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kit.schemas import Row
from kit.tables import load

CLUSTERS = {"h200": "h200-ib-400g", "h100-80gb-hbm3": "h100-ib-400g"}
QWEN = {
    "layers": 28,
    "hidden": 3584,
    "heads": 28,
    "kv_heads": 4,
    "ffn_hidden": 18944,
    "vocab": 152064,
    "norm": "rmsnorm",
    "activation": "swiglu",
    "position": "rotary",
    "tied_embeddings": False,
    "attention_bias": True,
    "projection_bias": False,
    "mlp_bias": False,
    "dropout": 0,
}
OLMOE = {
    "layers": 16,
    "hidden": 2048,
    "heads": 16,
    "kv_heads": 16,
    "ffn_hidden": 1024,
    "vocab": 50304,
    "experts": 64,
    "expert_top_k": 8,
    "expert_ffn_hidden": 1024,
    "norm": "rmsnorm",
    "activation": "swiglu",
    "position": "rotary",
    "tied_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "qk_norm": True,
    "qk_norm_whole": True,
    "dropout": 0,
}
MODELS: dict[str, Any] = {"qwen2.5-7b": QWEN, "olmoe-1b-7b": OLMOE}
ADD_US = 3.3  # of a host whose cpu_relative_speed is 1: x + x on small tensors, in a loop
BUSY = 0.85  # of a step that does not wait for the host
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw_fused": {"fused_adam": True},
    "adamw_foreach": {"fused_adam": False},
    "adafactor": {},
    "adamw_8bit": {"fp32_embedding_states": True},
    "paged_adamw_8bit": {"fp32_embedding_states": True},
    "in_backward_8bit": {"optimizer_in_backward": True, "clip_gradients": False},
}

# Beside sizes, in Orrery's words (kit/host_models.py has them in transformers').
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "phi3": {},
    "qwen2": {"attention_bias": True, "projection_bias": False},
    "qwen3": {"qk_norm": True},
    "olmo2": {"qk_norm": True, "qk_norm_whole": True},
    "gemma2": {"post_norms": True},
    "gemma3": {"post_norms": True, "qk_norm": True},
    "gpt2": {"norm": "layernorm", "activation": "gelu", "position": "learned"},
    "gpt_neox": {"norm": "layernorm", "activation": "gelu", "parallel_block": True},
    "olmoe": {"experts": 16, "expert_top_k": 4, "qk_norm": True, "qk_norm_whole": True},
    "mixtral": {"experts": 8, "expert_top_k": 2},
}


def model_of(name: str) -> Any:
    """A model's name among Orrery's, or its values."""
    family, *sizes = name.split()
    if not sizes:
        return MODELS.get(name, name)
    hidden, layers = int(sizes[0][1:]), int(sizes[1][1:])
    heads = hidden // 64
    biased = family.startswith("gpt")
    values = {
        **OLMOE,
        **{"layers": layers, "hidden": hidden, "heads": heads, "vocab": 4096},
        **{"kv_heads": heads if biased else max(1, heads // 4), "ffn_hidden": 2 * hidden},
        **{"attention_bias": biased, "mlp_bias": biased},
        **{"qk_norm": False, "qk_norm_whole": False, "expert_ffn_hidden": 2 * hidden},
        **FAMILIES[family],
    }
    if "experts" not in FAMILIES[family]:
        for key in ("experts", "expert_top_k", "expert_ffn_hidden"):
            del values[key]
    if family == "gpt2":
        values |= {"ffn_hidden": 4 * hidden, "tied_embeddings": True}
    return values


def job_of(row: Row, cluster: str | dict[str, Any]) -> dict[str, Any]:
    """The job file of a row, as a value."""
    training: dict[str, Any] = {
        "precision": "bf16",
        "seq_len": row["seq"],
        "micro_batch": row["micro_batch"],
        "global_batch": row["micro_batch"],
        "optimizer": "adafactor" if row["optimizer"] == "adafactor" else "adamw",
        "recompute": "full" if row["checkpoint"] else "none",
    }
    switches: dict[str, Any] = {
        "torch_layers": "eager",
        "transformers_modules": True,
        "attention": "unfused" if str(row["model"]).endswith("eager") else "sdpa",
        "clip_gradients": True,
        "drops_logits": True,
        "bucket_views": True,  # one GPU: not wrapped in DistributedDataParallel
    }
    model = model_of(str(row["model"]))
    moe = isinstance(model, dict) and "experts" in model
    switches |= OPTIMIZERS[str(row["optimizer"])]
    if str(row["optimizer"]).endswith("8bit"):
        training["optimizer_states"] = "8bit"
    if row["method"] == "full":
        switches["model_type_states"] = row["weights"] == "bf16"
    else:
        training |= {"lora_rank": 16, "lora_targets": "attention" if moe else "all"}
        switches["separate_adapters"] = True
        switches["model_type_states"] = not row["autocast"]
    if row["prepared"]:
        switches["prepared_base"] = True
    if row["method"] in ("nf4", "nf4_single", "int8"):
        training["base_quantization"] = str(row["method"]).removesuffix("_single")
        training["double_quantization"] = row["method"] == "nf4"
    if moe:  # DistributedDataParallel is built for ordinary layers
        del switches["bucket_views"]
        del switches["drops_logits"]
    return {
        "model": model,
        "cluster": cluster,
        "framework": "fsdp" if moe else "ddp",
        "parallel": {"dp": 1},
        "training": training,
        "framework_options": switches,
    }


def simulated(orrery: str, job: dict[str, Any], where: Path) -> dict[str, Any]:
    """`orrery simulate` of a job; JSON is YAML."""
    where.write_text(json.dumps(job, indent=1) + "\n", encoding="utf-8")
    done = subprocess.run(
        [orrery, "simulate", str(where), "--json", "-"], capture_output=True, text=True
    )
    if done.returncode not in (0, 1) or not done.stdout:
        raise ValueError(done.stderr.strip().splitlines()[0])
    return json.loads(done.stdout)


def label(row: Row) -> str:
    """A row's job in few words."""
    words = [str(row["method"]), str(row["weights"])]
    words += ["autocast"] * int(row["autocast"]) + ["prepared"] * int(row["prepared"])  # type: ignore[call-overload]
    words += ["recompute"] * int(row["checkpoint"])  # type: ignore[call-overload]
    words += [f"dropout {row['dropout']}"] if row["dropout"] else []
    return " ".join([*words, str(row["optimizer"])])


def is_job(row: Row) -> bool:
    """A whole step of a loop as the Trainer's, eager."""
    return row["part"] == "step" and row.get("loop", "own") in ("own", "trainer")


def groups_of(row: Row, busy: float) -> list[str]:
    """What a row's error counts to."""
    groups = [str(row["method"])]
    if "taught" in row:
        return [*groups, "taught" if row["taught"] else "test"]
    return [*groups, "busy GPU" if busy >= BUSY else "waits for the host"]


def main() -> None:
    """Prints the table and mean errors by method."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("orrery")
    p.add_argument("measured", type=Path)
    p.add_argument("--write", type=Path)
    p.add_argument("--cpu-speed", type=float, default=1.0)
    options = p.parse_args()
    loaded = load(options.measured)
    gpu = CLUSTERS[loaded.header["gpu"]]
    folder = options.write or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    print("| model | job | s x b | step, ms | kernels | predicted | peak, GiB | predicted |")
    print("|---|---|---|---|---|---|---|---|")
    errors: dict[str, list[tuple[float, float]]] = {}
    for i, row in enumerate(r for r in loaded.rows if is_job(r)):
        step, busy = float(row["time_us"]) / 1e3, float(row["busy_us"]) / 1e3
        peak = int(row.get("peak_allocated_bytes", 0))
        where = folder / f"{i:02d}.yaml"
        speed = ADD_US / float(row["add_us"]) if "add_us" in row else options.cpu_speed
        cluster = {"preset": gpu, "cpu_relative_speed": round(speed, 3)}
        try:
            result = simulated(options.orrery, job_of(row, cluster), where)
        except ValueError as error:
            print(f"{where.name}: {row['model']} {label(row)}: {error}", file=sys.stderr)
            continue
        mine = result["step_time_s"] * 1e3
        memory = result["memory"][0]["peak_allocated_bytes"]
        off = (mine / step - 1, memory / peak - 1 if peak else 0.0)
        for group in groups_of(row, busy / step):
            errors.setdefault(group, []).append(off)
        print(
            f"| {row['model']} | {label(row)} | {row['seq']} x {row['micro_batch']} | {step:.0f} "
            f"| {busy:.0f} | {mine:.0f} ({100 * off[0]:+.0f} %) | {peak / 2**30:.1f} "
            f"| {memory / 2**30:.1f} ({100 * off[1]:+.0f} %) |"
        )
    print()
    for group, both in sorted(errors.items()):
        steps, peaks = ([100 * abs(x) for x in xs] for xs in zip(*both, strict=True))
        print(
            f"{group}: {len(both)} jobs, step {statistics.mean(steps):.1f} % (worst "
            f"{max(steps):.1f}), peak {statistics.mean(peaks):.1f} % (worst {max(peaks):.1f})"
        )


if __name__ == "__main__":
    main()

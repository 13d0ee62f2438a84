#!/usr/bin/env python3
"""Rebuilds layers.csv from the table of measured training runs.

    python3 tools/measure/derive_layers.py --table validation/training_measured.csv

Only configuration columns are read, never a measured one. What the table does not say is filled by
the rules below (FILL); the written file names them.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from dataclasses import astuple, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kit.errors import EXIT_BAD_INPUT, UserError
from kit.layers import DEFAULT_PATH, MAGIC, Layer, columns

FILL = (
    "rows without hidden or heads are left out; so are convolutional models",
    "empty vocab = 51200 (GPT-2's, padded); empty seq = 2048; empty micro_batch, tp, cp, ep = 1",
    "empty ffn = 4 x hidden; empty kv_heads = heads",
    "gated = 0 where ffn = 4 x hidden or the model is a Nemotron (squared ReLU), else 1",
    "head_dim = hidden / heads, but 128 for Qwen3 and Nemotron-3, 64 for GPT-OSS, 192 with MLA",
    "shared experts: 1 for DeepSeek-V3, Kimi-K2 and Llama4, else 0",
    "precision: fp8 for any 8- or 4-bit recipe, fp16 where the table says fp16 or only 16-bit",
)
NEEDED = (
    "model",
    "hidden",
    "heads",
    "kv_heads",
    "ffn_hidden",
    "vocab",
    "seq_len",
    "experts",
    "topk",
    "tp",
    "cp",
    "ep",
    "micro_batch",
    "precision",
    "layer_kind",
)


def head_dim_of(model: str, latent: bool, hidden: int, heads: int) -> int:
    """Elements of one query head."""
    name = model.lower()
    if latent:
        return 192
    if name.startswith(("qwen3", "ci nemotron3")):
        return 128
    if name.startswith("gpt-oss"):
        return 64
    return max(1, hidden // heads)


def precision_of(text: str) -> str:
    """bf16 | fp16 | fp8 | fp32 from the table's free text."""
    text = text.lower()
    if "fp8" in text or "fp4" in text:
        return "fp8"
    if text.startswith("fp32"):
        return "fp32"
    return "fp16" if ("fp16" in text or "16-bit" in text) and "bf16" not in text else "bf16"


def layer_of(row: dict[str, str], place: str) -> Layer | None:
    """The layer that a run's rank computes, or None where the table does not give its sizes."""

    def number(name: str, default: int) -> int:
        text = row[name].strip()
        if not text:
            return default
        try:
            value = int(float(text))
        except ValueError:
            value = 0
        if value < 1:
            raise UserError(place, name, text, "is not a positive number", "correct the table")
        return value

    hidden, heads = number("hidden", 0), number("heads", 0)
    if not hidden or not heads or row["layer_kind"] == "cnn":
        return None
    name, latent = row["model"], row["layer_kind"] == "mla"
    experts = number("experts", 0)
    ffn = number("ffn_hidden", 4 * hidden)
    return Layer(
        model=name,
        attention="mla" if latent else "gqa",
        hidden=hidden,
        heads=heads,
        kv_heads=heads if latent else number("kv_heads", heads),
        head_dim=head_dim_of(name, latent, hidden, heads),
        ffn=ffn,
        gated=int(ffn != 4 * hidden and "nemotron" not in name.lower()),
        vocab=number("vocab", 51200),
        experts=experts,
        topk=number("topk", 1) if experts else 0,
        shared=int(name.startswith(("DeepSeek-V3", "Kimi-K2", "Llama4"))),
        tp=number("tp", 1),
        ep=number("ep", 1),
        cp=number("cp", 1),
        micro_batch=number("micro_batch", 1),
        seq=number("seq_len", 2048),
        precision=precision_of(row["precision"]),
        runs=1,
    )


def derive(table: Path) -> list[Layer]:
    """Distinct layers of `table` with their number of runs, most used first."""
    try:
        with table.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise UserError(
            str(table), "file", table.name, error.strerror or "cannot be read", "check --table"
        ) from error
    missing = [c for c in NEEDED if not rows or c not in rows[0]]
    if missing:
        raise UserError(
            f"{table}:1",
            "column names",
            ",".join(missing),
            "are missing",
            "give the table of measured training runs",
        )
    counts: Counter[Layer] = Counter()
    names: dict[Layer, str] = {}
    for number, row in enumerate(rows, start=2):
        layer = layer_of(row, f"{table}:{number}")
        if layer is None:
            continue
        anonymous = replace(layer, model="")
        counts[anonymous] += 1
        names[anonymous] = min(names.get(anonymous, layer.model), layer.model)
    layers = [replace(layer, model=names[layer], runs=n) for layer, n in counts.items()]
    return sorted(layers, key=lambda x: (-x.runs, x))


def main(argv: list[str] | None = None) -> int:
    """Writes the file and prints how many layers it holds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--table", type=Path, required=True, help="training_measured.csv")
    parser.add_argument("--out", type=Path, default=DEFAULT_PATH, help="default: layers.csv here")
    options = parser.parse_args(argv)
    try:
        layers = derive(options.table)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    with options.out.open("w", encoding="utf-8", newline="") as file:
        file.write(
            MAGIC
            + "\n# Derived by derive_layers.py from validation/training_measured.csv. Rules:\n"
        )
        file.writelines(f"# - {rule}\n" for rule in FILL)
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns())
        writer.writerows(astuple(layer) for layer in layers)
    print(f"{options.out.name}: {len(layers)} layers of {sum(x.runs for x in layers)} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Layers of real training runs: the input from which all shapes derive.

`layers.csv` (`orrery.layers/1`) holds the distinct (model sizes, parallel split, micro-batch)
tuples of the table of measured training runs, with how many runs use each. derive_layers.py
rebuilds it.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from pathlib import Path

from kit.errors import UserError

MAGIC = "# orrery.layers/1"
DEFAULT_PATH = Path(__file__).resolve().parent.parent / "layers.csv"


@dataclass(frozen=True, order=True)
class Layer:
    """One transformer layer as one rank runs it. Sizes are of the whole model, in elements."""

    model: str  # a name to show
    attention: str  # gqa (which covers multi-head) | mla
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int  # of one query head; latent attention: with its rotary part
    ffn: int  # of one expert where there are experts
    gated: int  # 1: two input products (SwiGLU), 0: one (GeLU, squared ReLU)
    vocab: int
    experts: int  # 0: dense
    topk: int
    shared: int  # shared experts
    tp: int
    ep: int
    cp: int
    micro_batch: int
    seq: int
    precision: str  # bf16 | fp16 | fp8 | fp32
    runs: int  # measured runs with this tuple

    @property
    def tokens(self) -> int:
        """Rows of the layer's matrices: the tokens of one micro-batch on one rank."""
        return max(1, self.micro_batch * self.seq // self.cp)


def columns() -> list[str]:
    """Column names of layers.csv in file order."""
    return [f.name for f in fields(Layer)]


def load_layers(path: Path = DEFAULT_PATH) -> list[Layer]:
    """Reads layers.csv; UserError names file, line, field, value and remedy."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(
            str(path), "file", path.name, error.strerror or "cannot be read", "check --layers"
        ) from error
    if not lines or lines[0] != MAGIC:
        raise UserError(
            f"{path}:1",
            "format",
            lines[0] if lines else "",
            "is not a list of layers",
            f"the first line must be `{MAGIC}`",
        )
    body = [(n, ln) for n, ln in enumerate(lines, start=1) if not ln.startswith("#")]
    if not body or body[0][1] != ",".join(columns()):
        raise UserError(
            f"{path}:{body[0][0] if body else 2}",
            "column names",
            body[0][1] if body else "",
            "do not fit",
            f"expected {','.join(columns())}",
        )
    return [_parse(path, number, line) for number, line in body[1:]]


def _parse(path: Path, number: int, line: str) -> Layer:
    cells = next(csv.reader([line]), [])
    place = f"{path}:{number}"
    if len(cells) != len(columns()):
        raise UserError(
            place,
            "line",
            line[:60],
            f"has {len(cells)} of {len(columns())} cells",
            "restore the line or delete it",
        )
    values: dict[str, str | int] = {}
    for f, text in zip(fields(Layer), cells, strict=True):
        if f.type == "str":
            values[f.name] = text
            continue
        low = 0 if f.name in ("gated", "vocab", "experts", "topk", "shared") else 1
        try:
            number_value = int(text)
        except ValueError:
            number_value = -1
        if number_value < low:
            raise UserError(
                place,
                f.name,
                text,
                f"is not an integer of at least {low}",
                "restore the line or rebuild the file with derive_layers.py",
            )
        values[f.name] = number_value
    return Layer(**values)  # type: ignore[arg-type]

"""Experts of unequal load, from a step that was traced with balanced ones.

The trace records what decides an expert layer's shares (`routing`: tokens, topk, experts, group).
`redraw` draws shares of the experts anew, layer by layer, or takes those of a file, and makes of
each program one for every place in the expert-parallel group: its all-to-alls are uneven, and what
works on the tokens received has as many rows as the place gets. Those are found by following
tensors: what an all-to-all of the experts' group brings in holds received tokens, what another
takes out no longer does; an operator that reads such tensors writes one, unless it sums over the
tokens (gradients of weights). Experts of one rank share its rows evenly.

Cost: a pass over the step's lines for each place; as many programs as places times traced ones.
"""

from __future__ import annotations

import copy
import csv
import json
import math
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orrery_trace.errors import TraceError
from orrery_trace.mesh import Mesh
from orrery_trace.trace import (
    INDEX,
    Line,
    Trace,
    rank_file,
    ranks_of,
    read_directory,
    runs_of,
    write,
    write_index,
)

# Products, by which tensor argument is the first operand.
PRODUCTS = {
    "aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1, "aten::_grouped_mm": 0,
    "aten::_scaled_mm": 0,
}  # fmt: skip
BALANCED = "expert routing is balanced"  # what adapters say of a traced router
PROGRAMS = 4096  # the most that are written


def shares_of(text: str, experts: int, topk: int, layer: int, seed: int) -> list[float]:
    """Shares of a layer's experts, which sum to 1: `dirichlet:ALPHA`, `zipf:EXPONENT`, a file.

    Drawn by (seed, layer), so that they depend on neither program nor rank. A token meets an
    expert once at most: none gets more than 1/topk; what is above goes to the others.
    """
    kind, _, number = text.partition(":")
    if kind in ("dirichlet", "zipf"):
        try:
            value = float(number or 1)
        except ValueError:
            value = math.nan
        if not (0.001 <= value <= 1e6 if kind == "dirichlet" else 0 <= value <= 10):
            raise TraceError(
                f"--shares {text}: a concentration of 0.001 to 1,000,000 or an exponent of 0 to 10"
            )
        draw = random.Random(f"{seed} {layer}")
        if kind == "dirichlet":
            raw = [draw.gammavariate(value, 1) for _ in range(experts)]
        else:
            raw = [(i + 1) ** -value for i in range(experts)]
            draw.shuffle(raw)
    else:
        raw = _given(text, experts, layer)
    whole = sum(raw)
    share = [value / whole if whole > 0 else 1 / experts for value in raw]
    return _at_most(share, 1 / topk)


def _given(text: str, experts: int, layer: int) -> list[float]:
    """The line of a layer in a file of shares or counts; one line is for all layers."""
    try:
        with Path(text).open(encoding="utf-8", newline="") as file:
            rows = [[float(cell) for cell in row] for row in csv.reader(file) if row]
    except (OSError, ValueError) as error:
        raise TraceError(
            f"--shares {text}: neither dirichlet:ALPHA nor zipf:EXPONENT, nor a file with a line a "
            f"layer, the experts' shares or tokens on it: {error}"
        ) from None
    if len(rows) != 1 and layer >= len(rows):
        raise TraceError(f"--shares {text}: {len(rows)} lines, and layer {layer} has none")
    row = rows[0] if len(rows) == 1 else rows[layer]
    good = len(row) == experts and all(0 <= value < math.inf for value in row) and sum(row) > 0
    if not good:
        raise TraceError(
            f"--shares {text}: the line of layer {layer} has no {experts} numbers from 0 on, one "
            "of them above 0"
        )
    return row


def _at_most(share: list[float], most: float) -> list[float]:
    """The same with none above `most`; the rest goes to the others in proportion."""
    full: set[int] = set()
    while True:
        above = {i for i, s in enumerate(share) if s > most * (1 + 1e-12)} - full
        if not above:
            return share
        full |= above
        free = sum(s for i, s in enumerate(share) if i not in full)
        left = 1 - most * len(full)
        open_ = len(share) - len(full)
        share = [
            most if i in full else s * left / free if free > 0 else left / open_
            for i, s in enumerate(share)
        ]


def rows_of(share: list[float], ranks: int, rows: int) -> list[int]:
    """Of `rows` that each rank sends, those for each of `ranks`: whole, the same sum."""
    each = len(share) // ranks
    exact = [rows * sum(share[r * each : (r + 1) * each]) for r in range(ranks)]
    found = [int(value) for value in exact]
    by_rest = sorted(range(ranks), key=lambda r: (found[r] - exact[r], r))
    for r in by_rest[: rows - sum(found)]:
        found[r] += 1
    return found


@dataclass
class Layer:
    """A `routing` line, and the rows that each place of its group gets of every rank."""

    line: Line
    rows: list[int]

    @property
    def even(self) -> int:
        """Rows that a rank sends, and got in the trace."""
        return sum(self.rows)

    def factor(self, place: int) -> float:
        """Rows received over those of the trace."""
        return self.rows[place] * len(self.rows) / self.even


def layers_of(trace: Trace, shares: str, seed: int, first: int) -> dict[int, Layer]:
    """Expert layers by the number of their module, in order of first use."""
    found: dict[int, Layer] = {}
    for line in trace.of("routing"):
        module = line.get("module", -1)
        if module in found:
            continue
        if line.get("capacity") is not None:
            raise TraceError("experts with a capacity take what it says: nothing to draw")
        ranks = len(ranks_of(trace.groups[line["group"]]["ranks"]))
        share = shares_of(shares, line["experts"], line["topk"], first + len(found), seed)
        found[module] = Layer(line, rows_of(share, ranks, line["tokens"] * line["topk"]))
    return found


@dataclass
class _Uneven:
    """A program as the rank at `place` of the experts' groups runs it."""

    trace: Trace
    layers: dict[int, Layer]
    place: int
    signatures: list[Line] = field(default_factory=list)
    _numbers: dict[Any, int] = field(default_factory=dict)
    _of: dict[int, Layer] = field(default_factory=dict)  # storages of received tokens

    def __post_init__(self) -> None:
        self.signatures = list(self.trace.signatures)
        self._groups = {layer.line["group"] for layer in self.layers.values()}
        self._resident = {line["storage"] for line in self.trace.of("resident")}
        self._modules = {m["id"]: m["path"] for m in self.trace.modules}
        lines = self.trace.lines
        self._alloc = {row["storage"]: i for i, row in enumerate(lines) if row["t"] == "alloc"}
        self._sizes: dict[int, float] = {}  # factors of storages, by the line that allocates them

    def lines(self) -> list[Line]:
        """The step."""
        made = [self._line(line) for line in self.trace.lines]
        for at, factor in self._sizes.items():
            made[at] = made[at] | {"bytes": max(1, round(made[at]["bytes"] * factor))}
        return made

    def _line(self, line: Line) -> Line:
        kind = line["t"]
        if kind == "op":
            return self._op(line)
        if kind == "comm":
            return self._comm(line)
        if kind == "free":
            self._of.pop(line["storage"], None)
        if kind == "resize" and line["storage"] in self._of:
            factor = self._of[line["storage"]].factor(self.place)
            return line | {"bytes": round(line["bytes"] * factor)}
        return line

    def _take(self, storage: int, layer: Layer) -> None:
        """A storage holds received tokens from here on."""
        if storage in self._of or storage in self._resident or storage not in self._alloc:
            return
        self._of[storage] = layer
        self._sizes[self._alloc[storage]] = layer.factor(self.place)

    def _layer_at(self, line: Line) -> Layer:
        """The expert layer of an all-to-all: of its module, or of the nearest above or below."""
        module = line.get("module", -1)
        if module in self.layers:
            return self.layers[module]
        path = self._modules.get(module, "").split(".")

        def common(other: int) -> int:
            names = self._modules.get(other, "").split(".")
            return next(
                (i for i, (a, b) in enumerate(zip(path, names, strict=False)) if a != b),
                min(len(path), len(names)),
            )

        return self.layers[max(self.layers, key=common)]

    def _comm(self, line: Line) -> Line:
        received = next((self._of[s] for s in line["in"] if s in self._of), None)
        if line["kind"] == "all_to_all" and line["group"] in self._groups:
            return self._all_to_all(line, received)
        if received is None:
            return line
        for storage in line["out"]:
            self._take(storage, received)
        factor = received.factor(self.place)
        changed = {key: round(line[key] * factor) for key in ("send", "recv")}
        for key in ("send_each", "recv_each"):
            if line.get(key):
                changed[key] = [round(size * factor) for size in line[key]]
        return line | changed

    def _all_to_all(self, line: Line, received: Layer | None) -> Line:
        """Out: to each place what it gets. Back, of received tokens: from each what it got."""
        layer = received or self._layer_at(line)
        size = (line["recv"] if received else line["send"]) // layer.even  # of a row
        to_each = [rows * size for rows in layer.rows]
        own = [layer.rows[self.place] * size] * len(layer.rows)
        send, recv = (own, to_each) if received else (to_each, own)
        for storage in line["out"]:
            if received is None:
                self._take(storage, layer)
            elif self._of.pop(storage, None) is not None:  # it was made like a received one
                self._sizes.pop(self._alloc[storage], None)
        return line | {"send": sum(send), "recv": sum(recv), "send_each": send, "recv_each": recv}

    def _op(self, line: Line) -> Line:
        layer = next((self._of[s] for s in line["in"] if s in self._of), None)
        made = next((self._of[s] for s in line["out"] if s in self._of), None)
        row = self.trace.signatures[line["sig"]]
        if layer is None and made is None:
            return line
        if layer is None:  # an empty tensor that a collective fills is seen when it is filled
            layer = made
        assert layer is not None
        inputs = [s in self._of for s in line["in"]]
        outputs = self._outputs(row, line, inputs, layer)
        for storage, written in zip(line["out"], outputs, strict=True):
            if written and storage not in line["in"]:
                self._take(storage, layer)
        factor = layer.factor(self.place)
        if factor == 1 or not row.get("kernel", True):
            return line
        key = (line["sig"], tuple(inputs), tuple(outputs), factor)
        if key not in self._numbers:
            self._numbers[key] = len(self.signatures)
            scaled = _scaled(row, inputs, outputs, factor, layer)
            self.signatures.append(scaled | {"id": len(self.signatures)})
        kept = {k: v for k, v in line.items() if k != "ns"}  # of other rows than were measured
        return kept | {"sig": self._numbers[key]}

    def _outputs(self, row: Line, line: Line, inputs: list[bool], layer: Layer) -> list[bool]:
        """Which outputs hold received tokens."""
        known = [storage in self._of for storage in line["out"]]
        first = PRODUCTS.get(row["name"])
        if first is not None:
            both = inputs[first] and inputs[first + 1]
            return known if both else [True] * len(known)
        least = min(
            (math.prod(t[1]) for t, mine in zip(row["in"], inputs, strict=True) if mine), default=0
        )
        counts = _counts(layer)
        return [
            mine or math.prod(t[1]) >= least or any(size in counts for size in t[1])
            for mine, t in zip(known, row["out"], strict=True)
        ]


def _counts(layer: Layer) -> set[int]:
    """Row counts of received tokens: of a rank, an expert, one sender, and gathered over tp."""
    line, ranks = layer.line, len(layer.rows)
    parts = {1, ranks, line["local_experts"], ranks * line["local_experts"]}
    return {
        layer.even * gathered // part
        for part in parts
        for gathered in (1, 2, 4, 8)
        if layer.even * gathered % part == 0
    } - {0, 1}


def _scaled(
    row: Line, inputs: list[bool], outputs: list[bool], factor: float, layer: Layer
) -> Line:
    """The operator with as many rows more or fewer."""
    made = copy.deepcopy(row)
    first = PRODUCTS.get(row["name"])
    counts = _counts(layer)

    def stretch(tensor: list[Any], axis: int) -> None:
        tensor[1][axis] = max(1, round(tensor[1][axis] * factor))

    if first is not None:
        a, b, out = made["in"][first], made["in"][first + 1], made["out"][0]
        if inputs[first] and inputs[first + 1]:  # over the tokens
            stretch(a, -1)
            stretch(b, -2)
        elif inputs[first + 1]:
            stretch(b, -1)
            stretch(out, -1)
        else:
            stretch(a, -2)
            stretch(out, -2)
    else:
        for tensors, mine in ((made["in"], inputs), (made["out"], outputs)):
            for tensor, received in zip(tensors, mine, strict=True):
                shape = tensor[1]
                axes = [i for i, size in enumerate(shape) if size in counts]
                if received and shape:
                    stretch(tensor, axes[0] if axes else 0)
    for key, tensors, mine in (("read", "in", inputs), ("written", "out", outputs)):
        if key not in row:
            continue
        whole = sum(_bytes(t) for t in row[tensors])
        stretched = sum(_bytes(t) for t, m in zip(row[tensors], mine, strict=True) if m)
        share = stretched / whole if whole else 0.0
        made[key] = round(row[key] * (1 + share * (factor - 1)))
    if "flops" in row:
        made["flops"] = round(row["flops"] * factor)
    return made


_WIDTH = {"64": 8, "32": 4, "16": 2}


def _bytes(tensor: list[Any]) -> int:
    kind = tensor[0]
    size = next((n for bits, n in _WIDTH.items() if kind.endswith(bits)), 1)
    return int(math.prod(tensor[1])) * size


class _Places:
    """Where ranks stand in groups, by the mesh of a directory or, without one, as traced."""

    def __init__(self, index: Line) -> None:
        mesh = index.get("mesh")
        self.mesh = Mesh([n for n, _ in mesh], [s for _, s in mesh]) if mesh else None

    def spans(self, row: Line, group: int) -> list[int]:
        """Dimensions in which a group's ranks differ."""
        assert self.mesh is not None
        return [self.mesh.names.index(name) for name in row["groups"][group]]

    def moved(self, row: Line, group: int, member: int, to: int) -> int:
        """The rank that is to `to` what `member` is to the traced rank."""
        if self.mesh is None:
            return member
        place = list(self.mesh.coordinates(to))
        there = self.mesh.coordinates(member)
        for i in self.spans(row, group):
            place[i] = there[i]
        return self.mesh.rank(place)

    def ranks_at(self, row: Line, trace: Trace, group: int) -> list[list[int]]:
        """The ranks that a program stands for, by their place in a group."""
        members = ranks_of(trace.groups[group]["ranks"])
        found: list[list[int]] = [[] for _ in members]
        for rank in ranks_of(row["ranks"]):
            found[[self.moved(row, group, m, rank) for m in members].index(rank)].append(rank)
        return found


def _as_rank(trace: Trace, row: Line, places: _Places, rank: int) -> Trace:
    """The program seen from another of the ranks that it stands for."""
    groups = []
    for number, group in enumerate(trace.groups):
        ranks = [places.moved(row, number, m, rank) for m in ranks_of(group["ranks"])]
        groups.append(group | {"ranks": runs_of(ranks)})
    lines = [
        line | {"peer": places.moved(row, line["group"], line["peer"], rank)}
        if line["t"] == "comm" and line.get("peer", -1) >= 0
        else line
        for line in trace.lines
    ]
    return replace(trace, header=trace.header | {"rank": rank}, groups=groups, lines=lines)


def redraw(trace: Trace, layers: dict[int, Layer], place: int) -> Trace:
    """The step of the rank at `place` of the experts' groups."""
    uneven = _Uneven(trace, layers, place)
    lines = [line for line in uneven.lines() if line.get("what") != BALANCED]
    made = replace(trace, lines=lines, signatures=uneven.signatures)
    made.end = trace.end | {"peak_bytes": made.peak_bytes(trace.header.get("device", "cuda"))}
    return made


def redraw_directory(source: Path, shares: str, seed: int, out: Path) -> str:
    """Writes the programs with uneven experts into another directory; says what was drawn."""
    if out.resolve() == source.resolve():
        raise TraceError(f"{out}: the traces would be written over: name another --out")
    traces = read_directory(source)
    index = json.loads((source / INDEX).read_text(encoding="utf-8"))
    places = _Places(index)
    rows: list[Line] = []
    first, busiest = 0, 1.0
    for row in index["programs"]:
        trace = traces[row["rank"]]
        layers = layers_of(trace, shares, seed, first)
        first += len(layers)
        groups = {layer.line["group"] for layer in layers.values()}
        if len(groups) > 1:
            raise TraceError(f"{row['file']}: its experts lie on {len(groups)} different groups")
        at = places.ranks_at(row, trace, groups.pop()) if groups else [ranks_of(row["ranks"])]
        if len(rows) + len(at) > PROGRAMS:
            raise TraceError(f"more than {PROGRAMS} programs, one for each place of the experts")
        for place, ranks in enumerate(at):
            if not ranks:
                continue
            made = redraw(trace, layers, place) if layers else trace
            busiest = max([busiest, *(layer.factor(place) for layer in layers.values())])
            file = rank_file(ranks[0])
            write(out / file, _as_rank(made, row, places, ranks[0]))
            kept = {key: row[key] for key in ("groups",) if key in row}
            rows.append({"rank": ranks[0], "file": file, "ranks": runs_of(ranks), **kept})
    if first == 0:
        raise TraceError(f"{source}: no traced rank routes tokens to experts")
    said = (
        f"experts' shares of {first} layers by {shares}, seed {seed}: the busiest rank gets "
        f"{busiest:.3f} times the mean; experts of a rank share its rows evenly"
    )
    index["programs"] = rows
    index["assumed"] = [*index.get("assumed", []), said]
    for key in ("orrery_trace", "checked"):
        index.pop(key, None)
    write_index(out, index)
    return said

"""Which ranks run equal programs, found before they are traced.

The first rank's groups tell how ranks are numbered. Along each dimension of that mesh the second
and the last rank are traced too: where both run the first one's program, so do those between, and
one rank stands for the dimension. Where one does not, every place of the dimension is traced.
Ranks are alike, too, if they differ in the optimizer's own kernels only: Megatron and DeepSpeed cut
the parameters of a rank into shards of equal bytes, in which other tensors begin and end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from orrery_trace.errors import TraceError
from orrery_trace.mesh import Mesh, infer, places
from orrery_trace.trace import Line, Trace, ranks_of, runs_of

ALIKE = 0.05  # of the optimizer's bytes may differ
_MEMORY = frozenset(("resident", "alloc", "resize", "free", "use", "assumed"))
_ROOTED = frozenset(("broadcast", "reduce", "gather", "scatter"))


@dataclass
class Program:
    """What is kept of a rank's trace to compare it with others'."""

    rank: int
    digest: str  # equal for equal programs
    outline: str  # equal for programs that differ in the optimizer's kernels only
    kernels: int  # the optimizer's
    bytes: int  # that they read and write
    peak_bytes: int
    groups: list[Line]  # as in the trace


def _neighbour(trace: Trace, line: Line) -> int:
    """The other rank of a message by its distance in the group; a root by its place."""
    group = ranks_of(trace.groups[line["group"]]["ranks"])
    place = group.index(line["peer"])
    if line["kind"] in _ROOTED:
        return place
    return (place - group.index(trace.header["rank"])) % len(group)


def program_of(trace: Trace, mesh: Mesh | None, distinct: Sequence[str] = ()) -> Program:
    """Digests of a trace, with groups by the dimensions that they span and peers by distance."""
    rank = trace.header["rank"]
    whole, outline = hashlib.sha256(), hashlib.sha256()

    def add(value: Any, *to: Any) -> None:
        text = json.dumps(value, sort_keys=True).encode()
        for digest in to:
            digest.update(text)

    for row in trace.signatures:
        # Where a view begins and which shard is this rank's follow the rank; sizes do not.
        scalars = row.get("args", {}) if row.get("kernel", True) else {}
        add(row | {"args": {k: v for k, v in scalars.items() if k != "rank"}}, whole)
    for row in trace.groups:
        ranks = ranks_of(row["ranks"])
        spanned = mesh.dimensions(ranks, rank, distinct) if mesh is not None else None
        shape = {"size": len(ranks), "along": spanned, "ranks": None if spanned else runs_of(ranks)}
        add(shape, whole, outline)
    shapes = [
        [row["name"], row["in"], row["out"], row.get("kernel", True)] for row in trace.signatures
    ]
    part = None
    kernels = moved = 0
    for line in trace.lines:
        kind = line["t"]
        if kind == "comm" and "peer" in line:
            line = line | {"peer": _neighbour(trace, line)}
        add(line, whole)
        if kind in ("op", "comm"):
            part = line.get("pass")
        if kind == "comm":
            add({k: v for k, v in line.items() if k not in ("in", "out")}, outline)
        elif kind == "op" and part == "optimizer":
            row = trace.signatures[line["sig"]]
            if row.get("kernel", True):
                kernels += 1
                moved += row.get("read", 0) + row.get("written", 0)
        elif kind == "op":
            add([shapes[line["sig"]], part, line.get("stream"), line.get("module")], outline)
        elif kind not in _MEMORY and part != "optimizer":
            add(line, outline)
    return Program(
        rank, whole.hexdigest()[:16], outline.hexdigest()[:16], kernels, moved,
        trace.end["peak_bytes"], trace.groups,
    )  # fmt: skip


def alike(a: Program, b: Program) -> bool:
    """Whether one may stand for the other."""
    if a.digest == b.digest:
        return True
    return a.outline == b.outline and abs(a.bytes - b.bytes) <= ALIKE * max(a.bytes, b.bytes)


def difference(of: Program, others: Sequence[Program]) -> str | None:
    """How those that a program stands for differ from it, in words."""
    unlike = [p for p in others if p.digest != of.digest]
    if not unlike:
        return None
    every = [of, *unlike]

    def span(values: list[float], unit: str) -> str:
        low, high = f"{min(values):,.6g}", f"{max(values):,.6g}"
        return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"

    return (
        f"rank {of.rank} stands for ranks whose optimizers hold other shards: "
        f"{span([p.kernels for p in every], 'kernels')}, "
        f"{span([p.bytes / 1e6 for p in every], 'MB moved')}; peak of live tensors "
        f"{span([p.peak_bytes / 1e9 for p in every], 'GB')}"
    )


def find(
    world_size: int,
    mesh: Mesh | None,
    most: int,
    trace: Callable[[Sequence[int]], None],
    load: Callable[[int], Trace],
) -> tuple[Mesh, list[str]]:
    """The mesh, and the dimensions along which programs differ.

    `trace` traces ranks, `load` reads one that was. At most `most` programs may be distinct.
    """
    trace([0])
    first = load(0)
    if mesh is None:
        groups = [(row.get("description", ""), ranks_of(row["ranks"])) for row in first.groups]
        mesh = infer(world_size, groups)
    probes: list[tuple[str, int]] = []
    for i, (name, size) in enumerate(zip(mesh.names, mesh.sizes, strict=True)):
        for at in sorted({1, size - 1} if size > 1 else ()):
            probes.append((name, mesh.rank([at if j == i else 0 for j in range(len(mesh.sizes))])))
    trace([rank for _, rank in probes])
    # Until the distinct dimensions are known, a group may hold some places of any.
    one = program_of(first, mesh, mesh.names)
    found = {
        name for name, rank in probes if not alike(one, program_of(load(rank), mesh, mesh.names))
    }
    distinct = [name for name in mesh.names if name in found]
    count = len(places(mesh, distinct))
    if count > most:
        raise TraceError(
            f"ranks of mesh {mesh} differ along {', '.join(distinct)}: {count} programs, and "
            f"{most} may be traced (--most)"
        )
    return mesh, distinct

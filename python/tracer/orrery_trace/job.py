"""A whole job from its distinct ranks: which to trace, a process each, and what they stand for.

Ranks whose coordinates along the `--distinct` dimensions of the mesh agree are taken to run equal
programs, before anything is traced. The claim is checked afterwards on other members of a class:
same ops, same sizes, and groups that are the same dimensions of the mesh seen from their rank.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from orrery_trace.errors import TraceError
from orrery_trace.trace import Line, Trace, rank_file, ranks_of, read, runs_of, write_index


@dataclass
class Mesh:
    """Names and sizes of the dimensions by which ranks are numbered, outermost first."""

    names: list[str]
    sizes: list[int]

    @staticmethod
    def parse(text: str) -> Mesh:
        """Reads `pp=4,dp=8,tp=8`."""
        names, sizes = [], []
        for part in text.split(","):
            name, _, size = part.partition("=")
            if not name or not size.isdigit() or int(size) < 1 or name in names:
                raise TraceError(f"--mesh {text}: {part!r} is no NAME=SIZE with a new name")
            names.append(name)
            sizes.append(int(size))
        return Mesh(names, sizes)

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Where a rank lies along each dimension."""
        found = []
        for size in reversed(self.sizes):
            found.append(rank % size)
            rank //= size
        return tuple(reversed(found))

    def dimensions(self, ranks: list[int], of: int) -> list[str] | None:
        """The dimensions that a group of rank `of` spans; None if it is no such plane."""
        here = self.coordinates(of)
        places = [self.coordinates(r) for r in ranks]
        spanned = [
            i for i in range(len(self.sizes)) if any(place[i] != here[i] for place in places)
        ]
        if len(set(ranks)) != prod(self.sizes[i] for i in spanned):
            return None
        return [self.names[i] for i in spanned]


@dataclass
class Ranks:
    """What is traced and what it stands for."""

    traced: list[int]
    members: dict[int, list[int]]
    checked: dict[int, int] = field(default_factory=dict)  # other rank: the one it must equal
    mesh: Mesh | None = None


def ranks_to_trace(options: argparse.Namespace) -> Ranks:
    """Reads --rank or --mesh."""
    world = options.world_size
    if options.mesh is None:
        words = options.rank.split(",")
        if not all(word.isdigit() and int(word) < world for word in words):
            raise TraceError(f"--rank {options.rank}: ranks of a world of {world}, as in 0,4,7")
        traced = sorted({int(word) for word in words})
        return Ranks(traced, {rank: [rank] for rank in traced})
    mesh = Mesh.parse(options.mesh)
    if prod(mesh.sizes) != world:
        raise TraceError(
            f"--mesh {options.mesh} has {prod(mesh.sizes)} places, and --world-size is {world}"
        )
    distinct = [name for name in options.distinct.split(",") if name]
    unknown = [name for name in distinct if name not in mesh.names]
    if unknown and options.distinct != "pp":
        raise TraceError(f"--distinct {unknown[0]}: no dimension of --mesh {options.mesh}")
    kept = [i for i, name in enumerate(mesh.names) if name in distinct]
    classes: dict[tuple[int, ...], list[int]] = {}
    for rank in range(world):
        place = mesh.coordinates(rank)
        classes.setdefault(tuple(place[i] for i in kept), []).append(rank)
    members = {ranks[0]: ranks for ranks in classes.values()}
    ranks = Ranks(sorted(members), members, mesh=mesh)
    first, largest = max(members.items(), key=lambda item: len(item[1]))
    for n in range(min(options.check, len(largest) - 1)):
        # From the far end, then halving: members that share the fewest coordinates come first.
        ranks.checked[largest[-1 - n * len(largest) // (2 * max(options.check, 1))]] = first
    return ranks


def digest(trace: Trace, mesh: Mesh | None) -> str:
    """Equal for ranks with equal programs: groups by the dimensions they span, peers by offset."""
    rank = trace.header["rank"]
    hashed = hashlib.sha256()

    def add(line: Line) -> None:
        hashed.update(json.dumps(line, sort_keys=True).encode())

    for row in trace.signatures:
        # Where a view begins and which shard is this rank's follow the rank; sizes do not.
        scalars = row.get("args", {}) if row.get("kernel", True) else {}
        add(row | {"args": {k: v for k, v in scalars.items() if k != "rank"}})
    for row in trace.groups:
        ranks = ranks_of(row["ranks"])
        spanned = mesh.dimensions(ranks, rank) if mesh is not None else None
        add({"size": len(ranks), "along": spanned, "ranks": None if spanned else runs_of(ranks)})
    for line in trace.lines:
        peer = line.get("peer")
        if peer is not None:
            group = ranks_of(trace.groups[line["group"]]["ranks"])
            line = line | {"peer": group.index(peer) - group.index(rank)}
        add(line)
    return hashed.hexdigest()[:16]


def trace_all(options: argparse.Namespace, ranks: Ranks) -> None:
    """Traces every rank that must be, in processes of their own, and writes the index."""
    began = time.monotonic()
    todo = [*ranks.traced, *ranks.checked]
    jobs = options.jobs if options.jobs > 0 else os.cpu_count() or 1
    running: dict[int, subprocess.Popen[bytes]] = {}
    failed: list[int] = []
    waiting = list(todo)
    while waiting or running:
        while waiting and len(running) < jobs and not failed:
            rank = waiting.pop(0)
            running[rank] = subprocess.Popen(child(options, rank))
        if failed:
            waiting.clear()
        for rank, process in list(running.items()):
            if process.poll() is not None:
                del running[rank]
                if process.returncode != 0:
                    failed.append(rank)
        time.sleep(0.02)
    if failed:
        raise TraceError(f"rank {failed[0]} could not be traced; its own message is above")
    folder = Path(options.out)
    programs = []
    equal = {}
    for rank in ranks.traced:
        trace = read(folder / rank_file(rank))
        equal[rank] = digest(trace, ranks.mesh)
        programs.append(program(trace, ranks, equal[rank]))
    for other, rank in ranks.checked.items():
        path = folder / rank_file(other)
        if digest(read(path), ranks.mesh) != equal[rank]:
            raise TraceError(
                f"ranks {rank} and {other} do not run equal programs (compare "
                f"{folder / rank_file(rank)} and {path}): name more dimensions in --distinct"
            )
        path.unlink()
    index: Line = {"world_size": options.world_size, "programs": programs}
    if ranks.mesh is not None:
        index["mesh"] = [list(d) for d in zip(ranks.mesh.names, ranks.mesh.sizes, strict=True)]
    if ranks.checked:
        index["checked"] = sorted(ranks.checked)
    write_index(folder, index)
    print(
        f"wrote {folder}: {len(ranks.traced)} programs for {sum(map(len, ranks.members.values()))} "
        f"of {options.world_size} ranks, {len(ranks.checked)} more compared, "
        f"{time.monotonic() - began:.1f} s",
        file=sys.stderr,
    )


def program(trace: Trace, ranks: Ranks, equal: str) -> Line:
    """One row of the index."""
    rank = trace.header["rank"]
    row: Line = {"rank": rank, "file": rank_file(rank), "ranks": runs_of(ranks.members[rank])}
    row["digest"] = equal
    if ranks.mesh is not None:
        row["groups"] = [ranks.mesh.dimensions(ranks_of(g["ranks"]), rank) for g in trace.groups]
        if len(ranks.members[rank]) > 1 and None in row["groups"]:
            bad = trace.groups[row["groups"].index(None)]
            raise TraceError(
                f"rank {rank} cannot stand for others: its group {bad['name']} of {bad['size']} "
                "ranks is no plane of --mesh; give the mesh in finer dimensions"
            )
    return row


def child(options: argparse.Namespace, rank: int) -> list[str]:
    """The command that traces one rank."""
    return [
        sys.executable, "-m", "orrery_trace", "--world-size", str(options.world_size),
        "--rank", str(rank), "--out", options.out, "--step", str(options.step), "--jobs", "-1",
        "--device", options.device, *(["--real"] if options.real else []), "--", *options.command,
    ]  # fmt: skip

"""A whole job from its distinct ranks: which to trace, a process each, and what they stand for.

Ranks whose coordinates along the distinct dimensions of the mesh agree are taken to run equal
programs, before they are traced. The claim is checked afterwards on other members of a class:
same ops, same sizes, and groups that are the same dimensions of the mesh seen from their rank.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO

from orrery_trace import distinct, session
from orrery_trace.distinct import Program, program_of
from orrery_trace.errors import TraceError
from orrery_trace.mesh import Mesh, places
from orrery_trace.trace import Line, Trace, rank_file, ranks_of, read, runs_of, write_index


@dataclass
class Ranks:
    """What is traced and what it stands for."""

    members: dict[int, list[int]]  # by traced rank
    checked: dict[int, int] = field(default_factory=dict)  # other rank: the one it must equal
    mesh: Mesh | None = None
    distinct: list[str] = field(default_factory=list)  # dimensions along which programs differ
    found: bool = False  # these dimensions were found, not said: optimizers may differ a little

    @property
    def traced(self) -> list[int]:
        """Ranks that stand for themselves or others."""
        return sorted(self.members)


def listed(text: str, world: int) -> list[int]:
    """Reads the ranks of `--rank 0,4,7`."""
    words = text.split(",")
    if not all(word.isdigit() and int(word) < world for word in words):
        raise TraceError(f"--rank {text}: ranks of a world of {world}, as in 0,4,7, or all")
    return sorted({int(word) for word in words})


def mesh_of(options: argparse.Namespace) -> Mesh | None:
    """Reads --mesh."""
    if options.mesh is None:
        return None
    mesh = Mesh.parse(options.mesh)
    if prod(mesh.sizes) != options.world_size:
        raise TraceError(
            f"--mesh {mesh} has {prod(mesh.sizes)} places, and --world-size is {options.world_size}"
        )
    return mesh


def classes(mesh: Mesh, names: Sequence[str]) -> dict[int, list[int]]:
    """Ranks that agree along these dimensions, by the first of them."""
    kept = [i for i, name in enumerate(mesh.names) if name in names]
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in range(prod(mesh.sizes)):
        place = mesh.coordinates(rank)
        found.setdefault(tuple(place[i] for i in kept), []).append(rank)
    return {ranks[0]: ranks for ranks in found.values()}


def of_mesh(options: argparse.Namespace, mesh: Mesh) -> Ranks:
    """One rank for each place along the dimensions of --distinct, and those that are compared."""
    names = [name for name in options.distinct.split(",") if name]
    unknown = [name for name in names if name not in mesh.names]
    if unknown and options.distinct != "pp":
        raise TraceError(f"--distinct {unknown[0]}: no dimension of --mesh {options.mesh}")
    ranks = Ranks(classes(mesh, names), mesh=mesh, distinct=names)
    first, largest = max(ranks.members.items(), key=lambda item: len(item[1]))
    for n in range(min(options.check, len(largest) - 1)):
        # From the far end, then halving: members that share the fewest coordinates come first.
        ranks.checked[largest[-1 - n * len(largest) // (2 * max(options.check, 1))]] = first
    return ranks


class Tracer:
    """Traces ranks, each in a process of its own, and none twice.

    The processes are forked from this one, which has PyTorch loaded and has run nothing with it.
    `alone` traces one rank and returns an exit status. What the first program writes is shown; of
    the others, what those write that fail.
    """

    def __init__(self, options: argparse.Namespace, alone: Callable[[int], int]) -> None:
        self.options = options
        self.alone = alone
        self.folder = Path(options.out)
        self.done: set[int] = set()

    def trace(self, ranks: Sequence[int]) -> None:
        """Traces those of `ranks` that have not been; raises once one fails."""
        waiting = [r for r in dict.fromkeys(ranks) if r not in self.done]
        jobs = self.options.jobs if self.options.jobs > 0 else os.cpu_count() or 1
        running: dict[int, tuple[BaseProcess, IO[bytes]]] = {}
        failed: list[int] = []
        session.prepare(fake=not self.options.real)
        while waiting or running:
            while waiting and len(running) < jobs and not failed:
                rank = waiting.pop(0)
                running[rank] = self._begin(rank)
            if failed:
                waiting.clear()
            for rank, (process, said) in list(running.items()):
                if process.is_alive():
                    continue
                del running[rank]
                self.done.add(rank)
                with said:
                    said.seek(0)
                    if process.exitcode != 0 or len(self.done) == 1:
                        sys.stderr.write(said.read().decode(errors="replace"))
                if process.exitcode != 0:
                    failed.append(rank)
            time.sleep(0.02)
        if failed:
            raise TraceError(f"rank {failed[0]} could not be traced; its own message is above")

    def _begin(self, rank: int) -> tuple[BaseProcess, IO[bytes]]:
        said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - outlives this block

        def run() -> None:
            for output in (1, 2):
                os.dup2(said.fileno(), output)
            sys.exit(self.alone(rank))

        process = multiprocessing.get_context("fork").Process(target=run)
        process.start()
        return process, said

    def load(self, rank: int) -> Trace:
        """The trace of a rank that is done."""
        return read(self.folder / rank_file(rank))

    def forget(self, kept: Sequence[int]) -> None:
        """Removes the files of ranks that were traced to be compared only."""
        for rank in self.done.difference(kept):
            (self.folder / rank_file(rank)).unlink(missing_ok=True)


def found_ranks(options: argparse.Namespace, tracer: Tracer) -> Ranks:
    """Ranks of a job whose distinct dimensions are found by tracing a few."""
    mesh, names = distinct.find(
        options.world_size, mesh_of(options), options.most, tracer.trace, tracer.load
    )
    ranks = Ranks(classes(mesh, names), mesh=mesh, distinct=names, found=True)
    tracer.trace(places(mesh, names))
    # What was seen beside the first rank must hold elsewhere: the last classes' last ranks.
    for first in ranks.traced[::-1][: options.check]:
        if ranks.members[first][-1] != first:
            ranks.checked[ranks.members[first][-1]] = first
    tracer.trace(list(ranks.checked))
    # Probes beside the first rank tell the range of what differs.
    for rank in sorted(tracer.done.difference(ranks.members, ranks.checked)):
        ranks.checked[rank] = next(f for f, members in ranks.members.items() if rank in members)
    return ranks


def said_ranks(options: argparse.Namespace) -> Ranks | None:
    """What --rank and --mesh ask for; None with `--rank all`, which finds it out."""
    mesh = mesh_of(options)
    if options.rank == "all":
        return None
    if mesh is not None:
        return of_mesh(options, mesh)
    return Ranks({rank: [rank] for rank in listed(options.rank, options.world_size)})


def trace_all(options: argparse.Namespace, said: Ranks | None, alone: Callable[[int], int]) -> None:
    """Traces every rank that must be, in processes of their own, and writes the index.

    `alone` traces one rank in the process that calls it, and returns an exit status.
    """
    began = time.monotonic()
    tracer = Tracer(options, alone)
    ranks = said if said is not None else found_ranks(options, tracer)
    tracer.trace([*ranks.traced, *ranks.checked])
    index: Line = {"world_size": options.world_size}
    programs, assumed = compared(ranks, tracer)
    index["programs"] = [row(program, ranks) for program in programs]
    if ranks.mesh is not None:
        index["mesh"] = [list(d) for d in zip(ranks.mesh.names, ranks.mesh.sizes, strict=True)]
    if ranks.checked:
        index["checked"] = sorted(ranks.checked)
    if assumed:
        index["assumed"] = assumed
    write_index(tracer.folder, index)
    tracer.forget(ranks.traced)
    for text in assumed:
        print(text, file=sys.stderr)
    along = f" (mesh {ranks.mesh}: they differ along {', '.join(ranks.distinct) or 'none'})"
    print(
        f"wrote {options.out}: {len(programs)} programs for "
        f"{sum(map(len, ranks.members.values()))} of {options.world_size} ranks"
        f"{along if ranks.found else ''}, {len(ranks.checked)} more compared, "
        f"{time.monotonic() - began:.1f} s",
        file=sys.stderr,
    )


def compared(ranks: Ranks, tracer: Tracer) -> tuple[list[Program], list[str]]:
    """The programs, once the ranks that were traced beside them have been compared with them."""
    programs, said = [], []
    for rank in ranks.traced:
        program = program_of(tracer.load(rank), ranks.mesh, ranks.distinct)
        others = [
            program_of(tracer.load(other), ranks.mesh, ranks.distinct)
            for other, of in ranks.checked.items()
            if of == rank
        ]
        for other in others:
            equal = distinct.alike(program, other) if ranks.found else program == other
            if not equal:
                raise TraceError(
                    f"ranks {rank} and {other.rank} do not run equal programs (compare "
                    f"{tracer.folder / rank_file(rank)} and "
                    f"{tracer.folder / rank_file(other.rank)}): name more dimensions in --distinct"
                )
        text = distinct.difference(program, others)
        said += [text] if text else []
        programs.append(program)
    return programs, said


def row(program: Program, ranks: Ranks) -> Line:
    """One row of the index."""
    rank = program.rank
    members = ranks.members[rank]
    found: Line = {"rank": rank, "file": rank_file(rank), "ranks": runs_of(members)}
    found["digest"] = program.digest
    if ranks.mesh is not None:
        found["groups"] = [
            ranks.mesh.dimensions(ranks_of(g["ranks"]), rank, ranks.distinct)
            for g in program.groups
        ]
        if len(members) > 1 and None in found["groups"]:
            bad = program.groups[found["groups"].index(None)]
            raise TraceError(
                f"rank {rank} cannot stand for others: its group {bad['name']} of {bad['size']} "
                "ranks is no plane of --mesh; give the mesh in finer dimensions"
            )
    return found

"""Which ranks run equal programs: on programs made up here, so that no rank need be traced."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import pytest

from orrery_trace import distinct, job
from orrery_trace.errors import TraceError
from orrery_trace.mesh import Mesh, infer
from orrery_trace.trace import Line, Trace, runs_of

MESH = Mesh.parse("pp=4,dp=8,tp=2")
Make = Callable[[int], Trace]


def plane(rank: int, names: Sequence[str], mesh: Mesh = MESH) -> list[int]:
    """The ranks that differ from `rank` in these dimensions only."""
    here = mesh.coordinates(rank)
    kept = [i for i, name in enumerate(mesh.names) if name not in names]
    size = job.prod(mesh.sizes)
    return [r for r in range(size) if all(mesh.coordinates(r)[i] == here[i] for i in kept)]


def kernel(number: int, name: str, size: int) -> Line:
    """A row of the table of signatures."""
    shape = ["bfloat16", [size]]
    return {"t": "sig", "id": number, "name": name, "in": [shape], "out": [shape],
            "read": 2 * size, "written": 2 * size}  # fmt: skip


def made_up(rank: int, shard: int = 512, kernels: int = 1) -> Trace:
    """A stage of Megatron's kind: messages to the next stage, and an optimizer of shards."""
    stage, _, _ = MESH.coordinates(rank)
    pipeline = plane(rank, ["pp"])
    trace = Trace({"rank": rank, "world_size": 64})
    trace.groups = [
        {"name": "a", "description": "TENSOR_MODEL_PARALLEL_GROUP", "ranks": plane(rank, ["tp"])},
        {"name": "b", "description": "DATA_PARALLEL_GROUP_WITH_CP", "ranks": plane(rank, ["dp"])},
        {"name": "c", "description": "PIPELINE_MODEL_PARALLEL_GROUP", "ranks": pipeline},
    ]
    if stage in (0, 3):
        ends = [pipeline[0], pipeline[-1]]
        trace.groups.append({"name": "d", "description": "EMBEDDING_GROUP", "ranks": ends})
    for group in trace.groups:
        group["ranks"] = runs_of(group["ranks"])
    trace.signatures = [kernel(0, "aten::mm", 64), kernel(1, "aten::add_", shard // kernels)]
    comm = {"t": "comm", "kind": "all_reduce", "send": 8, "recv": 8}
    trace.lines = [{"t": "op", "sig": 0, "pass": "forward"}, comm | {"id": 0, "group": 0}]
    for id_, (kind, peer) in enumerate((("send", stage + 1), ("recv", stage - 1)), 1):
        if 0 <= peer < 4:
            message = {"kind": kind, "group": 2, "peer": pipeline[peer]}
            trace.lines.append(comm | message | {"id": id_})
    trace.lines += [{"t": "op", "sig": 1, "pass": "optimizer"}] * kernels
    trace.lines.append(comm | {"id": 3, "group": len(trace.groups) - 1, "pass": "optimizer"})
    trace.end = {"peak_bytes": 1000}
    return trace


def found(make: Make, mesh: Mesh | None = None, most: int = 64) -> tuple[Mesh, list[str], set[int]]:
    """Mesh, distinct dimensions, and what was traced to find them."""
    traced: set[int] = set()
    return *distinct.find(64, mesh, most, traced.update, make), traced


def test_a_mesh_follows_from_the_groups_of_one_rank() -> None:
    """Planes of one and of more dimensions; what divides nothing evenly is no plane."""
    groups = [(g["description"], plane(0, [name])) for g, name in
              zip(made_up(0).groups, ("tp", "dp", "pp"), strict=False)]  # fmt: skip
    assert infer(64, groups) == MESH
    assert infer(64, [*groups, ("EMBEDDING_GROUP", [0, 48]), ("", plane(0, ["pp", "tp"]))]) == MESH
    assert infer(64, [("mesh_fsdp", list(range(64)))]) == Mesh(["fsdp"], [64])
    # A dimension along which this rank talks to nobody has no name.
    assert infer(64, [("mesh_tp", [0, 1])]) == Mesh(["stride2", "tp"], [32, 2])
    assert infer(1, []) == Mesh(["world"], [1])
    with pytest.raises(TraceError, match="4 and 6 ranks apart"):
        infer(12, [("", [0, 4, 8]), ("", [0, 6])])


def test_the_dimensions_in_which_programs_differ_are_found() -> None:
    """Stages differ; two ranks of each dimension tell."""
    mesh, names, traced = found(made_up)
    assert (mesh, names) == (MESH, ["pp"])
    assert traced == {0, 1, 2, 14, 16, 48}


def test_optimizers_of_other_shards_are_alike_and_said() -> None:
    """Another cut of as many bytes is alike; half the bytes are not."""
    mesh, names, _ = found(lambda r: made_up(r, kernels=2 if r % 16 >= 2 else 1))
    assert names == ["pp"]
    one, two = (distinct.program_of(made_up(0, kernels=k), mesh, names) for k in (1, 2))
    assert distinct.alike(one, two) and one.digest != two.digest
    said = distinct.difference(one, [one, two])
    assert said is not None and "1 to 2 kernels, 0.002048 MB moved" in said
    assert distinct.difference(one, [one]) is None
    _, names, _ = found(lambda r: made_up(r, shard=256 if r % 16 == 14 else 512))
    assert names == ["pp", "dp"]


def test_what_is_no_optimizer_makes_another_program() -> None:
    """One forward kernel more, or another size of a message, on the last rank of tp."""

    def more(rank: int) -> Trace:
        trace = made_up(rank)
        trace.lines[:0] = trace.lines[:1] * (rank % 2)
        return trace

    def larger(rank: int) -> Trace:
        trace = made_up(rank)
        trace.lines[1] = trace.lines[1] | {"send": 8 + rank % 2}
        return trace

    assert found(more)[1] == found(larger)[1] == ["pp", "tp"]
    with pytest.raises(TraceError, match="differ along pp, tp: 8 programs, and 7 may be traced"):
        found(more, most=7)


def test_a_ring_makes_no_rank_different() -> None:
    """Each sends to the one behind it, the last to the first: one program."""

    def ring(rank: int) -> Trace:
        trace = Trace({"rank": rank, "world_size": 64}, end={"peak_bytes": 0})
        trace.groups = [{"name": "r", "description": "mesh_cp", "ranks": [[0, 64, 1]]}]
        trace.lines = [{"t": "comm", "kind": "send", "group": 0, "peer": (rank + 1) % 64,
                        "send": 8, "recv": 0}]  # fmt: skip
        return trace

    assert found(ring)[:2] == (Mesh(["cp"], [64]), [])


def test_a_said_mesh_and_its_classes() -> None:
    """--mesh without --rank all: dimensions are the user's, the far end is compared."""
    options = argparse.Namespace(mesh="pp=4,dp=8,tp=2", distinct="pp", check=1, world_size=64)
    mesh = job.mesh_of(options)
    assert mesh == MESH
    ranks = job.of_mesh(options, MESH)
    assert ranks.traced == [0, 16, 32, 48] and ranks.checked == {15: 0}
    assert ranks.members[16] == list(range(16, 32))
    # A group of first and last stage has its like at every other rank of these stages.
    assert MESH.dimensions([0, 48], 0, ["pp"]) == ["pp"]
    assert MESH.dimensions([0, 48], 0) is None
    assert MESH.dimensions([0, 1, 48, 49], 0, ["pp"]) == ["pp", "tp"]

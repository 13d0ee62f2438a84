"""Every communication op that PyTorch can dispatch, and what the tracer must read from it.

One row per op, arguments by schema name (positions differ between versions, names hardly do).
`check()` compares the table with the installed PyTorch and fails on an op that it does not know, or
on an argument that is not in the op's schema: a collective that is dropped in silence makes every
prediction wrong, and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.distributed  # noqa: F401 - registers Meta kernels

from orrery_trace.errors import TraceError
from orrery_trace.releases import FakeWork
from orrery_trace.signatures import bytes_of, tensors_in, type_name
from orrery_trace.trace import Line

NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")


@dataclass(frozen=True)
class CommOp:
    """How to read one op.

    kind: the graph's name of the collective. sends / receives: the arguments with the bytes that
    leave / arrive here, "return" for the result. peer: the argument that names the other rank or
    the root. splits: (input, output) split arguments. wait: how completion is awaited, on a
    "work" object, on the result "tensor", or "none".
    """

    kind: str
    sends: str = ""
    receives: str = ""
    group: str = "process_group"
    peer: str = ""
    tag: str = ""
    splits: tuple[str, str] | None = None
    coalesced: bool = False
    wait: str = "work"


@dataclass(frozen=True)
class Refused:
    """An op that must stop the trace (or, with `harmless`, is known not to communicate)."""

    reason: str
    harmless: bool = False


def _functional(kind: str, sends: str = "input", **fields: Any) -> CommOp:
    options = {"receives": "return", "group": "group_name", "wait": "tensor"}
    return CommOp(kind, sends, **(options | fields))


_SPLITS_BASE = ("input_split_sizes", "output_split_sizes")

C10D: dict[str, CommOp | Refused] = {
    "allreduce_": CommOp("all_reduce", "tensors", "tensors"),
    "allreduce_coalesced_": CommOp("all_reduce", "tensors", "tensors", coalesced=True),
    "broadcast_": CommOp("broadcast", "tensors", "tensors", peer="root_rank"),
    "reduce_": CommOp("reduce", "tensors", "tensors", peer="root_rank"),
    "allgather_": CommOp("all_gather", "input_tensors", "output_tensors"),
    "_allgather_base_": CommOp("all_gather", "input_tensor", "output_tensor"),
    "allgather_coalesced_": CommOp("all_gather", "input_list", "output_lists", coalesced=True),
    "allgather_into_tensor_coalesced_": CommOp("all_gather", "inputs", "outputs", coalesced=True),
    "reduce_scatter_": CommOp("reduce_scatter", "input_tensors", "output_tensors"),
    "_reduce_scatter_base_": CommOp("reduce_scatter", "input_tensor", "output_tensor"),
    "reduce_scatter_tensor_coalesced_": CommOp(
        "reduce_scatter", "inputs", "outputs", coalesced=True
    ),
    "alltoall_": CommOp("all_to_all", "input_tensors", "output_tensors"),
    "alltoall_base_": CommOp("all_to_all", "input", "output", splits=_SPLITS_BASE),
    "gather_": CommOp("gather", "input_tensors", "output_tensors", peer="root_rank"),
    # New in 2.14 or 2.15.
    "gather_into_tensor_": CommOp("gather", "input_tensor", "output_tensor", peer="root_rank"),
    "scatter_": CommOp("scatter", "input_tensors", "output_tensors", peer="root_rank"),
    "send": CommOp("send", "tensors", peer="dst", tag="tag"),
    "recv_": CommOp("recv", "", "tensors", peer="src", tag="tag"),
    "recv_any_source_": Refused("the sender is known only at run time; give the source rank"),
    "barrier": CommOp("barrier"),
    "monitored_barrier_": CommOp("barrier", wait="none"),
    "check_for_nan": Refused("a local check of NCCL's NaN guard", harmless=True),
}

FUNCTIONAL: dict[str, CommOp | Refused] = {
    "all_reduce": _functional("all_reduce"),
    "all_reduce_": _functional("all_reduce"),
    "all_reduce_coalesced": _functional("all_reduce", "inputs", coalesced=True),
    "all_reduce_coalesced_": _functional("all_reduce", "inputs", coalesced=True),
    "all_gather_into_tensor": _functional("all_gather"),
    "all_gather_into_tensor_out": _functional("all_gather", receives="out"),
    "all_gather_into_tensor_coalesced": _functional("all_gather", "inputs", coalesced=True),
    "reduce_scatter_tensor": _functional("reduce_scatter"),
    "reduce_scatter_tensor_out": _functional("reduce_scatter", receives="out"),
    "reduce_scatter_tensor_coalesced": _functional("reduce_scatter", "inputs", coalesced=True),
    "all_to_all_single": _functional("all_to_all", splits=_SPLITS_BASE),
    "broadcast": _functional("broadcast", peer="src"),
    "broadcast_": _functional("broadcast", peer="src"),
    "isend": _functional("send", "tensor", receives="", peer="dst", tag="tag"),
    "irecv": _functional("recv", "", peer="src", tag="tag"),
    "batch_p2p_ops": _functional("batch_p2p", "tensors", peer="peer_list", tag="tag_list"),
    "wait_tensor": CommOp("wait", group="", wait="none"),
    "wait_tensors": CommOp("wait", group="", wait="none"),
    "_wrap_tensor_autograd": Refused("gives an async tensor its autograd node", harmless=True),
}

# The autograd forms redispatch to the functional op of the same name below autograd: a recorder
# that sits below autograd sees that op, never this one. Seeing one means the recorder sits too
# high, and would count the collective twice.
AUTOGRAD: dict[str, CommOp | Refused] = {
    name: Refused("seen above autograd: the functional op that follows is the one to record")
    for name in ("all_to_all_single", "all_gather_into_tensor", "reduce_scatter_tensor")
}

DTENSOR: dict[str, CommOp | Refused] = {
    "shard_dim_alltoall": CommOp("all_to_all", "input", "return", "group_name", wait="none"),
    "mesh_get_process_group": Refused("looks a group up, moves nothing", harmless=True),
}

TABLE: dict[str, CommOp | Refused] = {
    f"{namespace}::{name}": row
    for namespace, rows in zip(NAMESPACES, (C10D, FUNCTIONAL, AUTOGRAD, DTENSOR), strict=True)
    for name, row in rows.items()
}

# Namespaces that are refused as a whole: their ops synchronise through memory that other GPUs map,
# outside any process group call.
REFUSED_NAMESPACES = {"symm_mem": "symmetric-memory kernels: the peer is in a buffer, not a call"}


class UnknownCommOp(TraceError):
    """A communication op with no row in the table, or one that the table refuses."""


@cache
def lookup(name: str) -> CommOp | None:
    """The row of `namespace::op`; None for an op that does not communicate; raises otherwise."""
    namespace, _, rest = name.partition("::")
    base = f"{namespace}::{rest.split('.')[0]}"
    if namespace in REFUSED_NAMESPACES:
        raise UnknownCommOp(f"{base}: refused, {REFUSED_NAMESPACES[namespace]}")
    if namespace not in NAMESPACES:
        return None
    row = TABLE.get(base)
    if row is None:
        raise UnknownCommOp(f"{base}: not in the table of communication ops; add a row for it")
    if isinstance(row, Refused):
        if row.harmless:
            return None
        raise UnknownCommOp(f"{base}: refused, {row.reason}")
    return row


def describe(row: CommOp, named: dict[str, Any], ranks: list[int]) -> Line:
    """What one call of the op says: bytes, type, peer, tag, shares of each peer.

    `named` are its arguments by name and its result as "return"; `ranks` those of its group.
    """
    sends, receives = named.get(row.sends), named.get(row.receives)
    line: Line = {"kind": row.kind, "send": bytes_of(sends), "recv": bytes_of(receives)}
    first = next(tensors_in([sends, receives]), None)
    if first is not None:
        line["dtype"] = type_name(first.dtype)
    if row.coalesced:
        line["coalesced"] = True
        line["send_each"] = [bytes_of(t) for t in tensors_in(sends)]
        line["recv_each"] = [bytes_of(t) for t in tensors_in(receives)]
    if row.kind == "all_to_all":
        splits = [named.get(name) for name in row.splits] if row.splits else [None, None]
        for key, value, split in zip(
            ("send_each", "recv_each"), (sends, receives), splits, strict=True
        ):
            line[key] = _shares(value, split, len(ranks))
    elif row.kind in ("gather", "scatter") and not row.coalesced:
        line["send_each"] = [bytes_of(t) for t in tensors_in(sends)]
        line["recv_each"] = [bytes_of(t) for t in tensors_in(receives)]
    peer, tag = named.get(row.peer), named.get(row.tag)
    if isinstance(peer, int):
        line["peer"] = ranks[peer]
    elif peer is not None:
        line["peers"] = [ranks[p] for p in peer]
    if tag:
        line["tag"] = tag
    return line


def _shares(value: Any, split: Any, peers: int) -> list[int]:
    """Bytes for each peer: by rows of one tensor, by tensors of a list, or even."""
    tensors = list(tensors_in(value))
    if len(tensors) != 1 or (split is None and isinstance(value, (list, tuple))):
        return [bytes_of(t) for t in tensors]
    total = bytes_of(tensors)
    if not split:
        return [total // peers] * peers
    rows = int(sum(split))
    return [total * int(n) // rows if rows else 0 for n in split]


@cache
def installed() -> dict[str, Any]:
    """Schemas of every op of the namespaces in this PyTorch, by name, and of refused ones."""
    wanted = (*NAMESPACES, *REFUSED_NAMESPACES)
    schemas = torch._C._jit_get_all_schemas()
    return {s.name: s for s in schemas if s.name.split("::")[0] in wanted}


def complete_meta() -> list[str]:
    """Gives each c10d op without a Meta kernel one that does nothing; fake tensors need it.

    In PyTorch 2.13 those are the four `*_coalesced_` forms, before 2.11 nearly all. Returns their
    names.
    """
    added = []
    for name, row in C10D.items():
        full = f"c10d::{name}"
        known = torch._C._dispatch_has_kernel_for_dispatch_key
        if not isinstance(row, CommOp) or full not in installed() or known(full, "Meta"):
            continue
        _LIBRARY.impl(name, _meta(len(installed()[full].returns)), "Meta")
        added.append(full)
    return added


def _meta(returns: int) -> Callable[..., Any]:
    """What does nothing: returns a work, behind the tensors that come first where there are two."""

    def call(*args: Any, **_: Any) -> Any:
        work = FakeWork().boxed() if returns else None
        return (args[0], work) if returns > 1 else work

    return call


_LIBRARY = torch.library.Library("c10d", "IMPL")


def _arguments(row: CommOp) -> list[str]:
    named = [row.sends, row.receives, row.group, row.peer, row.tag, *(row.splits or ())]
    return [name for name in named if name and name != "return"]


def check() -> list[str]:
    """Complaints about the table against the installed PyTorch; empty when all is well."""
    complaints = []
    for name, schema in sorted(installed().items()):
        if name.split("::")[0] in REFUSED_NAMESPACES:
            continue
        row = TABLE.get(name)
        if row is None:
            complaints.append(f"{name}: not in the table: {schema}")
        elif isinstance(row, CommOp):
            have = {argument.name for argument in schema.arguments}
            missing = [argument for argument in _arguments(row) if argument not in have]
            if missing:
                complaints.append(f"{name}: no argument named {', '.join(missing)}: {schema}")
    return complaints

"""A job of one process: `init_process_group` with any backend becomes the fake one.

The program believes that all ranks are there: groups are made, collectives return at once. What
moves Python objects cannot be faked in general; every rank is taken to say what this one says, and
the trace marks it as assumed.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work
from torch.distributed import distributed_c10d
from torch.testing._internal.distributed.fake_pg import FakeStore

from orrery_trace.recorder import Recorder
from orrery_trace.releases import FakeWork


class Patches:
    """Replaced attributes, put back in reverse order."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any, bool]] = []

    def replace(self, owner: Any, name: str, value: Any) -> Any:
        """Sets an attribute; returns what was there."""
        before = getattr(owner, name)
        own = name in vars(owner) if hasattr(owner, "__dict__") else True
        self._undo.append((owner, name, inspect.getattr_static(owner, name), own))
        setattr(owner, name, value)
        return before

    def everywhere(self, function: Any, value: Any) -> None:
        """Replaces a function in every module of torch that holds it by some name."""
        for module in [
            m for n, m in list(sys.modules.items()) if n.startswith("torch.distributed")
        ]:
            for name, held in list(vars(module).items()):
                if held is function:
                    self.replace(module, name, value)

    def undo(self) -> None:
        """Puts everything back."""
        for owner, name, before, own in reversed(self._undo):
            if own:
                setattr(owner, name, before)
            else:
                delattr(owner, name)
        self._undo.clear()


def environment(rank: int, world_size: int) -> dict[str, str]:
    """What `torchrun` would say. LOCAL_RANK is 0: this process sees one device."""
    return {
        "RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": str(rank), "ROLE_RANK": str(rank),
        "MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "orrery",
    }  # fmt: skip


def install(recorder: Recorder, patches: Patches, rank: int, world_size: int) -> None:
    """Makes every process group a fake one, and tells the recorder of waits and calls."""
    os.environ.update(environment(rank, world_size))
    _fake_groups(patches, rank, world_size)
    _objects(recorder, patches)
    _waits(recorder, patches)
    _coalescing(recorder, patches)
    _reduce_operators(recorder, patches)


def _fake_groups(patches: Patches, rank: int, world_size: int) -> None:
    init, helper = dist.init_process_group, distributed_c10d._new_process_group_helper

    @functools.wraps(init)
    def init_process_group(*_: Any, **kwargs: Any) -> None:
        kept = {k: v for k, v in kwargs.items() if k in ("timeout", "group_name")}
        init("fake", store=FakeStore(), rank=rank, world_size=world_size, **kept)

    names = list(inspect.signature(helper).parameters)
    asked: dict[str, str] = {}  # the backend that the program named, by group

    @functools.wraps(helper)
    def new_group(*args: Any, **kwargs: Any) -> Any:
        named = dict(zip(names, args, strict=False)) | kwargs
        wanted, named["backend"] = str(named.get("backend") or ""), "fake"
        for name in ("backend_options", "pg_options", "device_id"):
            if name in named:
                named[name] = None
        made = helper(**named)
        if isinstance(made[0], ProcessGroup) and wanted in ("gloo", "mpi"):
            asked[made[0].group_name] = wanted
        return made

    backend_of = dist.get_backend

    @functools.wraps(backend_of)
    def get_backend(group: Any = None) -> str:
        """PyTorch's own code learns the truth; a program that branches on it, what it asked for."""
        true = backend_of(group)
        if sys._getframe(1).f_globals.get("__name__", "").startswith("torch."):
            return str(true)
        return asked.get(group.group_name, "nccl") if group is not None else "nccl"

    patches.everywhere(init, init_process_group)
    patches.replace(distributed_c10d, "_new_process_group_helper", new_group)
    patches.replace(dist, "get_backend", get_backend)
    patches.everywhere(dist.is_nccl_available, lambda: True)


def _objects(recorder: Recorder, patches: Patches) -> None:
    def said(name: str) -> None:
        recorder.assume(
            f"{name}: every rank says what this one says, and its messages are not traced"
        )

    def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
        said("all_gather_object")
        object_list[:] = [obj] * len(object_list)

    def broadcast_object_list(object_list: list[Any], *_: Any, **__: Any) -> None:
        said("broadcast_object_list")

    def gather_object(obj: Any, object_gather_list: Any = None, *_: Any, **__: Any) -> None:
        said("gather_object")
        if object_gather_list:
            object_gather_list[:] = [obj] * len(object_gather_list)

    def scatter_object_list(
        scatter_object_output_list: list[Any], scatter_object_input_list: Any = None,
        *_: Any, **__: Any,
    ) -> None:  # fmt: skip
        said("scatter_object_list")
        if scatter_object_input_list:
            scatter_object_output_list[0] = scatter_object_input_list[0]

    fakes: list[Callable[..., None]] = [
        all_gather_object, broadcast_object_list, gather_object, scatter_object_list,
    ]  # fmt: skip
    for fake in fakes:
        patches.everywhere(getattr(dist, fake.__name__), fake)


def _waits(recorder: Recorder, patches: Patches) -> None:
    for kind, method in ((FakeWork, "wait"), (Work, "wait"), (Work, "synchronize")):
        original = getattr(kind, method)

        def wait(work: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
            recorder.wait_for(work)
            return _original(work, *args, **kwargs)

        patches.replace(kind, method, wait)


def _coalescing(recorder: Recorder, patches: Patches) -> None:
    """Keeps "these calls are one group of NCCL calls".

    Before 2.6 the fake backend refuses to group calls, and a batch of messages groups them itself.
    """
    start, end = ProcessGroup._start_coalescing, ProcessGroup._end_coalescing
    in_batch = False  # the call that `batch_isend_irecv` began is open

    def start_coalescing(group: ProcessGroup, *args: Any) -> None:
        if not in_batch:
            recorder.begin_call(group)
        with contextlib.suppress(RuntimeError):
            start(group, *args)

    def end_coalescing(group: ProcessGroup, *args: Any) -> Any:
        nonlocal in_batch
        try:
            work = end(group, *args)
        except RuntimeError:
            work = FakeWork()
        recorder.end_call(work)
        in_batch = False
        return work

    patches.replace(ProcessGroup, "_start_coalescing", start_coalescing)
    patches.replace(ProcessGroup, "_end_coalescing", end_coalescing)

    # The fake backend says that it cannot coalesce, so that a batch would be single messages.
    batch = dist.batch_isend_irecv

    @functools.wraps(batch)
    def batch_isend_irecv(p2p_op_list: Any) -> Any:
        nonlocal in_batch
        recorder.begin_call(None)
        in_batch = True
        works = batch(p2p_op_list)
        if in_batch:
            recorder.end_call()
        in_batch = False
        return works

    patches.everywhere(batch, batch_isend_irecv)


def _reduce_operators(recorder: Recorder, patches: Patches) -> None:
    """The op carries its reduction as an opaque object; its options say it in plain."""
    for name in (
        "allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base",
        "reduce_scatter_tensor_coalesced", "reduce_scatter_single",
    ):  # fmt: skip
        original = getattr(ProcessGroup, name, None)
        if original is None:
            continue

        def call(group: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
            recorder.reduce = _operator(args, kwargs)
            try:
                return _original(group, *args, **kwargs)
            finally:
                recorder.reduce = None

        patches.replace(ProcessGroup, name, call)


def _operator(args: Any, kwargs: dict[str, Any]) -> str:
    for value in (*args, *kwargs.values()):
        found = getattr(value, "reduceOp", value)
        if isinstance(found, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
            return str(getattr(found, "op", found)).rpartition(".")[2].lower()
    return "sum"


def destroy() -> None:
    """Leaves no process group behind."""
    if dist.is_initialized():
        dist.destroy_process_group()

"""The spikes' recorder: one ordered stream of what a rank does, made under `TorchDispatchMode`.

Entries, in host program order: compute ops with shapes, communication ops with group, peers and
bytes, waits, allocations and frees of storages, stream switches and event records and waits (from
the no-device guard, if loaded). Views allocate nothing and are marked. The mode sits below
autograd and above the fake tensors, so backward ops are seen in the order in which the engine
runs them. Cost: one Python call per op, plus one per new storage.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeWork, ProcessGroup, Work, _resolve_process_group
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode

import comm_ops
import guard

# Questions and markers, no work.
_IGNORED = frozenset(
    {"prim::device", "profiler::_record_function_enter_new", "profiler::_record_function_exit"}
)


@dataclass
class Entry:
    """One line of the trace."""

    what: str  # op | comm | group | wait | resident | alloc | free | stream | sync | mark
    name: str
    number: int = 0  # bytes of alloc/free; id of a comm for its wait; stream or event id
    shapes: tuple[Any, ...] = ()
    group: str = ""
    ranks: tuple[int, ...] = ()
    sent: int = 0
    received: int = 0
    peer: Any = None
    dtype: str = ""
    stream: int = 0
    storage: int = 0
    module: str = ""
    tag: Any = None
    splits: tuple[Any, ...] = ()
    view: bool = False


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in nested lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def bytes_of(value: Any) -> int:
    """Bytes of every tensor in `value`."""
    return sum(t.numel() * t.element_size() for t in tensors_in(value))


@dataclass
class Trace:
    """The entries, and small questions that spikes ask of them."""

    entries: list[Entry] = field(default_factory=list)

    def of(self, *what: str) -> list[Entry]:
        """The entries of these kinds."""
        return [e for e in self.entries if e.what in what]

    def comm_counts(self) -> dict[str, int]:
        """How often each collective was issued."""
        return dict(sorted(Counter(e.name for e in self.of("comm")).items()))

    def peak_bytes(self) -> int:
        """Largest sum of live storages allocated during the trace."""
        live = peak = 0
        for e in self.of("alloc", "free"):
            if e.what == "alloc":
                live += e.number
            elif e.name == "alloc":  # what was there before the trace is not counted
                live -= e.number
            peak = max(peak, live)
        return peak


class Recorder(TorchDispatchMode):
    """Records into `trace`; give it `module_path` to stamp each op with a module."""

    def __init__(self, shapes: bool = True, memory: bool = True) -> None:
        super().__init__()
        self.trace = Trace()
        # What a value read back by the host is taken to be; None lets PyTorch raise.
        self.host_value: Callable[[torch.Tensor], Any] | None = None
        self.module_path: Callable[[], str] = lambda: ""
        self._shapes = shapes
        self._memory = memory
        self._works: list[Any] = []  # kept alive, so that Work.wait can be told apart
        self._comm_of_work: dict[int, int] = {}
        self._comm_of_storage: dict[int, int] = {}
        self._storages: dict[int, weakref.ref[Any]] = {}
        self._next_storage = 0
        self._next_comm = 0
        self._muted = 0
        self._undo: list[Callable[[], None]] = []

    # --- what is not an op: Work.wait, and the guard's streams -------------------------------

    def __enter__(self) -> Recorder:
        for kind, method in ((FakeWork, "wait"), (Work, "wait"), (Work, "synchronize")):
            self._replace_wait(kind, method)
        self._replace_coalescing()
        self._replace_batches()
        self._mute_shape_propagation()
        guard.take_log()
        comm_ops.complete_meta()
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        self._drain()
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _replace_wait(self, kind: Any, method: str) -> None:
        original = getattr(kind, method)
        recorder = self

        def wait(work: Work, *args: Any, **kwargs: Any) -> Any:
            recorder._drain()
            comm = recorder._comm_of_work.get(id(work), -1)
            recorder._add(Entry("wait", f"Work.{method}", comm))
            return original(work, *args, **kwargs)

        setattr(kind, method, wait)
        self._undo.append(lambda: setattr(kind, method, original))

    def _replace_coalescing(self) -> None:
        """Keeps "these calls are one NCCL group": its start, its end, and the end's own work."""
        start, end = ProcessGroup._start_coalescing, ProcessGroup._end_coalescing
        recorder = self

        def start_coalescing(group: ProcessGroup, *args: Any) -> None:
            recorder._add(Entry("group", "start", group=group.group_name))
            start(group, *args)

        def end_coalescing(group: ProcessGroup, *args: Any) -> Any:
            work = end(group, *args)
            number = recorder._next_comm
            recorder._next_comm += 1
            recorder._add(Entry("group", "end", number, group=group.group_name))
            recorder._works.append(work)
            recorder._comm_of_work[id(work)] = number
            return work

        def undo() -> None:
            ProcessGroup._start_coalescing = start
            ProcessGroup._end_coalescing = end

        ProcessGroup._start_coalescing = start_coalescing
        ProcessGroup._end_coalescing = end_coalescing
        self._undo.append(undo)

    def _replace_batches(self) -> None:
        """`batch_isend_irecv` coalesces only on backends that can; the fake one says it cannot."""
        original = dist.batch_isend_irecv

        def batch(ops: list[dist.P2POp]) -> list[dist.Work]:
            self._drain()
            self._add(Entry("group", "start"))
            works = original(ops)
            self._add(Entry("group", "end", -1))
            return works

        def undo() -> None:
            dist.batch_isend_irecv = dist.distributed_c10d.batch_isend_irecv = original

        dist.batch_isend_irecv = dist.distributed_c10d.batch_isend_irecv = batch
        self._undo.append(undo)

    def _mute_shape_propagation(self) -> None:
        """DTensor runs each op once more on tensors of *global* shape, only to learn the shape."""
        for method in ("_propagate_tensor_meta_non_cached", "propagate_op_sharding_non_cached"):
            original = getattr(ShardingPropagator, method, None)
            if original is None:
                continue

            def muted(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
                self._muted += 1
                try:
                    return _original(*args, **kwargs)
                finally:
                    self._muted -= 1

            setattr(ShardingPropagator, method, muted)
            self._undo.append(lambda m=method, o=original: setattr(ShardingPropagator, m, o))

    def mark(self, name: str) -> None:
        """Puts a mark of the program's own into the trace: a micro-batch, a phase."""
        self._drain()
        self._add(Entry("mark", name))

    def _drain(self) -> None:
        for kind, stream, event in guard.take_log():
            self.trace.entries.append(Entry("stream", kind, event, stream=stream))

    def _add(self, entry: Entry) -> None:
        if guard.loaded():
            entry.stream = torch._C._accelerator_getStream(0).stream_id
        self.trace.entries.append(entry)

    # --- ops -----------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs the op and records it."""
        kwargs = kwargs or {}
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented  # its local ops come back here
        name = func._schema.name
        if name in _IGNORED or self._muted:
            return func(*args, **kwargs)
        if name == "aten::_local_scalar_dense" and self.host_value is not None:
            self._drain()
            self._add(Entry("sync", "item", bytes_of(args), shapes=self._shapes_of(args)))
            return self.host_value(args[0])
        row = comm_ops.lookup(name)
        self._drain()
        if self._memory:
            self._allocations((args, kwargs), "resident")
        result = func(*args, **kwargs)
        if row is None:
            self._add(
                Entry(
                    "op", name, shapes=self._shapes_of(args), view=func.is_view,
                    module=self.module_path(),
                )
            )  # fmt: skip
        elif row.kind == "wait":
            for t in tensors_in(args):
                storage = t.untyped_storage()._cdata
                self._add(Entry("wait", "wait_tensor", self._comm_of_storage.get(storage, -1)))
        else:
            self._comm(func, row, args, kwargs, result)
        if self._memory:
            self._allocations(result)
        return result

    def _shapes_of(self, args: Any) -> tuple[Any, ...]:
        return tuple(tuple(t.shape) for t in tensors_in(args)) if self._shapes else ()

    def _comm(
        self, func: Any, row: comm_ops.CommOp, args: Any, kwargs: dict[str, Any], result: Any
    ) -> None:
        named = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        named["return"] = result
        group = named[row.group]
        if isinstance(group, str):
            group = _resolve_process_group(group)
        elif not isinstance(group, ProcessGroup):
            group = ProcessGroup.unbox(group)
        first = next(tensors_in([named.get(row.sends), named.get(row.receives)]), None)
        number = self._next_comm
        self._next_comm += 1
        entry = Entry(
            "comm", row.kind, number, group=group.group_name, module=self.module_path(),
            ranks=tuple(dist.get_process_group_ranks(group)),
            sent=bytes_of(named.get(row.sends)), received=bytes_of(named.get(row.receives)),
            peer=named.get(row.peer), tag=named.get(row.tag),
            dtype=str(first.dtype) if first is not None else "",
            splits=tuple(named[s] for s in row.splits) if row.splits else (),
            shapes=self._shapes_of(args),
        )  # fmt: skip
        self._add(entry)
        if row.wait == "work":
            boxed = result[-1] if isinstance(result, (list, tuple)) else result
            work = FakeWork.unbox(boxed)
            self._works.append(work)
            self._comm_of_work[id(work)] = number
        elif row.wait == "tensor":
            for t in tensors_in(result):
                self._comm_of_storage[t.untyped_storage()._cdata] = number

    # --- memory --------------------------------------------------------------------------------

    def _allocations(self, result: Any, what: str = "alloc") -> None:
        for t in tensors_in(result):
            storage = t.untyped_storage()
            key = storage._cdata
            known = self._storages.get(key)
            if known is not None and known() is not None:
                continue
            self.adopt(storage, what)

    def adopt(self, storage: torch.UntypedStorage, what: str) -> None:
        """Follows a storage from here to its end; one that was there before is "resident"."""
        number, size, key = self._next_storage, storage.nbytes(), storage._cdata
        self._next_storage += 1

        def freed(_: Any) -> None:
            self._storages.pop(key, None)
            self._comm_of_storage.pop(key, None)
            self._drain()
            self._add(Entry("free", what, size, storage=number))

        self._storages[key] = weakref.ref(storage, freed)
        self._add(Entry(what, "", size, storage=number))

"""The recorder: one ordered stream of what a rank does, made under `TorchDispatchMode`.

It sits below autograd and above the fake tensors, so backward ops are seen in the order in which
the engine runs them. Everything before the step asked for is followed (storages, modules, groups),
but of it only allocations and frees are written; of the step, everything is. Cost: a Python call an
op, one a new storage. An unknown communication op raises `UnknownCommOp`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, _resolve_process_group
from torch._ops import HigherOrderOperator
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.utils._python_dispatch import TorchDispatchMode

from orrery_trace import comm_ops, higher_order, workspaces
from orrery_trace.errors import TraceDone, TraceError, user_line
from orrery_trace.releases import DTensor, FakeWork
from orrery_trace.signatures import Signatures, tensors_in
from orrery_trace.substrate import guard
from orrery_trace.trace import Line, Writer, runs_of
from orrery_trace.where import Where

# Questions and markers, no work.
_IGNORED = frozenset(
    {
        "prim::device",
        "profiler::_record_function_enter_new",
        "profiler::_record_function_exit",
        "profiler::_record_function_exit._RecordFunction",
    }
)
HostValue = Callable[[torch.Tensor, str], Any]


def mark_as_true(tensor: torch.Tensor) -> None:
    """A read of it answers True: whether a loss is finite."""
    tensor.orrery_true = True  # type: ignore[attr-defined]


def is_marked_as_true(tensor: Any) -> bool:
    """Whether `mark_as_true` marked it."""
    return getattr(tensor, "orrery_true", False)


def default_host_value(tensor: torch.Tensor, op: str) -> Any:
    """What a value read from the device is taken to be: 1.0, 0 or False.

    Tensors are equal, and finite.
    """
    if op == "aten::equal" or is_marked_as_true(tensor):
        return True
    if tensor.dtype == torch.bool:
        return False
    return 1.0 if tensor.dtype.is_floating_point else 0


class Recorder(TorchDispatchMode):
    """Records one rank; `end_step` moves from step to step and ends the trace."""

    def __init__(
        self, writer: Writer, where: Where, step: int = 1, host_value: HostValue | None = None
    ) -> None:
        super().__init__()
        self.where = where
        self.step = 0  # the step that runs now
        self.wanted = step
        self.done = False
        self.muted = 0
        self._look_at: Callable[[Any], None] = lambda _: None  # at operators while muted
        self.reduce: str | None = None  # operator of the collective that is about to be issued
        self._host_value = host_value or default_host_value
        self._writer = writer
        self._signatures = Signatures(writer)
        self._recording = step == 0
        self._works: list[Any] = []  # kept alive, so that Work.wait can be told apart
        self._comm_of_work: dict[int, int] = {}
        self._comm_of_storage: dict[int, int] = {}
        self._storages: dict[int, weakref.ref[Any]] = {}
        self._number_of: dict[int, int] = {}
        self._live: dict[int, tuple[int, str]] = {}
        self._groups: dict[str, int] = {}
        self._handles: dict[str, tuple[int, int]] = {}  # of cuBLAS: their workspaces
        self._assumed: set[tuple[str, str]] = set()
        self._next_storage = 0
        self._next_comm = 0
        self._calls = 0
        self.peak_bytes = 0
        self._bytes = 0
        guard.take_log()
        if self._recording:
            writer.line({"t": "step", "index": 0})

    # --- steps -----------------------------------------------------------------------------------

    def end_step(self) -> None:
        """The step that runs is over: begin to record, or end the trace."""
        if self.done:
            return
        self.drain()
        self.step += 1
        self.where.begin_step()
        if self._recording:
            self.finish()
            raise TraceDone
        if self.step == self.wanted:
            self._begin()

    def at_least(self, step: int) -> None:
        """The steady state begins with `step`: records no earlier one."""
        if not self._recording:
            self.wanted = max(self.wanted, step)

    def _begin(self) -> None:
        self._writer.line({"t": "step", "index": self.step})
        self._recording = True
        names = self.where.storage_names()
        libraries = list(self._handles.values())
        self._comm_of_storage.clear()
        self.peak_bytes = 0
        self._bytes = 0
        for key, reference in sorted(self._storages.items(), key=lambda i: self._number_of[i[0]]):
            storage = reference()
            if storage is None:
                continue
            number = self._number_of[key]
            size, device = self._live[number]
            what, name = names.get(key, ("other", ""))
            line = {"t": "resident", "storage": number, "bytes": size, "what": what}
            self._count(size, device)
            self._writer.line(line | ({"name": name} if name else {}) | _device(device))
        for number, size in libraries:
            self._count(size, "cuda")
            line = {"t": "resident", "storage": number, "bytes": size, "what": "library"}
            self._writer.line(line)

    def finish(self) -> None:
        """Closes the file; what happens later is not recorded."""
        self.done = True
        self._recording = False
        self._writer.close(steps=self.step, peak_bytes=self.peak_bytes)

    def check_finished(self) -> None:
        """Ends the trace with the program, or says why there is none."""
        if self.done:
            return
        if self._recording:
            self.drain()
            self.finish()
            return
        raise TraceError(
            f"the program ended in training step {self.step}, and step {self.wanted} (counted "
            "from 0) was to be recorded: run more steps, or ask for an earlier one; if "
            "no torch.optim optimizer runs, call orrery_trace.step() after each step"
        )

    # --- lines that are no ops --------------------------------------------------------------------

    def add(self, kind: str, **fields: Any) -> None:
        """Writes one line of the step; nothing outside it."""
        self.drain()
        if self._recording:
            self._writer.line({"t": kind} | {k: v for k, v in fields.items() if v is not None})

    def mark(self, name: str) -> None:
        """A mark of the program's own: a phase, an action of a schedule."""
        self.add("mark", name=name)

    def assume(self, what: str, once: bool = True) -> None:
        """Something taken for granted, said in the result; once for each line of the program."""
        at = user_line()
        if once and (what, at) in self._assumed:
            return
        self._assumed.add((what, at))
        self._writer.line({"t": "assumed", "what": what} | ({"at": at} if at else {}))

    def drain(self) -> None:
        """Takes over what the guard saw of streams and events since the last line."""
        for kind, stream, event in guard.take_log():
            if not self._recording or kind == "switch":
                continue
            if kind == "record":
                self._writer.line({"t": "record", "event": event, "stream": stream})
            elif kind == "wait":
                self._writer.line({"t": "await", "event": event, "stream": stream})
            elif kind == "sync_event":
                self._writer.line({"t": "await", "event": event, "stream": "host"})
            else:
                of = "device" if kind == "sync_device" else stream
                self._writer.line({"t": "sync", "of": of, "why": kind})

    def _place(self) -> Line:
        """Stream, pass, module and micro-batch of what happens now."""
        place: Line = {}
        stream = guard.current_stream()
        if stream:
            place["stream"] = stream
        self.where.stamp(place, self._writer)
        return place

    # --- ops --------------------------------------------------------------------------------------

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs the op and records it."""
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            if func.name() in higher_order.ATTENTION:
                return self._flex_attention(func, args, kwargs)
            func, args = higher_order.plain(func, args)
        if any(issubclass(t, (DTensor, AsyncCollectiveTensor)) for t in types):
            return NotImplemented  # its local ops come back here
        name = func._schema.name
        if name in _IGNORED:
            return func(*args, **kwargs)
        if self.muted or self.done:
            self._look_at(func)
            return func(*args, **kwargs)
        if name == "aten::_local_scalar_dense" or name == "aten::equal":
            return self._read(func, name, args, kwargs)
        row = comm_ops.lookup(name)
        for t in tensors_in((args, kwargs)):
            self._follow(t, resident=True)
        result = func(*args, **kwargs)
        self.drain()
        for t in tensors_in(result):
            self._follow(t)
        for size in workspaces.inner(name, args):
            self._passing(size)
        if name in workspaces.PRODUCTS:
            for handle, size in workspaces.cublas(name, args):
                self._library(handle, size)
        if name in ("aten::resize_", "aten::set_"):
            for t in tensors_in(args):
                self.resized(t.untyped_storage())
        if self._recording or row is not None:
            self._record(func, name, row, args, kwargs, result)
        return result

    def _flex_attention(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Compiled on a GPU to one kernel; its score and mask functions are part of it."""
        if self.muted or self.done:
            self._look_at(func)
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        self.assume("flex_attention's mask is causal")
        self.fused(
            f"higher_order::{func.name()}", list(tensors_in(args)), list(tensors_in(result)),
            {"is_causal": True}, higher_order.flops(func.name(), args),
        )  # fmt: skip
        return result

    def fused(
        self, name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor],
        scalars: Line | None = None, flops: int = 0,
    ) -> None:  # fmt: skip
        """Records a kernel that ran just now and is no op of the dispatcher's."""
        for t in inputs:
            self._follow(t, resident=True)
        for t in outputs:
            self._follow(t)
        if not self._recording:
            return
        self.drain()
        number = self._signatures.kernel(name, inputs, outputs, scalars or {}, flops)
        line: Line = {"t": "op", "sig": number}
        line["in"] = [self.number_of(t) for t in inputs]
        line["out"] = [self.number_of(t) for t in outputs]
        self._writer.line(line | self._place())

    def _record(
        self, func: Any, name: str, row: comm_ops.CommOp | None, args: Any,
        kwargs: dict[str, Any], result: Any,
    ) -> None:  # fmt: skip
        if row is not None and row.kind == "wait":
            for t in tensors_in(args):
                comm = self._comm_of_storage.get(t.untyped_storage()._cdata)
                if comm is not None:
                    self.wait(comm)
            return
        if row is not None:
            self._comm(name, row, func, args, kwargs, result)
            return
        if name == "aten::record_stream":
            storage = self.number_of(args[0])
            self.add("use", storage=storage, stream=int(args[1].stream_id))
            return
        line: Line = {"t": "op", "sig": self._signatures.number(func, args, kwargs, result)}
        line["in"] = [self.number_of(t) for t in tensors_in((args, kwargs))]
        line["out"] = [self.number_of(t) for t in tensors_in(result)]
        self._writer.line(line | self._place())
        if name in ("aten::_to_copy", "aten::copy_") and _blocks_host(args, kwargs, result):
            self.add("sync", of=guard.current_stream(), why=name)

    def _read(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """The host asks for a value: the real one where there is one, else the policy's."""
        known = func(*args, **kwargs) if _has_value(args) else None
        if args[0].device.type == "cuda":
            self.add("sync", of=guard.current_stream(), why=name, at=user_line(), **self.place())
        if known is not None:
            return known
        value = self._host_value(args[0], name)
        self.assume(f"{name.removeprefix('aten::')} answers {value}")
        return value

    @contextmanager
    def answers(self, value: Any) -> Iterator[None]:
        """What the host reads inside is taken to be `value`."""
        before, self._host_value = self._host_value, lambda *_: value
        try:
            yield
        finally:
            self._host_value = before

    def place(self) -> Line:
        """Pass, module and micro-batch of what happens now."""
        place = self._place()
        place.pop("stream", None)
        return place

    # --- communication ----------------------------------------------------------------------------

    def group_number(self, group: ProcessGroup) -> int:
        """The number of a process group, whose ranks are written at its first use."""
        name = group.group_name
        if name not in self._groups:
            number = self._groups[name] = len(self._groups)
            ranks = dist.get_process_group_ranks(group)
            line = {"t": "group", "id": number, "name": name, "size": len(ranks)}
            description = getattr(group, "group_desc", "")
            if description and description != "undefined":
                line["description"] = description
            self._writer.line(line | {"ranks": runs_of(ranks)})
        return self._groups[name]

    def _comm(
        self, name: str, row: comm_ops.CommOp, func: Any, args: Any, kwargs: dict[str, Any],
        result: Any,
    ) -> None:  # fmt: skip
        schema = func._schema.arguments
        named = {a.name: a.default_value for a in schema if a.has_default_value()}
        named |= dict(zip((a.name for a in schema), args, strict=False)) | kwargs
        named["return"] = result
        group = named[row.group]
        if isinstance(group, str):
            group = _resolve_process_group(group)  # type: ignore[arg-type]
        elif not isinstance(group, ProcessGroup):
            group = ProcessGroup.unbox(group)
        number = self._next_comm
        self._next_comm += 1
        if self._recording:
            line = comm_ops.describe(row, named, dist.get_process_group_ranks(group))
            line["in"] = [self.number_of(t) for t in tensors_in(named.get(row.sends))]
            line["out"] = [self.number_of(t) for t in tensors_in(named.get(row.receives))]
            reduce = named.get("reduce_op")
            reduce = reduce if isinstance(reduce, str) else self.reduce
            if reduce is not None and row.kind in ("all_reduce", "reduce", "reduce_scatter"):
                line["reduce"] = reduce
            if named.get("async_op") is not None:
                line["async"] = bool(named["async_op"])
            head = {"t": "comm", "id": number, "op": name, "group": self.group_number(group)}
            self._writer.line(head | line | self._place())
        if row.wait == "work":
            boxed = result[-1] if isinstance(result, (list, tuple)) else result
            self.expect(FakeWork.unbox(boxed), number)
        elif row.wait == "tensor":
            for t in tensors_in(result):
                self._comm_of_storage[t.untyped_storage()._cdata] = number

    def expect(self, work: Any, number: int) -> None:
        """Ties a work object to a communication, so that waiting for it can be recorded."""
        self._works.append(work)
        self._comm_of_work[id(work)] = number

    def begin_call(self, group: ProcessGroup | None) -> None:
        """A coalesced call begins: what follows, to `end_call`, is one group of NCCL calls."""
        self.add(
            "call_begin",
            call=self._calls,
            group=None if group is None else self.group_number(group),
        )

    def end_call(self, work: Any = None) -> None:
        """Ends a coalesced call; its own work object stands for all of it."""
        number = None
        if work is not None:
            number = self._next_comm
            self._next_comm += 1
            self.expect(work, number)
        self.add("call_end", call=self._calls, id=number)
        self._calls += 1

    def wait_for(self, work: Any, by_host: bool = False) -> None:
        """`Work.wait` or `Work.synchronize` was called."""
        number = self._comm_of_work.get(id(work))
        if number is not None:
            self.wait(number, by_host)

    def wait(self, number: int, by_host: bool = False) -> None:
        """The current stream, or the host, waits for a communication."""
        self.add("wait", comm=number, by="host" if by_host else guard.current_stream())

    # --- memory -----------------------------------------------------------------------------------

    def number_of(self, tensor: torch.Tensor) -> int:
        """The number of a tensor's storage."""
        return self._number_of.get(tensor.untyped_storage()._cdata, -1)

    def _follow(self, tensor: torch.Tensor, resident: bool = False) -> None:
        """Follows a storage from here to its end, if it is new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._storages.get(key)
        if known is not None and known() is not None:
            return
        number, size, device = self._next_storage, storage.nbytes(), tensor.device.type
        self._next_storage += 1

        def freed(_: Any) -> None:
            self._storages.pop(key, None)
            self._comm_of_storage.pop(key, None)
            self._freed(number)

        self._storages[key] = weakref.ref(storage, freed)
        self._number_of[key] = number
        self._live[number] = (size, device)
        if self.done:
            return
        self._count(size, device)
        line: Line = {"t": "alloc", "storage": number, "bytes": size}
        if resident and self._recording:
            line = {"t": "resident", "storage": number, "bytes": size, "what": "other"}
        stream = guard.current_stream()
        self._writer.line(line | ({"stream": stream} if stream else {}) | _device(device))

    def _library(self, handle: str, size: int) -> None:
        """A workspace that cuBLAS takes at the first product of a thread and keeps."""
        if handle in self._handles:
            return
        number = self._next_storage
        self._next_storage += 1
        self._handles[handle] = (number, size)
        self._count(size, "cuda")
        line = {"t": "alloc", "storage": number, "bytes": size, "what": "library"}
        self._writer.line(line)

    def _passing(self, size: int) -> None:
        """A buffer that lives within an op."""
        number = self._next_storage
        self._next_storage += 1
        self._live[number] = (size, "cuda")
        self._count(size, "cuda")
        stream = guard.current_stream()
        line: Line = {"t": "alloc", "storage": number, "bytes": size}
        self._writer.line(line | ({"stream": stream} if stream else {}))
        self._freed(number)

    def _freed(self, number: int) -> None:
        size, device = self._live.pop(number)
        if self.done:
            return
        self.drain()
        self._count(-size, device)
        self._writer.line({"t": "free", "storage": number})

    def resized(self, storage: torch.UntypedStorage) -> None:
        """A storage may have another size now (FSDP frees and refills its parameters so)."""
        number = self._number_of.get(storage._cdata)
        if number is None or number not in self._live or self.done:
            return
        before, device = self._live[number]
        after = storage.nbytes()
        if after == before:
            return
        self._live[number] = (after, device)
        self._count(after - before, device)
        self.drain()
        stream = guard.current_stream()
        line = {"t": "resize", "storage": number, "bytes": after}
        self._writer.line(line | ({"stream": stream} if stream else {}))

    def _count(self, change: int, device: str) -> None:
        if device == self.where.device:
            self._bytes += change
            self.peak_bytes = max(self.peak_bytes, self._bytes)

    @contextmanager
    def mute(self, look_at: Callable[[Any], None] = lambda _: None) -> Iterator[None]:
        """What runs inside is no part of the program; `look_at` sees each of its operators."""
        self.muted += 1
        outer, self._look_at = self._look_at, look_at
        try:
            yield
        finally:
            self.muted -= 1
            self._look_at = outer


def _device(device: str) -> Line:
    return {} if device == "cuda" else {"device": device}


def _has_value(args: Any) -> bool:
    """Whether every tensor has contents: a real one, or a fake one that PyTorch kept."""
    from torch._subclasses.fake_tensor import FakeTensor

    for t in tensors_in(args):
        if isinstance(t, FakeTensor) and t.constant is None:
            return False
        if not isinstance(t, FakeTensor) and t.device.type == "meta":
            return False
    return True


def _blocks_host(args: Any, kwargs: dict[str, Any], result: Any) -> bool:
    """A copy from the device to the host that the host waits for."""
    if kwargs.get("non_blocking") or (len(args) > 2 and args[2] is True):
        return False
    source = args[1] if isinstance(args[0], torch.Tensor) and len(args) > 1 else args[0]
    if not isinstance(source, torch.Tensor) or not isinstance(result, torch.Tensor):
        return False
    return source.device.type == "cuda" and result.device.type == "cpu"

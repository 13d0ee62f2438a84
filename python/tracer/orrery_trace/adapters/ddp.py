"""DDP: the real reducer, with the buckets of its steady state.

DDP's first step reduces one bucket of everything and notes the order in which gradients come; then
it sends that order round, reads it back, and builds its buckets anew. A fake tensor cannot be read
back. So the order is noted here too, and after the first backward a reducer is built with the
buckets that PyTorch's own function makes of it. Tried on 2.13.
"""

from __future__ import annotations

import weakref
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from orrery_trace.errors import TraceError
from orrery_trace.groups import Patches
from orrery_trace.recorder import Recorder

MODULE = "torch.nn.parallel.distributed"
REASON = "DDP reads back from the device what it sent round, and times itself with CUDA events"


class _Mute:
    """Stands in for DDP's logger, whose CUDA timer does not exist in a CPU build."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def _get_ddp_logging_data(self) -> Any:
        """Nothing; Lightning looks into it at its end."""
        return SimpleNamespace(strs_map={}, ints_map={})


class _Buckets:
    """The buckets of one DDP module: the order of gradients, then the reducer built from it."""

    def __init__(self, ddp: Any, recorder: Recorder, arguments: tuple[Any, ...]) -> None:
        self.ddp = weakref.ref(ddp)
        self.recorder = recorder
        self.arguments = arguments  # of _ddp_init_helper
        self.parameters: list[torch.nn.Parameter] = arguments[0]
        self.find_unused = bool(ddp.find_unused_parameters) and not arguments[3]  # static graph
        ddp.find_unused_parameters = False  # whose map of parameters C++ copies through memory
        self.order: list[int] = []
        self.pending: list[int] = []
        self.handles = [
            p.register_post_accumulate_grad_hook(lambda _, i=i: self.order.append(i))
            for i, p in enumerate(self.parameters)
        ]

    def rebuild(self, init_helper: Any) -> None:
        """After the first backward: a reducer with the buckets of every later step."""
        ddp = self.ddp()
        if ddp is None or not self.handles:
            return
        if len(set(self.order)) < len(self.parameters):
            if self.find_unused and self.order:
                known = {id(p): name for name, p in ddp.module.named_parameters()}
                unused = [p for i, p in enumerate(self.parameters) if i not in self.order]
                raise TraceError(
                    f"{len(unused)} parameters under DDP with find_unused_parameters, from "
                    f"{known.get(id(unused[0]))!r} on, took no gradient, which cannot be traced: "
                    "give them requires_grad_(False) before DDP"
                )
            return
        for handle in self.handles:
            handle.remove()
        self.handles = []
        order = self.order[: len(self.parameters)]  # more, if gradients were accumulated
        buckets, limits = dist._compute_bucket_assignment_by_size(
            [self.parameters[i] for i in order], self._limits(ddp), [], order
        )
        if self.find_unused:  # the buckets stay as they were declared
            buckets, limits = dist._compute_bucket_assignment_by_size(
                [*self.parameters], self._limits(ddp), self.arguments[1]
            )
            buckets, limits = buckets[::-1], limits[::-1]
        ddp.reducer._remove_autograd_hooks()
        assign = dist._compute_bucket_assignment_by_size
        # The helper reverses what this returns, since it expects the order of declaration.
        dist._compute_bucket_assignment_by_size = lambda *_: (buckets[::-1], limits[::-1])
        try:
            init_helper(ddp, *self.arguments)
        finally:
            dist._compute_bucket_assignment_by_size = assign
        self.attach(ddp)

    def _limits(self, ddp: Any) -> list[int]:
        config = getattr(ddp, "_bucket_config", None)
        if config is not None:
            _, rebuilt = config.compute_bucket_size_limits(
                static_graph=self.arguments[3], find_unused_parameters=self.find_unused
            )
            if rebuilt:
                return list(rebuilt)
        return [dist._DEFAULT_FIRST_BUCKET_BYTES, ddp.bucket_bytes_cap]

    def attach(self, ddp: Any) -> None:
        """Gives the reducer a hook in Python: the C++ one wants a tensor of FakeWork's future."""
        ddp.logger = _Mute()

        def reduce(_: object, bucket: Any) -> Any:
            buffer = bucket.buffer()
            work = dist.all_reduce(buffer, group=ddp.process_group, async_op=True)
            self._await_at_end(work)
            future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            future.set_result(buffer)
            return future

        # DDP compares annotations by value.
        reduce.__annotations__ = {"bucket": dist.GradBucket}
        dist._register_comm_hook(ddp.reducer, None, reduce)

    def _await_at_end(self, work: Any) -> None:
        """DDP waits for all buckets in C++ once backward is over; so does the trace."""
        if not self.pending:

            def wait_all() -> None:
                if self.find_unused:
                    self._used()
                for pending in self.pending:
                    self.recorder.wait_for(pending)
                self.pending.clear()

            torch.autograd.Variable._execution_engine.queue_callback(wait_all)
        self.pending.append(work)

    def _used(self) -> None:
        """The map of parameters that took a gradient, which DDP reduces behind the buckets."""
        ddp = self.ddp()
        if ddp is None:
            return
        self.recorder.assume("find_unused_parameters: every parameter takes a gradient")
        with torch.no_grad():
            on_host = torch.zeros(len(self.parameters), dtype=torch.int32)
            used = on_host.to(self.parameters[0].device, non_blocking=True)
        self.pending.append(dist.all_reduce(used, group=ddp.process_group, async_op=True))


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Patches the construction of DDP and the moment at which it rebuilds its buckets."""
    kind = module.DistributedDataParallel
    patches.replace(module, "_verify_param_shape_across_processes", lambda *_, **__: True)
    init_helper = kind._ddp_init_helper
    every: weakref.WeakKeyDictionary[Any, _Buckets] = weakref.WeakKeyDictionary()

    def construct(self: Any, *args: Any) -> None:
        buckets = every[self] = _Buckets(self, recorder, args)
        init_helper(self, *args)
        recorder.at_least(2)  # step 1 begins with the new buckets
        buckets.attach(self)

    def rebuild(reducer: Any) -> bool:
        for ddp, buckets in list(every.items()):
            if ddp.reducer is reducer:
                buckets.rebuild(init_helper)
        return False

    def register(self: Any, state: Any, hook: Any) -> None:
        recorder.assume(f"DDP communication hook {getattr(hook, '__name__', hook)} is left out: "
                        "plain all-reduces of the buckets are recorded")  # fmt: skip

    patches.replace(kind, "_ddp_init_helper", construct)
    patches.replace(kind, "register_comm_hook", register)
    # What a static graph changes lies in the first step, which finds unused parameters.
    patches.replace(kind, "_set_static_graph", lambda self: None)
    patches.replace(dist.Reducer, "_rebuild_buckets", rebuild)

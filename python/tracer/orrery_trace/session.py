"""`with orrery_trace.rank(...)`: this process becomes one rank of a job, and is recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from orrery_trace import substrate
from orrery_trace.errors import TraceDone, TraceError
from orrery_trace.trace import Trace, rank_file, read, write_index

if TYPE_CHECKING:
    from orrery_trace.recorder import HostValue, Recorder


class Session:
    """One rank that is being traced."""

    def __init__(self, recorder: Recorder, path: Path) -> None:
        self.recorder = recorder
        self.path = path

    def step(self) -> None:
        """Says that a training step is over, where no optimizer of PyTorch's says it."""
        self.recorder.end_step()

    def mark(self, name: str) -> None:
        """Puts a mark of your own into the trace."""
        self.recorder.mark(name)

    def trace(self) -> Trace:
        """What was recorded; after the `with` block."""
        return read(self.path)


_current: Session | None = None


def current() -> Session | None:
    """The rank that this process is tracing, if it is."""
    return _current


def prepare(fake: bool = True) -> None:
    """Loads PyTorch and all that a rank needs; seconds, which ranks forked afterwards share."""
    if fake:
        substrate.after_torch()
    from torch._subclasses.fake_tensor import FakeTensorMode

    from orrery_trace import adapters, comm_ops, recorder

    _ = adapters, recorder
    FakeTensorMode()  # the first one loads torch._dynamo
    comm_ops.complete_meta()


@contextmanager
def rank(
    world_size: int,
    rank: int,
    out: str | Path = "trace",
    *,
    step: int = 1,
    host_value: HostValue | None = None,
    fake: bool = True,
    device: str = "cuda",
    index: bool = True,
) -> Iterator[Session]:
    """Runs the block as rank `rank` of `world_size` and records training step `step` (from 0).

    The block ends when that step is over, wherever the program stands. `host_value(tensor, op)`
    answers where the host reads a value of the device (default: 1.0, 0, False). With `fake=False`
    tensors are real, on what devices there are: the same record at the full price. `device` is the
    kind whose memory counts for the peak. `index` also writes `trace.json`, for a directory with
    this one rank.
    """
    global _current
    if not 0 <= rank < world_size:
        raise TraceError(f"rank {rank} is none of a world of {world_size}")
    if _current is not None:
        raise TraceError("a rank is being traced in this process already: one process a rank")
    prepare(fake)
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from orrery_trace import adapters, groups
    from orrery_trace.recorder import Recorder
    from orrery_trace.trace import Writer
    from orrery_trace.where import Where

    path = Path(out) / rank_file(rank)
    writer = Writer(
        path,
        {"rank": rank, "world_size": world_size, "torch": torch.__version__,
         "tensors": "fake" if fake else "real", "device": device},
    )  # fmt: skip
    where = Where(device)
    recorder = Recorder(writer, where, step, host_value)
    where.opens_step = lambda: recorder.end_step() if where.stepped else None
    session = _current = Session(recorder, path)
    patches = groups.Patches()
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(patches.undo)
            groups.install(recorder, patches, rank, world_size)
            stack.callback(groups.destroy)
            where.install()
            stack.callback(where.remove)
            adapters.install(recorder, patches)
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            if fake:
                stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
            stack.enter_context(recorder)
            try:
                yield session
                recorder.check_finished()
            except TraceDone:
                pass
            finally:
                recorder.done = True
        if index:
            write_index(
                Path(out),
                {"world_size": world_size,
                 "programs": [{"rank": rank, "file": path.name, "ranks": [[rank, 1, 1]]}]},
            )  # fmt: skip
    finally:
        writer.discard()
        _current = None

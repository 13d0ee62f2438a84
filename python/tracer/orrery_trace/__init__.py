"""Records one rank of a PyTorch training program as a trace for Orrery, with no GPU.

    import orrery_trace                       # before torch

    with orrery_trace.rank(world_size=64, rank=0, out="trace"):
        train()                               # unmodified

or, for a whole script: `orrery-trace --world-size 64 --rank 0 -- python train.py ...`. The user
page is docs/tracing.md, the format docs/formats/trace.md.
"""

from __future__ import annotations

from orrery_trace.errors import TraceError
from orrery_trace.imports import before_import
from orrery_trace.session import Session, current, rank
from orrery_trace.substrate import before_torch
from orrery_trace.trace import Trace, read, read_directory

__version__ = "0.1.0"
__all__ = [
    "Session", "Trace", "TraceError", "current", "mark", "rank", "read", "read_directory", "step",
]  # fmt: skip

before_import("torch", before_torch)


def step() -> None:
    """A training step is over; does nothing where no rank is traced, so it may stay in a script."""
    session = current()
    if session is not None:
        session.step()


def mark(name: str) -> None:
    """Puts a mark into the trace; does nothing where no rank is traced."""
    session = current()
    if session is not None:
        session.mark(name)

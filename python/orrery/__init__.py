"""Orrery rehearses a distributed training job on a cluster that you do not have.

>>> import orrery
>>> result = orrery.simulate({
...     "model": "llama3-8b", "cluster": "h100-ib-400g", "nodes": 2,
...     "parallel": {"tp": 8, "dp": 2}, "training": {"global_batch": 32, "seq_len": 8192},
... })
>>> result.step_time_s > 0
True
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from . import _core
from ._result import Breakdown, BreakdownRow, JobResult, MemoryRow, Result, Simulation

__all__ = [
    "Breakdown",
    "BreakdownRow",
    "Error",
    "JobResult",
    "MemoryRow",
    "Result",
    "Simulation",
    "__version__",
    "simulate",
]

__version__: str = _core.version


class Error(Exception):
    """What Orrery refuses or cannot do.

    ``code`` is ``"invalid_input"`` (the job is wrong; the message says where and what to do),
    ``"infeasible"`` (the simulation says no: a deadlock) or ``"resource"`` (memory, disk).
    A plan that does not fit the GPU is no error: look at ``Result.out_of_memory``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _measured() -> str:
    named = os.environ.get("ORRERY_MEASURED", "")
    if named:
        return named
    beside = pathlib.Path(__file__).with_name("measured.sqlite")
    return str(beside) if beside.is_file() else ""


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def simulate(
    job: str | os.PathLike[str] | Mapping[str, Any],
    *,
    set: Sequence[str] | Mapping[str, object] | None = None,  # noqa: A002 (as --set)
    network: str | None = None,
    fold: bool = True,
    threads: int = 1,
    seed: int | None = None,
) -> Result:
    """Predicts step time, memory and network use of a training job.

    job: a path of a job file; or its text (a string with a line break); or a mapping with the keys of
        a job file. Relative files named inside a text or mapping start from the working directory.
    set: ``{"parallel.tp": 4}`` or ``["parallel.tp=4"]``: as if the job file said so.
    network: name of a network back end, such as ``"analytic"``.
    fold: simulate ranks that provably behave alike once; the answer is the same.
    threads: for runs at chunk grain (``network="links"``).
    seed: of jitter and random placement.

    Times are in seconds, sizes in bytes. Other threads run meanwhile. Raises Error.
    """
    if isinstance(job, Mapping):
        text, is_path = json.dumps(job), False
    else:
        text = os.fspath(job)
        is_path = "\n" not in text
    if set is None:
        assignments = []
    elif isinstance(set, Mapping):
        assignments = [f"{key}={_value(value)}" for key, value in set.items()]
    else:
        assignments = list(set)
    if not 1 <= threads <= 1024:
        raise Error("invalid_input", f"threads {threads}: give 1 to 1,024")
    if seed is not None and not 0 <= seed < 2**62:
        raise Error("invalid_input", f"seed {seed}: give 0 to 2**62 - 1")
    status, answer = _core.simulate(
        text, is_path, assignments, network, fold, threads, seed, _measured()
    )
    if status != "ok":
        raise Error(status, answer)
    return Result.from_dict(json.loads(answer))

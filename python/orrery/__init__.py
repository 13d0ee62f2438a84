"""Orrery simulates a distributed training job on a cluster that you do not have.

>>> import orrery
>>> result = orrery.simulate({
...     "model": "llama3-8b", "cluster": "h100-ib-400g", "nodes": 2,
...     "parallel": {"tp": 8, "dp": 2}, "training": {"global_batch": 32, "seq_len": 8192},
... })
>>> result.step_time_s > 0
True
"""

from __future__ import annotations

import builtins
import json
import math
import os
import pathlib
import platform
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

try:
    from . import _core
except ImportError as error:
    _built = ", ".join(path.name for path in pathlib.Path(__file__).parent.glob("_core*.so"))
    raise ImportError(
        f"orrery's native half ({_built or 'missing'}) does not fit this Python "
        f"{platform.python_version()}: run './run --python' with it first on the PATH"
    ) from error
from ._result import Breakdown, BreakdownRow, JobResult, MemoryRow, Result, Simulation
from ._variants import PlanResult, SweepResult, TrafficResult

__all__ = [
    "Breakdown",
    "BreakdownRow",
    "Error",
    "JobResult",
    "MemoryRow",
    "PlanResult",
    "Result",
    "Simulation",
    "SweepResult",
    "TrafficResult",
    "__version__",
    "clusters",
    "import_job",
    "models",
    "plan",
    "simulate",
    "sweep",
    "traffic",
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

    def __reduce__(self) -> tuple[type[Error], tuple[str, str]]:
        return type(self), (self.code, str(self))  # pickled by a pool of processes


if TYPE_CHECKING:
    _PathLike = str | os.PathLike[str]


def _measured() -> str:
    named = os.environ.get("ORRERY_MEASURED", "")
    if named:
        return named
    beside = pathlib.Path(__file__).with_name("measured.sqlite")
    return str(beside) if beside.is_file() else ""


def _is_text_of_a_job(text: str) -> bool:
    return "\n" in text or text.lstrip().startswith("{")


def _plain(value: object, where: str) -> object:
    """`value` as JSON can say it: numbers and arrays of NumPy, tuples and paths too."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where}: the key {key!r} is no text")
        dot = where + "." if where != "job" else ""
        return {key: _plain(below, dot + key) for key, below in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [_plain(below, f"{where}[{i}]") for i, below in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        return _plain(value.tolist(), where)
    if isinstance(value, float) and not math.isfinite(value):
        raise Error("invalid_input", f"{where}: {value} is no number that a job can hold")
    if value is None or isinstance(value, (str, int, float)):
        return value
    kind = type(value).__name__
    raise TypeError(f"{where}: {kind} is no text, number, list, mapping or path")


def _value(key: object, value: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"set: the key {key!r} is no text")
    plain = _plain(value, f"set {key}")
    return plain if isinstance(plain, str) else json.dumps(plain)


def _assignments(given: str | Iterable[str] | Mapping[str, object] | None) -> list[str]:
    if given is None:
        return []
    if isinstance(given, str):
        return [given]
    if isinstance(given, Mapping):
        return [f"{key}={_value(key, value)}" for key, value in given.items()]
    if not isinstance(given, Iterable):
        raise TypeError(f"set: {type(given).__name__} is no text, list of texts or mapping")
    listed = list(given)
    for one in listed:
        if not isinstance(one, str):
            raise TypeError(f'set: {one!r} is no text; write "key.path=value", or give a mapping')
    return listed


def _whole(name: str, value: object, least: int, most: int, range_in_words: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: {value!r} is no whole number; give {range_in_words}")
    number: int = value.__index__()
    if not least <= number <= most:
        raise Error("invalid_input", f"{name} {number}: give {range_in_words}")
    return number


def _utf8(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Error("invalid_input", f"{name}: {text[:80]!a} is not UTF-8") from None
    return text


def _file(name: str, path: object) -> str:
    if path is None:
        return ""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise TypeError(f"{name}: {type(path).__name__} is no path")
    if not text:
        raise Error("invalid_input", f"{name}: is empty; give a path, or None")
    return _utf8(name, text)


def _job(job: object) -> tuple[str, bool]:
    """The text of a job, or its path, and which of them it is."""
    if isinstance(job, Mapping):
        text, is_path = json.dumps(_plain(job, "job")), False
    elif isinstance(job, str):
        text, is_path = _utf8("job", job), not _is_text_of_a_job(job)
    elif isinstance(job, os.PathLike):
        text, is_path = _file("job", job), True
    else:
        kind = type(job).__name__
        raise TypeError(f"job: {kind} is no path, text of a job file or mapping")
    if is_path and text.endswith(".goal"):
        raise Error("invalid_input", f"{text}: a GOAL schedule: run 'orrery simulate' on it")
    return text, is_path


def simulate(
    job: _PathLike | Mapping[str, Any],
    *,
    set: str | Iterable[str] | Mapping[str, object] | None = None,  # noqa: A002 (as --set)
    network: str | None = None,
    fold: bool = True,
    threads: int = 1,
    seed: int | None = None,
    calibration: _PathLike | None = None,
    timeline: _PathLike | None = None,
    timeline_ranks: str | None = None,
    heat_map: _PathLike | None = None,
) -> Result:
    """Predicts step time, memory and network use of a training job.

    job: a path of a job file; or its text (a string with a line break, or that begins with a
        brace); or a mapping with the keys of a job file, NumPy's numbers and arrays allowed.
        Relative files named inside a text or mapping start from the working directory.
    set: ``{"parallel.tp": 4}`` or ``["parallel.tp=4"]``: as if the job file said so.
    network: name of a network back end, such as ``"analytic"``.
    fold: simulate ranks that provably behave alike once; the answer is the same.
    threads: for runs over links (``network="flow"``, ``"links"``, ``"loggops"``, ``"packet"``).
    seed: of jitter and random placement.
    calibration: a file of ``orrery calibrate``: its constants in place of the shipped ones.
    timeline: a file to write, for ui.perfetto.dev; ``timeline_ranks`` says which ranks it shows, as
        ``"0,8,16-19"`` (one a pipeline stage when left out).
    heat_map: an SVG to write: the cluster's links by the share of their capacity that was used.

    Times are in seconds, sizes in bytes. Other threads run meanwhile; Ctrl-C ends the wait at once
    (the run itself goes on unseen until it is done). Raises Error for what a job file could say
    wrong, TypeError for a value of a wrong type.
    """
    text, is_path = _job(job)
    if network is not None and not isinstance(network, str):
        raise TypeError(f"network: {network!r} is no text; give a name, such as 'flow'")
    if not isinstance(fold, bool):
        raise TypeError(f"fold: {fold!r}; give True or False")
    threads = _whole("threads", threads, 1, 1024, "1 to 1,024")
    if seed is not None:
        seed = _whole("seed", seed, 0, 2**62, "0 to 2**62")
    if timeline_ranks is not None and not isinstance(timeline_ranks, str):
        raise TypeError(f'timeline_ranks: {timeline_ranks!r} is no text; write "0,8,16-19"')
    if timeline_ranks is not None and timeline is None:
        raise Error("invalid_input", "timeline_ranks: needs timeline=FILE")
    status, answer = _core.simulate(
        text,
        is_path,
        [_utf8("set", one) for one in _assignments(set)],
        network,
        fold,
        threads,
        seed,
        _measured(),
        _file("calibration", calibration),
        _file("timeline", timeline),
        timeline_ranks or "",
        _file("heat_map", heat_map),
    )
    if status != "ok":
        raise Error(status, answer)
    return Result.from_dict(json.loads(answer))


def _variants(
    job: object, assignments: object, network: str | None, calibration: object
) -> _core.Variants:
    text, is_path = _job(job)
    if network is not None and not isinstance(network, str):
        raise TypeError(f"network: {network!r} is no text; give a name, such as 'flow'")
    return _core.Variants(
        text,
        is_path,
        [_utf8("set", one) for one in _assignments(assignments)],
        network,
        _measured(),
        _file("calibration", calibration),
    )


def _values(key: str, values: object) -> list[str]:
    """Values of a key: an iterable of values, or a text such as "1..8" or "1,2,4"."""
    if isinstance(values, str):
        failure, parsed = _core.values(_utf8(key, values))
        if failure:
            raise Error("invalid_input", f"{key}: {failure}")
        return parsed
    if not isinstance(values, Iterable) or isinstance(values, Mapping):
        raise TypeError(f"{key}: {type(values).__name__} is no iterable of values, and no text")
    return [_value(key, one) for one in values]


_Axis = tuple[list[str], list[list[str]]]


def _axes(
    vary: Mapping[str, object] | None,
    zip: Mapping[str, object] | None,  # noqa: A002 (as --zip)
    runs: Iterable[Mapping[str, object]] | None,
) -> list[_Axis]:
    axes: list[_Axis] = []
    for key, values in (vary or {}).items():
        axes.append(([key], [[one] for one in _values(key, values)]))
    if zip:
        columns = {key: _values(key, values) for key, values in zip.items()}
        lengths = {len(values) for values in columns.values()}
        if len(lengths) != 1:
            raise Error("invalid_input", "zip: its keys need as many values each")
        rows = [list(row) for row in builtins.zip(*columns.values(), strict=True)]
        axes.append((list(columns), rows))
    if runs is not None:
        listed = [dict(run) for run in runs]
        keys = list(dict.fromkeys(key for run in listed for key in run))
        if not keys:
            raise Error("invalid_input", "runs: no run, or none that says a key")
        points = [[_value(key, run[key]) if key in run else "" for key in keys] for run in listed]
        axes.append((keys, points))
    return axes


def sweep(
    job: _PathLike | Mapping[str, Any],
    vary: Mapping[str, object] | None = None,
    *,
    zip: Mapping[str, object] | None = None,  # noqa: A002 (as --zip)
    runs: Iterable[Mapping[str, object]] | None = None,
    scale: str | None = None,
    keep: str = "batch-per-replica",
    set: str | Iterable[str] | Mapping[str, object] | None = None,  # noqa: A002 (as --set)
    network: str | None = None,
    calibration: _PathLike | None = None,
    replay: bool = True,
    threads: int = 0,
    on: str | None = None,
    shards: int | None = None,
) -> SweepResult:
    """Simulates a job with other values of its keys, as ``orrery sweep`` does.

    job: as for ``simulate``.
    vary: ``{"parallel.tp": [1, 2, 4], "nodes": "1..8"}``: a grid of values, or of texts as --vary
        takes them.
    zip: the same, keys changing together. runs: a mapping for each run.
    scale: ``"nodes=1x,2x,4x"``; keep: ``"batch-per-replica"`` (weak scaling) or ``"global-batch"``.
    replay: the allocator's replay for memory; False bounds it from below, many times faster.
    threads: 0 takes every core.
    on: ``"ray"`` runs it in pieces on a Ray cluster (``ray.init`` is called where it was not);
        shards: how many pieces. The answer is the same.

    Raises Error where nothing can be run; a variant that a rule refuses is a row that says so.
    """
    axes = _axes(vary, zip, runs)
    if not axes and scale is None:
        raise Error("invalid_input", "nothing varies; give vary, zip, runs or scale")
    if keep not in ("batch-per-replica", "global-batch"):
        raise Error("invalid_input", f"keep {keep!r}: give 'batch-per-replica' or 'global-batch'")
    threads = _whole("threads", threads, 0, 1024, "0 to 1,024")
    variants = (job, _assignments(set), network, calibration)
    request = (axes, scale or "", keep == "batch-per-replica", bool(replay))
    if on is None:
        if shards is not None:
            raise Error("invalid_input", "shards: goes with on='ray'")
        answer = _answer(_core.sweep(_variants(*variants), *request, threads, 1, 1))
    elif on == "ray":
        from . import _on_ray

        answer = _on_ray.sweep(variants, request, threads or 1, shards)
    else:
        raise Error("invalid_input", f"on {on!r}: give 'ray', or None for this machine")
    return SweepResult(json.loads(answer))


def plan(
    job: _PathLike | Mapping[str, Any],
    vary: Mapping[str, object] | None = None,
    *,
    objective: str = "throughput",
    top: int = 5,
    set: str | Iterable[str] | Mapping[str, object] | None = None,  # noqa: A002 (as --set)
    network: str | None = None,
    calibration: _PathLike | None = None,
    threads: int = 0,
    seed: int = 1,
    evaluations: int = 20_000,
) -> PlanResult:
    """Finds the best plans of what a job leaves open, as ``orrery plan`` does.

    job: as for ``simulate``; keys may hold lists, ranges and "auto".
    vary: keys to open beside it, ``{"parallel": "auto", "training.micro_batch": [1, 2]}``.
    objective: "throughput", "cost", "energy", "goodput" or "memory"; several joined by commas give a front.

    Raises Error with code "infeasible" where no plan is possible.
    """
    opened = []
    for key, values in (vary or {}).items():
        if isinstance(values, str):
            opened.append(f"{key}={values}")
        else:
            opened.append(f"{key}={','.join(_values(key, values))}")
    variants = _variants(job, set, network, calibration)
    return PlanResult(
        json.loads(
            _answer(
                _core.plan(
                    variants,
                    opened,
                    objective,
                    _whole("top", top, 1, 1000, "1 to 1,000"),
                    _whole("threads", threads, 0, 1024, "0 to 1,024"),
                    _whole("seed", seed, 0, 2**40, "0 to 2**40"),
                    _whole("evaluations", evaluations, 1, 2**40, "1 to 2**40"),
                )
            )
        )
    )


def _answer(answer: tuple[str, str]) -> str:
    status, text = answer
    if status != "ok":
        raise Error(status, text)
    return text


def models() -> dict[str, dict[str, Any]]:
    """The models that are known, by name: description and parameters."""
    return {name: {"description": text, "parameters": n} for name, text, n in _core.models()}


def clusters() -> dict[str, dict[str, Any]]:
    """The clusters that are known, by name: description and GPUs of a host."""
    return {name: {"description": text, "gpus_per_node": n} for name, text, n in _core.clusters()}


def import_job(
    files: _PathLike | Iterable[_PathLike],
    *,
    cluster: str = "",
    nodes: int = 0,
    gpus: int = 0,
    model: str = "",
    env: Mapping[str, str] | None = None,
    leave_out: Iterable[str] = (),
    recipe: str = "",
    set: str | Iterable[str] | Mapping[str, object] | None = None,  # noqa: A002 (as --set)
) -> dict[str, Any]:
    """Turns a launch script or a framework's configuration into a job, as ``orrery import`` does.

    Its ``"job"`` is the text of a job file, which ``simulate`` takes; ``"arguments"`` says what became
    of each argument. What the files do not say (cluster, GPUs, model) is asked for by name.
    """
    one = isinstance(files, (str, os.PathLike))
    paths = [_file("files", path) for path in ([files] if one else files)]
    answer = _core.import_recipe(
        paths,
        cluster,
        model,
        _whole("nodes", nodes, 0, 1 << 20, "1 to 1,048,576"),
        _whole("gpus", gpus, 0, 1 << 23, "1 to 8,388,608"),
        dict(env or {}),
        list(leave_out),
        recipe,
        _assignments(set),
    )
    document: dict[str, Any] = json.loads(_answer(answer))
    return document


def traffic(
    collective: str,
    *,
    cluster: str = "h100-ib-400g",
    nodes: int = 0,
    gpus: int = 0,
    min_bytes: int = 1024,
    max_bytes: int = 1 << 30,
    factor: int = 4,
    network: str = "analytic",
    set: str | Iterable[str] | Mapping[str, object] | None = None,  # noqa: A002 (as --set)
) -> TrafficResult:
    """A collective alone, by size, as ``orrery traffic`` does: ``traffic("all-reduce", nodes=4)``."""
    answer = _core.traffic(
        collective,
        cluster,
        _whole("nodes", nodes, 0, 1 << 20, "1 to 1,048,576"),
        _whole("gpus", gpus, 0, 1 << 24, "2 to 16,777,216"),
        _whole("min_bytes", min_bytes, 1, 1 << 62, "1 or more"),
        _whole("max_bytes", max_bytes, 1, 1 << 62, "1 or more"),
        _whole("factor", factor, 2, 1 << 20, "2 to 1,048,576"),
        network,
        _assignments(set),
    )
    return TrafficResult(json.loads(_answer(answer)))

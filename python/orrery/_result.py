"""The result as typed values. Times are in seconds, sizes in bytes, unless a name says otherwise."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _html

if TYPE_CHECKING:
    import pandas


@dataclasses.dataclass(frozen=True)
class BreakdownRow:
    """Where a step goes, as the mean over some ranks. The parts sum to ``total_s``."""

    stage: int | None  # None: all stages
    ranks: int
    total_s: float
    parts_s: Mapping[str, float]  # "compute", "bubble", "exposed_tp", ...
    parts_ps: Mapping[str, int]  # the same in picoseconds, exact

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BreakdownRow:
        names = [key[:-3] for key in data if key.endswith("_ps") and key != "total_ps"]
        return cls(
            stage=data.get("stage"),
            ranks=data["ranks"],
            total_s=data["total_s"],
            parts_s={name: data[f"{name}_s"] for name in names},
            parts_ps={name: data[f"{name}_ps"] for name in names},
        )


@dataclasses.dataclass(frozen=True)
class Breakdown:
    overall: BreakdownRow
    stages: tuple[BreakdownRow, ...]


@dataclasses.dataclass(frozen=True)
class MemoryRow:
    """Device memory of one program (the ranks of a pipeline stage), in bytes."""

    program: str
    stage: int
    ranks: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    context_bytes: int  # CUDA context and libraries
    total_bytes: int  # reserved + context
    device_bytes: int  # what the GPU has
    parts_at_peak: Mapping[str, int]
    peak_op: str
    oom: bool
    oom_op: str | None
    peak_requested_bytes: int = 0  # sum of rounded requests, at its peak
    cached_at_peak_bytes: int = 0  # reserved and not allocated, when reserved was at its peak
    cuda_context_bytes: int = 0  # of context_bytes
    nccl_bytes: int = 0  # of context_bytes
    allocator_retries: int = 0
    allocator_settled: bool = True
    allocator_bounded: bool = False
    modules_at_peak: Sequence[Mapping[str, Any]] = ()
    oom_state: Mapping[str, int] | None = None
    timeline: Sequence[Mapping[str, Any]] = ()


@dataclasses.dataclass(frozen=True)
class JobResult:
    """One training job. ``step_time_s`` is the steady-state period of an iteration."""

    name: str | None
    description: str
    ranks: int
    step_time_s: float
    step_time_ps: int
    step_time_interval_s: tuple[float, float]  # 80 % of measurements should lie in it
    settled: bool
    tokens_per_s: float
    model_tflops_per_gpu: float
    mfu: float | None
    breakdown: Breakdown
    memory: tuple[MemoryRow, ...]
    memory_remedy: str | None = None  # for a job that does not fit: the cheapest change that helps

    @property
    def out_of_memory(self) -> bool:
        return any(row.oom for row in self.memory)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> JobResult:
        low, high = data["step_time_interval_s"]
        fields = ("settled", "tokens_per_s", "model_tflops_per_gpu", "mfu", "ranks", "description")
        return cls(
            name=data.get("name"),
            step_time_s=data["step_time_s"],
            step_time_ps=data["step_time_ps"],
            step_time_interval_s=(low, high),
            breakdown=Breakdown(
                overall=BreakdownRow.from_dict(data["breakdown"]["overall"]),
                stages=tuple(BreakdownRow.from_dict(row) for row in data["breakdown"]["stages"]),
            ),
            memory=tuple(MemoryRow(**row) for row in data["memory"]),
            memory_remedy=data.get("memory_remedy"),
            **{key: data[key] for key in fields},
        )


@dataclasses.dataclass(frozen=True)
class Simulation:
    """How the run was made. Equal inputs give equal ``fingerprint`` and ``config_hash``."""

    wall_s: float = dataclasses.field(compare=False)
    events: int
    ranks: int
    ranks_simulated: int
    iterations: int
    threads_used: int
    folded: bool
    peak_rss_bytes: int = dataclasses.field(compare=False)
    version: str
    config_hash: str
    seed: int
    fingerprint: str
    not_folded_because: str | None = None
    events_repeated: int = 0  # of events: repeat others and were not run


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """The answer: one job or several on one cluster."""

    jobs: tuple[JobResult, ...]
    cluster: str
    finish_time_s: float
    finish_time_ps: int
    network: Mapping[str, Any]
    provenance: Mapping[str, float]  # share of kernel time: measured, interpolated, scaled, ...
    simulation: Simulation
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]
    config: Mapping[str, Any]  # the resolved job file: simulate(result.config) gives this again
    _raw: Mapping[str, Any] = dataclasses.field(repr=False, compare=False, default_factory=dict)

    @property
    def job(self) -> JobResult:
        """The only job. Of several, look at ``jobs``."""
        if len(self.jobs) != 1:
            raise ValueError(f"{len(self.jobs)} jobs ran; each has its own, in Result.jobs")
        return self.jobs[0]

    def __repr__(self) -> str:
        steps = "; ".join(
            f"{job.name or job.description}: {job.step_time_s:.4g} s a step"
            + (", out of memory" if job.out_of_memory else "")
            for job in self.jobs
        )
        return f"<Result on {self.cluster}: {steps}>"

    def records(self) -> list[dict[str, Any]]:
        """A flat row for each pipeline stage of each job, and one for all: seconds of each part."""
        rows: list[dict[str, Any]] = []
        for job in self.jobs:
            for row in (job.breakdown.overall, *job.breakdown.stages):
                record: dict[str, Any] = {"job": job.name} if len(self.jobs) > 1 else {}
                stage = "all" if row.stage is None else row.stage
                record |= {"stage": stage, "ranks": row.ranks, "step_s": row.total_s}
                rows.append(record | {f"{part}_s": s for part, s in row.parts_s.items()})
        return rows

    def to_dataframe(self) -> pandas.DataFrame:
        """The records as a pandas DataFrame."""
        return _html.pandas().DataFrame(self.records())

    def _repr_html_(self) -> str:
        parts = [name for name in self.records()[0] if name.endswith("_s")]
        told = {name for name in parts if any(row.get(name, 0) > 0 for row in self.records())}
        rows = [
            {name: value for name, value in row.items() if name in told or name not in parts}
            for row in self.records()
        ]
        return _html.table(repr(self)[1:-1], rows)

    @property
    def step_time_s(self) -> float:
        return self.job.step_time_s

    @property
    def step_time_interval_s(self) -> tuple[float, float]:
        return self.job.step_time_interval_s

    @property
    def tokens_per_s(self) -> float:
        return self.job.tokens_per_s

    @property
    def mfu(self) -> float | None:
        return self.job.mfu

    @property
    def model_tflops_per_gpu(self) -> float:
        return self.job.model_tflops_per_gpu

    @property
    def breakdown(self) -> Breakdown:
        return self.job.breakdown

    @property
    def memory(self) -> tuple[MemoryRow, ...]:
        return self.job.memory

    @property
    def out_of_memory(self) -> bool:
        return any(job.out_of_memory for job in self.jobs)

    def to_dict(self) -> dict[str, Any]:
        """The document that ``orrery simulate --json`` writes (orrery.result/1)."""
        return copy.deepcopy(dict(self._raw))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """Of a document that ``orrery simulate --json`` wrote."""
        if data.get("schema") != "orrery.result/1":
            raise ValueError(f"schema {data.get('schema')!r} is not orrery.result/1")
        if "goal" in data or "trace" in data:
            raise ValueError("the result of a GOAL schedule or trace has no job; read it as JSON")
        jobs = data["jobs"] if "jobs" in data else [data]
        return cls(
            jobs=tuple(JobResult.from_dict(job) for job in jobs),
            cluster=data["cluster"],
            finish_time_s=data["finish_time_s"],
            finish_time_ps=data["finish_time_ps"],
            network=data["network"],
            provenance=data["provenance"],
            simulation=Simulation(**data["simulation"]),
            assumed=tuple(data["assumed"]),
            warnings=tuple(data["warnings"]),
            config=data["config"],
            _raw=data,
        )

"""The schemas of the kit's tables.

One drives the writer, the reader's checks and the test that compares it with
docs/formats/measured-kernels.md. Times are microseconds, sizes bytes or elements as the unit says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kit.errors import UserError

Value = str | int | float
Row = dict[str, Value]


@dataclass(frozen=True)
class Column:
    """One CSV column. `kind` is text, enum, int or float; `low` the least value allowed."""

    name: str
    kind: str
    unit: str
    doc: str
    key: bool = False
    low: float = 0.0
    choices: tuple[str, ...] = ()

    def parse(self, text: str, place: str) -> Value:
        """Returns the value of `text`, or raises UserError that names the place."""
        if self.kind == "text":
            if not text:
                self._fail(place, text, "is empty", "give a name")
            return text
        if self.kind == "enum":
            if text not in self.choices:
                self._fail(place, text, "is unknown", f"valid: {', '.join(self.choices)}")
            return text
        try:
            value = int(text) if self.kind == "int" else float(text)
        except ValueError:
            self._fail(
                place, text, f"is not {_ARTICLE[self.kind]}", "restore the line or delete it"
            )
        if not math.isfinite(value) or value < self.low:
            self._fail(place, text, f"must be finite and at least {self.low:g}", "measure it again")
        return value

    def _fail(self, place: str, text: str, problem: str, remedy: str) -> None:
        raise UserError(place, self.name, text, problem, remedy)


_ARTICLE = {"int": "an integer", "float": "a number"}


def _key(name: str, kind: str, unit: str, doc: str, **more: object) -> Column:
    return Column(name, kind, unit, doc, key=True, **more)  # type: ignore[arg-type]


def _op(name: str) -> Column:
    return _key("op", "enum", "", f"always `{name}`", choices=(name,))


MODES = ("hot", "sustained")
DTYPES = ("bf16", "fp16", "fp32", "tf32", "fp8", "fp8_split")
TIMES = (
    Column("time_us", "float", "us", "median over samples of the time of one call", low=1e-4),
    Column("time_us_q1", "float", "us", "first quartile", low=1e-4),
    Column("time_us_q3", "float", "us", "third quartile", low=1e-4),
    _key("mode", "enum", "", "`hot` or `sustained`", choices=MODES),
    Column("samples", "int", "", "number of samples under the median", low=1),
)
PEAKS = (
    Column("peak_allocated_bytes", "int", "B", "allocator's peak over one step"),
    Column("peak_reserved_bytes", "int", "B", "memory reserved from the driver"),
)


def _part() -> Column:
    choices = ("step", "forward", "backward", "optimizer")
    return _key("part", "enum", "", "what was timed", choices=choices)


def _dtype() -> Column:
    return _key("dtype", "enum", "", "element type, see the list of types", choices=DTYPES)


def _count(name: str, doc: str, low: int = 1, unit: str = "") -> Column:
    return _key(name, "int", unit, doc, low=low)


def _fine_tuned() -> tuple[Column, ...]:
    """Keys of a job of kit/finetune_models.py."""
    return (
        _dtype(),
        _key("model", "text", "", "architecture, of kit/finetune_models.py"),
        _key(
            "method",
            "enum",
            "",
            "what is trained beside what",
            choices=("full", "lora", "nf4", "nf4_single", "int8"),
        ),
        _key("weights", "enum", "", "type of what is not quantised", choices=("fp32", "bf16")),
        _count("autocast", "1: autocast to bf16, adapters in fp32", low=0),
        _count("prepared", "1: peft's prepare_model_for_kbit_training", low=0),
        _key("dropout", "float", "", "in front of adapters"),
        _key("optimizer", "text", "", "as kit/finetune_models.py makes it"),
        _count("checkpoint", "1: every layer is recomputed", low=0),
        _count("seq", "sequence length"),
        _count("micro_batch", "sequences per step"),
    )


def cell_text(value: Value) -> str:
    """A value as its cell has it. Floats have at most four digits after the point."""
    if isinstance(value, float):
        text = f"{value:.4f}".rstrip("0").rstrip(".")
        return text if text != "-0" else "0"
    text = str(value)
    # A cell that a spreadsheet would take for a formula, or that breaks a line, never goes out.
    text = text.replace("\n", " ").replace("\r", " ")
    return "'" + text if text[:1] in ("=", "+", "@", "\t") else text


@dataclass(frozen=True)
class Table:
    """A named list of columns; `name` is the file's stem and the header's `table`."""

    name: str
    columns: tuple[Column, ...]
    timed: bool = True
    keys: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", tuple(c.name for c in self.columns if c.key))

    @property
    def names(self) -> list[str]:
        """Column names in file order."""
        return [c.name for c in self.columns]

    def key_of(self, row: Mapping[str, object]) -> tuple[str, ...]:
        """The row's identity: its key columns as text."""
        return tuple(cell_text(row[k]) for k in self.keys)  # type: ignore[arg-type]


_TABLES = (
    Table(
        "gemm",
        (
            _op("gemm"),
            _dtype(),
            _key("layout", "enum", "", "how A and B lie in memory", choices=("nn", "nt", "tn")),
            _count("m", "rows of C, over all groups"),
            _count("n", "columns of C"),
            _count("k", "inner size, over all groups"),
            _count("groups", "1, or the number of expert matrices of a grouped GEMM"),
            *TIMES,
        ),
    ),
    Table(
        "attention",
        (
            _op("attention"),
            _dtype(),
            _key(
                "kernel",
                "enum",
                "",
                "implementation",
                choices=("flash", "cudnn", "efficient", "math", "unfused"),
            ),
            _count("b", "batch"),
            _count("h", "query heads"),
            _count("kv_heads", "key/value heads"),
            _count("s_q", "query length"),
            _count("s_kv", "key/value length"),
            _count("d", "head size, same for v"),
            _count("causal", "1 with a causal mask", low=0),
            _key("pass", "enum", "", "forward or backward alone", choices=("fwd", "bwd")),
            *TIMES,
        ),
    ),
    Table(
        "memory_bound",
        (
            _op("memory_bound"),
            _dtype(),
            _key("kernel", "text", "", "name from the list of kernels"),
            _count("rows", "rows of the main tensor"),
            _count("cols", "columns of the main tensor"),
            Column("bytes", "int", "B", "least device-memory traffic of one call", low=1),
            *TIMES,
        ),
    ),
    Table(
        "launch",
        (
            _op("launch"),
            _key("kernel", "text", "", "what is launched"),
            _key(
                "path",
                "enum",
                "",
                "host, device or roundtrip time",
                choices=("host", "device", "roundtrip"),
            ),
            _count("count", "launches per sample"),
            *TIMES,
        ),
    ),
    Table(
        "overlap",
        (
            _op("overlap"),
            _dtype(),
            _key(
                "subject",
                "enum",
                "",
                "table of the timed kernel",
                choices=("gemm", "attention", "memory_bound"),
            ),
            _key("kernel", "text", "", "layout of a GEMM, else its kernel name"),
            _key("shape", "text", "", "sizes as name=value joined by `;`"),
            _key(
                "beside",
                "enum",
                "",
                "what runs at the same time",
                choices=(
                    "none",
                    "copy_kernel",
                    "reduce_kernel",
                    "memcpy_h2d",
                    "memcpy_d2h",
                    "memcpy_d2d",
                ),
            ),
            _count("ctas", "thread blocks of the companion, 0 if it has none", low=0),
            _key(
                "rate_set_GBps", "float", "GB/s", "payload rate asked for, 0 = as fast as it goes"
            ),
            Column("rate_got_GBps", "float", "GB/s", "payload rate the companion reached"),
            _count("repeat", "1, 2, ..: the whole pair measured again"),
            *TIMES,
        ),
    ),
    Table(
        "steps",
        (
            _op("step"),
            _dtype(),
            _key("model", "text", "", "llama, gpt or moe, and its size"),
            _count("layers", "transformer layers"),
            _count("hidden", "model width"),
            _count("heads", "query heads of the whole model"),
            _count("kv_heads", "key/value heads"),
            _count("ffn", "feed-forward width"),
            _count("vocab", "vocabulary"),
            _count("experts", "experts of the whole model, 0 if dense", low=0),
            _count("topk", "experts per token", low=0),
            _count("seq", "sequence length"),
            _count("micro_batch", "sequences per call"),
            _count("tp", "tensor-parallel shards cut to one"),
            _count("ep", "expert-parallel shards cut to one"),
            _part(),
            Column("host_us", "float", "us", "host time to issue it"),
            *PEAKS,
            *TIMES,
        ),
    ),
    Table(
        "step_kernels",
        (
            _op("step_kernel"),
            _key("model", "text", "", "as in steps, with its configuration"),
            _count("index", "order of start", low=0),
            Column("name", "text", "", "kernel's own name"),
            Column("stream", "int", "", "stream number"),
            Column("start_us", "float", "us", "start after the step's first kernel"),
            Column("duration_us", "float", "us", "time on the device"),
        ),
        timed=False,
    ),
    Table(
        "step_memory",
        (
            _op("step_memory"),
            _key("model", "text", "", "as in steps, with its configuration"),
            _count("index", "order of the event", low=0),
            Column(
                "action", "text", "", "alloc, free_requested, free_completed, segment_alloc, .."
            ),
            Column("block", "int", "", "number of the address, in order of first use"),
            Column("size_bytes", "int", "B", "size of the block"),
            Column("stream", "int", "", "stream number"),
        ),
        timed=False,
    ),
    Table(
        "finetune",
        (
            _op("finetune"),
            *_fine_tuned(),
            _part(),
            Column("host_us", "float", "us", "host time to issue it"),
            Column("busy_us", "float", "us", "of one step: time in which a kernel ran"),
            Column("parameters", "int", "", "trained parameters"),
            Column("static_bytes", "int", "B", "allocated between steps"),
            Column("forward_bytes", "int", "B", "allocated behind the forward pass"),
            *PEAKS,
            *TIMES,
        ),
    ),
    Table(
        "host_steps",
        (
            _op("host_step"),
            *_fine_tuned(),
            _key("loop", "enum", "", "who steps", choices=("own", "trainer", "compiled", "chain")),
            _key("taught", "int", "", "0: kept back as a test"),
            _part(),
            Column("host_us", "float", "us", "host time to issue it"),
            Column("busy_us", "float", "us", "of one step: time in which a kernel ran"),
            Column("launches", "int", "", "kernels, copies and fills of one step"),
            Column("operators", "int", "", "dispatched operators that are no views"),
            Column("views", "int", "", "dispatched operators that are views"),
            Column("modules", "int", "", "calls of modules"),
            Column("nodes", "int", "", "nodes of the autograd graph"),
            Column("functions", "int", "", "of those, written in Python"),
            Column("add_us", "float", "us", "host time of one small addition, beside the steps"),
            Column("adds", "float", "", "host time as a multiple of that, median over steps"),
            *TIMES,
        ),
    ),
    Table(
        "host_calls",
        (
            _op("host_call"),
            _key("model", "text", "", "as in host_steps, with its configuration"),
            _count("index", "order of host time", low=0),
            Column("name", "text", "", "operator or call of the driver"),
            Column("count", "int", "", "calls in one profiled step", low=1),
            Column("self_us", "float", "us", "host time of them all, without what they call"),
        ),
        timed=False,
    ),
    Table(
        "finetune_kernels",
        (
            _op("finetune_kernel"),
            _key("model", "text", "", "as in finetune, with its configuration"),
            _count("index", "order of total time", low=0),
            Column("name", "text", "", "kernel's own name, its first 160 characters"),
            Column("count", "int", "", "launches in one step", low=1),
            Column("total_us", "float", "us", "time of them all on the device"),
        ),
        timed=False,
    ),
    Table(
        "finetune_blocks",
        (
            _op("finetune_block"),
            _key("model", "text", "", "as in finetune_kernels"),
            _count("index", "order of bytes", low=0),
            Column("what", "enum", "", "when it was made", choices=("before", "made", "rest")),
            Column("size_bytes", "int", "B", "size of each block"),
            Column("count", "int", "", "blocks of this size", low=1),
        ),
        timed=False,
    ),
    Table(
        "quantized",
        (
            _op("quantized"),
            _dtype(),
            _key("kernel", "text", "", "name from the list of kernels"),
            _count("rows", "rows of the main matrix; tensors of an optimizer"),
            _count("cols", "columns of the main matrix; elements of each tensor"),
            _count("inner", "inner size of a product, else 0", low=0),
            Column("bytes", "int", "B", "least device-memory traffic of one call", low=1),
            *TIMES,
        ),
    ),
    Table(
        "copies",
        (
            _op("copy"),
            _key("kernel", "text", "", "direction and kind"),
            _count("bytes", "payload of one call", unit="B"),
            _count("row_bytes", "contiguous bytes per row, equal to bytes if contiguous", unit="B"),
            _count("stride_bytes", "distance between rows", unit="B"),
            Column("moved_bytes", "int", "B", "reads and writes of device memory", low=1),
            *TIMES,
        ),
    ),
    Table(
        "ncu",
        (
            _op("ncu"),
            _dtype(),
            _key("subject", "text", "", "as in overlap"),
            _key("kernel", "text", "", "as in overlap"),
            _key("shape", "text", "", "as in overlap"),
            _key("launch", "text", "", "kernel's own name"),
            _count("index", "order", low=0),
            _key("metric", "text", "", "ncu's metric name"),
            Column("value", "float", "", "in ncu's unit", low=-math.inf),
            Column("unit", "text", "", "ncu's unit"),
        ),
        timed=False,
    ),
    Table(
        "clock",
        (
            _op("clock"),
            _count("index", "order", low=0),
            Column("seconds", "float", "s", "since the log began"),
            Column("sm_mhz", "int", "MHz", "SM clock"),
            Column("memory_mhz", "int", "MHz", "memory clock"),
            Column("power_w", "float", "W", "board power"),
            Column("temperature_c", "float", "C", "GPU temperature"),
            Column("reasons", "text", "", "clock event reasons, a bit mask"),
        ),
        timed=False,
    ),
)
TABLES: dict[str, Table] = {t.name: t for t in _TABLES}

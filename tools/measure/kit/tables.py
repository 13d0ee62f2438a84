"""The CSV tables that the kit writes and reads: `orrery.measured/1`.

One schema per table drives the writer, the reader's checks and the test that compares it with
docs/formats/measured-kernels.md. Times are microseconds, sizes bytes or elements as the unit says.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kit.errors import UserError

MAGIC = "# orrery.measured/1"
NOT_DATA = "(tiny, not data)"
MAX_FILE_BYTES = 256 * 1024 * 1024  # a table of 3,000 GEMM rows is 0.3 MB
MAX_LINE_CHARS = 4096

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
        return tuple(_cell(row[k]) for k in self.keys)  # type: ignore[arg-type]


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


@dataclass
class Loaded:
    """A table read and checked: header keys, rows as typed values, and the file's lines."""

    path: Path
    table: Table
    header: dict[str, str]
    rows: list[Row]
    torn: bool = False  # the last line had no end: cut by a kill

    @property
    def is_data(self) -> bool:
        """False for tiny or CPU runs, whose times mean nothing."""
        return NOT_DATA not in self.header["device"]


def format_row(table: Table, row: Mapping[str, Value]) -> str:
    """One CSV line. Floats have at most four digits after the point."""
    unknown = set(row) - set(table.names)
    missing = [n for n in table.names if n not in row]
    if unknown or missing:
        raise ValueError(f"{table.name}: unknown {sorted(unknown)}, missing {missing}")
    out = io.StringIO()
    cells = [_cell(row[n]) for n in table.names]
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def _cell(value: Value) -> str:
    if isinstance(value, float):
        text = f"{value:.4f}".rstrip("0").rstrip(".")
        return text if text != "-0" else "0"
    text = str(value)
    # A cell that a spreadsheet would take for a formula, or that breaks a line, never goes out.
    text = text.replace("\n", " ").replace("\r", " ")
    return "'" + text if text[:1] in ("=", "+", "@", "\t") else text


def header_lines(header: Mapping[str, str]) -> list[str]:
    """The lines before the column names. Values lose line breaks."""
    return [MAGIC] + [f"# {k}: {' '.join(str(v).split())}" for k, v in header.items()]


class Appender:
    """Writes one table: rows are flushed one by one, the header is renewed at the end.

    An existing file is continued; its rows are known by key, so that a case is measured once.
    """

    def __init__(self, path: Path, table: Table, header: Mapping[str, str]) -> None:
        self.path, self.table = path, table
        self.header = {"table": table.name, **header}
        self.done: set[tuple[str, ...]] = set()
        self.rows = 0
        if path.exists():
            self._continue()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, "\n".join(header_lines(self.header) + [",".join(table.names)]) + "\n")
        self._file = path.open("a", encoding="utf-8", newline="")

    def _continue(self) -> None:
        old = load(self.path, allow_torn=True)
        for key in ("table", "device", "gpu_name", "torch", "driver", "blas"):
            mine, theirs = self.header.get(key, ""), old.header.get(key, "")
            if key == "driver":  # a branch is enough: two machines of one kind differ in the patch
                mine, theirs = mine.split(".")[0], theirs.split(".")[0]
            if mine != theirs:
                raise UserError(
                    f"{self.path}:1",
                    key,
                    theirs,
                    f"this run has {mine!r}",
                    "write to another --out folder",
                )
        if old.torn:
            text = self.path.read_text(encoding="utf-8")
            _replace(self.path, text[: text.rfind("\n") + 1])
        self.done = {self.table.key_of(r) for r in old.rows}
        self.rows = len(old.rows)
        runs = int(old.header.get("runs", "1")) + 1
        again = {
            f"{key}_{runs}": self.header[key]
            for key in ("date", "command", "driver", "clocks_before")
            if key in self.header
        }
        self.header = {**old.header, "runs": str(runs), **again}

    def append(self, rows: Iterable[Mapping[str, Value]]) -> None:
        """Adds rows that are not there yet, in one write, so that a killed run keeps them."""
        text = ""
        for row in rows:
            key = self.table.key_of(row)
            if key not in self.done:
                text += format_row(self.table, row)
                self.done.add(key)
                self.rows += 1
        self._file.write(text)
        self._file.flush()

    def close(self, final: Mapping[str, str]) -> None:
        """Adds the header keys known only at the end (clocks after) and syncs the file."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        body = [
            ln
            for ln in self.path.read_text(encoding="utf-8").splitlines(keepends=True)
            if not ln.startswith("#")
        ]
        _replace(
            self.path, "\n".join(header_lines({**self.header, **final})) + "\n" + "".join(body)
        )


def _replace(path: Path, text: str) -> None:
    """Writes a whole file or nothing: temporary, sync, rename."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def load(path: Path, *, allow_torn: bool = False) -> Loaded:
    """Reads and checks one table; every defect is a UserError with file, line, field and remedy."""
    text = _read(path)
    torn = not text.endswith("\n")
    if torn and not allow_torn:
        raise UserError(
            f"{path}:{text.count(chr(10)) + 1}",
            "line end",
            text[-40:],
            "the last line is cut",
            "run the script again: it resumes and repairs the file",
        )
    lines = text.split("\n")[:-1]
    header, first = _read_header(path, lines)
    table = TABLES.get(header.get("table", ""))
    if table is None:
        raise UserError(
            f"{path}:2",
            "table",
            header.get("table", ""),
            "is no known table",
            f"valid: {', '.join(TABLES)}",
        )
    if "device" not in header:
        raise UserError(f"{path}:2", "device", "", "is missing", "add the line `# device: cuda`")
    if first >= len(lines) or lines[first].rstrip("\r") != ",".join(table.names):
        found = lines[first] if first < len(lines) else ""
        raise UserError(
            f"{path}:{first + 1}",
            "column names",
            found,
            "do not fit the table",
            f"expected {','.join(table.names)}",
        )
    rows = _read_rows(path, lines, first + 1, table)
    return Loaded(path, table, header, rows, torn)


def _read(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise UserError(
                str(path), "size", size, f"is over {MAX_FILE_BYTES} bytes", "split the file"
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            str(path), "file", path.name, error.strerror or "cannot be read", "check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: byte {error.start}", "text", error.reason, "is not UTF-8", "restore the file"
        ) from error
    if not text.startswith(MAGIC + "\n"):
        raise UserError(
            f"{path}:1",
            "format",
            text[:40].split("\n")[0],
            "is not this format",
            f"the first line must be `{MAGIC}`",
        )
    return text


def _read_header(path: Path, lines: Sequence[str]) -> tuple[dict[str, str], int]:
    header: dict[str, str] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not line.startswith("#"):
            return header, number - 1
        name, colon, value = line[1:].partition(":")
        if not colon or not name.strip():
            raise UserError(
                f"{path}:{number}",
                "header",
                line[:60],
                "is not `# key: value`",
                "restore the line or delete it",
            )
        if name.strip() in header:
            raise UserError(
                f"{path}:{number}",
                name.strip(),
                value.strip(),
                "stands there twice",
                "delete one of the two lines",
            )
        header[name.strip()] = value.strip()
    return header, len(lines)


def _read_rows(path: Path, lines: Sequence[str], first: int, table: Table) -> list[Row]:
    rows: list[Row] = []
    seen: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(lines[first:], start=first + 1):
        place = f"{path}:{number}"
        if len(line) > MAX_LINE_CHARS:
            raise UserError(
                place,
                "line",
                line[:40],
                f"is over {MAX_LINE_CHARS} characters",
                "restore the line or delete it",
            )
        try:
            cells = next(csv.reader([line], strict=True), [])
        except csv.Error as error:
            raise UserError(place, "line", line[:60], str(error), "restore or delete it") from error
        if len(cells) != len(table.columns):
            raise UserError(
                place,
                "line",
                line[:60],
                f"has {len(cells)} of {len(table.columns)} cells",
                "restore the line or delete it",
            )
        row = {c.name: c.parse(t, place) for c, t in zip(table.columns, cells, strict=True)}
        if table.timed and not row["time_us_q1"] <= row["time_us"] <= row["time_us_q3"]:  # type: ignore[operator]
            raise UserError(
                place, "time_us", row["time_us"], "lies outside its quartiles", "measure it again"
            )
        key = table.key_of(row)
        if key in seen:
            raise UserError(
                place, "row", ",".join(key), f"repeats line {seen[key]}", "delete one of the two"
            )
        seen[key] = number
        rows.append(row)
    return rows

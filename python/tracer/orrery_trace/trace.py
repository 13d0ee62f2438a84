"""The trace directory: writing one rank's file, reading it back (docs/formats/trace.md).

A rank's file is JSON lines under gzip. A line is an object whose `t` says its kind; tables
(signatures, groups, modules) are lines too, written just before their first use. The last line
counts the others, so that a cut file is seen. The file is written beside its place and renamed.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from orrery_trace.errors import TraceError

VERSION = 1
INDEX = "trace.json"
TABLES = frozenset({"sig", "group", "module"})  # kinds of lines that are rows of tables
Line = dict[str, Any]


def rank_file(rank: int) -> str:
    """Name of a rank's file in the directory."""
    return f"rank-{rank}.jsonl.gz"


def runs_of(ranks: list[int]) -> list[list[int]]:
    """Ranks as runs `[first, count, stride]`, shortest form of what groups look like."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and len(runs[-1]) == 3:
            first, count, stride = runs[-1]
            if count == 1:
                if rank > first:
                    runs[-1] = [first, 2, rank - first]
                    continue
            elif rank == first + count * stride:
                runs[-1][1] += 1
                continue
        runs.append([rank, 1, 1])
    return runs


def ranks_of(runs: list[list[int]]) -> list[int]:
    """The ranks that `runs_of` packed."""
    return [first + i * stride for first, count, stride in runs for i in range(count)]


class Writer:
    """Writes one rank's lines in order; `close()` puts the file in its place."""

    def __init__(self, path: Path, header: Line) -> None:
        self.path = path
        self._unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        self._raw: IO[bytes] | None = None
        self._file: gzip.GzipFile | None = None
        self._counts: Counter[str] = Counter()
        self._pending: list[str] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._raw = self._unfinished.open("wb")
        # No name and no time inside, so that equal traces are equal files.
        self._file = gzip.GzipFile("", "wb", compresslevel=6, fileobj=self._raw, mtime=0)
        self.line({"t": "trace", "version": VERSION, **header})

    def line(self, line: Line) -> None:
        """Adds one line."""
        self._counts[line["t"]] += 1
        self._pending.append(json.dumps(line, separators=(",", ":")))
        if len(self._pending) >= 4096:
            self._flush()

    def _flush(self) -> None:
        if self._file is not None and self._pending:
            self._file.write(("\n".join(self._pending) + "\n").encode())
        self._pending.clear()

    def close(self, **footer: Any) -> None:
        """Writes the last line and renames the file."""
        self.line({"t": "end", "counts": dict(self._counts), **footer})
        self._flush()
        if self._file is not None and self._raw is not None:
            self._file.close()
            self._raw.close()
            self._unfinished.replace(self.path)
        self._file = self._raw = None

    def discard(self) -> None:
        """Leaves no file behind; does nothing after `close`."""
        if self._raw is not None:
            self._raw.close()
            self._unfinished.unlink(missing_ok=True)
        self._file = self._raw = None


def write_index(folder: Path, index: Line) -> None:
    """Writes `trace.json`, which says what ranks the files stand for."""
    unfinished = folder / f".{INDEX}.{os.getpid()}"
    unfinished.write_text(json.dumps({"orrery_trace": VERSION, **index}, indent=1) + "\n")
    unfinished.replace(folder / INDEX)


@dataclass
class Trace:
    """One rank's file in memory: the step's lines in order, with the tables by number."""

    header: Line
    lines: list[Line] = field(default_factory=list)  # the recorded step, in host program order
    setup: list[Line] = field(default_factory=list)  # what came before it: memory only
    signatures: list[Line] = field(default_factory=list)
    groups: list[Line] = field(default_factory=list)
    modules: list[Line] = field(default_factory=list)
    end: Line = field(default_factory=dict)

    def of(self, *kinds: str) -> list[Line]:
        """The step's lines of these kinds."""
        return [line for line in self.lines if line["t"] in kinds]

    def ranks(self, comm: Line) -> list[int]:
        """The ranks of a communication's group."""
        return ranks_of(self.groups[comm["group"]]["ranks"])

    def comm_counts(self) -> dict[str, int]:
        """How often each kind of communication was issued in the step."""
        return dict(sorted(Counter(line["kind"] for line in self.of("comm")).items()))

    def op_names(self, views: bool = False) -> list[str]:
        """Names of the step's ops in order; ops without a kernel only if asked."""
        rows = (self.signatures[line["sig"]] for line in self.of("op"))
        return [row["name"] for row in rows if views or row.get("kernel", True)]

    def peak_bytes(self, device: str = "cuda") -> int:
        """Most bytes live at once in the step, those that lived before it included."""
        live = peak = 0
        sizes: dict[int, int] = {}
        for line in self.of("resident", "alloc", "free", "resize"):
            if line.get("device", "cuda") != device and line["storage"] not in sizes:
                continue
            before = sizes.get(line["storage"], 0)
            after = 0 if line["t"] == "free" else line["bytes"]
            sizes[line["storage"]] = after
            live += after - before
            peak = max(peak, live)
        return peak


def _lines(path: Path) -> Iterator[Line]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                try:
                    yield json.loads(text)
                except json.JSONDecodeError as error:
                    raise TraceError(f"{path}:{number}: not JSON ({error})") from error
    except (OSError, EOFError) as error:
        raise TraceError(f"{path}: cannot be read as gzip: {error}") from error


def lines_of(path: str | Path) -> list[Line]:
    """Every line of a rank's file as it stands."""
    return list(_lines(Path(path)))


def read(path: str | Path) -> Trace:
    """Reads one rank's file; refuses other versions and files that were cut off."""
    path = Path(path)
    lines = _lines(path)
    header = next(lines, {})
    if header.get("t") != "trace" or header.get("version") != VERSION:
        said = header.get("version", "none")
        raise TraceError(f"{path}: trace version {said}; this reader knows version {VERSION}")
    trace = Trace(header)
    tables = {"sig": trace.signatures, "group": trace.groups, "module": trace.modules}
    section = trace.setup
    count = 1
    for line in lines:
        kind = line["t"]
        if trace.end:
            raise TraceError(f"{path}: lines follow the last one, `end`")
        if kind == "end":
            trace.end = line
            continue
        count += 1
        if kind in tables:
            tables[kind].append(line)
        elif kind == "step":
            section = trace.lines
        else:
            section.append(line)
    if not trace.end:
        raise TraceError(f"{path}: cut off after {count} lines: the last line, `end`, is missing")
    if sum(trace.end["counts"].values()) != count:
        raise TraceError(f"{path}: {count} lines, but its last line counts another number")
    return trace


def write(path: Path, trace: Trace) -> None:
    """Writes a rank's file, its tables first."""
    writer = Writer(path, {k: v for k, v in trace.header.items() if k not in ("t", "version")})
    try:
        for line in (*trace.groups, *trace.modules, *trace.signatures, *trace.setup):
            writer.line(line)
        writer.line({"t": "step", "index": trace.end["steps"] - 1})
        for line in trace.lines:
            writer.line(line)
        writer.close(**{k: v for k, v in trace.end.items() if k not in ("t", "counts")})
    finally:
        writer.discard()


def read_directory(folder: str | Path) -> dict[int, Trace]:
    """Every traced rank of a directory, by rank."""
    folder = Path(folder)
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise TraceError(f"{folder / INDEX}: cannot be read: {error}") from error
    if index.get("orrery_trace") != VERSION:
        said = index.get("orrery_trace")
        raise TraceError(f"{folder / INDEX}: trace version {said}; this reader knows {VERSION}")
    return {row["rank"]: read(folder / row["file"]) for row in index["programs"]}

"""More micro-batches than were traced, from the step that was.

Between its warm-up and its end a step repeats itself: one forward and one backward pass of a
1F1B pipeline, a micro-batch of gradient accumulation, a round of chunks of an interleaved one.
`extend` finds the longest stretch of the step that does so, line by line (kind, shapes, bytes,
group, partner, stream, pass and module; micro-batches counting on), and puts in as many rounds more
as are asked for, each as the last one was. What a round defines (storages, communications, events)
is new in each; what it takes from an earlier round it takes from as many rounds back; what each
round has of its own from before the step (receive buffers of torch pipelining) each new one gets,
too; everything else is shared by all. What follows the rounds finds the last of them where it found
it before.

Assumes that the rounds of a step with more micro-batches are those of the traced one, which holds
where warm-up and end do not hang on their number. Cost: some 10 passes over the step's lines for
each distance between micro-batches.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from orrery_trace.errors import TraceError
from orrery_trace.trace import INDEX, Line, Trace, read_directory, write, write_index

# Keys by which lines name what a step makes: (namespace, key).
_NAMES: dict[str, tuple[tuple[str, str], ...]] = {
    "op": (("storage", "in"), ("storage", "out")),
    "comm": (("comm", "id"), ("storage", "in"), ("storage", "out")),
    "call_begin": (("call", "call"),),
    "call_end": (("call", "call"), ("comm", "id")),
    "wait": (("comm", "comm"),),
    "record": (("event", "event"),),
    "await": (("event", "event"),),
    **dict.fromkeys(("resident", "alloc", "resize", "free", "use"), (("storage", "storage"),)),
}
_ACTION = re.compile(r"(\d+[A-Z]+)(\d+)")


class Rounds:
    """The stretch of a step that repeats itself: `count` rounds of `length` lines from `begin`.

    From one round to the next `step` micro-batches pass.
    """

    def __init__(self, trace: Trace) -> None:
        self.lines = [line for line in trace.lines if line["t"] != "assumed"]
        codes: dict[Any, int] = {}
        self._code = [codes.setdefault(_shape(line, trace), len(codes)) for line in self.lines]
        self._mb = [_micro_batch(line) for line in self.lines]
        self.micro_batches = 1 + max((mb for mb in self._mb if mb is not None), default=-1)
        self.begin, self.length, self.count, self.step = self._longest()
        self.end = self.begin + self.length * self.count

    def place(self, at: int) -> tuple[int, int] | None:
        """Round and line within it; None outside the rounds."""
        inside = self.begin <= at < self.end
        return divmod(at - self.begin, self.length) if inside else None

    def line(self, number: int, place: int) -> Line:
        """A line of a traced round."""
        return self.lines[self.begin + number * self.length + place]

    def _distances(self) -> list[tuple[int, int]]:
        """Lines and micro-batches from one first line of a forward pass to a later one."""
        first: dict[int, int] = {}
        for i, line in enumerate(self.lines):
            mb = self._mb[i]
            if mb is not None and line.get("pass") == "forward":
                first.setdefault(mb, i)
        return sorted(
            {
                (first[other] - at, other - mb)
                for mb, at in first.items()
                for other in range(mb + 1, mb + self.micro_batches // 2 + 1)
                if other in first and first[other] > at
            }
        )

    def _longest(self) -> tuple[int, int, int, int]:
        best = (0, 1, 0, 1)
        for distance, step in self._distances():
            run = 0
            for i in range(len(self.lines) - distance):
                a, b = self._mb[i], self._mb[i + distance]
                counts_on = a == b if a is None or b is None else b - a == step
                if not counts_on or self._code[i] != self._code[i + distance]:
                    run = 0
                    continue
                run += 1
                count = run // distance + 1
                if run >= distance and count * distance > best[1] * best[2]:
                    best = (i + 1 - run, distance, count, step)
        return best


def _shape(line: Line, trace: Trace) -> Any:
    """What a line has in common with the same one of another round."""
    left_out = {"in", "out", "id", "comm", "call", "event", "storage", "mb", "at", "ns"}
    kept = {key: value for key, value in line.items() if key not in left_out}
    if line["t"] == "op":
        row = trace.signatures[line["sig"]]
        if not row.get("kernel", True):  # views of a batch's rows differ by where they begin
            kept["sig"] = row["name"]
        kept["tensors"] = [len(line["in"]), len(line["out"])]
    elif line["t"] == "mark":
        kept["name"] = _ACTION.sub(r"\1", line["name"])
    return repr(sorted(kept.items()))


def _micro_batch(line: Line) -> int | None:
    if line["t"] == "mark":
        action = _ACTION.fullmatch(line["name"])
        return int(action[2]) if action else None
    return line.get("mb")


def _later(line: Line, micro_batches: int) -> Line:
    """The same line of a later micro-batch."""
    mb = _micro_batch(line)
    if mb is None:
        return dict(line)
    if line["t"] == "mark":
        return line | {"name": _ACTION.sub(rf"\g<1>{mb + micro_batches}", line["name"])}
    return line | {"mb": mb + micro_batches}


class _Extension:
    """A step with more rounds. A name is defined where the step has it first."""

    def __init__(self, rounds: Rounds, setup: list[Line], more: int) -> None:
        self.rounds, self.more = rounds, more
        self.own: dict[int, list[int]] = {}  # of a storage from before the step: the new rounds'
        self._where: dict[tuple[str, int], int] = {}  # the first line that has a name
        self._shared: set[tuple[str, int]] = set()  # names that one round and the next have
        self._made: dict[tuple[int, str, int, int], int] = {}  # new names, by round and place
        self._next = {"storage": 1 + max((line.get("storage", -1) for line in setup), default=-1)}
        self._before: set[int] = set()  # storages that live when the step begins
        for at, line in enumerate(rounds.lines):
            if line["t"] == "resident":
                self._before.add(line["storage"])
            for space, key in _NAMES.get(line["t"], ()):
                for name in _all(line.get(key)):
                    self._next[space] = max(self._next.get(space, 0), name + 1)
                    if line["t"] != "resident":
                        self._where.setdefault((space, name), at)
        for place in range(rounds.length):
            last, before = (rounds.line(rounds.count - back, place) for back in (1, 2))
            for space, key in _NAMES.get(last["t"], ()):
                names = zip(_all(last.get(key)), _all(before.get(key)), strict=True)
                self._shared |= {(space, name) for name, other in names if name == other}

    def lines(self) -> list[Line]:
        """The whole step."""
        r = self.rounds
        found = list(r.lines[: r.end])
        for new in range(self.more):
            for place in range(r.length):
                line = _later(r.line(r.count - 1, place), r.step * (new + 1))
                found.append(self._renamed(line, new + 1))
        of_all = self._ends_of_all_rounds()
        for line in r.lines[r.end :]:
            later = _later(line, r.step * self.more)
            if self._first_round(line) in of_all:
                found += [self._renamed(dict(later), on, end=True) for on in range(self.more)]
            found.append(self._renamed(later, self.more, end=True))
        return found

    def _first_round(self, line: Line) -> tuple[str, int, int] | None:
        """Kind, round and place of what a wait or a free behind the rounds ends."""
        if line["t"] not in ("wait", "free"):
            return None
        ((space, key),) = _NAMES[line["t"]]
        first = self._where.get((space, line[key]))
        found = None if first is None else self.rounds.place(first)
        return None if found is None else (line["t"], *found)

    def _ends_of_all_rounds(self) -> set[tuple[str, int, int]]:
        """Those of round 0, where the end of the step has one for each round but the last."""
        r = self.rounds
        ends = {self._first_round(line) for line in r.lines[r.end :]} - {None}
        return {
            end
            for end in ends
            if end is not None and end[1] == 0
            if all((end[0], number, end[2]) in ends for number in range(r.count - 1))
        }

    def _renamed(self, line: Line, rounds_on: int, end: bool = False) -> Line:
        """The line with the names that it has so many rounds later."""

        def rename(space: str, name: int) -> int:
            first = self._where.get((space, name))
            found = None if first is None else self.rounds.place(first)
            if (space, name) in self._shared or (end and found is None):
                return name
            if found is None:
                r = self.rounds
                raise TraceError(
                    f"the last of its {r.count} rounds uses what the warm-up made, not a round: "
                    f"trace {r.micro_batches + r.step} micro-batches or more"
                )
            return self._at(space, name, found[0] + rounds_on, found[1])

        for space, key in _NAMES.get(line["t"], ()):
            value = line.get(key)
            if isinstance(value, list):
                line[key] = [rename(space, name) for name in value]
            elif value is not None:
                line[key] = rename(space, value)
        return line

    def _at(self, space: str, name: int, number: int, place: int) -> int:
        """The name that round `number` has where another traced round has `name` first."""
        r = self.rounds
        here = r.lines[self._where[space, name]]
        key, index = next(
            (k, _all(here[k]).index(name))
            for s, k in _NAMES[here["t"]]
            if s == space and name in _all(here.get(k))
        )
        if number < r.count:
            return _all(r.line(number, place)[key])[index]
        new = self._made.get((number, key, place, index))
        if new is None:
            new = self._made[number, key, place, index] = self._next[space]
            self._next[space] += 1
            if space == "storage" and name in self._before:
                self.own.setdefault(name, []).append(new)
        return new


def _all(value: Any) -> list[int]:
    return value if isinstance(value, list) else [] if value is None else [value]


def extend(trace: Trace, micro_batches: int) -> Trace:
    """The step of `trace` with that many micro-batches; an error where it does not tell."""
    rounds = Rounds(trace)
    said = f"rank {trace.header['rank']}, {rounds.micro_batches} micro-batches: "
    if rounds.count < 2:
        raise TraceError(
            said + "no stretch of the step repeats itself: trace more of them (of a pipeline at "
            "least two more than twice its stages)"
        )
    more, left = divmod(micro_batches - rounds.micro_batches, rounds.step)
    if left or more < 0:
        raise TraceError(
            f"{said}the step goes on by {rounds.step} at a time from there, which never makes "
            f"{micro_batches}"
        )
    extension = _Extension(rounds, trace.setup, more)
    try:
        lines = extension.lines()
    except TraceError as error:
        raise TraceError(f"{said}{error}") from None

    def with_own(before: list[Line]) -> list[Line]:
        found = []
        for line in before:
            found.append(line)
            if line["t"] in ("alloc", "resident"):
                own = extension.own.get(line["storage"], [])
                found += [line | {"storage": storage} for storage in own]
        return found

    assumed = [line for line in trace.lines if line["t"] == "assumed"]
    result = replace(trace, lines=assumed + with_own(lines), setup=with_own(trace.setup))
    result.end = trace.end | {"peak_bytes": result.peak_bytes(trace.header.get("device", "cuda"))}
    return result


def extend_directory(source: Path, micro_batches: int, out: Path) -> None:
    """Writes the traces of a directory with that many micro-batches into another."""
    if out.resolve() == source.resolve():
        raise TraceError(f"{out}: the traces would be written over: name another --out")
    traces = read_directory(source)
    longer = {rank: extend(trace, micro_batches) for rank, trace in traces.items()}
    index = json.loads((source / INDEX).read_text(encoding="utf-8"))
    for row in index["programs"]:
        row.pop("digest", None)
        write(out / row["file"], longer[row["rank"]])
    said = (
        f"{micro_batches} micro-batches, of which the trace has fewer: its rounds go on as they are"
    )
    index["assumed"] = [*index.get("assumed", []), said]
    del index["orrery_trace"]
    write_index(out, index)

"""What the campaigns share: one run of the program under limits, and a count of what was tried."""

import concurrent.futures
import dataclasses
import os
import pathlib
import resource
import signal
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
INPUTS = ROOT / "tests" / "cli" / "inputs"
MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Settings:
    program: str
    shim: str  # the library of faults.cc
    full: bool  # the long form
    share: float = 1.0  # of the long form's cases


@dataclasses.dataclass(frozen=True)
class Run:
    command: tuple[str, ...]
    status: int  # -N: ended by signal N
    out: bytes
    err: str
    rss: int  # bytes, the most at once
    late: bool  # it did not end in time

    def said(self):
        return f"orrery {' '.join(self.command)}: status {self.status}: {self.err.strip()[:400]}"

    def is_one_line(self):
        """Whether stderr is one message and nothing else."""
        return self.is_message() and self.err.count("\n") == 1

    def ends_in_one_line(self):
        """Whether stderr is one message behind warnings."""
        lines = self.err.splitlines(keepends=True)
        while lines and lines[0].startswith("warning: "):
            del lines[0]
        return dataclasses.replace(self, err="".join(lines)).is_one_line()

    def is_message(self):
        """The same; of a recipe every argument that is wrong has a line."""
        return self.err.startswith("orrery: ") and "internal error" not in self.err


def run(settings, command, *, fault=None, count=None, cwd=INPUTS, seconds=60, memory=None, stdin=None, environment=None):
    """Runs the program; `fault` and `count` as faults.cc has them, `memory` in bytes of addresses."""
    variables = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "ORRERY_MEASURED": "", **(environment or {})}
    if fault is not None:
        variables |= {"LD_PRELOAD": settings.shim, "ORRERY_FAULT": fault}
        if count is not None:
            variables["ORRERY_FAULT_COUNT"] = count

    def limit():
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(
            [settings.program, *map(str, command)],
            cwd=cwd,
            env=variables,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=out,
            stderr=err,
            preexec_fn=limit,
        )
        late = False
        previous = concurrent.futures.ThreadPoolExecutor(1)
        waiting = previous.submit(os.wait4, child.pid, 0)
        try:
            _, code, usage = waiting.result(timeout=seconds)
        except concurrent.futures.TimeoutError:
            late = True
            os.kill(child.pid, signal.SIGKILL)
            _, code, usage = waiting.result()
        previous.shutdown()
        child.returncode = os.waitstatus_to_exitcode(code)
        out.seek(0)
        err.seek(0)
        return Run(
            tuple(map(str, command)),
            child.returncode,
            out.read(),
            err.read().decode("utf-8", "backslashreplace"),
            usage.ru_maxrss * 1024,
            late,
        )


class Tally:
    """Cases that were tried, and what was wrong with some of them."""

    def __init__(self, name):
        self.name = name
        self.cases = 0
        self.wrong = []
        self.notes = []

    def check(self, fine, what):
        self.cases += 1
        if not fine:
            self.wrong.append(what)
        return fine

    def note(self, text):
        self.notes.append(text)

    def report(self):
        print(f"{self.name}: {self.cases:,} cases, {len(self.wrong)} wrong" + "".join(f"; {n}" for n in self.notes))
        for what in self.wrong[:20]:
            print(f"  {what}")


def in_parallel(function, items):
    """The answers in the order of the items, on as many threads as there are cores."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


def sample(items, settings, share, seed):
    """The long form's share of them, or in the short form this one: every so many, from a place that the seed says."""
    items = list(items)
    if not items:
        return items
    step = max(1, round(1 / (settings.share if settings.full else share)))
    return items[seed % min(step, len(items)) :: step]

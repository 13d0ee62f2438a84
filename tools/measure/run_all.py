#!/usr/bin/env python3
"""Runs several items within one bounded run, each with a share of the time by worth.

    python3 tools/measure/run_all.py plan
    python3 tools/measure/run_all.py --items gemm,attention,memory_bound,launch --out DIR

Time that an item leaves unspent goes to the next ones. Each item is a process of its own, so that a
fault in one leaves the others whole. Clocks and power are logged all the while. The same command
resumes: cases that DIR holds are not measured again.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import signal
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kit.budget import Budget
from kit.clock_log import ClockLog
from kit.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_OK, UserError

HERE = Path(__file__).resolve().parent
GRACE_S = 60.0  # past its budget an item is ended


@dataclass(frozen=True)
class Phase:
    """One process: a script, its further arguments, and its weight when time is shared out."""

    name: str
    script: str
    weight: float
    more: tuple[str, ...] = ()


# In order of worth to the predictions. Weights reflect worth and what the full list costs (`plan`).
PHASES = (
    Phase("gemm", "gemm", 3.0),
    Phase("attention", "attention", 1.4),
    Phase("memory_bound", "memory_bound", 1.2),
    Phase("launch", "launch", 0.35),
    Phase("gemm_sustained", "gemm", 1.2, ("--mode", "sustained")),
    Phase("overlap", "overlap", 2.4, ("--ncu",)),
    Phase("steps", "steps", 0.9),
    Phase("copies", "copies", 0.35),
    Phase("finetune", "finetune", 3.0),
    Phase("quantized", "quantized", 0.6),
    Phase("host_steps", "host_steps", 2.0),
)
BY_NAME = {p.name: p for p in PHASES}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("action", nargs="?", choices=("run", "plan"), default="run")
    p.add_argument(
        "--items", default=",".join(BY_NAME), help="comma-separated, default all: %(default)s"
    )
    p.add_argument("--budget-s", type=float, default=560.0, help="seconds for everything")
    p.add_argument("--out", type=Path, default=Path("measured"), help="folder of the CSV files")
    p.add_argument("--start-from", type=Path, help="folder of earlier CSV files to go on from")
    p.add_argument("--archive", type=Path, help="also pack the CSV files into this .tar.gz")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument(
        "--tiny", action="store_true", help="tiny sizes: tries the scripts, gives no data"
    )
    return p


def chosen(text: str) -> list[Phase]:
    """The phases named in `text`, in order of worth."""
    names = [n.strip() for n in text.split(",") if n.strip()]
    for name in names:
        if name not in BY_NAME:
            raise UserError(
                "command line", "--items", name, "is unknown", f"valid: {', '.join(BY_NAME)}"
            )
    if not names:
        raise UserError(
            "command line", "--items", text, "names nothing", f"valid: {', '.join(BY_NAME)}"
        )
    return [p for p in PHASES if p.name in names]


def share_s(phases: list[Phase], at: int, left_s: float) -> float:
    """Seconds for phase `at`: its weight among those still to come."""
    return left_s * phases[at].weight / sum(p.weight for p in phases[at:])


def command(phase: Phase, options: argparse.Namespace, seconds: float, action: str) -> list[str]:
    """The script's command line."""
    words = [
        sys.executable,
        str(HERE / f"{phase.script}.py"),
        action,
        "--budget-s",
        f"{seconds:.0f}",
        "--out",
        str(options.out),
        "--device",
        options.device,
        *phase.more,
    ]
    return words + (["--tiny"] if options.tiny else [])


def plan(phases: list[Phase], options: argparse.Namespace) -> int:
    """Prints every item's plan within its share (nothing runs, so nothing rolls on)."""
    for phase in phases:
        seconds = max(1.0, options.budget_s * phase.weight / sum(p.weight for p in phases))
        print(f"-- {phase.name}: {seconds:.0f} s of {options.budget_s:g}", flush=True)
        module = importlib.import_module(phase.script)
        words = command(phase, options, seconds, "plan")[2:]
        status = module.runner.main(module.ITEM, words)
        if status:
            return status
    return EXIT_OK


def run(phases: list[Phase], options: argparse.Namespace) -> int:
    """Runs the phases; the worst exit status wins, but an interruption ends the run."""
    budget = Budget(options.budget_s)
    options.out.mkdir(parents=True, exist_ok=True)
    start_from(options)
    worst = EXIT_OK
    log = ClockLog(options.out) if options.device == "cuda" else None
    try:
        for at, phase in enumerate(phases):
            seconds = share_s(phases, at, budget.left_s())
            if seconds < 1.0:
                print(f"run_all: no time left for {phase.name}", file=sys.stderr)
                continue
            print(f"run_all: {phase.name} for {seconds:.0f} s", file=sys.stderr, flush=True)
            status = _one(command(phase, options, seconds, "run"), seconds)
            if status == EXIT_INTERRUPTED:
                return status
            worst = max(worst, status)
    finally:
        if log:
            log.close(options.tiny)
        if options.archive:
            pack(options.out, options.archive)
    print(f"run_all: {budget.used_s():.0f} s, files in {options.out}")
    return worst


def _one(words: list[str], seconds: float) -> int:
    """Runs one process; past its grace it is asked to end, then ended."""
    process = subprocess.Popen(words)
    try:
        return process.wait(seconds + GRACE_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        print(
            f"run_all: {Path(words[1]).name} overran its time and was ended; its rows are kept",
            file=sys.stderr,
        )
        return 3
    except KeyboardInterrupt:  # the child got the signal too and ends after its case
        process.wait()
        return EXIT_INTERRUPTED


def start_from(options: argparse.Namespace) -> None:
    """Copies earlier CSV files into the output folder, where it has none of that name."""
    if options.start_from is None:
        return
    if not options.start_from.is_dir():
        raise UserError(
            "command line",
            "--start-from",
            str(options.start_from),
            "is no folder",
            "leave it out for a first run",
        )
    for path in sorted(options.start_from.glob("*.csv")):
        if not (options.out / path.name).exists():
            shutil.copyfile(path, options.out / path.name)


def pack(folder: Path, archive: Path) -> None:
    """Packs the CSV files of `folder`, complete or not, into one file."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(folder.glob("*.csv")):
            tar.add(path, arcname=path.name)


def main(argv: list[str] | None = None) -> int:
    """Runs to the exit status."""
    options = parser().parse_args(argv)
    try:
        if not options.budget_s > 0:
            raise UserError(
                "command line",
                "--budget-s",
                options.budget_s,
                "must be over 0",
                "give the seconds that the run may take",
            )
        phases = chosen(options.items)
        return plan(phases, options) if options.action == "plan" else run(phases, options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())

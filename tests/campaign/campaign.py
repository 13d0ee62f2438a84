#!/usr/bin/env python3
"""Campaigns: what strangers, disks and machines do to the program, and that it holds.

damage    files cut at every length and with bytes changed: an answer or a message that names the file
bombs     files that unpack to more than their budget, and files without an end
hostile   documents that parsers fall for
values    boundary values of every numeric key of a job
memory    an allocation fails, one or all from there on
threads   the system gives fewer threads than are asked for: the same answer
kills     the program is killed at every call that changes files
disk      the disk is full, the quota is used up, a write is short, a flush fails
repeats   the same job again, with other numbers of threads: one fingerprint
contract  --json - is one document of every command, failures too; no colours in files
typos     mistyped presets and options: the right name is told first

The short form takes seconds and is part of the tests; --full takes hours, --full=0.02 runs that share of its cases.
Usage: campaign.py PROGRAM FAULTS_LIBRARY [--full[=SHARE]] [NAME...]
"""

import pathlib
import subprocess
import sys
import time

import documents
import interface
import machine
import values
from common import Settings

CAMPAIGNS = {
    "damage": documents.damage,
    "bombs": documents.bombs,
    "hostile": documents.hostile,
    "values": values.values,
    "repeats": values.repeats,
    "memory": machine.memory,
    "threads": machine.threads,
    "kills": machine.kills,
    "disk": machine.disk,
    "contract": interface.contract,
    "typos": interface.typos,
}


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("--full")]
    full = [word for word in sys.argv[1:] if word.startswith("--full")]
    share = float(full[0].partition("=")[2] or 1) if full else 1.0
    chosen = words[2:] or list(CAMPAIGNS)
    if len(words) < 2 or any(name not in CAMPAIGNS for name in chosen):
        print(__doc__)
        return 2
    settings = Settings(*(str(pathlib.Path(word).resolve()) for word in words[:2]), bool(full), share)
    if b"__asan_init" in pathlib.Path(settings.program).read_bytes():
        print("campaigns limit memory and load a library first, which ASan does not bear: not run")
        return 0
    if len(chosen) > 1:  # in a process each: what one of them held counts as memory of what the next starts
        failed = sum(subprocess.run([sys.executable, __file__, *words[:2], *full, name], check=False).returncode != 0 for name in chosen)
        print(f"{len(chosen) - failed} passed, {failed} failed")
        return 1 if failed else 0
    began = time.monotonic()
    tally = CAMPAIGNS[chosen[0]](settings)
    tally.note(f"{time.monotonic() - began:.1f} s")
    tally.report()
    return 1 if tally.wrong or tally.cases == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

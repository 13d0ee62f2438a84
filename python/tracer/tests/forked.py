"""Runs `orrery-trace` as often as it is asked, each time in a fork that has PyTorch loaded.

A request is a line of JSON on standard input: `arguments`, `cwd`, the files `out` and `err`, and
the adapter to leave out (`without`). The answer is a line with the exit status. A fork begins as a
process of its own does that has just loaded what `orrery_trace.session.rank` loads first.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from typing import Any

import orrery_trace  # noqa: F401 - before torch
from orrery_trace import cli, session


def run(request: dict[str, Any]) -> None:
    """One command, in a fork."""
    from orrery_trace import adapters

    for output, path in ((1, request["out"]), (2, request["err"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), output)
    os.chdir(request["cwd"])
    adapters.ADAPTERS = tuple(
        a for a in adapters.ADAPTERS if a.__name__.split(".")[-1] != request["without"]
    )
    sys.exit(cli.main(request["arguments"]))


def main() -> None:
    """Answers until standard input ends."""
    session.prepare()
    for line in sys.stdin:
        process = multiprocessing.get_context("fork").Process(target=run, args=(json.loads(line),))
        process.start()
        process.join()
        print(process.exitcode, flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Golden tests of the command line.

A case is a file tests/cli/cases/NAME.golden:

    $ orrery ARGUMENTS            one command, run in tests/cli/inputs; NAME=VALUE may stand before it
    exit STATUS
    stdout or stderr, line by line

Several commands may follow each other. Numbers that differ between machines (wall time, memory) never
stand in a case: cases are about errors and lists. $TMP is an empty folder. ORRERY_UPDATE_GOLDEN=1
rewrites the cases with what the program says now.

Usage: run.py PROGRAM [NAME...]
"""

import difflib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def run(program, command, tmp):
    words = shlex.split(command)
    count = next(i for i, word in enumerate(words) if "=" not in word)
    variables = dict(word.split("=", 1) for word in words[:count])
    words = words[count:]
    assert words[0] == "orrery", command
    arguments = [word.replace("$TMP", tmp) for word in words[1:]]
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "ORRERY_MEASURED": "", **variables}
    done = subprocess.run(
        [program, *arguments],
        cwd=HERE / "inputs",
        env=environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    problems = []
    if "--json -" in command or "--json=-" in command:
        try:
            json.loads(done.stdout)
        except ValueError as error:
            problems.append(f"stdout is not one JSON document: {error}")
    text = done.stdout + done.stderr
    if b"\x1b" in text:
        problems.append("the output holds an escape character")
    shown = text.decode("utf-8", "backslashreplace").replace(tmp, "$TMP")
    return done.returncode, shown, problems


def test(program, path, update):
    golden = path.read_text(encoding="utf-8")
    commands = [line[2:] for line in golden.splitlines() if line.startswith("$ ")]
    actual = []
    problems = []
    with tempfile.TemporaryDirectory() as tmp:
        for command in commands:
            status, text, wrong = run(program, command, tmp)
            actual.append(f"$ {command}\nexit {status}\n{text}")
            problems += [f"{command}: {what}" for what in wrong]
            if status < 0 or status > 3:
                problems.append(f"{command}: ended with {status}")
        left = sorted(p.name for p in pathlib.Path(tmp).iterdir())
        if any(".tmp-" in name for name in left):
            problems.append(f"temporary files stay behind: {left}")
    text = "\n".join(actual)
    if update:
        path.write_text(text, encoding="utf-8")
    elif text != golden:
        difference = difflib.unified_diff(
            golden.splitlines(), text.splitlines(), f"{path.name}", "now", lineterm=""
        )
        problems.append("\n".join(difference))
    return problems


def main():
    program = os.path.abspath(sys.argv[1])
    update = os.environ.get("ORRERY_UPDATE_GOLDEN") == "1"
    chosen = sys.argv[2:]
    cases = sorted((HERE / "cases").glob("*.golden"))
    failed = 0
    count = 0
    for path in cases:
        if chosen and path.stem not in chosen:
            continue
        count += 1
        problems = test(program, path, update)
        if problems:
            failed += 1
            print(f"FAILED {path.stem} (golden)")
            for problem in problems:
                print(problem)
    print(f"{count - failed} cases passed, {failed} failed")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())

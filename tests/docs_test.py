#!/usr/bin/env python3
"""docs/formats/job.md and docs/frameworks.md say what the program says.

Usage: docs_test.py PROGRAM. ORRERY_UPDATE_GOLDEN=1 rewrites them.
"""

import os
import pathlib
import subprocess
import sys

# Of each document: its path, what the program prints it with, the mark of the part.
PARTS = [
    ("formats/job.md", "job-keys", "keys"),
    ("frameworks.md", "framework-pages", "frameworks"),
]


def check(program, path, schema, mark):
    """Returns whether the part is the program's, rewriting it when asked to."""
    said = subprocess.run(
        [program, "schema", schema], capture_output=True, text=True, check=True
    ).stdout
    begin = f"<!-- {mark}: begin (orrery schema {schema}) -->\n"
    end = f"<!-- {mark}: end -->"
    text = path.read_text(encoding="utf-8")
    head, _, rest = text.partition(begin)
    old, _, tail = rest.partition(end)
    if not rest:
        print(f"{path}: the mark {begin.strip()} is missing")
        return False
    if old == said:
        return True
    if os.environ.get("ORRERY_UPDATE_GOLDEN") == "1":
        path.write_text(head + begin + said + end + tail, encoding="utf-8")
        return True
    print(f"{path}: not what the program says; ORRERY_UPDATE_GOLDEN=1 rewrites it")
    return False


def main():
    docs = pathlib.Path(__file__).resolve().parent.parent / "docs"
    passed = [check(sys.argv[1], docs / path, schema, mark) for path, schema, mark in PARTS]
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())

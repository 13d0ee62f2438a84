#!/usr/bin/env python3
"""docs/formats/job.md lists every key of a job file, as the program has them.

Usage: docs_test.py PROGRAM. ORRERY_UPDATE_GOLDEN=1 rewrites the list.
"""

import os
import pathlib
import subprocess
import sys

BEGIN = "<!-- keys: begin (orrery schema job-keys) -->\n"
END = "<!-- keys: end -->"


def main():
    path = pathlib.Path(__file__).resolve().parent.parent / "docs" / "formats" / "job.md"
    keys = subprocess.run(
        [sys.argv[1], "schema", "job-keys"], capture_output=True, text=True, check=True
    ).stdout
    text = path.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    old, _, tail = rest.partition(END)
    if old == keys:
        print("1 passed, 0 failed")
        return 0
    if os.environ.get("ORRERY_UPDATE_GOLDEN") == "1":
        path.write_text(head + BEGIN + keys + END + tail, encoding="utf-8")
        return 0
    print(f"{path}: the list of keys is not the program's; ORRERY_UPDATE_GOLDEN=1 rewrites it")
    return 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Is every row's exported job the run that `validate` predicts? By fingerprint, over a whole table (minutes of CPU;
search_test has a tenth of the rows).

    tests/export_test.py build/release/orrery [TABLE]
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(*arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode != 0 and not done.stdout:  # a plan that does not fit the GPU has an answer, too
        sys.exit(done.stderr)
    return done.stdout


def main():
    program = sys.argv[1]
    table = sys.argv[2] if len(sys.argv) > 2 else os.path.join(ROOT, "validation", "training_measured.csv")
    rows = json.loads(run(program, "validate", table, "--json", "-"))["rows"]
    expected = {r["id"]: r["fingerprint"] for r in rows if "fingerprint" in r}
    with tempfile.TemporaryDirectory() as folder:
        run(program, "validate", table, "--export", folder)

        def differs(row):
            result = json.loads(run(program, "simulate", os.path.join(folder, row + ".yaml"), "--json", "-"))
            if "error" in result:
                return f"{row}: {result['error']['message']}"
            found = result["simulation"]["fingerprint"]
            return None if found == expected[row] else f"{row}: simulate has {found}, validate {expected[row]}"

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            wrong = [line for line in pool.map(differs, expected) if line]
    print("\n".join(wrong + [f"{len(expected) - len(wrong)} of {len(expected)} rows are the same run"]))
    return 1 if wrong or not expected else 0


if __name__ == "__main__":
    sys.exit(main())

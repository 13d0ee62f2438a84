#!/usr/bin/env python3
"""Every job file and trace under examples/ runs to its end. Usage: examples_test.py PROGRAM"""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main():
    program = sys.argv[1]
    examples = ROOT / "examples"
    jobs = sorted(examples.rglob("*.yaml")) + sorted((examples / "traces").iterdir())
    broken = 0
    for job in jobs:
        place = [] if job.suffix == ".yaml" else ["--cluster", "h100-ib-400g"]
        command = [program, "simulate", job, *place]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            broken += 1
            print(f"{job.relative_to(ROOT)}: exit status {run.returncode}\n{run.stderr}")
    astra = examples / "astra-sim"
    files = {"workload": "mlp.txt", "system": "system.json", "network": "network.yml",
             "remote-memory": "memory.json"}
    command = [program, "simulate", "--format", "astra-sim"]
    command += [f"--{kind}-configuration={astra / name}" for kind, name in files.items()]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        broken += 1
        print(f"examples/astra-sim: exit status {run.returncode}\n{run.stderr}")
    jobs.append(astra)
    print(f"{len(jobs) - broken} of {len(jobs)} examples run")
    return 1 if broken or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Every job file and trace under examples/ runs to its end. Usage: examples_test.py PROGRAM"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main():
    program = sys.argv[1]
    examples = ROOT / "examples"
    # Recipes do not say on which cluster they run; recipes_test imports them.
    jobs = [path for path in sorted(examples.rglob("*.yaml")) if path.parent.name != "recipes"]
    jobs += sorted((examples / "traces").iterdir())
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
    traced = sorted(folder for folder in (ROOT / "examples" / "pytorch").iterdir() if folder.is_dir())
    broken += sum(not replays(program, folder) for folder in traced)
    return 1 if broken or not jobs or not traced else 0


def replays(program, folder):
    """Whether the replay takes what the profile says, and what the program's own clock said."""
    run = subprocess.run([program, "simulate", "--strict", folder, "--json", "-"], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        print(f"{folder.relative_to(ROOT)}: exit status {run.returncode}\n{run.stderr}")
        return False
    result = json.loads(run.stdout)
    seconds = result["finish_time_ps"] / 1e12
    clock = json.loads((folder / "measured.json").read_text())["step_seconds"]
    errors = [seconds / measured - 1 for measured in (result["measured_ps"] / 1e12, clock)]
    print(f"{folder.relative_to(ROOT)}: {seconds:.4f} s; {errors[0]:+.2%} of the profile's step, {errors[1]:+.2%} of the clock's")
    return all(abs(error) <= 0.03 for error in errors)


if __name__ == "__main__":
    sys.exit(main())

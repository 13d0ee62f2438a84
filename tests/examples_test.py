#!/usr/bin/env python3
"""Every job file and trace under examples/ runs to its end. Usage: examples_test.py PROGRAM"""

import csv
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def parts_add_up(program, words, whole):
    """Whether every rank's computation, exposed communication, waiting and host add up, to the picosecond, to `whole`: the
    rank's own end ("rank"), the run's ("run") or a step ("step"); and whether JSON says the same of it as CSV."""
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "simulate", *words, "--csv", f"{folder}/ranks.csv", "--json", f"{folder}/result.json"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            print(f"{words}: exit status {run.returncode}\n{run.stderr}")
            return False
        result = json.loads(pathlib.Path(folder, "result.json").read_text())
        with open(f"{folder}/ranks.csv") as lines:
            rows = list(csv.DictReader(lines))
    ranks = result["trace"]["ranks"]
    good = len(rows) == len(ranks)
    for row, rank in zip(rows, ranks):
        row = {name: int(value) for name, value in row.items()}
        parts = sum(row[name] for name in ("compute_ps", "exposed_communication_ps", "waiting_ps", "host_ps"))
        end = row["finish_ps"] if whole == "rank" else result["finish_time_ps" if whole == "run" else "step_time_ps"]
        exposed = sum(value for name, value in rank.items() if name.startswith("exposed_"))
        good &= parts == end and rank["finish_time_ps"] == row["finish_ps"] > 0 and exposed == row["exposed_communication_ps"]
    if not good:
        print(f"{words}: the parts of some rank do not add up")
    return good


def main():
    program = sys.argv[1]
    examples = ROOT / "examples"
    # Recipes do not say on which cluster they run; recipes_test imports them.
    jobs = [path for path in sorted(examples.rglob("*.yaml")) if path.parent.name not in ("recipes", "simai") and path.name != "hosts.yaml"]  # a cluster
    # A folder of traces holds trace.json itself, or folders that do.
    jobs += sorted(path.parent for path in (examples / "traces").rglob("trace.json"))
    broken = 0
    for job in jobs:
        place = [] if job.suffix == ".yaml" else ["--cluster", "h100-ib-400g"]
        command = [program, "simulate", job, *place]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            broken += 1
            print(f"{job.relative_to(ROOT)}: exit status {run.returncode}\n{run.stderr}")
    astra = examples / "astra-sim"
    run = subprocess.run([program, "simulate", *command_of_astra(astra)], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        broken += 1
        print(f"examples/astra-sim: exit status {run.returncode}\n{run.stderr}")
    jobs.append(astra)
    simai = examples / "simai"
    with tempfile.TemporaryDirectory() as suite:
        subprocess.run([sys.executable, simai / "suite.py", suite, "--ga", "8"], check=True)
        for name in ("5-gpt-175b-sp", "10-mixtral-8x7b"):
            command = [program, "simulate", "--format", "simai", "-w", f"{suite}/{name}.txt", "-g", "128", "-g_p_s", "8", "-busbw", simai / "busbw.yaml"]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode != 0:
                broken += 1
                print(f"examples/simai, {name}: exit status {run.returncode}\n{run.stderr}")
            jobs.append(name)
        step = f"{suite}/5-gpt-175b-sp.txt"
        broken += not parts_add_up(program, [step, "--cluster", "a100-80g-ib-200g"], "run")
    broken += not parts_add_up(program, command_of_astra(astra), "rank")
    broken += not parts_add_up(program, [examples / "pytorch" / "ddp-2"], "run")
    broken += not parts_add_up(program, [examples / "traces" / "ddp", "--cluster", "h100-ib-400g"], "step")
    print(f"{len(jobs) - broken} of {len(jobs)} examples run")
    broken += not links(program, examples / "pytorch" / "ddp-2")
    traced = sorted(folder for folder in (ROOT / "examples" / "pytorch").iterdir() if folder.is_dir())
    broken += sum(not replays(program, folder) for folder in traced)
    return 1 if broken or not jobs or not traced else 0


def command_of_astra(folder):
    files = {"workload": "mlp.txt", "system": "system.json", "network": "network.yml",
             "remote-memory": "memory.json"}
    return ["--format", "astra-sim", *(f"--{kind}-configuration={folder / name}" for kind, name in files.items())]


def links(program, folder):
    """Whether host and device traces, linked to Chakra ones, replay as they do themselves: with communication as measured, and
    priced on a cluster."""
    with tempfile.TemporaryDirectory() as out:
        files = [*sorted(folder.glob("kineto-*")), *sorted(folder.glob("et-*"))]
        linked = f"{out}/linked"
        good = subprocess.run([program, "convert", *files, "-o", linked, "--to", "chakra"], capture_output=True, check=False).returncode == 0
        for place in ([], ["--cluster", "h100-ib-400g"]):
            ends = []
            for trace in (folder, linked):
                run = subprocess.run([program, "simulate", trace, *place, "--json", "-"], capture_output=True, text=True, check=False)
                ends.append(json.loads(run.stdout).get("finish_time_ps", 0) if run.returncode == 0 else 0)
            print(f"{folder.relative_to(ROOT)}, linked: {ends[1] / 1e12:.4f} s, itself {ends[0] / 1e12:.4f} s")
            good &= ends[0] > 0 and abs(ends[1] / ends[0] - 1) < 1e-3
    return good


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

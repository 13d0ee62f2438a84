#!/usr/bin/env python3
"""Writes the tables of errors in docs/validation.md and README.md anew, between their markers, and the causes of the worst
rows by validation/diagnoses.csv.

    tools/fit/tables.py --orrery build/release/orrery
"""

import argparse
import csv
import functools
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def number(x, signed=False):
    if x is None:
        return "-"
    return f"{x:+.1f}" if signed else f"{x:.1f}"


@functools.lru_cache(None)
def whole_report(program, table, *options):
    done = subprocess.run([program, "validate", os.path.join(ROOT, "validation", table), "--json", "-", *options],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def report(program, table, *options):
    return whole_report(program, table, *options)["summary"]


def strata(program):
    lines = ["| stratum | rows | coverage | mean, left out | mean (in sample) | bias | median | a priori: mean | in the 80 % interval | "
             "noise floor |", "|---|---|---|---|---|---|---|---|---|---|"]
    for table in ("training_measured.csv", "nccl_measured.csv"):
        fitted = report(program, table, "--leave-out")["by_stratum"]
        prior = {(g["stratum"], g["quantity"]): g for g in report(program, table, "--constants", "prior")["by_stratum"]}
        for g in fitted:
            before = prior[(g["stratum"], g["quantity"])]["mean_abs_error_pct"]
            floor = f"{g['noise_floor_pct']:.1f} ({g['repeated_rows']} rows)" if g["repeated_rows"] else "-"
            inside = "-" if g["in_interval"] is None else f"{100 * g['in_interval']:.0f} %"
            left_out = g.get("left_out", {}).get("mean_abs_error_pct")
            lines.append(f"| {g['stratum']} | {g['rows']} | {100 * g['coverage']:.0f} % | {number(left_out)} | "
                         f"{number(g['mean_abs_error_pct'])} | {number(g['bias_pct'], True)} | {number(g['median_abs_error_pct'])} | "
                         f"{number(before)} | {inside} | {floor} |")
    return "\n".join(lines) + "\n"


# What README shows: stratum, in a reader's words.
SHOWN = [
    ("dense Hopper+", "step time, dense models on H100 and later"),
    ("dense A100", "step time, dense models on A100"),
    ("fsdp/zero3", "step time, FSDP and ZeRO-3"),
    ("moe", "step time, models with experts"),
    ("one node, small", "step time, at most 8 GPUs"),
    ("memory torch_allocated", "peak memory that PyTorch allocates"),
]


def shown(program):
    """The strata of step times, and of memory the best known, for README."""
    groups = {g["stratum"]: g for g in report(program, "training_measured.csv", "--leave-out")["by_stratum"]}
    lines = ["| what | measured rows | predicted | mean error, left out | median, in sample | in the 80 % interval |", "|---|---|---|---|---|---|"]
    for stratum, words in SHOWN:
        g = groups[stratum]
        lines.append(f"| {words} | {g['rows']} | {100 * g['coverage']:.0f} % | {number(g['left_out']['mean_abs_error_pct'])} % | "
                     f"{number(g['median_abs_error_pct'])} % | {100 * g['in_interval']:.0f} % |")
    return "\n".join(lines) + "\n"


def diagnoses():
    """Row to (cause, what is known): validation/diagnoses.csv, "coll-7..9" for rows 7 to 9 of the collectives."""
    known = {}
    with open(os.path.join(ROOT, "validation", "diagnoses.csv"), newline="") as f:
        for r in csv.DictReader(f):
            for name in r["rows"].split():
                table, _, numbers = name.rpartition("-")
                first, _, last = numbers.partition("..")
                names = [f"{table}-{i}" for i in range(int(first), int(last) + 1)] if last else [name]
                known.update({n: (r["cause"], r["what is known"]) for n in names})
    return known


def worst(program, most=30):
    """How many of the rows farthest off in sample have which cause, and how far they are off."""
    known, counts = diagnoses(), {}
    for column, (table, prefix) in enumerate((("training_measured.csv", ""), ("nccl_measured.csv", "coll-"))):
        rows = whole_report(program, table, "--leave-out")["rows"]
        everything = {prefix + p["id"] for p in rows}
        unknown = [n for n in known if n.startswith("coll-") == (prefix == "coll-") and n not in everything]
        if unknown:
            sys.exit(f"validation/diagnoses.csv: {unknown[0]}: no row of {table}")
        wrong = [p for p in rows if p["error_pct"] is not None]
        for p in sorted(wrong, key=lambda p: -abs(p["error_pct"]))[:most]:
            cause, _ = known.get(prefix + p["id"], ("not known", ""))
            counts.setdefault(cause, ([], []))[column].append(p["error_pct"])
    said = lambda errors: f"{len(errors)}: {min(errors):+.0f} to {max(errors):+.0f} %" if errors else ""
    body = [f"| {cause} | {said(steps)} | {said(collectives)} |" for cause, (steps, collectives) in counts.items()]
    head = [f"| cause | {most} steps and peaks of memory | {most} collectives |", "|---|---|---|"]
    return "\n".join([*head, *body]) + "\n"


# What two rows have in common that differ in the plan alone, and the plan.
JOB_COLUMNS = ("source", "model", "layers", "hidden", "seq_len", "gpu", "gpus", "global_batch", "precision", "framework_family",
               "framework_version", "task", "network")
PLAN_COLUMNS = ("tp", "pp", "vpp", "cp", "ep", "dp", "sharding", "seq_parallel", "recompute", "micro_batch", "zero_group", "offload",
                "grad_accum", "dp_overlap", "tp_comm_overlap", "ep_overlap")


def ranked_groups(program):
    """Rows that differ in the plan alone, as (source, job, [(plan, measured, in sample, left out)]); repeated runs of a plan as their mean."""
    path = os.path.join(ROOT, "validation", "training_measured.csv")
    with open(path, newline="") as f:
        rows = {r["id"]: r for r in csv.DictReader(f)}
    jobs = {}
    for p in whole_report(program, "training_measured.csv", "--leave-out")["rows"]:
        if p["quantity"] != "step_time_s" or p["error_pct"] is None:
            continue
        r = rows[p["id"]]
        plans = jobs.setdefault(tuple(r[c] for c in JOB_COLUMNS), {"source": p["source"], "job": r, "plans": {}})["plans"]
        plans.setdefault(tuple(r[c] for c in PLAN_COLUMNS), []).append((p["measured"], p["predicted"], p["left_out"]["predicted"]))
    mean = lambda runs: tuple(sum(run[i] for run in runs) / len(runs) for i in range(3))
    for g in jobs.values():
        if len(g["plans"]) > 1:
            yield g["source"], g["job"], [(plan, *mean(runs)) for plan, runs in g["plans"].items()]


def ranking(program):
    """Is the plan predicted best near the best measured? By source."""
    groups = list(ranked_groups(program))
    best = lambda plans, at: min(plans, key=lambda x: x[at])
    loss = lambda plans, at: best(plans, at)[1] / best(plans, 1)[1] - 1
    lines = ["| rows | groups | plans | best within 3 %, left out | in sample | mean loss, left out |", "|---|---|---|---|---|---|"]
    for source in [*sorted({g[0] for g in groups}), "all"]:
        own = [plans for name, _, plans in groups if source in (name, "all")]
        within = lambda at: 100 * sum(loss(plans, at) <= 0.03 for plans in own) / len(own)
        lines.append(f"| {source} | {len(own)} | {sum(map(len, own))} | {within(3):.0f} % | {within(2):.0f} % | "
                     f"{100 * sum(loss(plans, 3) for plans in own) / len(own):.1f} % |")
    misses = {}
    for source, _, plans in groups:
        if loss(plans, 3) > 0.03:
            misses.setdefault(source, []).append(f"{100 * loss(plans, 3):.1f}")
    lines += ["", "Losses above 3 %, left out: " + "; ".join(f"{source} {', '.join(said)} %" for source, said in misses.items()) + "."]
    return "\n".join(lines) + "\n"


def replace(path, marker, body):
    path = os.path.join(ROOT, path)
    with open(path) as f:
        text = f.read()
    begin, end = f"<!-- {marker}: begin (tools/fit/tables.py) -->\n", f"<!-- {marker}: end -->"
    head, found, rest = text.partition(begin)
    if not found:
        sys.exit(f"{path}: no line {begin.strip()}")
    _, _, tail = rest.partition(end)
    with open(path, "w") as f:
        f.write(head + begin + body + end + tail)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orrery", default=os.path.join(ROOT, "build", "release", "orrery"))
    program = parser.parse_args().orrery
    replace("docs/validation.md", "strata", strata(program))
    replace("README.md", "errors", shown(program))
    replace("docs/validation.md", "ranking", ranking(program))
    replace("docs/validation.md", "worst", worst(program))


if __name__ == "__main__":
    main()

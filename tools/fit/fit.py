#!/usr/bin/env python3
"""Refits every constant of data/constants/constants.csv to the measured tables, and checks that the files are current.

    tools/fit/fit.py --orrery build/release/orrery            # refit: writes data/constants/*.csv and fit.json
    tools/fit/fit.py --orrery build/release/orrery --only A B # these alone, the others stay
    tools/fit/fit.py --orrery build/release/orrery --spreads  # after a rebuild: writes data/constants/spreads.csv
    tools/fit/fit.py --orrery build/release/orrery --check    # are the files what this would write? one validate run a table

What is minimised, over u = (value - prior) / spread of every constant inside its range:

    sum over rows of weight * Cauchy(ln(predicted / measured) / sigma)  +  sum of u^2 / 2,   Cauchy(z) = k^2/2 ln(1 + (z/k)^2)

sigma is how far a right model may be off a row (SIGMA). Tables of one log are one source.
Rows of one source and stratum err together, so n of them
count as n / (1 + CORRELATION (n - 1)). Gauss-Newton: the program gives each row's derivatives (validate --sensitivities),
Cauchy's weights are iterated, a step is halved until the true objective falls. A constant that rows of one source alone depend
on stays at its prior. Left-out constants come from the same normal equations without that source's rows, linearised at
the fit. Needs numpy (--check does not); nothing is random.
"""

import argparse
import csv
import hashlib
import io
import json
import math
import os
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:  # --check does without
    np = None

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(ROOT, "data", "constants")
TABLES = [os.path.join(ROOT, "validation", name) for name in ("training_measured.csv", "nccl_measured.csv")]
SIGMA = {"collectives >= 1 MB": 0.08, "collectives < 1 MB": 0.12, "moe": 0.12}
SIGMA_TRAINING = 0.06
CORRELATION = 0.1
CAUCHY = 3.0  # in sigmas: a row that far off pulls hardest, one farther off less again
LOW_TRUST = 0.05  # weight of rows whose `trust` says low
ROWS_PER_SOURCE = 120
SEEN = 0.004  # a row depends on a constant if a spread of it moves the row by as much
REUSE = 0.3  # largest step, in spreads, after which derivatives are kept
OBJECTIVE_TOLERANCE = 0.1  # of --check: how much worse, relative


class Constants:
    def __init__(self):
        path = os.path.join(DATA, "constants.csv")
        with open(path, newline="") as f:
            self.rows = list(csv.DictReader(f))
        self.names = [r["name"] for r in self.rows]
        for r in self.rows:
            if not (float(r["spread"]) > 0 and float(r["low"]) <= float(r["prior"]) <= float(r["high"])):
                sys.exit(f"{path}: {r['name']}: a spread must be positive and a prior inside its range")
        if np is not None:
            get = lambda key: np.array([float(r[key]) for r in self.rows])
            self.prior, self.low, self.high, self.spread = get("prior"), get("low"), get("high"), get("spread")
            self.fitted = get("fitted")

    def lower(self):
        return (self.low - self.prior) / self.spread

    def upper(self):
        return (self.high - self.prior) / self.spread

    def value(self, u):
        return np.clip(self.prior + u * self.spread, self.low, self.high)

    def a_priori_hash(self):
        keys = ("name", "id", "prior", "low", "high", "spread", "scope")
        return hashlib.sha256("\n".join(",".join(r[k] for k in keys) for r in self.rows).encode()).hexdigest()


class Rows:
    """One line per predicted row: what was measured, what is predicted, how it moves."""

    def __init__(self, table_texts, trust, names):
        self.id, self.source, self.stratum, self.log_error, self.jacobian, self.trust = [], [], [], [], [], []
        for text in table_texts:
            for r in csv.DictReader(io.StringIO(text)):
                self.id.append(r["id"])
                self.source.append(r["log"])
                self.stratum.append(r["stratum"])
                self.log_error.append(np.log(float(r["predicted"]) / float(r["measured"])))
                self.jacobian.append([float(r[n]) for n in names])
                self.trust.append(LOW_TRUST if trust.get(r["id"]) == "low" else 1.0)
        self.log_error, self.jacobian = np.array(self.log_error), np.array(self.jacobian)
        self.sigma = np.array([SIGMA.get(s, SIGMA_TRAINING) for s in self.stratum])
        count = {}
        for key in zip(self.source, self.stratum):
            count[key] = count.get(key, 0) + 1
        n = np.array([count[key] for key in zip(self.source, self.stratum)])
        self.weight = np.array(self.trust) / (1 + CORRELATION * (n - 1))


def thinned(table, most):
    """Text of a table without memory and what is not measured, and with at most `most` rows of each source, evenly
    spaced in file order: the time of a refit goes with its rows, what more of one source add falls (CORRELATION)."""
    with open(table, newline="") as f:
        lines = list(csv.reader(f))
    header, lines = lines[0], lines[1:]
    if "id" not in header:
        return None
    lines = [line for line in lines if line[header.index("step_time_s")]]
    for line in lines:
        for column in ("peak_mem_gib", "mem_kind", "mem_rank"):
            line[header.index(column)] = ""
    groups = {}
    for line in lines:
        source = re.sub(r"[0-9].*", "", line[header.index("id")])
        groups.setdefault(source, []).append(line)
    kept = io.StringIO()
    writer = csv.writer(kept, lineterminator="\n")
    writer.writerow(header)
    for group in groups.values():
        n = min(most, len(group))
        writer.writerows(group[i * len(group) // n] for i in range(n))
    return kept.getvalue()


class Program:
    def __init__(self, path, rows_per_source):
        self.path = path
        self.tables = []
        for table in TABLES:
            text = thinned(table, rows_per_source)
            if text is None:
                self.tables.append(table)
                continue
            f = tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False)
            f.write(text)
            f.close()
            self.tables.append(f.name)

    def constants_file(self, constants, u):
        f = tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False)
        for name, value in zip(constants.names, constants.value(u)):
            f.write(f"{name},{float(value)!r}\n")
        f.close()
        return f.name

    def call(self, arguments):
        done = subprocess.run([self.path, "validate", *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{self.path} validate {' '.join(arguments)}\n{done.stderr}")
        return done.stdout

    def sensitivities(self, constants, u):
        at = self.constants_file(constants, u)
        texts = []
        for table in self.tables:
            out = tempfile.mktemp(suffix=".csv")
            self.call([table, "--constants", at, "--sensitivities", out])
            with open(out) as f:
                texts.append(f.read())
            os.unlink(out)
        os.unlink(at)
        return texts

    def differences(self, constants, u, only):
        """As `sensitivities`, of a few constants: one run of the tables each. Those of the others are 0."""
        def predictions(at):
            rows = {}
            for t, report in enumerate(self.reports(constants, at)):
                for r in report["rows"]:
                    if r["error_pct"] is not None and r["quantity"] != "peak_mem_gib":
                        rows[(t, r["id"])] = r
            return rows
        base = predictions(u)
        moved = {}
        for i in only:
            to = u.copy()
            to[i] += 0.5 if u[i] + 0.5 <= constants.upper()[i] else -0.5
            moved[i] = (to[i] - u[i], predictions(to))
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["id", "log", "stratum", "measured", "predicted", *constants.names])
        for key, r in base.items():
            line = [0.0] * len(constants.names)
            for i, (step, rows) in moved.items():
                if key in rows:
                    line[i] = math.log(rows[key]["predicted"] / r["predicted"]) / step
            writer.writerow([r["id"], r["log"], r["stratum"], r["measured"], r["predicted"], *line])
        return [out.getvalue()]

    def reports(self, constants, u):
        at = self.constants_file(constants, u)
        reports = [json.loads(self.call([table, "--constants", at, "--json", "-"])) for table in self.tables]
        os.unlink(at)
        return reports

    def log_errors(self, constants, u):
        errors = {}
        for table, report in enumerate(self.reports(constants, u)):
            for r in report["rows"]:
                if r["error_pct"] is not None and r["quantity"] != "peak_mem_gib":
                    errors[(table, r["id"])] = np.log(r["predicted"] / r["measured"])
        return np.array(list(errors.values()))


def cauchy(z):
    return 0.5 * CAUCHY**2 * np.log1p((z / CAUCHY) ** 2)


def objective(rows, log_error, u):
    return float(np.sum(rows.weight * cauchy(log_error / rows.sigma)) + 0.5 * np.sum(u * u))


def bounded_solve(a, b, lower, upper, free):
    """min 1/2 x'ax - b'x inside bounds, over the free entries; the others keep 0. Projected coordinate descent."""
    x = np.zeros(len(b))
    index = np.flatnonzero(free)
    for _ in range(2000):
        moved = 0.0
        for i in index:
            step = (b[i] - a[i] @ x) / a[i, i]
            to = min(max(x[i] + step, lower[i]), upper[i])
            moved = max(moved, abs(to - x[i]))
            x[i] = to
        if moved < 1e-10:
            break
    return x


def normal_equations(rows, log_error, keep):
    z = log_error / rows.sigma
    robust = 1 / (1 + (z / CAUCHY) ** 2)
    w = rows.weight * robust * keep / rows.sigma**2
    return rows.jacobian.T @ (rows.jacobian * w[:, None]), rows.jacobian.T @ (w * log_error)


def solve(constants, rows, at, log_error, keep, free, rounds=12):
    """The linearised problem around `at`, with Cauchy's weights iterated: the new u."""
    u = at.copy()
    for _ in range(rounds):
        here = log_error + rows.jacobian @ (u - at)
        a, g = normal_equations(rows, here, keep)
        a = a + np.eye(len(u))
        # gradient of the whole at u is g + u; in terms of x = new u: a x = (a - I) u - g
        b = (a - np.eye(len(u))) @ u - g
        new = np.where(free, bounded_solve(a, b, constants.lower(), constants.upper(), free), at)
        if np.max(np.abs(new - u)) < 1e-6:
            return new
        u = new
    return u


def sources_seeing(rows):
    seen = [set() for _ in range(rows.jacobian.shape[1])]
    for source, line in zip(rows.source, rows.jacobian):
        for i in np.flatnonzero(np.abs(line) > SEEN):
            seen[i].add(source)
    return seen


def read_trust():
    trust = {}
    with open(TABLES[0], newline="") as f:
        for r in csv.DictReader(f):
            trust[r["id"]] = r["trust"]
    return trust


def read_facts():
    with open(os.path.join(DATA, "fit.json")) as f:
        return json.load(f)


def read_left_out(constants):
    """Vectors of the last fit, by source."""
    with open(os.path.join(DATA, "left_out.csv"), newline="") as f:
        rows = list(csv.DictReader(f))
    value = lambda r: np.array([float(r.get(n, prior)) for n, prior in zip(constants.names, constants.prior)])
    return {r["source"]: (value(r) - constants.prior) / constants.spread for r in rows}


def read_covariance(constants):
    with open(os.path.join(DATA, "covariance.csv"), newline="") as f:
        rows = {r["constant"]: r for r in csv.DictReader(f)}
    return np.array([[float(rows[a][b]) if a in rows and b in rows else float(a == b) for b in constants.names] for a in constants.names])


def inputs_hash(constants):
    h = {os.path.basename(t): hashlib.sha256(open(t, "rb").read()).hexdigest() for t in TABLES}
    h["a_priori"] = constants.a_priori_hash()
    settings = [SIGMA, SIGMA_TRAINING, CORRELATION, CAUCHY, LOW_TRUST, ROWS_PER_SOURCE, SEEN]
    h["settings"] = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    return h


def write_files(constants, u, covariance, left_out, facts):
    quoted = lambda text: f'"{text}"'
    number = lambda x: f"{float(x):.6g}"
    with open(os.path.join(DATA, "constants.csv"), "w") as f:
        f.write('"name",id,prior,low,high,spread,fitted,fitted_spread,"unit","scope","explains","source"\n')
        for i, r in enumerate(constants.rows):
            spread = constants.spread[i] * float(np.sqrt(covariance[i, i]))
            fields = [quoted(r["name"]), r["id"], r["prior"], r["low"], r["high"], r["spread"],
                      number(constants.value(u)[i]), number(spread)]
            f.write(",".join(fields + [quoted(r[k]) for k in ("unit", "scope", "explains", "source")]) + "\n")
    header = ",".join(quoted(n) for n in constants.names)
    with open(os.path.join(DATA, "left_out.csv"), "w") as f:
        f.write('"source",' + header + "\n")
        for source, vector in left_out.items():
            f.write(quoted(source) + "," + ",".join(number(x) for x in constants.value(vector)) + "\n")
    with open(os.path.join(DATA, "covariance.csv"), "w") as f:
        f.write('"constant",' + header + "\n")
        for name, line in zip(constants.names, covariance):
            f.write(quoted(name) + "," + ",".join(f"{x:.5g}" for x in line) + "\n")
    with open(os.path.join(DATA, "fit.json"), "w") as f:
        json.dump(facts, f, indent=1)
        f.write("\n")


def fit(program, constants, passes, only):
    trust = read_trust()
    u = np.clip((constants.fitted - constants.prior) / constants.spread, constants.lower(), constants.upper())
    chosen = np.array([not only or n in only for n in constants.names])
    def derivatives():
        return program.differences(constants, u, np.flatnonzero(chosen)) if only else program.sensitivities(constants, u)
    small, seen = False, None
    for number in range(passes):
        rows = Rows(derivatives(), trust, constants.names)
        everything = np.ones(len(rows.log_error))
        if seen is None:  # which constants may move is settled once, where the fit begins
            seen = sources_seeing(rows)
            free = np.array([len(s) >= 2 for s in seen]) & chosen
            fixed = chosen & ~free
            if np.any(np.abs(u[fixed]) > 1e-9):  # what an earlier fit had more sources for
                u = np.where(fixed, 0.0, u)
                continue
        now = objective(rows, rows.log_error, u)
        target = solve(constants, rows, u, rows.log_error, everything, free)
        step, best = 1.0, now
        while step > 0.1:
            trial = u + step * (target - u)
            errors = program.log_errors(constants, trial)
            value = objective(rows, errors, trial) if len(errors) == len(rows.log_error) else np.inf
            print(f"pass {number}: objective {now:.2f}, step {step:g}: {value:.2f}", flush=True)
            if value < best:
                break
            step /= 2
        if not value < best:
            small = True  # these derivatives are at u
            break
        small = float(np.max(np.abs(trial - u))) < REUSE
        u = trial
        rows.log_error = errors  # the derivatives still hold after a small step
        if best - value < 0.005 * best and small:
            break
    if not small:
        rows = Rows(derivatives(), trust, constants.names)
    everything = np.ones(len(rows.log_error))
    a, _ = normal_equations(rows, rows.log_error, everything)
    covariance = np.linalg.inv(a + np.eye(len(u)))
    kept, kept_covariance = read_left_out(constants), read_covariance(constants)
    covariance = np.where(np.outer(chosen, chosen), covariance, np.where(np.outer(~chosen, ~chosen), kept_covariance, 0.0))
    left_out = {}
    anchor = solve(constants, rows, u, rows.log_error, everything, free)
    for source in dict.fromkeys(rows.source):
        keep = np.array([s != source for s in rows.source], dtype=float)
        others = np.array([len(s - {source}) >= 2 for s in seen]) & chosen
        # Relative to the linearised fit with all rows, so that leaving nothing out gives the fit itself.
        without = solve(constants, rows, u, rows.log_error, keep, others)
        new = np.clip(np.where(others, u + (without - anchor), 0.0), constants.lower(), constants.upper())
        left_out[source] = np.where(chosen, new, kept.get(source, u))
    facts = {
        "inputs": inputs_hash(constants),
        "rows": len(rows.log_error),
        "objective": round(objective(rows, rows.log_error, u), 4),
        "largest_linear_step": round(float(np.max(np.abs(anchor - u))), 4),
        "at_prior_for_want_of_sources": [n for n, f_ in zip(constants.names, fixed) if f_] + [
            n for n in read_facts()["at_prior_for_want_of_sources"] if n not in constants.names or not chosen[constants.names.index(n)]],
    }
    write_files(constants, u, covariance, left_out, facts)
    for i, name in enumerate(constants.names):
        print(f"{name:32s} {constants.prior[i]:11.4g} -> {constants.value(u)[i]:11.4g}   u {u[i]:+.2f} +- "
              f"{np.sqrt(covariance[i, i]):.2f}  sources {len(seen[i])}")
    print(json.dumps(facts["objective"]))
    return 0


SPREAD_PARTS = ["kernels", "host", "communication", "waiting", "experts", "base", "collective_fixed", "collective_transfer", "memory_tensors",
                "memory_allocator", "memory_outside"]
SPREAD_RANGE = (0.005, 1.5)
COVERAGE_PULL = 4.0  # weight of (coverage of a stratum - 0.8)^2, in rows


def fit_spreads(program):
    """data/constants/spreads.csv from the errors left out: maximum likelihood of a Laplace distribution whose scale is
    made of the parts' shares, pulled towards 80 % coverage of every stratum. Pattern search, nothing random."""
    path = os.path.join(DATA, "spreads.csv")
    with open(path, newline="") as f:
        entries = list(csv.DictReader(f))
    errors, shares, strata, sources = [], [], [], []
    for table in TABLES:
        for r in json.loads(program.call([table, "--leave-out", "--json", "-"]))["rows"]:
            if r["error_pct"] is None:
                continue
            predicted = r["left_out"]["predicted"] if "left_out" in r else r["predicted"]
            errors.append(abs(np.log(predicted / r["measured"])))
            part = r["shares"]
            line = [part.get(n, 0.0) for n in SPREAD_PARTS]
            if "kernels" in part:
                line[SPREAD_PARTS.index("base")] = 1.0
            if "fixed" in part:
                line[SPREAD_PARTS.index("collective_fixed")] = part["fixed"]
                line[SPREAD_PARTS.index("collective_transfer")] = 1 - part["fixed"]
            shares.append(line)
            strata.append(r["stratum"])
            sources.append((r["log"], strata[-1]))
    errors, shares = np.array(errors), np.array(shares)
    count = {k: sources.count(k) for k in set(sources)}
    weight = np.array([1 / (1 + CORRELATION * (count[k] - 1)) for k in sources])
    members = [np.array([s == name for s in strata]) for name in dict.fromkeys(strata)]

    def cost(spreads):
        scale = np.sqrt((shares**2) @ (spreads**2))
        value = float(np.sum(weight * (np.log(scale) + errors / scale)))
        inside = errors <= scale * np.log(5)
        for m in members:
            value += COVERAGE_PULL * m.sum() * (inside[m].mean() - 0.8) ** 2
        return value

    spreads = np.array([float(e["value"]) for e in entries])
    best, step = cost(spreads), 1.5
    while step > 1.01:
        moved = False
        for i in range(len(spreads)):
            for factor in (step, 1 / step):
                trial = spreads.copy()
                trial[i] = min(max(trial[i] * factor, SPREAD_RANGE[0]), SPREAD_RANGE[1])
                value = cost(trial)
                if value < best - 1e-9:
                    spreads, best, moved = trial, value, True
        if not moved:
            step = step**0.7
    with open(path, "w") as f:
        f.write('"name",id,value,"explains"\n')
        for e, value in zip(entries, spreads):
            f.write(f'"{e["name"]}",{e["id"]},{value:.4g},"{e["explains"]}"\n')
            print(f'{e["name"]:22s} {value:.4g}')
    scale = np.sqrt((shares**2) @ (spreads**2))
    for name, m in zip(dict.fromkeys(strata), members):
        print(f"{name:28s} rows {m.sum():4d}  inside {100 * np.mean(errors[m] <= scale[m] * np.log(5)):.0f} %")
    return 0


def objective_of_shipped(program, constants):
    """The objective with the constants that are built in, in plain Python."""
    trust = read_trust()
    rows = []
    for table in program.tables:
        for r in json.loads(program.call([table, "--json", "-"]))["rows"]:
            if r["error_pct"] is not None and r["quantity"] != "peak_mem_gib":
                rows.append(r)
    count = {}
    for r in rows:
        count[(r["log"], r["stratum"])] = count.get((r["log"], r["stratum"]), 0) + 1
    total = 0.0
    for r in rows:
        z = abs(math.log(r["predicted"] / r["measured"])) / SIGMA.get(r["stratum"], SIGMA_TRAINING)
        weight = LOW_TRUST if trust.get(r["id"]) == "low" else 1.0
        weight /= 1 + CORRELATION * (count[(r["log"], r["stratum"])] - 1)
        total += weight * 0.5 * CAUCHY**2 * math.log1p((z / CAUCHY) ** 2)
    for r in constants.rows:
        total += 0.5 * ((float(r["fitted"]) - float(r["prior"])) / float(r["spread"])) ** 2
    return total


def check(program, constants):
    facts = read_facts()
    bad = []
    for name, digest in inputs_hash(constants).items():
        if facts["inputs"].get(name) != digest:
            bad.append(f"{name} is not the one that was fitted")
    value = objective_of_shipped(program, constants)
    print(f"objective {value:.2f}, {facts['objective']:.2f} when fitted")
    if value > facts["objective"] * (1 + OBJECTIVE_TOLERANCE):
        bad.append(f"the objective is {value:.2f}, was {facts['objective']:.2f} when fitted: a model changed since")
    for line in bad:
        print("data/constants:", line)
    if bad:
        print("remedy: tools/fit/fit.py --orrery build/release/orrery, and commit data/constants")
    print(f"{0 if bad else 1} passed, {1 if bad else 0} failed")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orrery", default=os.path.join(ROOT, "build", "release", "orrery"))
    parser.add_argument("--passes", type=int, default=4, help="Gauss-Newton steps at most")
    parser.add_argument("--only", nargs="*", default=[], help="names of constants: the others stay as they are")
    parser.add_argument("--from-prior", action="store_true", help="start at the a-priori values")
    parser.add_argument("--spreads", action="store_true", help="fit the intervals' spreads, after a rebuild with the fit")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if np is None and not arguments.check:
        sys.exit("fit.py needs numpy: pip install numpy")
    constants = Constants()
    if unknown := set(arguments.only) - set(constants.names):
        sys.exit(f"--only: no constant {', '.join(sorted(unknown))}; names stand in data/constants/constants.csv")
    if arguments.from_prior:
        constants.fitted = constants.prior.copy()
    program = Program(arguments.orrery, ROWS_PER_SOURCE)
    if arguments.spreads:
        return fit_spreads(program)
    return check(program, constants) if arguments.check else fit(program, constants, arguments.passes, set(arguments.only))


if __name__ == "__main__":
    sys.exit(main())

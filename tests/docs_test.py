#!/usr/bin/env python3
"""docs/formats/job.md, docs/frameworks.md, docs/validation.md's columns and README's first answer say what the program says; the tests that
docs/cases.md names exist; 'orrery list constants' has every constant; links between pages lead
somewhere, docs/README.md names every page, and commands have verbs and options that there are.

Usage: docs_test.py PROGRAM. ORRERY_UPDATE_GOLDEN=1 rewrites them.
"""

import csv
import json
import os
import pathlib
import re
import subprocess
import sys

# Of each document: its path, what the program prints it with, the mark of the part.
PARTS = [
    ("formats/job.md", "job-keys", "keys"),
    ("frameworks.md", "frameworks", "frameworks"),
    ("recipes.md", "recipes", "recipes"),
    ("validation.md", "columns", "columns"),
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


def check_answer(program, root):
    """Returns whether README's first answer is the program's, but for what it leaves out ("…") and what changes
    from run to run; rewrites its lines when asked to, by what they begin with."""
    readme = root / "README.md"
    job = root / "examples" / "llama3.1-405b-16k-h100.yaml"
    said = subprocess.run([program, "simulate", job], capture_output=True, text=True, check=True).stdout
    words = " ".join(said.split())
    text = readme.read_text(encoding="utf-8")
    head, _, rest = text.partition("$ ./run\n")
    answer, _, tail = rest.partition("```")
    lines, wrong = answer.splitlines(), []
    for i, line in enumerate(lines):
        if line.strip() in ("", "…") or "wall time" in line or " ".join(line.split()) in words:
            continue
        wrong.append(line)
        begins = re.match(r"\s*\S.*?\s{2,}|.*", line)[0]
        lines[i] = next((now for now in said.splitlines() if now.startswith(begins)), line)
    if wrong and os.environ.get("ORRERY_UPDATE_GOLDEN") == "1":
        readme.write_text(head + "$ ./run\n" + "\n".join(lines) + "\n```" + tail, encoding="utf-8")
        return True
    for line in wrong:
        print(f"{readme}: not what the program says: {line}")
    return not wrong and bool(answer)


def check_constants(program, root):
    """Returns whether 'orrery list constants', to which the pages send a reader, has every constant that the fit may
    move, and a source of each."""
    said = subprocess.run([program, "list", "constants", "--json", "-"], capture_output=True, text=True, check=True).stdout
    entries = {e["name"]: e["description"] for e in json.loads(said)["entries"]}
    with open(root / "data/constants/constants.csv", newline="", encoding="utf-8") as file:
        fitted = [row["name"] for row in csv.DictReader(file)]
    missing = [name for name in fitted if name not in entries]
    missing += [name for name, text in entries.items() if not re.search(r"(A priori|Source): \S", text)]
    for name in missing:
        print(f"orrery list constants: {name} is missing, or has no source")
    return not missing and len(entries) > len(fitted)


def check_cases(root):
    """Returns whether every test that docs/cases.md names exists."""
    named = re.findall(r"`([^`]+)`", (root / "docs/cases.md").read_text(encoding="utf-8"))
    known = set()
    for path in root.glob("src/**/*_test.cc"):
        known |= {".".join(m) for m in re.findall(r"^TEST\w*\((\w+),\s*(\w+)\)", path.read_text(), re.MULTILINE)}
    for path in root.glob("tests/spine/*.cc"):
        known |= {".".join(m) for m in re.findall(r"^TEST\w*\((\w+),\s*(\w+)\)", path.read_text(), re.MULTILINE)}
    known |= {f"cli/{path.stem}" for path in root.glob("tests/cli/cases/*.golden")}
    known |= {f"campaign/{name}" for name in re.findall(r'^    "(\w+)":', (root / "tests/campaign/campaign.py").read_text(), re.MULTILINE)}
    suites = {name.split(".")[0] for name in known}
    missing = []
    suite = ""
    for name in named:
        if re.fullmatch(r"[A-Z]\w+\.(\w+|\*)|cli/\w+|campaign/\w+", name):
            suite = name.split(".")[0]
            if name not in known and not (name.endswith(".*") and suite in suites):
                missing.append(name)
        elif suite and re.fullmatch(r"[A-Z][a-z]+[A-Za-z0-9]*[a-z][A-Z]\w*", name) and f"{suite}.{name}" not in known:
            missing.append(f"{suite}.{name}")
        elif name.startswith("test_") or name.endswith(("_test.py", ".sh")):
            if not list(root.glob(f"**/{name}")):
                missing.append(name)
    for name in missing:
        print(f"docs/cases.md: there is no test {name}")
    return not missing


def headings(path):
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = []
    for heading in re.findall(r"^#+ (.*)", text, re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found.append(anchor + (f"-{found.count(anchor)}" if anchor in found else ""))
    return found


def check_links(root):
    """Returns whether every link between pages leads to a file, and to a heading of it."""
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("validation/*.md"), root / "src/orrery/README.md"]
    for folder in ("examples", "data", "tools"):
        pages += root.glob(f"{folder}/**/README.md")
    broken = []
    for page in pages:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"https?:|mailto:", link):
                continue
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            if not target.exists() or (anchor and anchor not in headings(target)):
                broken.append(f"{page.relative_to(root)}: {link} leads nowhere")
    for line in broken:
        print(line)
    return not broken


def check_index(root):
    """Returns whether docs/README.md names every page."""
    docs = root / "docs"
    named = re.findall(r"\]\(([^)\s#]+)", (docs / "README.md").read_text(encoding="utf-8"))
    missing = sorted({str(page.relative_to(docs)) for page in docs.glob("**/*.md")} - {*named, "README.md"})
    for page in missing:
        print(f"docs/README.md: no line for {page}")
    return not missing


def check_commands(program, root):
    """Returns whether every command that stands in a block of a page has a verb and options that there are."""
    helps = {}

    def help_of(words):
        """What the verb, and the part of it that the next word may name, say of themselves."""
        known = ""
        for end in (1, 2):
            key = tuple(words[:end])
            if key not in helps:
                said = subprocess.run([program, *key, "--help"], capture_output=True, text=True)
                helps[key] = said.stdout if f"Usage: orrery {key[0]}" in said.stdout else ""
            known += helps[key]
        return known

    wrong = []
    for page in [root / "README.md", *root.glob("docs/**/*.md"), *root.glob("examples/*/README.md")]:
        for block in re.findall(r"```\w*\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                command = re.match(r"(?:\$ )?(?:build/release/orrery|orrery|\./run) (\w.*)", line.strip())
                if not command:
                    continue
                words = re.sub(r"\s#.*|'[^']*'|\"[^\"]*\"", "", command[1]).split()
                if words[0] == "trace" or "--format" in words:  # options of other programs
                    continue
                known = help_of(words)
                options = [word.split("=")[0] for word in words if word.startswith("--")]
                missing = [option for option in options if not re.search(rf"{option}\b", known)]
                if not known or missing:
                    wrong.append(f"{page.relative_to(root)}: orrery {words[0]}: there is no {missing or words[0]}")
    for line in wrong:
        print(line)
    return not wrong and bool(helps)


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    docs = root / "docs"
    passed = [check(sys.argv[1], docs / path, schema, mark) for path, schema, mark in PARTS]
    passed.append(check_answer(sys.argv[1], root))
    passed.append(check_cases(root))
    passed.append(check_constants(sys.argv[1], root))
    passed.append(check_links(root))
    passed.append(check_index(root))
    passed.append(check_commands(sys.argv[1], root))
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())

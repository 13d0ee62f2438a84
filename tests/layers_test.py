#!/usr/bin/env python3
"""Every #include "orrery/X/..." in a folder must be one that layers.txt allows.

Apps, Python module and benchmarks stand behind all stages; so do the tests that cross stages. Test files
(*_test.cc) obey their stage, so that a stage's tests build with that stage alone.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"orrery/([a-z_]+)/', re.MULTILINE)


def read_layers(path):
    allowed = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        name, _, rest = line.partition(":")
        names = rest.split()
        for other in names:
            if other not in allowed:
                sys.exit(f"{path.name}:{number}: {name} may include {other}, which stands after it")
        allowed[name.strip()] = set(names) | {name.strip()}
    return allowed


def main():
    allowed = read_layers(ROOT / "layers.txt")
    stages = ROOT / "src" / "orrery"
    errors = []
    folders = sorted(p.name for p in stages.iterdir() if p.is_dir())
    for name in folders:
        if name not in allowed:
            errors.append(f"src/orrery/{name}: not in layers.txt")
    files = 0
    for source in sorted(stages.rglob("*")):
        if source.suffix not in (".h", ".cc") or not source.is_file():
            continue
        stage = source.relative_to(stages).parts[0]
        files += 1
        for match in INCLUDE.finditer(source.read_text(encoding="utf-8")):
            if match.group(1) not in allowed.get(stage, set()):
                line = source.read_text(encoding="utf-8").count("\n", 0, match.start(1)) + 1
                where = source.relative_to(ROOT)
                errors.append(f"{where}:{line}: {stage} may not include {match.group(1)}")
    for error in errors:
        print(error)
    print(f"{files} files, {len(errors)} forbidden includes")
    return 1 if errors or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

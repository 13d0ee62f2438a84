"""Stub shared libraries that let a CUDA build of PyTorch be imported with no NVIDIA software.

    pip install --no-deps --target TORCH torch==2.11.0        (531 MB, no NVIDIA packages)
    python build.py TORCH STUBS
    LD_LIBRARY_PATH=STUBS PYTHONPATH=TORCH python ...

Every undefined symbol of PyTorch's libraries that belongs to an NVIDIA library becomes a function
that returns 0, under the library's name and symbol version; the few that must answer are in
cuda_runtime.c. For fake tensors only.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

NVIDIA = re.compile(r"lib(cu|nv|nccl)")
PREFIX = re.compile(r"(cu|nccl|nv|__cuda)")
RUNTIME = Path(__file__).with_name("cuda_runtime.c")


def output_of(*command: str) -> str:
    """Standard output of a command."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def symbols(lib: Path) -> tuple[set[str], dict[str, str], set[str]]:
    """Libraries needed, undefined symbols with their version, symbols defined."""
    needed: set[str] = set()
    undefined: dict[str, str] = {}
    defined: set[str] = set()
    for path in lib.glob("*.so*"):
        needed |= set(re.findall(r"NEEDED.*\[(.*)\]", output_of("readelf", "-d", str(path))))
        for line in output_of("nm", "-D", str(path)).splitlines():
            parts = line.split()
            name, _, version = parts[-1].partition("@")
            if parts[-2] == "U":
                undefined[name] = version or undefined.get(name, "")
            elif len(parts) == 3:
                defined.add(name)
    return needed, undefined, defined


def driver_names(path: Path) -> list[str]:
    """Driver functions that a library looks up by name."""
    found = re.findall(rb"\0(cu[A-Z]\w+)(?=\0)", path.read_bytes())
    return sorted({name.decode() for name in found})


def write(soname: str, version: str, names: list[str], target: Path) -> None:
    """Compiles one stub library."""
    answers = soname.startswith(("libcudart", "libcuda.so"))
    runtime = RUNTIME.read_text(encoding="utf-8") if answers else ""
    answered = set(re.findall(r"^(?:const char\*|int) (cu\w+)\(", runtime, re.MULTILINE))
    code = runtime + "\n"
    for name in names:
        base = re.sub(r"_v\d+$", "", name)
        if name in answered:
            continue
        if base in answered:  # a versioned alias of one that answers
            code += f'__asm__(".globl {name}\\n.set {name}, {base}");\n'
        else:
            code += f"long {name}(void) {{ return 0; }}\n"
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder, "stub.c"), Path(folder, "stub.map")
        source.write_text(code, encoding="utf-8")
        script.write_text(f"{version} {{ global: *; }};\n", encoding="utf-8")
        command = ["cc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{soname}"]
        command += [f"-Wl,--version-script={script}", "-o", str(target / soname), str(source)]
        subprocess.run(command, check=True)


def main() -> None:
    """Builds every stub that the PyTorch under argv[1] needs, into argv[2]."""
    lib, target = Path(sys.argv[1], "torch", "lib"), Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    needed, undefined, defined = symbols(lib)
    for soname in sorted(n for n in needed if NVIDIA.match(n)):
        version = "NVSHMEM" if "nvshmem" in soname else soname
        own = [name for name, v in undefined.items() if v == version]
        if "cudart" in soname:  # also the libraries whose symbols carry no version
            own += [n for n, v in undefined.items() if not v and PREFIX.match(n)]
        if soname == "libcuda.so.1":  # looked up by name at run time
            own += driver_names(lib / "libc10_cuda.so") + driver_names(lib / "libtorch_cuda.so")
        write(soname, version, sorted(set(own) - defined), target)
        print(f"{soname}: {len(own)} symbols")


if __name__ == "__main__":
    main()

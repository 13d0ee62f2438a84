"""Makes fake `cuda` tensors differentiable on a CPU-only PyTorch: builds, loads `noop_guard.cpp`.

`preload()` must run before the first `import torch` of the process: `import torch` asks for the
CUDA hooks once and keeps the answer for good. Afterwards `install_names()` gives `torch.cuda` the
Python names that training code calls (streams, events, device queries); without it those raise
"Torch not compiled with CUDA enabled". `take_log()` returns what the guard saw of streams.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from orrery_trace.errors import TraceError

SOURCE = Path(__file__).with_name("noop_guard.cpp")
KINDS = ("switch", "record", "wait", "sync_stream", "sync_device", "sync_event")

_library: ctypes.CDLL | None = None


def torch_root() -> Path:
    """Where PyTorch lies, found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise TraceError(f"{sys.executable} has no PyTorch; pip install torch")
    return Path(spec.origin).parent


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "orrery"


def build() -> Path:
    """Compiles the guard against the installed headers; cached by source, version and command."""
    root = torch_root()
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-shared", "-fPIC", "-O1"]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(_new_strings(root))}"]
    command += [f"-I{root / 'include'}", str(SOURCE)]
    command += [f"-L{root / 'lib'}", "-lc10", "-ltorch_cpu"]
    made_of = (SOURCE.read_bytes(), (root / "version.py").read_bytes(), repr(command).encode())
    digest = hashlib.sha256(b"".join(made_of)).hexdigest()[:16]
    cache = _cache()
    library = cache / f"noop_guard-{digest}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}")
        command += ["-o", str(unfinished)]
        _compile(command)
        unfinished.rename(library)
    return library


def _new_strings(root: Path) -> bool:
    """Whether PyTorch's libraries have the C++11 ABI; wheels before 2.6 have the one before it."""
    symbol = b"torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_string"
    return symbol in (root / "lib/libc10.so").read_bytes()


def _compile(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise TraceError(
            f"no C++ compiler: {command[0]!r} was not found, and tracing without a GPU compiles a "
            "small library against PyTorch's headers; install g++ or clang++, or set CXX"
        ) from None
    except subprocess.CalledProcessError as error:
        raise TraceError(f"{' '.join(command)} failed:\n{error.stderr[-2000:]}") from None


def is_cuda_build() -> bool:
    """Whether the installed PyTorch was made for CUDA."""
    return (torch_root() / "lib" / "libtorch_cuda.so").exists()


def has_driver() -> bool:
    """Whether a GPU could be used; an empty CUDA_VISIBLE_DEVICES says no."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return False
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _load_quietly(path: Path) -> None:
    """Loads a library that says on standard error that its hooks are not taken."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise TraceError(
            f"{path} cannot be loaded ({error}): this PyTorch is a CUDA build, whose NVIDIA "
            "packages pip installs beside it"
        ) from None
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def preload() -> int:
    """Loads PyTorch's C++ libraries and the guard, before `import torch`; returns the status.

    0: guard and hooks are in; 1: this PyTorch is a CUDA build and there is a driver, which it may
    use; 2: too late, PyTorch was imported first.
    """
    global _library
    if is_cuda_build() and has_driver():
        return 1
    library = build()
    if "torch" not in sys.modules:
        lib = torch_root() / "lib"
        for name in ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so"):
            ctypes.CDLL(str(lib / name), mode=ctypes.RTLD_GLOBAL)
    _library = ctypes.CDLL(str(library))
    _library.orrery_log_size.restype = ctypes.c_int64
    _library.orrery_current_stream.restype = ctypes.c_int64
    _library.orrery_take_log.restype = ctypes.c_int64
    status = int(_library.orrery_install_guard())
    if status == 0 and is_cuda_build():
        _load_quietly(torch_root() / "lib" / "libtorch_cuda.so")
        _library.orrery_set_guard()
    return status


def current_stream() -> int:
    """The id of the stream that work goes to now: 0, or what the program switched to."""
    if _library is None:
        return 0
    return int(_library.orrery_current_stream())


def set_stream(stream: int) -> None:
    """Work of this thread goes to that stream from here on."""
    if _library is not None:
        _library.orrery_set_stream(ctypes.c_int64(stream))


def sync_device() -> None:
    """The host waits for the device."""
    if _library is not None:
        _library.orrery_sync_device()


def loaded() -> bool:
    """Whether `preload` has run in this process."""
    return _library is not None


def take_log() -> list[tuple[str, int, int]]:
    """Empties the guard's log: (kind, stream, event) in the order in which the calls came."""
    if _library is None:
        return []
    size = int(_library.orrery_log_size())
    if size == 0:
        return []
    buffer = (ctypes.c_int64 * (3 * size))()
    count = int(_library.orrery_take_log(buffer, ctypes.c_int64(size)))
    return [(KINDS[buffer[3 * i]], buffer[3 * i + 1], buffer[3 * i + 2]) for i in range(count)]

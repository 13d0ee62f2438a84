"""What a table's header says of the machine: versions, clocks, date, command."""

from __future__ import annotations

import ctypes
import datetime
import os
import platform
import shlex
import subprocess
import sys

import torch

from kit import KIT_VERSION
from kit.device import Device

SMI_FIELDS = (
    "clocks.sm",
    "clocks.mem",
    "power.draw",
    "power.limit",
    "temperature.gpu",
    "clocks_event_reasons.active",
)


def smi(fields: tuple[str, ...], timeout_s: float = 10.0) -> list[str]:
    """Asks nvidia-smi about the GPU that torch calls 0; empty where there is no answer."""
    command = [
        "nvidia-smi",
        f"--query-gpu={','.join(fields)}",
        "--format=csv,noheader,nounits",
        *smi_device(),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    cells = [c.strip() for c in done.stdout.strip().split("\n")[0].split(",")]
    return cells if len(cells) == len(fields) else []


def smi_device() -> list[str]:
    """nvidia-smi ignores CUDA_VISIBLE_DEVICES, so pass its first entry on."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    return ["-i", first or "0"]


def clocks() -> str:
    """Clocks, power and temperature now, as one line."""
    cells = smi(SMI_FIELDS)
    if not cells:
        return "unknown"
    units = ("MHz", "MHz", "W", "W", "C", "")
    names = ("sm", "memory", "power", "power_limit", "temperature", "reasons")
    return " ".join(f"{n}={c}{u}" for n, c, u in zip(names, cells, units, strict=True))


def cublas_version() -> str:
    """The loaded cuBLAS, asked through its C interface; torch has no call for it."""
    major = (torch.version.cuda or "13").split(".")[0]
    try:
        lib = ctypes.CDLL(f"libcublas.so.{major}")
        parts = []
        for which in (0, 1, 2):  # libraryPropertyType: major, minor, patch
            value = ctypes.c_int(0)
            if lib.cublasGetProperty(which, ctypes.byref(value)) != 0:
                return "unknown"
            parts.append(str(value.value))
        return ".".join(parts)
    except (OSError, AttributeError):
        return "unknown"


def triton_version() -> str:
    """Triton's version, or none."""
    try:
        import triton
    except ImportError:
        return "none"
    return str(triton.__version__)


def describe(device: Device, item: str, blas: str = "default") -> dict[str, str]:
    """The header keys known before the first case."""
    header = {
        "item": item,
        "device": device.label,
        "gpu": device.slug,
        "gpu_name": device.name,
        "sm_count": str(device.sm_count),
        "l2_bytes": str(device.l2_bytes),
        "memory_bytes": str(device.memory_bytes),
        "driver": "none",
        "cuda": str(torch.version.cuda or "none"),
        "torch": torch.__version__,
        "cublas": "none",
        "cudnn": "none",
        "triton": triton_version(),
        "python": platform.python_version(),
        "host": f"{platform.machine()}, {os.cpu_count()} cores",
        "blas": blas,
        "kit": str(KIT_VERSION),
        "date": now(),
        "command": shlex.join(["python3", os.path.basename(sys.argv[0]), *sys.argv[1:]]),
        "clocks_before": "none",
    }
    if device.kind == "cuda":
        major, minor = torch.cuda.get_device_capability(0)
        header |= {
            "capability": f"{major}.{minor}",
            "driver": (smi(("driver_version",)) or ["unknown"])[0],
            "cublas": cublas_version(),
            "cudnn": str(torch.backends.cudnn.version() or "none"),
            "clocks_before": clocks(),
        }
    return header


def now() -> str:
    """UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

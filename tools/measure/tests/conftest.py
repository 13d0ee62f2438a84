"""Shared by the tests: the kit on the path, a quiet torch, small helpers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch

torch.set_num_threads(1)


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """Arguments of a trial run into a fresh folder."""
    return ["run", "--device", "cpu", "--tiny", "--out", str(tmp_path)]


HEADER = {
    "item": "gemm",
    "device": "cuda",
    "gpu": "h200",
    "gpu_name": "NVIDIA H200",
    "torch": "2.11.0",
    "driver": "580",
    "blas": "default",
    "date": "2026-01-01T00:00:00Z",
    "command": "made up by a test",
}

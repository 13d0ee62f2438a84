"""What stands in for the GPU: fake `cuda` tensors on a device guard that owns no device.

The same for PyTorch's CPU build and for its CUDA builds on a machine without a driver.

`before_torch()` must run before the first `import torch`; `after_torch()` before the program.
"""

from __future__ import annotations

from orrery_trace.errors import TraceError
from orrery_trace.substrate import guard

_status: int | None = None
_asked = False
_named = False


def before_torch() -> None:
    """Loads the device guard, so that PyTorch asks it when it asks for CUDA."""
    global _status, _asked
    if not _asked:
        _asked = True  # first, since looking for PyTorch may lead here again
        _status = guard.preload()


def after_torch() -> None:
    """Gives `torch.cuda` its names and the dispatcher the op identities of a CUDA build."""
    global _named
    before_torch()
    if _status == 1:
        raise TraceError(
            "this PyTorch is a CUDA build and this machine has a GPU: to trace without it, hide it "
            "before Python starts, CUDA_VISIBLE_DEVICES= orrery-trace ..."
        )
    if _status == 2:
        raise TraceError(
            "PyTorch was imported before orrery_trace, and keeps its answer that there is no CUDA: "
            "import orrery_trace first, or start the script with orrery-trace -- python SCRIPT"
        )
    if not _named:
        from orrery_trace.substrate import kernels, names

        names.install_names()
        kernels.install_kernels()
        _named = True

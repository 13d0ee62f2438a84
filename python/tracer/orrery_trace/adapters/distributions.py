"""`torch.distributions`: arguments are taken to be valid."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from orrery_trace.groups import Patches
from orrery_trace.recorder import Recorder

MODULE = "torch.distributions.distribution"
REASON = "distributions read from the device whether their arguments are valid; a fake one says no"


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """The check runs, with its wait of the host, and passes."""
    for name in ("__init__", "_validate_sample"):
        check = getattr(module.Distribution, name)

        @functools.wraps(check)
        def valid(self: Any, *args: Any, _check: Any = check, **kwargs: Any) -> Any:
            with recorder.answers(True):
                return _check(self, *args, **kwargs)

        patches.replace(module.Distribution, name, valid)

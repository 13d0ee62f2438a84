"""What the tracer says when it cannot go on."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

_PACKAGE = str(Path(__file__).parent)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")})


class TraceError(RuntimeError):
    """The trace cannot be made, or would be wrong; the message names the cause and the remedy."""


class TraceDone(BaseException):
    """Ends the traced program once the step asked for is recorded; no error, so no `Exception`."""


def user_line() -> str:
    """`file:line` of the innermost frame that lies in no library and not in this package."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        library = name.startswith((_PACKAGE, "<")) or name.startswith(_LIBRARIES)
        if not library:
            return f"{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""

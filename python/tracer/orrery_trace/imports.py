"""Runs a function when a module is imported, or at once if it is there already.

The tracer must change `torch` before its first import and frameworks after theirs, without
importing a framework that the traced program does not use.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

_after: dict[str, list[Callable[[ModuleType], None]]] = {}
_before: dict[str, list[Callable[[], None]]] = {}


class _Finder(importlib.abc.MetaPathFinder):
    """Sees every import first; acts on the few names that were asked for."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Runs what must come before; wraps the loader for what must come after."""
        for call in _before.pop(name, ()):
            call()
        if name not in _after:
            return None
        calls = _after.pop(name)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for call in calls:
                call(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _watch() -> None:
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def when_imported(name: str, call: Callable[[ModuleType], None]) -> None:
    """Calls `call(module)` after module `name` has run; at once if it has."""
    if name in sys.modules:
        call(sys.modules[name])
        return
    _after.setdefault(name, []).append(call)
    _watch()


def before_import(name: str, call: Callable[[], None]) -> None:
    """Calls `call()` before module `name` is first looked for; never, if it is imported already."""
    if name not in sys.modules:
        _before.setdefault(name, []).append(call)
        _watch()

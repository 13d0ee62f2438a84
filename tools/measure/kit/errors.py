"""Errors a user can cause, and the two ways in which one case can end without a number."""

from __future__ import annotations

EXIT_OK = 0
EXIT_BAD_INPUT = 2
EXIT_FAULT = 3
EXIT_INTERRUPTED = 130


class UserError(Exception):
    """Bad input or usage (exit 2). The text names place, field, value and remedy."""

    def __init__(self, place: str, field: str, value: object, problem: str, remedy: str) -> None:
        self.place = place
        self.field = field
        self.value = value
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{place}: {field}: {value!r}: {problem}; {remedy}")


class Refused(Exception):
    """One case cannot be measured here (no such kernel, too large). The run goes on."""


class OutOfMemory(Refused):
    """The device had no room; with its cache given back the case may fit."""


class DeviceLost(Exception):
    """The device no longer answers (exit 3): every later number would be wrong or missing."""

"""Tables as a notebook and as pandas has them."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from typing import Any

_MOST_ROWS = 60


def pandas() -> Any:
    """The package, which only data frames need."""
    try:
        import pandas as package
    except ImportError as error:
        raise ImportError("a DataFrame needs pandas, which is not installed: pip install pandas") from error
    return package


def _cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
    return html.escape(text)


def table(caption: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """An HTML table: a column for each name, in the order in which rows have them."""
    listed = list(rows)
    columns = list(dict.fromkeys(name for row in listed for name in row))
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(row.get(name))}</td>" for name in columns) + "</tr>"
        for row in listed[:_MOST_ROWS]
    )
    left = len(listed) - _MOST_ROWS
    more = f"<p>and {left:,} more rows</p>" if left > 0 else ""
    return (
        f"<table><caption>{html.escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
    )

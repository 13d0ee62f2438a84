"""Shares of experts: what is drawn, given and refused; rows are whole and none is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from orrery_trace.errors import TraceError
from orrery_trace.routing import rows_of, shares_of


def test_shares_are_drawn_by_seed_and_layer() -> None:
    """The same again, another for another layer; they sum to 1; even ones by alpha or exponent."""
    for kind in ("dirichlet:0.5", "zipf:1.2"):
        once = shares_of(kind, 8, 2, layer=3, seed=7)
        assert once == shares_of(kind, 8, 2, layer=3, seed=7)
        assert once != shares_of(kind, 8, 2, layer=4, seed=7)
        assert sum(once) == pytest.approx(1)
        assert max(once) <= 0.5 + 1e-9
    assert shares_of("zipf:0", 4, 1, 0, 0) == [0.25] * 4
    assert max(shares_of("dirichlet:1e6", 4, 1, 0, 0)) == pytest.approx(0.25, rel=0.01)


def test_no_expert_gets_more_than_every_token(tmp_path: Path) -> None:
    """What is above 1/topk goes to the others in proportion."""
    path = tmp_path / "shares.csv"
    path.write_text("70,10,20,0\n1,1,1,1\n", encoding="utf-8")
    assert shares_of(str(path), 4, 2, 0, 0) == pytest.approx([0.5, 1 / 6, 1 / 3, 0])
    assert shares_of(str(path), 4, 2, 1, 0) == [0.25] * 4
    for experts, layer in ((4, 2), (8, 0)):
        with pytest.raises(TraceError, match="line of layer 0 has no 8|layer 2 has none"):
            shares_of(str(path), experts, 2, layer, 0)


@pytest.mark.parametrize("text", ["dirichlet:0", "zipf:x", "dirichlet:nan", "uniform"])
def test_other_words_are_refused(text: str) -> None:
    """By what was said, with what may be."""
    with pytest.raises(TraceError, match=f"--shares {text}: "):
        shares_of(text, 4, 2, 0, 0)


def test_rows_are_whole() -> None:
    """Largest remainders; the sum is what was sent."""
    assert rows_of([0.25] * 4, 2, 129) == [65, 64]
    for seed in range(20):
        rows = rows_of(shares_of("dirichlet:0.3", 16, 4, 0, seed), 8, 1021)
        assert sum(rows) == 1021
        assert min(rows) >= 0

"""The table of mutations.py, which takes too long to run here, fits the source."""

from __future__ import annotations

from mutations import misfits


def test_each_mutation_has_its_line() -> None:
    assert [(m.name, m.function, m.old) for m in misfits()] == []

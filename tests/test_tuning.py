"""Numbers by which Dibs takes one way or another: all can be set at once, wherever they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dibs import tuning
from dibs.index.auto.records import FEW_RECORDS, RECORD_SPANS
from dibs.tuning import at_random, numbers, smallest, tuned, using

PACKAGE = Path(tuning.__file__).parent
# Numbers of a package that a module which nobody has imported yet declares, and how they are at last.
LATER = """
from dibs import tuning
with tuning.using({"pstree_walk": 3}):
    from dibs.papers.structures.pstree.forest import PSTREE_BLOCK, PSTREE_WALK
    inside = PSTREE_WALK.value, PSTREE_BLOCK.value
print(inside, PSTREE_WALK.value, PSTREE_BLOCK.value)
"""


def test_all_are_set_and_set_back() -> None:
    before = {name: number.value for name, number in numbers.items()}
    with using(smallest() | {"few_records": 7}):
        assert (FEW_RECORDS.value, RECORD_SPANS.value) == (7, RECORD_SPANS.smallest)
        with using(at_random(3)):
            assert 1 <= RECORD_SPANS.value <= 8
        late = tuned("declared_late", 9, 2, "tests", "that declare a number")
        assert late.value == 2
    assert late.value == 9
    del numbers["declared_late"]
    assert {name: number.value for name, number in numbers.items()} == before


def test_a_name_that_no_number_has() -> None:
    with pytest.raises(KeyError, match="has a number called few_record'"), using({"few_record": 1}):
        pass


def test_random_ones_do_not_depend_on_what_is_imported() -> None:
    drawn = at_random(5)
    assert drawn == at_random(5) != at_random(6)
    assert all(min(n.smallest, n.default) <= drawn[name] <= max(n.smallest, n.default) for name, n in numbers.items())


@pytest.mark.parametrize(("variable", "told"), [("", "(3, 1024) 8 1024"), ("smallest", "(3, 1) 1000000 1")])
def test_modules_that_are_imported_later(variable: str, told: str) -> None:
    own = os.environ | {"DIBS_TUNING": variable, "PYTHONPATH": str(PACKAGE.parent)}
    ran = subprocess.run([sys.executable, "-c", LATER], env=own, capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == told, ran.stderr


def test_what_is_called_as() -> None:
    """A constant is called as its number, and read when it is needed: no default of an argument, no other constant."""
    names = []
    for file in sorted(PACKAGE.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        for constant, name in re.findall(r'^(\w+) = tuned\(\s*"(\w+)"', source, re.MULTILINE):
            assert constant == name.upper(), file
            names.append(name)
        assert not re.search(r"^(?:[^\s#][^#\n]*| +def .*)\b[A-Z_]+\.value\b(?! ==)", source, re.MULTILINE), file
    assert len(names) == len(set(names)) > 120

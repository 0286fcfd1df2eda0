"""Indexes by name: those of Dibs, those of other packages, and that nobody loads what was not named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dibs
from coded import events_of, pairs_of, random_clauses
from dibs.errors import DibsError, UnknownIndex
from dibs.index import INDEXES, create, find, names
from dibs.jit.ready import own_modules
from dibs.jit.stamps import kernel_modules

ROOT = Path(__file__).parents[2]
OUTSIDE = ROOT / "examples" / "outside_index"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example as pip would install it: its module, and the metadata with its entry point."""
    text = (OUTSIDE / "pyproject.toml").read_text()
    point = re.search(r'"dibs\.indexes"\]\n(\w+) = "([\w:]+)"', text)
    assert point is not None
    (tmp_path / "rarest.py").write_text((OUTSIDE / "rarest.py").read_text())
    metadata = tmp_path / "dibs_rarest-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: dibs-rarest\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text(f"[dibs.indexes]\n{point[1]} = {point[2]}\nbroken = nowhere.at:All\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "rarest", raising=False)
    return tmp_path


@pytest.mark.parametrize("seed", range(6))
def test_an_outside_structure_is_exact(installed: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    clauses = random_clauses(rng, 60, 5, 12)
    events = events_of([{a: int(rng.integers(1, 12)) for a in range(5) if rng.random() < 0.7} for _ in range(40)])
    expected = pairs_of(create("scan", clauses), events)
    assert expected and pairs_of(create("rarest", clauses), events) == expected


def test_a_matcher_takes_it_saves_it_and_loads_it(installed: Path) -> None:
    m = dibs.Matcher(index="rarest")
    items = [(i, f"a = {i % 5} AND b >= {i % 3} OR c LIKE '{i % 2}%'") for i in range(40)]
    items.append((40, "b IS NULL AND a IN (1, 2)"))
    m.add_many(items)
    events = [{"a": 1, "b": 2}, {"a": 2}, {"c": "1x", "a": [0, 3], "b": 0}, {}]
    right = dibs.Matcher(index="scan")
    right.add_many(items)
    found = [list(ids) for ids in m.match_batch(events)]
    assert found == [list(ids) for ids in right.match_batch(events)] == [m.match(event) for event in events]
    assert found[0] and 40 in found[1]
    m.save(installed / "saved")
    loaded = dibs.Matcher.load(installed / "saved")
    assert loaded.index == "rarest" and [list(ids) for ids in loaded.match_batch(events)] == found


def test_outside_names_come_last_and_never_replace_ours(installed: Path) -> None:
    points = installed / "dibs_rarest-0.1.dist-info" / "entry_points.txt"
    points.write_text(points.read_text() + "auto = rarest:Rarest\n")
    assert names() == [*INDEXES, "broken", "rarest"]
    assert find("auto").__name__ == "Auto"


def test_one_that_cannot_be_loaded_says_whose_it_is(installed: Path) -> None:
    with pytest.raises(DibsError, match=r"'broken' cannot be loaded .*nowhere.*repair or remove the package"):
        find("broken")


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(UnknownIndex, match="rarest"):
        dibs.Matcher(index="rarest")


def test_entry_points_are_those_of_the_table() -> None:
    """pyproject.toml's, that is: an editable installation may be older."""
    text = (ROOT / "pyproject.toml").read_text()
    section = text.split('[project.entry-points."dibs.indexes"]\n')[1].split("\n\n")[0]
    assert dict(re.findall(r'^([\w-]+) = "([^"]+)"$', section, re.M)) == INDEXES


def test_dibs_warm_compiles_nothing_of_the_laboratory() -> None:
    own, every = own_modules(), kernel_modules()
    assert any(name.startswith("dibs.papers.") for name in every) and "dibs.index.auto.bit_kernels" in own
    assert not any(name.startswith("dibs.papers.") for name in own)


PROGRAM = """
import sys, dibs, dibs.engine
dibs.engine.load()
m = dibs.Matcher({arguments})
m.add_many([(i, f"a = {{i % 7}} AND b <= {{i}}") for i in range(300)])
m.match({{"a": 1, "b": 2}}); m.match_batch([{{"a": 1, "b": 2}}] * 20)
print(any(name.split(".")[:2] == ["dibs", "papers"] for name in sys.modules))
"""


@pytest.mark.parametrize(("arguments", "loads"), [("", False), ("index='naive'", True)])
def test_the_laboratory_is_loaded_for_those_who_name_it(arguments: str, loads: bool) -> None:
    program = [sys.executable, "-c", PROGRAM.format(arguments=arguments)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(loads)

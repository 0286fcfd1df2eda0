"""Parameters of structures: Matcher(index=..., options=...), checked, listed, and kept wherever the matcher goes."""

from __future__ import annotations

import numpy as np
import pytest

import dibs
from dibs.index import INDEXES, find, options_of
from dibs.index.options import all_options, check_options

WITH_OPTIONS = [name for name in INDEXES if options_of(name)]
SUBSCRIPTIONS = [(i, f"a = {i % 5} AND b > {i % 7} AND c < {i % 3} AND d BETWEEN 1 AND {i % 9}") for i in range(200)]
EVENT = {"a": 1, "b": 9, "c": 0, "d": 1}
WANTED = [i for i, _ in SUBSCRIPTIONS if i % 5 == 1 and 9 > i % 7 and 0 < i % 3 and i % 9 >= 1]


def another(option):
    """A value that is not the default."""
    if option.words:
        return next(word for word in option.words if word != option.default)
    if isinstance(option.default, bool):
        return not option.default
    return next(v for v in (option.least, min(option.least + 1, option.most)) if v != option.default)


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_every_option_of_every_structure_is_taken_and_kept(name, tmp_path):
    for option in options_of(name):
        value = another(option)
        m = dibs.Matcher(index=name, options={option.name: value})
        m.add_many(SUBSCRIPTIONS)
        assert m.options == all_options(options_of(name), {option.name: value})
        assert m.match(EVENT) == WANTED
        assert m.stats()["plans"][0]["options"] == {option.name: value}
        m.save(tmp_path / option.name)
        loaded = dibs.Matcher.load(tmp_path / option.name)
        assert loaded.options == m.options
        assert loaded.match(EVENT) == WANTED
        assert loaded.stats()["plans"][0]["options"] == {option.name: value}


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_defaults_are_those_of_build(name):
    """So that giving a default and giving nothing is the same."""
    defaults = {option.name: option.default for option in options_of(name)}
    assert check_options(name, options_of(name), defaults) == {}
    given = find(name).build.__func__.__defaults__ or ()
    kind = find(name).build.__func__
    code = kind.__code__
    positional = dict(zip(code.co_varnames[: code.co_argcount][-len(given) :], given)) if given else {}
    known = positional | (kind.__kwdefaults__ or {})
    assert {option: known[option] for option in defaults} == defaults


def test_a_durable_matcher_keeps_its_options_and_takes_others(tmp_path):
    folder = tmp_path / "d"

    def reopened(**given):
        with dibs.Matcher.open(folder, **given) as m:
            assert m.match(EVENT) == WANTED
            return m.options, m.stats()["plans"][0].get("options", {})

    with dibs.Matcher.open(folder, index="psthash", options={"dimensions": 3}) as m:
        m.add_many(SUBSCRIPTIONS)
        assert m.match(EVENT) == WANTED
    assert reopened()[0]["dimensions"] == 3
    assert reopened(index="psthash") == reopened() == (m.options, {"dimensions": 3})
    assert reopened(read_only=True)[1] == {"dimensions": 3}
    assert reopened(options={"dimensions": 1})[1] == {"dimensions": 1}
    assert reopened()[1] == {"dimensions": 1}
    assert reopened(options={"dimensions": 2})[1] == {}
    assert reopened(index="pstree") == ({"access": "operators"}, {})
    manifest = bytearray((folder / "index.dibs").read_bytes())
    manifest[len(manifest) // 2] ^= 1
    (folder / "index.dibs").write_bytes(manifest)
    with pytest.warns(dibs.RecoveryWarning):
        assert reopened()[0] == {"access": "operators"}
    with pytest.raises(dibs.DibsError, match="index 'pstree' has no option 'cells'"):
        dibs.Matcher.open(folder, options={"cells": 8})
    assert reopened()[0] == {"access": "operators"}
    assert not (tmp_path / "new").exists()
    with pytest.raises(dibs.DibsError, match="has no options"):
        dibs.Matcher.open(tmp_path / "new", options={"cells": 8})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"dimension": 2},
            "index 'psthash' has no option 'dimension': did you mean 'dimensions'? There are: dimensions, ",
        ),
        ({"N": 2}, "index 'psthash' has no option 'N': There are: dimensions, cells, access"),
        ({7: 2}, "index 'psthash' has no option int (7): There are"),
        (
            {"dimensions": "2"},
            "option 'dimensions' of index 'psthash' must be a whole number from 1 to 8, not str ('2')",
        ),
        ({"dimensions": 2.0}, "must be a whole number from 1 to 8, not float (2.0)"),
        ({"dimensions": True}, "must be a whole number from 1 to 8, not bool (True)"),
        ({"dimensions": 0}, "must be a whole number from 1 to 8, not int (0)"),
        ({"dimensions": 9}, "must be a whole number from 1 to 8, not int (9)"),
        ({"dimensions": None}, "must be a whole number from 1 to 8, not NoneType (None)"),
        ({"cells": 1}, "must be a whole number of at least 2, or None (any number, as in the paper), not int (1)"),
        ({"access": "luck"}, "must be 'operators' or 'statistics', not str ('luck')"),
        ({"access": 3}, "must be 'operators' or 'statistics', not int (3)"),
        ([("dimensions", 2)], "options must be a dict of names and values, not list"),
        ("dimensions=2", "options must be a dict of names and values, not str"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(dibs.ArgumentError) as caught:
        dibs.Matcher(index="psthash", options=options)
    assert message in str(caught.value)


def test_an_index_without_options():
    for options in ({}, None):
        assert dibs.Matcher(options=options).options == {}
    with pytest.raises(dibs.ArgumentError, match=r"index 'auto' has no options, so none called str \('x'\)"):
        dibs.Matcher(options={"x": 1})


def test_numbers_of_numpy_are_numbers():
    m = dibs.Matcher(index="psthash", options={"dimensions": np.int64(3)})
    assert m.options["dimensions"] == 3 and type(m.options["dimensions"]) is int


def test_wide_subscriptions_are_refused_unless_their_cells_are_bounded(monkeypatch):
    monkeypatch.setattr("dibs.papers.structures.pstree.psthash.MOST_IN_ALL", 500)
    wide = [(i, f"a > {i} AND b > {i}") for i in range(300)]
    m = dibs.Matcher(index="psthash")
    with pytest.raises(dibs.IndexTooLarge, match=r"options=\{'cells': 256\}"):
        m.add_many(wide)
    m = dibs.Matcher(index="psthash", options={"cells": 8})
    m.add_many(wide)
    assert m.match({"a": 20, "b": 30}) == list(range(20))

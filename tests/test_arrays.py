"""Arrow arrays that are made of their buffers are those that Arrow makes; and nothing on the way to a match imports
pandas, which Arrow would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dibs.arrays import from_ids, from_integers, from_numpy, from_strings, to_numpy

DTYPES = [np.bool_, np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float32, np.float64]


@given(st.lists(st.text(max_size=5)))
def test_strings(texts: list[str]) -> None:
    made = from_strings(texts)
    made.validate(full=True)
    assert made.equals(pa.array(texts, pa.large_string()))


@given(st.lists(st.text("aä\ud800", max_size=3)))
def test_strings_with_lone_surrogates(texts: list[str]) -> None:
    if any("\ud800" in text for text in texts):
        with pytest.raises(UnicodeEncodeError):
            from_strings(texts)
    else:
        assert from_strings(texts).to_pylist() == texts


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers(values: list[int]) -> None:
    assert from_integers(values).equals(pa.array(values, pa.int64()))


def test_integers_that_are_too_large() -> None:
    with pytest.raises(OverflowError):
        from_ids([1, 2**63])


@given(st.sampled_from(DTYPES).flatmap(lambda dtype: arrays.arrays(dtype, st.integers(0, 40))), st.data())
def test_numpy(values: Any, data: st.DataObject) -> None:
    made = from_numpy(values)
    made.validate(full=True)
    assert str(made) == str(pa.array(values)) and made.type == pa.array(values).type
    start = data.draw(st.integers(0, len(values)))
    part = made.slice(start, data.draw(st.integers(0, len(values))))
    assert to_numpy(part).dtype == values.dtype
    np.testing.assert_array_equal(to_numpy(part), part.to_numpy(zero_copy_only=False))
    np.testing.assert_array_equal(to_numpy(from_numpy(values[::-2])), values[::-2])


def test_arrays_without_buffers() -> None:
    for type_ in (pa.bool_(), pa.int32(), pa.uint64(), pa.float32()):
        assert to_numpy(pa.nulls(0, type_)).dtype == pa.nulls(0, type_).to_numpy(zero_copy_only=False).dtype


def test_nulls_are_no_numbers() -> None:
    with pytest.raises(ValueError, match="1 of 2 values are null"):
        to_numpy(pa.array([1, None]))
    assert to_numpy(pa.array([None, 1]).slice(1)).tolist() == [1]


PROGRAM = r"""
import pathlib, sys
import numpy as np
import pyarrow as pa
from dibs.arrays import from_integers, from_numpy, from_strings
from dibs.matcher import Matcher

folder = pathlib.Path(sys.argv[1])
with Matcher.open(folder / "durable") as m:
    m.add_many([(i, f"a = {i} AND s LIKE '%{i}%' OR t > DATE '2020-01-01' AND b") for i in range(100)])
    m.add("x", "c > 1.5 OR c IS NULL", weight=3.0)
    m.add_many([(f"s{i}", f"a = {i}") for i in range(100)])
    m.remove(5)
    events = [{"a": 3, "s": "ä3", "b": True, "c": [1, 2.5]}] * 20
    found = m.match(events[0])
    assert found == [3, "s3", "x"]
    lines = b'{"a": 3, "s": "3", "c": 2}\n' * 20
    columns = [from_integers([3] * 20), from_strings(["ä3"] * 20), from_numpy(np.full(20, 2.5))]
    for batch in (lines, pa.RecordBatch.from_arrays(columns, ["a", "s", "c"])):
        assert list(m.match_batch(batch)) == [found] * 20
    matches = m.match_batch(events)
    assert list(matches) == [found] * 20 and matches.pairs(weights=True, versions=True).num_rows == 60
    assert m.match(events[0], top=1) == ["x"] and m.explain(3, events[0]).matched
    m.save(folder / "saved")
    m.compact()
for m in (Matcher.load(folder / "saved"), Matcher.open(folder / "durable")):
    assert m.match(events[0]) == found and list(m.match_batch(events)) == [found] * 20
    m.close()
assert "pandas" not in sys.modules
"""


def test_matching_imports_no_pandas(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""Spark SQL as a judge: the same text means the same there, over typed columns with nulls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from dibs.language.printer import to_sql
from dibs.language.sql import parse
from dibs.matcher import Matcher
from dibs.reference import matches
from dibs.spark import match
from dibs.tuning import smallest, using
from settings import THRESHOLDS
from sql_judges import kept_by_spark
from strategies import typed_expression, typed_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EXPRESSIONS, ROWS = 90, 300  # Spark compiles each expression, and that takes longer than all rows


def kept_by_matcher(texts: list[str], rows: pa.Table) -> set[tuple[int, int]]:
    with Matcher() as matcher:
        matcher.add_many(enumerate(texts))
        pairs = matcher.match_batch(rows).pairs()
        found = set(zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist(), strict=True))
        # One by one, twice, so that what is planned in the background is used too.
        singly = [
            {(row, id) for row, event in enumerate(rows.to_pylist()) for id in matcher.match(event)} for _ in "12"
        ]
    assert singly == [found, found]
    return found


def check(spark: SparkSession, texts: list[str], rows: pa.Table) -> int:
    """Fails on the first pair that Spark sees differently; else the number of pairs that match."""
    expected, found = kept_by_spark(spark, texts, rows), kept_by_matcher(texts, rows)
    for row, number in sorted(found ^ expected)[:1]:
        event = rows.slice(row, 1).to_pylist()[0]
        pytest.fail(
            f"{texts[number]}\n  on {event}\n  Spark: {(row, number) in expected}, Matcher: {(row, number) in found}, "
            f"reference: {matches(parse(texts[number]), event)}; {len(found ^ expected)} pairs differ"
        )
    return len(expected)


@pytest.mark.parametrize("thresholds", THRESHOLDS)
def test_every_pair_agrees(spark: SparkSession, thresholds: str) -> None:
    seed = 3 + list(THRESHOLDS).index(thresholds)
    random = Random(seed)
    rows = typed_rows(random, ROWS)
    texts = [to_sql(typed_expression(random)) for _ in range(EXPRESSIONS)]
    pairs = len(rows) * len(texts)
    assert pairs >= 20_000
    with using(THRESHOLDS[thresholds](seed)):
        assert 0.1 * pairs < check(spark, texts, rows) < 0.9 * pairs


@pytest.mark.slow
def test_workers_at_the_smallest_thresholds(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable reaches them, and dibs.spark.match keeps what Spark's WHERE keeps."""

    def tell_thresholds(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from dibs import engine, tuning

        engine.load()
        for _ in batches:
            values = {number.name: number.value for number in tuning.numbers.values()}
            yield pa.record_batch({"said": [json.dumps(len(values) > 50 and values == tuning.smallest())]})

    random = Random(8)
    rows = typed_rows(random, 200)
    texts = [to_sql(typed_expression(random)) for _ in range(50)]
    expected = kept_by_spark(spark, texts, rows)
    assert len(expected) > 1000
    events = spark.createDataFrame(rows.append_column("id", pa.array(range(len(rows))))).repartition(3)
    subscriptions = spark.createDataFrame(list(enumerate(texts)), "id long, expression string")
    # What the driver's own variable would do to all workers of a session: those of these jobs are others.
    monkeypatch.setitem(spark.sparkContext.environment, "DIBS_TUNING", "smallest")
    (told, *_) = spark.range(1).mapInArrow(tell_thresholds, "said string").collect()
    assert json.loads(told.said) is True
    with using(smallest()):
        for name in ("auto", "betree"):
            found = {tuple(row) for row in match(events, subscriptions, index=name).collect()}
            assert found == expected, name


# Spellings that the printer never writes. Dibs reads all of them as Spark does.
SPELLINGS = r"""
5 > n
1 = n
'a' <> s
NOT n = 1 AND n <> 2
not (n in (1, 2) or s like 'a%')
n == 1
n != 1
n > 1 and n < 3 or flag
flag
not flag
flag AND NOT (flag OR x > 1)
(((n = 1)))
n BETWEEN 1 AND 2 AND x BETWEEN 0 AND 1
n IN (1, NULL, 2)
n NOT IN (NULL)
n IN (NULL)
n = NULL
n <> NULL OR TRUE
NULL
NULL AND n = 1
n BETWEEN NULL AND 2
NOT (n BETWEEN NULL AND 2)
n NOT BETWEEN 1 AND NULL
n IS NULL OR s IS NOT NULL
x = 1.5
x = 1.5D
x = 15e-1
x = 1.5E0
x > .1
x >= 1.
x < 1e1
x = -1
x = - 1
x = +1
n = 1L
n < 1.5BD
n >= 2S
n = 3Y
x <= 0.1F
s = "a"
s = "it's"
s = 'it\'s'
s = 'it''s'
s = 'a\nb'
s = 'a\\b'
s = '\u00e9'
s = 'a' 'b'
s = r'a\b'
s LIKE 'a\%b'
s LIKE 'a\\%b'
s LIKE 'a\\\\b'
s LIKE 'a!%b' ESCAPE '!'
s LIKE '%\_%'
s LIKE '%\\_%'
s RLIKE '\\\\'
s RLIKE 'a\\\\b'
s RLIKE '^\\w$'
s REGEXP '^a'
startswith(s, 'a')
StartsWith(s, 'a') AND NOT endsWith(s, 'b')
contains(s, '%')
d = DATE '2024-02-29'
d = DATE'2024-02-29'
d < TIMESTAMP '2024-02-29 12:00:00'
d = TIMESTAMP '2024-02-29 00:00:00'
t = TIMESTAMP '2024-02-29'
t > DATE '2024-02-28'
t >= TIMESTAMP '2024-02-29 00:00:00.000001'
t = TIMESTAMP '2024-02-29T12:00:00Z'
t = TIMESTAMP '2024-02-29 17:30:00+05:30'
t < TIMESTAMP '2024-02-29 5:3:1'
t BETWEEN TIMESTAMP '2024-02-29 00:00' AND TIMESTAMP '2024-02-29 12:00'
flag = TRUE
flag <> false
flag > FALSE
flag IN (TRUE)
`n` = 1 AND `s` = 'a'
n = 1 -- a comment
n = /* another */ 1
n < 1 OR n = 1 OR n > 1
n = 1 OR NOT n = 1
big = 9223372036854775807
big > -9223372036854775808
x = double('NaN')
x >= CAST('NaN' AS DOUBLE)
x < CAST('Infinity' AS DOUBLE)
x > -CAST('Infinity' AS DOUBLE)
x = CAST(0.1 AS FLOAT)
d = CAST('2024-02-29' AS DATE)
t < timestamp('2024-02-29 12:00:00')
t = TIMESTAMP_NTZ '2024-02-29 12:00:00'
t = TIMESTAMP_LTZ '2024-02-29 12:00:00'
t < TIMESTAMP '2024-02-29 12:00:00.1234567'
(n) = (1)
n IN ((1), (2))
NOT NOT flag
NOT flag = TRUE
n = 1 OR flag AND x > 1
NOT n BETWEEN 1 AND 2 AND flag
s NOT LIKE 'a%' OR NOT s RLIKE 'a'
n IS NOT NULL AND NOT n IS NULL
TRUE
1 = 1 AND n = 1
'a' = 'b' OR n = 1
NULL IS NULL AND n = 1
s LIKE NULL
NOT (s LIKE NULL) OR n = 1
startswith(s, NULL)
s = '\%'
s = 'a\%b'
s = 'a\_b'
s = '\101'
s = '\U0001F600'
s = '\uD83D\uDE00'
s LIKE '\\\\%'
s LIKE "a%"
s >= 'a' AND s < 'b'
"""


def test_other_spellings_agree(spark: SparkSession) -> None:
    texts = SPELLINGS.strip().splitlines()
    rows = typed_rows(Random(4), 100)
    # Spark ends a comment at the end of the line, and the text is put between parentheses there.
    assert check(spark, [text + "\n" for text in texts], rows) > 1000

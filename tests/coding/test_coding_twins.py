"""The kernels that code tables agree with their plain twins, and texts read one by one with texts in columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from coding_twin import plain_bases, plain_code_clauses
from hypothesis import given, settings
from hypothesis import strategies as st
from test_reading import TAKEN

from dibs.coding.clause_kernels import spans_of
from dibs.coding.clauses import Clauses, code_clauses
from dibs.coding.constant_kernels import lay_out
from dibs.coding.domain import Domains
from dibs.language.expression import Kind, number_key
from dibs.language.normal_form import normal_form
from dibs.language.printer import to_sql
from dibs.language.reading import read
from dibs.language.rows import read_row
from dibs.language.sql import parse
from dibs.language.table import Facet, Op, PredicateTable, concatenate
from dibs.segments.compile import compile_forms, compile_mixed, compile_texts, form_of
from strategies import expressions

NAMES = ["a", "b", "a.b", "aa", "Z", "é", "\U0001f600", "\uffff", ""]
NUMBERS = [0, 1, -1, 0.5, 1.5, 2**53, 2**53 + 1, 2**53 + 3, 2.0**53 + 2, -(2**53) - 1, 2**62 + 1, 2**63 - 1, 2**63,
           -(2**63), 1 - 2**63, 2**64 - 1, 5e-324, -5e-324, 1e300, float("inf"), float("-inf"), float("nan"),
           *range(100, 140), *range(-140, -100)]  # fmt: skip
TEXTS = [b"", b"\0", b"a", b"a\0", b"ab", b"abcdefgh", b"abcdefgh\0", b"abcdefghi", b"abcdefgz", b"b",
         "é".encode(), b"\xfe", b"\xff", *(b"prefixed%d" % i for i in range(40))]  # fmt: skip
TIMES = [0, -1, 1, 2**63 - 1, -(2**63), *range(1000, 1040)]
MANY = st.integers(0, 60)


def literal_values(kind: Kind) -> st.SearchStrategy:
    """(kind, number, integer) as in a PredicateTable, a string's text instead of its number."""
    if kind == Kind.NUMBER:
        return st.sampled_from(NUMBERS).map(lambda x: (kind, *number_key(x)))
    pool = {Kind.STRING: TEXTS, Kind.TIME: TIMES, Kind.BOOLEAN: [0, 1]}[kind]
    return st.sampled_from(pool).map(lambda x: (kind, 0.0, x))


@st.composite
def tables(draw: st.DrawFn) -> PredicateTable:
    """Any operator over any literals, also where no text would say so."""
    attributes = draw(
        st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(list(Facet))), unique=True, max_size=6)
    )
    texts: dict[bytes, int] = {}
    attribute, operator, counts, literals = [], [], [], []
    rows = draw(st.lists(st.integers(0, 4), max_size=8)) if attributes else [0] * draw(st.integers(0, 2))
    for _ in range(sum(rows)):
        a = draw(st.integers(0, len(attributes) - 1))
        facet = attributes[a][1]
        kinds = {Facet.VALUE: list(Kind), Facet.TIME: [Kind.TIME]}.get(facet, [Kind.STRING])
        op = Op.PATTERN
        if facet not in (Facet.PATTERN, Facet.NO_PATTERN):
            op = draw(st.sampled_from([x for x in Op if x != Op.PATTERN]))
        count = 1
        if op in (Op.STRING, Op.IS_NULL, Op.NOT_NULL, Op.NEVER):
            count = 0
        elif op in (Op.BETWEEN, Op.NOT_BETWEEN, Op.WITHIN, Op.NOT_WITHIN):
            count = 2
        elif op in (Op.IN, Op.NOT_IN):
            count = draw(MANY)
        if draw(st.integers(0, 4)):
            kinds = [draw(st.sampled_from(kinds))]
        own = draw(st.lists(st.sampled_from(kinds).flatmap(literal_values), min_size=count, max_size=count))
        attribute.append(a)
        operator.append(op)
        counts.append(count)
        literals += own
    integer = [texts.setdefault(x, len(texts)) if k == Kind.STRING else x for k, _, x in literals]
    conjunctions = draw(st.integers(0, len(rows)))
    offsets = np.cumsum([0, *rows])
    jumps = np.arange(offsets[-1] - offsets[conjunctions], dtype=np.int32)  # they are only handed on
    return PredicateTable(
        offsets=offsets.astype(np.int64),
        attribute=np.array(attribute, np.int32),
        operator=np.array(operator, np.uint8),
        literal_offsets=np.cumsum([0, *counts]).astype(np.int64),
        kind=np.array([k for k, _, _ in literals], np.uint8),
        number=np.array([x for _, x, _ in literals], np.float64),
        integer=np.array(integer, np.int64),
        attributes=attributes,
        texts=list(texts),
        conjunctions=conjunctions,
        on_true=jumps,
        on_false=-jumps,
    )


def in_order(table: PredicateTable) -> PredicateTable:
    """The same table with its attributes sorted."""
    order = sorted(range(len(table.attributes)), key=lambda a: (table.attributes[a][0], int(table.attributes[a][1])))
    number = {a: i for i, a in enumerate(order)}
    fields = dict(vars(table))
    fields["attributes"] = [table.attributes[a] for a in order]
    fields["attribute"] = np.array([number[a] for a in table.attribute.tolist()], np.int32)
    return PredicateTable(**fields)


def assert_same(found: tuple[Domains, Clauses], wanted: tuple[Domains, Clauses]) -> None:
    assert found[0].attributes == wanted[0].attributes
    for mine, twin in zip(found, wanted):
        for name in mine.ARRAYS:
            a, b = getattr(mine, name), getattr(twin, name)
            assert a.dtype == b.dtype, name
            assert a.tolist() == b.tolist(), name
    assert found[1].conjunctions == wanted[1].conjunctions
    assert found[1].attributes == wanted[1].attributes


def check(table: PredicateTable) -> None:
    domains, clauses = code_clauses(table)
    assert domains.attributes == sorted(table.attributes)
    assert_same((domains, clauses), plain_code_clauses(in_order(table)))
    for mine, twin in zip((domains.string_base, domains.time_base, domains.cells), plain_bases(domains)):
        assert mine.dtype == twin.dtype
        assert mine.tolist() == twin.tolist()
    assert [domains.number_of[a] for a in domains.attributes] == list(range(len(domains.attributes)))


@settings(max_examples=300)
@given(tables())
def test_any_table(table):
    check(table)


@given(st.lists(expressions(extremes=True), max_size=8))
def test_tables_of_expressions(trees):
    check(compile_forms([normal_form(t) for t in trees]).table)


@pytest.mark.parametrize("values", [13, 40, 3000])
def test_many_literals_of_one_attribute(values):
    """More than are sorted by insertion, in every state of order, with few and with many distinct ones."""
    random = np.random.default_rng(values)
    shuffled = random.permutation(values)
    lists = [np.arange(values), np.arange(values)[::-1], shuffled, shuffled // 7, shuffled % 5]
    numbers = np.concatenate(lists)
    n = len(numbers)
    texts = [b"a common prefix %d" % i for i in range(values)]
    kinds = np.tile(np.array([Kind.NUMBER, Kind.STRING, Kind.TIME], np.uint8), n)
    # Numbers beyond 2**53 share their float and differ in the rest.
    value = np.where(kinds == Kind.NUMBER, 2.0**62 + 1024 * (np.repeat(numbers, 3) // 100), 0.0)
    integer = np.repeat(numbers, 3)
    integer[kinds == Kind.NUMBER] %= 100
    count = 3 * values
    predicates = len(lists)
    table = PredicateTable(
        offsets=np.arange(predicates + 1),
        attribute=np.zeros(predicates, np.int32),
        operator=np.array([Op.IN, Op.NOT_IN, Op.IN, Op.IN, Op.IN], np.uint8),
        literal_offsets=np.arange(predicates + 1) * count,
        kind=kinds,
        number=value,
        integer=integer,
        attributes=[("a", Facet.VALUE)],
        texts=texts,
        conjunctions=predicates,
        on_true=np.empty(0, np.int32),
        on_false=np.empty(0, np.int32),
    )
    check(table)


def test_attributes_are_sorted_by_name_and_facet():
    forms = [
        normal_form(parse(t))
        for t in ("`b` = 1", "ENDSWITH(a, 'x')", "a LIKE '%x%y'", "a = 1", "NOT a LIKE '%x%'", "`é` = 1", "`Z` = 1")
    ]
    domains, clauses = code_clauses(compile_forms(forms).table)
    names = [("Z", 0), ("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("é", 0)]
    assert domains.attributes == names
    assert [names[a][0] for a in clauses.attribute] == ["b", "a", "a", "a", "a", "é", "Z"]


def test_empty_tables():
    for table in (compile_forms([]).table, compile_texts(pa.array([], pa.large_string())).table):
        domains, clauses = code_clauses(table)
        assert (len(clauses), domains.attributes, len(domains.cells)) == (0, [], 0)


def test_one_version_of_each_kernel():
    """Every way to a table hands over the same types: nothing is compiled twice."""
    texts = ["a = 1 AND b <> 'x'", "c IN (1, 2) OR d = 'y'", "e LIKE 'x%'"]
    column = pa.array(texts, pa.large_string())
    forms = [form_of(t) for t in texts]
    code_clauses(compile_texts(column).table)
    code_clauses(compile_mixed(column, forms).table)
    code_clauses(compile_mixed(column, [forms[0], None, None]).table)
    code_clauses(read(column[:1]).table)
    code_clauses(compile_forms([]).table)
    assert len(lay_out.signatures) == len(spans_of.signatures) == 1


# ---- rows that are read one by one ----


@given(st.lists(expressions(max_leaves=4), min_size=1, max_size=6))
def test_rows_are_what_columns_have(trees):
    """Names, operators, literals and jumps of each text, whether it is read alone or with others."""
    texts = [to_sql(t) for t in trees]
    column = read(pa.array(texts))
    rows = [read_row(t) for t in texts]
    assert [row is not None for row in rows] == column.taken.tolist()
    table = column.table
    assert len(set(table.texts)) == len(table.texts)
    for r, place in enumerate(column.order.tolist()):
        own = range(table.offsets[r], table.offsets[r + 1])
        steps = rows[place].steps(texts[place])
        facets = {table.attributes[table.attribute[p]][1] for p in own}
        assert (steps is not None) == (facets <= {Facet.VALUE, Facet.TIME})
        for p, step in zip(own, steps or []):
            assert (step.name, step.operator) == (table.attributes[table.attribute[p]][0], table.operator[p])
            span = slice(table.literal_offsets[p], table.literal_offsets[p + 1])
            bits = table.number[span].view(np.int64).tolist()
            for kind, number, integer, value in zip(table.kind[span], bits, table.integer[span], step.literals):
                assert (kind, number) == (value.kind, value.bits)
                assert (table.texts[integer] == value.text) if kind == Kind.STRING else integer == value.integer
            assert len(step.literals) == span.stop - span.start
            if r >= table.conjunctions:
                base = table.offsets[table.conjunctions]
                assert (step.on_true, step.on_false) == (table.on_true[p - base], table.on_false[p - base])


SIMPLE = st.sampled_from(TAKEN).filter(bool)
GENERAL = expressions(max_leaves=4).map(to_sql)


@given(st.lists(st.tuples(st.one_of(SIMPLE, GENERAL), st.booleans()), max_size=8))
def test_mixtures_of_what_is_read_and_what_is_not(items):
    """Each row has the spans that its text has in a table of all texts, whichever way it came there."""
    texts = pa.array([text for text, _ in items], pa.large_string())
    forms = [form_of(text) if read else None for text, read in items]
    mixed = compile_mixed(texts, forms)
    whole = compile_texts(texts)
    assert sorted(mixed.order.tolist()) == list(range(len(items)))
    assert mixed.errors == {}
    assert by_text(mixed) == by_text(whole)
    assert mixed.order.tolist() == whole.order.tolist()
    assert_same(code_clauses(mixed.table), code_clauses(whole.table))


def by_text(compiled) -> dict[int, list]:
    """The predicates of each text by their names, spans and jumps."""
    domains, c = code_clauses(compiled.table)
    result = {}
    base = int(c.offsets[c.conjunctions])
    for r, place in enumerate(compiled.order.tolist()):
        own = []
        for p in range(c.offsets[r], c.offsets[r + 1]):
            lo, hi = int(c.lo[p]), int(c.hi[p])
            side = slice(lo, lo - hi)
            spans = [(lo, hi)] if hi >= 0 else list(zip(c.span_lo[side].tolist(), c.span_hi[side].tolist()))
            jumps = (int(c.on_true[p - base]), int(c.on_false[p - base])) if r >= c.conjunctions else None
            own.append((domains.attributes[c.attribute[p]], spans, jumps))
        result[place] = own
    return result


def test_tables_without_rows_add_nothing():
    empty = compile_forms([]).table
    one = read(pa.array(["b = 'x' AND a = 1"])).table
    other = compile_forms([normal_form(parse("a = 'x' OR c = 'y'"))]).table
    assert concatenate([empty, one, empty]) is one
    assert concatenate([empty, empty]) is empty
    joined = concatenate([one, empty, other])
    assert joined.attributes == [("b", 0), ("a", 0), ("c", 0)]
    assert (len(joined), joined.conjunctions, joined.texts) == (2, 1, [b"x", b"y"])
    assert joined.on_true.tolist() == other.on_true.tolist()
